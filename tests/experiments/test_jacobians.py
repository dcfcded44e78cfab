"""Jacobians against differences in float64, their similarity, and its ROC curve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.metrics import roc_auc
from experiments.diversity.jacobians import (
    jacobian_similarity,
    probability_jacobians,
    similarity_roc,
)
from tests.perturbations.networks import (
    CLASSES,
    FEATURES,
    gradient,
    network,
    probabilities,
    weights,
)
from tests.perturbations.test_ods import draw

TEACHER, STUDENT = weights(1), weights(2)


def jacobians(weights, images, temperature=1.0):
    """`[B, C, D]` by central differences, float64."""
    each = [
        gradient(lambda x, k=k: probabilities(weights, x, temperature)[:, k], images)
        for k in range(CLASSES)
    ]
    return np.stack(each, axis=1).reshape(len(images), CLASSES, FEATURES)


@pytest.mark.parametrize("chunk_size", [3, 64])
def test_jacobians_equal_central_differences_in_any_chunks(chunk_size):
    images, _ = draw(batch=7)
    found = probability_jacobians(
        network(TEACHER), images, temperature=2.0, chunk_size=chunk_size
    )
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, jacobians(TEACHER, images, 2.0), atol=1e-6)
    np.testing.assert_allclose(jnp.sum(found, axis=1), np.zeros((7, 6)), atol=1e-6)


def test_similarity_equals_the_cosine_in_float64():
    images, _ = draw(batch=7)
    a, b = (jacobians(w, images).reshape(7, -1) for w in (TEACHER, STUDENT))
    expected = np.sum(a * b, 1) / (
        np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    )
    found = jacobian_similarity(
        network(TEACHER), network(STUDENT), images, chunk_size=4
    )
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_similarity_is_one_to_itself_under_jit_and_zero_to_a_saturated_network():
    images, _ = draw(batch=4)
    predict = network(TEACHER)
    same = jax.jit(lambda x: jacobian_similarity(predict, predict, x))(images)
    np.testing.assert_allclose(same, np.ones(4), rtol=1e-6)
    saturated = network(weights(1, 1e4))
    none = jacobian_similarity(predict, saturated, images)
    np.testing.assert_array_equal(none, np.zeros(4))


def test_a_sure_networks_top_class_has_the_slope_that_the_others_have_not():
    images, _ = draw(batch=4)
    sure = weights(1, 60.0)
    p = probabilities(sure, images)
    found = probability_jacobians(network(sure), images)
    top = np.take_along_axis(np.asarray(found), p.argmax(-1)[:, None, None], 1)[:, 0]
    others = np.asarray(found).sum(1) - top
    assert (p.max(-1).astype(np.float32) == 1.0).any()
    assert np.abs(top).max(1).min() > 0.0
    np.testing.assert_allclose(top, -others, rtol=1e-4, atol=1e-6 * np.abs(top).max())


def test_roc_by_hand():
    curve = similarity_roc([0.9, 0.5], [0.1, 0.5])
    np.testing.assert_array_equal(curve.true_positive_rate, [0.0, 0.5, 1.0, 1.0])
    np.testing.assert_array_equal(curve.false_positive_rate, [0.0, 0.0, 0.5, 1.0])
    assert curve.auc == 0.875  # three pairs of four are in order, one is a tie


def test_area_equals_that_of_the_metric_and_exchange_turns_it_round(rng):
    distilled = rng.normal(0.5, 1.0, 60).round(1)
    scratch = rng.normal(0.0, 1.0, 40).round(1)  # rounded: there are ties
    curve = similarity_roc(distilled, scratch)
    scores = jnp.asarray(np.concatenate([distilled, scratch]), jnp.float32)
    labels = jnp.asarray([1] * 60 + [0] * 40)
    by_ranks = jax.jit(roc_auc)(jnp.stack([jnp.zeros(100), scores], -1), labels)
    np.testing.assert_allclose(curve.auc, by_ranks, rtol=1e-6)
    np.testing.assert_allclose(similarity_roc(scratch, distilled).auc, 1 - curve.auc)
    assert np.all(np.diff(curve.false_positive_rate) >= 0.0)
    assert curve.true_positive_rate[-1] == curve.false_positive_rate[-1] == 1.0


def test_errors_name_what_does_not_fit():
    images, _ = draw(batch=4)
    predict = network(TEACHER)
    with pytest.raises(TypeError, match="images must be floating-point"):
        probability_jacobians(predict, images.astype(jnp.int32))
    with pytest.raises(ValueError, match="chunk_size must be at least 1; got 0"):
        probability_jacobians(predict, images, chunk_size=0)
    with pytest.raises(ValueError, match=r"same shape.*\(4, 4, 6\) and \(4, 3, 6\)"):
        jacobian_similarity(predict, lambda x: predict(x)[:, :3], images)
    with pytest.raises(ValueError, match=r"from_scratch must be a list.*\(0,\)"):
        similarity_roc([0.1], [])
    with pytest.raises(ValueError, match=r"distilled must be a list.*without nan"):
        similarity_roc([np.nan], [0.1])
