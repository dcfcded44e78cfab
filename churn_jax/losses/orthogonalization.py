"""Gram-Schmidt over the batch, and the decorrelation penalty that it enhances.

A class's outputs of one member are a vector with one entry per example of the *global*
batch; members are taken in order. Masks and `axis_name` as in `decorrelation.py`.
"""

import jax
import jax.numpy as jnp

from churn_jax.losses.moments import (
    AxisName,
    Examples,
    MemberOutputs,
    gather_examples,
    inner_products,
    sum_over_devices,
)
from churn_jax.typing import Array, Mask, Scalar

# A residual shorter than this share of its vector is rounding, not a direction: float32
# leaves about 1e-7 of a vector that lies in the span of the ones before it.
_DEPENDENT = 1e-5


def _sizes(values: Array, axis_name: AxisName) -> Array:
    """The power of two below the largest entry per member and class, `[M, 1, K]`."""
    # Constants for the gradient. Vectors divided by them have squares that neither
    # overflow nor vanish, and a power of two up to 2^125 costs no digits.
    values = jax.lax.stop_gradient(values)
    largest = jnp.max(jnp.abs(values), axis=1, keepdims=True, initial=0.0)
    if axis_name is not None:
        largest = jax.lax.pmax(largest, axis_name)
    exponent = jnp.frexp(jnp.where(largest > 0.0, largest, 1.0))[1]
    return jnp.ldexp(jnp.ones_like(largest), jnp.minimum(exponent - 1, 125))


def _inner(basis: Array, vector: Array, axis_name: AxisName) -> Array:
    """`sum_t q_it z_t` per class; `[M, B, K]` and `[B, K]` to `[M, 1, K]`."""
    product = jnp.sum(basis * vector[None], axis=1, keepdims=True)
    return sum_over_devices(product, axis_name)


def _residuals(examples: Examples, axis_name: AxisName) -> Array:
    """The residual vectors `q [M, B, K]`, exactly 0 for a dependent vector."""
    # Gram-Schmidt of c z is c times that of z, for every vector by itself.
    sizes = _sizes(examples.values, axis_name)
    values = examples.values / sizes
    members = jnp.arange(values.shape[0])

    def subtract_projections(vector, basis, lengths):
        kept = lengths > 0.0
        share = _inner(basis, vector, axis_name) / jnp.where(kept, lengths, 1.0)
        return vector - jnp.sum(jnp.where(kept, share, 0.0) * basis, axis=0)

    def add_member(carry, member):
        basis, lengths = carry  # rows not reached yet are 0
        index, vector = member
        # Twice: one pass leaves the rounding of long common parts in short residuals.
        residual = subtract_projections(vector, basis, lengths)
        residual = subtract_projections(residual, basis, lengths)
        length = _inner(residual[None], residual, axis_name)
        whole = _inner(vector[None], vector, axis_name)
        kept = length > _DEPENDENT**2 * whole
        here = (members == index).reshape(-1, 1, 1)
        basis = jnp.where(here, jnp.where(kept, residual[None], 0.0), basis)
        lengths = jnp.where(here, jnp.where(kept, length, 0.0), lengths)
        return (basis, lengths), None

    # Zeros that vary over the mesh as the outputs (or the sums over it) do.
    basis = jnp.zeros_like(values)
    lengths = sum_over_devices(jnp.sum(basis, axis=1, keepdims=True), axis_name)
    (basis, _), _ = jax.lax.scan(add_member, (basis, lengths), (members, values))
    return basis * sizes


def orthogonalize(
    outputs: MemberOutputs, mask: Mask | None = None, axis_name: AxisName = None
) -> Array:
    """Gram-Schmidt residuals of the members' outputs over the batch, per class.

    `q_j = z_j - sum_(i < j) (<q_i, z_j> / <q_i, q_i>) q_i` with
    `<a, b> = sum_t a_t b_t` over the valid examples of the global batch. Directions are
    not normalised, so `q_1 = z_1` and outputs keep their size.

    Args:
        outputs: `[M, B, ...]` floating point, `z`; trailing axes are classes.
        mask: `[B]` valid examples; padded rows come back as 0.
        axis_name: mapped axes that share the batch.

    Returns:
        `q`, float32, shaped as `outputs`.

    Raises:
        ValueError: no member or example axis, or a mask that does not fit.
        TypeError: the outputs are not floating point.

    Example:
        >>> orthogonalize(jnp.array([[1.0, 2.0], [3.0, -1.0]])).tolist()[1]
        [2.799999952316284, -1.399999976158142]

    Notes:
        The order of the members matters. A vector in the span of earlier ones (less
        than 1e-5 of its length is left; a zero vector too) becomes exactly 0, with
        gradient 0, and takes part no further. Every projection is subtracted twice,
        which keeps the residuals orthogonal to about 1e-6 of their lengths.

    References:
        [anti-distillation] Sec. 4
    """
    examples = gather_examples(outputs, mask, axis_name, least=1)
    return _residuals(examples, axis_name).reshape(jnp.shape(outputs))


def orthogonalized_correlation_penalty(
    outputs: MemberOutputs, mask: Mask | None = None, axis_name: AxisName = None
) -> Scalar:
    """Squared correlations of each member with what earlier members add.

    `L = sum_c sum_j sum_(i < j) (1/k <q_i, z_j>)^2`, `q = orthogonalize(z)`.

    Args:
        outputs: `[M, B, ...]` floating point, M at least 2, `z`; trailing axes are
            classes c.
        mask, axis_name: as in `orthogonalize`.

    Returns:
        A float32 scalar, at least 0; 0 without a valid example.

    Raises:
        ValueError: fewer than two members, or a mask that does not fit.
        TypeError: the outputs are not floating point.

    Example:
        >>> from churn_jax.losses import correlation_penalty
        >>> z = jnp.array([[1.0, 2.0]] * 4)  # four equal members: 6 pairs, 3 to part
        >>> f"{correlation_penalty(z):.2f} {orthogonalized_correlation_penalty(z):.2f}"
        '37.50 18.75'

    Notes:
        The paper applies Gram-Schmidt "before applying the loss". Read literally the
        loss is zero for any outputs: orthogonalised vectors have no off-diagonal
        correlation left. Its aim, that correlated components are not counted more than
        once, is kept by our reading: the raw vector of each member against the
        residuals of those before it, so a direction that several members share counts
        once per later member and not once per pair. Equal to `correlation_penalty` for
        two members and for orthogonal ones (both 0). The value depends on the order
        of three or more members. Gradients flow through the residuals too.

    References:
        [anti-distillation] Sec. 4
    """
    examples = gather_examples(outputs, mask, axis_name)
    residuals = _residuals(examples, axis_name)
    correlation = inner_products(residuals, examples.values, axis_name) / examples.count
    # Row i against column j; below the diagonal <q_i, z_j> is 0 up to rounding.
    members = correlation.shape[-1]
    earlier = jnp.triu(jnp.ones((members, members), jnp.bool_), 1)[None]
    return jnp.sum(jnp.square(jnp.where(earlier, correlation, 0.0)))
