import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs


def log(*rows):
    return np.log(np.array(rows, np.float32))


def test_by_hand():
    a, b = log([0.5, 0.25, 0.25]), log([0.25, 0.25, 0.5])
    np.testing.assert_allclose(metrics.prediction_confidence(a), [0.25], rtol=1e-6)
    # .5 log 2 + 2 * .25 log 4 = 1.5 log 2
    np.testing.assert_allclose(metrics.prediction_entropy(a), [1.0397208], rtol=1e-6)
    np.testing.assert_allclose(metrics.l1_distance(a, b), [0.5], rtol=1e-6)
    labels = np.array([0])
    assert float(metrics.churn_bound_from_errors(a, b, labels)) == 1.0
    assert float(metrics.churn_bound_from_confidence(a, b)) == 1.0  # .5 > .25
    assert float(metrics.churn_bound_from_confidence_sum(a, b)) == 1.0  # .5 >= .5


def test_per_example_values_equal_the_reference():
    pair = make_inputs("pair", 0)
    a = {"logits": pair["logits_a"]}
    for name, inputs in (
        ("prediction_confidence", a),
        ("prediction_entropy", a),
        ("l1_distance", pair),
    ):
        actual = getattr(metrics, name)(**inputs)
        expected = getattr(ref, name)(**inputs)
        # Confidence is a difference of probabilities: its absolute error is 1e-7.
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-7)


def test_limits():
    uniform, certain = jnp.zeros((1, 4)), jnp.array([[0.0, -1e9, -1e9, -jnp.inf]])
    assert float(metrics.prediction_confidence(uniform)[0]) == 0.0
    assert float(metrics.prediction_confidence(certain)[0]) == 1.0
    assert float(metrics.prediction_entropy(certain)[0]) == 0.0
    np.testing.assert_allclose(metrics.prediction_entropy(uniform), np.log(4), 1e-6)
    assert float(metrics.l1_distance(certain, certain[:, ::-1])[0]) == 2.0


def bounds(a, b, labels):
    return (
        float(metrics.churn(a, b)),
        float(metrics.churn_bound_from_confidence_sum(a, b)),
        float(metrics.churn_bound_from_confidence(a, b)),
        float(metrics.churn_bound_from_errors(a, b, labels)),
    )


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_bounds_hold_and_the_sum_is_the_sharper_one(seed, classes):
    inputs = make_inputs("labelled pair", seed)
    a, b, labels = inputs.values()
    a, b = a[:, :classes], b[:, :classes]
    churn, sharp, lemma, errors = bounds(a, b, labels % classes)
    assert churn <= sharp <= lemma
    assert churn <= errors
    if classes == 2:
        assert churn == sharp  # the sharper bound is an equality here


def test_bounds_hold_where_float32_cannot_tell_probabilities_apart():
    a = np.array([[1.0, 1.0]], np.float32)
    b = np.array([[1.0, np.nextafter(np.float32(1.0), np.float32(2.0))]], np.float32)
    churn, sharp, lemma, _ = bounds(a, b, np.array([0]))
    assert churn == sharp == lemma == 1.0


def test_equal_predictions_are_not_counted():
    a = make_inputs("one", 0)["logits"]
    assert float(metrics.churn_bound_from_confidence(a, a)) == 0.0
    assert float(metrics.churn_bound_from_confidence_sum(a, a)) == 0.0
