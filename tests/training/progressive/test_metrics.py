"""Figures of binary scores against `churn_jax.metrics`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import metrics
from churn_jax.losses import binary_logits
from churn_jax.training.progressive.metrics import (
    DIFFERENCES,
    StreamMetrics,
    score_differences,
)

REPLICAS, EXAMPLES = 4, 24


@pytest.fixture(scope="module")
def scores():
    # Some so small that the probability underflows float32.
    scale = np.array([[1.0], [2.0], [1.0], [1.0]])
    drawn = np.random.default_rng(1).normal(size=(REPLICAS, EXAMPLES)) * scale
    drawn[:, 0] = [-120.0, -121.0, -119.0, -120.5]
    return jnp.asarray(drawn, jnp.float32)


@pytest.fixture(scope="module")
def labels():
    return jnp.asarray(np.random.default_rng(2).integers(0, 2, EXAMPLES))


@jax.jit
def whole(scores, labels):
    """Every prediction difference by name, as the metrics of whole arrays say."""
    logits = binary_logits(scores)
    return {
        "relative_pd": metrics.positive_prediction_difference(logits),
        "pd_1": metrics.prediction_difference(logits),
        "pd_2": metrics.prediction_difference(logits, order=2),
        "hamming": metrics.hamming_prediction_difference(logits),
        "label_pd": metrics.label_prediction_difference(logits, labels),
    }


@pytest.mark.parametrize("chosen", [[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 1]])
def test_differences_are_those_of_the_chosen_replicas(scores, labels, chosen):
    chosen = np.array(chosen, bool)
    left_out = jnp.where(chosen[:, None], scores, jnp.nan)
    values = jax.jit(score_differences)(left_out, labels, jnp.asarray(chosen))
    wanted = whole(scores[chosen], labels)
    for name, value in zip(DIFFERENCES, values, strict=True):
        np.testing.assert_allclose(np.mean(value), wanted[name], rtol=2e-6)


def test_one_replica_has_no_difference(scores, labels):
    alone = jnp.asarray([True, False, False, False])
    assert np.all(np.isnan(jax.jit(score_differences)(scores, labels, alone)))


@pytest.fixture(scope="module")
def streamed(scores, labels):
    """Two windows of 16, the second half padding, the third replica stopped."""
    update = jax.jit(StreamMetrics.update)
    alive = jnp.asarray([True, True, False, True])
    state, other = StreamMetrics.empty(REPLICAS), StreamMetrics.empty(REPLICAS)
    state = update(state, scores[:, :16], labels[:16], jnp.ones(16), alive)
    last = jnp.pad(scores[:, 16:], ((0, 0), (0, 8)), constant_values=jnp.nan)
    mask = jnp.asarray([1.0] * 8 + [0.0] * 8)
    other = update(other, last, jnp.pad(labels[16:], (0, 8)), mask, alive)
    return jax.jit(StreamMetrics.compute)(state.merge(other))


def test_a_stream_gives_the_figures_of_the_whole(scores, labels, streamed):
    @jax.jit
    def figures(scores):
        logits = binary_logits(scores)
        of_one = metrics.log_loss, metrics.calibration_ratio, metrics.roc_auc
        return [metric(logits, labels) for metric in of_one]

    for r in (0, 1, 3):
        log_loss, calibration, auc = figures(scores[r])
        np.testing.assert_allclose(streamed["log_loss"][r], log_loss, 1e-6)
        np.testing.assert_allclose(streamed["calibration"][r], calibration, 1e-6)
        assert abs(streamed["auc"][r] - auc) <= streamed["auc_error"][r] + 1e-6
    for name in ("log_loss", "auc", "calibration"):
        assert np.isnan(streamed[name][2])
    living = np.array([0, 1, 3])
    for name, value in whole(scores[living], labels).items():
        np.testing.assert_allclose(streamed[name], value, rtol=2e-6)


def test_each_replica_is_left_out_once(scores, labels, streamed):
    for r in (0, 1, 3):
        rest = [i for i in (0, 1, 3) if i != r]
        for name, value in whole(scores[np.array(rest)], labels).items():
            np.testing.assert_allclose(streamed[f"{name}_loo"][r], value, rtol=2e-6)
    # Without one that is not there: the same as with it.
    np.testing.assert_array_equal(streamed["pd_1_loo"][2], streamed["pd_1"])
