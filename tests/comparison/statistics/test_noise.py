"""The test against retraining beside textbook tests of the same numbers."""

import itertools

import numpy as np
import pytest
from scipy import stats

from churn_jax.comparison.scanned import Scanned, ScannedSide
from churn_jax.comparison.statistics.noise import noise_test


def sides(seed, old_runs, new_runs, moved=0.0):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(200, 3))
    shift = moved * rng.normal(size=base.shape)

    def side(runs, by):
        noise = rng.normal(size=(runs, *base.shape))
        return ScannedSide((base + by + noise).argmax(axis=-1).astype(np.int32))

    return Scanned(side(old_runs, 0.0), side(new_runs, shift))


def churn(scanned):
    runs = [*scanned.old.predicted, *scanned.new.predicted]
    return np.array([[np.mean(a != b) for b in runs] for a in runs])


@pytest.mark.parametrize("moved", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("runs", [2, 3, 5])
def test_with_runs_on_both_sides_p_is_that_of_a_regression(runs, moved):
    """`churn = mean + effects of both runs + excess [of two versions] + remainder`."""
    scanned = sides(runs, runs, runs, moved)
    x = churn(scanned)
    pairs = list(itertools.combinations(range(2 * runs), 2))
    rows = [
        [float(r in pair) for r in range(2 * runs)] + [float(pair[0] < runs <= pair[1])]
        for pair in pairs
    ]
    design, y = np.array(rows), np.array([x[pair] for pair in pairs])
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ design.T @ y
    freedom = len(y) - design.shape[1]
    left = y - design @ fitted
    error = np.sqrt(left @ left / freedom * inverse[-1, -1])
    found = noise_test(scanned)
    assert found.excess.value == pytest.approx(fitted[-1])
    assert found.p == pytest.approx(2 * stats.t.sf(abs(fitted[-1]) / error, freedom))


def test_with_one_new_run_p_is_that_of_one_more_draw():
    """The effects of the runs are estimated from all pairs of the other side."""
    scanned = sides(0, 4, 1, 1.0)
    x = churn(scanned)
    pairs = list(itertools.combinations(range(4), 2))
    design = np.array([[1.0, *(float(r in pair) for r in range(4))] for pair in pairs])
    y = np.array([x[pair] for pair in pairs])
    effects = np.linalg.lstsq(design, y, rcond=None)[0][1:]  # up to their mean
    error = np.std(effects, ddof=1) * np.sqrt(1 + 1 / 4)
    excess = x[4, :4].mean() - y.mean()
    found = noise_test(scanned)
    assert found.excess.value == pytest.approx(excess)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(excess) / error, 3))
