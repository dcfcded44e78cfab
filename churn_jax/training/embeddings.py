"""The optimiser of embedding tables: only rows of the batch are read and written.

Everything here is about the tables of one device's replicas. No operation has a result
of the size of a table, except the updates, which happen in place.

The tables lie in one array, `[R V, width]`: of a gather or a scatter with a replica
axis XLA for TPUs makes passes over whole tables: of 3 x 3,250,000 rows of 24 numbers,
by its own estimate, 323 million cycles instead of 51 thousand.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from churn_jax.typing import Array

# optax.scale_by_rss's.
_EPSILON = 1e-7


class Summed(NamedTuple):
    """Gradients with respect to distinct rows."""

    # [R, N] int32, ascending rows of each replica's table; those beyond it stand for
    # nothing, and every update drops them.
    rows: Array
    gradients: Array  # [R, N, width]


def _places(table: Array, rows: Array) -> Array:
    """Rows `[R, N]` of every replica's own table in the one array, `[R N]`.

    Those beyond their table lie behind the whole array, and are distinct there.
    """
    replicas, count = rows.shape
    own = table.shape[0] // replicas
    if replicas * (own + count) >= 2**31:
        raise ValueError(
            f"a device would hold {replicas} tables of {own} rows, more than int32 "
            "can number; use more devices along replica"
        )
    first = own * jnp.arange(replicas, dtype=jnp.int32)[:, None]
    behind = table.shape[0] + jnp.arange(replicas * count, dtype=jnp.int32)
    return jnp.where(rows < own, first + rows, behind.reshape(rows.shape)).reshape(-1)


def look_up(table: Array, ids: Array) -> Array:
    """Rows `[R, B, F, width]`; `ids [R, B, F]` are rows of each replica's table."""
    place = _places(table, ids.reshape(ids.shape[0], -1))
    rows = table.at[place].get(mode="fill", fill_value=0.0)
    return rows.reshape(*ids.shape, table.shape[-1])


def sum_by_row(
    gradients: Array, ids: Array, alive: Array, *, sizes: tuple[int, ...]
) -> Summed:
    """Sums gradients with respect to equal rows from `look_up`, as a dense one would.

    `ids [R, B, F]` count within each field's own rows (`sizes`); replicas that are not
    alive touch no row.
    """
    _, batch, fields = ids.shape
    count, width = batch * fields, gradients.shape[-1]
    offsets = jnp.asarray((0, *itertools.accumulate(sizes[:-1])), jnp.int32)
    beyond = sum(sizes) + jnp.arange(count, dtype=jnp.int32)  # distinct

    def one(gradients, ids, alive):
        # Equal rows become neighbours, in the order of the batch.
        own, order = _sorted_fields(ids.T, max(sizes))
        place = order * fields + jnp.arange(fields, dtype=jnp.int32)[:, None]
        ascending = (own + offsets[:, None]).reshape(-1)
        first = jnp.concatenate([ascending[:1] >= 0, jnp.diff(ascending) != 0])
        segment = jnp.cumsum(first.astype(jnp.int32)) - 1
        total = jax.ops.segment_sum(
            gradients.reshape(-1, width)[place.reshape(-1)],
            segment,
            count,
            indices_are_sorted=True,
        )
        # The places that are left over are beyond the table; no two are alike.
        rows = beyond.at[segment].set(ascending)
        return Summed(jnp.where(alive, rows, beyond), total)

    return jax.vmap(one)(gradients, ids, alive)


def _sorted_fields(ids: Array, largest: int) -> tuple[Array, Array]:
    """Each field's ids `[F, B]` in ascending order, and where in the batch they were.

    Id and place share one number where they fit: sorting pairs takes XLA several
    times as long on CPU.
    """
    batch = ids.shape[1]
    place = jax.lax.broadcasted_iota(jnp.int32, ids.shape, 1)
    if largest * batch <= 2**32:
        both = ids.astype(jnp.uint32) * jnp.uint32(batch) + place.astype(jnp.uint32)
        both = jnp.sort(both, axis=1)
        pair = jnp.divmod(both, jnp.uint32(batch))
        return pair[0].astype(jnp.int32), pair[1].astype(jnp.int32)
    own, order = jax.lax.sort((ids, place), dimension=1, is_stable=True, num_keys=1)
    return own, order


def _add(table: Array, place: Array, change: Array) -> Array:
    return table.at[place].add(
        change.reshape(-1, change.shape[-1]),
        mode="drop",
        unique_indices=True,
        wrap_negative_indices=False,
    )


def update_rows(
    table: Array, accumulators: PyTree, summed: Summed, rate: Array
) -> tuple[Array, PyTree]:
    r"""Table and accumulators (AdaGrad's, or `()`) with new rows for the batch.

    In place where the arguments are donated; `rate` is `[R]` or `[R, width]`.

    AdaGrad: `a <- a + g^2`, `v <- v - rate g / sqrt(a + 1e-7)`: where g is zero nothing
    would change, so the dense update of the whole table gives the same. Without
    accumulators plain gradient descent, `v <- v - rate g`.

    References:
        [anti-distillation] Sec. 5 -- Shamir and Coviello, Anti-Distillation: Improving
        Reproducibility of Deep Networks, 2020. https://arxiv.org/abs/2010.09923
    """
    place = _places(table, summed.rows)
    change = -rate.reshape(rate.shape[0], 1, -1)  # [R, 1, 1 or width]
    if isinstance(accumulators, tuple):
        return _add(table, place, change * summed.gradients), accumulators
    # Written before it is read, and never read again as it was: otherwise XLA keeps a
    # copy of the whole table.
    accumulators = _add(accumulators, place, jnp.square(summed.gradients))
    total = accumulators.at[place].get(
        mode="fill", fill_value=1.0, wrap_negative_indices=False
    )
    total = total.reshape(summed.gradients.shape)
    scale = jnp.where(total > 0.0, jax.lax.rsqrt(total + _EPSILON), 0.0)
    return _add(table, place, change * (scale * summed.gradients)), accumulators
