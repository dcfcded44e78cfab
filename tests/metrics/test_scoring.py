"""Accuracy, likelihood, Brier score and calibration error of one model."""

import functools

import jax
import numpy as np
import pytest
import sklearn.metrics
from sklearn.calibration import calibration_curve

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs


@functools.partial(jax.jit, static_argnums=2)
def program(logits, labels, num_bins):
    return {
        "accuracy": metrics.accuracy(logits, labels),
        "error rate": metrics.error_rate(logits, labels),
        "nll": metrics.negative_log_likelihood(logits, labels),
        "brier": metrics.brier_score(logits, labels),
        "ece": metrics.expected_calibration_error(logits, labels, num_bins),
    }


def scores(logits, labels, num_bins=15):
    return jax.device_get(program(np.float32(logits), np.array(labels), num_bins))


@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_an_offset_of_all_logits_costs_no_digits(offset):
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(500, 5)) + offset).astype(np.float32)
    shifted = logits - np.float32(offset)  # exact
    labels = np.where(rng.random(500) < 0.7, logits.argmax(-1), 0)
    expected = ref.negative_log_likelihood(shifted.astype(float), labels)
    np.testing.assert_allclose(scores(logits, labels)["nll"], expected, rtol=1e-6)
    halves = [
        metrics.calibrated_scores(
            given, labels, validation_logits=given, validation_labels=labels
        )
        for given in (logits, shifted)
    ]
    two_fold = [
        metrics.two_fold_calibrated_scores(given, labels, key=jax.random.key(0))
        for given in (logits, shifted)
    ]
    np.testing.assert_allclose(*halves, rtol=1e-6)
    np.testing.assert_allclose(*two_fold, rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 5])
def test_agree_with_scikit_learn(classes):
    logits, labels = make_inputs("labelled", 0, n=400).values()
    logits, labels = logits[:, :classes], labels % classes
    probs, found = ref.softmax(logits), scores(logits, labels)
    expected = sklearn.metrics.accuracy_score(labels, np.argmax(logits, -1))
    np.testing.assert_allclose(found["accuracy"], expected, rtol=1e-6)
    nll = sklearn.metrics.log_loss(labels, probs, labels=range(classes))
    np.testing.assert_allclose(found["nll"], nll, rtol=2e-6)
    # Its mean over all N C squares, times C: the sum over classes, as ours.
    squares = sklearn.metrics.mean_squared_error(np.eye(classes)[labels], probs)
    np.testing.assert_allclose(found["brier"], classes * squares, rtol=2e-6)
    if classes == 2:  # it counts the positive class only, half of the sum over both
        brier = sklearn.metrics.brier_score_loss(labels, probs[:, 1])
        np.testing.assert_allclose(found["brier"], 2 * brier, rtol=2e-6)
    right, confidence = np.argmax(logits, -1) == labels, probs.max(-1)
    accuracy, mean = calibration_curve(right, confidence, n_bins=15)
    count, _ = np.histogram(confidence, 15, (0, 1))
    share = count[count > 0] / len(labels)
    expected = np.sum(share * np.abs(accuracy - mean))
    np.testing.assert_allclose(found["ece"], expected, rtol=1e-5)


def test_any_leading_axes_are_averaged():
    logits, labels = make_inputs("labelled", 1).values()
    folded = scores(logits.reshape(6, 8, 5), labels.reshape(6, 8))
    for name, value in scores(logits, labels).items():
        np.testing.assert_allclose(folded[name], value, rtol=1e-6)


def test_bins_are_open_left_and_closed_right_and_checked():
    even = np.zeros((1, 2), np.float32)  # confidence .5 is in (0, .5]
    state = jax.jit(lambda: metrics.ECEState.empty(2).update(even, np.array([0])))()
    assert state.examples.tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"num_bins.*0"):
        metrics.expected_calibration_error(even, np.array([0]), num_bins=0)
    with pytest.raises(ValueError, match=r"shape.*\(5,\).*\(4,\)"):
        metrics.ECEState.empty(5).merge(metrics.ECEState.empty(4))
