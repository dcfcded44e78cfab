"""Quantities of one or two predicted distributions, from logits `[..., C]` to `[...]`.

Losses and metrics share these; most have a public wrapper with the paper's equation.
Everything is float32, in log space, per example, without reduction.
"""

import jax
import jax.numpy as jnp

from churn_compare.class_sets import known_classes
from churn_jax._checks import check_logits
from churn_jax.typing import Logits, PerExample


def log_probs(logits: Logits) -> Logits:
    """Log-probabilities in float32, `log softmax(logits)`; shape `[..., C]`."""
    return jax.nn.log_softmax(jnp.asarray(logits).astype(jnp.float32), axis=-1)


def modelled(logits):
    """True for all classes but those that a network does not know: `[..., C]` bool."""
    z = jnp.asarray(logits)
    return known_classes(z) | (z == -jnp.inf)  # which it calls impossible


def weighted(log_p, term):
    """`exp(log_p) * term`, with 0 * inf = 0 so that impossible classes add nothing."""
    # The test is on the probability, not on `log_p > -inf`: a class whose probability
    # underflows (below `e^-88` in float32) may have an infinite `term`.
    probability = jnp.exp(log_p)
    possible = probability != 0.0  # nan stays and is seen
    return jnp.where(possible, probability * jnp.where(possible, term, 0.0), 0.0)


def entropy(logits: Logits) -> PerExample:
    """Shannon entropy in nats, `-sum_j p_j log p_j`; `[..., C]` to `[...]`."""
    check_logits(logits=logits)
    log_p = log_probs(logits)
    return -jnp.sum(weighted(log_p, log_p), axis=-1)


def kl_divergence(logits_a: Logits, logits_b: Logits) -> PerExample:
    """`KL(a || b) = sum_j a_j (log a_j - log b_j)`; the expectation is under `a`."""
    check_logits(logits_a=logits_a, logits_b=logits_b)
    log_a, log_b = log_probs(logits_a), log_probs(logits_b)
    return jnp.sum(weighted(log_a, log_a - log_b), axis=-1)


def symmetric_kl(logits_a: Logits, logits_b: Logits) -> PerExample:
    """`KL(a || b) + KL(b || a) = sum_j (a_j - b_j)(log a_j - log b_j)`."""
    check_logits(logits_a=logits_a, logits_b=logits_b)
    log_a, log_b = log_probs(logits_a), log_probs(logits_b)
    a, b = jnp.exp(log_a), jnp.exp(log_b)
    # Where both probabilities are 0 the term and its gradient are 0; the logarithms
    # may be infinite, so they are replaced before they are subtracted.
    possible = (a > 0.0) | (b > 0.0)
    log_ratio = jnp.where(possible, log_a, 0.0) - jnp.where(possible, log_b, 0.0)
    return jnp.sum((a - b) * log_ratio, axis=-1)


def l1(logits_a: Logits, logits_b: Logits) -> PerExample:
    """L1 distance of the predicted distributions, `sum_j |a_j - b_j|`."""
    check_logits(logits_a=logits_a, logits_b=logits_b)
    difference = jnp.exp(log_probs(logits_a)) - jnp.exp(log_probs(logits_b))
    # JAX differentiates |0| as +1, which would pull apart two equal models' classes.
    distance = jnp.where(difference == 0.0, 0.0, jnp.abs(difference))
    return jnp.sum(distance, axis=-1)
