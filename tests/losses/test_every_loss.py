"""What holds for every loss: reference, gradients, transforms, dtypes, bounds.

All losses share one compiled program per transform; each test looks at its own.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax import losses
from tests.devices import over_devices, spread
from tests.losses.cases import CASES, CLASSES, PENALTIES, remembered

pytestmark = pytest.mark.usefixtures("strict_dtypes")

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def cases_that(flag):
    chosen = [case for case in CASES if getattr(case, flag)]
    return pytest.mark.parametrize("case", chosen, ids=lambda c: c.name)


def draw(seed, shape=(16, CLASSES), scale=2.0):
    rng = np.random.default_rng(seed)
    return rng.normal(scale=scale, size=(2, *shape)).astype(np.float32)


def values(a, b):
    return {case.name: case.loss(a, b) for case in CASES}


@remembered
@jax.jit
def everything(a, b):
    """Value, both gradients and one directional derivative of every loss."""
    along = jnp.cos(jnp.arange(a.size, dtype=jnp.float32)).reshape(a.shape)
    results = {}
    for case in CASES:
        value, pull = jax.vjp(case.loss, a, b)
        slope = jax.jvp(case.loss, (a, b), (along, along[::-1]))[1]
        results[case.name] = (value, pull(jnp.ones_like(value)), slope, along)
    return results


def evaluate(case, a, b):
    """`(value, (gradient in a, gradient in b))` of one loss."""
    value, gradients, _, _ = everything(a, b)[case.name]
    return value, gradients


@every_case
def test_equals_the_float64_reference(case):
    for seed in range(2):
        for scale in (0.3, 3.0):
            a, b = draw(seed, scale=scale)
            # float32 softmax of 12 classes: a few ulp relative; the absolute term is
            # for divergences near 0, sums of terms of both signs and size up to 1,
            # which distillation multiplies by the squared temperature.
            np.testing.assert_allclose(
                evaluate(case, a, b)[0],
                case.reference(a, b),
                rtol=2e-6,
                atol=1e-6 * max(1.0, case.scale),
            )


@every_case
def test_gradient_equals_a_float64_difference_of_the_reference(case):
    a, b = draw(6, scale=1.0)
    _, grads, slope, along = everything(a, b)[case.name]
    a64, b64 = np.asarray(a, np.float64), np.asarray(b, np.float64)
    for j in range(CLASSES):
        step = 1e-5 * np.eye(CLASSES)[j][None]
        along_a = case.reference(a64 + step, b64) - case.reference(a64 - step, b64)
        along_b = case.reference(a64, b64 + step) - case.reference(a64, b64 - step)
        np.testing.assert_allclose(grads[0][:, j], along_a / 2e-5, atol=3e-6)
        np.testing.assert_allclose(grads[1][:, j], along_b / 2e-5, atol=3e-6)
    # Forward and reverse mode agree, and both models of a pair receive gradients.
    expected = np.sum(grads[0] * along + grads[1] * along[::-1], axis=-1)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-5 * case.scale)
    for g in grads if case.pair else ():
        assert np.all(np.max(np.abs(g), -1) > 1e-3)


@every_case
def test_value_and_gradient_are_finite_at_huge_logits(case):
    base = np.linspace(-1.0, 1.0, CLASSES).astype(np.float32)
    zero = np.zeros_like(base)
    for size in (0.0, 100.0, 1e4):
        a = np.float32(size) * np.stack([base, base, np.roll(base, 5), zero] * 4)
        b = np.float32(size) * np.stack([base, base[::-1], zero, base] * 4)
        value, grads = evaluate(case, a, b)
        assert np.all(np.isfinite(value))
        assert all(np.all(np.isfinite(g)) for g in grads)
        # The largest value belongs to the divergences: 2e4 between opposite one-hots,
        # times the temperature for distillation.
        if case.bounded:
            assert np.max(np.abs(value)) <= 8 * max(2 * size, np.log(CLASSES))


@cases_that("shifts")
def test_is_unchanged_by_a_shift_of_all_logits(case):
    a, b = draw(7)
    shifted, _ = evaluate(case, a + np.float32(64), b - np.float32(32))
    # Adding 64 rounds logits of size 4 to 8e-6: that, and not the loss, is the error.
    plain, gradients = evaluate(case, a, b)
    np.testing.assert_allclose(shifted, plain, rtol=1e-4, atol=2e-5)
    for g in gradients:
        np.testing.assert_allclose(np.sum(g, -1), np.zeros(16), atol=3e-6)


@cases_that("unlabelled")
def test_is_unchanged_by_a_permutation_of_classes(case, rng):
    a, b = draw(9)
    order = rng.permutation(CLASSES)
    permuted, _ = evaluate(case, a[:, order], b[:, order])
    plain, _ = evaluate(case, a, b)
    np.testing.assert_allclose(permuted, plain, rtol=3e-6, atol=1e-6)


@cases_that("symmetric")
def test_exchange_of_the_models_changes_nothing(case):
    a, b = draw(11)
    np.testing.assert_array_equal(evaluate(case, a, b)[0], evaluate(case, b, a)[0])


def _sharded(a, b):
    """Also with one leading axis more."""
    a, b = (x.reshape(2, 8, CLASSES) for x in (a, b))
    found = jax.jit(values)(*spread((a, b), P(None, "data")))
    assert all(len(out.sharding.device_set) == 8 for out in found.values())
    return {name: out.reshape(16) for name, out in found.items()}


@cases_that("distance")
def test_equal_models_are_at_distance_zero_with_gradient_zero(case):
    a, _ = draw(13)
    value, gradients = evaluate(case, a, a)
    assert not np.any(value)
    for g in gradients:
        exact = case.symmetric
        np.testing.assert_allclose(g, 0.0 * g, atol=0.0 if exact else 3e-7 * case.scale)


# Examples in docstrings run without jit. An example of `vmap` has no leading axis.
TRANSFORMS = {
    "sharded": _sharded,
    "shard_map and vmap": over_devices(
        jax.vmap(values), P("data"), P("data"), out=P("data")
    ),
}


@functools.cache
def transformed(name):
    return jax.device_get(TRANSFORMS[name](*draw(12)))


@every_case
@pytest.mark.parametrize(
    "transform", ["sharded", pytest.param("shard_map and vmap", marks=pytest.mark.slow)]
)
def test_transforms_and_leading_axes_change_nothing(case, transform):
    found, (expected, _) = transformed(transform)[case.name], evaluate(case, *draw(12))
    assert found.shape == (16,)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


@functools.cache
def in_bfloat16():
    """Logits, and every loss of them."""
    pair = [np.asarray(x, jnp.bfloat16) for x in draw(14)]
    return pair, jax.device_get(jax.jit(values)(*pair))


@pytest.mark.slow
@every_case
def test_bfloat16_in_float32_out(case):
    pair, found = in_bfloat16()
    # The numbers are those of the same logits in float32, but for another program.
    expected = evaluate(case, *(x.astype(np.float32) for x in pair))[0]
    value = found[case.name]
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6 * case.scale)

    def total(a, b):
        return jnp.sum(case.loss(a, b))

    both = jax.eval_shape(jax.value_and_grad(total), *pair)
    assert value.dtype == both[0].dtype == jnp.float32
    assert both[1].dtype == jnp.bfloat16


@cases_that("pair")
def test_different_shapes_are_an_error_that_names_both(case):
    a, b = draw(15)
    with pytest.raises(ValueError, match=r"\(16, 12\).*\(15, 12\)"):
        case.loss(a, b[1:])


@every_case
def test_integers_and_scores_without_classes_are_errors(case):
    with pytest.raises(TypeError, match="floating-point"):
        case.loss(*np.ones((2, 3, CLASSES), np.int32))
    with pytest.raises(ValueError, match=r"at least two classes.*\(3, 1\)"):
        case.loss(*np.ones((2, 3, 1), np.float32))


def test_the_table_holds_every_public_loss():
    tested = {case.name.split(",")[0] for case in [*CASES, *PENALTIES]}
    elsewhere = {"binary_logits", "MomentState", "orthogonalize", "focal_weights"}
    # Of class ids.
    elsewhere |= {"confusion_counts", "bayesian_posterior", "bayesian_update_targets"}
    assert tested | elsewhere == set(losses.__all__)
