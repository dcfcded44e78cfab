"""Noise, adversarial and two-sided steps against float64 and what they are for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import perturbations
from churn_jax.perturbations import adversarial, all_teacher_direction, two_sided
from tests.perturbations.networks import (
    CLASSES,
    gradient,
    network,
    networks,
    probabilities,
    unit,
    weights,
)
from tests.perturbations.test_ods import BATCH, PREDICT, WEIGHTS, draw

TEACHERS = [weights(seed) for seed in (1, 2, 3)]
STUDENTS = [weights(seed) for seed in (4, 5)]

gaussian = jax.jit(perturbations.gaussian)
pair_disagreement = jax.jit(perturbations.pair_disagreement)
quick_adversarial = jax.jit(adversarial, static_argnums=0)
quick_two_sided = jax.jit(two_sided, static_argnums=(0, 1))


def disagreement(several, images, temperature=1.0):
    """Mean over ordered pairs of the KL divergence, float64."""
    p = [probabilities(w, images, temperature) for w in several]
    pairs = [
        np.sum(a * np.log(a / b), -1)
        for i, a in enumerate(p)
        for j, b in enumerate(p)
        if i != j
    ]
    return np.mean(pairs, axis=0)


def test_gaussian_noise_has_its_deviation_and_its_own_key():
    images, _ = draw(batch=16)
    images = jnp.broadcast_to(images[:, :1, :1], (16, 10, 20))
    keys = jax.random.split(jax.random.key(1), 16)
    noise = gaussian(images, keys, step_size=0.02) - images
    # 3200 draws: three deviations of the mean, and of the deviation.
    np.testing.assert_allclose(jnp.mean(noise), 0.0, atol=3 * 0.02 / 3200**0.5)
    np.testing.assert_allclose(jnp.std(noise), 0.02, rtol=3 / 6400**0.5)
    alone = gaussian(images[5:6], keys[5:6], step_size=0.02)
    np.testing.assert_array_equal(alone[0] - images[5], noise[5])
    default = gaussian(images, keys)
    np.testing.assert_allclose(jnp.std(default - images), 1 / 255, rtol=0.04)


def test_an_adversarial_step_is_the_steepest_way_from_the_label():
    images, _ = draw()
    labels = jnp.arange(BATCH) % CLASSES
    rows = np.arange(BATCH)

    def of_label(x):
        return probabilities(WEIGHTS, x, 2.0)[rows, labels]

    moved = quick_adversarial(PREDICT, images, labels, step_size=0.01, temperature=2.0)
    assert np.all(of_label(moved) < of_label(images))
    np.testing.assert_allclose(
        moved - images,
        -0.01 * np.sqrt(6) * unit(gradient(of_label, images)),
        atol=2e-7,  # pixels near 0.5 in float32
    )


def test_disagreement_of_pairs_equals_float64():
    images, _ = draw()
    logits = networks(TEACHERS)(images)
    np.testing.assert_allclose(
        pair_disagreement(logits, temperature=2.0),
        disagreement(TEACHERS, images, 2.0),
        rtol=1e-5,
        atol=1e-7,
    )
    same = jnp.broadcast_to(logits[:1], logits.shape)
    np.testing.assert_array_equal(pair_disagreement(same), np.zeros(BATCH))


def test_a_two_sided_step_raises_teachers_over_students_disagreement():
    images, _ = draw()

    def apart(x):
        return disagreement(TEACHERS, x, 2.0) - disagreement(STUDENTS, x, 2.0)

    moved = quick_two_sided(
        networks(TEACHERS), networks(STUDENTS), images, step_size=0.01, temperature=2.0
    )
    assert np.all(apart(moved) > apart(images))
    np.testing.assert_allclose(
        moved - images, 0.01 * np.sqrt(6) * unit(gradient(apart, images)), atol=1e-6
    )


def test_saturated_and_equal_networks_do_not_move_images_to_nan():
    images, _ = draw()
    huge = network(weights(1, 1e4))
    moved = quick_adversarial(huge, images, jnp.zeros(BATCH, jnp.int32))
    np.testing.assert_array_equal(moved, images)
    same = networks([WEIGHTS, WEIGHTS])
    stays = quick_two_sided(same, same, images)
    np.testing.assert_array_equal(stays, images)
    apart = networks([weights(1, 1e4), weights(2, 1e4)])
    assert jnp.all(jnp.isfinite(quick_two_sided(apart, same, images)))


def test_errors_name_what_does_not_fit():
    images, keys = draw()
    labels = jnp.zeros(BATCH, jnp.int32)
    with pytest.raises(ValueError, match=r"keys must have one row.*\(3,"):
        gaussian(images, keys[:3])
    with pytest.raises(TypeError, match=r"images must be floating-point.*int32"):
        gaussian(images.astype(jnp.int32), keys)
    with pytest.raises(ValueError, match=r"labels must have one row.*\(5,\)"):
        adversarial(PREDICT, images, labels[:5])
    with pytest.raises(TypeError, match="labels must be integers; got float32"):
        adversarial(PREDICT, images, labels.astype(jnp.float32))
    with pytest.raises(ValueError, match=r"\[M, B, C\].*at least two models"):
        two_sided(networks(TEACHERS[:1]), networks(STUDENTS), images)


def test_the_direction_of_all_teachers_equals_float64(rng):
    images, _ = draw()
    guides = rng.uniform(-1, 1, (len(TEACHERS), BATCH, CLASSES)).astype(np.float32)

    def followed(x):
        p = np.stack([probabilities(w, x, 2.0) for w in TEACHERS])
        return np.sum(np.float64(guides) * p, axis=(0, 2))

    direction = jax.jit(all_teacher_direction, static_argnums=0)(
        networks(TEACHERS), images, guides, temperature=2.0
    )
    expected = unit(gradient(followed, images))
    np.testing.assert_allclose(direction, expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"guides and.*\(2, 8, 4\) and \(3, 8, 4"):
        all_teacher_direction(networks(TEACHERS), images, guides[:2])
    with pytest.raises(TypeError, match="images must be floating-point"):
        all_teacher_direction(networks(TEACHERS), images.astype(jnp.int32), guides)
