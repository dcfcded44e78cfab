"""Numbers of a measure and their intervals against SciPy and plain definitions."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from churn_jax.comparison.outcomes.estimates import estimate
from churn_jax.comparison.outcomes.values import Measure


def scores(examples=60, runs=(1, 1), seed=0):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=examples)
    old, new = (base + 0.3 * rng.normal(size=(r, examples)) for r in runs)
    return Measure("s", "score", old, new + 0.1)


def test_a_change_of_scores_is_the_paired_t_test():
    measure = scores()
    found = estimate(measure)
    test = stats.ttest_rel(measure.new[0], measure.old[0])
    ends = test.confidence_interval(0.95)
    change = found.quantities["score_change"]
    assert change.value == pytest.approx(np.mean(measure.new - measure.old))
    assert (change.low, change.high) == pytest.approx((ends.low, ends.high))
    assert found.p == pytest.approx(test.pvalue)
    narrow = test.confidence_interval(0.9)
    assert (found.within.low, found.within.high) == pytest.approx(narrow)


def test_runs_are_averaged_per_example():
    measure = scores(runs=(3, 2))
    means = Measure("s", "score", measure.old.mean(0)[None], measure.new.mean(0)[None])
    several, one = (estimate(m).quantities["score_change"] for m in (measure, means))
    assert dataclasses.astuple(several) == pytest.approx(dataclasses.astuple(one))


def test_clusters_are_as_examples_of_their_sums():
    """Equal clusters: the t-test of their means."""
    measure = scores(90)
    clusters = np.arange(90) % 15
    change = (measure.new - measure.old)[0]
    means = [change[clusters == c].mean() for c in range(15)]
    ends = stats.ttest_1samp(means, 0.0).confidence_interval(0.95)
    found = estimate(measure, clusters).quantities["score_change"]
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def test_clusters_of_equal_examples_are_worth_one_each():
    old = np.repeat(np.array([[1.0, 1, 0, 1, 0, 1, 1, 0, 1, 1]]), 20, axis=1)
    new = np.repeat(np.array([[1.0, 0, 0, 1, 1, 1, 0, 0, 1, 1]]), 20, axis=1)
    clusters = np.repeat(np.arange(10), 20)
    many = estimate(Measure("c", "correct", old, new), clusters).quantities
    few = estimate(Measure("c", "correct", old[:, ::20], new[:, ::20])).quantities
    for name, interval in few.items():
        ends = dataclasses.astuple(interval)
        assert dataclasses.astuple(many[name]) == pytest.approx(ends), name


def test_no_flip_in_few_clusters_says_little():
    same = np.ones((1, 1000))
    measure = Measure("c", "correct", same, same)
    alone = estimate(measure).quantities["churn"].high
    together = estimate(measure, np.arange(1000) % 8).quantities["churn"].high
    assert alone < 0.005 < 0.3 < together


def test_flips_are_those_of_a_table():
    old = np.array([[1.0, 1, 1, 0, 0, 1, 0, 1]])
    new = np.array([[1.0, 0, 1, 1, 0, 0, 0, 1]])
    found = estimate(Measure("c", "correct", old, new)).quantities
    values = {name: interval.value for name, interval in found.items()}
    assert values == pytest.approx(
        {
            "churn": 3 / 8,
            "accuracy_old": 5 / 8,
            "accuracy_new": 4 / 8,
            "accuracy_gain": -1 / 8,
            "negative_flip_rate": 2 / 8,
            "positive_flip_rate": 1 / 8,
        }
    )


def test_stability_and_excess_by_hand():
    old = np.array([[1.0, 1, 0, 0], [1, 0, 0, 0]])  # runs differ on one of four
    new = np.array([[0.0, 1, 0, 1]])
    found = estimate(Measure("c", "correct", old, new)).quantities
    assert found["stability_old"].value == 0.75
    assert found["within_old"].value == 0.25
    assert found["churn"].value == pytest.approx((2 + 3) / 8)
    assert found["excess_churn"].value == pytest.approx(5 / 8 - 1 / 4)
    assert "stability_new" not in found and "within_new" not in found


def test_errors_fall_where_values_come_nearer():
    target = np.array([0.0, 1.0, 2.0])
    old, new = np.array([[1.0, 1.0, 4.0]]), np.array([[0.5, 1.0, 5.0]])
    measure = Measure("v", "value", old, new, target=target, tolerance=0.6)
    found = estimate(measure).quantities
    assert found["error_change"].value == pytest.approx((-0.5 + 0 + 1) / 3)
    assert found["share_worse"].value == pytest.approx(1 / 3)
    assert found["share_better"].value == 0.0
    assert found["mean_distance"].value == pytest.approx(0.5)


def test_a_detectable_change_is_found_in_four_of_five_cases():
    rng = np.random.default_rng(1)
    found = estimate(scores(80, seed=5))
    spread = np.std((scores(80, seed=5).new - scores(80, seed=5).old)[0], ddof=1)
    draws = rng.normal(found.detectable, spread, size=(4000, 80))
    p = stats.ttest_1samp(draws, 0.0, axis=1).pvalue
    assert np.mean(p < 0.05) == pytest.approx(0.8, abs=0.03)
