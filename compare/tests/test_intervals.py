"""Numbers of a comparison next to loops in float64."""

import numpy as np
import pytest
from scipy import stats

from churn_compare.number_text import judgement
from churn_compare.pair import Scanned, ScannedSide
from churn_compare.quantities import QUANTITIES
from tests.cases import class_scan, intervals, noise, pair_of, random_logits, reference


@pytest.mark.parametrize(
    ("runs", "examples"),
    [((1, 1), 60), ((3, 2), 5000)],  # more than there are groups
)
def test_values_equal_loops_over_pairs_of_runs(runs, examples):
    labels, old, new = random_logits(1, runs, examples)
    old, new = old.argmax(-1), new.argmax(-1)
    found = intervals(class_scan(old, new), labels)
    for name, number in reference(old, new, labels).items():
        assert found[name].value == pytest.approx(number, rel=1e-12, abs=1e-12), name


def test_no_flip_is_not_certain():
    same = np.arange(100) % 5
    found = intervals(class_scan(same, same), same)
    assert (found["churn"].low, found["negative_flip_rate"].value) == (0, 0)
    assert found["churn"].high == pytest.approx(1.96**2 / (100 + 1.96**2), rel=1e-3)
    assert found["accuracy_gain"].low == -found["accuracy_gain"].high < 0
    assert found["kappa"].high == 1 > found["kappa"].low
    assert np.isnan(found["good_churn"].value)  # of no changed prediction
    # As in `flips`: nothing was wrong, so nothing new is.
    assert found["backward_error_compatibility"].value == 1
    assert np.isnan(found["backward_error_compatibility"].low)


def test_a_run_without_changes_makes_shares_of_changes_no_surer():
    old, number = np.zeros(100, int), np.arange(100)
    new, labels = (number < 40).astype(int), (number < 15).astype(int)
    one = intervals(class_scan(old, new), labels)
    two = intervals(class_scan(old, np.stack([old, new])), labels)
    for name in ("good_churn", "bad_churn"):
        assert two[name].value == one[name].value
        assert two[name].low <= one[name].low < one[name].high <= two[name].high


def test_changes_of_scores_have_the_interval_of_paired_t_tests():
    labels, old, new = random_logits(4, (1, 1), 60)
    _, scanned = pair_of(old, new, labels)
    found = intervals(scanned, labels, resamples=100)

    def of_examples(side):
        """What every example adds to 60 times each number."""
        gap = (side.predicted[0] == labels) - side.confidence[0].astype(np.float64)
        member = np.ceil(side.confidence[0] * 15).astype(int)
        sign = np.sign(np.bincount(member, gap))[member]
        return -side.label_log_prob[0], side.brier[0], sign * gap

    pairs = zip(of_examples(scanned.old), of_examples(scanned.new), strict=True)
    for name, (a, b) in zip(("nll", "brier", "ece"), pairs, strict=True):
        change = found[f"{name}_change"]
        assert change.value == pytest.approx(np.mean(b - a), rel=1e-5), name
        half = stats.t.isf(0.025, 59) * np.std(b - a, ddof=1) / np.sqrt(60)
        assert change.high - change.value == pytest.approx(half, rel=1e-5), name


@pytest.mark.parametrize(("examples", "runs"), [(1, 1), (3, 1), (20, 1), (5, 3)])
def test_examples_that_are_all_alike_have_no_interval_of_scores(examples, runs):
    scores = np.linspace([2.0, 0, 0], [3.0, 0, 0], runs, dtype=np.float32)[:, None]
    labels, old = np.zeros(examples, int), scores.repeat(examples, axis=1)
    new = old / 2
    found = intervals(pair_of(old, new, labels)[1], labels, resamples=100)
    of_scores = SCORES & found.keys()
    assert {"nll_change", "ece_old", "surrogate_churn"} < of_scores
    assert np.isnan([found[name].low for name in of_scores]).all()
    assert judgement("nll_change", found["nll_change"]) == "unclear"
    # A model that is compared with itself changes nothing for certain.
    found = intervals(pair_of(old[:1], old[:1], labels)[1], labels, resamples=100)
    for name in of_scores:
        ends = found[name].low, found[name].high
        same = name.endswith("_change") or name in ("surrogate_churn", "kl_divergence")
        assert ends == (0.0, 0.0) if same else np.isnan(ends).all()


def test_an_infinite_nll_has_no_interval():
    half, own = np.full((1, 4), 0.5, np.float32), [[-0.7, -0.7, -0.7, -np.inf]]
    side = ScannedSide(np.zeros((1, 4), np.int32), half, np.float32(own), half)
    found = intervals(Scanned(side, side), np.zeros(4, int), resamples=100)
    assert found["nll_old"].value == np.inf
    assert np.isnan([found["nll_old"].low, found["nll_old"].high]).all()
    assert np.isnan(found["nll_change"].value)
    assert found["brier_old"].value == 0.5


def test_the_seed_decides_and_the_order_of_examples_does_not():
    labels, old, new = random_logits(5, (2, 2), 300)
    _, scanned = pair_of(old, new, labels)
    first = intervals(scanned, labels, seed=3, resamples=500)
    assert intervals(scanned, labels, seed=3, resamples=500) == first
    order = np.random.default_rng(0).permutation(300)
    _, shuffled = pair_of(old[:, order], new[:, order], labels[order])
    again = intervals(shuffled, labels[order], seed=3, resamples=500)
    for name, interval in first.items():
        other = again[name]
        assert other.value == pytest.approx(interval.value, abs=1e-6)
        width = interval.high - interval.low
        # Counts are not resampled. Quantiles of 500 draws are noisy, most of all those
        # far in the tail that the bias of the calibration error asks for.
        close = (0.5 if "ece" in name else 0.15) if name in SCORES else 1e-9
        for end in ("low", "high"):
            difference = getattr(other, end) - getattr(interval, end)
            assert abs(difference) <= close * width + 1e-12, name


SCORES = {n for n, q in QUANTITIES.items() if q.scores}


def test_ends_hold_the_value_and_stay_within_bounds_or_there_are_none(rng):
    """From one example on, with runs that are equal and classes nobody predicts."""
    most = {"ece": 1, "brier": 2, "kappa": 1}
    for seed in range(30):
        N, C, A, B = rng.integers([1, 1, 1, 1], [9 if seed % 2 else 80, 4, 4, 4])
        labels = rng.integers(C + 1, size=N)
        old, new = (rng.integers(C, size=(R, N), dtype=np.int32) for R in (A, B))
        if seed % 3 == 0:
            old[:] = old[0]
        side = ScannedSide(
            old,
            rng.random((A, N), dtype=np.float32),
            np.where(rng.random((A, N)) < 0.1, -np.inf, -1).astype(np.float32),
            rng.random((A, N), dtype=np.float32),
        )
        scanned = Scanned(side, ScannedSide(new))
        noise(scanned)
        for name, interval in intervals(scanned, labels, resamples=100).items():
            assert np.isnan(interval.low) == np.isnan(interval.high), name
            if np.isnan(interval.low):
                continue
            assert interval.low - 1e-9 <= interval.value <= interval.high + 1e-9
            unit, family = QUANTITIES[name].unit, name.partition("_")[0]
            least = {"share": 0, "number": -1 if name == "kappa" else 0}
            highest = 1 if unit == "share" else most.get(family, np.inf)
            if unit in least:
                assert least[unit] <= interval.low and interval.high <= highest, name
