"""One prediction of several members' logits, and one model of two models' weights."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import PyTree

from churn_jax._checks import check_logits
from churn_jax.divergences import log_probs
from churn_jax.typing import Logits


def average_probs(logits: Logits) -> Logits:
    r"""Log of the mean of the members' probabilities.

    `log (1/M sum_m softmax(z_m)) = logsumexp_m(log softmax(z_m)) - log M`, which is
    a set of logits again and never takes the log of a rounded probability.

    Args:
        logits: `[M, ..., C]`, members first.

    Returns:
        `[..., C]` float32 log-probabilities.

    Example:
        >>> import jax.numpy as jnp
        >>> z = jnp.log(jnp.array([[[0.9, 0.1]], [[0.5, 0.5]]]))
        >>> [round(float(p), 3) for p in jnp.exp(average_probs(z))[0]]
        [0.7, 0.3]

    References:
        [anti-distillation] Section 2
    """
    check_logits(logits=logits)
    return jax.nn.logsumexp(log_probs(logits), axis=0) - jnp.log(logits.shape[0])


def average_logits(logits: Logits) -> Logits:
    """Mean of the members' logits, float32.

    Args:
        logits: `[M, ..., C]`, members first.

    Returns:
        `[..., C]`.

    References:
        [elodi] Section 3.2
    """
    check_logits(logits=logits)
    return jnp.mean(jnp.asarray(logits).astype(jnp.float32), axis=0)


def gate(logits: Logits, log_weights: jax.Array) -> Logits:
    """Mixture of the members' probabilities with the given log-weights.

    `log sum_m w_m softmax(z_m)`; `log_weights` are normalised over members.

    Args:
        logits: `[M, ..., C]`.
        log_weights: `[M]`, or `[M, ...]` to weight every example differently.

    Returns:
        `[..., C]` float32 log-probabilities.

    Raises:
        ValueError: `log_weights` fits neither form.
    """
    check_logits(logits=logits)
    weights = jnp.asarray(log_weights).astype(jnp.float32)
    if weights.shape not in (logits.shape[:1], logits.shape[:-1]):
        raise ValueError(
            f"log_weights must be {logits.shape[:1]} or {logits.shape[:-1]}; got "
            f"{weights.shape}"
        )
    weights = jax.nn.log_softmax(weights, axis=0)
    weights = weights.reshape(weights.shape + (1,) * (logits.ndim - weights.ndim))
    weights = jnp.broadcast_to(weights, logits.shape)
    return jax.nn.logsumexp(log_probs(logits) + weights, axis=0)


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
