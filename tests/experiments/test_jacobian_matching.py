"""The matching term, the series it belongs to, its gradient and that one's signal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.perturbations import gaussian, ods
from experiments.diversity.jacobian_matching import (
    GradientMoments,
    distillation_expansion,
    gradient_signal_to_noise,
    jacobian_matching_gradient,
    jacobian_matching_term,
    matching_signal_to_noise,
)
from tests.experiments.test_jacobians import STUDENT, TEACHER
from tests.perturbations.networks import network, probabilities
from tests.perturbations.test_ods import BATCH, draw

quick_term, quick_expansion = (
    jax.jit(function, static_argnums=(0, 1))
    for function in (jacobian_matching_term, distillation_expansion)
)
PREDICT, LEARNER = network(TEACHER), network(STUDENT)
PARAMS = tuple(jnp.asarray(w, jnp.float32) for w in STUDENT)


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
    found = quick_term(PREDICT, LEARNER, images, eps)
    np.testing.assert_allclose(found, term(STUDENT, images, eps), rtol=2e-5, atol=1e-7)
    itself = quick_term(PREDICT, PREDICT, images, eps)
    assert jnp.all(itself < 0.0)  # both change alike


def loss(images):
    """Cross-entropy of the student under the teacher, float64."""
    return -np.sum(
        probabilities(TEACHER, images) * np.log(probabilities(STUDENT, images)), -1
    )


def test_the_series_is_right_to_the_second_order_and_its_mean_to_the_third(eps):
    """Halving the step divides what is left over by eight, and by sixteen.

    The mean over opposite steps, as of a zero-mean perturbation, has no odd orders.
    """
    images, _ = draw()
    at = np.asarray(images, np.float64)
    clean, left, left_of_mean, without = loss(at), [], [], []
    for size in (0.5, 0.25):
        moved = np.asarray(size * eps, np.float64)
        series = quick_expansion(PREDICT, LEARNER, images, size * eps)
        np.testing.assert_allclose(series.clean, clean, rtol=1e-6)
        expected = term(STUDENT, images, size * eps)
        np.testing.assert_allclose(series.matching, expected, rtol=2e-5, atol=1e-7)
        left.append(np.linalg.norm(loss(at + moved) - np.asarray(series.total)))
        mean = (loss(at + moved) + loss(at - moved)) / 2
        even = np.asarray(series.total - series.linear)
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


def ratio_of(draws):
    """Norm of the mean over the root of the total variance, float64."""
    exact = np.float64(draws).reshape(len(draws), -1)
    return np.linalg.norm(exact.mean(0)) / np.sqrt(exact.var(0, ddof=1).sum())


def test_signal_to_noise_by_hand_and_against_numpy(rng):
    ratio = jax.jit(gradient_signal_to_noise)
    # The mean is (4, 4), the variances 2 and 0.
    value = ratio(np.float32([[3.0, 4.0], [5.0, 4.0]]))
    np.testing.assert_allclose(value, np.sqrt(32.0 / 2.0), rtol=1e-6)
    assert ratio(np.ones((2, 2), np.float32)) == np.inf
    for shape in ((1, 2), (2, 2)):  # one draw, and draws of nothing
        assert np.isnan(ratio(np.zeros(shape, np.float32)))
    draws = rng.normal(0.5, 1.0, (20, 3, 5)).astype(np.float32)
    for scale in (1.0, -7.0):
        np.testing.assert_allclose(ratio(scale * draws), ratio_of(draws), rtol=2e-6)
    with pytest.raises(ValueError, match="axis of draws"):
        gradient_signal_to_noise(1.0)


def test_streaming_equals_the_whole_and_keeps_a_small_spread(rng):
    # A spread of 1e-3 around 10: sums of squares in float32 would lose it.
    draws = (10.0 + 1e-3 * rng.normal(size=(50, 4))).astype(np.float32)
    update = jax.jit(GradientMoments.update)
    moments = GradientMoments.empty({"w": draws[0]})
    for row in draws:
        moments = update(moments, {"w": row})
    np.testing.assert_allclose(moments.mean["w"], np.float64(draws).mean(0), rtol=1e-6)
    np.testing.assert_allclose(moments.signal_to_noise(), ratio_of(draws), rtol=5e-3)


def test_ods_gives_the_matching_gradient_more_signal_than_noise_of_equal_norm():
    images, _ = draw()
    draws = 24

    def ratio(perturb):
        moves = (
            perturb(jax.random.split(jax.random.key(seed), BATCH)) - images
            for seed in range(draws)
        )
        return matching_signal_to_noise(PREDICT, student, PARAMS, images, moves)

    of_ods = ratio(jax.jit(lambda keys: ods(PREDICT, images, keys)))
    of_noise = ratio(jax.jit(lambda keys: gaussian(images, keys)))
    assert of_ods > 1.2 * of_noise > 0.0


def test_a_perturbation_of_another_shape_is_an_error(eps):
    images, _ = draw()
    for function in (jacobian_matching_term, distillation_expansion):
        with pytest.raises(ValueError, match=r"\(8, 2, 3\) and \(7, 2, 3\)"):
            function(network(TEACHER), network(STUDENT), images, eps[1:])
