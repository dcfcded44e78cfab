"""Tests of differences: against scipy, by hand, and by simulation of known truths."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

from churn_compare.significance import holm, mcnemar_exact
from churn_jax.analysis import (
    cross_fitted_selection,
    jackknife_stderr,
    nearest_to_mean,
    paired_jackknife_test,
    paired_t_test,
)
from tests.refusals import refusals


def _mean_over_pairs(matrix, runs):
    return np.mean([matrix[i, j] for i, j in itertools.permutations(runs, 2)])


def _without_each(matrix):
    every = range(len(matrix))
    return [_mean_over_pairs(matrix, [i for i in every if i != r]) for r in every]


@pytest.mark.parametrize("R", [3, 9])
def test_paired_jackknife_equals_a_loop_over_runs_and_swaps_its_sign(R, rng):
    method, baseline = rng.uniform(size=(2, R, R))  # not symmetric
    theta = np.array(_without_each(method)) - _without_each(baseline)
    stderr = np.sqrt((R - 1) / R * np.sum((theta - theta.mean()) ** 2))
    every = range(R)
    difference = _mean_over_pairs(method, every) - _mean_over_pairs(baseline, every)
    test = paired_jackknife_test(method, baseline)
    p = 2 * stats.t.sf(abs(difference / stderr), R - 1)
    expected = (difference, stderr, difference / stderr, p, R)
    np.testing.assert_allclose(dataclasses.astuple(test), expected, rtol=1e-9)
    back = paired_jackknife_test(baseline, method)
    assert back.difference == -test.difference
    assert (back.stderr, back.p) == (test.stderr, test.p)


def _hub_matrices(rng, trials, R, spread):
    """Mean over pairs of `0.1 + a_i + a_j + noise_ij`, whose truth is 0.1."""
    a = rng.normal(size=(trials, R)) * spread
    noise = rng.normal(size=(trials, R, R)) * spread
    noise = np.triu(noise, 1) + np.triu(noise, 1).transpose(0, 2, 1)
    return 0.1 + a[:, :, None] + a[:, None, :] + noise


def test_the_standard_error_covers_the_truth_and_false_alarms_are_nominal():
    rng = np.random.default_rng(20)
    trials, R = 1500, 8
    method = _hub_matrices(rng, trials, R, 0.01)
    baseline = _hub_matrices(rng, trials, R, 0.01)
    tests = [paired_jackknife_test(m, b) for m, b in zip(method, baseline, strict=True)]
    differences = np.array([t.difference for t in tests])
    reported = np.sqrt(np.mean([t.stderr**2 for t in tests]))
    # Var(mean over pairs) = 4 s^2 / R + 2 s^2 / (R (R - 1)), twice for a difference.
    truth = 0.01 * np.sqrt(2 * (4 / R + 2 / (R * (R - 1))))
    np.testing.assert_allclose(differences.std(), truth, rtol=0.06)
    assert 1.0 < reported / truth < 1.12  # conservative, by little
    alarms = np.mean([t.p < 0.05 for t in tests])
    assert 0.02 < alarms < 0.065, alarms  # binomial spread of 1500 trials: 0.006
    half = stats.t.ppf(0.975, R - 1)
    covered = np.mean([abs(t.difference) < half * t.stderr for t in tests])
    assert covered > 0.935, covered


def test_too_few_runs_and_equal_matrices():
    test = paired_jackknife_test(np.full((2, 2), 0.3), np.full((2, 2), 0.1))
    np.testing.assert_allclose(test.difference, 0.2)
    assert np.isnan([test.stderr, test.t, test.p]).all()
    one = paired_jackknife_test(np.zeros((1, 1)), np.zeros((1, 1)))
    assert np.isnan(one.difference)
    assert np.isnan([jackknife_stderr(np.array(few)) for few in ([], [0.5])]).all()

    matrix = np.random.default_rng(0).uniform(size=(4, 4))
    test = paired_jackknife_test(matrix, matrix)
    assert (test.difference, test.stderr, test.p) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("R", [3, 15])
def test_paired_t_equals_scipy(R, rng):
    a, b = rng.normal(size=(2, R))
    ours, theirs = paired_t_test(a, b), stats.ttest_rel(a, b)
    np.testing.assert_allclose((ours.t, ours.p), tuple(theirs)[:2], rtol=1e-9)


def test_paired_t_with_one_run_or_no_spread():
    assert np.isnan(paired_t_test([0.5], [0.4]).p)
    assert paired_t_test([0.5, 0.7], [0.5, 0.7]).p == 1.0
    assert paired_t_test([0.5, 0.7, 0.1], [0.4, 0.6, 0.0]).p == 0.25


@pytest.mark.parametrize(("b", "c"), [(0, 0), (0, 1), (1, 6), (5, 5), (40, 80)])
def test_mcnemar_equals_the_binomial_test(b, c):
    expected = stats.binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    np.testing.assert_allclose(mcnemar_exact(b, c), expected, rtol=1e-9)
    assert mcnemar_exact(b, c) == mcnemar_exact(c, b)


def test_holm_equals_its_definition_and_is_between_raw_and_bonferroni(rng):
    p = rng.uniform(size=6) ** 3
    order = np.argsort(p)
    steps = np.minimum(1, (6 - np.arange(6)) * p[order])
    found = holm(p)
    np.testing.assert_allclose(found[order], np.maximum.accumulate(steps))
    assert np.all(found >= p) and np.all(found <= np.minimum(1, 6 * p) + 1e-15)


def test_holm_leaves_out_what_could_not_be_tested():
    found = holm([0.02, np.nan, 0.03])
    np.testing.assert_allclose(found, [0.04, np.nan, 0.04], equal_nan=True)
    assert holm([]).shape == (0,)


test_bad_input_is_refused = refusals(
    (lambda: paired_jackknife_test(np.eye(3), np.eye(4)), r"\(3, 3\) and \(4, 4\)"),
    (lambda: paired_jackknife_test(np.ones(3), np.eye(3)), r"\[R, R\].*\(3,\)"),
    (lambda: paired_t_test([1.0, 2.0], [1.0]), r"\(2,\) and \(1,\)"),
    (lambda: nearest_to_mean(np.full((2, 3, 2), np.nan)), "leave such runs out"),
    (lambda: mcnemar_exact(-1, 2), "counts; got -1 and 2"),
    (lambda: mcnemar_exact(1.5, 2), "counts"),
    (lambda: holm([0.1, 1.2]), r"within \[0, 1\]"),
)


def _runs(rng, spread, examples=400, classes=4):
    """Runs around one truth, run r away from it by `spread[r]`, and its labels."""
    truth = rng.normal(size=(examples, classes))
    noise = rng.normal(size=(len(spread), examples, classes))
    return truth + np.reshape(spread, (-1, 1, 1)) * noise, truth.argmax(-1)


def test_the_nearest_run_equals_the_equation(rng):
    for _ in range(20):
        logits, _ = _runs(rng, np.full(5, 0.5), examples=6)
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        mean = p.mean(0)
        away = [np.sum(mean * np.log(mean / one)) for one in p]
        assert nearest_to_mean(logits) == np.argmin(away)
        order = rng.permutation(5)
        assert order[nearest_to_mean(logits[order])] == np.argmin(away)
    # By hand: from the mean (2/3, 1/3) the runs are 0.057, 0.010 and 0.200 away.
    runs = np.log([[[0.5, 0.5]], [[0.6, 0.4]], [[0.9, 0.1]]])
    assert nearest_to_mean(runs) == 1 and nearest_to_mean(runs[[1, 1, 1]]) == 0
    never = np.pad(runs, [(0, 0), (0, 0), (0, 1)], constant_values=-np.inf)
    assert nearest_to_mean(never) == 1


def test_selection_ships_the_good_run_of_every_release(rng):
    logits, labels = _runs(rng, [0.01, 0.01, 2.0, 2.0])
    found = cross_fitted_selection(logits, labels, 2)
    # In a third of the partitions the two good runs share a release.
    assert found.churn < 0.8 * found.churn_of_any
    assert found.accuracy > found.accuracy_of_any
    alike = cross_fitted_selection(np.stack([logits[0]] * 4), labels, 2)
    assert alike.churn == alike.churn_of_any == 0.0
    right = np.mean(logits[0].argmax(-1) == labels)
    assert alike.accuracy == pytest.approx(right)


def test_selection_is_not_measured_on_what_selected(rng):
    """Runs that err independently are alike, however lucky one is on few examples."""
    gains, seeming = [], []
    for _ in range(300):
        right = rng.uniform(size=(8, 12)) < 0.75
        logits = np.stack([3.0 * right, 3.0 * ~right], axis=-1)
        found = cross_fitted_selection(logits, np.zeros(12, int), 4, repeats=1)
        churn = found.churn_of_any - found.churn
        gains.append([churn, found.accuracy - found.accuracy_of_any])
        accuracy = right[:, :6].mean(-1)
        seeming.append(accuracy[nearest_to_mean(logits[:, :6])] - accuracy.mean())
    stderr = np.std(gains, axis=0) / np.sqrt(300)
    assert np.all(np.abs(np.mean(gains, axis=0)) < 3 * stderr)
    assert np.mean(seeming) > 10 * np.max(stderr)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_selection_of_one_run_is_any_run(size, rng):
    logits, labels = _runs(rng, np.full(7, 1.0))
    found = cross_fitted_selection(logits, labels, size, repeats=5)
    if size == 1:
        assert found.churn == pytest.approx(found.churn_of_any)
        assert found.accuracy == pytest.approx(found.accuracy_of_any)
        classes = logits.argmax(-1)
        pairs = itertools.combinations(classes, 2)
        churn = np.mean([np.mean(a != b) for a, b in pairs])
        assert found.churn == pytest.approx(churn)


test_predictions_that_cannot_be_selected_from_are_refused = refusals(
    ((3, 4), 1, r"\[R, N, C\]; got shape \(3, 4\)"),
    ((3, 8, 2), 2, "two releases .* got 3 runs in releases of 2"),
    ((4, 9, 2), 2, r"labels of shape \(8,\)"),
    ((4, 8, 2), 2, 0, "repeats must be at least 1; got 0"),
    call=lambda shape, size, repeats=1: cross_fitted_selection(
        np.zeros(shape), np.zeros(8, int), size, repeats=repeats
    ),
)
