import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs

PROBS = np.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]], np.float32)


def test_by_hand():
    logits, labels = np.log(PROBS), np.array([0, 2])
    assert float(metrics.accuracy(logits, labels)) == 0.5
    assert float(metrics.error_rate(logits, labels)) == 0.5
    # (log 2 + log 8) / 2 = 2 log 2
    nll = metrics.negative_log_likelihood(logits, labels)
    np.testing.assert_allclose(nll, 1.3862944, rtol=1e-6)
    # (.25 + .0625 + .0625 + .015625 + .5625 + .765625) / 2
    np.testing.assert_allclose(metrics.brier_score(logits, labels), 0.859375, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_agree_with_scikit_learn(seed):
    inputs = make_inputs("labelled", seed)
    logits, labels = inputs["logits"], inputs["labels"]
    probs = ref.softmax(logits)
    accuracy = sklearn.metrics.accuracy_score(labels, np.argmax(logits, -1))
    np.testing.assert_allclose(metrics.accuracy(logits, labels), accuracy, rtol=1e-6)
    nll = sklearn.metrics.log_loss(labels, probs, labels=range(5))
    np.testing.assert_allclose(
        metrics.negative_log_likelihood(logits, labels), nll, rtol=2e-6
    )
    # Its mean over all N C squares, times C: the sum over classes, as ours.
    squares = sklearn.metrics.mean_squared_error(np.eye(5)[labels], probs)
    np.testing.assert_allclose(
        metrics.brier_score(logits, labels), 5 * squares, rtol=2e-6
    )
    two, binary = logits[:, :2], (labels > 1).astype(int)
    # scikit-learn counts the positive class only: half of the sum over both classes.
    brier = sklearn.metrics.brier_score_loss(binary, ref.softmax(two)[:, 1])
    np.testing.assert_allclose(metrics.brier_score(two, binary), 2 * brier, rtol=2e-6)


def test_a_tie_goes_to_the_lower_class():
    logits = np.zeros((2, 3), np.float32)
    assert float(metrics.accuracy(logits, np.array([0, 1]))) == 0.5


@pytest.mark.parametrize("label", [-1, 3])
def test_an_unknown_label_is_not_scored_silently(label):
    logits, labels = np.log(PROBS), np.array([0, label])
    assert np.isnan(metrics.negative_log_likelihood(logits, labels))
    assert np.isnan(metrics.brier_score(logits, labels))


def test_an_impossible_label_costs_infinitely_much():
    logits = jnp.array([[0.0, -jnp.inf]])
    assert float(metrics.negative_log_likelihood(logits, jnp.array([1]))) == np.inf
    assert float(metrics.brier_score(logits, jnp.array([1]))) == 2.0


def test_any_leading_axes_are_averaged():
    inputs = make_inputs("labelled", 1)
    logits, labels = inputs["logits"].reshape(6, 8, 5), inputs["labels"].reshape(6, 8)
    for name in ("accuracy", "brier_score", "expected_calibration_error"):
        metric = getattr(metrics, name)
        np.testing.assert_allclose(metric(logits, labels), metric(**inputs), rtol=1e-6)
