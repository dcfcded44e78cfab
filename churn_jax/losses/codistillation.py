"""Distances between the predictions of two models that train together.

Gradients flow into both arguments. The paper's proposal keeps it so (joint updates);
a method that fixes one side does it with `stop_gradient`, where a reader can see it.
"""

import jax.numpy as jnp

from churn_jax import divergences
from churn_jax._checks import check_logits
from churn_jax.typing import Logits, PerExample


def l1(logits_a: Logits, logits_b: Logits) -> PerExample:
    """L1 distance of two predicted distributions, `sum_j |a_j - b_j|`.

    `a = softmax(logits_a)` is the paper's `f(x; w_1)`, `b` its `f(x; w_2)`.

    Args:
        logits_a: `[..., C]`, floating point.
        logits_b: `[..., C]`.

    Returns:
        `[...]` float32, from 0 to 2.

    Raises:
        ValueError: the shapes differ or have no class axis.
        TypeError: an argument is not floating point.

    Example:
        >>> a, b = jnp.log(jnp.array([[0.5, 0.5], [0.8, 0.2]]))
        >>> f"{l1(a, b):.4f}"
        '0.6000'

    Notes:
        Where `a_j = b_j` the subgradient is 0. Twice the total variation distance.

    References:
        [reproducibility] Eq. 8
    """
    return divergences.l1(logits_a, logits_b)


def symmetric_kl(logits_a: Logits, logits_b: Logits) -> PerExample:
    """Symmetric KL divergence of two predictions, `KL(a || b) + KL(b || a)`, in nats.

    Computed as `sum_j (a_j - b_j)(log a_j - log b_j)`, whose terms are all at least 0.
    `a = softmax(logits_a)` is the paper's `f(x; w_1)`, `b` its `f(x; w_2)`.

    Args:
        logits_a, logits_b: as in `l1`; errors as there.

    Returns:
        `[...]` float32, at least 0; infinite where one side excludes a class (a logit
        of `-inf`) that the other allows.

    Example:
        >>> a, b = jnp.log(jnp.array([[0.5, 0.5], [0.8, 0.2]]))
        >>> f"{symmetric_kl(a, b):.4f}"
        '0.4159'

    Notes:
        The sum of both directions, not their mean. Gradients reach both models.

    References:
        [reproducibility] Eq. 9
    """
    return divergences.symmetric_kl(logits_a, logits_b)


def cross_entropy_between(*, target_logits: Logits, logits: Logits) -> PerExample:
    """Cross-entropy `H(t, f) = -sum_j t_j log f_j` in nats; the mean is under `t`.

    `t = softmax(target_logits)` is the paper's first argument of `H`, the older
    checkpoint of the peer; `f = softmax(logits)` its second, the model that trains.

    Args:
        target_logits: `[..., C]`, floating point; the distribution averaged over.
        logits: `[..., C]`; the distribution whose logarithm is averaged.

    Returns:
        `[...]` float32, at least 0; infinite where `logits` excludes a class that the
        target allows.

    Raises:
        ValueError: the shapes differ or have no class axis.
        TypeError: an argument is not floating point.

    Example:
        >>> t, f = jnp.log(jnp.array([[0.5, 0.5], [0.8, 0.2]]))
        >>> f"{cross_entropy_between(target_logits=t, logits=f):.4f}"
        '0.9163'

    Notes:
        `KL(t || f) + H(t)`. The targets are not frozen here. Anil et al. use stale,
        fixed ones; with gradients into both sides, in both orders, the sum is
        `symmetric_kl` plus both entropies, another objective.

    References:
        [reproducibility] Eq. 18
    """
    check_logits(target_logits=target_logits, logits=logits)
    log_t, log_f = divergences.log_probs(target_logits), divergences.log_probs(logits)
    return -jnp.sum(divergences.weighted(log_t, log_f), axis=-1)
