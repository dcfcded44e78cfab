"""Confidence, entropy, distance, and the bounds on churn that follow from them."""

from typing import Self

import jax
import jax.numpy as jnp
from flax import struct

from churn_jax import divergences
from churn_jax._checks import check_logits, check_same_shape
from churn_jax.divergences import log_probs
from churn_jax.metrics.churn import disagree
from churn_jax.metrics.scoring import error_rate
from churn_jax.metrics.state import MeanState, masked_mean
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
        >>> import jax.numpy as jnp
        >>> float(prediction_confidence(jnp.log(jnp.array([0.75, 0.25]))))
        0.5

    References:
        [reproducibility] Eq. 5 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
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
        >>> import jax.numpy as jnp
        >>> f"{prediction_entropy(jnp.zeros(2)):.4f}"
        '0.6931'

    References:
        [reproducibility] Eq. 6 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
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
        >>> import jax.numpy as jnp
        >>> a, b = jnp.log(jnp.array([0.75, 0.25])), jnp.zeros(2)
        >>> float(l1_distance(a, b))
        0.5

    References:
        [reproducibility] Lemma 2 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """
    return divergences.l1(logits_a, logits_b)


def churn_bound_from_errors(
    logits_a: Logits,
    logits_b: Logits,
    labels: Labels,
    mask: Mask | None = None,
) -> Scalar:
    """Upper bound on churn by the two error rates, `P_Err,1 + P_Err,2`.

    Args:
        logits_a: `[..., C]`, one model.
        logits_b: `[..., C]`, the other one.
        labels: `[...]` class ids.
        mask: `[...]` valid examples.

    Returns:
        A float32 scalar in [0, 2] (not clipped at 1), at least `churn`; nan without a
        valid example.

    Raises:
        ValueError: logits, labels or mask do not fit together.

    Example:
        >>> import jax.numpy as jnp
        >>> a, b = jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])
        >>> float(churn_bound_from_errors(a, b, jnp.array([0])))
        1.0

    References:
        [reproducibility] Lemma 1 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
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
        >>> import jax.numpy as jnp
        >>> a, b = jnp.log(jnp.array([[0.75, 0.25]])), jnp.zeros((1, 2))
        >>> float(churn_bound_from_confidence(a, b))  # 0.5 > min(0.5, 0)
        1.0

    References:
        [reproducibility] Lemma 2 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """
    differ = disagree(logits_a, logits_b)
    gamma_a = prediction_confidence(logits_a)
    gamma_b = prediction_confidence(logits_b)
    exceeds = l1_distance(logits_a, logits_b) > jnp.minimum(gamma_a, gamma_b)
    return masked_mean(exceeds | differ, mask)


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
        >>> import jax.numpy as jnp
        >>> a = jnp.log(jnp.array([[0.75, 0.25]]))
        >>> b = jnp.log(jnp.array([[0.55, 0.45]]))
        >>> float(churn_bound_from_confidence_sum(a, b))  # 0.4 < 0.5 + 0.1
        0.0

    References:
        [reproducibility] Lemma 2 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """
    differ = disagree(logits_a, logits_b)
    gamma_a = prediction_confidence(logits_a)
    gamma_b = prediction_confidence(logits_b)
    reaches = l1_distance(logits_a, logits_b) >= gamma_a + gamma_b
    return masked_mean(reaches | differ, mask)


@struct.dataclass
class ConfidenceState(MeanState):
    """Streamed mean of `prediction_confidence`."""

    def update(self, logits, mask=None) -> Self:
        """Adds a batch of logits `[..., C]`."""
        return self.add(prediction_confidence(logits), mask)


@struct.dataclass
class EntropyState(MeanState):
    """Streamed mean of `prediction_entropy`, in nats."""

    def update(self, logits, mask=None) -> Self:
        """Adds a batch of logits `[..., C]`."""
        return self.add(prediction_entropy(logits), mask)


@struct.dataclass
class L1DistanceState(MeanState):
    """Streamed mean of `l1_distance`."""

    def update(self, logits_a, logits_b, mask=None) -> Self:
        """Adds a batch; logits `[..., C]` of two models."""
        return self.add(l1_distance(logits_a, logits_b), mask)
