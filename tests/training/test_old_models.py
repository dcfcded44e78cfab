"""Old models on a mesh: run, their last layers read, their confusions counted."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from churn_jax.configuration.training import MeshShape
from churn_jax.data.augment import Augmentation
from churn_jax.ensembles import Outputs, from_function
from churn_jax.ensembles.network import linear_head
from churn_jax.methods import BackwardCompatible, BayesianUpdate
from churn_jax.methods.updating import Updating
from churn_jax.training.teachers import Teachers
from tests.training import tiny

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]

WIDTH = 6


def _init(key, x):
    first, last = jax.random.split(key)
    size = x[0].size
    return {
        "hidden": jax.random.normal(first, (size, WIDTH)) / size**0.5,
        "head": {"kernel": jax.random.normal(last, (WIDTH, tiny.CLASSES))},
    }


def _apply(params, x):
    features = jnp.tanh(x.reshape(x.shape[0], -1) @ params["hidden"])
    return Outputs(features @ params["head"]["kernel"], features)


NETWORK = dataclasses.replace(from_function(_init, _apply), head=linear_head)


@struct.dataclass
class Both(Updating):
    """The sum of a method that runs old models and one that reads their last layers.

    One program to compile instead of two.
    """

    def parts(self):
        return (
            BayesianUpdate(alpha=0.5, olds=2, members=self.members),
            BackwardCompatible(members=self.members),
        )

    def init_memory(self, num_classes):
        return self.parts()[0].init_memory(num_classes)

    def loss(self, apply, variables, batch, **how):
        update, other = (p.loss(apply, variables, batch, **how) for p in self.parts())
        terms = {**update.terms, **other.terms}
        return update.replace(loss=update.loss + other.loss, terms=terms)


@functools.cache
def after(shape, updates=3):
    """The state after some updates with two old models, and the stepper."""
    run = tiny.make_run(
        Both(members=2),
        network=NETWORK,
        replicas=2,
        mesh=MeshShape(*shape),
        augmentation=Augmentation(),
    )
    old = tuple(tiny.teacher(1, 2, NETWORK) for _ in range(2))
    stepper = tiny.stepper(run, taught_by=Teachers(old=old))
    return stepper, stepper.advance(updates)


def test_a_mesh_computes_what_one_device_computes():
    (_, one), (stepper, other) = after((1, 1, 1)), after((2, 2, 2))
    assert len(stepper.states[0].memory.sharding.device_set) == 8
    assert tiny.bitwise_equal(one.memory, other.memory)  # counts
    assert tiny.largest_difference(one.params, other.params) < 1e-5
    assert tiny.largest_difference(one.sums, other.sums) < 1e-3


def test_memory_holds_the_confusions_of_every_example_seen():
    stepper, state = after((1, 1, 1))
    start = stepper.run.method.init_memory(tiny.CLASSES)
    counts = np.asarray(state.memory) - np.asarray(start)
    assert counts.shape == (2, 4, tiny.CLASSES, tiny.CLASSES)
    np.testing.assert_allclose(counts.sum((-2, -1)), 3 * tiny.BATCH, rtol=1e-5)
    # Rows are of the labels, so they add up alike for all models.
    rows = counts.sum(-1)
    np.testing.assert_allclose(rows, np.broadcast_to(rows[:, :1], rows.shape), 1e-5)
