"""What committees carry besides logits: parts, features and the gate's log-weights."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax.ensembles import Group, apply_committee, from_function, from_linen
from churn_jax.models import Gate
from tests.devices import over_devices
from tests.ensembles.networks import CLASSES, PLAIN, affine, parted

EXAMPLES, INPUTS = 6, 4
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
    return jax.jit(
        lambda trees: apply_committee(groups, trees, X, train=False, **options)[0]
    )(trees)


@pytest.mark.parametrize("name", ["part", "features"])
def test_extras_of_all_groups_are_concatenated_when_asked_for(name):
    groups = (Group(parted(INPUTS), 2), Group(parted(INPUTS, heads=2), 1))
    outputs = applied(groups, extras=(name,))
    assert outputs.logits.shape == (4, EXAMPLES, CLASSES)
    factor = {"part": -1.0, "features": -2.0}[name]
    np.testing.assert_allclose(
        getattr(outputs, name), factor * outputs.logits, rtol=1e-6
    )
    other = {"part": "features", "features": "part"}[name]
    assert getattr(outputs, other) is None  # nobody asked
    assert applied(groups[:1]).part.shape == (2, EXAMPLES, CLASSES)  # costs nothing


def test_a_group_without_the_part_is_named():
    groups = (Group(parted(INPUTS), 1), Group(parted(INPUTS, part=False), 1))
    for order in (groups, groups[::-1]):
        with pytest.raises(ValueError, match=r"^whole returns no part; others do"):
            applied(order, extras=("part",))
    assert applied((Group(affine(INPUTS), 2),), extras=("part",)).part is None


def test_a_part_that_heads_share_is_refused():
    base = parted(INPUTS, heads=2)

    def apply(variables, x, **kwargs):
        outputs, state = base.apply(variables, x, **kwargs)
        return outputs.replace(part=outputs.part[0]), state

    network = dataclasses.replace(base, apply=apply)
    with pytest.raises(ValueError, match=r"part of every head, \[2, 6, ...\]"):
        applied((Group(network, 1),))


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


def test_a_gate_for_another_number_of_members_is_refused():
    gate = Group(from_linen(Gate(3), name="gate"), 1, gate=True)
    with pytest.raises(ValueError, match=r"one log-weight .*, \(2, 6\); got \(3, 6\)"):
        applied((Group(affine(INPUTS), 2), gate))


def test_a_gate_network_of_another_form_is_refused():
    flat = from_function(lambda key, x: {"w": jnp.ones(2)}, lambda p, x: x[:, 0])
    with pytest.raises(ValueError, match=r"must return \[B, K\]; got \(6,\)"):
        applied((Group(affine(INPUTS), 1), Group(flat, 1, gate=True)))


def test_everything_is_gathered_over_a_sharded_member_axis():
    """Groups of two networks over two devices, and what they answer on one."""
    gate = from_linen(Gate(1), name="gate")
    groups = (
        Group(parted(INPUTS), 2),
        Group(parted(INPUTS, heads=2), 2),
        Group(gate, 6, gate=True),
    )
    trees = [drawn(g.network, g.size, seed=i) for i, g in enumerate(groups)]

    def local(trees, member_axis="member"):
        return apply_committee(
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


def test_a_constant_gate_does_not_look_at_the_input_and_has_no_layers():
    gate = Gate(2, constant=True)
    weights = gate.apply({"params": {"bias": jnp.array([1.0, 2.0])}}, X)
    np.testing.assert_array_equal(weights, np.tile([1.0, 2.0], (EXAMPLES, 1)))
    with pytest.raises(ValueError, match="no hidden layers"):
        gate.clone(features=(4,)).init(jax.random.key(0), X)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        Gate(0).init(jax.random.key(0), X)
