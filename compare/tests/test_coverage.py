"""Intervals hold the truth as often as they say, and their ends solve their equations.

The full tables are printed by `benchmarks/compare_coverage.py`.
"""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import optimize, special, stats

from churn_compare import compare
from churn_compare.estimates import difference_ends, run_part, share_ends, uncertainty
from churn_compare.sums import bca_ends, partition
from tests.cases import class_scan, groups_of, noise

Z = special.ndtri(0.975)
NORMAL = NormalDist()


@pytest.mark.parametrize("examples", [200, 1000, 20000])
@pytest.mark.parametrize("rate", [0.01, 0.03, 0.1, 0.3])
def test_a_share_is_covered_by_exact_enumeration(examples, rate):
    hits = np.arange(examples + 1)
    share = hits / examples
    low, high = share_ends(share, share * (1 - share) / examples, Z, examples)
    held = (low <= rate) & (rate <= high)
    coverage = stats.binom.pmf(hits, examples, rate)[held].sum()
    assert 0.93 <= coverage <= 0.97


@pytest.mark.parametrize("examples", [200, 2000])
@pytest.mark.parametrize("lost, gained", [(0.01, 0.01), (0.01, 0.03), (0.05, 0.1)])
def test_the_gain_is_covered_by_exact_enumeration(examples, lost, gained):
    most = int(examples * (lost + gained) + 9 * np.sqrt(examples * (lost + gained)))
    b, c = (x.ravel() for x in np.indices((most, most)))
    flips = stats.binom.pmf(b + c, examples, lost + gained)
    chance = flips * stats.binom.pmf(b, b + c, lost / (lost + gained))
    kept = chance > 1e-9
    b, c = b[kept] / examples, c[kept] / examples
    variance = (b + c - np.square(c - b)) / examples
    low, high = difference_ends(c, b, variance, Z, examples)
    held = (low <= gained - lost) & (gained - lost <= high)
    assert 0.93 <= chance[kept][held].sum() <= 0.97


@pytest.mark.parametrize("flips", [0.02, 0.1])
def test_detection_and_equivalence_have_the_power_they_say(rng, flips):
    # 80 of 100 intervals leave out zero where the gain is the detectable one, and at
    # most 5 of 100 lie within a margin that is the gain.
    N = 3000
    sides = np.zeros((2, 1, N), np.int32)
    sides[0, 0, : int(N * flips / 2)] = 1
    sides[1, 0, int(N * flips / 2) : int(N * flips)] = 1
    gain = compare(*sides, labels=np.zeros(N, int), resamples=100).detectable
    assert gain == pytest.approx((Z + special.ndtri(0.8)) * math.sqrt(flips / N))
    chances = [(flips - gain) / 2, (flips + gain) / 2, 1 - flips]
    lost, gained, _ = rng.multinomial(N, chances, size=4000).T / N
    variance = (lost + gained - np.square(gained - lost)) / N
    low, high = difference_ends(gained, lost, variance, Z, N)
    assert 0.77 <= np.mean((low > 0) | (high < 0)) <= 0.83
    low, high = difference_ends(gained, lost, variance, special.ndtri(0.95), N)
    assert 0.03 <= np.mean((low > -gain) & (high < gain)) <= 0.06


@pytest.mark.parametrize(("lost", "gained"), [(4, 9), (135, 2)])
def test_ends_of_a_gain_are_those_of_the_score_test(lost, gained):
    examples = 150
    shares = gained / examples, lost / examples
    variance = (sum(shares) - (shares[0] - shares[1]) ** 2) / examples
    low, high = difference_ends(*shares, variance, Z, examples)

    def most_likely(difference):
        """The variance at the largest likelihood, found by brute force."""

        def minus(share):
            rest = 1 - 2 * share - difference
            parts = (lost, share), (gained, share + difference)
            rest = (examples - lost - gained, rest)
            return -sum(n * np.log(p) for n, p in (*parts, rest))

        bounds = (max(0, -difference) + 1e-9, (1 - difference) / 2 - 1e-9)
        share = optimize.minimize_scalar(
            minus, bounds=bounds, method="bounded", options={"xatol": 1e-12}
        ).x
        return (2 * share + difference - difference**2) / examples

    assert low < (gained - lost) / examples < high
    for end in (float(low), float(high)):
        z = ((gained - lost) / examples - end) / np.sqrt(most_likely(end))
        assert abs(z) == pytest.approx(Z, rel=1e-4)


def versions(rng, trials, examples, runs, shift=0.0, difference=0.0):
    """Predictions, labels and trials `[N]` of many comparisons with shifts of runs."""
    N = trials * examples
    trial = np.repeat(np.arange(trials), examples)
    difficulty = 3 * rng.standard_normal(N)
    own = difference * rng.standard_normal(N)
    sides = []
    for R, part in zip(runs, (0.0, own), strict=True):
        score = 4.0 + difficulty + part + rng.standard_normal((R, N))
        score = score + shift * rng.standard_normal((R, trials))[:, trial]
        sides.append(score < 0)
    return class_scan(*sides), np.zeros(N, np.int32), trial


def test_intervals_of_several_runs_hold_the_truth():
    trials = 600  # the standard error of a coverage is 0.9 %
    rng = np.random.default_rng(1)
    scanned, labels, trial = versions(rng, trials, 300, (2, 2), 0.1)
    found, _ = groups_of(scanned, labels, trial, trials)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    right = special.ndtr((4.0 + 3 * nodes) / np.hypot(1, 0.1))
    churn = 2 * (weights / weights.sum()) @ (right * (1 - right))
    for interval, value in (
        (found["churn"], churn),
        (found["negative_flip_rate"], churn / 2),
        (found["accuracy_gain"], 0.0),
    ):
        held = np.mean((interval.low <= value) & (value <= interval.high))
        assert 0.93 - 0.02 <= held <= 0.97 + 0.015, held


def test_equal_versions_are_seldom_told_apart_and_others_are():
    rng = np.random.default_rng(3)
    equal, other = [], []
    for difference, found, draws in ((0.0, equal, 60), (1.5, other, 15)):
        for _ in range(draws):
            scanned, _, _ = versions(rng, 1, 400, (4, 4), 0.1, difference)
            found.append(noise(scanned).p < 0.05)
    assert np.mean(equal) <= 0.13  # 5 % and three standard errors
    assert np.mean(other) > 0.8


def test_variances_of_runs_and_examples_add_up():
    """`y[a, i] = i's effect + a's effect + noise`: the mean's variance is known."""
    rng = np.random.default_rng(4)
    R, N, trials = 4, 50, 4000
    of_example = rng.normal(size=(trials, 1, N))
    of_run = 0.1 * rng.normal(size=(trials, R, 1))
    y = of_example + of_run + 2 * rng.normal(size=(trials, R, N))
    mean = y.mean(axis=1, keepdims=True)
    examples = mean[:, 0].var(axis=1) / N
    centred = y - mean - (y - mean).mean(axis=2, keepdims=True)
    noise = np.square(centred).sum(axis=(1, 2)) / N**2 / (R * (R - 1))
    known = uncertainty(examples, run_part(y.mean(axis=2), noise))
    assert known.alone
    expected = (1 + 4 / R) / N + 0.01 / R
    assert np.mean(known.total) == pytest.approx(expected, rel=0.05)
    assert y.mean(axis=(1, 2)).var() == pytest.approx(expected, rel=0.1)


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


def test_ends_are_corrected_for_bias_and_skew(rng):
    resampled, influence = rng.gamma(2.0, size=999), rng.exponential(size=50) - 0.7
    value = float(np.quantile(resampled, 0.4))
    found = bca_ends(value, resampled, influence, 0.9)
    assert found == pytest.approx(by_formula(value, resampled, influence, 0.9))
    none = np.array([1.0, -1.0])
    plain = by_formula(float(np.median(resampled)), resampled, none, 0.9)
    assert abs(found[1] - plain[1]) > 0.05  # so the corrections are seen


def test_groups_are_equally_large_whatever_the_order():
    group, groups, _ = partition(10_000, 1, 0)
    assert groups == 4096
    assert set(np.bincount(group)) == {2, 3}
    assert np.abs(np.corrcoef(group, np.arange(10_000))[0, 1]) < 0.05
    assert partition(10_000, 900, 0)[1] == 1165
