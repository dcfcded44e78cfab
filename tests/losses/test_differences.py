"""The difference penalties: worked cases, orders, limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from churn_jax import losses

pytestmark = pytest.mark.usefixtures("strict_dtypes", "quick_to_compile")

difference = jax.jit(losses.difference_penalty, static_argnames="order")
inverse = jax.jit(losses.inverse_difference_penalty, static_argnames="order")
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
    value = difference(Z, order=order)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    reciprocal = inverse(Z, order=order, epsilon=0.5)
    np.testing.assert_allclose(reciprocal, 1 / (0.5 - expected), rtol=1e-6)


def test_k_counts_valid_examples_only():
    value = difference(Z, jnp.array([0, 1]))
    np.testing.assert_allclose(value, -(9 + 4 + 1) / 3, rtol=1e-6)


@pytest.mark.parametrize("order", [1.5, 2])
def test_gradients_agree_with_finite_differences(order):
    for loss in (difference, inverse):
        check_grads(
            lambda z, loss=loss: loss(z, order=order),
            (normal(0, (3, 2, 2)),),
            1,
            ("rev",),
            atol=1e-2,
            rtol=1e-2,
        )


@pytest.mark.parametrize("order", [1, 1.5, 2])
def test_equal_members_have_no_gradient(order):
    equal = np.repeat(normal(1, (1, 4)), 3, axis=0)
    for loss in (difference, inverse):
        grad = jax.grad(lambda z, loss=loss: loss(z, order=order))(equal)
        np.testing.assert_array_equal(grad, np.zeros((3, 4)))
    assert difference(equal, order=order) == 0.0
    np.testing.assert_allclose(inverse(equal, order=order), 1e3, rtol=1e-6)


def test_a_common_part_changes_nothing():
    z, shared = normal(2, (3, 8, 2)), normal(3, (1, 8, 2))
    np.testing.assert_allclose(difference(z + shared), difference(z), rtol=1e-5)


def test_the_reciprocal_has_large_gradients_near_equality():
    z, apart = np.repeat(normal(4, (1, 8)), 2, axis=0), np.float32([[1.0], [0.0]])
    near, far = z + np.float32(0.01) * apart, z + apart

    def largest(loss, x):
        return np.max(np.abs(jax.grad(loss)(x)))

    assert largest(difference, near) < largest(difference, far)
    assert largest(inverse, near) > 10 * largest(inverse, far)


def test_descending_parts_the_members():
    z = normal(5, (2, 8))
    for loss in (difference, inverse):
        step = z - 0.1 * np.asarray(jax.grad(loss)(z))
        assert np.all(np.abs(step[0] - step[1]) > np.abs(z[0] - z[1]))


def test_epsilon_may_be_traced():
    value = jax.jit(lambda e: losses.inverse_difference_penalty(Z, epsilon=e))(0.5)
    np.testing.assert_allclose(value, 1 / (0.5 + 20 / 6), rtol=1e-6)


def test_cross_entropy_worked_by_hand():
    # H((.5,.5), (.8,.2)) = -(ln .8 + ln .2) / 2, H((.8,.2), (.5,.5)) = ln 2.
    logits = np.log(np.array([[[0.5, 0.5]], [[0.8, 0.2]]], np.float32))
    expected = -(-np.log(0.16) / 2 + np.log(2)) / 2
    value = cross_entropy(logits)
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_cross_entropy_is_the_kl_and_the_entropies():
    logits = normal(6, (2, 8, 3))
    kl = losses.symmetric_kl(logits[0], logits[1]) / 2
    entropies = jnp.mean(losses.entropy(logits), axis=0)
    np.testing.assert_allclose(
        cross_entropy(logits),
        -jnp.mean(kl + entropies),
        rtol=1e-6,
    )


def test_cross_entropy_of_a_single_score():
    scores = normal(7, (3, 8))
    with pytest.raises(ValueError, match="binary_logits"):
        losses.cross_entropy_difference_penalty(scores[..., None])
    binary = losses.binary_logits(scores)
    assert cross_entropy(binary) < -np.log(2) / 2


def test_too_large_outputs_give_minus_inf():
    z = normal(8, (2, 8, 3))
    assert np.isfinite(difference(np.float32(1e12) * z))
    assert difference(np.float32(1e20) * z) == -jnp.inf
    assert inverse(np.float32(1e20) * z) == 0.0
    assert np.isfinite(cross_entropy(np.float32(1e20) * z))


@pytest.mark.parametrize("order", [0, 0.5, -1, float("inf"), float("nan")])
def test_an_order_that_is_no_norm_is_an_error(order):
    with pytest.raises(ValueError, match=f"finite number of at least 1; got {order}"):
        losses.difference_penalty(Z, order=order)


@pytest.mark.parametrize("epsilon", [0, -1.0, float("nan")])
def test_epsilon_must_be_above_zero(epsilon):
    with pytest.raises(ValueError, match=f"epsilon must be above 0; got {epsilon}"):
        losses.inverse_difference_penalty(Z, epsilon=epsilon)
