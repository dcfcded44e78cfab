"""The ground floor of losses and metrics: one direction of KL and its edge cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.divergences import kl_divergence, weighted

pytestmark = pytest.mark.usefixtures("strict_dtypes")


@pytest.mark.parametrize("log_p", [-np.inf, -1e4, -200.0])
@pytest.mark.parametrize("term", [-np.inf, np.inf, np.nan])
def test_weighted_ignores_any_term_of_a_vanishing_probability(log_p, term):
    log_p, term = jnp.float32(log_p), jnp.float32(term)
    assert weighted(log_p, term) == 0.0
    grads = jax.grad(weighted, (0, 1))(log_p, term)
    assert all(g == 0.0 for g in grads)


def test_weighted_does_not_hide_infinity_where_there_is_probability():
    assert weighted(jnp.float32(-1.0), jnp.float32(jnp.inf)) == jnp.inf
    assert kl_divergence(jnp.zeros(2), jnp.array([0.0, -jnp.inf])) == jnp.inf


def test_kl_gradient_is_finite_at_huge_logits_and_impossible_classes():
    a = jnp.array([[1e4, -1e4, 0.0, -jnp.inf], [0.0, 0.0, 0.0, -jnp.inf]])
    b = jnp.array([[-1e4, 1e4, 0.0, -jnp.inf], [1.0, 2.0, 3.0, -jnp.inf]])
    value, grads = jax.value_and_grad(
        lambda a, b: jnp.sum(kl_divergence(a, b)), (0, 1)
    )(a, b)
    assert jnp.isfinite(value)
    assert all(jnp.all(jnp.isfinite(g)) for g in grads)
