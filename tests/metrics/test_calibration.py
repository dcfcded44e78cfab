import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from churn_jax.metrics import ECEState, expected_calibration_error
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs


def two_class(*top):
    """Logits whose class 0 has the given probabilities, at least one half."""
    p = np.array(top)
    return np.log(np.stack([p, 1 - p], -1)).astype(np.float32)


def test_by_hand():
    # Bins of width 1/4: (.5, .75] holds .625 and .6875, (.75, 1] holds .875 twice.
    logits = two_class(0.625, 0.6875, 0.875, 0.875)
    labels = np.array([0, 1, 0, 0])
    # |1 - 1.3125| / 4 + |2 - 1.75| / 4
    actual = expected_calibration_error(logits, labels, num_bins=4)
    np.testing.assert_allclose(actual, 0.140625, rtol=1e-6)


def test_bins_are_open_left_and_closed_right():
    state = ECEState.empty(2).update(np.zeros((1, 2), np.float32), np.array([0]))
    assert state.examples.tolist() == [1, 0]  # confidence .5 is in (0, .5]


def test_perfect_and_worst_calibration():
    certain = np.array([[100.0, 0.0]] * 3, np.float32)
    assert float(expected_calibration_error(certain, np.zeros(3, int))) == 0.0
    assert float(expected_calibration_error(certain, np.ones(3, int))) == 1.0


def test_one_bin_is_the_gap_of_the_means():
    logits, labels = two_class(0.6, 0.7, 0.9), np.array([0, 1, 0])
    actual = expected_calibration_error(logits, labels, num_bins=1)
    np.testing.assert_allclose(actual, 2.2 / 3 - 2 / 3, rtol=1e-5)


def test_agrees_with_the_calibration_curve_of_scikit_learn():
    num_bins = 15
    inputs = make_inputs("labelled", 0, n=400)
    logits, labels = inputs["logits"], inputs["labels"]
    confidence = ref.softmax(logits).max(-1)
    right = np.argmax(logits, -1) == labels
    accuracy, mean = calibration_curve(right, confidence, n_bins=num_bins)
    count, _ = np.histogram(confidence, num_bins, (0, 1))
    share = count[count > 0] / len(labels)
    actual = expected_calibration_error(logits, labels, num_bins)
    expected = np.sum(share * np.abs(accuracy - mean))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_errors():
    with pytest.raises(ValueError, match=r"num_bins.*0"):
        expected_calibration_error(two_class(0.6), np.array([0]), num_bins=0)
    other = ECEState.empty(5)
    with pytest.raises(ValueError, match=r"shape.*\(5,\).*\(4,\)"):
        other.merge(ECEState.empty(4))
