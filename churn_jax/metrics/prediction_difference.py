"""How far M models' predictions spread: the Delta family, and divergences in nats.

`P_nm` is model m's distribution on example n, `Pbar_n` its mean over the M models.
"""

import jax
import jax.numpy as jnp

from churn_jax._checks import check_labels, check_logits, check_members
from churn_jax.divergences import log_probs, weighted
from churn_jax.metrics.churn import ambiguity
from churn_jax.metrics.scoring import class_ids, nan_at_unknown_labels
from churn_jax.metrics.state import MeanState, masked_mean
from churn_jax.typing import Labels, Logits, Mask, PerExample, Scalar


def models_log_probs(logits: Logits) -> Logits:
    """Log-probabilities `[M, ..., C]` of two models or more."""
    check_logits(logits=logits)
    check_members(logits)
    return log_probs(logits)


def norm_over_classes(x, order):
    """L_p norm over the last axis, safe for the gradient at zero."""
    if not order >= 1:
        raise ValueError(f"order must be at least 1 for a norm; got {order}")
    size = jnp.abs(x)
    if order == 1:
        return jnp.sum(size, axis=-1)
    largest = jnp.max(size, axis=-1, keepdims=True)
    if order == float("inf"):  # XLA's maximum can lose a nan on a CPU; a sum keeps it
        return jnp.where(jnp.isnan(jnp.sum(size, -1)), jnp.nan, largest[..., 0])
    zero = largest == 0.0
    scale = jax.lax.stop_gradient(jnp.where(zero, 1.0, largest))
    inner = jnp.sum((size / scale) ** float(order), axis=-1)  # in [1, C] or 0
    inner = jnp.where(zero[..., 0], 1.0, inner)
    return jnp.where(zero[..., 0], 0.0, scale[..., 0] * inner ** (1.0 / float(order)))


def from_mean(values):
    """`x_m - xbar` over the models; exactly 0 where all of them are equal."""
    differences = values - values[:1]
    return differences - jnp.mean(differences, axis=0, keepdims=True)


def log_mean_probs(log_p):
    """`log Pbar [1, ...]`; exactly `log_p` where the models are equal."""
    # In log space, so that it is right for probabilities that underflow float32.
    top = jax.lax.stop_gradient(jnp.max(log_p, axis=0, keepdims=True))
    possible = top != -jnp.inf  # else no gradient either; nan stays and is seen
    top = jnp.where(possible, top, 0.0)
    below = jnp.mean(jnp.expm1(log_p - top), axis=0, keepdims=True)
    below = jnp.where(possible, below, 0.0)
    return jnp.where(possible, top + jnp.log1p(below), -jnp.inf)


def _spread(logits):
    """`P_m - Pbar` and `Pbar [1, ...]`, probabilities."""
    probs = jnp.exp(models_log_probs(logits))
    return from_mean(probs), jnp.mean(probs, axis=0, keepdims=True)


def _plain(logits, order):
    spread, _ = _spread(logits)
    return jnp.mean(norm_over_classes(spread, order), axis=0)


def _weighted(logits, order):
    spread, mean = _spread(logits)
    return jnp.mean(norm_over_classes(mean * spread, order), axis=0)


def _relative_deviation(log_p):
    """`|P_m - Pbar| / Pbar` from log-probabilities, 0 where every model says 0."""
    mean = log_mean_probs(log_p)
    possible = mean != -jnp.inf  # nan stays and is seen
    ratio = jnp.where(possible, log_p, 0.0) - jnp.where(possible, mean, 0.0)
    return jnp.abs(jnp.expm1(ratio))


def _relative(logits):
    deviation = _relative_deviation(models_log_probs(logits))
    return jnp.mean(jnp.sum(deviation, axis=-1), axis=0)


def _positive(logits):
    log_p = models_log_probs(logits)
    if log_p.shape[-1] != 2:
        raise ValueError(
            "positive_prediction_difference is for two classes, logits [M, N, 2]; got "
            f"shape {log_p.shape}"
        )
    return 2.0 * jnp.mean(_relative_deviation(log_p[..., 1]), axis=0)


def _label(logits, labels):
    log_p = models_log_probs(logits)
    check_labels(labels, logits[0], logits_name="logits of one model")
    labels = class_ids(labels)
    index = jnp.broadcast_to(labels[None, ..., None], (*log_p.shape[:-1], 1))
    at_label = jnp.take_along_axis(log_p, index, axis=-1)[..., 0]
    values = jnp.mean(_relative_deviation(at_label), axis=0)
    return nan_at_unknown_labels(values, labels, log_p)


def prediction_difference(
    logits: Logits, order: float = 1, mask: Mask | None = None
) -> Scalar:
    """Mean L_p distance of M models' predictions from their mean, Delta_p.

    `1/N sum_n 1/M sum_m (sum_l |P_nm(l) - Pbar_n(l)|^p)^(1/p)`.

    Args:
        logits: `[M, N, C]` (or `[M, ..., C]`), M at least 2.
        order: p, static; at least 1, `float("inf")` for the largest difference.
        mask: `[N]` valid examples.

    Returns:
        A float32 scalar, at least 0; nan without a valid example. Two models and two
        classes give the mean of `|P_n1(1) - P_n2(1)|`.

    Raises:
        ValueError: fewer than two models, an order below one, or a mask that is not
            shaped like the examples.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])  # M=2, N=1, C=2
        >>> float(prediction_difference(jnp.log(probs)))
        0.5

    References:
        [anti-distillation] Eq. 1
    """
    return masked_mean(_plain(logits, order), mask)


def weighted_prediction_difference(
    logits: Logits, order: float = 1, mask: Mask | None = None
) -> Scalar:
    """Delta_p with each difference weighted by the mean probability of its label.

    `1/N sum_n 1/M sum_m (sum_l (Pbar_n(l) |P_nm(l) - Pbar_n(l)|)^p)^(1/p)`.

    Args:
        logits, order, mask: as in `prediction_difference`; errors as there.

    Returns:
        A float32 scalar, at least 0 and at most `prediction_difference` of the same
        order; nan without a valid example.

    Notes:
        The paper gives it in words, as a way to keep unlikely labels out. We weight the
        difference itself; weighting its p-th power is the same for p = 1 alone and
        would leave the largest difference unweighted.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])
        >>> f"{weighted_prediction_difference(jnp.log(probs)):.4f}"
        '0.2500'

    References:
        [anti-distillation] Sec. 3
    """
    return masked_mean(_weighted(logits, order), mask)


def relative_prediction_difference(logits: Logits, mask: Mask | None = None) -> Scalar:
    """Delta_1 with each term divided by the mean probability, Delta^r.

    `1/N sum_n 1/M sum_m sum_l |P_nm(l) - Pbar_n(l)| / Pbar_n(l)`.

    Args:
        logits, mask: as in `prediction_difference`; errors as there.

    Returns:
        A float32 scalar in [0, 2 C (M - 1) / M]; nan without a valid example.

    Notes:
        Every class weighs the same, however unlikely. A class that all models rule
        out (logit -inf) adds nothing.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])
        >>> f"{relative_prediction_difference(jnp.log(probs)):.4f}"
        '1.0000'

    References:
        [anti-distillation] Sec. 3
    """
    return masked_mean(_relative(logits), mask)


def positive_prediction_difference(logits: Logits, mask: Mask | None = None) -> Scalar:
    """Delta_1 divided by the mean probability of the positive label, Delta^r_1.

    `1/N sum_n 1/M sum_m (sum_l |P_nm(l) - Pbar_n(l)|) / Pbar_n(1)`, for two classes,
    class 1 positive.

    Args:
        logits: `[M, N, 2]`, M at least 2. For one score z per example pass `[0, z]`.
        mask: as in `prediction_difference`.

    Returns:
        A float32 scalar in [0, 4 (M - 1) / M]; nan without a valid example.

    Raises:
        ValueError: not two classes, fewer than two models, or a mask that does not fit.

    Notes:
        The sum is over both labels, as in Eq. 1, so this is twice the relative
        deviation of the positive probability.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])
        >>> f"{positive_prediction_difference(jnp.log(probs)):.4f}"
        '1.0000'

    References:
        [anti-distillation] Sec. 3
    """
    return masked_mean(_positive(logits), mask)


def label_prediction_difference(
    logits: Logits, labels: Labels, mask: Mask | None = None
) -> Scalar:
    """Relative difference on the observed label only, Delta^L.

    `1/N sum_n 1/M sum_m |P_nm(l_n) - Pbar_n(l_n)| / Pbar_n(l_n)`.

    Args:
        logits, mask: as in `prediction_difference`.
        labels: `[N]` class ids; a valid example with another id gives nan.

    Returns:
        A float32 scalar in [0, 2 (M - 1) / M]; nan without a valid example.

    Raises:
        ValueError: as there, or labels that do not fit.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])
        >>> f"{label_prediction_difference(jnp.log(probs), jnp.array([0])):.4f}"
        '0.5000'

    References:
        [anti-distillation] Sec. 3
    """
    return masked_mean(_label(logits, labels), mask)


def hamming_prediction_difference(logits: Logits, mask: Mask | None = None) -> Scalar:
    """Share of labels predicted differently, averaged over model pairs, Delta^H.

    `2 / (M (M - 1)) sum_{m < k} P[argmax P_m != argmax P_k]`: mean pairwise churn.

    Args:
        logits, mask: as in `prediction_difference`; errors as there.

    Returns:
        A float32 scalar in [0, 1]; nan without a valid example.

    Notes:
        The paper gives it in words. A tie goes to the lower class id.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]], [[0.9, 0.1]]])
        >>> f"{hamming_prediction_difference(jnp.log(probs)):.4f}"
        '0.6667'

    References:
        [anti-distillation] Sec. 3
    """
    return masked_mean(ambiguity(logits), mask)


PredictionDifferenceState = MeanState.of(
    "PredictionDifferenceState", prediction_difference, _plain
)
WeightedPredictionDifferenceState = MeanState.of(
    "WeightedPredictionDifferenceState", weighted_prediction_difference, _weighted
)
RelativePredictionDifferenceState = MeanState.of(
    "RelativePredictionDifferenceState", relative_prediction_difference, _relative
)
PositivePredictionDifferenceState = MeanState.of(
    "PositivePredictionDifferenceState", positive_prediction_difference, _positive
)
LabelPredictionDifferenceState = MeanState.of(
    "LabelPredictionDifferenceState", label_prediction_difference, _label
)
HammingPredictionDifferenceState = MeanState.of(
    "HammingPredictionDifferenceState", hamming_prediction_difference, ambiguity
)


def pairwise_kl(logits: Logits) -> PerExample:
    """KL divergence between two of M models, averaged over ordered pairs, per example.

    `1/(M (M - 1)) sum_{m != k} sum_l P_nm(l) log(P_nm(l) / P_nk(l))`. Written out, the
    sum over pairs is `M^2` times the covariance over models of p and log p, so that no
    pair is formed; centring both first loses no digits to cancellation.

    Args:
        logits: `[M, N, C]` (or `[M, ..., C]`), M at least 2: the members of an
            ensemble, or models that were trained independently.

    Returns:
        `[N]` float32 in nats, at least 0; infinite where one model excludes a class
        (logit -inf) that another allows.

    Raises:
        ValueError: fewer than two models.

    Notes:
        Its mean over examples is `kl_prediction_difference`, by confidence it is
        `diversity_by_confidence`. Cost and memory are those of M models.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])  # 1/2 log 3
        >>> [f"{value:.4f}" for value in pairwise_kl(jnp.log(probs))]
        ['0.5493']

    References:
        [diversity] Fig. 3
    """
    log_p = models_log_probs(logits)
    M = log_p.shape[0]
    p = jnp.exp(log_p)
    possible = jnp.max(p, axis=0, keepdims=True) > 0.0
    excluded = jnp.min(log_p, axis=0, keepdims=True) == -jnp.inf
    log_p = jnp.where(possible & ~excluded, log_p, 0.0)
    products = from_mean(p) * from_mean(log_p)
    values = jnp.sum(jnp.sum(products, axis=0), axis=-1) / (M - 1)
    infinite = jnp.any((possible & excluded)[0], axis=-1)
    return jnp.where(infinite, jnp.inf, values)


def _excess(log_ratio):
    """`r log r - r + 1` at `r = exp(log_ratio)`: at least 0, quadratic around r = 1."""
    # Near one the terms cancel to second order, so there it is the series
    # `sum_k (k - 1) / k! log_ratio^k`; ten terms are good to float32 below one half.
    near = jnp.abs(log_ratio) < 0.5
    small = jnp.where(near, log_ratio, 0.0)
    series, factorial = jnp.zeros_like(small), 3628800.0  # 10!
    for k in range(10, 1, -1):
        series = series * small + (k - 1) / factorial
        factorial /= k
    far = jnp.where(near, -1.0, log_ratio)
    direct = weighted(far, far) - jnp.expm1(far)
    return jnp.where(near, jnp.square(small) * series, direct)


def _jensen_shannon(logits):
    """`1/M sum_m KL(P_m || Pbar)` as `sum_l Pbar 1/M sum_m excess(P_m / Pbar)`."""
    # Equal, since probabilities sum to one, but a sum of positive terms.
    log_p = models_log_probs(logits)
    log_mean = log_mean_probs(log_p)
    possible = log_mean > -jnp.inf
    log_ratio = jnp.where(possible, log_p, 0.0) - jnp.where(possible, log_mean, 0.0)
    spread = jnp.mean(_excess(log_ratio), axis=0)
    return jnp.sum(jnp.exp(log_mean[0]) * spread, axis=-1)


def kl_prediction_difference(logits: Logits, mask: Mask | None = None) -> Scalar:
    """Mean KL divergence between two of M models, over ordered pairs.

    `1/N sum_n 1/(M (M - 1)) sum_{m != k} sum_l P_nm(l) log(P_nm(l) / P_nk(l))`.

    Args:
        logits, mask: as in `prediction_difference`; errors as there.

    Returns:
        The mean of `pairwise_kl`, a float32 scalar; nan without a valid example.

    Notes:
        The paper names the KL divergence without saying between what. Over ordered
        pairs it is symmetric in the models; two models give half of `symmetric_kl`.
        The divergence from the mean prediction is `js_prediction_difference`. Quadratic
        in small differences, divided by the probability, so rare classes weigh much.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])  # 1/2 log 3
        >>> f"{kl_prediction_difference(jnp.log(probs)):.4f}"
        '0.5493'

    References:
        [anti-distillation] Sec. 3
    """
    return masked_mean(pairwise_kl(logits), mask)


def js_prediction_difference(logits: Logits, mask: Mask | None = None) -> Scalar:
    """Jensen-Shannon divergence of M models with equal weights.

    `1/N sum_n 1/M sum_m KL(P_nm || Pbar_n)`, which is the entropy of the mean less the
    mean entropy.

    Args:
        logits, mask: as in `prediction_difference`; errors as there.

    Returns:
        A float32 scalar in nats, in [0, log M]; nan without a valid example.

    Notes:
        Natural logarithm, and the divergence itself: its square root is a distance.
        By Pinsker's inequality an example adds at least half the mean of its squared
        L1 differences from the mean, hence at least half the square of its Delta_1.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])
        >>> f"{js_prediction_difference(jnp.log(probs)):.4f}"
        '0.1308'

    References:
        [anti-distillation] Sec. 3
    """
    return masked_mean(_jensen_shannon(logits), mask)


KLPredictionDifferenceState = MeanState.of(
    "KLPredictionDifferenceState", kl_prediction_difference, pairwise_kl
)
JSPredictionDifferenceState = MeanState.of(
    "JSPredictionDifferenceState", js_prediction_difference, _jensen_shannon
)
