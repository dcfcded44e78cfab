"""Distribution functions against SciPy's."""

import numpy as np
import pytest
from scipy import special

from churn_compare.distributions import (
    beta_cdf,
    chi2_upper_quantile,
    coin_cdf,
    normal_cdf,
    normal_quantile,
    student_cdf,
    student_quantile,
)

TAILS = np.array([1e-12, 1e-6, 1e-3, 0.025, 0.1, 0.3, 0.4999])
FREEDOM = np.array([0.3, 1, 1.3, 2, 2.7, 5, 31.4, 1e3, 1e6])[:, None]


def near(found, wanted, relative=1e-10):
    np.testing.assert_allclose(found, wanted, rtol=relative, atol=1e-300)


def test_the_normal_distribution_is_that_of_scipy():
    x = np.linspace(-12, 8, 81)
    near(normal_cdf(x), special.ndtr(x))
    p = np.r_[TAILS, 0.5, 1 - TAILS]
    near(normal_quantile(p), special.ndtri(p), 1e-12)
    near(normal_quantile([0, 1, 2]), [-np.inf, np.inf, np.nan])


def test_the_incomplete_beta_function_is_that_of_scipy():
    a = np.array([0.5, 1, 3.3, 40, 900, 1e5])[:, None, None]
    b = np.array([0.5, 2, 17, 900, 1e5])[:, None]
    x = np.array([0, 1e-9, 0.1, 0.49, 0.5, 0.51, 0.9, 1])
    found, wanted = beta_cdf(a, b, x), special.betainc(a, b, x)
    shown = wanted > 1e-200
    near(found[shown], wanted[shown], 1e-8)
    assert np.all(found[~shown] < 1e-190)


def test_student_is_that_of_scipy():
    t = np.array([-50, -3, -1, -1e-3, 0, 0.2, 2, 9])
    near(student_cdf(FREEDOM, t), special.stdtr(FREEDOM, t), 1e-8)
    for p in (TAILS, 1 - TAILS[1:]):
        wanted = special.stdtrit(FREEDOM[:-1], p)
        near(student_quantile(FREEDOM[:-1], p), wanted, 1e-9)
    near(student_quantile(np.inf, TAILS), special.ndtri(TAILS))
    assert student_quantile(3, 0.5) == 0
    assert np.isnan(student_quantile(np.nan, 0.9))
    near(student_quantile(1, 0.75), 1)  # the Cauchy distribution's quartile


@pytest.mark.parametrize("freedom", [0.5, 1, 2, 7.7, 90, 8e4])
def test_chi_squared_is_that_of_scipy(freedom):
    found = [chi2_upper_quantile(freedom, float(tail)) for tail in TAILS]
    near(found, special.chdtri(freedom, TAILS), 1e-9)


def test_tosses_of_a_coin_are_those_of_scipy():
    n = np.array([0, 1, 7, 60, 1000, 1001, 20_000, 1_000_000])[:, None]
    k = np.floor(n * np.array([0, 0.3, 0.48, 0.5, 1]))
    wanted = special.bdtr(k, n, 0.5)
    shown = wanted > 1e-200
    near(coin_cdf(k, n)[shown], wanted[shown], 1e-8)
    assert coin_cdf(1, 7) == 8 / 2**7
    assert coin_cdf(np.zeros((0,)), np.zeros((0,))).shape == (0,)
