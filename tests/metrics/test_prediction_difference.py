"""Differences of several models from their mean: labels' probabilities, scores."""

import itertools

import jax
import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs

difference, weighted, score_difference = (
    jax.jit(metric, static_argnames="order")
    for metric in (
        metrics.prediction_difference,
        metrics.weighted_prediction_difference,
        metrics.score_difference,
    )
)
relative = jax.jit(metrics.relative_prediction_difference)
positive = jax.jit(metrics.positive_prediction_difference)
hamming = jax.jit(metrics.hamming_prediction_difference)
label = jax.jit(metrics.label_prediction_difference)

# Two models, one example; mean (1/2, 1/4, 1/4), differences +-(1/4, -1/8, -1/8).
LOGITS = np.log(np.array([[[0.75, 0.125, 0.125]], [[0.25, 0.375, 0.375]]], np.float32))


@pytest.mark.parametrize(
    ("order", "expected", "of_weighted"),
    [
        # Weights (1/2, 1/4, 1/4) on differences (1/4, 1/8, 1/8).
        (1, 0.5, 3 / 16),
        (2, np.sqrt(1 / 16 + 2 / 64), np.sqrt(1 / 64 + 2 / 1024)),
        (np.inf, 0.25, 1 / 8),
    ],
)
def test_orders_by_hand(order, expected, of_weighted):
    np.testing.assert_allclose(difference(LOGITS, order=order), expected, rtol=1e-6)
    np.testing.assert_allclose(weighted(LOGITS, order=order), of_weighted, rtol=1e-6)


def test_by_hand():
    # 1/4 / (1/2) + 2 * 1/8 / (1/4)
    np.testing.assert_allclose(relative(LOGITS), 1.5, rtol=1e-6)
    np.testing.assert_allclose(label(LOGITS, np.array([0])), 0.5, rtol=1e-6)
    assert np.isnan(label(LOGITS, np.array([-1])))  # not scored silently
    assert hamming(LOGITS) == 1.0
    # P(1): 3/4 and 1/4, mean 1/2: (1/4 + 1/4) / (1/2)
    binary = np.log(np.array([[[0.25, 0.75]], [[0.75, 0.25]]], np.float32))
    np.testing.assert_allclose(positive(binary), 1.0, rtol=1e-6)


def test_two_binary_models_give_the_difference_of_the_positive_label():
    logits = make_inputs("binary models", 0)["logits"][:2]
    a, b = ref.softmax(logits)[..., 1]
    np.testing.assert_allclose(difference(logits), np.mean(np.abs(a - b)), rtol=2e-6)


def test_hamming_is_mean_pairwise_churn():
    logits = make_inputs("models", 0)["logits"]
    expected = np.mean([ref.churn(*pair) for pair in itertools.combinations(logits, 2)])
    np.testing.assert_allclose(hamming(logits), expected, rtol=1e-6)


def test_equal_models_do_not_differ_and_order_of_models_is_free():
    for metric in (difference, relative, weighted, positive, hamming):
        kind = "binary models" if metric is positive else "models"
        logits = make_inputs(kind, 0)["logits"]
        equal = np.broadcast_to(logits[:1], logits.shape)
        assert metric(equal) == 0.0  # exactly: what is compared repeats itself
        np.testing.assert_allclose(metric(logits), metric(logits[::-1]), rtol=1e-6)


def test_relative_differences_survive_underflow():
    # P(1) = e^-200 and e^-201: 0 in float32, yet their ratio is e.
    expected = 2 * abs(1 - 2 / (1 + np.exp(-1.0)))
    found = positive(np.float32([[[0.0, -200.0]], [[0.0, -201.0]]]))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_classes_that_every_model_rules_out_add_nothing():
    z = make_inputs("models", 0)["logits"]
    ruled_out = np.concatenate([z, np.full_like(z[..., :1], -np.inf)], -1)
    for metric in (difference, relative):
        np.testing.assert_allclose(metric(ruled_out), metric(z), rtol=1e-6)


def test_scores_by_hand():
    # Means 2 and 5; distances 1, 1 and 2, 2.
    assert score_difference(np.float32([[1.0, 3.0], [3.0, 7.0]])) == 1.5
    # One example with two outputs: differences +-(3, 4) from the mean.
    two = np.array([[[0.0, 0.0]], [[6.0, 8.0]]], np.float32)
    for order, expected in ((1, 7.0), (2, 5.0), (np.inf, 4.0)):
        np.testing.assert_allclose(score_difference(two, order=order), expected, 1e-6)


def test_outputs_of_any_rank_are_one_vector(rng):
    scores = rng.normal(size=(3, 10, 2, 4)).astype(np.float32)
    expected = ref.score_difference(scores.reshape(3, 10, 8), 2)
    np.testing.assert_allclose(score_difference(scores, order=2), expected, rtol=1e-6)
    one, mask = scores[:, :, 0, 0], np.arange(10) > 2
    expected = ref.score_difference(one[:, mask])
    np.testing.assert_allclose(score_difference(one, mask=mask), expected, rtol=1e-6)


def test_scores_move_and_scale_but_probabilities_saturate(rng):
    z = rng.normal(size=(4, 20)).astype(np.float32)
    value = score_difference(z)
    np.testing.assert_allclose(score_difference(z + 4), value, rtol=1e-5)
    np.testing.assert_allclose(score_difference(-3 * z), 3 * value, rtol=1e-6)
    assert difference(np.stack([0 * z, z + 30], -1)) < 1e-6


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
    with pytest.raises(TypeError, match="int32"):
        metrics.score_difference(np.zeros((2, 3), np.int32))
    with pytest.raises(ValueError, match=r"\[M, N\].*\(3,\)"):
        metrics.score_difference(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"at least 1.*0\.5"):
        metrics.score_difference(np.zeros((2, 3), np.float32), 0.5)
