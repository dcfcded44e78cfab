"""Output-diversified sampling: small input steps that spread a network's outputs."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from churn_jax.typing import Array, Logits

__all__ = [
    "Directions",
    "all_teacher_direction",
    "conf_ods",
    "draw_guides",
    "ods",
    "ods_directions",
    "step",
    "unit_directions",
]

# `(images [B, ...]) -> logits [B, C]`, every example by itself (no batch statistics).
Predict = Callable[[Array], Logits]


class Directions(NamedTuple):
    """Where to step, and how sure the network is there.

    Attributes:
        directions: `[B, ...]`, of unit norm per example; zeros where the gradient is.
        confidence: `[B]`, the largest tempered probability.
    """

    directions: Array
    confidence: Array


def unit_directions(gradients: Array) -> Array:
    """Every example's gradient divided by its L2 norm; one of zeros stays zero.

    Args:
        gradients: `[B, ...]`.
    """
    gradients = gradients.astype(jnp.float32)
    axes = tuple(range(1, gradients.ndim))
    # By the largest entry first: squares of a confident network's gradients underflow.
    largest = jnp.max(jnp.abs(gradients), axis=axes, keepdims=True)
    moved = (largest > 0) & jnp.isfinite(largest)
    safe = jnp.where(moved, gradients / jnp.where(moved, largest, 1.0), 0.0)
    norm = jnp.sqrt(jnp.sum(jnp.square(safe), axis=axes, keepdims=True))
    return safe / jnp.where(moved, norm, 1.0)


def draw_guides(keys: Array, num_classes: int) -> Array:
    """The random guides w, uniform on (-1, 1), `[B, C]`; one key per example."""
    draw = jax.vmap(
        lambda key: jax.random.uniform(key, (num_classes,), minval=-1.0, maxval=1.0)
    )
    return draw(keys)


def ods_directions(
    predict: Predict,
    images: Array,
    keys: Array,
    *,
    temperature: float | Array = 1.0,
) -> Directions:
    r"""Directions in which a network's tempered probabilities follow a random guide.

    `eps(x; f, w) = grad_x (w . f_tau(x)) / || grad_x (w . f_tau(x)) ||_2`, where
    `f_tau = softmax(logits / tau)`; one forward and one backward pass.

    Args:
        predict: `(images) -> logits [B, C]`.
        images: `[B, ...]`, in the space in which the step is meant (pixels).
        keys: `[B]` typed keys, one guide each.
        temperature: tau.

    Returns:
        `Directions`.

    References:
        [diversity] Eq. 3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    def tempered(x):
        return jax.nn.softmax(predict(x).astype(jnp.float32) / temperature)

    probs, pull = jax.vjp(tempered, images)
    (gradients,) = pull(draw_guides(keys, probs.shape[-1]))
    return Directions(unit_directions(gradients), jnp.max(probs, axis=-1))


def step(
    images: Array,
    directions: Array,
    *,
    step_size: float | Array,
    pixel_range: tuple[float, float] | None = (0.0, 1.0),
) -> Array:
    """`x + eta sqrt(D) d`, clipped: `step_size` is the RMS change per pixel.

    Args:
        images: `[B, ...]`.
        directions: `[B, ...]`, of unit norm per example.
        step_size: eta; a step has the L2 norm `eta sqrt(D)`, D numbers per example.
        pixel_range: what images are clipped to; None does not.
    """
    size = step_size * jnp.sqrt(jnp.float32(images[0].size))
    moved = images + size * directions
    return moved if pixel_range is None else jnp.clip(moved, *pixel_range)


def ods(
    predict: Predict,
    images: Array,
    keys: Array,
    *,
    step_size: float | Array = 1 / 255,
    temperature: float | Array = 1.0,
    pixel_range: tuple[float, float] | None = (0.0, 1.0),
) -> Array:
    """Images a step of fixed norm along their ODS direction.

    `x~ = x + eta sqrt(D) eps(x; T_m, w)`.

    Args:
        predict: the teacher drawn for the batch, `(images) -> logits [B, C]`.
        images: `[B, ...]`, pixels.
        keys: `[B]` typed keys.
        step_size: eta, RMS per pixel.
        temperature: tau of the probabilities that the guide follows.
        pixel_range: what images are clipped to; None does not.

    Returns:
        `[B, ...]` float32.

    References:
        [diversity] Eq. 4 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    found = ods_directions(predict, images, keys, temperature=temperature)
    return step(images, found.directions, step_size=step_size, pixel_range=pixel_range)


def conf_ods(
    predict: Predict,
    images: Array,
    keys: Array,
    *,
    step_size: float | Array = 1 / 255,
    temperature: float | Array = 1.0,
    pixel_range: tuple[float, float] | None = (0.0, 1.0),
) -> Array:
    """ODS with steps in proportion to the teacher's confidence.

    `x~ = x + eta sqrt(D) C(x) eps(x; T_m, w)` with `C(x) = max_k T_m(x)_k`, tempered:
    what the teacher is sure of moves furthest. The arguments are those of `ods`.

    References:
        [diversity] Eq. 8 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    found = ods_directions(predict, images, keys, temperature=temperature)
    confidence = found.confidence.reshape(-1, *(1,) * (images.ndim - 1))
    return step(
        images,
        found.directions * confidence,
        step_size=step_size,
        pixel_range=pixel_range,
    )


def all_teacher_direction(
    predict: Callable[[Array], Logits],
    images: Array,
    guides: Array,
    *,
    temperature: float | Array = 1.0,
) -> Array:
    r"""The direction in which every teacher follows a guide of its own.

    The unit gradient of `sum_m w_m . T_m(x)`. One random teacher's ODS gradient is,
    times M, an unbiased one-sample estimate of this one's.

    Args:
        predict: all teachers, `(images) -> logits [T, B, C]`.
        images: `[B, ...]`.
        guides: `[T, B, C]`.
        temperature: tau.

    Returns:
        `[B, ...]`, of unit norm per example.

    Notes:
        The paper's formula is lost in our copy of the text; this is derived from its
        words.

    References:
        [diversity] Eq. 7 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    def tempered(x):
        return jax.nn.softmax(predict(x).astype(jnp.float32) / temperature)

    _, pull = jax.vjp(tempered, images)
    return unit_directions(pull(guides.astype(jnp.float32))[0])
