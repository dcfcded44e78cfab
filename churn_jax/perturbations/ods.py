"""Output-diversified sampling, and the small input steps that it is compared with."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from churn_jax._checks import (
    check_batch,
    check_labels,
    check_logits,
    check_members,
    check_same_shape,
    known_number,
)
from churn_jax.divergences import kl_divergence
from churn_jax.typing import Array, Labels, Logits, PerExample

# `(images [B, ...]) -> logits [B, C]`, every example by itself (no batch statistics).
Predict = Callable[[Array], Logits]


class Directions(NamedTuple):
    """Where to step, and how sure the network is there."""

    # `[B, ...]` float32, of unit norm per example; zeros where the gradient is
    directions: Array
    confidence: PerExample  # `[B]` float32, the largest tempered probability


def unit_directions(gradients: Array) -> Array:
    """Every example's gradient divided by its L2 norm.

    Args:
        gradients: `[B, ...]`, floating point.

    Returns:
        `[B, ...]` float32; zeros where a gradient is zero or not finite.

    Raises:
        ValueError: there is no axis after the batch axis.
        TypeError: the gradients are not floating point.

    Example:
        >>> unit_directions(jnp.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]

    References:
        [diversity] Eq. 3
    """
    check_batch(gradients)
    gradients = gradients.astype(jnp.float32)
    axes = tuple(range(1, gradients.ndim))
    # By the largest entry first: squares of a confident network's gradients underflow.
    largest = jnp.max(jnp.abs(gradients), axis=axes, keepdims=True)
    # Below the smallest normal number a quotient has no digits left.
    moved = (largest >= jnp.finfo(jnp.float32).tiny) & jnp.isfinite(largest)
    scale = jnp.where(moved, jnp.minimum(largest, 1e37), 1.0)  # 1 / 1e38 is subnormal
    safe = jnp.where(moved, gradients / scale, 0.0)
    norm = jnp.sqrt(jnp.sum(jnp.square(safe), axis=axes, keepdims=True))
    return safe / jnp.where(moved, norm, 1.0)


def draw_guides(keys: Array, num_classes: int) -> Array:
    """The random guides w, uniform on (-1, 1); one key per example.

    Args:
        keys: `[B]` typed keys.
        num_classes: C.

    Returns:
        `[B, C]` float32; a row depends on its own key alone.

    Example:
        >>> draw_guides(jax.random.split(jax.random.key(0), 3), 10).shape
        (3, 10)

    References:
        [diversity] Eq. 3
    """
    form = (num_classes,), jnp.float32
    return jax.vmap(lambda key: jax.random.uniform(key, *form, -1.0, 1.0))(keys)


def _tempered(logits: Logits, temperature: float | Array) -> Logits:
    check_logits(logits=logits)
    if not 0 < known_number(temperature, 1.0) < math.inf:
        raise ValueError(f"temperature must be positive and finite; got {temperature}")
    return logits.astype(jnp.float32) / temperature


def pulled_back(
    predict: Predict,
    images: Array,
    guides: Callable[[Array], Array],
    *,
    temperature: float | Array = 1.0,
) -> tuple[Array, Array]:
    """Tempered probabilities p `[..., B, C]`, and the gradient of `sum guides(p) . p`.

    The gradient `[B, ...]` is that of the images, in their type.
    """

    def tempered(x):
        logits = _tempered(predict(x), temperature)
        if logits.shape[-2:-1] != images.shape[:1]:
            raise ValueError(
                "predict must give logits [..., B, C] for images [B, ...]; got "
                f"{logits.shape} for {images.shape}"
            )
        return jax.nn.softmax(logits)

    probs, pull = jax.vjp(tempered, images)
    w = guides(probs)
    # Probabilities sum to one, so a constant on a guide changes nothing. With zero for
    # the top class its probability may round to 1 and no digits are lost.
    top = jnp.argmax(probs, axis=-1, keepdims=True)
    return probs, pull(w - jnp.take_along_axis(w, top, axis=-1))[0]


def ods_directions(
    predict: Predict, images: Array, keys: Array, *, temperature: float | Array = 1.0
) -> Directions:
    r"""Directions in which a network's tempered probabilities follow a random guide.

    `eps(x; f, w) = grad_x (w . f_tau(x)) / || grad_x (w . f_tau(x)) ||_2`, where
    `f_tau = softmax(logits / tau)`; one forward and one backward pass.

    Args:
        images: in the space in which the step is meant (pixels).
        predict, keys, temperature: as in `ods`; errors as there.

    Returns:
        `Directions`.

    Example:
        >>> x, keys = jnp.eye(2, 3), jax.random.split(jax.random.key(0), 2)
        >>> found = ods_directions(lambda x: x @ jnp.eye(3, 2), x, keys)
        >>> found.directions.shape, found.confidence.shape
        ((2, 3), (2,))

    References:
        [diversity] Eq. 3
    """
    check_batch(images, keys=keys)
    probs, gradients = pulled_back(
        predict,
        images,
        lambda probs: draw_guides(keys, probs.shape[-1]),
        temperature=temperature,
    )
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
        images: `[B, ...]`, floating point.
        directions: `[B, ...]`, of unit norm per example.
        step_size: eta; a step has the L2 norm `eta sqrt(D)`, D numbers per example.
        pixel_range: range that images are clipped to; None does not.

    Returns:
        `[B, ...]` float32.

    Raises:
        ValueError: images and directions have different numbers of rows.
        TypeError: the images are not floating point.

    Example:
        >>> x, d = jnp.full((1, 4), 0.5), jnp.array([[1.0, 0.0, 0.0, 0.0]])
        >>> step(x, d, step_size=0.125).tolist()
        [[0.75, 0.5, 0.5, 0.5]]

    References:
        [diversity] Eq. 4
    """
    check_batch(images, directions=directions)
    size = step_size * math.sqrt(math.prod(images.shape[1:]))
    moved = images.astype(jnp.float32) + size * directions
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
    """Images moved by a step of fixed norm along their ODS direction.

    `x~ = x + eta sqrt(D) eps(x; T_m, w)`.

    Args:
        predict: the teacher drawn for the batch, `(images) -> logits [B, C]`.
        images: `[B, ...]`, pixels.
        keys: `[B]` typed keys.
        step_size: eta, RMS per pixel.
        temperature: tau of the probabilities that the guide follows, above 0.
        pixel_range: range that images are clipped to; None does not.

    Returns:
        `[B, ...]` float32; an image stays where its gradient is zero or not finite.

    Raises:
        ValueError: images, keys and logits have different numbers of rows, or
            `temperature` is not positive and finite (a traced one is not checked).
        TypeError: images or logits are not floating point.

    Example:
        >>> x, keys = jnp.full((2, 4), 0.5), jax.random.split(jax.random.key(0), 2)
        >>> moved = ods(lambda x: x @ jnp.eye(4, 3), x, keys, step_size=0.01)
        >>> [f"{norm:.3f}" for norm in jnp.linalg.norm(moved - x, axis=1)]
        ['0.020', '0.020']

    References:
        [diversity] Eq. 4
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
    what the teacher is sure of moves furthest.

    Arguments, result and errors are those of `ods`; nan where the confidence is.

    Example:
        >>> x, keys = jnp.full((1, 4), 0.5), jax.random.split(jax.random.key(0), 1)
        >>> even = conf_ods(lambda x: x @ jnp.eye(4, 2), x, keys, step_size=0.01)
        >>> f"{jnp.linalg.norm(even - x):.3f}"  # half of 0.02: two equal classes
        '0.010'

    References:
        [diversity] Eq. 8
    """
    found = ods_directions(predict, images, keys, temperature=temperature)
    confidence = found.confidence.reshape(-1, *(1,) * (images.ndim - 1))
    directions = found.directions * confidence
    return step(images, directions, step_size=step_size, pixel_range=pixel_range)


def all_teacher_direction(
    predict: Callable[[Array], Logits],
    images: Array,
    guides: Array,
    *,
    temperature: float | Array = 1.0,
) -> Array:
    """The direction in which every teacher follows a guide of its own.

    The unit gradient of `sum_m w_m . T_m(x)`: T forward and backward passes, where a
    random teacher takes one.

    Args:
        predict: all teachers, `(images) -> logits [T, B, C]`.
        images: `[B, ...]`, floating point.
        guides: w, `[T, B, C]`.
        temperature: tau of `T_m = softmax(logits / tau)`.

    Returns:
        `[B, ...]` float32, of unit norm per example.

    Raises:
        ValueError: guides and logits have different shapes, or as in `ods`.
        TypeError: the images are not floating point.

    Example:
        >>> x, guides = jnp.zeros((1, 2)), jnp.array([[[1.0, 0.0]], [[1.0, 0.0]]])
        >>> all_teacher_direction(lambda x: jnp.stack([x, x]), x, guides)
        Array([[ 0.70710677, -0.70710677]], dtype=float32)

    Notes:
        The paper's formula is lost in our copy of the text; this is derived from its
        words. With a teacher m drawn evenly, T times the gradient of `w_m . T_m(x)` has
        the gradient of that sum as its mean.

    References:
        [diversity] Eq. 7
    """
    check_batch(images)

    def given(probs):
        check_same_shape(guides=guides, **{"the teachers' logits": probs})
        return guides.astype(jnp.float32)

    _, gradients = pulled_back(predict, images, given, temperature=temperature)
    return unit_directions(gradients)


def gaussian(
    images: Array,
    keys: Array,
    *,
    step_size: float | Array = 1 / 255,
    pixel_range: tuple[float, float] | None = (0.0, 1.0),
) -> Array:
    """Images with independent normal noise of deviation `step_size`, clipped.

    The expected squared norm of the noise is that of an ODS step, and the noise of a
    row depends on its own key alone. Arguments, result and errors are those of `ods`.

    Example:
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> noisy = gaussian(jnp.zeros((2, 8)), keys)
        >>> bool((noisy >= 0).all()), bool((noisy > 0).any())
        (True, True)

    References:
        [diversity] Sec. 5.1
    """
    check_batch(images, keys=keys)
    draw = jax.vmap(lambda key: jax.random.normal(key, images.shape[1:], jnp.float32))
    moved = images.astype(jnp.float32) + step_size * draw(keys)
    return moved if pixel_range is None else jnp.clip(moved, *pixel_range)


def adversarial(
    predict: Predict,
    images: Array,
    labels: Labels,
    *,
    step_size: float | Array = 1 / 255,
    temperature: float | Array = 1.0,
    pixel_range: tuple[float, float] | None = (0.0, 1.0),
) -> Array:
    """Images moved by the same norm away from their label: the negative control.

    The direction is ODS's with the guide `-one_hot(label)`, so that the probability of
    the label falls fastest.

    Arguments, result and errors are those of `ods`, with labels, `[B]` integers, in
    place of keys.

    Example:
        >>> x = jnp.full((1, 2), 0.5)
        >>> moved = adversarial(lambda x: x, x, jnp.array([0]), step_size=0.1)
        >>> [f"{pixel:.2f}" for pixel in moved[0]]
        ['0.40', '0.60']

    References:
        [diversity] Appendix A.2
    """
    check_batch(images, labels=labels)

    def against(probs):
        check_labels(labels, probs)
        index = jnp.asarray(labels, jnp.int32)  # narrow types cannot count all
        return -jax.nn.one_hot(index, probs.shape[-1], dtype=jnp.float32)

    _, gradients = pulled_back(predict, images, against, temperature=temperature)
    directions = unit_directions(gradients)
    return step(images, directions, step_size=step_size, pixel_range=pixel_range)


def pair_disagreement(
    logits: Logits, *, temperature: float | Array = 1.0
) -> PerExample:
    """Mean over ordered pairs of members of their tempered KL divergence.

    `1 / (M (M - 1)) sum_{i != j} KL(softmax(z_i / tau) || softmax(z_j / tau))`.

    Args:
        logits: `[M, B, C]`, two members or more.
        temperature: tau, above 0.

    Returns:
        `[B]` float32 in nats, at least 0 up to rounding.

    Raises:
        ValueError: there are fewer than two members, or as in `ods`.
        TypeError: the logits are not floating point.

    Example:
        >>> z = jnp.log(jnp.array([[[0.5, 0.5]], [[0.8, 0.2]]]))
        >>> f"{pair_disagreement(z)[0]:.4f}"  # (0.2231 + 0.1927) / 2
        '0.2079'

    References:
        [latent-be] Sec. 3 -- Nam et al., Improving Ensemble Distillation With Weight
        Averaging and Diversifying Perturbation, ICML 2022.
        https://arxiv.org/abs/2206.15047
    """
    check_members(logits, axes="[M, B, C]")
    members = logits.shape[0]
    tempered = _tempered(logits, temperature)
    shape = (members, *tempered.shape)
    pairs = kl_divergence(  # [M, M, B], 0 where i = j
        jnp.broadcast_to(tempered[:, None], shape),
        jnp.broadcast_to(tempered[None], shape),
    )
    return jnp.sum(pairs, axis=(0, 1)) / (members * (members - 1))


def two_sided(
    teachers: Callable[[Array], Logits],
    students: Callable[[Array], Logits],
    images: Array,
    *,
    step_size: float | Array = 1 / 255,
    temperature: float | Array = 1.0,
    pixel_range: tuple[float, float] | None = (0.0, 1.0),
) -> Array:
    """Images moved to where teachers differ and students agree.

    The direction is the unit gradient of the teachers' `pair_disagreement` minus the
    students': what the students have not learnt of their teachers' differences.

    Args:
        teachers: `(images) -> logits [T, B, C]`, two or more.
        students: `(images) -> logits [M, B, C]`, two or more.
        images, step_size, temperature, pixel_range: as in `ods`.

    Returns:
        `[B, ...]` float32.

    Raises:
        ValueError: there are fewer than two teachers or students, or as in `ods`.
        TypeError: images or logits are not floating point.

    Example:
        >>> def teachers(x):
        ...     return jnp.stack([x, -x])
        >>> def students(x):
        ...     return jnp.stack([x, x])
        >>> x = jnp.array([[0.5, 0.4]])
        >>> moved = two_sided(teachers, students, x, step_size=0.1)
        >>> [f"{pixel:.2f}" for pixel in moved[0]]  # the teachers' margins grow
        ['0.60', '0.30']

    Notes:
        All ordered pairs are used, since all members are evaluated anyway.

    References:
        [latent-be] Sec. 3 -- Nam et al., Improving Ensemble Distillation With Weight
        Averaging and Diversifying Perturbation, ICML 2022.
        https://arxiv.org/abs/2206.15047
    """
    check_batch(images)

    def difference(x):
        climbed = pair_disagreement(teachers(x), temperature=temperature)
        lowered = pair_disagreement(students(x), temperature=temperature)
        return climbed - lowered

    apart, pull = jax.vjp(difference, images)
    directions = unit_directions(pull(jnp.ones_like(apart))[0])
    return step(images, directions, step_size=step_size, pixel_range=pixel_range)
