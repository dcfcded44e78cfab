"""Confidence, entropy, L1 distance, and the bounds on churn that follow from them."""

import jax
import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs


@jax.jit
def per_example(a, b):
    return {
        "prediction_confidence": metrics.prediction_confidence(a),
        "prediction_entropy": metrics.prediction_entropy(a),
        "l1_distance": metrics.l1_distance(a, b),
    }


@jax.jit
def bounds(a, b, labels):
    """Churn, then its bounds from confidences, the sharper one first, and errors."""
    return (
        metrics.churn(a, b),
        metrics.churn_bound_from_confidence_sum(a, b),
        metrics.churn_bound_from_confidence(a, b),
        metrics.churn_bound_from_errors(a, b, labels),
    )


def test_by_hand():
    a, b = np.log(np.float32([[[0.5, 0.25, 0.25]], [[0.25, 0.25, 0.5]]]))
    found = per_example(a, b)
    np.testing.assert_allclose(found["prediction_confidence"], [0.25], rtol=1e-6)
    # .5 log 2 + 2 * .25 log 4 = 1.5 log 2
    np.testing.assert_allclose(found["prediction_entropy"], [1.0397208], rtol=1e-6)
    np.testing.assert_allclose(found["l1_distance"], [0.5], rtol=1e-6)
    # .5 >= .5 for the sum, .5 > .25
    assert bounds(a, b, np.array([0])) == (1.0, 1.0, 1.0, 1.0)


def test_per_example_values_equal_the_reference():
    a, b = make_inputs("pair", 0).values()
    for name, actual in per_example(a, b).items():
        inputs = (a, b) if name == "l1_distance" else (a,)
        expected = getattr(ref, name)(*inputs)
        # Confidence is a difference of probabilities: its absolute error is 1e-7.
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-7)


def test_limits():
    certain = np.float32([0.0, -1e9, -1e9, -np.inf])
    a, b = (
        np.stack([certain, np.zeros(4, np.float32)]),
        certain[None, ::-1].repeat(2, 0),
    )
    found = per_example(a, b)
    assert found["prediction_confidence"].tolist() == [1.0, 0.0]
    np.testing.assert_allclose(found["prediction_entropy"], [0, np.log(4)], rtol=1e-6)
    assert found["l1_distance"][0] == 2.0


@pytest.mark.parametrize("classes", [2, 5])
def test_bounds_hold_and_the_sum_is_the_sharper_one(classes):
    for seed in range(5):
        a, b, labels = make_inputs("labelled pair", seed).values()
        a, b, labels = a[:, :classes], b[:, :classes], labels % classes
        churn, sharp, lemma, errors = bounds(a, b, labels)
        assert churn <= sharp <= lemma and churn <= errors
        if classes == 2:
            assert churn == sharp  # the sharper bound is an equality here
        assert bounds(a, a, labels)[1:3] == (0.0, 0.0)  # equal predictions


def test_bounds_hold_where_float32_cannot_tell_probabilities_apart():
    a = np.array([[1.0, 1.0]], np.float32)
    b = np.array([[1.0, np.nextafter(np.float32(1.0), np.float32(2.0))]], np.float32)
    assert bounds(a, b, np.array([0]))[:3] == (1.0, 1.0, 1.0)
