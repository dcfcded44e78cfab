"""One guide per teacher: the objective of which a random teacher's is a sample."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from churn_jax._checks import check_batch, check_same_shape
from churn_jax.perturbations.ods import pulled_back, unit_directions
from churn_jax.typing import Array, Logits, PerExample

__all__ = ["all_teacher_direction", "all_teacher_objective"]


def all_teacher_objective(
    predict: Callable[[Array], Logits],
    images: Array,
    guides: Array,
    *,
    temperature: float | Array = 1.0,
) -> PerExample:
    """How far every teacher follows a guide of its own, `sum_m w_m . T_m(x)`.

    Args:
        predict: all teachers, `(images) -> logits [T, B, C]`.
        images: `[B, ...]`, floating point.
        guides: `[T, B, C]`.
        temperature: tau of `T_m = softmax(logits / tau)`.

    Returns:
        `[B]` float32.

    Raises:
        ValueError: guides and logits have different shapes.
        TypeError: the images are not floating point.

    Example:
        >>> import jax.numpy as jnp
        >>> x, guides = jnp.ones((1, 2)), jnp.array([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> float(all_teacher_objective(lambda x: jnp.stack([x, x]), x, guides)[0])
        1.0

    Notes:
        The paper's formula is lost in our copy of the text; this is derived from its
        words. With a teacher m drawn evenly, T times the gradient of `w_m . T_m(x)` has
        the gradient of this as its mean.

    References:
        [diversity] Eq. 7 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    check_batch(images)
    logits = predict(images)
    check_same_shape(guides=guides, **{"the teachers' logits": logits})
    probs = jax.nn.softmax(logits.astype(jnp.float32) / temperature)
    return jnp.sum(guides.astype(jnp.float32) * probs, axis=(0, -1))


def all_teacher_direction(
    predict: Callable[[Array], Logits],
    images: Array,
    guides: Array,
    *,
    temperature: float | Array = 1.0,
) -> Array:
    """The direction in which every teacher follows a guide of its own.

    The unit gradient of `all_teacher_objective`: T forward and backward passes, where a
    random teacher takes one.

    Args:
        predict: all teachers, `(images) -> logits [T, B, C]`.
        images: `[B, ...]`, floating point.
        guides: `[T, B, C]`.
        temperature: tau.

    Returns:
        `[B, ...]` float32, of unit norm per example.

    Raises:
        ValueError: guides and logits have different shapes.
        TypeError: the images are not floating point.

    Example:
        >>> import jax.numpy as jnp
        >>> x, guides = jnp.zeros((1, 2)), jnp.array([[[1.0, 0.0]], [[1.0, 0.0]]])
        >>> all_teacher_direction(lambda x: jnp.stack([x, x]), x, guides)
        Array([[ 0.70710677, -0.70710677]], dtype=float32)

    Notes:
        Derived, as `all_teacher_objective` is.

    References:
        [diversity] Eq. 7 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    check_batch(images)

    def given(probs):
        check_same_shape(guides=guides, **{"the teachers' logits": probs})
        return guides.astype(jnp.float32)

    _, gradients = pulled_back(predict, images, given, temperature=temperature)
    return unit_directions(gradients)
