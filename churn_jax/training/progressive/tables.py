"""The two forms of embedding tables: the step's, and a checkpoint's.

The step takes one table per device, in which the blocks of its replicas lie one after
another. From tables with a replica axis XLA for TPUs made that one at the beginning of
every window and those again at its end: by its own estimate in 350 million cycles, when
ten million learn the 32 batches in between.

The place of a row in the step's form depends on the mesh. So checkpoints have the other
form and can be continued on more or fewer devices.
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
    "as_blocks",
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

# XLA for TPUs looks rows up in a table whose rows it pads to 128 numbers if that needs
# at most twice the memory, and counts a row's numbers in eights.
_PADDED_FROM = 57
_ROW_AFTER_ROW = Layout(major_to_minor=(0, 1))


def placed_in_step(mesh: Mesh, width: int) -> Any:
    """Sharding or `Format` of a table of some width between windows, for `jax.jit`.

    A wide one lies row after row. That is the layout of every backend except a TPU,
    which would otherwise pad the rows in every window, in memory of their own.
    """
    sharding = NamedSharding(mesh, IN_STEP)
    return sharding if width < _PADDED_FROM else Format(_ROW_AFTER_ROW, sharding)


def as_one(blocks: Array) -> Array:
    """A device's blocks `[R, N, width]` of its replicas as one table `[R N, width]`."""
    # Block after block, here and in `as_blocks`: a reshape needs memory for two more
    # tables in XLA for TPUs.
    replicas, block, width = blocks.shape

    def put(replica, table):
        return jax.lax.dynamic_update_slice_in_dim(
            table, blocks[replica], replica * block, axis=0
        )

    return jax.lax.fori_loop(0, replicas, put, _zeros(replicas * block, width))


def as_blocks(table: Array, replicas: int) -> Array:
    """The inverse of `as_one`."""
    block = table.shape[0] // replicas

    def put(replica, blocks):
        one = jax.lax.dynamic_slice_in_dim(table, replica * block, block, axis=0)
        return jax.lax.dynamic_update_index_in_dim(blocks, one, replica, axis=0)

    return jax.lax.fori_loop(0, replicas, put, _zeros(replicas, block, table.shape[1]))


def _zeros(*shape: int) -> Array:
    return to_varying(jnp.zeros(shape, jnp.float32), (REPLICA, DATA))


@functools.lru_cache(maxsize=16)
def joined(mesh: Mesh, width: int) -> Any:
    """Compiles `as_one` for all devices: tables `[R, V, width]` to `[R V, width]`."""
    placed = placed_in_step(mesh, width)
    return _compiled(mesh, as_one, BY_REPLICA, IN_STEP, out_shardings=placed)


@functools.lru_cache(maxsize=16)
def _split(mesh: Mesh, replicas: int) -> Callable[[Array], Array]:
    local = functools.partial(as_blocks, replicas=replicas // mesh.shape[REPLICA])
    return _compiled(mesh, local, IN_STEP, BY_REPLICA)


def _compiled(mesh, function, given, wanted, **options):
    return jax.jit(
        jax.shard_map(
            function, mesh=mesh, in_specs=given, out_specs=wanted, check_vma=True
        ),
        **options,
    )


def by_replica(mesh: Mesh, state: State) -> State:
    """A state in a checkpoint's form, tables `[R, V, width]`; the given one is gone.

    One table after another, each freed before the next is made: a device needs room for
    one more table. Nothing moves between devices.
    """
    return _turned(state, _split(mesh, _replicas(state)))


def in_step(mesh: Mesh, state: State) -> State:
    """The inverse of `by_replica`."""
    return _turned(state, joined(mesh, _width(state)))


def shapes_by_replica(mesh: Mesh, state: State) -> State:
    """The result of `by_replica`, with shapes for tables."""
    replicas, sharding = _replicas(state), NamedSharding(mesh, BY_REPLICA)

    def shape(table):
        rows, width = table.shape
        found = (replicas, rows // replicas, width)
        return jax.ShapeDtypeStruct(found, table.dtype, sharding=sharding)

    return _mapped(state, shape)


def _replicas(state: Any) -> int:
    return state.dense.alive.shape[0]


def _width(state: Any) -> int:
    return state.tables.shape[-1]


def _turned(state: State, function: Callable[[Array], Array]) -> State:
    def turn(table):
        turned = jax.block_until_ready(function(table))
        table.delete()
        return turned

    return _mapped(state, turn)


def _mapped(state: Any, function: Callable[[Array], Any]) -> Any:
    tables, kept = jax.tree.map(function, (state.tables, state.accumulators))
    return dataclasses.replace(state, tables=tables, accumulators=kept)
