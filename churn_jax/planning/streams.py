"""The step of a click model: one window of the stream, batch after batch."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from churn_jax.configuration.streams import SYNTHETIC, StreamData, StreamStudyConfig
from churn_jax.planning.hlo import Counted
from churn_jax.planning.rules import Check, crossing, largest, shard_bytes
from churn_jax.planning.steps import Step, placed
from churn_jax.studies.streams.run import stream_run
from churn_jax.training.partition import DATA, MEMBER, REPLICA
from churn_jax.training.progressive import StreamRun
from churn_jax.training.progressive.metrics import StreamMetrics
from churn_jax.training.progressive.state import (
    StreamState,
    init_inputs,
    init_stream,
    make_program,
)
from churn_jax.training.progressive.step import Examples, make_step, term_names

_NUMERIC = 2  # columns of a synthetic stream
_FLOAT = 4


def _schema(data: StreamData) -> tuple[tuple[int, ...], int]:
    """Rows of every field's table and how many numeric features there are."""
    if data.source == SYNTHETIC:
        return (data.buckets,) * data.fields, _NUMERIC
    if not data.schema:
        raise ValueError(
            "a plan needs the sizes of the tables: --schema FILE or NAME, or --data "
            "synthetic --examples N --data.fields F --data.buckets V"
        )
    from churn_jax.data.tables import TableSchema

    schema = TableSchema.load(data.schema)
    return tuple(schema.sizes), len(schema.numeric)


def _run(config: StreamStudyConfig, name: str) -> StreamRun:
    return stream_run(config, config.spec(name), *_schema(config.data))


def stream_step(config: StreamStudyConfig, name: str, devices: Sequence[Any]) -> Step:
    """The real step of one row of a stream study: scores and learns one window."""
    run = _run(config, name)
    sizes, numeric = run.model.sizes, run.model.numeric
    program = make_program(run, devices)
    window, replicas = run.config.window, run.config.replicas

    def build():
        inputs = init_inputs(run, program)
        state = init_stream(run, program, inputs)
        return state, inputs, StreamMetrics.empty(replicas)

    state, inputs, metrics = jax.eval_shape(build)
    mesh = program.mesh
    state = placed(mesh, StreamState.specs(), state)
    inputs = placed(mesh, P(REPLICA), inputs)
    terms = term_names(program, state, inputs)
    sums = jax.ShapeDtypeStruct((replicas, 1 + len(terms)), jnp.float32)
    sums = placed(mesh, P(REPLICA), sums)
    state = dataclasses.replace(
        state, dense=dataclasses.replace(state.dense, sums=sums)
    )
    fields: dict[str, Any] = dict(
        ids=jax.ShapeDtypeStruct((window, len(sizes)), jnp.int32),
        numeric=jax.ShapeDtypeStruct((window, numeric), jnp.float32),
        labels=jax.ShapeDtypeStruct((window,), jnp.int32),
        mask=jax.ShapeDtypeStruct((window,), jnp.float32),
        first=jax.ShapeDtypeStruct((), jnp.uint32),
    )
    number = jax.ShapeDtypeStruct((), jnp.int32)
    examples = Examples(**fields)
    metrics, examples, number = placed(mesh, P(), (metrics, examples, number))
    rows = f"{len(sizes)} tables of {sum(sizes):,} rows"
    return Step(
        jitted=make_step(program),
        arguments=(state, metrics, inputs, examples, number),
        parts={
            "embedding tables": state.tables,
            "their optimiser": state.accumulators,
            "towers": state.dense.params,
            "their optimiser and counters": (state.dense.opt_state, state.dense.sums),
            "metrics": metrics,
            "window": examples,
            "keys, coefficients": inputs,
        },
        # The next window is placed while this one is learned.
        others={
            "next window": examples,
            "metrics of the whole stream": metrics,
            # Held between windows only, but the step needs little temporary memory.
            "a table as a checkpoint has it": state.tables,
        },
        program=program,
        run=run,
        classes=2,
        network=f"{run.method.members} towers on {rows}",
        updates=window // run.config.batch_size,
        open_turns=window // run.config.batch_size,
        streamed=True,
    )


def check_stream(step: Step, found: Sequence[Counted], reused: int) -> list[Check]:
    """The rules for a row of a stream study."""
    # Scores of a window are compared between replicas, once per window; tables are
    # looked up by `data`, which carries rows of the batch and no table.
    mesh, config = step.program.mesh.shape, step.run.config
    model, state = step.run.model, step.arguments[0]
    local = config.replicas // mesh[REPLICA]
    scores = config.replicas * config.window * _FLOAT
    across = crossing(found, REPLICA)
    most = largest(across)
    often = max((one.times for one in across), default=0)
    checks = [
        Check(
            "replica carries a window's scores, once per window",
            most <= scores and often <= 1,
            f"{len(across)} collectives, largest {most:,} of {scores:,} bytes",
        ),
        Check(
            "member carries nothing",
            not crossing(found, MEMBER),
            f"its axis has {mesh[MEMBER]} device",
        ),
    ]
    looked_up = local * config.batch_size * len(model.sizes) * model.width * _FLOAT
    towers = shard_bytes(state.dense.params)
    gathered = local * config.window * _FLOAT
    limit = max(looked_up, towers, gathered)
    biggest = largest(crossing(found, DATA))
    checks.append(
        Check(
            "data carries the batch's rows, the towers' gradients and scores",
            biggest <= limit,
            f"largest {biggest:,} of {limit:,} bytes",
        )
    )
    whole = math.prod(state.tables.shape) * np.dtype(state.tables.dtype).itemsize
    parts = mesh[REPLICA] * mesh[DATA]
    own = shard_bytes(state.tables)
    checks.append(
        Check(
            "embedding tables are in shards over replica and data",
            own * parts == whole,
            f"a device holds {own:,} of {whole:,} bytes",
        )
    )
    donated = shard_bytes(step.arguments[:2])
    checks.append(
        Check(
            "tables, towers and metrics are updated in place",
            reused >= donated,
            f"{reused:,} bytes reused, they have {donated:,}",
        )
    )
    return checks
