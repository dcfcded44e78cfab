"""Distances of a pair: worked examples, scipy, bounds, limits, impossible classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from churn_jax.losses import cross_entropy_between, entropy, l1, symmetric_kl

pytestmark = pytest.mark.usefixtures("strict_dtypes")

# (1/2, 1/4, 1/4) and (1/4, 1/4, 1/2).
A = jnp.log(jnp.array([2.0, 1.0, 1.0]))
B = jnp.log(jnp.array([1.0, 1.0, 2.0]))


def two_models(rng, scale=2.0):
    return tuple(jnp.asarray(rng.normal(scale=scale, size=(2, 64, 20)), jnp.float32))


def both_probs(a, b):
    return softmax(np.float64(a), axis=-1), softmax(np.float64(b), axis=-1)


def test_l1_by_hand():
    np.testing.assert_allclose(l1(A, B), 0.5, rtol=1e-6)


def test_symmetric_kl_by_hand():
    # 1/4 log 2 from the first class and 1/4 log 2 from the third.
    np.testing.assert_allclose(symmetric_kl(A, B), 0.5 * np.log(2.0), rtol=1e-6)


def test_cross_entropy_between_by_hand():
    # -1/2 log 1/4 - 1/4 log 1/4 - 1/4 log 1/2 = (1 + 1/2 + 1/4) log 2.
    value = cross_entropy_between(target_logits=A, logits=B)
    np.testing.assert_allclose(value, 1.75 * np.log(2.0), rtol=1e-6)


def test_pairs_equal_scipy(rng):
    a, b = two_models(rng)
    p, q = both_probs(a, b)
    forward, backward = rel_entr(p, q).sum(-1), rel_entr(q, p).sum(-1)
    np.testing.assert_allclose(symmetric_kl(a, b), forward + backward, rtol=3e-6)
    np.testing.assert_allclose(l1(a, b), np.abs(p - q).sum(-1), rtol=3e-6)
    expected = forward - (p * np.log(p)).sum(-1)
    np.testing.assert_allclose(
        cross_entropy_between(target_logits=a, logits=b), expected, rtol=3e-6
    )


def test_zero_value_and_zero_gradient_at_equality(rng):
    a, _ = two_models(rng)
    for distance in (l1, symmetric_kl):
        assert jnp.all(distance(a, a) == 0.0)
        grads = jax.grad(lambda a, b, d=distance: jnp.sum(d(a, b)), (0, 1))(a, a)
        assert all(jnp.all(g == 0.0) for g in grads)


def test_pinsker_bounds_l1(rng):
    a, b = two_models(rng)
    p, q = both_probs(a, b)
    assert np.all(l1(a, b) <= np.sqrt(2 * rel_entr(p, q).sum(-1)) + 1e-6)
    # Eq. 9 over Eq. 8: adding the other direction, L1^2 <= SKL.
    assert jnp.all(l1(a, b) ** 2 <= symmetric_kl(a, b) + 1e-6)


def test_l1_of_opposite_one_hots_is_two_and_bounded(rng):
    a, b = 1e4 * jnp.eye(3)[0], 1e4 * jnp.eye(3)[2]
    np.testing.assert_allclose(l1(a, b), 2.0)
    a, b = two_models(rng, scale=20.0)
    assert jnp.all((l1(a, b) >= 0) & (l1(a, b) <= 2 + 1e-6))


def test_symmetric_kl_of_opposite_one_hots_is_twice_the_logit_gap():
    a, b = 1e4 * jnp.eye(3)[0], 1e4 * jnp.eye(3)[2]
    np.testing.assert_allclose(symmetric_kl(a, b), 2e4, rtol=1e-6)
    grads = jax.grad(symmetric_kl, (0, 1))(a, b)
    assert all(jnp.all(jnp.isfinite(g)) for g in grads)


def test_symmetric_kl_is_both_cross_entropies_less_both_entropies(rng):
    a, b = two_models(rng)
    both = cross_entropy_between(target_logits=a, logits=b) + cross_entropy_between(
        target_logits=b, logits=a
    )
    # Differences of numbers near 5: four ulp of those.
    np.testing.assert_allclose(
        symmetric_kl(a, b), both - entropy(a) - entropy(b), rtol=1e-5, atol=4e-6
    )


def test_cross_entropy_is_least_where_the_model_equals_the_target(rng):
    t, f = two_models(rng)
    best = cross_entropy_between(target_logits=t, logits=t)
    np.testing.assert_allclose(best, entropy(t), rtol=2e-6)
    assert jnp.all(cross_entropy_between(target_logits=t, logits=f) > best)
    grad = jax.grad(
        lambda f: jnp.sum(cross_entropy_between(target_logits=t, logits=f))
    )(t)
    np.testing.assert_allclose(grad, jnp.zeros_like(t), atol=3e-7)


def test_expectation_of_cross_entropy_is_under_the_target():
    sure, unsure = jnp.array([30.0, 0.0]), jnp.array([0.0, 0.0])
    value = cross_entropy_between(target_logits=sure, logits=unsure)
    np.testing.assert_allclose(value, np.log(2.0), rtol=1e-6)
    swapped = cross_entropy_between(target_logits=unsure, logits=sure)
    np.testing.assert_allclose(swapped, 15.0, rtol=1e-6)


def test_classes_impossible_for_both_add_nothing():
    a, b = jnp.array([1.0, 0.0, -jnp.inf]), jnp.array([0.0, 2.0, -jnp.inf])
    cross = lambda t, f: cross_entropy_between(target_logits=t, logits=f)  # noqa: E731
    for distance in (l1, symmetric_kl, cross):
        value, grads = jax.value_and_grad(distance, (0, 1))(a, b)
        np.testing.assert_allclose(value, distance(a[:2], b[:2]), rtol=2e-6)
        assert all(jnp.all(jnp.isfinite(g)) for g in grads)
        assert all(g[2] == 0.0 for g in grads)


def test_a_class_impossible_for_one_only_is_infinitely_far():
    a, b = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 2.0, -jnp.inf])
    assert symmetric_kl(a, b) == jnp.inf
    assert cross_entropy_between(target_logits=a, logits=b) == jnp.inf
    assert jnp.isfinite(cross_entropy_between(target_logits=b, logits=a))


def test_underflowing_class_against_an_impossible_one_is_not_nan():
    # e^-200 is 0 in float32 although its logarithm is finite.
    a, b = jnp.array([0.0, 0.0, -200.0]), jnp.array([1.0, 0.0, -jnp.inf])
    expected = symmetric_kl(a[:2], b[:2])
    value, grads = jax.value_and_grad(symmetric_kl, (0, 1))(a, b)
    np.testing.assert_allclose(value, expected, rtol=2e-6)
    assert all(jnp.all(jnp.isfinite(g)) for g in grads)
    value, grad = jax.value_and_grad(
        lambda t: cross_entropy_between(target_logits=t, logits=b)
    )(a)
    assert jnp.isfinite(value) and jnp.all(jnp.isfinite(grad))


def test_roles_are_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        cross_entropy_between(A, B)
