"""One guide per teacher: float64, and the random teacher as an unbiased sample."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.perturbations import all_teacher_direction
from churn_jax.perturbations.ods import pulled_back
from tests.perturbations.networks import (
    CLASSES,
    gradient,
    network,
    networks,
    probabilities,
    unit,
)
from tests.perturbations.test_controls import TEACHERS
from tests.perturbations.test_ods import BATCH, draw


@pytest.fixture
def guides(rng):
    return rng.uniform(-1, 1, (len(TEACHERS), BATCH, CLASSES)).astype(np.float32)


def expected(guides, images, temperature=1.0):
    p = np.stack([probabilities(w, images, temperature) for w in TEACHERS])
    return np.sum(np.float64(guides) * p, axis=(0, 2))


def test_the_direction_equals_float64(guides):
    images, _ = draw()
    direction = jax.jit(all_teacher_direction, static_argnums=0)(
        networks(TEACHERS), images, guides, temperature=2.0
    )
    slopes = gradient(lambda x: expected(guides, x, 2.0), images)
    np.testing.assert_allclose(direction, unit(slopes), atol=1e-5)


def test_a_random_teachers_gradient_times_their_number_is_unbiased(guides):
    images, _ = draw()
    of_each = jax.jit(
        lambda images: [
            pulled_back(network(w), images, lambda p, m=m: jnp.asarray(guides[m]))[1]
            for m, w in enumerate(TEACHERS)
        ]
    )(images)
    # The teacher is drawn evenly, so the mean over teachers is the expectation.
    whole = gradient(lambda x: expected(guides, x), images)
    mean = np.mean(len(TEACHERS) * np.stack(of_each), axis=0)
    np.testing.assert_allclose(mean, whole, atol=1e-6)
    assert all(np.max(np.abs(3 * g - whole)) > 0.01 for g in of_each)


def test_guides_of_another_shape_are_an_error(guides):
    images, _ = draw()
    with pytest.raises(ValueError, match=r"guides and.*\(2, 8, 4\) and \(3, 8, 4"):
        all_teacher_direction(networks(TEACHERS), images, guides[:2])
    with pytest.raises(TypeError, match="images must be floating-point"):
        all_teacher_direction(networks(TEACHERS), images.astype(jnp.int32), guides)
