"""How good one model's predictions are: accuracy, log score, Brier score."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from churn_jax._checks import check_labels, check_logits
from churn_jax.divergences import log_probs
from churn_jax.metrics.state import MeanState, RateState, masked_mean
from churn_jax.typing import Labels, Logits, Mask, PerExample, Scalar


def is_correct(logits: Logits, labels: Labels):
    """1 where `argmax_j z_j == label`, else 0; nan where that is unknown. `[...]`."""
    check_logits(logits=logits)
    check_labels(labels, logits)
    correct, unusable = right(logits, labels)
    return jnp.where(unusable, jnp.nan, correct.astype(jnp.float32))


def right(logits: Logits, labels: Labels, num_classes: int = 0):
    """Correct, and unusable: with a nan or a label that is no class, `[...]` bools.

    Labels `[B]` may be those of many runs `[..., B, C]`. They are not checked.
    """
    found = predicted(logits)
    labels = jnp.broadcast_to(class_ids(labels), found.shape)
    known = (labels >= 0) & (labels < max(num_classes, jnp.shape(logits)[-1]))
    return found == labels, (found < 0) | ~known


def predicted(logits: Logits):
    """The predicted classes `[...]`, int32; -1 where a score is nan."""
    # JAX would round float64, and nearly equal scores would become equal.
    wide = isinstance(logits, np.ndarray) and logits.dtype.itemsize > 4
    xp: Any = np if wide else jnp
    best = xp.argmax(logits, axis=-1, keepdims=True)
    top = xp.take_along_axis(logits, best, axis=-1)  # the first nan, if there is one
    return jnp.asarray(xp.where(xp.isnan(top), -1, best)[..., 0]).astype(jnp.int32)


def class_ids(labels):
    """Labels as int32; -1, which is not a class, for NumPy ids that it cannot hold."""
    if isinstance(labels, np.ndarray) and labels.dtype.itemsize >= 4:
        labels = np.where((labels < 0) | (labels >= 2**31), -1, labels)
    return jnp.asarray(labels).astype(jnp.int32)


def nan_at_unknown_labels(values: PerExample, labels: Labels, logits: Logits):
    """`values` where the label is one of the C classes, nan elsewhere."""
    labels = class_ids(labels)  # a narrow type cannot hold C
    known = (labels >= 0) & (labels < logits.shape[-1])
    return jnp.where(known, values, jnp.nan)


def accuracy(logits: Logits, labels: Labels, mask: Mask | None = None) -> Scalar:
    """Share of examples whose most probable class is the label.

    `1 - P_Err`, with `P_Err = P[Y != Y_hat]`.

    Args:
        logits: `[..., C]`.
        labels: `[...]` class ids; a valid example with another id gives nan.
        mask: `[...]` valid examples.

    Returns:
        A float32 scalar in [0, 1]; nan without a valid example.

    Raises:
        ValueError: labels or mask are not shaped like the examples.

    Notes:
        Ties, NaN and float64 as in `churn`.

    Example:
        >>> float(accuracy(jnp.array([[2.0, 0.0], [0.0, 1.0]]), jnp.array([0, 0])))
        0.5

    References:
        [reproducibility] Lemma 1
    """
    return AccuracyState.empty().update(logits, labels, mask).compute()


def error_rate(logits: Logits, labels: Labels, mask: Mask | None = None) -> Scalar:
    """Share of examples whose most probable class is not the label.

    `P_Err = P[Y != Y_hat]`.

    Args:
        logits, labels, mask: as in `accuracy`; errors as there.

    Returns:
        A float32 scalar in [0, 1]; nan without a valid example.

    Example:
        >>> float(error_rate(jnp.array([[2.0, 0.0], [0.0, 1.0]]), jnp.array([0, 0])))
        0.5

    References:
        [reproducibility] Lemma 1
        [elodi] Eq. 10
    """
    return ErrorRateState.empty().update(logits, labels, mask).compute()


def _is_wrong(logits, labels):
    return 1.0 - is_correct(logits, labels)


def example_nll(logits, labels):
    """Negative log-likelihood of every example's label; NaN where it is unknown."""
    check_logits(logits=logits)
    check_labels(labels, logits)
    labels = class_ids(labels)
    # Normalised first, as in `losses.cross_entropy`.
    values = optax.softmax_cross_entropy_with_integer_labels(log_probs(logits), labels)
    return nan_at_unknown_labels(values, labels, logits)


def negative_log_likelihood(
    logits: Logits, labels: Labels, mask: Mask | None = None
) -> Scalar:
    """Mean of `-log p(label)`, in nats; what advertising calls log loss.

    Args:
        logits: `[..., C]`.
        labels: `[...]` class ids; a valid example with another id gives nan.
        mask: `[...]` valid examples.

    Returns:
        A float32 scalar, at least 0; nan without a valid example.

    Raises:
        ValueError: labels or mask are not shaped like the examples.

    Example:
        >>> nll = negative_log_likelihood(jnp.zeros((3, 2)), jnp.array([0, 1, 1]))
        >>> f"{nll:.4f}"
        '0.6931'

    References:
        [diversity] Eq. 13
        [anti-distillation] Table 3
    """
    return masked_mean(example_nll(logits, labels), mask)


def _brier(logits, labels):
    check_logits(logits=logits)
    check_labels(labels, logits)
    labels, probs = class_ids(labels), jnp.exp(log_probs(logits))
    target = jax.nn.one_hot(labels, probs.shape[-1], dtype=jnp.float32)
    values = jnp.sum(jnp.square(probs - target), axis=-1)
    return nan_at_unknown_labels(values, labels, probs)


def brier_score(logits: Logits, labels: Labels, mask: Mask | None = None) -> Scalar:
    """Mean of `sum_j (p_j - [j = label])^2`, summed over the classes.

    Args:
        logits, labels, mask: as in `negative_log_likelihood`; errors as there.

    Returns:
        A float32 scalar in [0, 2]; nan without a valid example.

    Notes:
        The original, two-sided definition. Some papers divide by the number of
        classes, and binary libraries count the positive class only (half of this).

    Example:
        >>> float(brier_score(jnp.zeros((1, 2)), jnp.array([0])))
        0.5

    References:
        [diversity] Eq. 14
    """
    return masked_mean(_brier(logits, labels), mask)


AccuracyState = RateState.of("AccuracyState", accuracy, is_correct)
ErrorRateState = RateState.of("ErrorRateState", error_rate, _is_wrong)
NLLState = MeanState.of("NLLState", negative_log_likelihood, example_nll)
BrierState = MeanState.of("BrierState", brier_score, _brier)
