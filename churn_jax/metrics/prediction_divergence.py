"""How far M models spread: divergences of predictions in nats.

`P_nm` is model m's distribution on example n, `Pbar_n` its mean over the M models.
"""

import jax.numpy as jnp

from churn_jax.divergences import weighted
from churn_jax.metrics.prediction_difference import (
    from_mean,
    log_mean_probs,
    models_log_probs,
)
from churn_jax.metrics.state import MeanState, masked_mean
from churn_jax.typing import Logits, Mask, PerExample, Scalar


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
        >>> import jax.numpy as jnp
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
        logits: `[M, N, C]`, M at least 2.
        mask: `[N]` valid examples.

    Returns:
        A float32 scalar in nats, at least 0; infinite where one model excludes a class
        (logit -inf) that another allows, nan without a valid example.

    Raises:
        ValueError: fewer than two models, or a mask that does not fit.

    Notes:
        The paper names the KL divergence without saying between what. Over ordered
        pairs it is symmetric in the models; two models give half of `symmetric_kl`.
        The divergence from the mean prediction is `js_prediction_difference`. Cost and
        memory are those of M models, not of M^2 pairs. Quadratic in small differences,
        divided by the probability, so rare classes weigh much.

    Example:
        >>> import jax.numpy as jnp
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
        logits, mask: as in `kl_prediction_difference`; errors as there.

    Returns:
        A float32 scalar in nats, in [0, log M]; nan without a valid example.

    Notes:
        Natural logarithm, and the divergence itself: its square root is a distance.
        By Pinsker's inequality an example adds at least half the mean of its squared
        L1 differences from the mean, hence at least half the square of its Delta_1.

    Example:
        >>> import jax.numpy as jnp
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
