"""Numbers of a method: by hand, against the metrics, and without stopped runs."""

import numpy as np
import pytest

from churn_compare.store import Predictions, PredictionsError
from churn_jax.analysis import Difference, holm, paired_t_test
from churn_jax.reports import summarize
from churn_jax.reports.estimates import Change, compare_with_baseline
from churn_jax.reports.quantities import ABSENT
from tests.reference_losses import softmax
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import logits_of, noisy_logits

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
CHURN = np.array([0.7 / 3, np.sqrt(0.08 / 9), 0.4 / 3])
BY_HAND = {
    "accuracy": (2.5 / 3, 0.1 / np.sqrt(3), 0.1 / 3),
    "churn": CHURN,
    "surrogate_churn": (1 - np.exp(-2)) * CHURN,
    "l1": 2 * (TOP - LOW) * CHURN,
    # 01: (2/9 + 1/8) / 2, 02: (1/9 + 0) / 2, 12: (1/8 + 1/8) / 2.
    "churn_correct": (17 / 144, None, None),
    # 01: (1 + 1) / 2, 02: (0 + 1/2) / 2, 12: (1 + 1) / 2.
    "churn_incorrect": (0.75, np.sqrt(0.125), 0.5),
    # 01: (0.2 + 0.1) / 2, 02: (0.1 + 0) / 2, 12: (0.1 + 0.1) / 2.
    "nfr": (0.1, np.sqrt(0.005 / 3), np.sqrt(2 / 3 * 0.005)),
    "hamming_prediction_difference": CHURN,
    "confidence": (TOP - LOW, 0.0, 0.0),
    "nll": (-np.log(TOP) + 2 / 6, 2 * 0.1 / np.sqrt(3), 2 * 0.1 / 3),
    "ece": ((abs(0.9 - TOP) + 2 * abs(0.8 - TOP)) / 3, None, None),
}


def test_numbers_worked_out_by_hand(summaries):
    for name, numbers in BY_HAND.items():
        estimate = getattr(summaries["baseline"], name)
        found = (estimate.mean, estimate.std, estimate.stderr)
        for value, expected in zip(found, numbers, strict=True):
            if expected is not None:
                close = {"rtol": 2e-6, "atol": 1e-7, "err_msg": name}
                np.testing.assert_allclose(value, expected, **close)


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 5, 40)
    return Predictions(np.arange(40), labels, noisy_logits(rng, labels, 4, 5))


@pytest.fixture(scope="module")
def summary(noisy):
    return summarize(noisy)


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
    got, probs = getattr(summary, name), softmax(noisy.logits)

    def delta(p):
        return SET_LEVEL[name](p, noisy.labels).mean()

    without = np.array([delta(np.delete(probs, r, 0)) for r in range(4)])
    stderr = np.sqrt(3 / 4 * np.sum((without - without.mean()) ** 2))
    np.testing.assert_allclose(got.mean, delta(probs), rtol=1e-5)
    np.testing.assert_allclose(summary.set_values[name], without, rtol=1e-5)
    np.testing.assert_allclose(got.stderr, stderr, rtol=1e-3)  # float32 differences
    np.testing.assert_allclose(got.std, 2 * got.stderr)


def test_a_stopped_run_changes_nothing_but_the_count(noisy, summary):
    logits = noisy.logits.copy()
    logits[1] = np.nan
    meta = {"stopped": [1]}
    marked = summarize(Predictions(noisy.ids, noisy.labels, logits, meta))
    named = summarize(noisy, stopped=[1])  # by the caller, with logits that are sound
    for found in (marked, named):
        assert (found.runs, found.stopped) == ((0, 2, 3), (1,))
    for name in ("accuracy", "ece", "prediction_difference"):
        assert getattr(marked, name) == getattr(named, name)
    rest = [0, 2, 3]
    for name, matrix in summary.pair_values.items():
        ours = marked.pair_values[name]
        np.testing.assert_array_equal(ours, matrix[np.ix_(rest, rest)])
    for name, values in summary.run_values.items():
        np.testing.assert_array_equal(marked.run_values[name], values[rest])
    classes = summary.classes[rest]
    np.testing.assert_array_equal(marked.classes, classes)


def test_one_run_has_no_churn_and_two_have_no_standard_error(noisy):
    one = summarize(Predictions(noisy.ids, noisy.labels, noisy.logits[:1]))
    assert np.isnan(one.churn.mean) and np.isnan(one.accuracy.std)
    assert np.isnan(one.prediction_difference.mean)
    two = summarize(noisy, stopped=[2, 3])
    assert np.isfinite(two.churn.mean) and np.isnan(two.churn.stderr)
    assert np.isnan(two.churn.std)  # one pair has no spread, not a spread of zero
    assert np.isnan(two.relative_prediction_difference.stderr)
    assert two.prediction_difference.mean > 0
    assert np.isnan(two.set_values["prediction_difference"]).all()
    # Run r is compared with run r, at whatever place it is.
    all_four, later = summarize(noisy), summarize(noisy, stopped=[0])
    for base, row in ((all_four, later), (later, all_four)):
        both = {"baseline": base, "same": row}
        same = compare_with_baseline(both, "baseline")["same"]
        accuracy, churn = (same[name].difference for name in ("accuracy", "churn"))
        assert (accuracy.runs, accuracy.p) == (3, 1)
        assert accuracy.difference == churn.difference == 0
    # Runs without a partner are not compared.
    others = {"baseline": two, "other": summarize(noisy, stopped=[0, 1])}
    other = compare_with_baseline(others, "baseline")["other"]
    assert other["churn"].verdict == "too few runs to test churn (0 in common)"


def test_nothing_to_summarize_and_foreign_labels_are_refused(noisy):
    with pytest.raises(PredictionsError, match="all 4 runs were stopped"):
        summarize(noisy, stopped=range(4))
    foreign = Predictions(noisy.ids, noisy.labels + 9, noisy.logits)
    with pytest.raises(PredictionsError, match="only 5 classes"):
        summarize(foreign)


def test_comparison_with_the_baseline_by_hand(summaries):
    got = compare_with_baseline(summaries, "baseline")
    assert list(got) == ["steady", "halting"]
    (_, churn, churn_p, _), (_, accuracy, accuracy_p, _) = (
        got["steady"][name] for name in ("churn", "accuracy")
    )
    np.testing.assert_allclose(churn.difference, -0.7 / 3, rtol=1e-6)
    np.testing.assert_allclose(churn.stderr, 0.4 / 3, rtol=1e-6)
    # Student's t with two degrees of freedom: p = 1 - |t| / sqrt(2 + t^2), t = -1.75.
    np.testing.assert_allclose(churn.p, 1 - 1.75 / 2.25, rtol=1e-5)
    assert churn_p == churn.p  # the other method cannot be tested
    # Accuracy: 0, 0.1, 0.1 better, t = 2.
    np.testing.assert_allclose(accuracy.t, 2, rtol=1e-5)
    np.testing.assert_allclose(accuracy.p, 1 - 2 / np.sqrt(6), rtol=1e-5)
    # Halting: runs 0 and 1 only, 0.1 and 0.2 better, t = 3 with one degree of freedom.
    halting = got["halting"]
    assert halting["churn"].difference.runs == 2 and np.isnan(halting["churn"].p)
    np.testing.assert_allclose(halting["accuracy"].difference.difference, 0.15, 1e-6)
    p = halting["accuracy"].difference.p
    np.testing.assert_allclose(p, 1 - 2 / np.pi * np.arctan(3), rtol=1e-5)
    # Two runs are no test, and no other p pays for them.
    assert accuracy_p == accuracy.p and np.isnan(halting["accuracy"].p)
    rest = {name: s for name, s in summaries.items() if name != "baseline"}
    assert compare_with_baseline(rest, "baseline") == {}


def test_a_difference_on_which_all_runs_agree_has_no_spread_but_that_of_float32():
    def made(*errors):
        classes = np.zeros((3, 1000), int)
        for run, wrong in enumerate(errors):  # each run on examples of its own
            classes[run, 100 * run : 100 * run + wrong] = 1
        labels = np.zeros(1000, int)
        return summarize(Predictions(np.arange(1000), labels, logits_of(classes, 3)))

    rows = {"baseline": made(31, 47, 58), "better": made(30, 46, 57)}
    found = compare_with_baseline(rows, "baseline")["better"]
    for name, difference in (("accuracy", 0.001), ("churn", -0.002)):
        assert found[name].difference.difference == pytest.approx(difference, rel=1e-4)
        assert (found[name].difference.stderr, found[name].p) == (0.0, 0.25)
        assert "no detectable effect" in found[name].verdict


@pytest.mark.parametrize("runs", [3, 5, 20])
def test_the_interval_holds_zero_exactly_where_the_adjusted_p_is_not_below_5_percent(
    runs,
):
    rng = np.random.default_rng(runs)
    shifts = np.linspace(0, 5, 40)
    found = [paired_t_test(rng.normal(s, 1, runs), np.zeros(runs)) for s in shifts]
    adjusted = holm([one.p for one in found])
    for one, p in zip(found, adjusted, strict=True):
        low, high = Change("accuracy", one, p).interval
        assert (low <= 0 <= high) == (p >= 0.05)
        assert low < one.difference < high
    assert min(adjusted) < 0.05 < max(adjusted) == 1
    same = paired_t_test(np.ones(runs), np.zeros(runs))  # without any spread
    change = Change("accuracy", same, same.p)
    assert change.interval is None and change.effect == (runs == 20)


# Quantity, difference, standard error, p and runs, and what is said of them. No end of
# an interval is shown as zero, small errors keep two digits, and what two runs show is
# an accident, whatever p says.
VERDICTS = """
churn -0.0211 0.003 0.00123 10
reduces churn by 2.1 points (1.4 to 2.8; p = 0.001)
churn 0.0211 0.003 0.0001 10
increases churn by 2.1 points (1.4 to 2.8; p < 0.001)
churn -0.0031 0.003 0.7 10
no detectable effect on churn (-0.3 points, -1.0 to +0.4; p = 0.700)
churn -0.0275 0.01205 0.048 10
reduces churn by 2.75 points (0.02 to 5.48; p = 0.048)
accuracy -0.08 0.0001 0.001 2
too few runs to test accuracy (2 in common)
churn -0.02 0.0 0.25 3
no detectable effect on churn (-2.00 points; p = 0.250)
accuracy -0.01 0.0004 0.01 10
lowers accuracy by 1.00 points (0.91 to 1.09; p = 0.010)
accuracy 0.01 0.002 0.01 10
raises accuracy by 1.0 points (0.5 to 1.5; p = 0.010)
prediction_difference -0.0741 0.0012 0.0001 20
reduces Δ₁ by 0.0741 (0.0716 to 0.0766; p < 0.001)
prediction_difference 0.0003 0.0012 0.8 20
no detectable effect on Δ₁ (+0.0003, -0.0022 to +0.0028; p = 0.800)
""".strip().splitlines()


@pytest.mark.parametrize(("given", "expected"), [*zip(VERDICTS[::2], VERDICTS[1::2])])
def test_verdicts_say_no_more_than_was_found(given, expected):
    what, *numbers = given.split()
    difference, stderr, p, runs = map(float, numbers)
    change = Change(what, Difference(difference, stderr, np.nan, p, int(runs)), p)
    assert change.verdict == expected
    assert (change.cells[1] == ABSENT) == ("too few" in expected)
