"""Churn, its smooth form, its share by correctness, and which examples churn."""

import itertools

import jax
import numpy as np
import pytest

from churn_jax import metrics
from tests.metrics.cases import make_inputs

A = np.log(np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], np.float32))
B = np.log(np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], np.float32))

churn = jax.jit(metrics.churn)
surrogate_churn = jax.jit(metrics.surrogate_churn)
ambiguity = jax.jit(metrics.ambiguity)


@jax.jit
def by_correctness(a, b, labels, mask):
    parts = metrics.churn_by_correctness(a, b, labels, mask)
    return parts, metrics.accuracy(a, labels, mask), metrics.churn(a, b, mask)


def test_by_hand():
    assert churn(A, B) == 0.5
    # Second example: |1/2 - 1| + |1 - 1/2| + |1/2 - 1/2| = 1; halved, then averaged.
    np.testing.assert_allclose(surrogate_churn(A, B, alpha=1.0), 0.25, rtol=1e-6)
    # alpha 2: |1/4 - 1| + |1 - 1/4| = 1.5
    np.testing.assert_allclose(surrogate_churn(A, B, alpha=2.0), 0.375, rtol=1e-6)


ONE_HOT = np.eye(3, dtype=int)
NAMES = np.array(["cat", "dog", "owl"])


@pytest.mark.parametrize(
    "of",
    [
        lambda z: z.tolist(),
        lambda z: z.argmax(-1),
        lambda z: z.argmax(-1).tolist(),
        lambda z: jax.numpy.asarray(z.argmax(-1), "uint8"),
        lambda z: NAMES[z.argmax(-1)],
        lambda z: NAMES[z.argmax(-1)].tolist(),
        lambda z: NAMES[z.argmax(-1)].astype(object),
    ],
    ids=["logits", "classes", "listed", "device", "names", "named", "objects"],
)
def test_predicted_classes_and_lists_have_the_churn_of_their_logits(of):
    a, b, _ = make_inputs("labelled pair", 0).values()
    a, b = a[..., :3], b[..., :3]
    mask = np.arange(len(a)) % 3 > 0
    for valid in (None, mask, mask.tolist()):
        assert metrics.churn(of(a), of(b), valid) == metrics.churn(a, b, valid) > 0
    if not isinstance(of(a)[0], str):
        assert metrics.churn(of(a), b) == metrics.churn(a, of(b)) == churn(a, b)
    state = metrics.ChurnState.empty().update(of(a), of(b)).update(a, b)
    assert state.compute() == churn(a, b)


def test_predicted_classes_are_traced_and_have_any_axes():
    a, b = np.array([[0, 1, 2], [0, 0, 0]]), np.array([[0, 1, 1], [1, 0, 1]])
    assert churn(a, b) == metrics.churn(a, b) == 0.5
    np.testing.assert_allclose(jax.vmap(metrics.churn)(a, b), [1 / 3, 2 / 3])
    assert metrics.churn(a == 0, b == 0) == 0.5 - 1 / 6  # bools are two classes
    assert metrics.churn([2**40, 1], [2**41, 1]) == 0.5  # wider than int32
    assert jax.vmap(metrics.churn)(A, B).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([0.0, 1.0], [0, 1], r"shape \(2,\) of float64. Pass classes as integers"),
        ([0, 1], [0, 1, 2], r"same shape; got \(2,\) and \(3,\)"),
        (A, [0, 1, 2], r"same shape; got \(2,\) and \(3,\)"),
        (A, A[:, :2], r"logits_a and logits_b must have the same shape; got \(2, 3\)"),
        (ONE_HOT, ONE_HOT[::-1], r"one-hot rows of shape \(3, 3\). Pass their argm"),
        (A, ["cat", "owl"], "both have the numbers of classes or both their names"),
        ([None, "owl"], ["cat", "owl"], "classes as integers or names; got object"),
    ],
)
def test_what_may_be_logits_or_classes_is_refused(a, b, message):
    with pytest.raises((TypeError, ValueError), match=message):
        metrics.churn(a, b)


def test_symmetric_zero_at_equality_and_bounded():
    a, b = make_inputs("pair", 0).values()
    for metric, bound in ((churn, 1.0), (surrogate_churn, 5 / 2)):
        assert metric(a, b) == metric(b, a)
        assert metric(a, a) == 0.0 < metric(a, b) <= bound


def test_surrogate_churn_tends_to_churn():
    a, b = make_inputs("pair", 0).values()
    found = [float(surrogate_churn(a, b, alpha=x)) for x in (1.0, 10.0, 100.0, 1e5)]
    gaps = np.abs(np.array(found) - churn(a, b)).tolist()
    assert gaps == sorted(gaps, reverse=True) and gaps[0] > 0.05 and gaps[-1] < 1e-6


def test_ties_and_extreme_logits():
    tie, first, second = np.float32([[[1, 1, 0]] * 2, [[1, 0, 0]] * 2, [[0, 1, 0]] * 2])
    assert churn(tie, first) == 0.0  # as argmax orders them
    assert churn(tie, second) == 1.0
    a = np.float32([[0.0, -np.inf, 1e30], [3e38, -3e38, 0.0]])
    assert surrogate_churn(a, a) == 0.0 and np.isfinite(surrogate_churn(a, a[::-1]))


@pytest.mark.parametrize("seed", range(3))
def test_churn_by_correctness_adds_up_to_churn(seed):
    a, b, labels = make_inputs("labelled pair", seed).values()
    best, worst, every = np.argmax(a, -1), np.argmin(a, -1), np.ones(48, bool)
    some = np.random.default_rng(seed).random(48) < 0.5
    for y, mask in ((labels, every), (labels, some), (best, every), (worst, every)):
        parts, accuracy, whole = by_correctness(a, b, y, mask)
        mixed = accuracy * parts.correct + (1 - accuracy) * parts.incorrect
        # Rounding of three float32 quotients and nothing else.
        assert abs(mixed - whole) < 2e-7
        # A group without examples has churn 0.
        assert accuracy != 1.0 or parts.incorrect == 0.0
        assert accuracy != 0.0 or parts.correct == 0.0
    assert accuracy == 0.0


def test_groups_are_those_of_the_first_model():
    labels, every = np.array([0, 0]), np.ones(2, bool)  # A: right, wrong; B: both right
    assert tuple(by_correctness(A, B, labels, every)[0]) == (0, 1)
    assert tuple(by_correctness(B, A, labels, every)[0]) == (0.5, 0)


@pytest.mark.parametrize("R", [2, 7])
def test_mean_ambiguity_is_the_churn_over_all_pairs(R):
    rng = np.random.default_rng(0)
    base = 2 * rng.normal(size=(60, 5))
    logits = (base + 2 * rng.normal(size=(R, 60, 5))).astype(np.float32)
    pairs = [float(churn(a, b)) for a, b in itertools.combinations(logits, 2)]
    per_example = ambiguity(logits)
    assert per_example.shape == (60,)
    assert 0.05 < np.mean(pairs) < 0.95
    np.testing.assert_allclose(np.mean(per_example), np.mean(pairs), rtol=1e-6)
    # Any axes of examples.
    reshaped = ambiguity(logits.reshape(R, 2, 30, 5))
    np.testing.assert_array_equal(reshaped, np.reshape(per_example, (2, 30)))


def test_rashomon_capacity_counts_the_classes_that_models_are_sure_of():
    sure = 40 * np.eye(4, dtype=np.float32)
    models = np.stack([sure[[0, 0, 0]], sure[[0, 1, 1]], sure[[0, 1, 2]]])
    found = metrics.rashomon_capacity(models)
    np.testing.assert_allclose(found, [1.0, 2.0, 3.0], rtol=1e-5)
    same = np.random.default_rng(0).normal(size=(1, 5, 4)).astype(np.float32)
    alike = metrics.rashomon_capacity(np.repeat(same, 3, axis=0))
    np.testing.assert_allclose(alike, 1.0, atol=1e-6)
    with pytest.raises(ValueError, match="at least two models"):
        metrics.rashomon_capacity(same)


def test_ambiguity_counts_votes():
    votes = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 1, 3]]).T  # [run, example]
    found = ambiguity(np.eye(4, dtype=np.float32)[votes])
    np.testing.assert_allclose(found, [0, 2 / 3, 1, 1], rtol=1e-6)
    # Two classes have a largest one.
    for R, most in ((2, 1.0), (4, 2 / 3), (5, 0.6)):
        halves = np.eye(2, dtype=np.float32)[np.arange(R) % 2][:, None]
        np.testing.assert_allclose(ambiguity(halves), [most], rtol=1e-6)
