"""A guide seen by another teacher: exact maps, NumPy's least squares, the rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.perturbations import draw_guides
from experiments.diversity.transfer import transferred_guide
from tests.experiments.test_jacobians import jacobians
from tests.perturbations.networks import CLASSES, weights
from tests.perturbations.test_ods import draw

quick_guide = jax.jit(transferred_guide)


def guided(drawn, other, guides):
    return quick_guide(drawn_jacobians=drawn, other_jacobians=other, guides=guides)


def given(batch=5):
    images, keys = draw(batch=batch)
    drawn, other = (
        jnp.asarray(jacobians(weights(seed), images), jnp.float32) for seed in (1, 2)
    )
    return drawn, other, draw_guides(keys, CLASSES)


def test_equals_least_squares_in_float64():
    drawn, other, guides = given()
    found = guided(drawn, other, guides)
    for n in range(5):
        j = np.asarray(other[n], np.float64).T
        target = np.asarray(drawn[n], np.float64).T @ np.asarray(guides[n], np.float64)
        v = np.linalg.lstsq(j, target, rcond=1e-4)[0]
        left = np.sum((target - j @ v) ** 2) / np.sum(target**2)
        # The least singular values that count are a tenth of the largest.
        np.testing.assert_allclose(found.guides[n], v, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.explained[n], 1.0 - left, atol=1e-5)
    assert jnp.all((found.explained > 0.0) & (found.explained < 1.0))


def test_a_linear_map_between_jacobians_maps_the_guide(rng):
    _, other, guides = given()
    mixes = jnp.asarray(rng.normal(size=(5, CLASSES, CLASSES)).astype(np.float32))
    drawn = jnp.einsum("bij,bjd->bid", mixes, other, precision="highest")
    found = guided(drawn, other, guides)
    expected = jnp.einsum("bij,bi->bj", mixes, guides, precision="highest")
    expected = expected - jnp.mean(expected, -1, keepdims=True)  # moves nothing
    np.testing.assert_allclose(found.guides, expected, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(found.explained, np.ones(5), atol=1e-5)


def test_a_teacher_explains_itself_and_nothing_across():
    drawn, _, guides = given()
    itself = guided(drawn, drawn, guides)
    np.testing.assert_allclose(itself.explained, np.ones(5), atol=1e-5)
    none = jnp.zeros_like(drawn)
    sides = np.concatenate([drawn, none], -1), np.concatenate([none, drawn], -1)
    across = guided(*sides, guides)
    np.testing.assert_allclose(across.explained, np.zeros(5), atol=1e-12)
    for i, j in ((drawn, none), (none, drawn)):
        flat = guided(i, j, guides)
        np.testing.assert_array_equal(flat.explained, np.zeros(5))
        np.testing.assert_array_equal(flat.guides, np.zeros((5, CLASSES)))


def test_tiny_jacobians_and_vmap_change_nothing():
    drawn, other, guides = given()
    expected = guided(drawn, other, guides)
    mapped = jax.jit(jax.vmap(guided))(drawn, other, guides)
    tiny = guided(1e-25 * drawn, 1e-25 * other, guides)
    for found in (mapped, tiny):
        np.testing.assert_allclose(found.explained, expected.explained, atol=1e-5)
        np.testing.assert_allclose(found.guides, expected.guides, rtol=1e-3, atol=1e-4)


def test_errors_name_both_shapes():
    drawn, other, guides = given()
    with pytest.raises(ValueError, match=r"\(5, 4, 6\) and \(5, 4, 5\)"):
        guided(drawn, other[..., :5], guides)
    with pytest.raises(ValueError, match=r"guides must be.*\(5, 3\) for \(5, 4, 6\)"):
        guided(drawn, other, guides[:, :3])
