"""What holds for every penalty between members: one scalar over the global batch.

All penalties share one compiled program per transform; each test looks at its own.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from tests.devices import mesh, over_devices, spread
from tests.differences import difference_quotient
from tests.losses.cases import BATCH, MEMBERS, OUTPUTS, PENALTIES, remembered

pytestmark = pytest.mark.usefixtures("strict_dtypes")

every_penalty = pytest.mark.parametrize("case", PENALTIES, ids=lambda c: c.name)

FEATURES = 4
UNEVEN = np.arange(BATCH) % 7 < 4  # leaves 1 to 3 of each device's 3 examples
EVERY = np.ones(BATCH, bool)


def draw(seed, shape=(MEMBERS, BATCH, OUTPUTS), scale=1.5):
    rng = np.random.default_rng(seed)
    # Members share a part, as members that learn one task do.
    shared = rng.normal(0.5, 1.0, (1, *shape[1:]))
    return np.asarray((shared + rng.normal(size=shape)) * scale, np.float32)


@remembered
@jax.jit
def everything(z, mask):
    """Value, gradient and one directional derivative of every penalty."""
    tangent = jnp.cos(jnp.arange(z.size, dtype=jnp.float32)).reshape(z.shape)
    tangent = tangent.astype(z.dtype)
    results = {}
    for case in PENALTIES:
        loss = functools.partial(case.loss, mask=mask)
        value, grad = jax.value_and_grad(loss)(z)
        slope = jax.jvp(loss, (z,), (tangent,))[1]
        results[case.name] = (value, grad, slope, tangent)
    return results


def evaluate(case, z, mask=EVERY):
    return everything(z, np.asarray(mask, np.float32))[case.name]


def close(actual, expected, rtol=1e-5):
    # Sums of 24 products, squared: a few float32 ulp, doubled by each square. Entries
    # that nearly vanish carry the rounding of the largest.
    largest = np.max(np.abs(expected), initial=0.1)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=3e-6 * largest)


@every_penalty
def test_equals_the_float64_reference(case):
    for seed in range(2):
        for scale in (0.3, 3.0):
            z = draw(seed, scale=scale)
            value = evaluate(case, z)[0]
            assert value.shape == () and value.dtype == jnp.float32
            close(value, case.reference(z))


@every_penalty
def test_gradient_equals_a_float64_difference_of_the_reference(case):
    z = draw(3)
    expected = difference_quotient(case.reference, z)
    _, grad, slope, tangent = evaluate(case, z)
    close(grad * case.divided_by, expected)
    close(slope * case.divided_by, np.vdot(expected, tangent), rtol=1e-4)


@every_penalty
def test_padding_reaches_neither_value_nor_gradient(case):
    z = draw(4)
    value, gradient, *_ = evaluate(case, z, UNEVEN)
    close(value, case.reference(z[:, UNEVEN]))
    assert np.any(gradient[:, UNEVEN])
    for filler in (0.0, 1e30, np.nan, np.inf):
        padded = np.where(UNEVEN[None, :, None], z, np.float32(filler))
        again, grad, *_ = evaluate(case, padded, UNEVEN)
        np.testing.assert_array_equal(again, value)
        np.testing.assert_array_equal(grad[:, ~UNEVEN], 0.0)
        np.testing.assert_array_equal(grad[:, UNEVEN], gradient[:, UNEVEN])
    # A batch of nothing else has a value, and no gradient; that of no rows is the same.
    value, grad, *_ = evaluate(case, z, ~EVERY)
    assert np.isfinite(value) and not np.any(grad)
    assert jax.jit(case.loss)(z[:, :0]) == value


def network(weights, features):
    """The outputs of M tiny networks that a batch shares; `[M, B, OUTPUTS]`."""
    product = jnp.einsum("bd,mdk->mbk", features, weights, precision="highest")
    return 2.0 * jnp.tanh(product + 0.3)


def everything_of_weights(weights, features, mask, axis_name=None):
    """Value and gradient in the networks' weights, of every penalty."""
    return {
        case.name: jax.value_and_grad(
            lambda w, case=case: case.loss(network(w, features), mask, axis_name)
        )(weights)
        for case in PENALTIES
    }


def sharded(*arguments):
    """The mesh is in the types of the arrays."""
    specs = (P(), P("data"), P("data"))
    placed = [spread(x, spec, "Explicit") for x, spec in zip(arguments, specs)]
    with jax.set_mesh(mesh(kind="Explicit")):
        return jax.jit(everything_of_weights)(*placed)


def pmapped(weights, features, mask):
    """Value and gradient inside, gradients averaged over devices."""

    def step(features, mask):
        results = everything_of_weights(weights, features, mask, "data")
        return {k: (v, jax.lax.pmean(g, "data")) for k, (v, g) in results.items()}

    shards = [x.reshape(8, BATCH // 8, *x.shape[1:]) for x in (features, mask)]
    results = jax.device_get(jax.pmap(step, axis_name="data")(*shards))
    for value, _ in results.values():
        np.testing.assert_array_equal(value, np.full(8, value[0]))
    return jax.tree.map(lambda x: x[0], results)


TRANSFORMS = {
    "sharded": sharded,
    "shard_map": over_devices(
        functools.partial(everything_of_weights, axis_name="data"),
        P(),
        P("data"),
        P("data"),
    ),
    "pmap": pmapped,
}


@pytest.mark.parametrize(
    "transform",
    [
        "shard_map",
        *(pytest.param(t, marks=pytest.mark.slow) for t in ("sharded", "pmap")),
    ],
)
@pytest.mark.filterwarnings("ignore:.*pmap.*:DeprecationWarning")
def test_value_and_gradient_are_those_of_the_global_batch(transform):
    rng = np.random.default_rng(7)
    weights = rng.normal(size=(MEMBERS, FEATURES, OUTPUTS)).astype(np.float32)
    features = rng.normal(size=(BATCH, FEATURES)).astype(np.float32)
    mask = UNEVEN.astype(np.float32)
    results = TRANSFORMS[transform](weights, features, mask)
    outputs, pull_back = jax.vjp(lambda w: network(w, features), weights)
    expected = everything(outputs, mask)
    for case in PENALTIES:
        value, grad = results[case.name]
        close(value, case.reference(outputs[:, UNEVEN]))
        assert np.any(grad)
        close(grad, *pull_back(expected[case.name][1]))


@every_penalty
def test_the_mean_of_per_device_penalties_is_another_number(case):
    z = draw(10)
    devices = np.arange(BATCH) // 3
    local = np.mean([evaluate(case, z, devices == d)[0] for d in range(8)])
    same = np.isclose(local, evaluate(case, z)[0], rtol=1e-4)
    assert same == (not case.coupled)


@pytest.mark.slow
def test_bfloat16_in_float32_out():
    z = jnp.asarray(draw(11)).astype(jnp.bfloat16)
    values = jax.jit(lambda z: [case.loss(z) for case in PENALTIES])(z)
    for case, value in zip(PENALTIES, values):
        close(value, case.reference(np.asarray(z, np.float64)))
        both = jax.eval_shape(jax.value_and_grad(case.loss), z)
        assert [x.dtype for x in both] == [jnp.float32, jnp.bfloat16]


@every_penalty
def test_order_and_size_of_the_outputs(case, rng):
    z = draw(12)
    value = evaluate(case, z)[0]
    close(evaluate(case, z[:, rng.permutation(BATCH)])[0], value)
    if case.divided_by == 1.0:  # the order of members matters after Gram-Schmidt only
        permuted = evaluate(case, z[[2, 0, 1]])[0]
        assert np.isclose(permuted, value, rtol=1e-5) == (not case.ordered)
    if case.power:  # 4 is a power of two: every product is exact but for its exponent
        larger = evaluate(case, 4.0 * z)[0]
        np.testing.assert_allclose(larger, 4.0**case.power * value, rtol=1e-6)


def test_trailing_axes_are_classes_and_no_mask_is_one_of_ones():
    z = draw(15, shape=(MEMBERS, BATCH, 2, 2))
    cases = [case for case in PENALTIES if case.power]

    @jax.jit
    def values(z):
        return [
            (case.loss(z), case.loss(z, jnp.asarray(EVERY)), case.loss(z[:, :, 0, 0]))
            for case in cases
        ]

    for case, (every, masked, first) in zip(cases, values(z)):
        parts = [case.reference(z[:, :, i, j]) for i in range(2) for j in range(2)]
        close(every, np.sum(parts))
        close(masked, np.sum(parts))
        close(first, parts[0])


@every_penalty
def test_a_mask_or_outputs_of_another_shape_are_errors(case):
    z = draw(16)
    with pytest.raises(ValueError, match=r"mask.*\(24,\).*\(3, 24\)"):
        case.loss(z, np.ones((3, 24)))
    with pytest.raises(ValueError, match=r"at least 2 members.*\(1, 24, 2\)"):
        case.loss(z[:1])
    with pytest.raises(TypeError, match=r"floating.point"):
        case.loss(z.astype(np.int32))


@pytest.mark.accelerator
@every_penalty
def test_reference_on_the_accelerator(case):
    z = draw(17)
    close(evaluate(case, z)[0], case.reference(z))
