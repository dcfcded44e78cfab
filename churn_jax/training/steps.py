"""The one train step: written for one replica, mapped and sharded around it once."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from churn_jax.ensembles import mapping as slots
from churn_jax.training.gradients import (
    all_finite,
    all_gradients,
    followed_peers,
    replica_gradients,
    select,
    vmapped_gradients,
)
from churn_jax.training.optim import make_optimizer
from churn_jax.training.partition import REPLICA
from churn_jax.training.program import Program
from churn_jax.training.state import ReplicaInputs, TrainState, Weights
from churn_jax.training.teachers import one_by_one
from churn_jax.typing import PyTree

__all__ = ["make_step", "replica_update", "term_names"]


def _own_batches(program: Program, inputs: ReplicaInputs, data: tuple):
    """Inputs and data, with batches of the replicas' own where replicas are mapped."""
    if program.feed != "own":
        return inputs, data
    return dataclasses.replace(inputs, batch=data), (None, None)


def _average(program: Program, state, weights: Weights) -> PyTree:
    """The moving average after this update has led to `weights`.

    `a <- d a + (1 - d) w`, starting from the initial weights, with `d = min(decay,
    (1 + t) / (10 + t))` at update t, counted from 0: a long memory would otherwise
    hold on to the initial weights for `1 / (1 - decay)` updates.
    """
    if not program.ema_decay:
        return ()
    t = state.step.astype(jnp.float32)
    decay = jnp.minimum(program.ema_decay, (1.0 + t) / (10.0 + t))

    def mix(average, new):
        if not jnp.issubdtype(new.dtype, jnp.floating):
            return new
        return (average + (1.0 - decay) * (new - average)).astype(average.dtype)

    return jax.tree.map(mix, state.ema, weights)


def _local_rates(program: Program) -> list[jax.Array]:
    """`OptimizerConfig.member_rates` of this device's networks, one `[S]` per group."""
    rates, local, first = jnp.asarray(program.optimizer.member_rates), [], 0
    for group in program.groups:
        here = group.size // program.member_devices
        axis = program.member_axis
        start = first + (0 if axis is None else jax.lax.axis_index(axis) * here)
        local.append(jax.lax.dynamic_slice(rates, (start,), (here,)))
        first += group.size
    return local


def replica_update(program: Program, state, inputs, out, gradients, finite):
    """Applies the optimiser per network, or freezes a replica gone non-finite."""
    coefficients = inputs.coefficients

    def update(gradient, opt_state, params, factor=None):
        rate = coefficients.learning_rate
        optimizer = make_optimizer(
            program.optimizer,
            program.schedule,
            learning_rate=rate if factor is None else rate * factor,
            weight_decay=coefficients.weight_decay,
        )
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return jax.tree.map(jnp.add, params, updates), opt_state

    groups = [gradients, state.opt_state, state.params]
    if program.optimizer.member_rates:
        groups.append(_local_rates(program))
    moved = [jax.vmap(update)(*group) for group in zip(*groups)]
    logged = jnp.stack([out.loss, *(out.terms[k] for k in sorted(out.terms))])
    bad = ~jnp.isfinite(logged)
    loss_finite = ~jnp.any(bad)
    # Terms come first in the code, then the loss, the gradient and the memory.
    terms = len(out.terms)
    code = jnp.where(jnp.any(bad[1:]), jnp.argmax(bad[1:]), terms)
    after = jnp.where(finite, terms + 2, terms + 1)
    code = jnp.where(loss_finite, after, code).astype(jnp.int32)
    # What would spoil the next update is refused, so a memory is always finite.
    go = state.alive & loss_finite & finite & all_finite(out.memory)
    stop = state.alive & ~go

    weights = Weights(tuple(p for p, _ in moved), out.model_state)
    return TrainState(
        step=state.step + go.astype(jnp.int32),
        params=select(go, weights.params, state.params),
        model_state=select(go, weights.model_state, state.model_state),
        opt_state=select(go, tuple(o for _, o in moved), state.opt_state),
        alive=go,
        stopped_step=jnp.where(stop, state.step, state.stopped_step),
        stopped_term=jnp.where(stop, code, state.stopped_term),
        sums=state.sums + jnp.where(go, logged, 0.0),
        updates=state.updates + go.astype(jnp.float32),
        peers=select(go, followed_peers(program, state), state.peers),
        ema=select(go, _average(program, state, weights), state.ema),
        memory=select(go, out.memory, state.memory),
    )


def _local_steps(program: Program, updates, state, inputs, teacher, *data):
    """Some updates of the replicas that live on this device, a number or an array."""
    count = state.step.shape[0]
    inputs, data = _own_batches(program, inputs, data)

    def apply(computed, state, inputs):
        return replica_update(program, state, inputs, *computed)

    def repeat(update, states):
        if isinstance(updates, int) and updates == 1:
            return update(states)
        return jax.lax.fori_loop(0, updates, lambda _, s: update(s), states)

    if program.mapping != "unroll" and count > 1:
        gradients = vmapped_gradients if program.convolutional else all_gradients

        def together(state):
            computed = gradients(program, state, inputs, teacher, *data)
            return jax.vmap(apply)(computed, state, inputs)

        return repeat(together, state)

    def replica_step(state, inputs, teacher):
        computed = replica_gradients(program, state, inputs, teacher, *data)
        return apply(computed, state, inputs)

    # Unstacked once for all updates: restacking the weights after each one costs more
    # than a small network's arithmetic.
    given = [slots.unstack(part, count) for part in (inputs, teacher)]
    if program.teacher is not None and not _draws(inputs):
        given[1] = [one_by_one(program.teacher, taught) for taught in given[1]]
    states = slots.unstack(state, count)
    return slots.stack(
        repeat(lambda states: slots.map_each(replica_step, states, *given), states)
    )


def _draws(inputs) -> bool:
    """Whether updates take one network out of the stacked teachers."""
    return bool(inputs.coefficients.method.passes.drawn_teacher)


def make_step(program: Program, *, steps_per_call: int | None = 1, donate: bool = True):
    """Compiles the step of `program`.

    Args:
        program: what to train.
        steps_per_call: updates per dispatch, by a loop of the program; leave 1 for
            convolutions on CPU, whose weight gradients are slow inside one. None lets
            every call say it.
        donate: reuse the state's memory.

    Returns:
        `step(state, inputs, teacher, images, labels) -> state`; `teacher` is a tree
        of variables or `()`; of `images` and `labels` see `Program.feed`. Where calls
        say how many updates they make, that is a last argument, an int32.
    """
    counted = steps_per_call is None

    def steps(*args):
        *args, updates = args if counted else (*args, steps_per_call)
        return _local_steps(program, updates, *args)

    sharded = jax.shard_map(
        steps,
        mesh=program.mesh,
        in_specs=(
            TrainState.specs(program.slots),
            P(REPLICA),
            program.teacher_spec,
            *program.data_specs,
            *([P()] if counted else []),
        ),
        out_specs=TrainState.specs(program.slots),
        check_vma=True,
    )
    return jax.jit(sharded, donate_argnums=(0,) if donate else ())


def term_names(program: Program, state, inputs, teacher, images, labels):
    """Names of the method's terms, in the order of `TrainState.sums[:, 1:]`.

    Traces the loss without compiling it; the arguments may be shapes only.
    """
    seen = []

    def probe(state, inputs, teacher, *data):
        inputs, data = _own_batches(program, inputs, data)
        one, given, taught = jax.tree.map(lambda x: x[0], (state, inputs, teacher))
        out, _, _ = replica_gradients(program, one, given, taught, *data)
        seen.append(tuple(sorted(out.terms)))
        return out.loss[None]

    sharded = jax.shard_map(
        probe,
        mesh=program.mesh,
        in_specs=(
            TrainState.specs(program.slots),
            P(REPLICA),
            program.teacher_spec,
            *program.data_specs,
        ),
        out_specs=P(REPLICA),
        check_vma=True,
    )
    jax.eval_shape(sharded, state, inputs, teacher, images, labels)
    return seen[0]
