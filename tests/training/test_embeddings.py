"""Sparse updates against the dense ones of the whole table."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from churn_jax.training.clicks import (
    _sorted_fields,
    look_up,
    sum_by_row,
    update_rows,
)

SIZES, WIDTH, BATCH, REPLICAS = (3, 4), 2, 8, 2
ROWS = sum(SIZES)
OFFSETS = np.array([0, 3])


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    ids = np.stack([rng.integers(0, s, (REPLICAS, BATCH)) for s in SIZES], -1)
    return {
        "tables": rng.normal(size=(REPLICAS, ROWS, WIDTH)).astype(np.float32),
        "accumulators": rng.uniform(0.1, 1, (REPLICAS, ROWS, WIDTH)).astype("f"),
        "ids": ids.astype(np.int32),
        "cotangents": rng.normal(size=(*ids.shape, WIDTH)).astype(np.float32),
    }


@jax.jit
def updated(tables, accumulators, ids, cotangents, alive, rate):
    """`(rows, tables, accumulators)` after an update; descent without accumulators."""
    flat = jax.tree.map(lambda t: t.reshape(-1, WIDTH), (tables, accumulators))
    rows = look_up(flat[0], ids + jnp.asarray(OFFSETS)[None, None])
    summed = sum_by_row(cotangents, ids, alive, sizes=SIZES)
    moved = update_rows(*flat, summed, rate)
    return rows, *jax.tree.map(lambda t: t.reshape(tables.shape), moved)


def dense(drawn, r, rate, transform):
    """The gradient of the whole table, by autodiff, and optax's update of it."""
    rows = drawn["ids"][r] + OFFSETS
    table = jnp.asarray(drawn["tables"][r])
    gradient = jax.grad(lambda t: jnp.sum(t[rows] * drawn["cotangents"][r]))(table)
    state = transform.init(table)
    if isinstance(state, optax.ScaleByRssState):
        state = optax.ScaleByRssState(jnp.asarray(drawn["accumulators"][r]))
    updates, state = transform.update(gradient, state, table)
    return table + -rate * updates, state


def test_adagrad_is_the_dense_one(drawn):
    rate = np.array([0.1, 0.3], np.float32)
    rows, tables, accumulators = updated(*drawn.values(), np.ones(2, bool), rate)
    for r in range(REPLICAS):
        wanted, state = dense(drawn, r, rate[r], optax.scale_by_rss(0.1))
        looked_up = drawn["tables"][r][drawn["ids"][r] + OFFSETS]
        np.testing.assert_array_equal(rows[r], looked_up)
        # Several examples share a row: their sum may be ordered otherwise.
        np.testing.assert_allclose(tables[r], wanted, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(accumulators[r], state.sum_of_squares, rtol=1e-6)


def test_rows_outside_of_the_batch_and_of_stopped_replicas_stay(drawn):
    alive = np.array([False, True])
    rate = np.full(2, 0.1, np.float32)
    broken = drawn | {"cotangents": drawn["cotangents"].copy()}
    broken["cotangents"][0] = np.nan
    broken["ids"] = np.minimum(drawn["ids"], 1)
    _, tables, accumulators = updated(*broken.values(), alive, rate)
    np.testing.assert_array_equal(tables[0], drawn["tables"][0])
    np.testing.assert_array_equal(accumulators[0], drawn["accumulators"][0])
    changed = np.asarray(tables[1]) != drawn["tables"][1]
    touched = np.isin(np.arange(ROWS), [0, 1, 3, 4])
    np.testing.assert_array_equal(changed, np.repeat(touched[:, None], WIDTH, axis=1))


def test_descent_is_the_dense_one_with_a_rate_per_column(drawn):
    rate = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
    given = drawn | {"accumulators": ()}
    _, tables, kept = updated(*given.values(), np.ones(2, bool), rate)
    assert kept == ()
    for r in range(REPLICAS):
        wanted, _ = dense(drawn, r, rate[r][None], optax.identity())
        np.testing.assert_allclose(tables[r], wanted, rtol=1e-6, atol=1e-7)


def test_ids_too_large_to_share_a_number_with_their_place_sort_the_same(drawn):
    ids = jnp.asarray(drawn["ids"][0].T)
    packed, pairs = _sorted_fields(ids, 4), _sorted_fields(ids, 2**31 - 1)
    for a, b in zip(packed, pairs, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(packed[0], np.sort(ids, axis=1))
    np.testing.assert_array_equal(
        packed[1], np.argsort(np.asarray(ids), axis=1, kind="stable")
    )
