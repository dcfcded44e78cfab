"""Steps of images against float64 differences, by hand, and what they are for."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax import perturbations
from churn_jax.perturbations import adversarial, conf_ods, ods, step, two_sided
from tests.devices import over_devices, spread
from tests.perturbations.networks import (
    BATCH,
    CLASSES,
    draw,
    gradient,
    network,
    networks,
    probabilities,
    unit,
    weights,
)
from tests.reference_losses import kl

WEIGHTS = weights(1)
PREDICT = network(WEIGHTS)


@partial(jax.jit, static_argnums=0, static_argnames=("dtype", "pixel_range"))
def compiled(move, weights, *given, dtype=jnp.float32, **options):
    """A step of a network, once for all weights."""
    return move(network(weights, dtype), *given, **options)


quick_ods, quick_conf_ods = partial(compiled, ods), partial(compiled, conf_ods)
quick_directions = partial(compiled, perturbations.ods_directions)
draw_guides = jax.jit(perturbations.draw_guides, static_argnums=1)


def norms(moves):
    return np.linalg.norm(np.asarray(moves, np.float64).reshape(len(moves), -1), axis=1)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_directions_equal_central_differences_in_float64(temperature):
    images, keys = draw()
    found = quick_directions(WEIGHTS, images, keys, temperature=temperature)
    guides = np.asarray(draw_guides(keys, CLASSES), np.float64)
    expected = unit(
        gradient(
            lambda x: np.sum(guides * probabilities(WEIGHTS, x, temperature), -1),
            images,
        )
    )
    # A float32 gradient of differences of probabilities, divided by its norm.
    np.testing.assert_allclose(found.directions, expected, atol=5e-6)
    confidence = probabilities(WEIGHTS, images, temperature).max(-1)
    np.testing.assert_allclose(found.confidence, confidence, rtol=2e-6)
    np.testing.assert_allclose(norms(found.directions), np.ones(BATCH), rtol=1e-6)


def test_steps_have_their_norm_and_conf_ods_scales_it_by_confidence():
    images, keys = draw()
    options = {"step_size": 0.01, "temperature": 2.0}
    full = 0.01 * np.sqrt(6)
    moved = quick_ods(WEIGHTS, images, keys, **options)
    # Pixels near 0.5 are rounded to 3e-8, steps have 1e-2.
    np.testing.assert_allclose(norms(moved - images), np.full(BATCH, full), rtol=1e-5)
    confidence = probabilities(WEIGHTS, images, 2.0).max(-1)
    scaled = quick_conf_ods(WEIGHTS, images, keys, **options)
    np.testing.assert_allclose(norms(scaled - images), full * confidence, rtol=1e-5)
    along = np.asarray((moved - images) * confidence[:, None, None].astype(np.float32))
    np.testing.assert_allclose(scaled - images, along, atol=2e-7)


def test_pixels_are_clipped_where_a_range_is_given():
    images, keys = jnp.zeros((BATCH, 2, 3)), draw()[1]
    free, narrow = (
        quick_ods(WEIGHTS, images, keys, step_size=0.1, pixel_range=pixels)
        for pixels in (None, (0.02, 0.05))
    )
    assert jnp.min(free) < 0.0 and jnp.max(free) > 0.05
    np.testing.assert_array_equal(narrow, jnp.clip(free, 0.02, 0.05))
    kept = step(images, free, step_size=9.0)
    assert jnp.min(kept) == 0.0 and jnp.max(kept) == 1.0


def test_guides_are_uniform_and_belong_to_their_key():
    keys = jax.random.split(jax.random.key(0), 2000)
    guides = np.asarray(draw_guides(keys, 3))
    assert -1.0 <= guides.min() < -0.995 and 0.995 < guides.max() < 1.0
    # Three deviations of the mean of 2000 draws, and of their mean square.
    np.testing.assert_allclose(guides.mean(0), np.zeros(3), atol=3 * 0.578 / 2000**0.5)
    np.testing.assert_allclose(
        (guides**2).mean(0), np.full(3, 1 / 3), atol=3 * 0.3 / 2000**0.5
    )
    np.testing.assert_array_equal(
        draw_guides(keys[jnp.array([7, 3])], 3), guides[[7, 3]]
    )


def test_unit_directions_of_tiny_huge_zero_and_broken_gradients():
    nan, inf = np.nan, np.inf
    sizes = (1e-30, 1e30, 3e37, 8e37)
    rows = [[3 * size, 4 * size] for size in sizes]
    rows += [[0, 0], [nan, 1], [inf, 1], [1e-42, 1e-43]]
    *found, below = jax.jit(perturbations.unit_directions)(np.float32(rows))
    expected = [[0.6, 0.8]] * len(sizes) + [[0.0, 0.0]] * 3
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.all(np.isfinite(below)) and np.linalg.norm(below) <= 1.0 + 1e-6


@pytest.mark.parametrize("size", [30.0, 1e4])
def test_saturated_networks_give_unit_or_zero_directions(size):
    images, keys = draw()
    options = {"temperature": 1.0}
    found = quick_directions(weights(1, size), images, keys, **options)
    length = norms(found.directions)
    assert np.all((np.abs(length - 1.0) < 1e-5) | (length == 0.0))
    assert np.all(length == 0.0) == (size == 1e4)
    options["step_size"] = 0.01
    moved = quick_conf_ods(weights(1, size), images, keys, **options)
    assert jnp.all(jnp.isfinite(moved))


def test_a_sure_network_points_where_its_last_doubts_do():
    # In float32 the top probability is 1, and its own gradient in the logits would be
    # lost; the gradient of all the others has the same sum, and its digits.
    sure, temperature = weights(1, size=60.0), 0.1
    images, keys = draw()
    found = quick_directions(sure, images, keys, temperature=temperature)
    p = probabilities(sure, images, temperature)
    assert (found.confidence == 1.0).any() and (1 - p.max(-1) < 1e-9).any()
    guides = np.asarray(draw_guides(keys, CLASSES), np.float64)
    guides = guides - np.take_along_axis(guides, p.argmax(-1)[:, None], axis=-1)
    others = guides * (np.arange(CLASSES) != p.argmax(-1)[:, None])

    def followed(x):
        return np.sum(others * probabilities(sure, x, temperature), -1)

    slopes = gradient(followed, images, width=1e-6)
    there = np.abs(slopes).max((1, 2)) > 1e-30  # float32 has no smaller numbers
    assert there.any()
    found = np.asarray(found.directions)[there]
    np.testing.assert_allclose(found, unit(slopes[there]), atol=2e-4)


def test_a_network_in_bfloat16_points_the_same_way():
    images, keys = draw()
    found = quick_directions(WEIGHTS, images, keys, dtype=jnp.bfloat16)
    exact = quick_directions(WEIGHTS, images, keys, temperature=1.0)
    assert found.directions.dtype == found.confidence.dtype == jnp.float32
    cosine = jnp.sum(found.directions * exact.directions, axis=(1, 2))
    assert jnp.min(cosine) > 0.98
    half = quick_ods(WEIGHTS, images.astype(jnp.bfloat16), keys)
    assert half.dtype == jnp.float32


@pytest.mark.slow
def test_transforms_agree():
    """Compiled, mapped, and over eight devices in two ways."""
    images, keys = draw()

    def moved(images, keys, step_size=0.01):
        options = {"step_size": step_size, "temperature": 2.0}
        plain = ods(PREDICT, images, keys, **options)
        return jnp.stack([plain, conf_ods(PREDICT, images, keys, **options)], axis=1)

    alone = jax.vmap(lambda image, key: moved(image[None], key[None])[0])
    sizes = jax.vmap(moved, (None, None, 0))
    whole, one_by_one, swept = jax.jit(
        lambda images, keys: (
            moved(images, keys),
            alone(images, keys),
            sizes(images, keys, jnp.array([0.01, 0.02])),
        )
    )(images, keys)
    sharded = jax.jit(moved)(*spread((images, keys)))
    assert len(sharded.sharding.device_set) == 8
    data = P("data")
    by_device = over_devices(moved, data, data, out=data)(images, keys)
    for found in (one_by_one, swept[0], sharded, by_device):
        np.testing.assert_allclose(found, whole, atol=1e-6)
    clean = np.asarray(images)[:, None]
    np.testing.assert_allclose(swept[1] - clean, 2 * (whole - clean), atol=1e-6)


# ---- other steps

TEACHERS = [weights(seed) for seed in (1, 2, 3)]
STUDENTS = [weights(seed) for seed in (4, 5)]

gaussian = jax.jit(perturbations.gaussian)
pair_disagreement = jax.jit(perturbations.pair_disagreement)
quick_adversarial = partial(compiled, adversarial)


@jax.jit
def quick_two_sided(teachers, students, images, **options):
    return two_sided(networks(teachers), networks(students), images, **options)


def disagreement(several, images, temperature=1.0):
    """Mean over ordered pairs of the KL divergence, float64."""
    p = [probabilities(w, images, temperature) for w in several]
    return np.mean([kl(a, b) for a, b in itertools.permutations(p, 2)], axis=0)


def test_gaussian_noise_has_its_deviation_and_its_own_key():
    images, _ = draw(batch=16)
    images = jnp.broadcast_to(images[:, :1, :1], (16, 10, 20))
    keys = jax.random.split(jax.random.key(1), 16)
    noise = gaussian(images, keys, step_size=0.02) - images
    # 3200 draws: three deviations of the mean, and of the deviation.
    np.testing.assert_allclose(jnp.mean(noise), 0.0, atol=3 * 0.02 / 3200**0.5)
    np.testing.assert_allclose(jnp.std(noise), 0.02, rtol=3 / 6400**0.5)
    other = gaussian(images[::-1], keys[::-1], step_size=0.02) - images[::-1]
    np.testing.assert_array_equal(other[::-1], noise)
    default = gaussian(images, keys)
    np.testing.assert_allclose(jnp.std(default - images), 1 / 255, rtol=0.04)


def test_steps_are_float32_also_where_jax_has_64_bits():
    images, keys = draw()
    labels = np.zeros(BATCH, np.uint8)
    with jax.enable_x64(True):
        moves = jax.eval_shape(
            lambda images, keys, labels: (
                ods(PREDICT, images, keys),
                perturbations.gaussian(images, keys),
                adversarial(PREDICT, images, labels),
            ),
            *(images, keys, labels),
        )
    assert all(moved.dtype == jnp.float32 for moved in moves)


def test_an_adversarial_step_is_the_steepest_way_from_the_label():
    images, _ = draw()
    labels = jnp.arange(BATCH) % CLASSES
    rows = np.arange(BATCH)

    def of_label(x):
        return probabilities(WEIGHTS, x, 2.0)[rows, labels]

    moved = quick_adversarial(WEIGHTS, images, labels, step_size=0.01, temperature=2.0)
    assert np.all(of_label(moved) < of_label(images))
    expected = -0.01 * np.sqrt(6) * unit(gradient(of_label, images))
    # Pixels near 0.5 in float32.
    np.testing.assert_allclose(moved - images, expected, atol=2e-7)


def test_disagreement_of_pairs_equals_float64():
    images, _ = draw()
    logits = networks(TEACHERS)(images)
    found = pair_disagreement(logits, temperature=2.0)
    expected = disagreement(TEACHERS, images, 2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    same = jnp.broadcast_to(logits[:1], logits.shape)
    np.testing.assert_array_equal(pair_disagreement(same), np.zeros(BATCH))


def test_a_two_sided_step_raises_teachers_over_students_disagreement():
    images, _ = draw()

    def apart(x):
        return disagreement(TEACHERS, x, 2.0) - disagreement(STUDENTS, x, 2.0)

    moved = quick_two_sided(TEACHERS, STUDENTS, images, step_size=0.01, temperature=2.0)
    assert np.all(apart(moved) > apart(images))
    expected = 0.01 * np.sqrt(6) * unit(gradient(apart, images))
    np.testing.assert_allclose(moved - images, expected, atol=1e-6)


def test_saturated_and_equal_networks_do_not_move_images_to_nan():
    images, _ = draw()
    labels, options = jnp.arange(BATCH) * 0, {"step_size": 0.01, "temperature": 1.0}
    moved = quick_adversarial(weights(1, 1e4), images, labels, **options)
    np.testing.assert_array_equal(moved, images)
    stays = quick_two_sided([WEIGHTS] * 2, [WEIGHTS] * 2, images, **options)
    np.testing.assert_array_equal(stays, images)
    huge = [weights(seed, 1e4) for seed in (1, 2)]
    away = quick_two_sided(huge, [WEIGHTS] * 2, images, **options)
    assert jnp.all(jnp.isfinite(away))


def test_the_direction_of_all_teachers_equals_float64(rng):
    images, _ = draw()
    guides = rng.uniform(-1, 1, (len(TEACHERS), BATCH, CLASSES)).astype(np.float32)

    def followed(x):
        p = np.stack([probabilities(w, x, 2.0) for w in TEACHERS])
        return np.sum(np.float64(guides) * p, axis=(0, 2))

    direction = jax.jit(perturbations.all_teacher_direction, static_argnums=0)(
        networks(TEACHERS), images, guides, temperature=2.0
    )
    expected = unit(gradient(followed, images))
    np.testing.assert_allclose(direction, expected, atol=1e-5)


def test_errors_name_what_does_not_fit():
    images, keys = draw()
    labels, integers = jnp.zeros(BATCH, jnp.int32), images.astype(jnp.int32)
    one, three, rows = networks(TEACHERS[:1]), networks(TEACHERS), "must have one row"
    guides, half = np.zeros((3, BATCH, CLASSES), "f4"), labels + 0.5
    cold, whole = np.float32(0.0), lambda images: jnp.zeros((2, BATCH, 3), jnp.int32)
    many, tenth = perturbations.all_teacher_direction, partial(step, step_size=0.1)

    def fewer(images):
        return PREDICT(images)[1:]

    for move, given, message in (
        (ods, (PREDICT, integers, keys), "images must be floating-point.*int32"),
        (conf_ods, (PREDICT, images, keys[:7]), rf"keys {rows}.*8; got shape \(7,"),
        (ods, (PREDICT, images[:, 0, 0], keys), r"images must be a batch.*\(8,\)"),
        (ods, (fewer, images, keys), r"predict must give.*\(7, 4\) for \(8, 2, 3"),
        (tenth, (images, images[1:]), "directions must have one row"),
        (gaussian, (images, keys[:3]), rf"keys {rows}.*\(3,"),
        (gaussian, (integers, keys), "images must be floating-point.*int32"),
        (adversarial, (PREDICT, images, labels[:5]), rf"labels {rows}.*\(5,\)"),
        (adversarial, (PREDICT, images, half), "labels must be integers; got float32"),
        (two_sided, (one, three, images), r"\[M, B, C\].*at least two models"),
        (many, (three, images, guides[:2]), r"guides .*\(2, 8, 4\) and \(3, 8, 4"),
        (many, (three, integers, guides), "images must be floating-point.*int32"),
        (partial(ods, temperature=-1), (PREDICT, images, keys), "positive and fin.*-1"),
        (partial(two_sided, temperature=cold), (three, three, images), "temperat.*0"),
        (two_sided, (whole, whole, images), "logits must be floating-point.*int32"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            move(*given)
