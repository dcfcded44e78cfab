"""Members of one committee: how they are applied, mapped and averaged."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import ensembles
from churn_jax.ensembles import Group, Outputs, from_linen, stack, take_member
from churn_jax.ensembles.mapping import (
    choose,
    convolved_bytes,
    map_slots,
    unstack,
    vmapped_at_once,
)
from churn_jax.models import create
from tests.ensembles.networks import CLASSES, DROPPED, PLAIN, Heads, affine
from tests.reference_losses import softmax

MEMBERS, EXAMPLES, INPUTS = 3, 6, 4
# Compiled as a whole: one by one, their operations take longer to compile than to run.
apply_members = jax.jit(
    ensembles.apply_members, static_argnums=0, static_argnames=("mapping", "train")
)
apply_committee = jax.jit(
    ensembles.apply_committee, static_argnums=0, static_argnames="train"
)


def alone(network, variables, member, x):
    """What one member of stacked ones answers."""
    return jax.jit(network.apply)(take_member(variables, member), x)[0]


@pytest.fixture(scope="module")
def x():
    return jax.random.normal(jax.random.key(5), (EXAMPLES, INPUTS))


def made(network, x, members=MEMBERS, seed=0):
    keys = jax.random.split(jax.random.key(seed), members)
    return jax.jit(jax.vmap(network.init, (0, None)))(keys, x)


@pytest.mark.parametrize("train", [pytest.param(False, marks=pytest.mark.slow), True])
def test_vmap_unroll_and_a_list_of_trees_agree(x, train):
    variables = made(DROPPED, x)
    keys = jax.random.split(jax.random.key(1), MEMBERS)
    options = {"train": train, "keys": keys if train else None}
    vmapped, vmap_state = apply_members(DROPPED.apply, variables, x, **options)
    unrolled, unroll_state = apply_members(
        DROPPED.apply, variables, x, mapping="unroll", **options
    )
    listed, list_state = apply_members(
        DROPPED.apply, unstack(variables, MEMBERS), x, **options
    )
    assert vmapped.logits.shape == (MEMBERS, EXAMPLES, CLASSES)
    for outputs, state in ((unrolled, unroll_state), (listed, stack(list_state))):
        np.testing.assert_allclose(outputs.logits, vmapped.logits, atol=2e-6)
        chex.assert_trees_all_close(state, vmap_state, atol=2e-6)


@pytest.mark.parametrize("mapping", ["vmap", "unroll"])
def test_heads_are_flattened_network_by_network(x, mapping):
    """Member s K + k is head k of network s; shared features repeat per head."""
    network = from_linen(Heads(2), heads=2)
    variables = made(network, x)
    outputs, _ = apply_members(network.apply, variables, x, mapping=mapping)
    assert outputs.logits.shape == (6, EXAMPLES, CLASSES)
    assert outputs.features.shape == (6, EXAMPLES, 4)
    for s in range(MEMBERS):
        one = alone(network, variables, s, x)
        for k in range(2):
            row = s * 2 + k
            np.testing.assert_allclose(outputs.logits[row], one.logits[k], atol=1e-6)
            np.testing.assert_allclose(outputs.features[row], one.features, atol=1e-6)


def test_heads_with_features_of_their_own_keep_them(x):
    def apply(variables, x, key=None):
        scale = variables["s"] * jnp.arange(1.0, 3.0)
        images = scale[:, None, None] * x[None]
        return Outputs(images[..., :CLASSES], images), {}

    variables = {"s": jnp.array([1.0, 10.0])}
    outputs, _ = apply_members(apply, variables, x)
    factors = outputs.features / x[None]
    np.testing.assert_allclose(factors[:, 0, 0], [1.0, 2.0, 10.0, 20.0], rtol=1e-6)


def test_committee_concatenates_groups_in_order(x):
    heads = from_linen(Heads(2), heads=2)
    groups = (Group(affine(INPUTS), 2), Group(heads, 1), Group(PLAIN, 1))
    trees = [made(g.network, x, g.size, seed=i) for i, g in enumerate(groups)]
    outputs, states = apply_committee(groups, trees, x, train=False)
    assert outputs.logits.shape == (5, EXAMPLES, CLASSES)
    assert sum(g.members for g in groups) == 5
    assert outputs.features is None and len(states) == 3
    first = alone(groups[0].network, trees[0], 1, x)
    last = alone(PLAIN, trees[2], 0, x)
    np.testing.assert_allclose(outputs.logits[1], first.logits, atol=1e-6)
    np.testing.assert_allclose(outputs.logits[4], last.logits, atol=1e-6)


@pytest.mark.parametrize("declared", [1, 3])
def test_heads_other_than_declared_are_an_error(x, declared):
    network = from_linen(Heads(2), heads=declared)
    with pytest.raises(ValueError, match=f"Heads has heads={declared}.*2 members each"):
        apply_committee((Group(network, 2),), [made(network, x, 2)], x, train=False)


def test_every_member_drops_other_units_and_the_same_again(x):
    """Equal weights, so that only dropout tells the members apart."""
    variables = stack([jax.jit(DROPPED.init)(jax.random.key(0), x)] * 2)
    groups, trees = (Group(DROPPED, 2), Group(DROPPED, 2)), [variables, variables]

    def run(seed):
        key = jax.random.key(seed)
        return apply_committee(groups, trees, x, key=key, train=True)[0].logits

    logits = np.asarray(run(0))
    for a in range(4):
        for b in range(a):
            assert np.max(np.abs(logits[a] - logits[b])) > 1e-3
    np.testing.assert_array_equal(run(0), logits)
    assert np.max(np.abs(run(1) - logits)) > 1e-3
    quiet = apply_committee(groups, trees, x, train=False)[0].logits
    np.testing.assert_allclose(
        quiet, np.broadcast_to(quiet[:1], quiet.shape), atol=1e-6
    )


def test_unstack_undoes_stack(x):
    trees = [{"a": x + i, "key": jax.random.key(i)} for i in range(3)]
    for before, after in zip(trees, unstack(stack(trees), 3), strict=True):
        np.testing.assert_array_equal(after["a"], before["a"])
        assert after["key"] == before["key"]


@pytest.mark.parametrize("mapping", ["vmap", "unroll", "scan"])
@pytest.mark.parametrize("count", [1, 3])
def test_map_slots_is_a_loop_over_slots(mapping, count):
    a, b = jnp.arange(count * 2.0).reshape(count, 2), jnp.arange(count * 1.0)
    got = map_slots(lambda a, b: {"out": a * b}, (a, b), count=count, mapping=mapping)
    np.testing.assert_array_equal(got["out"], np.asarray(a) * np.asarray(b)[:, None])


LONG = {"parameters": 85_000, "updates": 10_000}


@pytest.mark.parametrize(
    ("backend", "convolutional", "options", "chosen"),
    [
        ("cpu", True, {}, "loop"),
        ("cpu", False, {}, "vmap"),
        ("cpu", False, {**LONG, "slots": 10}, "unroll"),
        ("cpu", False, {**LONG, "slots": 10, "updates": 240}, "vmap"),
        ("cpu", False, {**LONG, "slots": 20}, "loop"),
        ("cpu", False, {**LONG, "slots": 65}, "vmap"),
        ("cpu", False, {**LONG, "slots": 10, "parameters": 270_000}, "loop"),
        ("tpu", False, {**LONG, "slots": 10}, "vmap"),
        ("gpu", True, {}, "loop"),
        ("gpu", False, {}, "vmap"),
        ("tpu", True, {"split": True}, "loop"),
    ],
)
def test_mapping_is_chosen_by_network_length_and_backend(
    backend, convolutional, options, chosen
):
    options = {**options, "convolutional": convolutional, "backend": backend}
    assert choose("auto", **options) == chosen
    assert choose("unroll", **options) == "unroll"
    with pytest.raises(ValueError, match="auto, vmap, unroll, loop; got 'pmap'"):
        choose("pmap", **options)


@pytest.mark.parametrize(
    ("count", "activations", "backend", "expected"),
    [
        (4, 36, "tpu", 2),  # ResNet-8, batch 128: three would fit, but not divide
        (5, 36, "tpu", 1),
        (3, 36, "tpu", 3),
        (4, 32, "tpu", 4),
        (4, 148, "tpu", 1),  # ResNet-32: not even one fits
        (4, 0, "tpu", 4),  # nothing convolves
        (4, 36, "gpu", 4),
    ],
)
def test_as_many_are_vmapped_as_fast_memory_takes(
    count, activations, backend, expected
):
    assert vmapped_at_once(count, activations * 2**20, backend) == expected


def test_group_needs_a_network():
    with pytest.raises(ValueError, match="at least one network; got 0"):
        Group(PLAIN, 0)


def convolve(images, kernel):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "VALID", dimension_numbers=numbers
    )


def test_bytes_of_all_convolutions_counted_by_hand():
    images, kernel = jnp.zeros((2, 8, 8, 3)), jnp.zeros((3, 3, 3, 16))

    def inside(images, kernel):
        again = jax.jit(jax.checkpoint(convolve))(images, kernel)
        return convolve(images, kernel) + again

    # 6 x 6 pixels, 16 channels, four bytes each, of two images or padded to five.
    assert convolved_bytes(convolve, images, kernel) == 2 * 36 * 16 * 4
    assert convolved_bytes(convolve, images, kernel, lanes=5) == 5 * 36 * 16 * 4
    assert convolved_bytes(inside, images, kernel) == 2 * 2 * 36 * 16 * 4
    assert convolved_bytes(jnp.dot, jnp.zeros((5, 4)), jnp.zeros((4, 3))) == 0
    # ResNet-8: the stem and three blocks of two convolutions; shortcuts have none.
    network = create("resnet8", num_classes=10)
    x = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
    variables = jax.eval_shape(network.init, jax.random.key(0), x)
    stages = 3 * 32 * 32 * 16 + 2 * 16 * 16 * 32 + 2 * 8 * 8 * 64
    assert convolved_bytes(network.apply, variables, x) == 4 * stages


average_logits, average_probs, gate = map(
    jax.jit, (ensembles.average_logits, ensembles.average_probs, ensembles.gate)
)


@pytest.fixture
def logits(rng):
    return (3 * rng.normal(size=(3, 4, 5))).astype(np.float32)


# `deploy` has their values (tests/methods/test_base.py).
@pytest.mark.parametrize("average", [average_probs, average_logits])
def test_extreme_logits_stay_finite_in_value_and_gradient(average, logits):
    z = jnp.array([[[1e4, -1e4, 0.0]], [[-1e4, 1e4, 0.0]]])
    value, gradient = jax.jit(jax.value_and_grad(lambda z: jnp.sum(average(z))))(z)
    assert jnp.isfinite(value) and jnp.all(jnp.isfinite(gradient))
    assert average(logits.astype(jnp.bfloat16)).dtype == jnp.float32


def test_a_class_that_one_member_excludes_keeps_the_others_share():
    z = jnp.array([[[0.0, -jnp.inf]], [[0.0, 0.0]]])
    np.testing.assert_allclose(jnp.exp(average_probs(z)), [[0.75, 0.25]], rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 1), (3, 4)])
def test_gate_mixes_with_one_weight_per_model_or_example(logits, rng, shape):
    weights = rng.dirichlet(np.ones(3), size=shape[1]).T
    mixed = np.broadcast_to(weights, (3, 4))
    expected = np.log(np.einsum("mb,mbc->bc", mixed, softmax(logits)))
    given = np.log(weights if shape == (3, 4) else weights[:, 0]) + 7.0
    got = gate(logits, given)  # weights are normalised
    np.testing.assert_allclose(got, expected, rtol=3e-6, atol=1e-6)


def test_gate_that_closes_on_a_model_ignores_it(logits):
    got = gate(logits, np.array([0.0, -np.inf, -np.inf]))
    np.testing.assert_allclose(got, jax.nn.log_softmax(logits[0]), atol=1e-6)


@pytest.mark.parametrize("shape", [(), (4,), (3, 5)])
def test_gate_refuses_weights_of_another_form(logits, shape):
    with pytest.raises(ValueError, match=r"must be \(3,\) or \(3, 4\); got \("):
        gate(logits, np.zeros(shape))


@pytest.mark.parametrize("average", [average_probs, average_logits])
def test_integer_logits_are_refused(average):
    with pytest.raises(TypeError, match="floating"):
        average(jnp.zeros((2, 3), jnp.int32))
