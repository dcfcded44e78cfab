"""Flips of every pair of runs, group and version are those of loops."""

import numpy as np
import pytest

from churn_compare import flip_counts
from churn_compare.flip_counts import count_flips, version_matrices


def looped(predicted, labels):
    """Means over pairs of runs, one pair at a time, float64."""
    size = len(predicted)
    churn, flips, relative = (np.full((size, size), np.nan) for _ in range(3))
    for i, old in enumerate(predicted):
        for j, new in enumerate(predicted):
            found = []
            for r, before in enumerate(old):
                for s, after in enumerate(new):
                    if i == j and r == s:
                        continue
                    right, wrong = before == labels, after != labels
                    nfr = np.mean(right & wrong)
                    chance = right.mean() * wrong.mean()
                    ratio = nfr / chance if chance else 0.0
                    found.append((np.mean(before != after), nfr, ratio))
            if found:
                churn[i, j], flips[i, j], relative[i, j] = np.mean(found, axis=0)
    return churn, flips, relative


@pytest.mark.parametrize("block", [7, 1 << 16])
def test_it_equals_a_loop_over_pairs_of_runs(block, rng, monkeypatch):
    monkeypatch.setattr(flip_counts, "_BLOCK", block)
    labels = rng.integers(0, 4, 60)
    predicted = [
        np.where(rng.random((runs, 60)) < 0.6, labels, rng.integers(0, 4, (runs, 60)))
        for runs in (1, 3, 2)
    ]
    found = version_matrices(predicted, labels)
    churn, flips, relative = looped(predicted, labels)
    np.testing.assert_allclose(found.churn, churn, rtol=1e-12)
    np.testing.assert_allclose(found.negative_flip_rate, flips, rtol=1e-12)
    np.testing.assert_allclose(found.relative_negative_flip_rate, relative, rtol=1e-12)
    assert np.isnan(found.churn[0, 0])  # one run is not compared with itself
    between = found.between(1, 2)
    np.testing.assert_equal(between, count_flips(*predicted[1:], labels))
    wrong = [(of != labels).mean(axis=1) for of in predicted[1:]]
    np.testing.assert_allclose(between.old_error[:, 0], wrong[0])
    np.testing.assert_allclose(between.new_error[0], wrong[1])
    assert between.relative.mean() == pytest.approx(relative[1, 2])
