import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs

# Two models, one example; mean (1/2, 1/4, 1/4), differences +-(1/4, -1/8, -1/8).
LOGITS = np.log(np.array([[[0.75, 0.125, 0.125]], [[0.25, 0.375, 0.375]]], np.float32))

weighted = jax.jit(metrics.weighted_prediction_difference, static_argnames="order")


def test_by_hand():
    for order, expected in (
        (1, 0.5),
        (2, np.sqrt(1 / 16 + 2 / 64)),
        (np.inf, 0.25),
    ):
        actual = metrics.prediction_difference(LOGITS, order)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    # 1/4 / (1/2) + 2 * 1/8 / (1/4)
    relative = metrics.relative_prediction_difference(LOGITS)
    np.testing.assert_allclose(relative, 1.5, rtol=1e-6)
    label = metrics.label_prediction_difference(LOGITS, np.array([0]))
    np.testing.assert_allclose(label, 0.5, rtol=1e-6)
    assert float(metrics.hamming_prediction_difference(LOGITS)) == 1.0
    # P(1): 3/4 and 1/4, mean 1/2: (1/4 + 1/4) / (1/2)
    binary = np.log(np.array([[[0.25, 0.75]], [[0.75, 0.25]]], np.float32))
    positive = metrics.positive_prediction_difference(binary)
    np.testing.assert_allclose(positive, 1.0, rtol=1e-6)


def test_weighted_by_hand():
    # Weights (1/2, 1/4, 1/4) on differences (1/4, 1/8, 1/8).
    for order, expected in (
        (1, 3 / 16),
        (2, np.sqrt(1 / 64 + 2 / 1024)),
        (np.inf, 1 / 8),
    ):
        actual = weighted(LOGITS, order=order)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_weighting_takes_out_unlikely_labels():
    # The models differ threefold on label 1, which both hold for unlikely.
    p = np.array([[[1 - 1e-3, 1e-3]], [[1 - 3e-3, 3e-3]]], np.float32)
    logits = np.log(p)
    # Both labels differ by 0.001 from the mean; weights 0.998 and 0.002.
    np.testing.assert_allclose(weighted(logits), 1e-3, rtol=1e-3)
    np.testing.assert_allclose(metrics.prediction_difference(logits), 2e-3, rtol=1e-3)
    z = make_inputs("models", 1)["logits"]
    assert 0 < weighted(z) < metrics.prediction_difference(z)


def test_two_binary_models_give_the_difference_of_the_positive_label():
    logits = make_inputs("binary models", 0)["logits"][:2]
    p = ref.softmax(logits)[..., 1]
    actual = metrics.prediction_difference(logits)
    np.testing.assert_allclose(actual, np.mean(np.abs(p[0] - p[1])), rtol=2e-6)


def test_hamming_is_mean_pairwise_churn():
    logits = make_inputs("models", 0)["logits"]
    pairs = itertools.combinations(logits, 2)
    expected = np.mean([float(metrics.churn(a, b)) for a, b in pairs])
    actual = metrics.hamming_prediction_difference(logits)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    summary = metrics.summarize_pairs(metrics.pairwise(metrics.churn, logits))
    np.testing.assert_allclose(actual, summary.mean, rtol=1e-6)


def test_equal_models_do_not_differ_and_order_of_models_is_free():
    kinds = {
        "prediction_difference": "models",
        "relative_prediction_difference": "models",
        "weighted_prediction_difference": "models",
        "positive_prediction_difference": "binary models",
        "hamming_prediction_difference": "models",
    }
    for name, kind in kinds.items():
        metric, logits = getattr(metrics, name), make_inputs(kind, 0)["logits"]
        equal = np.broadcast_to(logits[:1], logits.shape)
        assert metric(equal) == 0.0  # exactly: what is compared repeats itself
        np.testing.assert_allclose(metric(logits), metric(logits[::-1]), rtol=1e-6)


def test_relative_differences_survive_underflow():
    # P(1) = e^-200 and e^-201: 0 in float32, yet their ratio is e.
    z = jnp.array([[[0.0, -200.0]], [[0.0, -201.0]]])
    ratio = np.exp(-1.0)
    expected = 2 * abs(1 - 2 / (1 + ratio))
    np.testing.assert_allclose(
        metrics.positive_prediction_difference(z), expected, rtol=1e-4
    )


def test_classes_that_every_model_rules_out_add_nothing():
    z = make_inputs("models", 0)["logits"]
    ruled_out = np.concatenate([z, np.full((*z.shape[:2], 1), -np.inf)], -1)
    for name in ("prediction_difference", "relative_prediction_difference"):
        metric = getattr(metrics, name)
        actual = metric(ruled_out.astype(np.float32))
        np.testing.assert_allclose(actual, metric(z), rtol=1e-6)


def test_errors():
    logits = make_inputs("models", 0)["logits"]
    with pytest.raises(ValueError, match=r"at least 1.*0\.5"):
        metrics.prediction_difference(logits, 0.5)
    with pytest.raises(ValueError, match=r"at least 1.*0"):
        metrics.weighted_prediction_difference(logits, 0)
    with pytest.raises(ValueError, match=r"\[M, N, 2\].*\(4, 48, 5\)"):
        metrics.positive_prediction_difference(logits)
    with pytest.raises(ValueError, match=r"\[M, N, C\].*\(48, 5\)"):
        metrics.prediction_difference(logits[0])


def test_an_unknown_label_is_not_scored_silently():
    inputs = make_inputs("labelled models", 0)
    inputs["labels"][0] = -1
    assert np.isnan(metrics.label_prediction_difference(**inputs))
