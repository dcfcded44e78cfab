"""Members of one committee: how they are applied, mapped, averaged and gated."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax import ensembles
from churn_jax.ensembles import (
    Group,
    Outputs,
    from_function,
    from_linen,
    stack,
    take_member,
)
from churn_jax.ensembles.mapping import (
    choose,
    convolved_bytes,
    map_slots,
    unstack,
    vmapped_at_once,
)
from churn_jax.models import Gate, create
from tests.devices import over_devices
from tests.ensembles.networks import CLASSES, DROPPED, PLAIN, Heads, affine, parted
from tests.reference_losses import softmax
from tests.refusals import refusals

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


def test_vmap_unroll_and_a_list_of_trees_agree(x):
    variables = made(DROPPED, x)
    keys = jax.random.split(jax.random.key(1), MEMBERS)
    options = {"train": True, "keys": keys}
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
    np.testing.assert_allclose(quiet, jnp.stack([quiet[0]] * 4), atol=1e-6)


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


def declared(heads):
    network, x = from_linen(Heads(2), heads=heads), np.zeros((EXAMPLES, INPUTS), "f4")
    apply_committee((Group(network, 2),), [made(network, x, 2)], x, train=False)


def gated(*shape):
    gate(np.zeros((3, 4, 5), np.float32), np.zeros(shape))


FORMS, INTEGERS = r"must be \(3,\) or \(3, 4\); got \(", jnp.zeros((2, 3), jnp.int32)

test_what_does_not_fit_is_refused = refusals(
    (Group, PLAIN, 0, "at least one network; got 0"),
    (take_member, {"w": jnp.ones((3, 2))}, 3, "there are 3 members; got index 3"),
    *((declared, k, f"Heads has heads={k}.*2 members each") for k in (1, 3)),
    (lambda: choose("pmap", convolutional=True), "unroll, loop; got 'pmap'"),
    *((gated, *shape, FORMS) for shape in ((), (4,), (3, 5))),
    *((average, INTEGERS, "floating") for average in (average_probs, average_logits)),
    call=lambda call, *given: call(*given),
    error=(IndexError, TypeError, ValueError),
)


# ---- what committees carry besides logits: parts, features, log-weights


X = np.random.default_rng(0).normal(size=(EXAMPLES, INPUTS)).astype(np.float32)


def drawn(network, size, seed=0):
    """Weights without Flax's draws, which take long to compile."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(network.init, jax.random.key(0), X)
    return jax.tree.map(
        lambda leaf: np.float32(rng.normal(size=(size, *leaf.shape))), shapes
    )


def applied(groups, **options):
    trees = [drawn(g.network, g.size, seed=i) for i, g in enumerate(groups)]
    apply = functools.partial(ensembles.apply_committee, groups, train=False, **options)
    return jax.jit(lambda trees: apply(trees, X)[0])(trees)


@pytest.mark.parametrize("name", ["part", "features"])
def test_extras_of_all_groups_are_concatenated_when_asked_for(name):
    groups = (Group(parted(INPUTS), 2), Group(parted(INPUTS, heads=2), 1))
    outputs = applied(groups, extras=(name,))
    assert outputs.logits.shape == (4, EXAMPLES, CLASSES)
    factor = {"part": -1.0, "features": -2.0}[name]
    got = getattr(outputs, name)
    np.testing.assert_allclose(got, factor * outputs.logits, rtol=1e-6)
    other = {"part": "features", "features": "part"}[name]
    assert getattr(outputs, other) is None  # nobody asked
    assert getattr(applied((Group(affine(INPUTS), 2),), extras=(name,)), name) is None
    assert applied(groups[:1]).part.shape == (2, EXAMPLES, CLASSES)  # costs nothing


def test_networks_may_bring_log_weights_of_their_own():
    groups = (Group(parted(INPUTS, gate=True), 2), Group(parted(INPUTS, gate=True), 1))
    outputs = applied(groups)
    np.testing.assert_allclose(
        outputs.gate, -np.sum(outputs.logits, axis=-1), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("outputs", "size"), [(3, 1), (1, 3)])
def test_a_gate_group_weights_every_member_and_example(outputs, size):
    network = from_linen(Gate(outputs), name="gate")
    members = (Group(affine(INPUTS), 2), Group(PLAIN, 1))
    weights = drawn(network, size, seed=2)["params"]["head"]
    got = applied((*members, Group(network, size, gate=True)))
    assert got.logits.shape == (3, EXAMPLES, CLASSES)
    columns = np.concatenate(list(weights["kernel"]), axis=-1)
    expected = X @ columns + np.concatenate(list(weights["bias"]))
    np.testing.assert_allclose(got.gate, expected.T, rtol=1e-5, atol=1e-6)
    assert applied(members).gate is None


def test_everything_is_gathered_over_a_sharded_member_axis():
    """Groups of two networks over two devices, and what they answer on one."""
    gate = from_linen(Gate(1), name="gate")
    members = Group(parted(INPUTS), 2), Group(parted(INPUTS, heads=2), 2)
    groups = (*members, Group(gate, 6, gate=True))
    trees = [drawn(g.network, g.size, seed=i) for i, g in enumerate(groups)]

    def local(trees, member_axis="member"):
        return ensembles.apply_committee(
            groups,
            trees,
            X,
            member_axis=member_axis,
            extras=("part", "features"),
            train=False,
        )[0]

    mapped = over_devices(local, P("member"), devices=2, axis="member")
    sharded = mapped(trees)
    whole = jax.jit(lambda trees: local(trees, None))(trees)
    assert sharded.part.shape == sharded.features.shape == (6, EXAMPLES, CLASSES)
    assert sharded.gate.shape == (6, EXAMPLES)
    chex.assert_trees_all_close(sharded, whole, rtol=1e-6)


@pytest.mark.parametrize("features", [(), (5,)])
def test_a_gate_starts_as_the_plain_average_and_can_leave_it(features):
    gate = Gate(2, features=features)

    def loss(variables):
        return jnp.sum(gate.apply(variables, X)[:, 0])

    variables = jax.jit(gate.init)(jax.random.key(0), X)
    value, gradient = jax.jit(jax.value_and_grad(loss))(variables)
    assert value == 0.0
    assert np.abs(gradient["params"]["head"]["kernel"]).max() > 0.01


def test_a_constant_gate_does_not_look_at_the_input():
    gate = Gate(2, constant=True)
    weights = gate.apply({"params": {"bias": jnp.array([1.0, 2.0])}}, X)
    np.testing.assert_array_equal(weights, np.tile([1.0, 2.0], (EXAMPLES, 1)))


def shared_part(variables, x, **kwargs):
    outputs, state = parted(INPUTS, heads=2).apply(variables, x, **kwargs)
    return outputs.replace(part=outputs.part[0]), state


PARTS = (Group(parted(INPUTS), 1), Group(parted(INPUTS, part=False), 1))
SHARED = Group(dataclasses.replace(parted(INPUTS, heads=2), apply=shared_part), 1)
THREE = Group(from_linen(Gate(3), name="gate"), 1, gate=True)
GATE = Group(from_linen(Gate(2), name="gate"), 1, gate=True)
AFFINE = Group(affine(INPUTS), 2)
COLUMN = from_function(lambda key, x: {"w": jnp.ones(2)}, lambda p, x: x[:, 0])
FLAT = Group(COLUMN, 1, gate=True)
NO_PART = "^whole returns no part; others do"

test_committees_that_cannot_be_are_refused = refusals(
    (lambda: applied(PARTS, extras=("part",)), NO_PART),
    (lambda: applied(PARTS[::-1], extras=("part",)), NO_PART),
    (lambda: applied([SHARED]), r"part of every head, \[2, 6, ...\]"),
    (lambda: applied([AFFINE, THREE]), r"one log-weight .*, \(2, 6\); got \(3, 6\)"),
    (lambda: applied([GATE]), "at most one of gates; got 0 and 1"),
    (lambda: applied([AFFINE, GATE, GATE]), "at most one of gates; got 1 and 2"),
    (lambda: applied([AFFINE, FLAT]), r"must return \[B, K\]; got \(6,\)"),
    (lambda: Gate(2, (4,), constant=True).apply({}, X), "no hidden layers"),
    (lambda: Gate(0).apply({}, X), "at least 1; got 0"),
)
