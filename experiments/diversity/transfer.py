"""How much of one teacher's ODS direction another teacher would have chosen."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from churn_jax._checks import check_same_shape
from churn_jax.typing import Array, PerExample


class TransferredGuide(NamedTuple):
    """A guide of the drawn teacher, expressed for another teacher.

    Attributes:
        guides: `[..., C]` float32, with which the other teacher's direction is nearest
            to the drawn one's; the shortest such guide.
        explained: `[...]` float32 in [0, 1], the share of the squared norm of the drawn
            teacher's direction that this reaches; 0 where there is no direction.
    """

    guides: Array
    explained: PerExample


def transferred_guide(
    *,
    drawn_jacobians: Array,
    other_jacobians: Array,
    guides: Array,
    tolerance: float | Array = 1e-4,
) -> TransferredGuide:
    """The guide of another teacher that gives the drawn teacher's direction.

    `w^T J_i = v^T J_j` in least squares: `v = argmin || J_j^T v - J_i^T w ||_2`. Where
    `J_i = A J_j` that is `v = A^T w`, with nothing left over.

    Args:
        drawn_jacobians: `[..., C, D]`, `J_i` of the drawn teacher's probabilities.
        other_jacobians: `[..., C, D]`, `J_j`.
        guides: `[..., C]`, w.
        tolerance: singular values of `J_j` below this share of the largest one count as
            zero. Probabilities sum to one, so the rank is at most C - 1.

    Returns:
        `TransferredGuide`.

    Notes:
        The paper's formula is lost in our copy of the text; this is derived: a guide
        seen through the Jacobian of teacher i acts on teacher j as `A^T w`. The share
        explained is the squared cosine between the two teachers' steps, so its mean
        over guides measures how far a step drawn from one teacher serves another. A
        constant added to a guide changes no step; the constant of `v` is zero.

    References:
        [diversity] Eq. 6 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    check_same_shape(drawn_jacobians=drawn_jacobians, other_jacobians=other_jacobians)
    if jnp.ndim(drawn_jacobians) < 2:
        raise ValueError(
            f"Jacobians must be [..., C, D]; got shape {jnp.shape(drawn_jacobians)}"
        )
    if jnp.shape(guides) != jnp.shape(drawn_jacobians)[:-1]:
        raise ValueError(
            "guides must be [..., C] for Jacobians [..., C, D]; got "
            f"{jnp.shape(guides)} for {jnp.shape(drawn_jacobians)}"
        )
    drawn, other, w = (
        jnp.asarray(x).astype(jnp.float32)
        for x in (drawn_jacobians, other_jacobians, guides)
    )
    exact = jax.lax.Precision.HIGHEST
    target = jnp.einsum("...c,...cd->...d", w, drawn, precision=exact)
    # Lengths of 1: a confident teacher's gradients are so small that squares underflow.
    longest = jnp.max(jnp.abs(target), axis=-1, keepdims=True)
    there = longest > 0.0
    target = target / jnp.where(there, longest, 1.0)

    left, size, right = jnp.linalg.svd(other, full_matrices=False)
    kept = (size > tolerance * size[..., :1]) & (size > 0.0)
    along = jnp.einsum("...kd,...d->...k", right, target, precision=exact)
    along = jnp.where(kept, along, 0.0)
    scaled = along / jnp.where(kept, size, 1.0) * longest
    found = jnp.einsum("...ck,...k->...c", left, scaled, precision=exact)

    whole = jnp.sum(jnp.square(target), axis=-1)
    share = jnp.sum(jnp.square(along), axis=-1) / jnp.where(there[..., 0], whole, 1.0)
    return TransferredGuide(found, jnp.minimum(share, 1.0))
