"""Flows, regressions and curves: by hand and by loops in float64."""

import collections

import numpy as np
import pytest

from churn_compare import findings
from churn_compare.example_numbers import class_numbers
from churn_compare.findings import class_flow, largest_regressions, reliability_curve
from churn_compare.pair import ScannedSide
from tests.cases import intervals, pair_of, random_logits


def largest(pair, scanned, count):
    """The regressions of a pair, by the flips of its numbers."""
    numbers = class_numbers(scanned, pair.labels)
    flips = None if pair.labels is None else numbers.worse.mean
    return largest_regressions(pair, scanned, flips, count)


@pytest.mark.parametrize(("seed", "runs"), [(0, (1, 1)), (1, (2, 3))])
def test_flow_is_that_of_a_loop(seed, runs):
    labels, old, new = random_logits(seed, runs)
    flow = class_flow(*pair_of(old, new, labels))
    counts = collections.Counter()
    for a in old.argmax(-1):
        for b in new.argmax(-1):
            for before, now, label in zip(a, b, labels, strict=True):
                if before != now:
                    counts[before, now, "all"] += 1
                    counts[before, now, "negative"] += before == label
                    counts[before, now, "positive"] += now == label
    found = {}
    for before, now, *numbers in zip(
        flow.old, flow.new, flow.examples, flow.negative, flow.positive, strict=True
    ):
        for kind, number in zip(("all", "negative", "positive"), numbers, strict=True):
            found[int(before), int(now), kind] = number
    pairs = runs[0] * runs[1]
    assert found == pytest.approx({k: n / pairs for k, n in counts.items()})
    assert list(flow.examples) == sorted(flow.examples, reverse=True)


def test_a_flow_is_of_the_largest_changes(monkeypatch):
    old, new = [[0, 0, 0, 1, 2]], [[1, 1, 2, 0, 2]]
    names = {"class_names": ("cat", "dog", "hen")}
    flow = class_flow(*pair_of(old, new, [0, 1, 1, 1, 2], **names))
    assert flow.old == ("cat", "cat", "dog")  # equal counts in the order of classes
    monkeypatch.setattr(findings, "LARGEST", 2)
    flow = class_flow(*pair_of(old, new))
    assert (flow.examples, flow.new) == ((2, 1), ("1", "2"))
    assert np.isnan([*flow.negative, *flow.positive]).all()  # no labels
    assert class_flow(*pair_of(old, old)) == findings.Flow((), (), (), (), ())


def regressions(old, new, labels):
    """Every regression by loops in float64: share, drop and move, worst first."""

    def softmax(logits):
        exp = np.exp(logits.astype(np.float64) - logits.max())
        return exp / exp.sum()

    found = []
    for i, label in enumerate(labels):
        pairs = [(a[i], b[i]) for a in old for b in new]
        flips = [a.argmax() == label != b.argmax() for a, b in pairs]
        if not any(flips):
            continue
        drops = [softmax(a)[label] - softmax(b)[label] for a, b in pairs]
        found.append((np.mean(flips), np.mean(drops), i))
    return sorted(found, key=lambda r: (-r[0], -r[1], r[2]))


@pytest.mark.parametrize(("seed", "runs"), [(0, (1, 1)), (1, (3, 2))])
def test_largest_regressions_are_those_of_a_loop(seed, runs):
    labels, old, new = random_logits(seed, runs, examples=60)
    pair, scanned = pair_of(old, new, labels)
    expected = regressions(old, new, labels)
    for count in (0, 1, 5, len(expected), 60):
        found, total = largest(pair, scanned, count)
        assert total == len(expected) > 5
        assert [int(r.id) for r in found] == [r[2] for r in expected[:count]]
        for regression, (share, drop, _) in zip(found, expected, strict=False):
            assert regression.share == pytest.approx(share)
            assert regression.label_drop == pytest.approx(drop, abs=1e-6)
    assert largest(*pair_of(old, new), 5) == ((), 0)
    one = old[:1]
    assert largest(*pair_of(one, one, one[0].argmax(-1)), 5) == ((), 0)


def test_regressions_by_hand():
    # Example 0 stays right, 1 and 3 break, 2 is repaired.
    old = np.log([[[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]]])
    new = np.log([[[0.8, 0.2], [0.3, 0.7], [0.9, 0.1], [0.9, 0.1]]])
    ids, names = np.array(["a", "b", "c", "d"]), ("cat", "dog")
    pair, scanned = pair_of(old, new, [0, 0, 0, 1], ids=ids, class_names=names)
    found, total = largest(pair, scanned, 10)
    assert total == 2
    assert [(r.id, r.label, r.old, r.new) for r in found] == [
        ("d", "dog", "dog", "cat"),  # falls by 0.7
        ("b", "cat", "cat", "dog"),  # by 0.3
    ]
    numbers = [(r.old_confidence, r.new_confidence, r.label_drop) for r in found]
    np.testing.assert_allclose(numbers, [(0.8, 0.9, 0.7), (0.6, 0.7, 0.3)], atol=1e-6)
    scanned.new.label_log_prob[:] = -np.inf  # a label that the new one does not know
    (first, _), _ = largest(pair, scanned, 2)
    assert first.label_drop == pytest.approx(0.8)


def test_regressions_of_classes_are_ordered_by_share_then_as_given():
    old = [[1, 1, 1, 1], [1, 0, 1, 1]]
    new = [[0, 0, 0, 0], [2, 0, 1, 0]]
    found, total = largest(*pair_of(old, new, [1, 1, 1, 0]), 9)
    assert total == 3
    assert [(r.id, r.share) for r in found] == [("0", 1.0), ("1", 0.5), ("2", 0.5)]
    assert found[0].new == "0"  # one vote each: the lowest class
    numbers = found[0].label_drop, found[0].old_confidence, found[0].new_confidence
    assert np.isnan(numbers).all()


@pytest.mark.parametrize("runs", [1, 3])
def test_curve_is_that_of_a_loop_over_bins(runs):
    labels, old, new = random_logits(0, (runs, 1), examples=90)
    _, scanned = pair_of(old, new, labels)
    curve = reliability_curve(scanned.old, labels)
    confidence = scanned.old.confidence.astype(np.float64)
    right = scanned.old.predicted == labels
    for m in range(15):
        low, high = np.float32(m / 15), np.float32((m + 1) / 15)
        inside = (confidence > low) & (confidence <= high)
        assert curve.examples[m] == inside.sum()
        if inside.any():
            assert curve.confidence[m] == pytest.approx(confidence[inside].mean())
            assert curve.accuracy[m] == pytest.approx(right[inside].mean())
        else:
            assert np.isnan([curve.confidence[m], curve.accuracy[m]]).all()
    assert curve.examples.sum() == runs * 90
    if runs == 1:  # its gaps are the calibration error
        gaps = np.nansum(np.abs(curve.accuracy - curve.confidence) * curve.examples)
        error = intervals(scanned, labels, resamples=100)["ece_old"].value
        assert gaps / 90 == pytest.approx(error, abs=1e-6)
    edges = (np.arange(1, 16) / 15).astype(np.float32)  # belong to the bin below
    side = ScannedSide(np.zeros((1, 15), np.int32), edges[None])
    assert reliability_curve(side, np.zeros(15, int)).examples.tolist() == [1] * 15
