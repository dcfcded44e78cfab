"""The two forms of the tables."""

import contextlib
import functools

import jax
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from jax.sharding import NamedSharding

from churn_jax.configuration.training import MeshShape
from churn_jax.methods import AntiDistillation
from churn_jax.training import Interrupted
from churn_jax.training.partition import make_mesh
from churn_jax.training.progressive import loop, run_stream
from churn_jax.training.progressive import state as states
from churn_jax.training.progressive import step as steps
from churn_jax.training.progressive import tables as forms
from churn_jax.training.progressive.tables import (
    BY_REPLICA,
    IN_STEP,
    by_replica,
    in_step,
    joined,
    placed_in_step,
    shapes_by_replica,
)
from tests.training.progressive.streams import ArrayStream, tiny_run
from tests.training.progressive.test_loop import StopAfter
from tests.training.progressive.test_step import ready

REPLICAS, ROWS, WIDTH = 4, 8, 3


@functools.cache
def drawn():
    return np.random.default_rng(0).normal(size=(REPLICAS, ROWS, WIDTH)).astype("f")


def one(mesh):
    """The step's form of what was drawn."""
    return joined(mesh, WIDTH)(on(mesh))


def on(mesh):
    return jax.device_put(drawn(), NamedSharding(mesh, BY_REPLICA))


def test_a_device_holds_the_blocks_of_its_replicas_one_after_another():
    """By hand: 2 x 2 devices, each with 2 of 4 replicas and 4 of 8 rows."""
    mesh = make_mesh(MeshShape(2, 1, 2))
    table = one(mesh)
    wanted = [
        drawn()[replica, rows]
        for replicas in ((0, 1), (2, 3))
        for rows in (slice(0, 4), slice(4, 8))
        for replica in replicas
    ]
    np.testing.assert_array_equal(table, np.concatenate(wanted))
    assert table.sharding.is_equivalent_to(NamedSharding(mesh, IN_STEP), 2)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [(4, 1, 2), (1, 1, 8)])
def test_a_checkpoints_form_does_not_depend_on_the_mesh(axes, state):
    mesh = make_mesh(MeshShape(*axes))
    table, squares = one(mesh), one(mesh)
    held = state.replace(tables=table, accumulators=squares)
    promised = shapes_by_replica(mesh, held)
    saved = by_replica(mesh, held)
    assert table.is_deleted() and squares.is_deleted()
    for found, shape in (
        (saved.tables, promised.tables),
        (saved.accumulators, promised.accumulators),
    ):
        np.testing.assert_array_equal(found, drawn())
        assert (found.shape, found.dtype) == (shape.shape, shape.dtype)
        assert found.sharding.is_equivalent_to(shape.sharding, 3)
    back = in_step(mesh, saved)
    np.testing.assert_array_equal(back.tables, one(mesh))
    assert back.dense is state.dense


@pytest.fixture(scope="module")
def state():
    return ready(tiny_run(replicas=REPLICAS))[2]


def test_without_accumulators_there_is_only_the_table(state):
    mesh = make_mesh(MeshShape())
    held = state.replace(tables=one(mesh), accumulators=())
    assert by_replica(mesh, held).accumulators == ()


def test_nothing_goes_to_another_device():
    mesh = make_mesh(MeshShape(2, 1, 4))
    text = str(joined(mesh, WIDTH).lower(on(mesh)).compile().as_text())
    assert "dynamic-update-slice" in text
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in text


def test_a_wide_table_has_a_layout_of_its_own():
    mesh = make_mesh(MeshShape())
    assert isinstance(placed_in_step(mesh, 24), NamedSharding)
    wide = placed_in_step(mesh, 64)
    assert isinstance(wide, Format)
    table = joined(mesh, 64)(np.zeros((2, ROWS, 64), np.float32))
    assert table.format.layout.major_to_minor == (0, 1)


@contextlib.contextmanager
def column_after_column(monkeypatch):
    """A layout that is not this backend's own, as row after row is not a TPU's.

    Yields the layouts in which the step returns tables.
    """
    compiled = (joined, states._makers, steps.make_step, steps.make_score)
    seen = []

    def spied(program):
        step = compiled[2](program)

        def call(*given):
            state, *others = step(*given)
            tables = (state.tables, state.accumulators)
            seen.extend(t.format.layout.major_to_minor for t in tables)
            return state, *others

        return call

    for one in compiled:
        one.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(forms, "_PADDED_FROM", 1)
        patch.setattr(forms, "_ROW_AFTER_ROW", Layout(major_to_minor=(1, 0)))
        patch.setattr(loop, "make_step", spied)
        yield seen
    for one in compiled:
        one.cache_clear()


@pytest.mark.slow
def test_a_layout_is_kept_from_the_first_window_to_the_last(tmp_path, monkeypatch):
    """In the step, through a checkpoint and in the held-out part."""
    method = AntiDistillation(members=2, running=0.9)
    run = tiny_run(method, replicas=2, mesh=MeshShape(2, 1, 2))
    stream, halt = ArrayStream(held_out=9), StopAfter(2)
    with column_after_column(monkeypatch) as layouts:
        with pytest.raises(Interrupted):
            run_stream(run, stream, tmp_path, on_progress=halt, stop=halt.event)
        found = run_stream(run, stream, tmp_path)
    assert layouts == [(1, 0)] * 2 * 5  # tables and accumulators of five windows
    wanted = run_stream(run, stream)
    for part in ("totals", "holdout"):
        for name, value in getattr(wanted, part).items():
            np.testing.assert_allclose(getattr(found, part)[name], value, rtol=1e-5)
