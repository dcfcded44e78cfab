"""Entropy histograms and areas: against SciPy and scikit-learn, by hand, at limits."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from experiments.diversity.foreign_examples import (
    entropy_histogram,
    out_of_distribution,
)


def _probs(logits):
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


@pytest.fixture
def two_sets(rng):
    """Three runs: sure on 200 own images, less so on 90 foreign ones."""
    return 4.0 * rng.normal(size=(3, 200, 5)), 2.0 * rng.normal(size=(3, 90, 5))


def test_means_areas_and_histograms_equal_scipy_scikit_learn_and_numpy(two_sets):
    found = out_of_distribution(*two_sets, bins=7)
    inside, outside = map(_probs, two_sets)
    entropies = [stats.entropy(p, axis=-1) for p in (inside, outside)]
    np.testing.assert_allclose(found.entropy_in, entropies[0].mean(-1), rtol=1e-12)
    np.testing.assert_allclose(found.entropy_out, entropies[1].mean(-1), rtol=1e-12)
    labels, histogram = np.repeat([0, 1], [200, 90]), found.histogram_in
    np.testing.assert_allclose(histogram.edges, np.linspace(0, np.log(5), 8))
    for run in range(3):
        by_entropy = roc_auc_score(labels, np.concatenate([e[run] for e in entropies]))
        np.testing.assert_allclose(found.auroc_entropy[run], by_entropy, rtol=1e-12)
        top = -np.concatenate([inside[run].max(-1), outside[run].max(-1)])
        area = found.auroc_max_probability[run]
        np.testing.assert_allclose(area, roc_auc_score(labels, top), rtol=1e-12)
        counts, _ = np.histogram(entropies[0][run], histogram.edges)
        np.testing.assert_array_equal(histogram.counts[run], counts)
    assert found.auroc_entropy.min() > 0.6
    assert histogram.counts.sum(-1).tolist() == [200] * 3
    np.testing.assert_allclose(histogram.shares.sum(-1), 1.0)


def test_of_four_predictions_by_hand():
    # Entropies in nats: 0, 0.500, 0.673, 0.693; the edges of two bins: 0, 0.347, 0.693.
    probs = np.array([[1.0, 0.0], [0.8, 0.2], [0.6, 0.4], [0.5, 0.5]])
    with np.errstate(divide="ignore"):
        logits = np.log(probs)
    assert entropy_histogram(logits, bins=2).counts.tolist() == [1, 3]
    own, foreign = logits[None, [0, 2]], logits[None, [1, 3]]
    found = out_of_distribution(own, foreign, bins=2)
    # Of four pairs the foreign image has the higher entropy in three.
    assert found.auroc_entropy.tolist() == found.auroc_max_probability.tolist()
    assert found.auroc_entropy.tolist() == [0.75]
    np.testing.assert_allclose(found.entropy_in, [0.673 / 2], atol=3e-4)
    assert found.histogram_in.counts.tolist() == [[1, 1]]
    assert found.histogram_out.counts.tolist() == [[0, 2]]


def test_equal_swapped_shifted_and_reordered_sets(two_sets):
    own, foreign = two_sets
    same, there = out_of_distribution(own, own), out_of_distribution(own, foreign)
    np.testing.assert_allclose(same.auroc_entropy, 0.5, rtol=1e-12)
    back = out_of_distribution(foreign, own).auroc_entropy
    np.testing.assert_allclose(there.auroc_entropy + back, 1.0, rtol=1e-12)
    moved = out_of_distribution(own[..., ::-1] + 7.0, foreign[..., ::-1] - 3.0)
    np.testing.assert_allclose(moved.entropy_in, there.entropy_in, rtol=1e-9)
    np.testing.assert_allclose(moved.auroc_entropy, there.auroc_entropy, rtol=1e-9)


def test_confident_predictions_are_still_ranked():
    # In float32 all four top probabilities are 1; their doubts differ.
    gaps = np.array([60.0, 50.0, 55.0, 45.0])
    logits = np.stack([gaps, np.zeros(4)], axis=-1)[None]
    found = out_of_distribution(logits[:, :2], logits[:, 2:])
    assert found.auroc_max_probability.tolist() == [0.75]
    assert found.auroc_entropy.tolist() == [0.75]


def test_a_stopped_run_is_nan_and_the_others_are_not(two_sets):
    own, foreign = two_sets[0].copy(), two_sets[1]
    own[1, 3] = np.nan
    found, whole = out_of_distribution(own, foreign), out_of_distribution(*two_sets)
    for values in found.entropy_in, found.auroc_entropy, found.auroc_max_probability:
        assert np.isnan(values).tolist() == [False, True, False]
    assert found.auroc_entropy[2] == whole.auroc_entropy[2]
    assert found.histogram_in.counts.sum(-1).tolist() == [200, 199, 200]


def test_bfloat16_logits_are_taken_as_they_are(two_sets):
    low = [jnp.asarray(logits, jnp.bfloat16) for logits in two_sets]
    high = [np.asarray(logits, np.float64) for logits in low]
    a, b = out_of_distribution(*low), out_of_distribution(*high)
    np.testing.assert_allclose(a.entropy_out, b.entropy_out, rtol=1e-12)
    assert a.entropy_out.dtype == np.float64


@pytest.mark.parametrize(
    ("inside", "outside", "message"),
    [
        ((2, 5, 3), (2, 4, 4), r"\(2, 5, 3\) and \(2, 4, 4\)"),
        ((2, 5, 3), (1, 4, 3), r"\(2, 5, 3\) and \(1, 4, 3\)"),
        ((5, 3), (4, 3), r"in_logits must be \[R, N, C\]; got shape \(5, 3\)"),
        ((2, 0, 3), (2, 4, 3), r"must hold examples; got \(2, 0, 3\)"),
        ((2, 5, 1), (2, 5, 1), "at least two classes"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(inside, outside, message):
    with pytest.raises(ValueError, match=message):
        out_of_distribution(np.zeros(inside), np.zeros(outside))


def test_a_histogram_needs_bins_and_examples():
    with pytest.raises(ValueError, match="bins must be at least 1; got 0"):
        entropy_histogram(np.zeros((4, 2)), bins=0)
    with pytest.raises(ValueError, match=r"must be \[..., N, C\]; got shape \(2,\)"):
        entropy_histogram(np.zeros(2))
