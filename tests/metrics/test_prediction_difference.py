"""Differences and divergences of several models where neither is a plain number."""

import jax
import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import M, make_inputs

score_difference = jax.jit(metrics.score_difference, static_argnames="order")


def test_outputs_of_any_rank_are_one_vector(rng):
    scores = rng.normal(size=(3, 10, 2, 4)).astype(np.float32)
    expected = ref.score_difference(scores.reshape(3, 10, 8), 2)
    np.testing.assert_allclose(score_difference(scores, order=2), expected, rtol=1e-6)
    one, mask = scores[:, :, 0, 0], np.arange(10) > 2
    expected = ref.score_difference(one[:, mask])
    np.testing.assert_allclose(score_difference(one, mask=mask), expected, rtol=1e-6)


def test_a_class_that_one_model_alone_rules_out():
    z = make_inputs("models", 6)["logits"]
    z[0, 0, 0] = -np.inf
    assert np.isposinf(metrics.kl_prediction_difference(z))  # beyond all bounds
    assert 0 < metrics.js_prediction_difference(z) < np.log(M)


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
