"""Distances of a pair: worked examples, limits, impossible classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.losses import cross_entropy_between, entropy, l1, symmetric_kl

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def cross(a, b):
    return cross_entropy_between(target_logits=a, logits=b)


@jax.jit
def pairs(a, b):
    """`(value, (gradient in a, gradient in b))` of every distance of rows."""
    found = {}
    for name, loss in (("l1", l1), ("skl", symmetric_kl), ("cross", cross)):
        value, pull = jax.vjp(loss, a, b)
        found[name] = (value, pull(jnp.ones_like(value)))
    return found


def distances(a, b):
    return pairs(np.atleast_2d(np.float32(a)), np.atleast_2d(np.float32(b)))


def test_by_hand():
    # (1/2, 1/4, 1/4) and (1/4, 1/4, 1/2).
    found = distances(np.log([2.0, 1.0, 1.0]), np.log([1.0, 1.0, 2.0]))
    np.testing.assert_allclose(found["l1"][0], [0.5], rtol=1e-6)
    # 1/4 log 2 from the first class and 1/4 log 2 from the third.
    np.testing.assert_allclose(found["skl"][0], [0.5 * np.log(2.0)], rtol=1e-6)
    # -1/2 log 1/4 - 1/4 log 1/4 - 1/4 log 1/2 = (1 + 1/2 + 1/4) log 2.
    np.testing.assert_allclose(found["cross"][0], [1.75 * np.log(2.0)], rtol=1e-6)


def test_equal_models_are_at_distance_zero_with_gradient_zero(rng):
    a = rng.normal(scale=2, size=(64, 20)).astype(np.float32)
    found = distances(a, a)
    for name in ("l1", "skl"):
        value, gradients = found[name]
        assert not np.any(value) and not np.any(gradients)
    value, (_, of_model) = found["cross"]
    np.testing.assert_allclose(value, jax.jit(entropy)(a), rtol=2e-6)
    np.testing.assert_allclose(of_model, np.zeros_like(a), atol=3e-7)
    other = rng.normal(scale=2, size=a.shape)
    assert np.all(distances(a, other)["cross"][0] > value)


def test_opposite_one_hots():
    found = distances(1e4 * np.eye(3)[0], 1e4 * np.eye(3)[2])
    np.testing.assert_allclose(found["l1"][0], [2.0])
    np.testing.assert_allclose(found["skl"][0], [2e4], rtol=1e-6)  # twice the gap


def test_expectation_of_cross_entropy_is_under_the_target():
    sure, unsure = [30.0, 0.0, -np.inf], [0.0, 0.0, -np.inf]
    value, _ = distances([sure, unsure], [unsure, sure])["cross"]
    np.testing.assert_allclose(value, [np.log(2.0), 15.0], rtol=1e-6)


def test_impossible_classes():
    # For both: they add nothing and have no gradient.
    found = distances([1.0, 0.0, -np.inf], [0.0, 2.0, -np.inf])
    plain = distances([1.0, 0.0], [0.0, 2.0])
    for name, (value, gradients) in found.items():
        np.testing.assert_allclose(value, plain[name][0], rtol=2e-6)
        assert all(np.all(np.isfinite(g)) and g[0, 2] == 0.0 for g in gradients)
    # For one only: infinitely far, except under a target that excludes it itself.
    found = distances([1.0, 0.0, 0.0], [0.0, 2.0, -np.inf])
    assert found["skl"][0] == found["cross"][0] == np.inf
    swapped = distances([0.0, 2.0, -np.inf], [1.0, 0.0, 0.0])
    assert np.isfinite(swapped["cross"][0])
    # e^-200 is 0 in float32 although its logarithm is finite: no nan.
    found = distances([0.0, 0.0, -200.0], [1.0, 0.0, -np.inf])
    expected = distances([0.0, 0.0], [1.0, 0.0])["skl"][0]
    np.testing.assert_allclose(found["skl"][0], expected, rtol=2e-6)
    assert np.isfinite(found["cross"][0])
    assert all(np.all(np.isfinite(g)) for _, pair in found.values() for g in pair)


def test_roles_are_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        cross_entropy_between(np.zeros(3), np.zeros(3))
