import jax
import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref

score_difference = jax.jit(metrics.score_difference, static_argnames="order")


def test_by_hand():
    # Means 2 and 5; distances 1, 1 and 2, 2.
    scores = np.array([[1.0, 3.0], [3.0, 7.0]], np.float32)
    assert float(score_difference(scores)) == 1.5
    # One example with two outputs: differences +-(3, 4) from the mean.
    two = np.array([[[0.0, 0.0]], [[6.0, 8.0]]], np.float32)
    for order, expected in ((1, 7.0), (2, 5.0), (np.inf, 4.0)):
        actual = score_difference(two, order=order)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_two_models_give_half_their_distance(rng):
    a, b = rng.normal(size=(2, 50)).astype(np.float32)
    actual = score_difference(np.stack([a, b]))
    np.testing.assert_allclose(actual, np.mean(np.abs(a - b)) / 2, rtol=1e-6)


def test_outputs_of_any_rank_are_one_vector(rng):
    scores = rng.normal(size=(3, 10, 2, 4)).astype(np.float32)
    flat = scores.reshape(3, 10, 8)
    for order in (1, 2, np.inf):
        actual = score_difference(scores, order=order)
        np.testing.assert_allclose(actual, ref.score_difference(flat, order), rtol=1e-6)
    one = scores[:, :, 0, 0]
    mask = np.arange(10) > 2
    actual = score_difference(one, mask=mask)
    expected = ref.score_difference(one[:, mask])
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_scores_move_and_scale_but_probabilities_saturate(rng):
    z = rng.normal(size=(4, 20)).astype(np.float32)
    value = float(score_difference(z))
    np.testing.assert_allclose(score_difference(z + 4), value, rtol=1e-5)
    np.testing.assert_allclose(score_difference(-3 * z), 3 * value, rtol=1e-6)
    sure = np.stack([0 * z, z + 30], -1)
    assert float(metrics.prediction_difference(sure)) < 1e-6


def test_errors():
    with pytest.raises(TypeError, match="int32"):
        metrics.score_difference(np.zeros((2, 3), np.int32))
    with pytest.raises(ValueError, match=r"\[M, N\].*\(3,\)"):
        metrics.score_difference(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"at least 1.*0\.5"):
        metrics.score_difference(np.zeros((2, 3), np.float32), 0.5)
