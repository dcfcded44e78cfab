import collections

import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import metrics
from churn_jax.comparison.findings import reliability_curve, scatter_points
from churn_jax.comparison.pair import ScannedSide
from tests.comparison.random_pairs import pair_of, random_logits


@pytest.mark.parametrize("runs", [1, 3])
def test_curve_is_that_of_a_loop_over_bins(runs):
    labels, old, new = random_logits(0, (runs, 1), examples=90)
    _, scanned = pair_of(old, new, labels)
    curve = reliability_curve(scanned.old, labels)
    confidence = scanned.old.confidence.astype(np.float64)
    right = scanned.old.predicted == labels
    for m in range(15):
        inside = (confidence > np.float32(m / 15)) & (
            confidence <= np.float32((m + 1) / 15)
        )
        assert curve.examples[m] == inside.sum()
        if inside.any():
            assert curve.confidence[m] == pytest.approx(confidence[inside].mean())
            assert curve.accuracy[m] == pytest.approx(right[inside].mean())
        else:
            assert np.isnan([curve.confidence[m], curve.accuracy[m]]).all()
    assert curve.examples.sum() == runs * 90


def test_gaps_of_the_curve_are_the_calibration_error():
    labels, old, new = random_logits(1, examples=120)
    _, scanned = pair_of(old, new, labels)
    curve = reliability_curve(scanned.old, labels)
    some = curve.examples > 0
    gaps = np.abs(curve.accuracy - curve.confidence)[some]
    expected = metrics.expected_calibration_error(old[0], jnp.asarray(labels))
    found = (gaps * curve.examples[some]).sum() / 120
    assert found == pytest.approx(float(expected), abs=1e-6)


def test_edges_belong_to_the_bin_below():
    edges = (np.arange(1, 16) / 15).astype(np.float32)
    side = ScannedSide(np.zeros((1, 15), np.int32), edges[None])
    assert reliability_curve(side, np.zeros(15, int)).examples.tolist() == [1] * 15


def test_a_curve_needs_confidences():
    with pytest.raises(ValueError, match="needs logits or probabilities"):
        reliability_curve(ScannedSide(np.zeros((1, 2), int)), np.zeros(2, int))


def outcome(before, now, label):
    if before == now:
        return "same"
    return {before: "negative", now: "positive"}.get(label, "other")


def test_few_examples_are_all_shown():
    labels, old, new = random_logits(2, examples=70)
    pair, scanned = pair_of(old, new, labels)
    points = scatter_points(pair, scanned, seed=0)
    expected = [
        outcome(*each)
        for each in zip(old[0].argmax(-1), new[0].argmax(-1), labels, strict=True)
    ]
    order = sorted(range(70), key=lambda i: expected[i] != "negative")
    assert points.outcome.tolist() == [expected[i] for i in order]
    assert points.totals == collections.Counter(expected)
    assert points.sampled_from == 70
    np.testing.assert_allclose(points.confidence, scanned.old.confidence[0, order])
    np.testing.assert_allclose(points.displacement, scanned.displacement[order])


@pytest.mark.parametrize(("flips", "shown"), [(1000, 1000), (2500, 1500)])
def test_many_examples_are_drawn_and_counted(flips, shown):
    examples = 10_000
    right, wrong = [2.0, 0.0], [0.0, 1.0]
    old = np.array([[right] * examples], np.float32)
    new = np.array([[wrong] * flips + [right] * (examples - flips)], np.float32)
    pair, scanned = pair_of(old, new, np.zeros(examples, int))
    points = scatter_points(pair, scanned, seed=0)
    assert len(points.outcome) == 3000
    assert points.outcome.tolist() == ["negative"] * shown + ["same"] * (3000 - shown)
    assert points.totals == {"negative": flips, "same": examples - flips}


def test_the_draw_depends_on_the_seed_alone():
    _, old, new = random_logits(3, examples=5000)
    pair, scanned = pair_of(old, new)
    first, again, other = (scatter_points(pair, scanned, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.confidence, again.confidence)
    assert (first.confidence != other.confidence).any()
    assert set(first.outcome.tolist()) == {"same", "other"}  # no labels


def test_of_several_runs_the_most_frequent_outcome_counts():
    old = np.eye(3)[[[0], [0], [1]]]
    new = np.eye(3)[[[1]]]
    pair, scanned = pair_of(old, new, [0])  # negative, negative, same
    points = scatter_points(pair, scanned, seed=0)
    assert points.outcome.tolist() == ["negative"]


def test_points_need_scores():
    with pytest.raises(ValueError, match="scores of both sides"):
        scatter_points(*pair_of([[0]], [[1]]), seed=0)
