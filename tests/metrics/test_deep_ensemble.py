"""The deep-ensemble equivalent and the curve that it is read from."""

import jax
import jax.numpy as jnp
import numpy as np

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import N, make_inputs

dee = jax.jit(metrics.deep_ensemble_equivalent)
curve_of = jax.jit(metrics.ensemble_reference_curve, static_argnames="subsets")
CURVE = np.array([0.789, 0.708, 0.673, 0.655], np.float32)


def test_golden_table_of_cifar100():
    # Calibrated NLL of BatchEnsemble students of WideResNet-28-10, as published.
    nlls = np.array([0.789, 0.708, 0.673, 0.655, 0.750, 0.760, 0.682, 0.665])
    found = dee(nlls, CURVE)
    expected = [1, 2, 3, 4, 1.48, 1.36, 2.74, 3.44]
    np.testing.assert_allclose(found.value, expected, atol=0.005)
    assert not np.any(found.below)
    assert not np.any(found.saturated)


def test_beyond_both_ends_is_said():
    found = dee(np.array([0.7891, 0.6549, np.inf, -np.inf]), CURVE)
    assert found.value.tolist() == [1, 4, 1, 4]
    assert found.below.tolist() == [True, False, True, False]
    assert found.saturated.tolist() == [False, True, False, True]


def test_a_curve_that_rises_again_counts_the_first_time():
    wavy = np.array([1.0, 0.5, 0.75, 0.25, 0.25, 0.0], np.float32)
    found = dee(np.array([0.5, 0.6, 0.375, 0.25, 0.125]), wavy)
    np.testing.assert_allclose(found.value, [2, 1.8, 3.75, 4, 5.5], rtol=1e-6)
    rising = dee(np.array([1.5, 1.0, 0.5]), np.array([1.0, 2.0], np.float32))
    assert rising.value.tolist() == [1, 1, 2]
    assert rising.saturated.tolist() == [False, False, True]


def test_equals_the_float64_reference_on_any_curve():
    rng = np.random.default_rng(0)
    curves = np.sort(rng.random((3, 5)), -1)[:, ::-1] + 0.1 * rng.random((3, 5))
    nlls = rng.uniform(-0.1, 1.2, (3, 2, 40)).astype(np.float32)
    curves = curves.astype(np.float32)
    found = jax.jit(jax.vmap(metrics.deep_ensemble_equivalent))(nlls, curves)
    assert found.value.shape == found.below.shape == nlls.shape
    for c, *index in np.ndindex(nlls.shape):
        expected = ref.deep_ensemble_equivalent(nlls[c, *index], curves[c])
        np.testing.assert_allclose(found.value[c, *index], expected, rtol=1e-5)


def test_gradient_is_the_slope_of_the_segment_and_finite_everywhere():
    flat = np.array([1.0, 0.5, 0.5, 0.25], np.float32)

    def total(nlls, curve):
        return jnp.sum(metrics.deep_ensemble_equivalent(nlls, curve).value)

    nlls = np.array([0.75, 0.5, 0.375, 2.0, 0.1], np.float32)
    of_nlls, of_curve = jax.jit(jax.grad(total, argnums=(0, 1)))(nlls, flat)
    assert of_nlls.tolist() == [-2, -2, -4, 0, 0]
    assert np.isfinite(of_curve).all()


def test_what_is_not_a_number_stays_so():
    found = dee(np.array([np.nan, 0.7], np.float32), CURVE)
    assert np.isnan(found.value).tolist() == [True, False]
    assert not found.below[0] and not found.saturated[0]
    unknown = dee(np.array([0.7, 0.9], np.float32), np.append(CURVE[:3], np.nan))
    assert np.isnan(unknown.value).all()


def members(seed):
    inputs = make_inputs("labelled members", seed)
    return inputs["member_logits"], inputs["labels"]


def test_curve_by_hand():
    probs = np.array([[[0.5, 0.5]], [[0.25, 0.75]]], np.float32)
    found = curve_of(np.log(probs), np.array([0]))
    expected = [1.5 * np.log(2), -np.log(0.375)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    first = curve_of(np.log(probs), np.array([0]), subsets="prefixes")
    np.testing.assert_allclose(first, [np.log(2), -np.log(0.375)], rtol=1e-6)


def test_calibrated_curve_equals_the_float64_reference():
    (z, y), (vz, vy) = members(0), members(1)
    validation = {"validation_logits": 3 * vz, "validation_labels": vy}
    found = curve_of(3 * z, y, **validation)
    expected = ref.ensemble_reference_curve(3 * z, y, 3 * vz, vy)
    np.testing.assert_allclose(found, expected, rtol=5e-6)
    # Every ensemble has its own temperature; one for all would be another curve.
    plain = ref.ensemble_reference_curve(3 * z, y)
    assert np.all(found < plain)
    # The members' order does not matter, and padding of the validation split neither.
    mask = np.arange(N) % 4 > 0
    masked = {"validation_logits": 3 * vz[::-1], "validation_labels": vy}
    masked = curve_of(3 * z[::-1], y, **masked, validation_mask=mask)
    kept = ref.ensemble_reference_curve(3 * z, y, 3 * vz[:, mask], vy[mask])
    np.testing.assert_allclose(masked, kept, rtol=5e-6)


def test_memory_is_that_of_the_members_and_not_of_the_subsets():
    z = jax.ShapeDtypeStruct((8, 512, 16), jnp.float32)
    y = jax.ShapeDtypeStruct((512,), jnp.int32)
    analysis = curve_of.lower(z, y).compile().memory_analysis()
    size = 8 * 512 * 16 * 4
    assert analysis.temp_size_in_bytes < 8 * size  # 255 ensembles are 32 times size
