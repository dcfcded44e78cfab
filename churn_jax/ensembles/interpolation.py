"""Weights between two models of one architecture."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from churn_jax.typing import PyTree

__all__ = ["interpolate_weights"]


def interpolate_weights(new: PyTree, old: PyTree, share: ArrayLike) -> PyTree:
    """The old model's weights mixed into the new one's, which was trained from them.

    `share * old + (1 - share) * new`, leaf by leaf. The new model must have been
    fine-tuned from the old one: weights of independent trainings lie apart.

    Args:
        new: variables of the new model, any tree; its dtypes are kept.
        old: the same tree of the old model.
        share: w, from 0 (the new model) to 1 (the old one); may be traced.

    Returns:
        The mixed tree. Leaves that are not floating point are the new model's.

    Raises:
        ValueError: the trees or the shapes of their leaves differ.

    Example:
        >>> import jax.numpy as jnp
        >>> mixed = interpolate_weights({"w": jnp.ones(2)}, {"w": jnp.zeros(2)}, 0.25)
        >>> mixed["w"].tolist()
        [0.75, 0.75]

    Notes:
        Batch statistics in the tree are interpolated as the weights are; recomputing
        them on training data afterwards is more exact.

    References:
        [bcwi] Sec. 3 -- Schumann et al., Backward Compatibility During Data Updates
        by Weight Interpolation, EACL 2024. https://arxiv.org/abs/2301.10546
    """
    if jax.tree.structure(new) != jax.tree.structure(old):
        raise ValueError("old and new weights are different trees")

    def mix(a, b):
        if jnp.shape(a) != jnp.shape(b):
            raise ValueError(
                f"old and new weights differ in shape: {jnp.shape(b)}, {jnp.shape(a)}"
            )
        if not jnp.issubdtype(jnp.result_type(a), jnp.floating):
            return a
        return (share * b + (1.0 - share) * a).astype(jnp.result_type(a))

    return jax.tree.map(mix, new, old)
