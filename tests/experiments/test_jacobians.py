"""Jacobians, guides and the matching term against float64 NumPy, and their ratios."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.metrics import roc_auc
from churn_jax.perturbations import draw_guides, gaussian, ods
from experiments.diversity.jacobians import (
    GradientMoments,
    distillation_expansion,
    jacobian_matching_gradient,
    jacobian_matching_term,
    jacobian_similarity,
    probability_jacobians,
    similarity_roc,
    transferred_guide,
)
from tests.perturbations.networks import (
    BATCH,
    CLASSES,
    FEATURES,
    draw,
    gradient,
    network,
    probabilities,
    weights,
)

TEACHER, STUDENT = weights(1), weights(2)
PREDICT, LEARNER = network(TEACHER), network(STUDENT)
PARAMS = tuple(jnp.asarray(w, jnp.float32) for w in STUDENT)


quick_guide = jax.jit(transferred_guide)


@jax.jit
def quick_jacobians(weights, images):
    return probability_jacobians(network(weights), images)


@jax.jit
def quick_similarity(teacher, student, images):
    return jacobian_similarity(network(teacher), network(student), images)


@jax.jit
def quick_term(teacher, student, images, eps):
    return jacobian_matching_term(network(teacher), network(student), images, eps)


def jacobians(weights, images):
    """`[B, C, D]` by central differences, float64."""
    each = [
        gradient(lambda x, k=k: probabilities(weights, x)[:, k], images)
        for k in range(CLASSES)
    ]
    return np.stack(each, axis=1).reshape(len(images), CLASSES, FEATURES)


def test_jacobians_equal_central_differences():
    images, _ = draw()
    found = quick_jacobians(TEACHER, images)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, jacobians(TEACHER, images), atol=1e-6)
    np.testing.assert_allclose(jnp.sum(found, axis=1), np.zeros((BATCH, 6)), atol=1e-6)


def test_similarity_equals_the_cosine_in_float64_and_is_zero_to_a_saturated_network():
    images, _ = draw()
    a, b = (jacobians(w, images).reshape(BATCH, -1) for w in (TEACHER, STUDENT))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    found = quick_similarity(TEACHER, STUDENT, images)
    np.testing.assert_allclose(found, np.sum(a * b, 1) / norms, atol=2e-6)
    same = quick_similarity(TEACHER, TEACHER, images)
    np.testing.assert_allclose(same, np.ones(BATCH), rtol=1e-6)
    none = quick_similarity(TEACHER, weights(1, 1e4), images)
    np.testing.assert_array_equal(none, np.zeros(BATCH))


def test_a_sure_networks_top_class_has_the_slope_that_the_others_have_not():
    images, _ = draw()
    sure = weights(1, 60.0)
    p = probabilities(sure, images)
    found = quick_jacobians(sure, images)
    top = np.take_along_axis(np.asarray(found), p.argmax(-1)[:, None, None], 1)[:, 0]
    others = np.asarray(found).sum(1) - top
    assert (p.max(-1).astype(np.float32) == 1.0).any()
    assert np.abs(top).max(1).min() > 0.0
    np.testing.assert_allclose(top, -others, rtol=1e-4, atol=1e-6 * np.abs(top).max())


def test_area_is_that_by_hand_and_of_the_metric_and_exchange_turns_it_round(rng):
    curve = similarity_roc([0.9, 0.5], [0.1, 0.5])
    np.testing.assert_array_equal(curve.true_positive_rate, [0.0, 0.5, 1.0, 1.0])
    np.testing.assert_array_equal(curve.false_positive_rate, [0.0, 0.0, 0.5, 1.0])
    assert curve.auc == 0.875  # three pairs of four are in order, one is a tie
    distilled = rng.normal(0.5, 1.0, 60).round(1)
    scratch = rng.normal(0.0, 1.0, 40).round(1)  # rounded: there are ties
    curve = similarity_roc(distilled, scratch)
    scores = jnp.asarray(np.concatenate([distilled, scratch]), jnp.float32)
    labels = jnp.asarray([1] * 60 + [0] * 40)
    by_ranks = jax.jit(roc_auc)(jnp.stack([jnp.zeros(100), scores], -1), labels)
    np.testing.assert_allclose(curve.auc, by_ranks, rtol=1e-6)
    np.testing.assert_allclose(similarity_roc(scratch, distilled).auc, 1 - curve.auc)
    assert curve.true_positive_rate[-1] == curve.false_positive_rate[-1] == 1.0


# ---- a guide seen by another teacher -------------------------------------------------


def guided(drawn, other, guides):
    return quick_guide(drawn_jacobians=drawn, other_jacobians=other, guides=guides)


def given(batch=5):
    images, keys = draw(batch=batch)
    drawn, other = (
        jnp.asarray(jacobians(w, images), jnp.float32) for w in (TEACHER, STUDENT)
    )
    return drawn, other, draw_guides(keys, CLASSES)


def test_a_guide_equals_least_squares_in_float64_at_any_scale():
    drawn, other, guides = given()
    found, tiny = (guided(scale * drawn, scale * other, guides) for scale in (1, 1e-25))
    for n in range(5):
        j = np.asarray(other[n], np.float64).T
        target = np.asarray(drawn[n], np.float64).T @ np.asarray(guides[n], np.float64)
        v = np.linalg.lstsq(j, target, rcond=1e-4)[0]
        # The least singular values that count are a tenth of the largest.
        for guide in (found, tiny):
            np.testing.assert_allclose(guide[n], v, rtol=1e-3, atol=1e-4)


def test_nothing_is_transferred_from_or_to_a_flat_teacher_or_across():
    drawn, _, guides = given()
    none = jnp.zeros_like(drawn)
    across = np.concatenate([drawn, none], -1), np.concatenate([none, drawn], -1)
    for i, j in ((drawn, none), (none, drawn), across):
        flat = np.zeros((5, CLASSES))
        np.testing.assert_allclose(guided(i, j, guides), flat, atol=1e-6)


# ---- the matching term, its series, its gradient and that one's signal ---------------


def student(params, images):
    return network(params)(images)


def term(student_weights, images, eps, width=1e-4):
    """The matching term by central differences along eps, float64."""
    images, eps = (np.asarray(x, np.float64) for x in (images, eps))

    def slope(value):
        return (value(images + width * eps) - value(images - width * eps)) / (2 * width)

    of_teacher = slope(lambda x: probabilities(TEACHER, x))
    of_student = slope(lambda x: np.log(probabilities(student_weights, x)))
    return -np.sum(of_teacher * of_student, -1)


@pytest.fixture
def eps(rng):
    return jnp.asarray(rng.normal(scale=0.3, size=(BATCH, 2, 3)).astype(np.float32))


def test_term_equals_central_differences(eps):
    images, _ = draw()
    found = quick_term(TEACHER, STUDENT, images, eps)
    np.testing.assert_allclose(found, term(STUDENT, images, eps), rtol=2e-5, atol=1e-7)
    itself = quick_term(TEACHER, TEACHER, images, eps)
    assert jnp.all(itself < 0.0)  # both change alike
    with pytest.raises(ValueError, match=r"\(8, 2, 3\) and \(7, 2, 3\)"):
        jacobian_matching_term(PREDICT, PREDICT, images, eps[1:])


def loss(images):
    """Cross-entropy of the student under the teacher, float64."""
    p, q = (probabilities(weights, images) for weights in (TEACHER, STUDENT))
    return -np.sum(p * np.log(q), -1)


def test_the_series_is_right_to_the_second_order_and_its_mean_to_the_third(eps):
    """Halving the step divides what is left over by eight, and by sixteen.

    The mean over opposite steps, as of a zero-mean perturbation, has no odd orders.
    """
    images, _ = draw()
    expand = jax.jit(distillation_expansion, static_argnums=(0, 1))
    at = np.asarray(images, np.float64)
    left, left_of_mean, without = [], [], []
    for size in (0.5, 0.25):
        moved = np.asarray(size * eps, np.float64)
        series = expand(PREDICT, LEARNER, images, size * eps)
        np.testing.assert_allclose(series.clean, loss(at), rtol=1e-6)
        expected = term(STUDENT, images, size * eps)
        np.testing.assert_allclose(series.matching, expected, rtol=2e-5, atol=1e-7)
        total = np.sum(series, axis=0)
        left.append(np.linalg.norm(loss(at + moved) - total))
        mean = (loss(at + moved) + loss(at - moved)) / 2
        even = total - np.asarray(series.linear)
        left_of_mean.append(np.linalg.norm(mean - even))
        without.append(np.linalg.norm(mean - even + np.asarray(series.matching)))
    assert 6.0 < left[0] / left[1] < 10.0
    assert 10.0 < left_of_mean[0] / left_of_mean[1] < 22.0
    # Without the matching term an error of second order stays.
    assert without[1] > 5.0 * left_of_mean[1] and without[0] / without[1] < 6.0


def test_gradient_equals_differences_in_a_weight(eps):
    images, _ = draw()
    found = jax.jit(jacobian_matching_gradient, static_argnums=(0, 1))(
        PREDICT, student, PARAMS, images, eps
    )
    assert jax.tree.structure(found) == jax.tree.structure(PARAMS)
    for layer, place in ((0, (2, 1)), (1, (3,)), (2, (4, 0))):
        shifted = []
        for width in (1e-3, -1e-3):
            moved = [np.array(w) for w in STUDENT]
            moved[layer][place] += width
            shifted.append(np.mean(term(moved, images, eps)))
        expected = (shifted[0] - shifted[1]) / 2e-3
        np.testing.assert_allclose(found[layer][place], expected, rtol=1e-3, atol=1e-6)


def ratio(draws):
    """Of the running moments of draws `[S, ...]`."""
    update, moments = jax.jit(GradientMoments.update), GradientMoments.empty(draws[0])
    for row in draws:
        moments = update(moments, row)
    return moments.signal_to_noise()


def test_signal_to_noise_by_hand_against_numpy_and_of_a_small_spread(rng):
    # The mean is (4, 4), the variances 2 and 0.
    value = ratio(np.float32([[3.0, 4.0], [5.0, 4.0]]))
    np.testing.assert_allclose(value, np.sqrt(32.0 / 2.0), rtol=1e-6)
    assert ratio(np.ones((2, 2), np.float32)) == np.inf
    for shape in ((1, 2), (2, 2)):  # one draw, and draws of nothing
        assert np.isnan(ratio(np.zeros(shape, np.float32)))
    plain = rng.normal(0.5, 1.0, (20, 3, 5)).astype(np.float32)
    # A spread of 1e-3 around 10: sums of squares in float32 would lose it.
    narrow = (10.0 + 1e-3 * rng.normal(size=(50, 4))).astype(np.float32)
    for draws, rtol in ((plain, 2e-6), (-7.0 * plain, 2e-6), (narrow, 5e-3)):
        exact = np.float64(draws).reshape(len(draws), -1)
        wanted = np.linalg.norm(exact.mean(0)) / np.sqrt(exact.var(0, ddof=1).sum())
        np.testing.assert_allclose(ratio(draws), wanted, rtol=rtol)


def test_ods_gives_the_matching_gradient_more_signal_than_noise_of_equal_norm():
    images, _ = draw()

    def signal(perturb):
        @jax.jit
        def add(moments, key):
            step = perturb(jax.random.split(key, BATCH)) - images
            found = jacobian_matching_gradient(PREDICT, student, PARAMS, images, step)
            return moments.update(found)

        moments = GradientMoments.empty(PARAMS)
        for seed in range(24):
            moments = add(moments, jax.random.key(seed))
        return moments.signal_to_noise()

    of_noise = signal(lambda keys: gaussian(images, keys))
    assert signal(lambda keys: ods(PREDICT, images, keys)) > 1.2 * of_noise > 0.0
