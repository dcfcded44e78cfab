"""Areas under the ROC curve, exact and from histograms; calibration of clicks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import metrics

N = 300  # one size throughout: what is compiled serves every test
roc_auc = jax.jit(metrics.roc_auc)
log_loss = jax.jit(metrics.log_loss)
calibration_ratio = jax.jit(metrics.calibration_ratio)


@functools.partial(jax.jit, static_argnames=("num_bins", "limit"))
def histogram(logits, labels, num_bins=8, limit=4.0):
    """The area and its bound from a fresh histogram."""
    state = metrics.AUCState.empty(num_bins, limit).update(logits, labels)
    return state.compute(), state.error_bound()


def as_logits(scores):
    scores = np.asarray(scores, np.float32)
    return np.stack([np.zeros_like(scores), scores], -1)


def make_clicks(seed, spread=1.0, decimals=None):
    """Rare clicks with related scores; `decimals` rounds them, which makes ties."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(N) < 0.2).astype(np.int32)
    scores = spread * (rng.normal(size=N) + labels) - 2
    if decimals is not None:
        scores = np.round(scores, decimals)
    return scores.astype(np.float32), labels


def test_order_alone_decides_the_area():
    z, labels = make_clicks(1)
    area = float(roc_auc(as_logits(z), labels))
    assert float(roc_auc(as_logits(np.arctan(z)), labels)) == area
    np.testing.assert_allclose(roc_auc(as_logits(-z), labels), 1 - area, rtol=1e-6)
    np.testing.assert_allclose(roc_auc(as_logits(z), 1 - labels), 1 - area, rtol=1e-6)
    assert float(roc_auc(as_logits(0 * z), labels)) == 0.5
    assert float(roc_auc(as_logits(np.float32(labels)), labels)) == 1.0
    sure = np.where(labels == 1, np.inf, -np.inf)
    assert float(roc_auc(as_logits(sure), labels)) == 1.0
    assert float(roc_auc(as_logits(np.full(N, np.inf)), labels)) == 0.5


@pytest.mark.parametrize(
    ("num_bins", "limit"), [(2**14, 16.0), (7, 3.0), (64, 4.0), (1, 1.0)]
)
def test_histogram_is_within_its_bound_of_the_exact_area(num_bins, limit):
    for spread, decimals in ((1.0, None), (1.0, 1), (1e3, None), (1e-4, None)):
        z, labels = make_clicks(2, spread, decimals)
        area, bound = histogram(as_logits(z), labels, num_bins, limit)
        error = abs(float(area) - float(roc_auc(as_logits(z), labels)))
        assert error <= bound + 1e-6
        if num_bins == 2**14 and spread == 1.0 and decimals is None:
            assert bound < 4e-4 and error < 1e-4
        if num_bins == 1:
            assert (area, bound) == (0.5, 0.5)


def test_bound_is_reached_where_every_pair_of_a_bin_is_ordered():
    # Both scores lie in the bin [0, 1): a tie for the histogram, 1 exactly.
    logits, labels = as_logits([0.2, 0.8] * 150), np.array([0, 1] * 150)
    assert histogram(logits, labels) == (0.5, 0.5)
    assert float(roc_auc(logits, labels)) == 1.0


def test_counts_stay_exact_for_two_billion_examples():
    counts = jnp.array([2**30 - 1, 2**30 - 1, 0, 1], jnp.int32)
    state = metrics.AUCState(counts[::-1], counts, jnp.int32(0), limit=1.0)
    state = state.merge(metrics.AUCState.empty(num_bins=4, limit=1.0))
    assert state.negatives.tolist() == counts.tolist()
    n = np.asarray(counts, np.float64)
    p, before = n[::-1], np.cumsum(n) - n
    expected = np.sum(p * (before + n / 2)) / n.sum() ** 2
    np.testing.assert_allclose(state.compute(), expected, rtol=1e-6)


def test_what_cannot_be_ranked_is_nan_not_a_number():
    z, labels = make_clicks(4)
    third = np.arange(N) == 3
    for x, y in (
        (z, 0 * labels),
        (z, 0 * labels + 1),
        (np.where(third, np.nan, z), labels),
        (z, np.where(third, 2, labels)),
        (z, np.where(third, -1, labels)),
    ):
        y = y.astype(np.int32)
        assert np.isnan(roc_auc(as_logits(x), y))
        assert np.isnan(histogram(as_logits(x), y)).all()
    nobody = np.zeros((0, 2), np.float32)
    assert np.isnan(metrics.roc_auc(nobody, np.zeros(0, np.int32)))
    # Predictions without a click are all too many; another label is not an example.
    assert np.isposinf(calibration_ratio(as_logits(z), 0 * labels))
    assert np.isnan(calibration_ratio(as_logits(z), 0 * labels - 1))
