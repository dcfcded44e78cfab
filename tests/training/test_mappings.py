"""What is vmapped, written one after another or called, by network and backend."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from churn_jax.ensembles import Group
from churn_jax.methods import ERM, Codistillation
from churn_jax.models.layers import compiling_for
from churn_jax.studies import ModelConfig
from churn_jax.training import MeshShape, OptimizerConfig, TrainConfig, train
from churn_jax.training.examples import example_of
from churn_jax.training.partition import split
from churn_jax.training.program import choose_mappings, over_cores
from churn_jax.training.run import Run, chunk_count
from churn_jax.training.step import make_step
from tests.training import tiny

PHOTO, DIGIT = (32, 32, 3), (28, 28, 1)
TAUGHT = {"teachers": 8}


def chosen(
    name="", *, platform, image=PHOTO, members=1, teachers=0, batch=128, mesh=(), **more
):
    network = ModelConfig(name).build(10) if name else tiny.SLIM
    options = {"replicas": 4, "batch_size": batch, "mesh": MeshShape(*mesh), **more}
    method = ERM() if members == 1 else Codistillation(members=members)
    run = Run("a", method, (Group(network, members),), TrainConfig(**options))
    with compiling_for(platform):
        return choose_mappings(
            run,
            (Group(network, teachers),) if teachers else (),
            example_of(image, tokens=False),
            platform=platform,
            updates=1000,
        )


# Replicas, at once, members and teachers; "" for what a row does not look at.
@pytest.mark.parametrize(
    ("platform", "name", "options", "expected"),
    [
        ("tpu", "mlp", {"image": DIGIT}, ("vmap", 1, "vmap", "")),
        ("tpu", "lenet5", {"image": DIGIT}, ("vmap", 1, "vmap", "")),
        ("tpu", "resnet8", {}, ("loop", 2, "vmap", "")),
        ("tpu", "resnet8", {"replicas": 2}, ("vmap", 1, "vmap", "")),
        ("tpu", "resnet8", {"replicas": 8, "mesh": (4,)}, ("vmap", 1, "vmap", "")),
        ("tpu", "resnet8", {"members": 2}, ("loop", 1, "vmap", "")),
        ("tpu", "resnet8", {"members": 2, "mesh": (1, 2)}, ("loop", 2, "vmap", "")),
        ("tpu", "resnet8", {"batch": 512}, ("loop", 1, "vmap", "")),
        ("tpu", "resnet8", {"batch": 512, "mesh": (1, 1, 4)}, ("loop", 2, "vmap", "")),
        ("tpu", "resnet8", {"mapping": "vmap"}, ("vmap", 1, "vmap", "")),
        ("tpu", "mlp", {"image": DIGIT, "mapping": "loop"}, ("loop", 1, "vmap", "")),
        # Members that do not fit are unrolled if they are few, teachers are scanned.
        ("tpu", "resnet8", {"members": 4}, ("", "", "unroll", "")),
        ("tpu", "resnet8", {"members": 4, "mesh": (1, 4)}, ("", "", "vmap", "")),
        ("tpu", "resnet8", {"members": 6}, ("", "", "vmap", "")),
        ("tpu", "resnet8", {"members": 4, "mapping": "vmap"}, ("", "", "vmap", "")),
        ("tpu", "resnet8", {"teachers": 2}, ("", "", "", "vmap")),
        ("tpu", "resnet8", TAUGHT, ("", "", "", "scan")),
        ("tpu", "resnet8", TAUGHT | {"mesh": (1, 8)}, ("", "", "", "vmap")),
        ("gpu", "resnet8", TAUGHT, ("loop", 1, "vmap", "vmap")),
        ("cpu", "resnet8", TAUGHT, ("loop", 1, "unroll", "unroll")),
        ("cpu", "lenet5", TAUGHT | {"replicas": 10}, ("loop", 1, "unroll", "unroll")),
        ("cpu", "mlp", TAUGHT, ("loop", 1, "vmap", "unroll")),
        ("cpu", "mlp", TAUGHT | {"image": (8, 8, 1)}, ("vmap", 1, "vmap", "vmap")),
    ],
)
def test_what_is_mapped_how(platform, name, options, expected):
    found, teachers, slow_loops = chosen(name, platform=platform, **options)
    replicas, at_once, members, convolutional = found.values()
    resolved = replicas, at_once, members, teachers
    assert all(b in ("", a) for a, b in zip(resolved, expected)), resolved
    assert not slow_loops and convolutional == (name != "mlp")


def test_on_a_cpu_convolutions_of_flax_are_updated_call_by_call():
    assert chosen(platform="cpu")[2] and not chosen(platform="gpu")[2]


@pytest.mark.slow
def test_replicas_called_two_at_a_time_train_like_all_at_once():
    """One replica diverges, which must not change the other one of its call."""
    rates = OptimizerConfig(learning_rate=(0.1, 1e30, 0.1, 0.1), weight_decay=0.0)
    run = tiny.make_run(Codistillation(beta=0.3, alpha=0.1), optimizer=rates)
    ours = tiny.stepper(run)
    program = dataclasses.replace(ours.session.program, mapping="loop", at_once=2)
    assert chunk_count(program, 4) == 2
    step = make_step(program, steps_per_call=2)
    theirs = tiny.stepper(run)
    theirs.step = step
    theirs.states, theirs.teachers = split(theirs.states[0], 2), [(), ()]
    ours, theirs = ours.advance(4), theirs.advance(2)
    assert theirs.alive.tolist() == [True, False, True, True]
    assert theirs.step.tolist() == ours.step.tolist() == [4, 1, 4, 4]
    for r in (0, 2, 3):
        mine, other = tiny.replica(ours, r), tiny.replica(theirs, r)
        assert tiny.largest_difference(mine.params, other.params) < 5e-6
        assert tiny.largest_difference(mine.sums, other.sums) < 1e-5


@pytest.mark.slow
def test_replicas_over_cores_have_the_bits_of_replicas_one_by_one():
    run = functools.partial(tiny.make_run, ERM(), network=tiny.NETWORK, replicas=6)
    spread = over_cores(run(mapping="auto"))
    assert spread.config.mesh == MeshShape(replica=6)  # of eight devices
    named = run(mapping="auto", mesh=MeshShape(data=2))
    assert over_cores(named) is named
    kinds = (run(mapping="loop"), spread, run(mapping="auto", mesh=MeshShape(3)))
    one_by_one, *others = (train(kind, tiny.dataset()).params for kind in kinds)
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, other, one_by_one)
