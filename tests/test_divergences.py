"""The ground floor of losses and metrics: one direction of KL and its edge cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from churn_jax.divergences import (
    kl_divergence,
    log_probs,
    symmetric_kl,
    weighted,
)

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def test_kl_by_hand():
    # (1/2, 1/2) against (3/4, 1/4): log 2 - 1/2 log 3.
    a, b = jnp.zeros(2), jnp.log(jnp.array([3.0, 1.0]))
    expected = np.log(2.0) - 0.5 * np.log(3.0)
    np.testing.assert_allclose(kl_divergence(a, b), expected, rtol=1e-6)


def test_kl_equals_scipy_and_adds_up_to_symmetric_kl(rng):
    a, b = jnp.asarray(rng.normal(scale=2, size=(2, 64, 20)), jnp.float32)
    p, q = softmax(np.float64(a), axis=-1), softmax(np.float64(b), axis=-1)
    np.testing.assert_allclose(kl_divergence(a, b), rel_entr(p, q).sum(-1), rtol=3e-6)
    both = kl_divergence(a, b) + kl_divergence(b, a)
    np.testing.assert_allclose(both, symmetric_kl(a, b), rtol=3e-6)


def test_log_probs_are_float32_and_normalised(rng):
    z = jnp.asarray(rng.normal(scale=50, size=(16, 9)), jnp.bfloat16)
    out = log_probs(z)
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(jax.nn.logsumexp(out, -1), np.zeros(16), atol=1e-6)


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


def test_shapes_and_types_are_checked():
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(2, 4\)"):
        kl_divergence(jnp.zeros((3, 4)), jnp.zeros((2, 4)))
    with pytest.raises(TypeError, match="logits_b must be floating-point"):
        kl_divergence(jnp.zeros((3, 4)), jnp.zeros((3, 4), jnp.int32))
