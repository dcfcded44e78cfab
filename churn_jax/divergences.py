"""Quantities of one or two predicted distributions, from logits, in log space.

Losses and metrics share these; both re-export them under their own names with the
paper's equation. Everything is float32, per example, without reduction.
"""

import jax
import jax.numpy as jnp

from churn_jax._checks import check_logits, check_same_shape
from churn_jax.typing import Logits, PerExample

__all__ = ["entropy", "kl_divergence", "l1", "log_probs", "symmetric_kl"]


def log_probs(logits: Logits) -> Logits:
    """Log-probabilities in float32, `log softmax(logits)`; shape `[..., C]`."""
    return jax.nn.log_softmax(jnp.asarray(logits).astype(jnp.float32), axis=-1)


def _weighted(log_p, term):
    """`exp(log_p) * term`, with 0 * inf = 0 so that impossible classes add nothing."""
    possible = log_p > -jnp.inf
    return jnp.where(possible, jnp.exp(log_p) * jnp.where(possible, term, 0.0), 0.0)


def entropy(logits: Logits) -> PerExample:
    """Shannon entropy in nats, `-sum_j p_j log p_j`; `[..., C]` to `[...]`.

    Args:
        logits: `[..., C]`.

    Returns:
        `[...]` float32, between 0 and `log C`.
    """
    check_logits(logits=logits)
    log_p = log_probs(logits)
    return -jnp.sum(_weighted(log_p, log_p), axis=-1)


def kl_divergence(logits_a: Logits, logits_b: Logits) -> PerExample:
    """`KL(a || b) = sum_j a_j (log a_j - log b_j)`; the expectation is under `a`.

    Args:
        logits_a: `[..., C]`.
        logits_b: `[..., C]`.

    Returns:
        `[...]` float32, at least 0.
    """
    check_logits(logits_a=logits_a, logits_b=logits_b)
    check_same_shape(logits_a=logits_a, logits_b=logits_b)
    log_a, log_b = log_probs(logits_a), log_probs(logits_b)
    return jnp.sum(_weighted(log_a, log_a - log_b), axis=-1)


def symmetric_kl(logits_a: Logits, logits_b: Logits) -> PerExample:
    """`KL(a || b) + KL(b || a) = sum_j (a_j - b_j)(log a_j - log b_j)`.

    Args:
        logits_a: `[..., C]`.
        logits_b: `[..., C]`.

    Returns:
        `[...]` float32, at least 0, symmetric.
    """
    check_logits(logits_a=logits_a, logits_b=logits_b)
    check_same_shape(logits_a=logits_a, logits_b=logits_b)
    log_a, log_b = log_probs(logits_a), log_probs(logits_b)
    both_impossible = jnp.isneginf(log_a) & jnp.isneginf(log_b)
    log_ratio = jnp.where(both_impossible, 0.0, log_a) - jnp.where(
        both_impossible, 0.0, log_b
    )
    return jnp.sum((jnp.exp(log_a) - jnp.exp(log_b)) * log_ratio, axis=-1)


def l1(logits_a: Logits, logits_b: Logits) -> PerExample:
    """L1 distance of the predicted distributions, `sum_j |a_j - b_j|`.

    Args:
        logits_a: `[..., C]`.
        logits_b: `[..., C]`.

    Returns:
        `[...]` float32, between 0 and 2.
    """
    check_logits(logits_a=logits_a, logits_b=logits_b)
    check_same_shape(logits_a=logits_a, logits_b=logits_b)
    difference = jnp.exp(log_probs(logits_a)) - jnp.exp(log_probs(logits_b))
    return jnp.sum(jnp.abs(difference), axis=-1)
