"""One window of a stream in one program: score every batch, then learn it.

Written for the replicas of one device inside one `shard_map`, as the engine's step is.
The forward pass that scores a batch is the one whose gradient is taken.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax._jax import all_gather_replicated, to_varying
from churn_jax.ensembles import Outputs
from churn_jax.methods import Batch, LossOutput, deploy
from churn_jax.training.gradients import checked_memory
from churn_jax.training.partition import DATA, MEMBER, REPLICA
from churn_jax.training.progressive.embeddings import (
    adagrad,
    descend,
    look_up,
    sum_by_row,
)
from churn_jax.training.progressive.state import (
    StreamInputs,
    StreamProgram,
    StreamState,
)
from churn_jax.training.progressive.tables import placed_in_step
from churn_jax.training.seeds import member_weights
from churn_jax.training.steps import replica_update
from churn_jax.typing import Array

__all__ = [
    "Examples",
    "make_score",
    "make_step",
    "term_names",
    "window_order",
]


class Examples(NamedTuple):
    """A window of the stream as the compiled step takes it, the same on every device.

    Attributes:
        ids: `[W, F]` int32, rows within each field's own table.
        numeric: `[W, D]` float32.
        labels: `[W]` int32 in {0, 1}.
        mask: `[W]` float32, 0 for padding.
        first: uint32, place of the first example in the stream.
    """

    ids: Array
    numeric: Array
    labels: Array
    mask: Array
    first: Array

    @classmethod
    def of(cls, window) -> "Examples":
        """From a `Window` of `churn_jax.data.tables`, still on the host."""
        # Beyond 2^32 examples the number that draws members' samples starts again.
        first: Any = np.uint32(window.first % 2**32)
        return cls(window.ids, window.numeric, window.labels, window.mask, first)


def window_order(key: Array, number: Array, mask: Array) -> Array:
    """In which order a replica visits the examples of a window, `[W]` int32.

    A pure function of (order seed, window number); padding comes last.
    """
    bits = jax.random.bits(jax.random.fold_in(key, number), mask.shape, "uint32")
    bits = jnp.where(mask > 0, bits >> 1, jnp.uint32(2**31))
    return jnp.argsort(bits).astype(jnp.int32)


def _gathered(leaf):
    """Over the mesh's member axis of one device: equal there, and known to be."""
    return all_gather_replicated(leaf, MEMBER)


def _forward(program: StreamProgram, params, rows, numeric) -> Outputs:
    """All components on this device's share of a batch."""
    given = program.model.split_rows(rows)
    variables = {"params": program.as_params(params)}
    out: Any = program.network.apply(variables, given, numeric)
    rest = (out.features, out.part, out.gate)
    return Outputs(
        _gathered(out.logits),
        *(None if leaf is None else _gathered(leaf) for leaf in rest),
    )


def _score(method, outputs: Outputs) -> Array:
    """Logit of the positive label of the deployed prediction, `[B]`."""
    deployed = deploy(method, outputs.logits, outputs.gate)
    return deployed[..., 1] - deployed[..., 0]


def _learn(program: StreamProgram, state, inputs, rows, numeric, labels, mask, place):
    """Scores, `LossOutput`, gradients and whether they are finite; no R axis."""
    method = inputs.coefficients.method
    step_key = jax.random.fold_in(inputs.augment_key, state.step)
    base = jax.random.fold_in(step_key, 0)
    share = mask.shape[0]
    position = jax.lax.axis_index(DATA) * share + jnp.arange(share)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(base, position)
    weights = member_weights(
        method.member_sample,
        inputs.sample_key,
        method.members,
        place,
        method.member_share,
    )
    batch = Batch(numeric, labels, mask, keys, DATA, weights, state.memory)

    def objective(params, rows):
        seen = []

        def apply(variables, images, train=True, extras=()):
            del train, extras  # nothing depends on it; every output is at hand
            outputs = _forward(program, variables, batch.hide(rows, axis=0), images)
            seen.append(outputs)
            return outputs, state.model_state

        out = method.loss(
            apply,
            params,
            batch,
            teacher=None,
            step=state.step,
            key=jax.random.fold_in(step_key, 1),
        )
        return out.loss, (out, _score(method, seen[0]))

    (_, (out, scores)), (dense, sparse) = jax.value_and_grad(
        objective, argnums=(0, 1), has_aux=True
    )(state.params, rows)
    bad = sum(jnp.sum(~jnp.isfinite(g)) for g in jax.tree.leaves(dense))
    bad = jax.lax.psum(bad, MEMBER)
    finite = bad + jax.lax.psum(jnp.sum(~jnp.isfinite(sparse)), DATA) == 0
    memory = checked_memory(method, state.memory, out.memory)
    out = LossOutput(out.loss, dict(out.terms), state.model_state, memory)
    return scores, out, dense, sparse, finite


def _update_tables(program: StreamProgram, state, inputs, ids, gradients, alive):
    """The rows of the batch, of the replicas that go on."""
    summed = sum_by_row(
        gradients,
        ids,
        alive,
        sizes=program.model.sizes,
        block=state.tables.shape[0] // alive.shape[0],
    )
    rate = inputs.coefficients.learning_rate
    if program.engine.optimizer.member_rates:
        # A component's own rate is that of its own tables' columns.
        rate = rate[:, None] * program.column_rates()[None]
    if program.engine.optimizer.name == "adagrad":
        return adagrad(state.tables, state.accumulators, summed, rate)
    return descend(state.tables, summed, rate), ()


def _take(program: StreamProgram, window, order: Array, batch: Array):
    """Batch number `batch` of every replica: ids of all of it, the rest of our share.

    Returns:
        `ids [R, B, F]` within each field's rows, `numeric [R, b, D]`, `labels [R, b]`,
        `mask [R, b]` and `place [R, b]`, the examples' places in the window.
    """
    size = program.batch_size
    share = size // program.mesh.shape[DATA]
    chosen = jax.lax.dynamic_slice_in_dim(order, batch * size, size, axis=1)
    first = batch * size + jax.lax.axis_index(DATA) * share
    place = jax.lax.dynamic_slice_in_dim(order, first, share, axis=1)
    return (
        window.ids[chosen],
        window.numeric[place],
        window.labels[place],
        window.mask[place],
        place,
    )


def _rows(program: StreamProgram, state, ids: Array) -> Array:
    """Rows of this device's share of the batch, `[R, b, F, width]`."""
    offsets = jnp.asarray(program.model.offsets, jnp.int32)
    return look_up(state.tables, ids + offsets[None, None])


def _batches(program: StreamProgram, mask: Array) -> Array:
    """How many batches hold an example."""
    valid = jnp.sum((mask > 0).astype(jnp.int32))
    return (valid + program.batch_size - 1) // program.batch_size


def _no_scores(program: StreamProgram, replicas: int) -> Array:
    """Zeros `[R, batches, b]`, this device's own."""
    shards = program.mesh.shape[DATA]
    shape = (replicas, program.window // program.batch_size)
    zeros = jnp.zeros((*shape, program.batch_size // shards), jnp.float32)
    return to_varying(zeros, (REPLICA, DATA))


def _put_back(scores: Array, order: Array) -> Array:
    """Scores `[R, batches, b]` at the places of their examples, of all replicas."""
    scores = all_gather_replicated(scores, DATA, axis=2)
    flat = scores.reshape(scores.shape[0], -1)
    placed = jax.vmap(lambda z, o: jnp.zeros_like(z).at[o].set(z))(flat, order)
    return all_gather_replicated(placed, REPLICA)


def _everyones(alive: Array) -> Array:
    return all_gather_replicated(alive, REPLICA)


def _local_window(program: StreamProgram, state, metrics, inputs, window, number):
    """Learns a window; `(state, metrics, scores [R, W])`."""
    warm = number < program.warm_windows
    inputs = inputs.of_window(warm)
    order = jax.vmap(window_order, (0, None, None))(
        inputs.order_key, number, window.mask
    )

    def body(batch, carry):
        state, scores = carry
        ids, numeric, labels, mask, place = _take(program, window, order, batch)
        rows = _rows(program, state, ids)
        learned = jax.vmap(lambda *args: _learn(program, *args))(
            state.dense,
            inputs,
            rows,
            numeric,
            labels,
            mask,
            window.first + place.astype(jnp.uint32),
        )
        scored, out, dense, sparse, finite = learned
        moved = jax.vmap(lambda *args: replica_update(program.engine, *args))(
            state.dense, inputs, out, dense, finite
        )
        # Tables are not selected from: a stopped replica's rows are not written.
        tables = _update_tables(program, state, inputs, ids, sparse, moved.alive)
        scores = jax.lax.dynamic_update_slice_in_dim(
            scores, scored[:, None], batch, axis=1
        )
        return StreamState(moved, *tables), scores

    scores = _no_scores(program, order.shape[0])
    state, scores = jax.lax.fori_loop(
        0, _batches(program, window.mask), body, (state, scores)
    )
    scores = _put_back(scores, order)
    counted = jnp.where(warm, jnp.zeros_like(window.mask), window.mask)
    metrics = metrics.update(
        scores, window.labels, counted, _everyones(state.dense.alive)
    )
    return state, metrics, scores


def _local_scores(program: StreamProgram, state, metrics, inputs, window):
    """Scores a window and learns nothing; `(metrics, scores [R, W])`."""
    replicas = state.dense.alive.shape[0]
    order = jnp.broadcast_to(
        jnp.arange(program.window, dtype=jnp.int32), (replicas, program.window)
    )

    def body(batch, scores):
        ids, numeric, _, _, _ = _take(program, window, order, batch)
        rows = _rows(program, state, ids)

        def one(dense, method, rows, numeric):
            return _score(method, _forward(program, dense.params, rows, numeric))

        scored = jax.vmap(one)(state.dense, inputs.coefficients.method, rows, numeric)
        return jax.lax.dynamic_update_slice_in_dim(
            scores, scored[:, None], batch, axis=1
        )

    scores = jax.lax.fori_loop(
        0, _batches(program, window.mask), body, _no_scores(program, replicas)
    )
    scores = _put_back(scores, order)
    metrics = metrics.update(
        scores, window.labels, window.mask, _everyones(state.dense.alive)
    )
    return metrics, scores


@functools.lru_cache(maxsize=16)
def make_step(program: StreamProgram, *, donate: bool = True):
    """Compiles the step of a window.

    Args:
        program: what to train.
        donate: update the tables in place; the state and metrics passed in are gone.

    Returns:
        `step(state, metrics, inputs, window, number) -> (state, metrics, scores)`;
        `window` is `Examples`, `number` (int32) counts windows from 0, and `scores
        [R, W]` are those given before learning, at the examples' places.
    """

    def local(state, metrics, inputs, window, number):
        return _local_window(program, state, metrics, inputs, window, number)

    mesh, state = program.mesh, StreamState.specs()
    given = (state, P(), P(REPLICA), P(), P())
    returned = (state, P(), P())
    sharded = jax.shard_map(
        local, mesh=mesh, in_specs=given, out_specs=returned, check_vma=True
    )
    table = placed_in_step(mesh, program.model.width)

    def placed(specs):
        first, *others = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
        kept = first.replace(tables=table, accumulators=table)
        return kept, *others

    return jax.jit(
        sharded,
        in_shardings=placed(given),
        out_shardings=placed(returned),
        donate_argnums=(0, 1) if donate else (),
    )


@functools.lru_cache(maxsize=16)
def make_score(program: StreamProgram):
    """Compiles `score(state, metrics, inputs, window) -> (metrics, scores [R, W])`."""

    def local(state, metrics, inputs, window):
        return _local_scores(program, state, metrics, inputs, window)

    sharded = jax.shard_map(
        local,
        mesh=program.mesh,
        in_specs=(StreamState.specs(), P(), P(REPLICA), P()),
        out_specs=(P(), P()),
        check_vma=True,
    )
    return jax.jit(sharded)


def term_names(
    program: StreamProgram, state: StreamState, inputs: StreamInputs
) -> tuple[str, ...]:
    """Names of the method's terms, in the order of `TrainState.sums[:, 1:]`."""
    seen = []
    share = program.batch_size // program.mesh.shape[DATA]
    model = program.model

    def probe(dense, inputs):
        def one(dense, inputs):
            def varying(shape, dtype=jnp.float32):
                return to_varying(jnp.zeros(shape, dtype), (REPLICA, DATA))

            out = _learn(
                program,
                dense,
                inputs,
                varying((share, len(model.sizes), model.width)),
                varying((share, model.numeric)),
                varying(share, jnp.int32),
                varying(share),
                varying(share, jnp.uint32),
            )[1]
            seen.append(tuple(sorted(out.terms)))
            return out.loss

        return jax.vmap(one)(dense, inputs)

    sharded = jax.shard_map(
        probe,
        mesh=program.mesh,
        in_specs=(StreamState.specs().dense, P(REPLICA)),
        out_specs=P(REPLICA),
        check_vma=True,
    )
    jax.eval_shape(sharded, state.dense, inputs)
    return seen[0]
