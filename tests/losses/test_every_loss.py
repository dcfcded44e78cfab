"""What holds for every loss: reference, gradients, transforms, dtypes, bounds.

All losses share one compiled program per transform; each test looks at its own.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax import losses
from tests.losses.cases import CASES, CLASSES, PENALTIES

pytestmark = pytest.mark.usefixtures("strict_dtypes")

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
pairs = pytest.mark.parametrize(
    "case", [c for c in CASES if c.pair], ids=lambda c: c.name
)
shifted = pytest.mark.parametrize(
    "case", [c for c in CASES if c.shifts], ids=lambda c: c.name
)


def draw(seed, shape=(16, CLASSES), scale=2.0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(scale=scale, size=(2, *shape)).astype(np.float32)
    return jnp.asarray(a), jnp.asarray(b)


def values(a, b):
    """Every loss, by its name."""
    return {case.name: case.loss(a, b) for case in CASES}


@jax.jit
def everything(a, b):
    """Value per example, and gradients and slope of the sum, of every loss."""
    tangents = tuple(
        f(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape)
        for f in (jnp.cos, jnp.sin)
    )
    results = {}
    for case in CASES:

        def total(a, b, case=case):
            value = case.loss(a, b)
            return jnp.sum(value), value

        gradient = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)
        (_, value), grads = gradient(a, b)
        _, slope, _ = jax.jvp(total, (a, b), tangents, has_aux=True)
        results[case.name] = value, grads, slope, tangents
    return results


def gradients(case, a, b):
    """Of the sum over examples, in both models' logits."""
    return everything(a, b)[case.name][1]


@every_case
def test_equals_the_float64_reference(case):
    for seed in range(4):
        for scale in (0.3, 3.0):
            a, b = draw(seed, scale=scale)
            # float32 softmax of 12 classes: a few ulp relative; the absolute term is
            # for divergences near 0, sums of terms of both signs and size up to 1,
            # which distillation multiplies by the squared temperature.
            np.testing.assert_allclose(
                case.loss(a, b),
                case.reference(a, b),
                rtol=2e-6,
                atol=1e-6 * max(1.0, case.scale),
            )


@every_case
def test_forward_derivative_equals_a_float64_difference_of_the_reference(case):
    a, b = draw(5, scale=1.0)
    *_, slope, tangents = everything(a, b)[case.name]
    step = [1e-5 * np.asarray(t, np.float64) for t in tangents]
    a64, b64 = np.asarray(a, np.float64), np.asarray(b, np.float64)
    above = case.reference(a64 + step[0], b64 + step[1])
    below = case.reference(a64 - step[0], b64 - step[1])
    # A sum over 16 examples of terms of both signs, in float32.
    np.testing.assert_allclose(
        slope, np.sum(above - below) / 2e-5, rtol=1e-5, atol=3e-5
    )


@every_case
def test_gradient_equals_a_float64_difference_of_the_reference(case):
    a, b = draw(6, scale=1.0)
    grads = gradients(case, a, b)
    a64, b64 = np.asarray(a, np.float64), np.asarray(b, np.float64)
    for j in range(CLASSES):
        step = 1e-5 * np.eye(CLASSES)[j][None]
        along_a = case.reference(a64 + step, b64) - case.reference(a64 - step, b64)
        along_b = case.reference(a64, b64 + step) - case.reference(a64, b64 - step)
        np.testing.assert_allclose(grads[0][:, j], along_a / 2e-5, atol=3e-6)
        np.testing.assert_allclose(grads[1][:, j], along_b / 2e-5, atol=3e-6)


@every_case
@pytest.mark.parametrize("size", [0.0, 100.0, 1e4])
def test_value_and_gradient_are_finite_at_huge_logits(case, size):
    base = jnp.asarray(np.linspace(-1.0, 1.0, CLASSES), jnp.float32)
    a = size * jnp.stack([base, base, jnp.roll(base, 5), jnp.zeros_like(base)] * 4)
    b = size * jnp.stack([base, base[::-1], jnp.zeros_like(base), base] * 4)
    value, grads, *_ = everything(a, b)[case.name]
    assert np.all(np.isfinite(value))
    assert all(np.all(np.isfinite(g)) for g in grads)
    # The largest value belongs to the divergences: 2e4 between opposite one-hots,
    # times the temperature for distillation.
    if case.bounded:
        assert np.max(np.abs(value)) <= 8 * max(2 * size, np.log(CLASSES))


@shifted
def test_is_unchanged_by_a_shift_of_all_logits(case):
    a, b = draw(7)
    shifted = case.loss(a + 64.0, b - 32.0)
    # Adding 64 rounds logits of size 4 to 8e-6: that, and not the loss, is the error.
    np.testing.assert_allclose(shifted, case.loss(a, b), rtol=1e-4, atol=2e-5)


@shifted
def test_shift_gradients_sum_to_zero(case):
    a, b = draw(8)
    for g in gradients(case, a, b):
        np.testing.assert_allclose(np.sum(g, -1), np.zeros(16), atol=3e-6)


@pytest.mark.parametrize(
    "case", [c for c in CASES if not c.labelled], ids=lambda c: c.name
)
def test_is_unchanged_by_a_permutation_of_classes(case, rng):
    a, b = draw(9)
    order = rng.permutation(CLASSES)
    np.testing.assert_allclose(
        case.loss(a[:, order], b[:, order]), case.loss(a, b), rtol=3e-6, atol=1e-6
    )


@pairs
def test_both_models_receive_gradients(case):
    a, b = draw(10)
    for g in gradients(case, a, b):
        assert np.all(np.max(np.abs(g), -1) > 1e-3)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.symmetric], ids=lambda c: c.name
)
def test_exchange_of_the_models_changes_nothing(case):
    a, b = draw(11)
    np.testing.assert_array_equal(case.loss(a, b), case.loss(b, a))


def _sharded(a, b):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    sharding = NamedSharding(mesh, P("data"))
    out = jax.jit(values)(jax.device_put(a, sharding), jax.device_put(b, sharding))
    assert all(len(x.sharding.device_set) == 8 for x in out.values())
    return out


def _shard_map(a, b):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    return jax.jit(
        jax.shard_map(values, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    )(a, b)


TRANSFORMS = {
    "jit": jax.jit(values),
    "vmap": jax.jit(jax.vmap(values)),
    "sharded": _sharded,
    "shard_map": _shard_map,
}


@functools.cache
def transformed(name):
    return jax.device_get(TRANSFORMS[name](*draw(12)))


@every_case
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_agree_with_eager(case, transform):
    np.testing.assert_allclose(
        transformed(transform)[case.name], case.loss(*draw(12)), rtol=2e-6, atol=1e-6
    )


@functools.cache
def with_leading_axes():
    a, b = (x.reshape(2, 2, 4, CLASSES) for x in draw(13))
    return jax.device_get(jax.jit(values)(a, b))


@every_case
def test_leading_axes_are_kept(case):
    a, b = draw(13)
    out = with_leading_axes()[case.name]
    assert out.shape == (2, 2, 4)
    np.testing.assert_allclose(out.reshape(16), case.loss(a, b), rtol=2e-6, atol=1e-6)
    assert jax.eval_shape(case.loss, a[0], b[0]).shape == ()


@every_case
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_in_float32_out(case, dtype):
    a, b = (x.astype(dtype) for x in draw(14))
    out = case.loss(a, b)
    assert out.dtype == jnp.float32
    exact = case.loss(a.astype(jnp.float32), b.astype(jnp.float32))
    np.testing.assert_array_equal(out, exact)
    grad = jax.eval_shape(jax.grad(lambda a: jnp.sum(case.loss(a, b))), a)
    assert grad.dtype == dtype


@pairs
def test_different_shapes_are_an_error_that_names_both(case):
    a, b = draw(15)
    with pytest.raises(ValueError, match=r"\(16, 12\).*\(15, 12\)"):
        case.loss(a, b[1:])


@every_case
def test_integers_and_scores_without_classes_are_errors(case):
    with pytest.raises(TypeError, match="floating-point"):
        case.loss(jnp.ones((3, CLASSES), jnp.int32), jnp.ones((3, CLASSES), jnp.int32))
    with pytest.raises(ValueError, match=r"at least two classes.*\(3, 1\)"):
        case.loss(jnp.ones((3, 1)), jnp.ones((3, 1)))


def test_the_table_holds_every_public_loss():
    tested = {case.name.split(",")[0] for case in [*CASES, *PENALTIES]}
    elsewhere = {"binary_logits", "MomentState", "orthogonalize", "focal_weights"}
    elsewhere |= {"confusion_counts", "confusion_matrix"}  # of class ids
    elsewhere |= {"bayesian_posterior", "bayesian_update_targets"}
    assert tested | elsewhere == set(losses.__all__)


@pytest.mark.accelerator
@every_case
def test_reference_on_the_accelerator(case):
    a, b = draw(16, shape=(512, CLASSES))
    # Transcendentals of accelerators are a few ulp wider than those of the CPU.
    np.testing.assert_allclose(
        jax.jit(case.loss)(a, b), case.reference(a, b), rtol=1e-5, atol=1e-5
    )
