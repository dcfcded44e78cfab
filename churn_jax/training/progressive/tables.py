"""Embedding tables as the step takes them, and as a checkpoint has them.

The step takes one table per device, in which the blocks of its replicas lie one after
another. From tables with a replica axis XLA for TPUs made that one at the beginning of
every window and those again at its end: by its own estimate in 350 million cycles,
where ten million learn the 32 batches between.

Which row lies where in the step's form depends on the mesh. So checkpoints have the
other one, and go on where there are more or fewer devices.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax._jax import to_varying
from churn_jax.training.partition import DATA, REPLICA
from churn_jax.typing import Array

__all__ = [
    "BY_REPLICA",
    "IN_STEP",
    "apart",
    "as_one",
    "by_replica",
    "in_step",
    "joined",
    "placed_in_step",
    "shapes_by_replica",
]

State = TypeVar("State")

# How tables `[R, V, width]` and the step's `[R V, width]` lie on the mesh.
BY_REPLICA: Any = P(REPLICA, DATA)
IN_STEP: Any = P((REPLICA, DATA))

# XLA for TPUs looks rows up in a table whose rows it pads to 128 numbers where that
# needs at most twice the memory, and counts a row's numbers in eights.
_PADDED_FROM = 57
_ROW_AFTER_ROW = Layout(major_to_minor=(0, 1))


def placed_in_step(mesh: Mesh, width: int) -> Any:
    """Where and in which layout a table lies between windows.

    A wide one lies row after row. That is the layout of every backend except a
    TPU, which would otherwise pad the rows in every window, in memory of their own.

    Args:
        mesh: of the step.
        width: of the table.

    Returns:
        A sharding for `jax.jit`, or a `Format`.
    """
    sharding = NamedSharding(mesh, IN_STEP)
    return sharding if width < _PADDED_FROM else Format(_ROW_AFTER_ROW, sharding)


def as_one(blocks: Array) -> Array:
    """The replicas' blocks of one device as one table.

    Block after block, here and in `apart`: of a reshape XLA for TPUs makes passes that
    need memory for two tables more.

    Args:
        blocks: `[R, N, width]`, inside `shard_map`.

    Returns:
        `[R N, width]`.
    """
    replicas, block, width = blocks.shape

    def put(replica, table):
        return jax.lax.dynamic_update_slice_in_dim(
            table, blocks[replica], replica * block, axis=0
        )

    return jax.lax.fori_loop(0, replicas, put, _zeros(replicas * block, width))


def apart(table: Array, replicas: int) -> Array:
    """The inverse of `as_one`.

    Args:
        table: `[R N, width]`, inside `shard_map`.
        replicas: R.

    Returns:
        `[R, N, width]`.
    """
    block = table.shape[0] // replicas

    def put(replica, blocks):
        one = jax.lax.dynamic_slice_in_dim(table, replica * block, block, axis=0)
        return jax.lax.dynamic_update_index_in_dim(blocks, one, replica, axis=0)

    return jax.lax.fori_loop(0, replicas, put, _zeros(replicas, block, table.shape[1]))


def _zeros(*shape: int) -> Array:
    """Each device's own."""
    return to_varying(jnp.zeros(shape, jnp.float32), (REPLICA, DATA))


@functools.lru_cache(maxsize=16)
def joined(mesh: Mesh, width: int) -> Any:
    """Compiles `as_one` of all devices: tables `[R, V, width]` to `[R V, width]`."""
    placed = placed_in_step(mesh, width)
    return _compiled(mesh, as_one, BY_REPLICA, IN_STEP, out_shardings=placed)


@functools.lru_cache(maxsize=16)
def _split(mesh: Mesh, replicas: int) -> Callable[[Array], Array]:
    local = functools.partial(apart, replicas=replicas // mesh.shape[REPLICA])
    return _compiled(mesh, local, IN_STEP, BY_REPLICA)


def _compiled(mesh, function, given, wanted, **options):
    return jax.jit(
        jax.shard_map(
            function, mesh=mesh, in_specs=given, out_specs=wanted, check_vma=True
        ),
        **options,
    )


def by_replica(mesh: Mesh, state: State) -> State:
    """A state as a checkpoint has it; the one given is gone.

    One table after another, each freed before the next is made: a device needs room
    for one more. Nothing goes to another device.

    Args:
        mesh: of the step.
        state: a `StreamState` with tables `[R V, width]`.

    Returns:
        The state with tables `[R, V, width]`.
    """
    return _turned(state, _split(mesh, _replicas(state)))


def in_step(mesh: Mesh, state: State) -> State:
    """The inverse of `by_replica`, likewise."""
    return _turned(state, joined(mesh, _tables(state).shape[-1]))


def shapes_by_replica(mesh: Mesh, state: State) -> State:
    """What `by_replica` would return: its tables as shapes with shardings."""
    replicas, sharding = _replicas(state), NamedSharding(mesh, BY_REPLICA)

    def shape(table):
        rows, width = table.shape
        found = (replicas, rows // replicas, width)
        return jax.ShapeDtypeStruct(found, table.dtype, sharding=sharding)

    return _mapped(state, shape)


def _tables(state: Any) -> Array:
    return state.tables


def _replicas(state: Any) -> int:
    return state.dense.alive.shape[0]


def _turned(state: State, function: Callable[[Array], Array]) -> State:
    def turn(table):
        turned = jax.block_until_ready(function(table))
        table.delete()
        return turned

    return _mapped(state, turn)


def _mapped(state: Any, function: Callable[[Array], Any]) -> Any:
    """With the tables, and what their optimiser keeps, in another form."""
    tables, kept = jax.tree.map(function, (state.tables, state.accumulators))
    return dataclasses.replace(state, tables=tables, accumulators=kept)
