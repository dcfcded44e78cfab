"""One window of clicks in one program: score every batch, then learn it.

Written for the replicas of one device inside one `shard_map`. The forward pass that
scores a batch is the one whose gradient is taken. Draws, guard and optimiser are those
of `churn_jax.training.step`; the tables have an optimiser of their own (`embeddings`).
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax._jax import all_gather_replicated, to_varying
from churn_jax.data.clicks import Window
from churn_jax.ensembles import Outputs
from churn_jax.methods import Batch, LossOutput, deploy
from churn_jax.training.partition import DATA, MEMBER, REPLICA
from churn_jax.training.progressive.embeddings import look_up, sum_by_row, update_rows
from churn_jax.training.progressive.state import (
    ClickInputs,
    ClickProgram,
    ClickState,
    table_placement,
)
from churn_jax.training.step import (
    check_memory,
    check_output,
    count_bad,
    draw,
    sample_weights,
    update,
)
from churn_jax.typing import Array


class _Batch(NamedTuple):
    """A batch of every replica."""

    ids: Array  # [R, B, F], within each field's rows
    numeric: Array  # [R, B, D]
    labels: Array  # [R, B]
    mask: Array  # [R, B]
    place: Array  # [R, B], in the window


def window_order(key: Array, number: Array, mask: Array) -> Array:
    """In which order a replica visits the examples of a window, `[W]` int32.

    A pure function of (order seed, window number); padding comes last.
    """
    bits = jax.random.bits(jax.random.fold_in(key, number), mask.shape, "uint32")
    bits = jnp.where(mask > 0, bits >> 1, jnp.uint32(2**31))
    return jnp.argsort(bits).astype(jnp.int32)


def _take(program: ClickProgram, window: Window, order: Array, number: Array):
    """Batch `number` of every replica."""
    size = program.batch_size
    place = jax.lax.dynamic_slice_in_dim(order, number * size, size, axis=1)
    return _Batch(
        window.ids[place],
        window.numeric[place],
        window.labels[place],
        window.mask[place],
        place,
    )


def _rows(program: ClickProgram, state, ids: Array) -> Array:
    """Table rows of the batch, `[R, B, F, width]`."""
    offsets = jnp.asarray(program.model.offsets, jnp.int32)
    return look_up(state.tables, ids + offsets[None, None])


def _forward(program: ClickProgram, params, rows, numeric) -> Outputs:
    """All components on a batch."""
    given = program.model.split_rows(rows)
    variables = {"params": program.as_params(params)}
    out: Any = program.network.apply(variables, given, numeric)

    # The mesh has one device along its member axis; this makes that known.
    def gathered(leaf):
        return None if leaf is None else all_gather_replicated(leaf, MEMBER)

    rest = (out.features, out.part, out.gate)
    return Outputs(all_gather_replicated(out.logits, MEMBER), *map(gathered, rest))


def _score(method, outputs: Outputs) -> Array:
    """Logit of the positive label of the deployed prediction, `[B]`."""
    deployed = deploy(method, outputs.logits, outputs.gate)
    return deployed[..., 1] - deployed[..., 0]


def _learn(program: ClickProgram, state, inputs, rows, batch: _Batch, place):
    """Scores, loss, gradients of towers and rows, and whether those are finite.

    Of one replica, like `training.step.loss_and_gradients`; `place` counts from the
    beginning of the stream.
    """
    method = inputs.coefficients.method
    draws = draw(state, inputs, place.shape[0])

    # Methods sum over the data axis, which has one device here.
    def shared(leaf):
        return to_varying(leaf, DATA)

    given = Batch(
        shared(batch.numeric),
        shared(batch.labels),
        shared(batch.mask),
        draws.examples,
        DATA,
        sample_weights(inputs, place),
        state.memory,
    )

    def loss(params, rows):
        seen = []

        def apply(variables, images, train=True, extras=()):
            del train, extras  # nothing depends on it; every output is at hand
            hidden = given.hide(shared(rows), axis=0)
            outputs = _forward(program, variables, hidden, images)
            seen.append(outputs)
            return outputs, state.model_state

        out = method.loss(
            apply, params, given, teacher=None, step=state.step, key=draws.loss
        )
        check_output(method, out)
        score = all_gather_replicated(_score(method, seen[0]), DATA)
        return out.loss, (out, score)

    (_, (out, scores)), (dense, sparse) = jax.value_and_grad(
        loss, argnums=(0, 1), has_aux=True
    )(state.params, rows)
    finite = jax.lax.psum(count_bad(dense), MEMBER) + count_bad(sparse) == 0
    memory = check_memory(method, state.memory, out.memory)
    out = LossOutput(out.loss, dict(out.terms), state.model_state, memory)
    return scores, out, dense, sparse, finite


def _update_tables(program: ClickProgram, state, inputs, ids, gradients, alive):
    """`(tables, accumulators)` with new rows for the batch of living replicas."""
    summed = sum_by_row(gradients, ids, alive, sizes=program.model.sizes)
    rate = inputs.coefficients.learning_rate
    if program.engine.optimizer.config.member_rates:
        # A component's own rate is that of its own tables' columns.
        rate = rate[:, None] * program.column_rates()[None]
    return update_rows(state.tables, state.accumulators, summed, rate)


def _over_batches(program: ClickProgram, window: Window, order: Array, body, carry):
    """`body(batch, carry) -> (scores [R, B], carry)` over all batches with an example.

    Returns the last carry, and the scores `[R, W]` of all replicas at their places.
    """
    valid = jnp.sum((window.mask > 0).astype(jnp.int32))
    batches = (valid + program.batch_size - 1) // program.batch_size
    nothing = to_varying(jnp.zeros(order.shape, jnp.float32), REPLICA)

    def turn(number, both):
        carry, scores = both
        scored, carry = body(_take(program, window, order, number), carry)
        scores = jax.lax.dynamic_update_slice_in_dim(
            scores, scored, number * program.batch_size, axis=1
        )
        return carry, scores

    carry, scores = jax.lax.fori_loop(0, batches, turn, (carry, nothing))
    placed = jax.vmap(lambda z, o: jnp.zeros_like(z).at[o].set(z))(scores, order)
    return carry, all_gather_replicated(placed, REPLICA)


def _local_window(program: ClickProgram, state, inputs, window, number):
    """Learns a window; `(state, scores [R, W])`."""
    warm = number < program.warm_windows
    inputs = inputs.of_window(warm)
    order = jax.vmap(window_order, (0, None, None))(
        inputs.order_key, number, window.mask
    )

    def body(batch, state):
        scored, out, dense, sparse, finite = jax.vmap(
            lambda *args: _learn(program, *args)
        )(
            state.dense,
            inputs,
            _rows(program, state, batch.ids),
            batch,
            window.first + batch.place.astype(jnp.uint32),
        )
        moved = jax.vmap(lambda *args: update(program.engine, *args))(
            state.dense, inputs, out, dense, finite
        )
        # Tables are not selected from: a stopped replica's rows are not written.
        tables = _update_tables(program, state, inputs, batch.ids, sparse, moved.alive)
        return scored, ClickState(moved, *tables)

    return _over_batches(program, window, order, body, state)


def _local_scores(program: ClickProgram, state, inputs, window):
    """Scores a window and learns nothing; `scores [R, W]`."""
    replicas = state.dense.alive.shape[0]
    order = jnp.broadcast_to(
        jnp.arange(program.window, dtype=jnp.int32), (replicas, program.window)
    )

    def one(dense, method, rows, numeric):
        return _score(method, _forward(program, dense.params, rows, numeric))

    def body(batch, carry):
        rows = _rows(program, state, batch.ids)
        method = inputs.coefficients.method
        return jax.vmap(one)(state.dense, method, rows, batch.numeric), carry

    return _over_batches(program, window, order, body, ())[1]


@functools.lru_cache(maxsize=16)
def make_step(program: ClickProgram, *, donate: bool = True):
    """Compiles the step of a window.

    `step(state, inputs, window, number) -> (state, scores)`, where `window` is a
    `Window`, `number` (int32) counts windows from 0, and `scores [R, W]` are those
    given before learning, at the examples' places. `donate` updates the tables in
    place; the state passed in is gone.
    """
    mesh, state = program.mesh, ClickState.specs()
    given = (state, P(REPLICA), P(), P())
    returned = (state, P())
    sharded = jax.shard_map(
        functools.partial(_local_window, program),
        mesh=mesh,
        in_specs=given,
        out_specs=returned,
        check_vma=True,
    )
    table = table_placement(mesh, program.model.width)

    def placed(specs):
        first, *others = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
        kept = first.replace(tables=table, accumulators=table)
        return kept, *others

    return jax.jit(
        sharded,
        in_shardings=placed(given),
        out_shardings=placed(returned),
        donate_argnums=(0,) if donate else (),
    )


@functools.lru_cache(maxsize=16)
def make_score(program: ClickProgram):
    """Compiles `score(state, inputs, window) -> scores [R, W]`."""
    sharded = jax.shard_map(
        functools.partial(_local_scores, program),
        mesh=program.mesh,
        in_specs=(ClickState.specs(), P(REPLICA), P()),
        out_specs=P(),
        check_vma=True,
    )
    return jax.jit(sharded)


def term_names(
    program: ClickProgram, state: ClickState, inputs: ClickInputs
) -> tuple[str, ...]:
    """Names of the method's terms, in the order of `TrainState.sums[:, 1:]`."""
    size, model = program.batch_size, program.model

    def varying(*shape, dtype=jnp.float32):
        return to_varying(jnp.zeros(shape, dtype), REPLICA)

    def one(dense, inputs):
        rows = varying(size, len(model.sizes), model.width)
        place = varying(size, dtype=jnp.uint32)
        labels = varying(size, dtype=jnp.int32)
        numeric, mask = varying(size, model.numeric), varying(size)
        batch = _Batch(rows, numeric, labels, mask, place)
        out = _learn(program, dense, inputs, rows, batch, place)[1]
        return {name: out.loss for name in out.terms}

    def probe(dense, inputs):
        return jax.vmap(one)(dense, inputs)

    sharded = jax.shard_map(
        probe,
        mesh=program.mesh,
        in_specs=(ClickState.specs().dense, P(REPLICA)),
        out_specs=P(REPLICA),
        check_vma=True,
    )
    return tuple(sorted(jax.eval_shape(sharded, state.dense, inputs)))
