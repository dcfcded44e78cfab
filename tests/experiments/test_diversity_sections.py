"""Entropies of foreign images and quality on corrupted ones, against references."""

import numpy as np
import pytest
from scipy import special, stats
from sklearn.metrics import roc_auc_score

from experiments.diversity.report_figures import corruption_boxes, entropy_histograms
from experiments.diversity.sections import (
    QUANTITIES,
    CorruptionSummary,
    Spread,
    measure,
    out_of_distribution,
)
from tests import reference_metrics as reference


@pytest.fixture
def two_sets(rng):
    """Three runs: sure on 200 own images, less so on 90 foreign ones."""
    return 4.0 * rng.normal(size=(3, 200, 5)), 2.0 * rng.normal(size=(3, 90, 5))


def test_entropies_and_areas_equal_scipy_and_scikit_learn(two_sets):
    found = out_of_distribution(*two_sets)
    entropies = [stats.entropy(special.softmax(x, -1), axis=-1) for x in two_sets]
    np.testing.assert_allclose(found.inside, entropies[0], rtol=1e-12)
    np.testing.assert_allclose(found.outside, entropies[1], rtol=1e-12)
    labels = np.repeat([0, 1], [200, 90])
    for run in range(3):
        area = roc_auc_score(labels, np.concatenate([e[run] for e in entropies]))
        np.testing.assert_allclose(found.auroc[run], area, rtol=1e-12)
    assert found.auroc.min() > 0.6


def test_areas_by_hand_of_ties_and_of_sets_that_change_places(two_sets):
    # Entropies in nats: 0, 0.500, 0.673, 0.693. Of four pairs the foreign image has
    # the higher entropy in three.
    probs = np.array([[1.0, 0.0], [0.8, 0.2], [0.6, 0.4], [0.5, 0.5]])
    with np.errstate(divide="ignore"):
        logits = np.log(probs)
    found = out_of_distribution(logits[None, [0, 2]], logits[None, [1, 3]])
    assert found.auroc.tolist() == [0.75]
    np.testing.assert_allclose(found.inside.mean(), 0.673 / 2, atol=3e-4)
    own, foreign = two_sets
    np.testing.assert_allclose(out_of_distribution(own, own).auroc, 0.5, rtol=1e-12)
    there, back = out_of_distribution(own, foreign), out_of_distribution(foreign, own)
    np.testing.assert_allclose(there.auroc + back.auroc, 1.0, rtol=1e-12)
    # In float32 all four top probabilities are 1.
    gaps = np.array([60.0, 50.0, 55.0, 45.0])
    sure = np.stack([gaps, np.zeros(4)], axis=-1)[None].astype(np.float32)
    assert out_of_distribution(sure[:, :2], sure[:, 2:]).auroc.tolist() == [0.75]


def test_histograms_show_shares_of_both_sets(two_sets, drawn):
    found = out_of_distribution(*two_sets)
    svg = entropy_histograms({"BE-4": found, "BE-4 + ODS": found}, "SVHN")
    for text in ("BE-4 + ODS", "SVHN", "own test images", "Entropy, nats"):
        assert text in svg
    assert len(drawn["stairs"]) == 4
    for ((shares, edges), _), entropies in zip(drawn["stairs"], found[:2]):
        np.testing.assert_allclose(edges, np.linspace(0, np.log(5), 51))
        counts, _ = np.histogram(entropies, edges)
        assert counts.sum() == entropies.size
        np.testing.assert_allclose(shares, 100 * counts / entropies.size)


def test_quality_equals_the_reference(rng):
    logits = rng.normal(size=(2, 40, 4)).astype(np.float32)
    labels = rng.integers(0, 4, 40)
    functions = (
        reference.accuracy,
        reference.negative_log_likelihood,
        reference.expected_calibration_error,
    )
    found = measure(logits, labels)
    assert found.shape == (len(QUANTITIES), 2)
    for q, function in enumerate(functions):
        wanted = [function(run.astype(float), labels) for run in logits]
        np.testing.assert_allclose(found[q], wanted, rtol=1e-5)  # metrics are float32


def test_means_and_boxes_are_over_the_right_axes():
    # Four kinds at two severities; the second run has a number of its own in each.
    nll = np.log1p(np.exp(np.arange(8.0))).reshape(4, 2)
    values = np.zeros((4, 2, len(QUANTITIES), 2))
    values[:, :, 1, 0], values[:, :, 1, 1] = np.log(2), nll
    summary = CorruptionSummary((1, 2), values)
    np.testing.assert_allclose(summary.mean("nll"), [np.log(2), nll.mean()])
    a, b, c, d = (nll[:, 1] + np.log(2)) / 2
    # The quartiles of four numbers lie a quarter of the way between neighbours.
    expected = [a, a + 0.75 * (b - a), (b + c) / 2, c + 0.25 * (d - c), d]
    np.testing.assert_allclose(summary.quartiles("nll")[1], expected)


def test_boxes_are_the_quartiles_of_what_they_show(rng, drawn):
    summary = CorruptionSummary((1, 2, 3), rng.uniform(size=(5, 3, 3, 2)))
    corruption_boxes({"BE-4": summary, "DE-4": summary})
    calls = drawn["bxp"]
    assert len(calls) == 4  # two panels of two methods
    for ((boxes, *_), _), quantity in ((calls[0], "nll"), (calls[3], "ece")):
        found = [list(box.values()) for box in boxes]
        np.testing.assert_array_equal(found, summary.quartiles(quantity))
    left, right = (options["positions"] for _, options in calls[:2])
    np.testing.assert_allclose((left + right) / 2, [0, 1, 2])  # side by side


def test_bins_are_weighted_by_their_examples():
    means = np.array([[np.nan, 0.1], [np.nan, 0.5]])
    counts, edges = np.array([[0, 30], [0, 10]]), np.linspace(0, 1, 3)
    found = Spread(edges, counts, means, means[:, 1], np.full((2, 5), np.nan))
    np.testing.assert_allclose(found.by_bin, [np.nan, 0.2])
    np.testing.assert_allclose(found.shares, [0, 1])
