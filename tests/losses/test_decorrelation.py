"""Correlation, covariance and residual correlation: worked cases, signs, limits."""

import jax
import numpy as np
import pytest

from churn_jax import losses

pytestmark = pytest.mark.usefixtures("strict_dtypes")

correlation, covariance, residual = PENALTIES = [
    jax.jit(jax.value_and_grad(loss))
    for loss in (
        losses.correlation_penalty,
        losses.covariance_penalty,
        losses.residual_correlation_penalty,
    )
]
every = pytest.mark.parametrize("penalty", PENALTIES, ids=lambda f: f.__name__)


def normal(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_worked_by_hand():
    z = np.array([[1.0, 2.0], [3.0, -1.0], [2.0, 0.0]], np.float32)
    # <1,2> = 1*3 + 2*(-1) = 1, <1,3> = 1*2 + 2*0 = 2, <2,3> = 3*2 + (-1)*0 = 6; k = 2.
    assert correlation(z)[0] == 0.5**2 + 1.0**2 + 3.0**2
    # Deviations (-1/2, 1/2), (2, -2), (1, -1); products -1, -1/2 and 2.
    assert covariance(z)[0] == 1.0**2 + 0.5**2 + 2.0**2
    # Averages (2, 1/3); residuals (-1, 5/3), (1, -4/3), (0, -1/3); k = 2.
    products = [(-1 - 20 / 9) / 2, (-5 / 9) / 2, (4 / 9) / 2]
    np.testing.assert_allclose(residual(z)[0], np.sum(np.square(products)), rtol=1e-6)


def test_correlation_gradient_worked_by_hand():
    # L = (z1 . z2 / k)^2, so dL/dz1 = 2 (z1 . z2 / k) z2 / k = 2 * 1/2 * z2 / 2; k
    # counts valid examples only.
    z = np.array([[1.0, 2.0, 9.0, 9.0], [3.0, -1.0, 9.0, 9.0]], np.float32)
    value, grad = correlation(z, np.array([1, 1, 0, 0]))
    assert value == 0.25
    np.testing.assert_array_equal(grad, [[1.5, -0.5, 0, 0], [0.5, 1.0, 0, 0]])


def test_orthogonal_members_pay_nothing_and_a_shared_offset_does():
    z = np.array(
        [[1.0, -1.0, 0.0, 0.0], [1.0, 1.0, 1.0, -3.0], [1.0, 1.0, -2.0, 0.0]],
        np.float32,
    )
    assert correlation(z)[0] == covariance(z)[0] == covariance(z + 4.0)[0] == 0.0
    np.testing.assert_allclose(correlation(z + 4.0)[0], 3 * 16.0**2)


def test_correlation_is_no_pearson_correlation_and_blind_to_a_members_sign():
    z = normal(1, (3, 16, 2))
    signs = np.array([1.0, -1.0, -1.0], np.float32)[:, None, None]
    for penalty in (correlation, covariance):
        np.testing.assert_allclose(penalty(z * signs)[0], penalty(z)[0], rtol=1e-6)
    np.testing.assert_allclose(correlation(0.5 * z)[0], correlation(z)[0] / 16)


@pytest.mark.parametrize("members", [2, 5])
def test_residual_correlation_is_smallest_where_all_members_are_equal(members):
    equal = np.repeat(normal(3, (1, 16, 2)), members, axis=0)
    noise = normal(4, equal.shape)
    values = [residual(equal + np.float32(0.1 * s) * noise)[0] for s in range(5)]
    assert values[0] == 0.0 and np.all(np.diff(values) > 0)


def test_residual_correlation_of_two_pulls_them_together():
    z = normal(5, (2, 16))
    value, grad = residual(z)
    expected = np.mean(np.square(z[0] - z[1]) / 4) ** 2
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    # A step downhill shortens the distance of every example.
    step = z - 0.1 * np.asarray(grad)
    assert np.all(np.abs(step[0] - step[1]) < np.abs(z[0] - z[1]))


def test_correlation_repels_what_is_left_of_a_shared_part():
    # The paper's case: the shared part is subtracted by the caller.
    left = normal(7, (2, 16)) + 1.0
    value, grad = correlation(left)
    before = np.mean(left[0] * left[1])
    np.testing.assert_allclose(value, before**2, rtol=1e-4)
    step = left - 0.1 * np.asarray(grad)
    assert abs(np.mean(step[0] * step[1])) < abs(before)


def test_a_large_common_offset_costs_covariance_no_digits():
    z = np.random.default_rng(8).normal(size=(3, 32)).round(2)
    expected, offset = (covariance(np.float32(x))[0] for x in (z, z + 4096.0))
    # The offset itself rounds the outputs to 2.4e-4; E[zz] - E[z]E[z] would be off by
    # 1: its terms are 2^24, whose last bit is 2.
    np.testing.assert_allclose(offset, expected, rtol=2e-3, atol=1e-3)


@every
def test_too_large_outputs_give_inf_and_nan_is_seen(penalty):
    z = normal(9, (3, 16, 2))
    assert np.isfinite(penalty(np.float32(1e8) * z)[0])
    for size in (1e10, 1e12, 1e15):
        assert penalty(np.float32(size) * z)[0] == np.inf
    for size in (1e19, 1e25, 1e30):
        assert not np.isfinite(penalty(np.float32(size) * z)[0])
    assert np.isnan(penalty(np.where(z > 2.0, np.float32(np.nan), z))[0])


def test_messages():
    penalty = losses.correlation_penalty
    with pytest.raises(ValueError, match=r"at least 2 members.*\(1, 4\)"):
        penalty(np.ones((1, 4)))
    with pytest.raises(ValueError, match=r"outputs must be \[M, B, \.\.\.\].*\(4,\)"):
        penalty(np.ones(4))
    with pytest.raises(ValueError, match=r"mask.*\(4,\).*\(5,\)"):
        penalty(np.ones((2, 4), np.float32), np.ones(5))
