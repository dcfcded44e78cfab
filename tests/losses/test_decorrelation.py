"""Correlation, covariance and residual correlation: worked cases, signs, limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from churn_jax import losses

pytestmark = pytest.mark.usefixtures("strict_dtypes", "quick_to_compile")

correlation = jax.jit(losses.correlation_penalty)
covariance = jax.jit(losses.covariance_penalty)
residual = jax.jit(losses.residual_correlation_penalty)
DECORRELATION = [correlation, covariance, residual]
every = pytest.mark.parametrize("penalty", DECORRELATION, ids=lambda f: f.__name__)


def normal(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_correlation_worked_by_hand():
    # <1,2> = 1*3 + 2*(-1) = 1, <1,3> = 1*2 + 2*0 = 2, <2,3> = 3*2 + (-1)*0 = 6; k = 2.
    z = np.array([[1.0, 2.0], [3.0, -1.0], [2.0, 0.0]], np.float32)
    assert correlation(z) == 0.5**2 + 1.0**2 + 3.0**2


def test_covariance_worked_by_hand():
    # Deviations (-1/2, 1/2), (2, -2), (1, -1); products -1, -1/2 and 2.
    z = np.array([[1.0, 2.0], [3.0, -1.0], [2.0, 0.0]], np.float32)
    assert covariance(z) == 1.0**2 + 0.5**2 + 2.0**2


def test_residual_worked_by_hand():
    # Averages (2, 1/3); residuals (-1, 5/3), (1, -4/3), (0, -1/3); k = 2.
    z = np.array([[1.0, 2.0], [3.0, -1.0], [2.0, 0.0]], np.float32)
    products = [(-1 - 20 / 9) / 2, (-5 / 9) / 2, (4 / 9) / 2]
    np.testing.assert_allclose(residual(z), np.sum(np.square(products)), rtol=1e-6)


def test_k_counts_valid_examples_only():
    z = np.array([[1.0, 2.0, 9.0, 9.0], [3.0, -1.0, 9.0, 9.0]], np.float32)
    assert correlation(z, jnp.array([1, 1, 0, 0])) == 0.25


def test_correlation_gradient_worked_by_hand():
    # L = (z1 . z2 / k)^2, so dL/dz1 = 2 (z1 . z2 / k) z2 / k = 2 * 1/2 * z2 / 2.
    z = np.array([[1.0, 2.0], [3.0, -1.0]], np.float32)
    np.testing.assert_array_equal(jax.grad(correlation)(z), [[1.5, -0.5], [0.5, 1.0]])


@every
def test_gradients_agree_with_finite_differences(penalty):
    check_grads(penalty, (normal(0, (3, 5, 2)),), 1, ("rev",), atol=1e-2, rtol=1e-2)


def test_orthogonal_members_pay_nothing_and_a_shared_offset_does():
    z = np.array(
        [[1.0, -1.0, 0.0, 0.0], [1.0, 1.0, 1.0, -3.0], [1.0, 1.0, -2.0, 0.0]],
        np.float32,
    )
    assert correlation(z) == 0.0
    assert covariance(z) == 0.0
    assert covariance(z + 4.0) == 0.0
    np.testing.assert_allclose(correlation(z + 4.0), 3 * 16.0**2)


@pytest.mark.parametrize("penalty", DECORRELATION[:2], ids=lambda f: f.__name__)
def test_turning_the_sign_of_a_member_changes_nothing(penalty):
    z = normal(1, (3, 16, 2))
    signs = np.array([1.0, -1.0, -1.0], np.float32)[:, None, None]
    np.testing.assert_allclose(penalty(z * signs), penalty(z), rtol=1e-6)


def test_it_is_no_pearson_correlation():
    z = normal(2, (2, 16))
    smaller = np.stack([z[0], 0.5 * z[1]])
    np.testing.assert_allclose(
        correlation(smaller),
        0.25 * correlation(z),
        rtol=1e-6,
    )


@pytest.mark.parametrize("members", [2, 3, 5])
def test_residual_correlation_is_smallest_where_all_members_are_equal(members):
    equal = np.repeat(normal(3, (1, 16, 2)), members, axis=0)
    assert residual(equal) == 0.0
    values = [
        residual(equal + np.float32(0.1 * size) * normal(4, equal.shape))
        for size in range(1, 5)
    ]
    assert np.all(np.diff(values) > 0) and values[0] > 0


def test_residual_correlation_of_two_pulls_them_together():
    z = normal(5, (2, 16))
    np.testing.assert_allclose(
        residual(z),
        np.mean(np.square(z[0] - z[1]) / 4) ** 2,
        rtol=1e-6,
    )
    # A step downhill shortens the distance of every example.
    step = z - 0.1 * np.asarray(jax.grad(residual)(z))
    assert np.all(np.abs(step[0] - step[1]) < np.abs(z[0] - z[1]))


def test_residual_correlation_repels_what_is_left_of_a_shared_part():
    # The paper's case: the shared part is subtracted by the caller.
    shared, own = normal(6, (1, 64)) * 3.0, normal(7, (2, 64)) + 1.0
    members = shared + own
    before = np.mean(own[0] * own[1])
    left = members - shared
    np.testing.assert_allclose(correlation(left), before**2, rtol=1e-4)
    step = left - 0.1 * np.asarray(jax.grad(correlation)(left))
    assert abs(np.mean(step[0] * step[1])) < abs(before)


def test_a_large_common_offset_costs_covariance_no_digits():
    z = np.random.default_rng(8).normal(size=(3, 32)).round(2)
    expected = covariance(jnp.asarray(z, jnp.float32))
    offset = jnp.asarray(z + 4096.0, jnp.float32)
    # The offset itself rounds the outputs to 2.4e-4; E[zz] - E[z]E[z] would be off by
    # 1: its terms are 2^24, whose last bit is 2.
    np.testing.assert_allclose(covariance(offset), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("members", [2, 3])
@every
def test_too_large_outputs_give_inf_and_never_a_finite_number(penalty, members):
    z = normal(9, (members, 16, 3))
    assert np.isfinite(penalty(np.float32(1e8) * z))
    for size in (1e10, 1e12, 1e15):
        assert penalty(np.float32(size) * z) == jnp.inf
    for size in (1e19, 1e25, 1e30):
        assert not np.isfinite(penalty(np.float32(size) * z))


@every
def test_a_nan_of_a_valid_example_is_seen(penalty):
    z = normal(10, (2, 4))
    z[0, 1] = np.nan
    assert np.isnan(penalty(z))
    assert np.isfinite(penalty(z, jnp.array([True, False, True, True])))


def test_messages():
    with pytest.raises(ValueError, match=r"at least 2 members.*\(1, 4\)"):
        correlation(jnp.ones((1, 4)))
    with pytest.raises(ValueError, match=r"outputs must be \[M, B, \.\.\.\].*\(4,\)"):
        covariance(jnp.ones(4))
    with pytest.raises(ValueError, match=r"mask.*\(4,\).*\(5,\)"):
        correlation(jnp.ones((2, 4)), jnp.ones(5))
