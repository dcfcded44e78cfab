"""Rows of embedding tables: looked up, differentiated and updated without the rest.

Everything here is of one device's block of the tables, inside `shard_map`: replicas on
the leading axis, rows sharded over `data` in contiguous blocks. No operation has a
result of the size of a table, except the two updates, which happen in place.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from churn_jax.training.partition import DATA
from churn_jax.typing import Array

__all__ = ["Summed", "adagrad", "descend", "look_up", "sum_by_row"]

# optax.scale_by_rss's.
_EPSILON = 1e-7


class Summed(NamedTuple):
    """Gradients with respect to distinct rows.

    Attributes:
        rows: `[R, N]` int32, ascending positions in this device's block; those beyond
            its end stand for nothing and are dropped by every update.
        gradients: `[R, N, width]`.
    """

    rows: Array
    gradients: Array


def _within_block(ids: Array, block: int) -> Array:
    """Positions in this device's block; `block` for rows that others own."""
    position = ids - jax.lax.axis_index(DATA) * block
    owned = (position >= 0) & (position < block)
    return jnp.where(owned, position, block)


def look_up(tables: Array, ids: Array) -> Array:
    """Rows of this device's share of the batch.

    Args:
        tables: `[R, V / shards, width]`, this device's block.
        ids: `[R, B, F]` int32, rows of the whole table, for the *global* batch.

    Returns:
        `[R, B / shards, F, width]`.
    """
    block, shards = tables.shape[1], jax.lax.axis_size(DATA)
    if shards == 1:
        return jax.vmap(lambda table, i: table.at[i].get(mode="clip"))(tables, ids)
    position = _within_block(ids, block)
    rows = jax.vmap(lambda t, i: t.at[i].get(mode="fill", fill_value=0.0))(
        tables, position
    )
    # Every row comes from exactly one device: the sum is exact.
    return jax.lax.psum_scatter(rows, DATA, scatter_dimension=1, tiled=True)


def sum_by_row(gradients: Array, ids: Array, block: int, alive: Array) -> Summed:
    """Sums the gradients of equal rows, as a dense gradient would.

    Args:
        gradients: `[R, B / shards, F, width]`, with respect to what `look_up` gave.
        ids: `[R, B, F]`, of the global batch.
        block: rows of this device's block.
        alive: `[R]` bool; replicas that are not touch no row.

    Returns:
        `Summed` with N = B F.
    """
    replicas, width = gradients.shape[0], gradients.shape[-1]
    if jax.lax.axis_size(DATA) > 1:
        gradients = jax.lax.all_gather(gradients, DATA, axis=1, tiled=True)
    position = _within_block(ids, block).reshape(replicas, -1)
    position = jnp.where(alive[:, None], position, block)
    flat = gradients.reshape(replicas, -1, width)
    count = position.shape[1]

    def one(position, gradients):
        # Stable: equal rows are added up in the order of the batch.
        order = jnp.argsort(position)
        sorted_rows = position[order]
        first = jnp.concatenate([sorted_rows[:1] >= 0, jnp.diff(sorted_rows) != 0])
        segment = jnp.cumsum(first.astype(jnp.int32)) - 1
        total = jax.ops.segment_sum(
            gradients[order], segment, count, indices_are_sorted=True
        )
        # Beyond the block's end and distinct: dropped, and no two alike.
        rows = block + jnp.arange(count, dtype=jnp.int32)
        return Summed(rows.at[segment].set(sorted_rows, indices_are_sorted=True), total)

    return jax.vmap(one)(position, flat)


def _add(tables: Array, rows: Array, change: Array) -> Array:
    def one(table, rows, change):
        return table.at[rows].add(
            change, mode="drop", unique_indices=True, indices_are_sorted=True
        )

    return jax.vmap(one)(tables, rows, change)


def adagrad(
    tables: Array, accumulators: Array, summed: Summed, rate: Array
) -> tuple[Array, Array]:
    r"""AdaGrad on the rows of the batch.

    `a <- a + g^2`, `v <- v - rate g / sqrt(a + 1e-7)`: where g is zero nothing would
    change, so the dense update of the whole table gives the same.

    Args:
        tables: `[R, V / shards, width]`.
        accumulators: likewise.
        summed: of `sum_by_row`.
        rate: `[R]` or `[R, width]`, the learning rate.

    Returns:
        `(tables, accumulators)`, in place where they are donated.

    References:
        [anti-distillation] Sec. 5 -- Shamir and Coviello, Anti-Distillation: Improving
        Reproducibility of Deep Networks, 2020. https://arxiv.org/abs/2010.09923
    """
    # Written before it is read, and never read again as it was: otherwise XLA keeps a
    # copy of the whole table.
    accumulators = _add(accumulators, summed.rows, jnp.square(summed.gradients))
    total = jax.vmap(lambda a, i: a.at[i].get(mode="fill", fill_value=1.0))(
        accumulators, summed.rows
    )
    scale = jnp.where(total > 0.0, jax.lax.rsqrt(total + _EPSILON), 0.0)
    change = _spread(-rate) * (scale * summed.gradients)
    return _add(tables, summed.rows, change), accumulators


def descend(tables: Array, summed: Summed, rate: Array) -> Array:
    """Plain gradient descent on the rows of the batch; arguments as in `adagrad`."""
    return _add(tables, summed.rows, _spread(-rate) * summed.gradients)


def _spread(rate: Array) -> Array:
    """`[R]` or `[R, width]` as `[R, 1, 1 or width]`."""
    return rate.reshape(rate.shape[0], 1, -1)
