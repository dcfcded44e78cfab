"""Losses of labels, and the logits of binary models with one score."""

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from churn_jax._checks import check_labels, check_logits, known_number
from churn_jax.divergences import log_probs, modelled
from churn_jax.typing import Array, Labels, Logits, PerExample


def cross_entropy(logits: Logits, labels: Labels) -> PerExample:
    """Cross-entropy of the predicted distribution with the label, in nats.

    `-log f_y` with `f = softmax(logits)`: the surrogate `l(y, f(x))` inside the
    empirical risk `L(w; S)`.

    Args:
        logits: `[..., C]`, floating point.
        labels: `[...]`, integers from 0 to `C - 1`.

    Returns:
        `[...]` float32, at least 0.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: logits are not floating point, or labels are not integers.

    Example:
        >>> logits = jnp.log(jnp.array([[0.5, 0.25, 0.25]]))
        >>> f"{cross_entropy(logits, jnp.array([1]))[0]:.4f}"
        '1.3863'

    Notes:
        The caller takes the mean over examples. Values of labels are not checked, since
        `jit` does not know them: as in optax, a label of `C` or more yields NaN and a
        negative one counts from the end.

    References:
        [reproducibility] Eq. 2
    """
    check_logits(logits=logits)
    check_labels(labels, logits)
    # Normalised first: optax subtracts log-sum-exp and the label's logit, two numbers
    # as large as the logits, which costs three digits when these are near 1e4.
    return optax.softmax_cross_entropy_with_integer_labels(
        log_probs(logits), jnp.asarray(labels)
    )


def is_label(labels: Labels, num_classes: int) -> Array:
    """True at the label's class, `[..., C]`; a negative one counts from the end."""
    labels = jnp.asarray(labels).astype(jnp.int32)  # narrow types cannot count all C
    labels = jnp.where(labels < 0, labels + num_classes, labels)
    return jax.nn.one_hot(labels, num_classes, dtype=jnp.bool_)


def binary_logits(scores: Array) -> Logits:
    """Two-class logits `[0, z]` of a binary model's score `z`.

    `softmax([0, z])_1 = sigmoid(z)`, so every loss and metric of this library reads a
    single-score (click, logistic) model after this call.

    Args:
        scores: `[...]`, floating point; the log-odds of class 1.

    Returns:
        `[..., 2]` float32.

    Raises:
        TypeError: scores are not floating point (probabilities need `logit` first).

    Example:
        >>> z = jnp.array([2.0])
        >>> print(binary_logits(z))
        [[0. 2.]]
        >>> f"{cross_entropy(binary_logits(z), jnp.array([1]))[0]:.4f}"
        '0.1269'

    References:
        [reproducibility] App. F
    """
    if not jnp.issubdtype(dtype := jnp.result_type(scores), jnp.floating):
        raise TypeError(f"scores must be floating-point log-odds; got {dtype}")
    z = jnp.asarray(scores).astype(jnp.float32)
    return jnp.stack([jnp.zeros_like(z), z], axis=-1)


def label_smoothing(
    logits: Logits, labels: Labels, smoothing: ArrayLike = 0.1
) -> PerExample:
    """Cross-entropy with a smoothed label, in nats.

    `-sum_c y(c) log f(c)` with `y = (1 - s) onehot(label) + s / C`, `f = softmax`; C
    counts no class with `UNKNOWN_LOGIT`, and the sum has no term of one.

    Args:
        logits, labels: as in `cross_entropy`; errors as there, and for smoothing.
        smoothing: s, in [0, 1]; 0 is plain cross-entropy.

    Returns:
        `[...]` float32, at least the entropy of the smoothed label.

    Example:
        >>> logits = jnp.log(jnp.array([[0.5, 0.25, 0.25]]))
        >>> f"{label_smoothing(logits, jnp.array([1]), 0.3)[0]:.4f}"
        '1.3170'

    References:
        [anti-distillation] Sec. 2
    """
    if not 0 <= known_number(smoothing, 0.0) <= 1:
        raise ValueError(f"smoothing must be between 0 and 1; got {smoothing}")
    hard = cross_entropy(logits, labels)
    s = jnp.asarray(smoothing, jnp.float32)
    mean = jnp.mean(log_probs(logits), axis=-1, where=modelled(logits))
    uniform = jnp.where(s > 0.0, s * mean, 0.0)
    loss = (1.0 - s) * hard - uniform  # not 0 * inf of a class that is excluded
    return jnp.where((s == 1.0) & (hard == jnp.inf), hard, loss)


def squared_error(logits: Logits, labels: Labels) -> PerExample:
    """Squared distance of the predicted distribution from the label (Brier).

    `sum_c (f(c) - onehot(label)(c))^2` with `f = softmax(logits)`.

    Args:
        logits, labels: as in `cross_entropy`; errors as there.

    Returns:
        `[...]` float32, from 0 to 2.

    Example:
        >>> logits = jnp.log(jnp.array([[0.5, 0.25, 0.25]]))
        >>> f"{squared_error(logits, jnp.array([0]))[0]:.4f}"
        '0.3750'

    Notes:
        Summed over classes, as the Brier score is; with two classes twice the squared
        error of the positive probability. It is bounded, and so is its gradient.

    References:
        [anti-distillation] Sec. 2
    """
    hard = cross_entropy(logits, labels)
    target = is_label(labels, jnp.shape(logits)[-1]).astype(jnp.float32)
    distance = jnp.sum(jnp.square(jnp.exp(log_probs(logits)) - target), axis=-1)
    return jnp.where(jnp.isnan(hard), hard, distance)  # labels that are no class


def focal(logits: Logits, labels: Labels, gamma: float = 2.0) -> PerExample:
    """Cross-entropy that weighs an example less, the surer its right prediction is.

    `-(1 - f_y)^gamma log f_y` with `f = softmax(logits)`.

    Args:
        logits, labels: as in `cross_entropy`.
        gamma: static, 0 for cross-entropy, else at least 1.

    Returns:
        `[...]` float32, at least 0.

    Raises:
        ValueError: as there, or gamma is between 0 and 1 or negative.
        TypeError: as there.

    Example:
        >>> logits = jnp.log(jnp.array([[0.5, 0.25, 0.25]]))
        >>> f"{focal(logits, jnp.array([0]))[0]:.4f}"
        '0.1733'

    Notes:
        `1 - f_y` is the sum of the other classes' probabilities, not a difference, so
        it keeps its digits near a sure prediction. With gamma below 1 the derivative
        of the weight is unbounded there, so it is refused.

    References:
        [focal] Eq. 4 -- Lin et al., Focal Loss for Dense Object Detection, 2017.
        https://arxiv.org/abs/1708.02002
    """
    if not (gamma == 0 or gamma >= 1):
        raise ValueError(f"gamma must be 0 or at least 1; got {gamma}")
    hard = cross_entropy(logits, labels)
    if gamma == 0:
        return hard
    mine = is_label(labels, jnp.shape(logits)[-1])
    others = jnp.sum(jnp.where(mine, 0.0, jnp.exp(log_probs(logits))), axis=-1)
    return hard * others**gamma
