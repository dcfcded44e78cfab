"""What XLA makes of a window: compiled as users have it, with all optimisations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.methods import AntiDistillation
from churn_jax.training.progressive.metrics import StreamMetrics
from churn_jax.training.progressive.state import make_program
from churn_jax.training.progressive.step import Examples, make_step
from tests.training.progressive.streams import ArrayStream, tiny_model, tiny_run
from tests.training.progressive.test_step import ready


@pytest.mark.slow
def test_no_operation_has_the_size_of_a_table():
    """Tables are updated in place, and nothing copies or selects them."""
    rows = 500_000
    large = tiny_model(sizes=(rows, rows), features=(4,), wide=True, gate=True)
    small = tiny_model(features=(4,), wide=True, gate=True)
    method = AntiDistillation(members=2, deploy="gate", on="part")
    _, inputs, state = ready(tiny_run(method, small, replicas=2))
    table = jax.ShapeDtypeStruct((2 * large.rows, large.width), jnp.float32)
    state = state.replace(tables=table, accumulators=table)
    window = Examples.of(next(ArrayStream().windows(16)))
    step = make_step(make_program(tiny_run(method, large, replicas=2)))
    lowered = step.lower(state, StreamMetrics.empty(2), inputs, window, np.int32(0))
    compiled = lowered.compile()
    size = 4 * np.prod(table.shape)
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes > 2 * size
    assert memory.temp_size_in_bytes < size / 50
    shape = f"= f32[{','.join(map(str, table.shape))}]"
    of_tables = [line for line in compiled.as_text().splitlines() if shape in line]
    assert any("scatter" in line for line in of_tables)
    moved = (" copy(", " select(", " copy-start(", " transpose(", " broadcast(")
    assert [x for x in of_tables if any(kind in x for kind in moved)] == []
