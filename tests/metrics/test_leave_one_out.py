import functools

import jax
import numpy as np
import pytest

from churn_jax import metrics
from tests.metrics.cases import M, make_inputs

METRICS = {
    "relative": metrics.relative_prediction_difference,
    "order 2": functools.partial(metrics.prediction_difference, order=2),
    "hamming": metrics.hamming_prediction_difference,
}


def others(m):
    return np.arange(M) != m


@pytest.mark.parametrize("name", METRICS)
def test_equals_the_metric_of_the_other_models(name):
    logits, mask = make_inputs("models", 0)["logits"], np.arange(48) % 3 > 0
    metric = jax.jit(functools.partial(METRICS[name], mask=mask))
    expected = [metric(logits[others(m)]) for m in range(M)]
    without = jax.jit(lambda x: metrics.leave_one_model_out(metric, x))
    np.testing.assert_allclose(without(logits), expected, rtol=1e-6)


def test_other_inputs_go_along():
    inputs = make_inputs("labelled models", 1)
    logits, labels = inputs["logits"], inputs["labels"]
    metric, mask = jax.jit(metrics.label_prediction_difference), np.arange(48) % 3 > 0
    expected = [metric(logits[others(m)], labels, mask) for m in range(M)]
    actual = metrics.leave_one_model_out(metric, logits, labels=labels, mask=mask)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_stream_keeps_one_state_per_left_out_model():
    logits = make_inputs("models", 2)["logits"]

    def window(x):
        empty = metrics.PredictionDifferenceState.empty()
        return metrics.leave_one_model_out(empty.update, x)

    window = jax.jit(window)
    states = window(logits[:, :24]).merge(window(logits[:, 24:]))
    metric = jax.jit(metrics.prediction_difference)
    expected = [metric(logits[others(m)]) for m in range(M)]
    np.testing.assert_allclose(states.compute(), expected, rtol=1e-6)


def test_mean_over_models_is_that_of_all_pairs():
    # A mean over pairs counts each pair in M - 2 of the M sets.
    logits = make_inputs("models", 3)["logits"]
    metric = jax.jit(metrics.kl_prediction_difference)
    left_out = metrics.leave_one_model_out(metric, logits)
    np.testing.assert_allclose(np.mean(left_out), metric(logits), rtol=2e-6)


def test_jackknife_equals_that_of_the_matrix_of_pairs():
    logits = make_inputs("models", 4)["logits"]
    summary = metrics.summarize_pairs(metrics.pairwise(metrics.churn, logits))
    t = jax.jit(
        lambda x: metrics.leave_one_model_out(metrics.hamming_prediction_difference, x)
    )(logits)
    t = np.asarray(t, np.float64)
    stderr = np.sqrt((M - 1) / M * np.sum((t - t.mean()) ** 2))
    np.testing.assert_allclose(stderr, summary.stderr, rtol=1e-5)


def test_two_models_cannot_lose_one():
    logits = make_inputs("models", 0)["logits"][:2]
    with pytest.raises(ValueError, match=r"at least three.*\(2, 48, 5\)"):
        metrics.leave_one_model_out(metrics.prediction_difference, logits)
