"""Efron's BCa interval, from its formula in plain Python and from known cases."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from churn_jax.comparison.sums import bca_ends

NORMAL = NormalDist()


def by_formula(value, resampled, influence, level):
    """Ends of the interval with `math` and order statistics only."""
    ordered = sorted(resampled)
    z0 = NORMAL.inv_cdf(sum(v < value for v in ordered) / len(ordered))
    cube = sum(u**3 for u in influence)
    a = cube / (6 * math.sqrt(sum(u * u for u in influence)) ** 3)
    ends = []
    for z in (NORMAL.inv_cdf((1 - level) / 2), NORMAL.inv_cdf((1 + level) / 2)):
        at = NORMAL.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))) * (len(ordered) - 1)
        below = int(at)
        share = at - below
        ends.append((1 - share) * ordered[below] + share * ordered[below + 1])
    return ends


@pytest.mark.parametrize("seed", range(3))
def test_ends_are_corrected_for_bias_and_skew(seed):
    rng = np.random.default_rng(seed)
    resampled, influence = rng.gamma(2.0, size=999), rng.exponential(size=50) - 0.7
    value = float(np.quantile(resampled, 0.4))
    found = bca_ends(value, resampled, influence, 0.9)
    assert found == pytest.approx(by_formula(value, resampled, influence, 0.9))
    none = np.array([1.0, -1.0])
    plain = by_formula(float(np.median(resampled)), resampled, none, 0.9)
    assert abs(found[1] - plain[1]) > 0.05  # so the corrections are seen


def test_without_bias_and_skew_they_are_plain_quantiles():
    resampled = np.arange(-500.0, 501.0)
    low, high = bca_ends(0.0, resampled, np.array([2.0, -2.0]), 0.95)
    assert (low, high) == pytest.approx((-475.0, 475.0))


def test_equal_values_are_half_below():
    resampled = np.array([1.0] * 40 + [2.0] * 20 + [3.0] * 40)
    low, high = bca_ends(2.0, resampled, np.array([1.0, -1.0]), 0.5)
    assert (low, high) == (1.0, 3.0)


def test_what_is_not_finite_has_no_interval():
    influence = np.array([1.0, -1.0])
    for value, resampled in ((np.inf, np.ones(3)), (1.0, np.array([1.0, np.nan]))):
        assert np.isnan(bca_ends(value, resampled, influence, 0.95)).all()
