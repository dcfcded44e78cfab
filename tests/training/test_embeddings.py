"""Sparse updates of a table: descent, what stays, and ids of any size.

Those of Adagrad are compared with dense ones by `test_click_step.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.training.clicks import _sorted_fields, sum_by_row, update_rows

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
    """`(tables, accumulators)` after an update; descent without accumulators."""
    flat = jax.tree.map(lambda t: t.reshape(-1, WIDTH), (tables, accumulators))
    summed = sum_by_row(cotangents, ids, alive, sizes=SIZES)
    moved = update_rows(*flat, summed, rate)
    return jax.tree.map(lambda t: t.reshape(tables.shape), moved)


def test_rows_outside_of_the_batch_and_of_stopped_replicas_stay(drawn):
    alive = np.array([False, True])
    rate = np.full(2, 0.1, np.float32)
    broken = drawn | {"cotangents": drawn["cotangents"].copy()}
    broken["cotangents"][0] = np.nan
    broken["ids"] = np.minimum(drawn["ids"], 1)
    tables, accumulators = updated(*broken.values(), alive, rate)
    np.testing.assert_array_equal(tables[0], drawn["tables"][0])
    np.testing.assert_array_equal(accumulators[0], drawn["accumulators"][0])
    changed = np.asarray(tables[1]) != drawn["tables"][1]
    touched = np.isin(np.arange(ROWS), [0, 1, 3, 4])
    np.testing.assert_array_equal(changed, np.repeat(touched[:, None], WIDTH, axis=1))


def test_descent_is_the_dense_one_with_a_rate_per_column(drawn):
    rate = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
    given = drawn | {"accumulators": ()}
    tables, kept = updated(*given.values(), np.ones(2, bool), rate)
    assert kept == ()
    for r in range(REPLICAS):
        rows, cotangents = drawn["ids"][r] + OFFSETS, drawn["cotangents"][r]
        table = jnp.asarray(drawn["tables"][r])
        gradient = jax.grad(lambda t: jnp.sum(t[rows] * cotangents))(table)  # noqa: B023
        wanted = table - rate[r][None] * gradient
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
