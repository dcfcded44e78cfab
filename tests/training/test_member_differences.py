"""Members that learn at rates of their own; inputs that start at a larger scale."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import models
from churn_jax.ensembles import Group, from_linen
from churn_jax.methods import ERM, AntiDistillation
from churn_jax.training import MeshShape, OptimizerConfig, Seeds
from churn_jax.training.state import scale_inputs
from tests.refusals import refusals
from tests.training import tiny

RATES = (0.5, 0.0, 2.0, 1.0)
IMAGE = jnp.zeros((1, 8, 8, 1))
ALGORITHMS = ("adagrad", "sgd", "adam", "adagrad")
MLP, GATE = (
    from_linen(models.create("mlp", num_classes=outputs, features=(6,)))
    for outputs in (tiny.CLASSES, 2)
)


@functools.cache
def moved(rates=(), shape=(1, 1, 1), mapping="vmap", algorithms=(), updates=1):
    """How far updates led each of four networks, in two groups; SGD unless named."""
    run = tiny.linear_run(
        ERM(members=4),
        mesh=MeshShape(*shape),
        mapping=mapping,
        optimizer=OptimizerConfig(
            learning_rate=(0.1, 0.05),
            momentum=0.0,
            weight_decay=0.0,
            member_rates=rates,
            member_algorithms=algorithms,
        ),
        seeds=Seeds(members="shared"),  # as networks with rates of their own do
    )
    half = Group(tiny.LINEAR, 2)
    stepper = tiny.stepper(dataclasses.replace(run, groups=(half, half)))
    start, first = stepper.now(), stepper.advance(updates)
    kernels = [
        np.concatenate([np.asarray(g["kernel"]) for g in state.params], axis=1)
        for state in (start, first)
    ]
    return kernels[1] - kernels[0]  # [R, 4, D, C]


def test_every_network_moves_at_its_own_rate():
    plain, own = moved(), moved(RATES, (2, 2, 2), "unroll")
    for slot, rate in enumerate(RATES):
        expected = rate * plain[:, slot]
        np.testing.assert_allclose(own[:, slot], expected, rtol=1e-3, atol=1e-6)
    assert not np.any(own[:, 1])
    assert all(np.abs(plain[:, slot]).max() > 1e-3 for slot in range(4))


@pytest.mark.slow
def test_every_network_is_trained_by_its_own_algorithm():
    own = moved(shape=(2, 2, 2), algorithms=ALGORITHMS, updates=2)
    for slot, algorithm in enumerate(ALGORITHMS):
        alone = moved(algorithms=(algorithm,) * 4, updates=2)
        expected = alone[:, slot]
        np.testing.assert_allclose(own[:, slot], expected, rtol=1e-3, atol=1e-6)
        plain = np.abs(expected - moved(updates=2)[:, slot]).max()
        assert (plain < 1e-6) == (algorithm == "sgd")


test_there_is_a_setting_for_every_network_or_for_none = refusals(
    ({"member_rates": (1.0, 0.5, 0.1)}, "one per network of a replica, 2; got 3"),
    (
        {"member_algorithms": ("sgd", "adam", "adagrad")},
        "algorithms .*one per network of a replica, 2; got 3",
    ),
    call=lambda own: tiny.session_of(
        tiny.linear_run(ERM(members=2), optimizer=OptimizerConfig(**own))
    ),
)


def start(*scale):
    """The weights at the start of three replicas, of two networks and a gate."""
    options = {"input_scale": np.float32(scale)} if scale else {}
    method = AntiDistillation(members=2, deploy="gate", **options)
    run = tiny.make_run(method, network=MLP, replicas=3, seeds=Seeds(1, init="fixed"))
    run = dataclasses.replace(run, groups=(*run.groups, Group(GATE, 1, gate=True)))
    variables = jax.device_get(tiny.drawn(run, IMAGE))
    return [group["params"] for group in variables]


def test_the_input_layers_weights_are_scaled_by_the_root_of_s():
    plain, scaled = start(), start(1.0, 4.0, 9.0)
    ratio = scaled[0]["dense1"]["kernel"] / plain[0]["dense1"]["kernel"]
    np.testing.assert_allclose(ratio[0], 1.0, rtol=0)
    np.testing.assert_allclose(ratio[1], 2.0, rtol=1e-6)
    np.testing.assert_allclose(ratio[2], 3.0, rtol=1e-6)
    for tree in (plain[0], scaled[0]):
        del tree["dense1"]["kernel"]
    assert tiny.bitwise_equal(plain, scaled)  # other layers, biases, the gate


def test_fast_weights_and_members_biases_are_not_scaled():
    rng = np.random.default_rng(0)
    shapes = {"kernel": (5, 6), "fast_in": (4, 5), "fast_out": (4, 6), "bias": (4, 6)}
    layer = {
        name: rng.normal(size=(3, 1, *s)).astype(np.float32)
        for name, s in shapes.items()
    }
    scaled = scale_inputs(MLP, {"dense1": layer}, np.float32([1.0, 4.0, 9.0]))["dense1"]
    ratio = scaled["kernel"] / layer["kernel"]
    np.testing.assert_allclose(ratio[:, 0, 0, 0], [1.0, 2.0, 3.0], rtol=1e-6)
    for name in ("fast_in", "fast_out", "bias"):
        np.testing.assert_array_equal(scaled[name], layer[name])


test_inputs_that_cannot_be_scaled_are_named = refusals(
    (tiny.LINEAR, 2.0, "function does not say which parameters the input meets"),
    (MLP, -1.0, "input_scale must be at least 0; got -1"),
    (MLP, (1.0, 2.0), r"one per replica, \[3\]; got shape \(2,\)"),
    call=lambda network, scale: tiny.drawn(
        tiny.make_run(ERM(input_scale=scale), network=network, replicas=3), IMAGE
    ),
)


@pytest.mark.parametrize("name", ["lenet5", "resnet8"])
def test_networks_of_the_zoo_name_the_layer_that_sees_the_image(name):
    network = from_linen(models.create(name, num_classes=3))
    image = jax.ShapeDtypeStruct((1, 32, 32, 7), jnp.float32)
    params = jax.eval_shape(network.init, jax.random.key(0), image)["params"]
    (layer,) = network.input_params
    assert params[layer]["kernel"].shape[-2] == 7
