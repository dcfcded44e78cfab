"""`predict_split`: every example once, in order, whatever the batch size and mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.configuration.training import MeshShape, OptimizerConfig
from churn_jax.ensembles import Group, from_function
from churn_jax.methods import ERM, Codistillation
from churn_jax.training.partition import (
    REPLICA,
    make_mesh,
    place,
    replicate,
)
from churn_jax.training.predictions import make_predict, predict_split
from churn_jax.training.program import Program

EXAMPLES = 13
IMAGES = np.arange(EXAMPLES * 2, dtype=np.float32).reshape(EXAMPLES, 2)


def program_of(mesh, *, members=1, mapping="vmap", mean=0.0, std=1.0):
    """A network that says which example it sees: `scale * image`."""
    network = from_function(lambda key, x: {}, lambda p, x: p["scale"] * x)
    return Program(
        groups=(Group(network, members),),
        optimizer=OptimizerConfig(),
        schedule=lambda count: 1.0,
        batch_size=8,
        mesh=mesh,
        mapping=mapping,
        mean=mean,
        std=std,
    )


def predictions(
    batch_size,
    *,
    shape=None,
    replicas=2,
    members=1,
    mapping="vmap",
    every_member=False,
    method=None,
    **program,
):
    mesh = make_mesh(shape or MeshShape())
    scale = 1.0 + np.arange(replicas * members, dtype=np.float32)
    scale = scale.reshape(replicas, members)
    params = ({"scale": place(scale, mesh, jax.sharding.PartitionSpec(REPLICA))},)
    predict = make_predict(
        program_of(mesh, members=members, mapping=mapping, **program),
        method or ERM(members=members),
        every_member=every_member,
    )
    logits = predict_split(
        predict, [(params, ({},))], replicate(IMAGES, mesh), mesh, batch_size=batch_size
    )
    return np.asarray(logits), scale


@pytest.mark.parametrize("batch_size", [1, 4, 5, 13, 1000])
def test_every_example_is_predicted_once_and_in_order(batch_size):
    logits, scale = predictions(batch_size)
    np.testing.assert_array_equal(logits, scale[:, :, None] * IMAGES[None])


@pytest.mark.parametrize("batch_size", [3, 8, 11])
def test_batches_are_padded_over_a_mesh(batch_size):
    """Four data shards: sizes are rounded to a multiple of four, nothing is lost."""
    logits, scale = predictions(batch_size, shape=MeshShape(replica=2, data=4))
    np.testing.assert_array_equal(logits, scale[:, :, None] * IMAGES[None])


@pytest.mark.parametrize("mapping", ["vmap", "unroll", "loop"])
def test_every_member_has_an_axis_of_its_own(mapping):
    logits, scale = predictions(5, members=3, every_member=True, mapping=mapping)
    assert logits.shape == (2, 3, EXAMPLES, 2)
    np.testing.assert_array_equal(logits, scale[:, :, None, None] * IMAGES[None, None])


@pytest.mark.parametrize(
    "method",
    [
        ERM(members=3, deployed_member=2),
        Codistillation(members=3, deployed_member=1),
        Codistillation(members=3, deployed_member=2, update="independent"),
        Codistillation(members=3, deployed_member=2, member_sample="bootstrap"),
    ],
    ids=["plain", "joint", "independent", "twin"],
)
def test_the_deployed_member_is_predicted(method):
    logits, scale = predictions(6, members=3, method=method)
    chosen = scale[:, method.deployed_member, None, None]
    np.testing.assert_array_equal(logits, chosen * IMAGES[None])


def test_members_on_two_devices_are_gathered_in_order():
    logits, scale = predictions(
        8, members=2, every_member=True, shape=MeshShape(replica=2, member=2, data=2)
    )
    np.testing.assert_array_equal(logits, scale[:, :, None, None] * IMAGES[None, None])


def test_images_are_normalised_as_in_training():
    logits, scale = predictions(4, mean=0.5, std=0.25)
    from churn_jax.data import normalize

    expected = np.asarray(normalize(jnp.asarray(IMAGES), 0.5, 0.25))
    np.testing.assert_allclose(logits, scale[:, :, None] * expected[None], rtol=1e-6)
