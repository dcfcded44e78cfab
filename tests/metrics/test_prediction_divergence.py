"""Divergences between several models: by hand, scipy, limits."""

import itertools

import jax
import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import M, make_inputs

kl = jax.jit(metrics.kl_prediction_difference)
js = jax.jit(metrics.js_prediction_difference)
delta_1 = jax.jit(metrics.prediction_difference)
DIVERGENCES = pytest.mark.parametrize("metric", [kl, js], ids=["kl", "js"])


def test_by_hand():
    # (3/4, 1/4) and (1/4, 3/4), mean (1/2, 1/2).
    logits = np.log(np.array([[[0.75, 0.25]], [[0.25, 0.75]]], np.float32))
    np.testing.assert_allclose(kl(logits), 0.5 * np.log(3), rtol=1e-6)
    expected = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    np.testing.assert_allclose(js(logits), expected, rtol=1e-6)
    # Each of three models is sure of a class of its own: log 3, the largest value.
    sure = np.float32(50) * np.eye(3, dtype=np.float32)[:, None]
    np.testing.assert_allclose(js(sure), np.log(3), rtol=1e-6)
    np.testing.assert_allclose(kl(sure), 50.0, rtol=1e-6)


def test_agree_with_scipy():
    logits = make_inputs("models", 0)["logits"]
    P = ref.softmax(logits)
    pairs = itertools.permutations(P, 2)
    expected = np.mean([rel_entr(a, b).sum(-1) for a, b in pairs])
    np.testing.assert_allclose(kl(logits), expected, rtol=2e-6)
    two = jensenshannon(P[0], P[1], axis=-1) ** 2  # scipy gives the distance
    np.testing.assert_allclose(js(logits[:2]), np.mean(two), rtol=2e-6)


@DIVERGENCES
def test_equal_models_do_not_differ_and_order_of_models_is_free(metric):
    logits = make_inputs("models", 4)["logits"]
    assert metric(np.broadcast_to(logits[:1], logits.shape)) == 0.0
    np.testing.assert_allclose(metric(logits[::-1]), metric(logits), rtol=1e-6)


@DIVERGENCES
def test_pinsker_bounds_it_from_below(metric):
    logits = make_inputs("models", 5)["logits"]
    for n in range(logits.shape[1]):
        one = logits[:, n : n + 1]
        assert metric(one) >= 0.5 * delta_1(one) ** 2 - 1e-7


@DIVERGENCES
def test_probabilities_that_underflow_are_compared_in_log_space(metric):
    # Model 0 rules class 1 out with e^-200, which is 0 in float32; model 1 does not.
    logits = np.array([[[0.0, -200.0]], [[0.0, 0.0]]], np.float32)
    P1 = np.array([0.5, 0.5])
    if metric is kl:
        expected = 0.5 * (np.log(2) + np.sum(P1 * (np.log(P1) - [0.0, -200.0])))
    else:
        mean = np.array([0.75, 0.25])
        expected = 0.5 * (-np.log(0.75) + np.sum(P1 * np.log(P1 / mean)))
    np.testing.assert_allclose(metric(logits), expected, rtol=1e-6)


@DIVERGENCES
def test_excluded_classes(metric):
    z = make_inputs("models", 6)["logits"]
    never = np.concatenate([z, np.full((*z.shape[:2], 1), -np.inf)], -1)
    never = never.astype(np.float32)
    np.testing.assert_allclose(metric(never), metric(z), rtol=1e-6)
    # One model excludes a class that the others allow: beyond all bounds for KL only.
    z[0, 0, 0] = -np.inf
    value = float(metric(z))
    assert np.isposinf(value) if metric is kl else 0 < value < np.log(M)


@DIVERGENCES
def test_a_score_that_is_nan_is_not_hidden(metric):
    z = make_inputs("models", 7)["logits"]
    z[1, 3, 2] = np.nan
    assert np.isnan(metric(z))
