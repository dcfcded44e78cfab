import numpy as np
import pytest

from churn_jax.comparison.findings import largest_regressions
from tests.comparison.random_pairs import pair_of, random_logits


def reference(old, new, labels):
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
        moves = [np.linalg.norm((a - a.mean()) - (b - b.mean())) for a, b in pairs]
        found.append((np.mean(flips), np.mean(drops), np.mean(moves), i))
    return sorted(found, key=lambda r: (-r[0], -r[1], -r[2], r[3]))


@pytest.mark.parametrize(("seed", "runs"), [(0, (1, 1)), (1, (3, 2)), (2, (1, 4))])
def test_largest_regressions_are_those_of_a_loop(seed, runs):
    labels, old, new = random_logits(seed, runs, examples=60)
    pair, scanned = pair_of(old, new, labels)
    expected = reference(old, new, labels)
    assert len(expected) > 5
    found, total = largest_regressions(pair, scanned, 5)
    assert total == len(expected)
    assert [int(r.id) for r in found] == [r[3] for r in expected[:5]]
    for regression, (share, drop, move, _) in zip(found, expected, strict=False):
        assert regression.share == pytest.approx(share)
        assert regression.label_drop == pytest.approx(drop, abs=1e-6)
        assert regression.displacement == pytest.approx(move, rel=1e-5)


def test_a_case_by_hand():
    # Example 0 stays right, 1 and 3 break, 2 is repaired.
    old = np.log([[[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]]])
    new = np.log([[[0.8, 0.2], [0.3, 0.7], [0.9, 0.1], [0.9, 0.1]]])
    names = ("cat", "dog")
    pair, scanned = pair_of(
        old, new, [0, 0, 0, 1], ids=np.array(["a", "b", "c", "d"]), class_names=names
    )
    found, total = largest_regressions(pair, scanned, 10)
    assert total == 2
    assert [r.id for r in found] == ["d", "b"]  # falls by 0.7 and by 0.3
    assert [(r.label, r.old, r.new) for r in found] == [
        ("dog", "dog", "cat"),
        ("cat", "cat", "dog"),
    ]
    numbers = [(r.old_confidence, r.new_confidence, r.label_drop) for r in found]
    np.testing.assert_allclose(numbers, [(0.8, 0.9, 0.7), (0.6, 0.7, 0.3)], atol=1e-6)


def test_classes_only_are_ordered_by_share_then_as_given():
    labels = [1, 1, 1, 0]
    old = [[1, 1, 1, 1], [1, 0, 1, 1]]
    new = [[0, 0, 0, 0], [2, 0, 1, 0]]
    pair, scanned = pair_of(old, new, labels)
    found, total = largest_regressions(pair, scanned, 9)
    assert total == 3
    assert [(r.id, r.share) for r in found] == [("0", 1.0), ("1", 0.5), ("2", 0.5)]
    assert found[0].new == "0"  # one vote each: the lowest class
    assert np.isnan([found[0].label_drop, found[0].displacement]).all()
    assert np.isnan([found[0].old_confidence, found[0].new_confidence]).all()


def test_a_label_that_the_new_version_does_not_know_falls_to_zero():
    pair, scanned = pair_of(np.log([[[0.25, 0.75]]]), np.log([[[1.0, 0.5]]]), [1])
    scanned.new.label_log_prob[:] = -np.inf
    (found,), _ = largest_regressions(pair, scanned, 1)
    assert found.label_drop == pytest.approx(0.75)


def test_fewer_are_a_prefix_of_more():
    labels, old, new = random_logits(3, (1, 1), examples=200)
    pair, scanned = pair_of(old, new, labels)
    every, total = largest_regressions(pair, scanned, 200)
    assert len(every) == total
    for count in (0, 1, 7, total - 1):
        assert largest_regressions(pair, scanned, count) == (every[:count], total)


def test_without_labels_or_flips_there_are_none():
    _, old, new = random_logits(4)
    assert largest_regressions(*pair_of(old, new), 5) == ((), 0)
    assert largest_regressions(*pair_of(old, old, old[0].argmax(-1)), 5) == ((), 0)


def test_a_negative_count_is_refused():
    labels, old, new = random_logits(5)
    with pytest.raises(ValueError, match="at least 0; got -1"):
        largest_regressions(*pair_of(old, new, labels), -1)
