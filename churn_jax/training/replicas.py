"""The step of all replicas: mapped over those of a device, sharded, and compiled."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from churn_jax.ensembles import mapping as slots
from churn_jax.methods import LossOutput
from churn_jax.training.partition import REPLICA
from churn_jax.training.program import Program
from churn_jax.training.state import (
    TrainState,
)
from churn_jax.training.step import (
    loss_and_gradients,
    loss_function,
    networks,
    update,
)
from churn_jax.training.teachers import one_by_one


# Sessions of equal programs, such as rows of a study, share what is compiled; it is
# kept for the last few.
@functools.lru_cache(maxsize=8)
def make_step(program: Program, *, steps_per_call: int | None = 1, donate: bool = True):
    """Compiles `step(state, inputs, taught, images, labels) -> state`.

    `taught` are the teachers' variables or `()`; see `Program.feed` for the data. A
    call makes `steps_per_call` updates by a loop of the program, or with None as many
    as its last argument says, an int32. `donate` reuses the state's memory.
    """
    counted = steps_per_call is None

    def steps(*args):
        *args, updates = args if counted else (*args, steps_per_call)
        return _local_steps(program, updates, *args)

    sharded = jax.shard_map(
        steps,
        mesh=program.mesh,
        in_specs=(*_specs(program), *([P()] if counted else [])),
        out_specs=TrainState.specs(program.slots),
        check_vma=True,
    )
    return jax.jit(
        sharded,
        donate_argnums=(0,) if donate else (),
        compiler_options=program.compilation,
    )


def term_names(program: Program, state, inputs, taught, images, labels):
    """Names of the method's terms, in the order of `TrainState.sums[:, 1:]`."""
    # The loss is traced without compiling it; the arguments may be shapes only.
    arguments = (state, inputs, taught, images, labels)
    return tuple(sorted(jax.eval_shape(_probe(program), *arguments)))


@functools.lru_cache(maxsize=8)
def _probe(program: Program):
    """One replica's terms by name, to be traced; only the names mean anything."""

    def probe(state, inputs, taught, *data):
        inputs, data = _own_batches(program, inputs, data)
        one, given, variables = jax.tree.map(lambda x: x[0], (state, inputs, taught))
        loss = loss_function(program, one, given, variables, data)
        _, out = loss(networks(program, one.params))
        return {name: jnp.zeros(1) for name in out.terms}

    return jax.jit(
        jax.shard_map(
            probe,
            mesh=program.mesh,
            in_specs=_specs(program),
            out_specs=P(REPLICA),
            check_vma=True,
        )
    )


def _specs(program: Program) -> tuple:
    state = TrainState.specs(program.slots)
    return (state, P(REPLICA), program.teacher_spec, *program.data_specs)


def _own_batches(program: Program, inputs, data: tuple):
    """Inputs and data, with the replicas' own batches where replicas are mapped."""
    if program.feed != "own":
        return inputs, data
    return dataclasses.replace(inputs, batch=data), (None, None)


def _local_steps(program: Program, updates, state, inputs, taught, *data):
    """Some updates of the replicas that live on this device, a number or an array."""
    inputs, data = _own_batches(program, inputs, data)
    count = state.step.shape[0]

    def repeat(step, states):
        if isinstance(updates, int) and updates == 1:
            return step(states)
        return jax.lax.fori_loop(0, updates, lambda _, s: step(s), states)

    if program.mapping != "unroll" and count > 1:

        def together(state):
            found = _gradients(program, state, inputs, taught, data)
            return jax.vmap(lambda *args: update(program, *args))(state, inputs, *found)

        return repeat(together, state)

    def replica_step(state, inputs, taught):
        found = loss_and_gradients(program, state, inputs, taught, data)
        return update(program, state, inputs, *found)

    # Unstacked once for all updates: restacking the weights after each one costs more
    # than a small network's arithmetic.
    given = [slots.unstack(part, count) for part in (inputs, taught)]
    # An update that draws one teacher takes it out of the stacked ones.
    draws = inputs.coefficients.method.passes.drawn_teacher
    if program.teacher is not None and not draws:
        given[1] = [one_by_one(program.teacher, variables) for variables in given[1]]
    states = slots.unstack(state, count)
    return slots.stack(
        repeat(lambda states: slots.map_each(replica_step, states, *given), states)
    )


def _gradients(program: Program, state, inputs, taught, data):
    """`loss_and_gradients` of all local replicas at once."""

    def compute(state):
        return jax.vmap(lambda s, i, t: loss_and_gradients(program, s, i, t, data))(
            state, inputs, taught
        )

    return _guarded(compute, state) if program.convolutional else compute(state)


def _guarded(compute, state: Any):
    """`compute(state)`, where a replica that is not finite spoils no other.

    Under a vmapped convolution one slot's non-finite cotangent makes its neighbours'
    weight gradients non-finite (seen on CPU). So where a replica has a finite loss and
    bad gradients, all are computed again with the culprits' weights set to zero.

    Both passes are turns of one loop, because a second copy of the computation in the
    program would be fused and rounded differently: the neighbours would differ in the
    last bit from a run without the culprits.
    """

    def without_culprits(live):
        def neutral(leaf):
            return jnp.where(live.reshape(-1, *([1] * (leaf.ndim - 1))), leaf, 0)

        weights = (state.params, state.model_state, state.peers)
        params, model_state, peers = jax.tree.map(neutral, weights)
        return compute(
            state.replace(params=params, model_state=model_state, peers=peers)
        )

    def turn(carry):
        live, _, first, done = carry
        out, gradients, finite = without_culprits(live)
        # Of the loss and its terms the first pass counts: it names the culprits.
        logged = jax.tree.map(
            lambda new, old: jnp.where(done == 0, new, old),
            (out.loss, out.terms),
            first,
        )
        culprits = live & ~jnp.isfinite(out.loss)
        victims = live & jnp.isfinite(out.loss) & ~finite
        again = (done == 0) & jnp.any(culprits) & jnp.any(victims)
        result = (out.model_state, out.memory, gradients, finite)
        return live & ~culprits, result, logged, jnp.where(again, 1, 2)

    # Zeros like what a pass yields, varying over the same mesh axes.
    zero = jnp.zeros_like(state.sums[:, 0])
    terms = jax.eval_shape(without_culprits, state.alive)[0].terms
    nothing = jax.tree.map(
        jnp.zeros_like, (state.model_state, state.memory, state.params)
    )
    start = (
        state.alive,
        (*nothing, jnp.zeros_like(state.alive)),
        (zero, {name: zero for name in terms}),
        jnp.zeros_like(state.step[0]),
    )
    _, result, (loss, terms), _ = jax.lax.while_loop(lambda c: c[3] < 2, turn, start)
    model_state, memory, gradients, finite = result
    return LossOutput(loss, terms, model_state, memory), gradients, finite
