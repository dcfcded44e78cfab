"""The two forms of the tables."""

import functools

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding

from churn_jax.training.partition import MeshShape, make_mesh
from churn_jax.training.progressive.tables import (
    BY_REPLICA,
    IN_STEP,
    by_replica,
    in_step,
    joined,
    shapes_by_replica,
)
from tests.training.progressive.streams import tiny_run
from tests.training.progressive.test_step import ready

pytestmark = pytest.mark.usefixtures("quick_to_compile")

REPLICAS, ROWS, WIDTH = 4, 8, 3


@functools.cache
def drawn():
    return np.random.default_rng(0).normal(size=(REPLICAS, ROWS, WIDTH)).astype("f")


def on(mesh):
    return jax.device_put(drawn(), NamedSharding(mesh, BY_REPLICA))


def test_a_device_holds_the_blocks_of_its_replicas_one_after_another():
    """By hand: 2 x 2 devices, each with 2 of 4 replicas and 4 of 8 rows."""
    mesh = make_mesh(MeshShape(2, 1, 2))
    table = joined(mesh)(on(mesh))
    wanted = [
        drawn()[replica, rows]
        for replicas in ((0, 1), (2, 3))
        for rows in (slice(0, 4), slice(4, 8))
        for replica in replicas
    ]
    np.testing.assert_array_equal(table, np.concatenate(wanted))
    assert table.sharding.is_equivalent_to(NamedSharding(mesh, IN_STEP), 2)


@pytest.mark.parametrize("axes", [(1, 1, 1), (4, 1, 2), (2, 1, 4), (1, 1, 8)])
def test_a_checkpoints_form_does_not_depend_on_the_mesh(axes, state):
    mesh = make_mesh(MeshShape(*axes))
    table, squares = joined(mesh)(on(mesh)), joined(mesh)(on(mesh))
    held = state.replace(tables=table, accumulators=squares)
    promised = shapes_by_replica(mesh, held)
    saved = by_replica(mesh, held)
    assert table.is_deleted() and squares.is_deleted()
    for one, shape in (
        (saved.tables, promised.tables),
        (saved.accumulators, promised.accumulators),
    ):
        np.testing.assert_array_equal(one, drawn())
        assert (one.shape, one.dtype) == (shape.shape, shape.dtype)
        assert one.sharding.is_equivalent_to(shape.sharding, 3)
    back = in_step(mesh, saved)
    np.testing.assert_array_equal(back.tables, joined(mesh)(on(mesh)))
    assert back.dense is state.dense


@pytest.fixture(scope="module")
def state():
    return ready(tiny_run(replicas=REPLICAS))[2]


def test_without_accumulators_there_is_only_the_table(state):
    mesh = make_mesh(MeshShape())
    held = state.replace(tables=joined(mesh)(on(mesh)), accumulators=())
    assert by_replica(mesh, held).accumulators == ()


def test_nothing_goes_to_another_device():
    mesh = make_mesh(MeshShape(2, 1, 4))
    text = str(joined(mesh).lower(on(mesh)).compile().as_text())
    assert "dynamic-update-slice" in text
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in text
