"""Perturbations that ODS is compared with: Gaussian, adversarial, two-sided."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from churn_jax._checks import check_batch, check_labels, check_members
from churn_jax.divergences import kl_divergence
from churn_jax.perturbations.ods import Predict, pulled_back, step, unit_directions
from churn_jax.typing import Array, Labels, Logits, PerExample


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
        >>> import jax
        >>> import jax.numpy as jnp
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> noisy = gaussian(jnp.zeros((2, 8)), keys)
        >>> bool((noisy >= 0).all()), bool((noisy > 0).any())
        (True, True)

    References:
        [diversity] Sec. 5.1
    """
    check_batch(images, keys=keys)
    draw = jax.vmap(lambda key: jax.random.normal(key, images.shape[1:]))
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
    """Images a step of the same norm away from their label: the negative control.

    The direction is ODS's with the guide `-one_hot(label)`, so that the probability of
    the label falls fastest.

    Arguments, result and errors are those of `ods`, with labels, `[B]` integers, in
    place of keys.

    Example:
        >>> import jax.numpy as jnp
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
        return -jax.nn.one_hot(labels, probs.shape[-1])

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
        temperature: tau.

    Returns:
        `[B]` float32 in nats, at least 0 up to rounding.

    Raises:
        ValueError: there are fewer than two members.
        TypeError: the logits are not floating point.

    Example:
        >>> import jax.numpy as jnp
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
    tempered = logits.astype(jnp.float32) / temperature
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
    """Images a step to where teachers differ and students agree.

    The direction is the unit gradient of the teachers' `pair_disagreement` minus the
    students': what the students have not learnt of their teachers' differences.

    Args:
        teachers: `(images) -> logits [T, B, C]`, two or more.
        students: `(images) -> logits [M, B, C]`, two or more.
        images, step_size, temperature, pixel_range: as in `ods`.

    Returns:
        `[B, ...]` float32.

    Raises:
        ValueError: there are fewer than two teachers or students.
        TypeError: images or logits are not floating point.

    Example:
        >>> import jax.numpy as jnp
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
