"""Numbers of a method: by hand, against the metrics, and without stopped runs."""

import itertools

import numpy as np
import pytest

from churn_jax import metrics
from churn_jax.analysis.significance import Difference
from churn_jax.predictions import Predictions, PredictionsError
from churn_jax.reports.compare import Comparison, compare_with_baseline
from churn_jax.reports.summary import summarize
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import noisy_logits

MODULE = "churn_jax.reports.estimates"
TOP = np.exp(2) / (np.exp(2) + 2)  # probability of the predicted class at margin 2
LOW = 1 / (np.exp(2) + 2)


@pytest.fixture(scope="module")
def summaries():
    ids = np.arange(len(LABELS))
    stopped = {"halting": {"stopped": [2]}}
    return {
        name: summarize(Predictions(ids, LABELS, logits, stopped.get(name, {})))
        for name, logits in three_methods().items()
    }


# Baseline, wrong examples (prediction): run 0 {9 (0)}, run 1 {0 (2), 1 (2)},
# run 2 {0 (1), 9 (0)}. Pairs disagree on: 01 {0, 1, 9}, 02 {0}, 12 {0, 1, 9}.
BY_HAND = {
    "accuracy": (2.5 / 3, 0.1 / np.sqrt(3), 0.1 / 3),
    "churn": (0.7 / 3, np.sqrt(0.08 / 9), 0.4 / 3),
    "surrogate_churn": tuple(
        (1 - np.exp(-2)) * x for x in (0.7 / 3, np.sqrt(0.08 / 9), 0.4 / 3)
    ),
    "l1": tuple(2 * (TOP - LOW) * x for x in (0.7 / 3, np.sqrt(0.08 / 9), 0.4 / 3)),
    # 01: (2/9 + 1/8) / 2, 02: (1/9 + 0) / 2, 12: (1/8 + 1/8) / 2.
    "churn_correct": (17 / 144, None, None),
    # 01: (1 + 1) / 2, 02: (0 + 1/2) / 2, 12: (1 + 1) / 2.
    "churn_incorrect": (0.75, np.sqrt(0.125), 0.5),
    # 01: (0.2 + 0.1) / 2, 02: (0.1 + 0) / 2, 12: (0.1 + 0.1) / 2.
    "nfr": (0.1, np.sqrt(0.005 / 3), np.sqrt(2 / 3 * 0.005)),
    "hamming_prediction_difference": (0.7 / 3, np.sqrt(0.08 / 9), 0.4 / 3),
    "confidence": (TOP - LOW, 0.0, 0.0),
    "nll": (-np.log(TOP) + 2 / 6, 2 * 0.1 / np.sqrt(3), 2 * 0.1 / 3),
    "ece": ((abs(0.9 - TOP) + 2 * abs(0.8 - TOP)) / 3, None, None),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_numbers_worked_out_by_hand(summaries, name):
    estimate = getattr(summaries["baseline"], name)
    got = (estimate.mean, estimate.std, estimate.stderr)
    for value, expected in zip(got, BY_HAND[name], strict=True):
        if expected is not None:
            np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-7)


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 5, 60)
    return Predictions(np.arange(60), labels, noisy_logits(rng, labels, 4, 5))


@pytest.fixture(scope="module")
def summary(noisy):
    return summarize(noisy)


def _asymmetric_by_definition(noisy, metric):
    pairs = itertools.permutations(range(4), 2)
    return np.mean([float(metric(noisy.logits[a], noisy.logits[b])) for a, b in pairs])


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("churn", metrics.churn),
        ("surrogate_churn", metrics.surrogate_churn),
        ("l1", lambda a, b: metrics.l1_distance(a, b).mean()),
        ("churn_correct", lambda a, b, y: metrics.churn_by_correctness(a, b, y)[0]),
        ("churn_incorrect", lambda a, b, y: metrics.churn_by_correctness(a, b, y)[1]),
        (
            "nfr",
            lambda a, b, y: metrics.negative_flip_rate(
                old_logits=a, new_logits=b, labels=y
            ),
        ),
    ],
)
def test_pair_numbers_are_means_over_all_ordered_pairs(noisy, summary, name, metric):
    labels = noisy.labels.astype(np.int32)
    takes_labels = name in ("churn_correct", "churn_incorrect", "nfr")
    two = (lambda a, b: metric(a, b, labels)) if takes_labels else metric
    expected = _asymmetric_by_definition(noisy, two)
    np.testing.assert_allclose(getattr(summary, name).mean, expected, rtol=2e-6)


SET_LEVEL = {
    "prediction_difference": lambda p, _: np.abs(p - p.mean(0)).sum(-1),
    "prediction_difference_2": lambda p, _: np.sqrt(((p - p.mean(0)) ** 2).sum(-1)),
    "relative_prediction_difference": lambda p, _: (
        np.abs(p - p.mean(0)) / p.mean(0)
    ).sum(-1),
    "label_prediction_difference": lambda p, y: (np.abs(p / p.mean(0) - 1))[
        :, np.arange(len(y)), y
    ],
}


@pytest.mark.parametrize("name", SET_LEVEL)
def test_prediction_differences_leave_one_run_out_of_the_set(noisy, summary, name):
    got = getattr(summary, name)
    probs = np.exp(noisy.logits - noisy.logits.max(-1, keepdims=True), dtype=np.float64)
    probs /= probs.sum(-1, keepdims=True)

    def delta(p):
        return SET_LEVEL[name](p, noisy.labels).mean()

    without = np.array([delta(np.delete(probs, r, 0)) for r in range(4)])
    stderr = np.sqrt(3 / 4 * np.sum((without - without.mean()) ** 2))
    np.testing.assert_allclose(got.mean, delta(probs), rtol=1e-5)
    np.testing.assert_allclose(summary.set_values[name], without, rtol=1e-5)
    np.testing.assert_allclose(got.stderr, stderr, rtol=1e-3)  # float32 differences
    np.testing.assert_allclose(got.std, 2 * got.stderr)


def test_large_sets_in_blocks_give_the_same_number(noisy, summary, monkeypatch):
    monkeypatch.setattr(f"{MODULE}.BLOCK_NUMBERS", 4 * 5 * 7)  # blocks of 7 examples
    parts = summarize(noisy)
    for name, without in summary.set_values.items():
        whole, part = getattr(summary, name), getattr(parts, name)
        np.testing.assert_allclose(part.mean, whole.mean, rtol=1e-6)
        np.testing.assert_allclose(parts.set_values[name], without, rtol=1e-6)


def test_a_stopped_run_changes_nothing_but_the_count(noisy, summary):
    logits = np.insert(noisy.logits, 1, np.nan, axis=0)
    meta = {"stopped": [1]}
    marked = summarize(Predictions(noisy.ids, noisy.labels, logits, meta))
    assert (marked.runs, marked.stopped) == ((0, 2, 3, 4), (1,))
    for name in ("accuracy", "ece", "churn", "churn_incorrect", "surrogate_churn"):
        ours, theirs = getattr(marked, name), getattr(summary, name)
        np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-6)
        np.testing.assert_allclose(ours.stderr, theirs.stderr, rtol=1e-5)
    np.testing.assert_array_equal(marked.curves.classes, summary.curves.classes)


def test_stopped_runs_can_be_named_by_the_caller(noisy):
    assert summarize(noisy, stopped=[0]).runs == (1, 2, 3)


def test_curves_count_every_example_once_and_agree_with_the_ece(noisy):
    one = Predictions(noisy.ids, noisy.labels, noisy.logits[:1])
    summary = summarize(one)
    curves = summary.curves
    assert curves.bin_counts.sum() == curves.confidence_counts.sum() == 60
    share = curves.bin_counts / 60
    gap = np.abs(curves.bin_probability - curves.bin_accuracy)
    np.testing.assert_allclose(np.nansum(share * gap), summary.ece.mean, rtol=1e-5)


def test_one_run_has_no_churn_and_two_have_no_standard_error(noisy):
    one = summarize(Predictions(noisy.ids, noisy.labels, noisy.logits[:1]))
    assert np.isnan(one.churn.mean) and np.isnan(one.accuracy.std)
    two = summarize(Predictions(noisy.ids, noisy.labels, noisy.logits[:2]))
    assert np.isfinite(two.churn.mean) and np.isnan(two.churn.stderr)
    assert np.isnan(two.churn.std)  # one pair has no spread, not a spread of zero
    assert np.isnan(two.relative_prediction_difference.stderr)
    assert two.prediction_difference.mean > 0
    assert np.isnan(two.set_values["prediction_difference"]).all()
    assert np.isnan(one.prediction_difference.mean)


def test_nothing_to_summarize_and_foreign_labels_are_refused(noisy):
    with pytest.raises(PredictionsError, match="all 4 runs were stopped"):
        summarize(noisy, stopped=range(4))
    foreign = Predictions(noisy.ids, noisy.labels + 9, noisy.logits)
    with pytest.raises(PredictionsError, match="only 5 classes"):
        summarize(foreign)


def test_comparison_with_the_baseline_by_hand(summaries):
    got = compare_with_baseline(summaries, "baseline")
    assert list(got) == ["steady", "halting"]
    steady = got["steady"]
    np.testing.assert_allclose(steady.churn.difference, -0.7 / 3, rtol=1e-6)
    np.testing.assert_allclose(steady.churn.stderr, 0.4 / 3, rtol=1e-6)
    # Student's t with two degrees of freedom: p = 1 - |t| / sqrt(2 + t^2), t = -1.75.
    np.testing.assert_allclose(steady.churn.p, 1 - 1.75 / 2.25, rtol=1e-5)
    assert steady.churn_p == steady.churn.p  # the other method cannot be tested
    # Accuracy: 0, 0.1, 0.1 better, t = 2.
    np.testing.assert_allclose(steady.accuracy.t, 2, rtol=1e-5)
    np.testing.assert_allclose(steady.accuracy.p, 1 - 2 / np.sqrt(6), rtol=1e-5)
    # Halting: runs 0 and 1 only, 0.1 and 0.2 better, t = 3 with one degree of freedom.
    halting = got["halting"]
    assert halting.churn.runs == 2 and np.isnan(halting.churn_p)
    np.testing.assert_allclose(halting.accuracy.difference, 0.15, rtol=1e-6)
    np.testing.assert_allclose(
        halting.accuracy.p, 1 - 2 / np.pi * np.arctan(3), rtol=1e-5
    )
    # Holm over two: the smaller p times 2, the larger not below it.
    np.testing.assert_allclose(steady.accuracy_p, 2 * steady.accuracy.p)
    np.testing.assert_allclose(halting.accuracy_p, 2 * steady.accuracy.p)


def test_without_the_baseline_there_is_no_comparison(summaries):
    rest = {name: s for name, s in summaries.items() if name != "baseline"}
    assert compare_with_baseline(rest, "baseline") == {}


def test_runs_without_a_partner_are_not_compared(noisy):
    got = compare_with_baseline(
        {
            "baseline": summarize(noisy, stopped=[2, 3]),
            "other": summarize(noisy, stopped=[0, 1]),
        },
        "baseline",
    )
    assert got["other"].churn_verdict == "too few runs to test churn (0 in common)"


@pytest.mark.parametrize(
    ("difference", "p", "expected"),
    [
        (-0.0211, 0.00123, "reduces churn by 2.1 ± 0.3 points (p = 0.001)"),
        (0.0211, 0.0001, "increases churn by 2.1 ± 0.3 points (p < 0.001)"),
        (
            -0.0031,
            0.7,
            "no detectable effect on churn (-0.3 ± 0.3 points, p = 0.700)",
        ),
    ],
)
def test_verdicts_say_no_more_than_was_found(difference, p, expected):
    found = Difference(difference, 0.003, difference / 0.003, p, 10)
    assert Comparison(found, p, found, p).churn_verdict == expected


def test_two_runs_are_too_few_for_a_verdict_whatever_p_says():
    accident = Difference(-0.08, 0.0001, -800.0, 0.001, 2)
    verdict = Comparison(accident, 0.001, accident, 0.001).accuracy_verdict
    assert verdict == "too few runs to test accuracy (2 in common)"


def test_accuracy_is_raised_or_lowered_and_small_errors_keep_two_digits():
    worse = Difference(-0.01, 0.0004, -25.0, 0.01, 10)
    assert (
        Comparison(worse, 0.01, worse, 0.01).accuracy_verdict
        == "lowers accuracy by 1.00 ± 0.04 points (p = 0.010)"
    )
    better = Difference(0.01, 0.002, 5.0, 0.01, 10)
    verdict = Comparison(better, 0.01, better, 0.01).accuracy_verdict
    assert verdict.startswith("raises accuracy by 1.0")
