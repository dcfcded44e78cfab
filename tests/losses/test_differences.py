"""The difference penalties: worked cases, orders, limits."""

import jax
import numpy as np
import pytest

from churn_jax import losses

pytestmark = pytest.mark.usefixtures("strict_dtypes")

difference, inverse = PENALTIES = [
    jax.jit(jax.value_and_grad(loss), static_argnames="order")
    for loss in (losses.difference_penalty, losses.inverse_difference_penalty)
]
cross_entropy = jax.jit(losses.cross_entropy_difference_penalty)

# Example differences: (1,2) 2, 3; (1,3) 1, 2; (2,3) 1, 1.
Z = np.array([[1.0, 2.0], [3.0, -1.0], [2.0, 0.0]], np.float32)


def normal(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("order", "sums"), [(1, (5, 3, 2)), (2, (13, 5, 2)), (3, (35, 9, 2))]
)
def test_worked_by_hand(order, sums):
    # Both orders of a pair are equal, so the mean over ordered pairs is over three.
    expected = -np.mean(sums) / 2
    np.testing.assert_allclose(difference(Z, order=order)[0], expected, rtol=1e-6)
    reciprocal, _ = inverse(Z, order=order, epsilon=0.5)
    np.testing.assert_allclose(reciprocal, 1 / (0.5 - expected), rtol=1e-6)


def test_the_mean_is_over_pairs_and_valid_examples():
    value, _ = difference(Z[:2], np.array([0, 1]))
    np.testing.assert_allclose(value, -9.0, rtol=1e-6)


@pytest.mark.parametrize("order", [1, 1.5, 2])
def test_equal_members_have_no_gradient(order):
    equal = np.repeat(normal(1, (1, 2)), 3, axis=0)
    (value, grad), (reciprocal, other) = (f(equal, order=order) for f in PENALTIES)
    assert value == 0.0 and not np.any(grad) and not np.any(other)
    np.testing.assert_allclose(reciprocal, 1e3, rtol=1e-6)


def test_a_common_part_changes_nothing():
    z, shared = normal(2, (3, 2)), normal(3, (1, 2))
    np.testing.assert_allclose(difference(z + shared)[0], difference(z)[0], rtol=1e-5)


def test_descending_moves_the_members_from_each_other_and_far_if_they_are_near():
    z, apart = np.repeat(normal(4, (1, 8)), 2, axis=0), np.float32([[1.0], [0.0]])
    near, far = z + np.float32(0.01) * apart, z + apart
    sizes = []
    for penalty in PENALTIES:
        at_near, at_far = (np.asarray(penalty(x)[1]) for x in (near, far))
        for x, grad in ((near, at_near), (far, at_far)):
            step = x - 0.1 * grad
            assert np.all(np.abs(step[0] - step[1]) > np.abs(x[0] - x[1]))
        sizes.append(np.max(np.abs(at_near)) / np.max(np.abs(at_far)))
    assert sizes[0] < 1 and sizes[1] > 10


def test_cross_entropy_worked_by_hand():
    # H((.5,.5), (.8,.2)) = -(ln .8 + ln .2) / 2, H((.8,.2), (.5,.5)) = ln 2.
    logits = np.log(np.array([[[0.5, 0.5]], [[0.8, 0.2]]], np.float32))
    expected = -(-np.log(0.16) / 2 + np.log(2)) / 2
    np.testing.assert_allclose(cross_entropy(logits), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="binary_logits"):  # of a single score
        losses.cross_entropy_difference_penalty(normal(7, (3, 8, 1)))


def test_too_large_outputs_give_minus_inf():
    z = normal(8, (2, 8))
    assert np.isfinite(difference(np.float32(1e12) * z)[0])
    assert difference(np.float32(1e20) * z)[0] == -np.inf
    assert inverse(np.float32(1e20) * z)[0] == 0.0
    assert np.isfinite(cross_entropy(np.float32(1e20) * z[..., None] * [1, 2]))


@pytest.mark.parametrize("order", [0, 0.5, -1, float("inf"), float("nan")])
def test_an_order_that_is_no_norm_is_an_error(order):
    with pytest.raises(ValueError, match=f"finite number of at least 1; got {order}"):
        losses.difference_penalty(Z, order=order)


@pytest.mark.parametrize("epsilon", [0, -1.0, float("nan")])
def test_epsilon_must_be_above_zero(epsilon):
    with pytest.raises(ValueError, match=f"epsilon must be above 0; got {epsilon}"):
        losses.inverse_difference_penalty(Z, epsilon=epsilon)
