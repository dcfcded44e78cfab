"""Confidence, entropy, distance, and the bounds on churn that follow from them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from churn_jax import divergences
from churn_jax._checks import check_logits, check_same_shape
from churn_jax.divergences import log_probs
from churn_jax.metrics.pairs import STREAMING, PairMetric
from churn_jax.metrics.scoring import error_rate, predicted, right
from churn_jax.metrics.state import MeanState, rate
from churn_jax.typing import Labels, Logits, Mask, PerExample, Scalar


def prediction_confidence(logits: Logits) -> PerExample:
    """Top-1 minus top-2 probability, `gamma_x = f_yhat - max_{j != yhat} f_j`.

    Args:
        logits: `[..., C]`.

    Returns:
        `[...]` float32 in [0, 1]; 0 at a tie.

    Raises:
        ValueError: there are fewer than two classes.

    Notes:
        Eq. 5 prints "arg max" for the second term; the sentence after it says that the
        second largest probability is meant.

    Example:
        >>> float(prediction_confidence(jnp.log(jnp.array([0.75, 0.25]))))
        0.5

    References:
        [reproducibility] Eq. 5
    """
    check_logits(logits=logits)
    probs = jnp.exp(log_probs(logits))
    # Two maxima; `top_k` sorts every row on CPU and took fifty times as long.
    top = jnp.argmax(probs, axis=-1, keepdims=True)
    first = jnp.take_along_axis(probs, top, axis=-1)[..., 0]
    classes = jax.lax.broadcasted_iota(top.dtype, probs.shape, probs.ndim - 1)
    return first - jnp.where(classes == top, -jnp.inf, probs).max(axis=-1)


def prediction_entropy(logits: Logits) -> PerExample:
    """Entropy of the prediction in nats, `-sum_j f_j log f_j`.

    Args:
        logits: as in `prediction_confidence`; errors as there.

    Returns:
        `[...]` float32 in [0, log C].

    Example:
        >>> f"{prediction_entropy(jnp.zeros(2)):.4f}"
        '0.6931'

    References:
        [reproducibility] Eq. 6
    """
    return divergences.entropy(logits)


def l1_distance(logits_a: Logits, logits_b: Logits) -> PerExample:
    """L1 distance of two predictions, `D_L1 = sum_j |f_j(x; w_1) - f_j(x; w_2)|`.

    Args:
        logits_a: `[..., C]`, one model.
        logits_b: `[..., C]`, the other one.

    Returns:
        `[...]` float32 in [0, 2], symmetric.

    Raises:
        ValueError: the logits differ in shape.

    Example:
        >>> a, b = jnp.log(jnp.array([0.75, 0.25])), jnp.zeros(2)
        >>> float(l1_distance(a, b))
        0.5

    References:
        [reproducibility] Lemma 2
    """
    return divergences.l1(logits_a, logits_b)


@dataclasses.dataclass(frozen=True)
class _L1Sums(PairMetric):
    """The mean of `l1_distance`."""

    def of_run(self, logits, labels):
        return jnp.exp(log_probs(logits))

    def compare(self, old, new):
        return jnp.abs(old - new)


@dataclasses.dataclass(frozen=True)
class _ErrorSums(PairMetric):
    """`churn_bound_from_errors`."""

    needs_labels = True

    def of_run(self, logits, labels):
        return right(logits, labels)

    def compare(self, old, new):
        (old, bad), (new, worse) = old, new
        return ~old, ~new, bad, worse

    def finish(self, sums, examples):
        old, new, *unusable = sums
        return sum(rate(wrong, sum(unusable), examples) for wrong in (old, new))


@dataclasses.dataclass(frozen=True)
class _ConfidenceBoundSums(PairMetric):
    """`P[D_L1 > min gamma]`, or with `total` the sharper `P[D_L1 >= sum gamma]`."""

    total: bool = False

    def of_run(self, logits, labels):
        probs = jnp.exp(log_probs(logits))
        return probs, prediction_confidence(logits), predicted(logits)

    def compare(self, old, new):
        (p, gamma_a, class_a), (q, gamma_b, class_b) = old, new
        distance = jnp.sum(jnp.abs(p - q), axis=-1)
        if self.total:
            event = distance >= gamma_a + gamma_b
        else:
            event = distance > jnp.minimum(gamma_a, gamma_b)
        return event | (class_a != class_b), class_a < 0, class_b < 0

    def finish(self, sums, examples):
        event, *unusable = sums
        return rate(event, sum(unusable), examples)


def churn_bound_from_errors(
    logits_a: Logits, logits_b: Logits, labels: Labels, mask: Mask | None = None
) -> Scalar:
    """Upper bound on churn by the two error rates, `P_Err,1 + P_Err,2`.

    Args:
        logits_a, logits_b, labels, mask: as in `churn_by_correctness`; errors as there.

    Returns:
        A float32 scalar in [0, 2] (not clipped at 1), at least `churn`; nan without a
        valid example.

    Example:
        >>> a, b = jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])
        >>> float(churn_bound_from_errors(a, b, jnp.array([0])))
        1.0

    References:
        [reproducibility] Lemma 1
    """
    check_same_shape(logits_a=logits_a, logits_b=logits_b)
    return error_rate(logits_a, labels, mask) + error_rate(logits_b, labels, mask)


def churn_bound_from_confidence(
    logits_a: Logits, logits_b: Logits, mask: Mask | None = None
) -> Scalar:
    """Upper bound on churn by confidence, `P[D_L1 > min(gamma_1, gamma_2)]`.

    Args:
        logits_a, logits_b, mask: as in `churn_bound_from_errors`; errors as there.

    Returns:
        A float32 scalar in [0, 1], at least `churn`; nan without a valid example.

    Notes:
        Where the predictions differ the event holds by the lemma's proof, so such an
        example counts even if float32 rounds two nearly equal sides the wrong way.

    Example:
        >>> a, b = jnp.log(jnp.array([[0.75, 0.25]])), jnp.zeros((1, 2))
        >>> float(churn_bound_from_confidence(a, b))  # 0.5 > min(0.5, 0)
        1.0

    References:
        [reproducibility] Lemma 2
    """
    check_logits(logits_a=logits_a, logits_b=logits_b)
    return _ConfidenceBoundSums()(logits_a, logits_b, mask=mask)


def churn_bound_from_confidence_sum(
    logits_a: Logits, logits_b: Logits, mask: Mask | None = None
) -> Scalar:
    """The sharper bound in Lemma 2's proof, `P[D_L1 >= gamma_1 + gamma_2]`.

    If the predicted classes j and k differ, then `gamma_1 <= a_j - a_k` and
    `gamma_2 <= b_k - b_j`; added up, `gamma_1 + gamma_2 <= |a_j - b_j| + |a_k - b_k|`,
    which is at most `D_L1`.

    Args:
        logits_a, logits_b, mask: as in `churn_bound_from_errors`; errors as there.

    Returns:
        A float32 scalar in [0, 1], at least `churn`; nan without a valid example.

    Notes:
        Ours, not printed in the paper. At most `churn_bound_from_confidence`, except
        where two equal predictions are both exact ties: `0 >= 0` holds, `0 > 0` does
        not. With two classes it is an equality, which float32 would miss half of
        the time: an example whose predictions differ always counts.

    Example:
        >>> a = jnp.log(jnp.array([[0.75, 0.25]]))
        >>> b = jnp.log(jnp.array([[0.55, 0.45]]))
        >>> float(churn_bound_from_confidence_sum(a, b))  # 0.4 < 0.5 + 0.1
        0.0

    References:
        [reproducibility] Lemma 2
    """
    check_logits(logits_a=logits_a, logits_b=logits_b)
    return _ConfidenceBoundSums(total=True)(logits_a, logits_b, mask=mask)


STREAMING.update(
    {
        l1_distance: _L1Sums,
        churn_bound_from_errors: _ErrorSums,
        churn_bound_from_confidence: _ConfidenceBoundSums,
        churn_bound_from_confidence_sum: functools.partial(_ConfidenceBoundSums, True),
    }
)
ConfidenceState = MeanState.of(
    "ConfidenceState", prediction_confidence, prediction_confidence
)
EntropyState = MeanState.of("EntropyState", prediction_entropy, prediction_entropy)
L1DistanceState = MeanState.of("L1DistanceState", l1_distance, l1_distance)
