"""The train step, in reading order: batch, loss, gradients, update, all replicas.

All but the last part handles one replica, inside `jax.shard_map`; the last part maps it
over a device's replicas and compiles it. Click models, whose embedding rows are looked
up before the loss, are in `training.clicks`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax._jax import to_varying, varying_axes
from churn_jax.data.augment import augment, normalize
from churn_jax.ensembles import mapping as slots
from churn_jax.methods import Batch, LossOutput
from churn_jax.training import clicks
from churn_jax.training.partition import DATA, MEMBER, REPLICA, shaped_examples
from churn_jax.training.program import Program
from churn_jax.training.state import (
    ReplicaInputs,
    TrainState,
    Weights,
    joined,
    member_weights,
)
from churn_jax.training.teachers import Teacher, TeacherProgram, one_by_one

# Batch -------------------------------------------------------------------------------


class Draws(NamedTuple):
    """The randomness of one update: a function of augmentation key and update."""

    position: jax.Array  # [b], the device's examples in the global batch
    examples: jax.Array  # [b] keys, by position: results do not depend on the mesh
    loss: jax.Array  # key of the method's loss, equal on all devices
    dropout: jax.Array  # key of the networks, equal on all devices


def draw(state: TrainState, inputs: ReplicaInputs, share: int) -> Draws:
    """The keys of a device's `share` of the batch."""
    position = jax.lax.axis_index(DATA) * share + jnp.arange(share)
    update = jax.random.fold_in(inputs.augment_key, state.step)
    base, loss, networks = (jax.random.fold_in(update, use) for use in range(3))
    examples = jax.vmap(jax.random.fold_in, (None, 0))(base, position)
    return Draws(position, examples, loss, jax.random.fold_in(networks, 0))


def _batch(
    program: Program, state: TrainState, inputs: ReplicaInputs, draws: Draws, data
) -> Batch:
    """The device's share of the next batch: gathered or fed, augmented, normalised."""
    method = inputs.coefficients.method

    def weights(examples: jax.Array) -> jax.Array | None:
        sample = method.member_sample
        return member_weights(sample, inputs.sample_key, examples, method.member_share)

    if isinstance(inputs.batch, clicks.ClickBatch):
        held = weights(inputs.batch.place)
        return inputs.batch.given(draws.examples, held, state.memory)
    share = draws.position.shape[0]
    per_epoch = inputs.order.shape[0] // program.batch_size
    start = (state.step % per_epoch) * program.batch_size + draws.position[0]
    rows = jax.lax.dynamic_slice(inputs.order, (start,), (share,))
    images, labels = inputs.batch or data
    if program.feed == "resident":
        images = jnp.take(images, rows, axis=0, mode="clip")
        images = shaped_examples(images, program.example_shape)
        labels = jnp.take(labels, rows, axis=0, mode="clip")
    if program.augmentation is not None:
        images = augment(images, draws.examples, program.augmentation)
    return Batch(
        normalize(images, program.mean, program.std),
        labels,
        jnp.ones(share, jnp.float32),
        draws.examples,
        DATA,
        weights(rows),
        state.memory,
        pixel_mean=program.mean,
        pixel_std=program.std,
        rows=rows,
    )


# Loss and gradients ------------------------------------------------------------------


def _forward(program: Program, dropout: jax.Array):
    """`apply(variables, images, train, extras)` of all members, wherever they lie."""

    def apply(variables, images, train=True, extras=()):
        extra: dict[str, Any] = {"axis_name": DATA, "key": dropout} if train else {}
        return program.apply(variables, images, train=train, extras=extras, **extra)

    return apply


def _teacher(program: Program, state: TrainState, taught: PyTree, batch: Batch):
    """The method's `teacher`: trained models, copies of its own members, or None."""
    members = program.mesh.shape[MEMBER]
    if program.stale_steps:
        peers = _peers(program, state)
        variables = joined(peers.params, peers.model_state)
        own = (program.groups, not program.replicated, program.member_mapping)
        return Teacher(TeacherProgram(*own), variables, members)
    if program.teacher is not None:
        return Teacher(program.teacher, tuple(taught), members, batch.rows)
    return None


def loss_function(
    program: Program, state: TrainState, inputs: ReplicaInputs, taught: PyTree, data
):
    """`loss(params) -> (value, LossOutput)` of the next batch, and its argument.

    That is the weights, and of a click model also the batch's rows. `taught` are the
    variables of the teachers, or `()`; see `Program.feed` for `data`.
    """
    draws = draw(state, inputs, program.batch_size // program.mesh.shape[DATA])
    batch = _batch(program, state, inputs, draws, data)
    teacher = _teacher(program, state, taught, batch)
    method = inputs.coefficients.method
    params = _networks(program, state.params)
    model_state = _networks(program, state.model_state)
    if program.one_pass is None:
        forward = _forward(program, draws.dropout)
    else:
        forward = clicks.forward(program, method, batch)
        params, model_state = [*params, inputs.batch.rows], [*model_state, {}]

    def loss(params):
        # Marked as varying over data shards once, here, so that each gradient is summed
        # over them once, not wherever a layer or a second pass uses the weight.
        params = jax.tree.map(lambda p: to_varying(p, DATA), params)
        out = method.loss(
            forward,
            list(joined(params, model_state)),
            batch,
            teacher=teacher,
            step=state.step,
            key=draws.loss,
        )
        _check_output(method, out)
        memory = _check_memory(method, state.memory, out.memory)
        return out.loss, dataclasses.replace(out, memory=memory)

    return loss, params


def loss_and_gradients(
    program: Program, state: TrainState, inputs: ReplicaInputs, taught: PyTree, data
) -> tuple[LossOutput, tuple[PyTree, ...], jax.Array]:
    """The loss of the next batch, the gradients, and whether those are finite.

    Arguments are those of `loss_function`.
    """
    loss, params = loss_function(program, state, inputs, taught, data)
    (_, out), gradients = jax.value_and_grad(loss, has_aux=True)(params)
    gradients = _stacked(gradients)
    # Counts leaves, not elements: on a CPU that takes a third of the time.
    each = (jnp.isfinite(leaf).astype(jnp.int8) for leaf in jax.tree.leaves(gradients))
    bad = jnp.asarray(sum((1 - jnp.min(x, initial=1)).astype(jnp.int32) for x in each))
    finite = (bad if program.replicated else jax.lax.psum(bad, MEMBER)) == 0
    left = [
        {name: x for name, x in part.items() if name != "params"}
        for part in _stacked(out.model_state)
    ]
    # State is the same on all data shards, even where its type does not say so: it
    # follows from the weights alone, or there is one shard (`check_run` sees to it).
    left = jax.tree.map(
        lambda x: jax.lax.pmax(x, DATA) if DATA in varying_axes(x) else x, tuple(left)
    )
    return LossOutput(out.loss, dict(out.terms), left, out.memory), gradients, finite


def _networks(program: Program, tree: PyTree) -> list[PyTree]:
    """Stacked groups, or lists of trees where the networks are unrolled."""
    # Unstacked before differentiation, so that no gradient passes through a slice.
    local = [g.size // program.member_devices for g in program.groups]
    stacked = program.one_pass is not None or max(local) > 1
    if program.member_mapping == "vmap" and stacked:
        return list(tree)
    return [slots.unstack(part, n) for part, n in zip(tree, local)]


def _stacked(parts: list[PyTree]) -> tuple[PyTree, ...]:
    return tuple(slots.stack(p) if isinstance(p, list) else p for p in parts)


def _check_output(method, out: Any) -> None:
    """Refuses what a method's loss must not return."""
    name = f"{type(method).__name__}.loss"
    if not isinstance(out, LossOutput):
        array = f"{out.dtype}{list(out.shape)}" if hasattr(out, "shape") else ""
        raise ValueError(
            f"{name} must return methods.LossOutput(loss, terms, model_state); got "
            f"{array or type(out).__name__}"
        )
    if not isinstance(out.terms, Mapping):
        raise ValueError(
            f"{name} must return its terms as a dictionary of numbers by name, which "
            f"may be empty; got {type(out.terms).__name__}"
        )
    if "loss" in out.terms:
        raise ValueError(f"{name}: the loss itself is called loss; rename that term")
    if not isinstance(out.model_state, list | tuple):
        kind = type(out.model_state).__name__
        raise ValueError(f"{name} must return the model_state of `apply`; got {kind}")
    for what, value in {"loss": out.loss, **out.terms}.items():
        found = type(value).__name__
        if isinstance(value, int | float | np.generic | jax.Array):
            found = f"{jnp.result_type(value)}{[*jnp.shape(value)]}"
        if found[-2:] != "[]" or (what == "loss" and "float" not in found):
            raise ValueError(
                f"{name}: {what} must be one float; got {found} (batch.mean averages "
                "over examples)"
            )
        if DATA in varying_axes(value):  # known of one device, too
            raise ValueError(f"{name}: {what} must be averaged with batch.mean")


def _check_memory(method, before: PyTree, after: PyTree) -> PyTree:
    """The new memory without a gradient; its structure and shapes must not change."""
    name = f"{type(method).__name__}.loss"
    found, left = (
        jax.tree.map(lambda x: f"{jnp.result_type(x)}{list(jnp.shape(x))}", tree)
        for tree in (before, after)
    )
    if found != left:
        raise ValueError(
            f"{name} must keep the form of its memory, {found}; got {left}"
        )
    axes = {a for leaf in jax.tree.leaves(after) for a in varying_axes(leaf)}
    if axes := sorted(axes - {REPLICA}):
        raise ValueError(
            f"{name} must return one memory per replica; its values differ "
            f"along {', '.join(axes)} (sum them over the global batch)"
        )
    return jax.lax.stop_gradient(after)


# Update ------------------------------------------------------------------------------


def update(
    program: Program,
    state: TrainState,
    inputs: ReplicaInputs,
    out: LossOutput,
    gradients: tuple[PyTree, ...],
    finite: jax.Array,
) -> TrainState:
    """Applies the optimiser to every network, or freezes a non-finite replica."""
    coefficients = inputs.coefficients

    def one(gradient, opt_state, params, own):
        optimizer = program.optimizer.transformation(
            learning_rate=coefficients.learning_rate,
            weight_decay=coefficients.weight_decay,
            **own,
        )
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        moved = jax.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates)
        return moved, opt_state

    # Mapped over networks: clipping by a norm must not couple them.
    groups = zip(gradients, state.opt_state, state.params, _own_settings(program))
    moved = [jax.vmap(one)(*group) for group in groups]
    weights = Weights(tuple(params for params, _ in moved), out.model_state)
    logged = jnp.stack([out.loss, *(out.terms[name] for name in sorted(out.terms))])
    # `code` numbers the terms first, then the loss, the gradient and the memory.
    bad = ~jnp.isfinite(logged)
    loss_finite, terms = ~jnp.any(bad), len(out.terms)
    after = jnp.where(finite, terms + 2, terms + 1)
    code = jnp.where(loss_finite, after, jnp.argmax(jnp.roll(bad, -1)))
    # An update whose memory is not finite is refused, so a stored one is always finite.
    go = state.alive & loss_finite & finite
    for leaf in jax.tree.leaves(out.memory):
        go &= jnp.all(jnp.isfinite(leaf))
    stop = state.alive & ~go
    return TrainState(
        step=state.step + go.astype(jnp.int32),
        params=_select(go, weights.params, state.params),
        model_state=_select(go, weights.model_state, state.model_state),
        opt_state=_select(go, tuple(o for _, o in moved), state.opt_state),
        alive=go,
        stopped_step=jnp.where(stop, state.step, state.stopped_step),
        stopped_term=jnp.where(stop, code.astype(jnp.int32), state.stopped_term),
        sums=state.sums + jnp.where(go, logged, 0.0),
        updates=state.updates + go.astype(jnp.float32),
        peers=_select(go, _peers(program, state), state.peers),
        ema=_select(go, _average(program, state, weights), state.ema),
        memory=_select(go, out.memory, state.memory),
    )


def _select(condition, new: PyTree, old: PyTree) -> PyTree:
    """`new` where the scalar `condition` holds, else `old`, leaf by leaf."""
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def _own_settings(program: Program) -> list[dict[str, jax.Array]]:
    """Per group, the optimiser's settings `[S]` of this device's networks, by name."""
    config, axis = program.optimizer.config, program.member_axis
    own: dict[str, Any] = {}
    if config.member_rates:
        own["factor"] = jnp.asarray(config.member_rates)
    if len(config.algorithms) > 1:
        number = config.algorithms.index
        own["algorithm"] = jnp.asarray([number(n) for n in config.member_algorithms])
    local, first = [], 0
    for group in program.groups:
        here = group.size // program.member_devices
        start = first + (0 if axis is None else jax.lax.axis_index(axis) * here)
        local.append(
            {k: jax.lax.dynamic_slice(v, (start,), (here,)) for k, v in own.items()}
        )
        first += group.size
    return local


def _peers(program: Program, state: TrainState) -> PyTree:
    """The copies that this update's members follow: made now, or still the old ones."""
    if not program.stale_steps:
        return ()
    due = state.step % program.stale_steps == 0
    return _select(due, Weights(state.params, state.model_state), state.peers)


def _average(program: Program, state: TrainState, weights: Weights) -> PyTree:
    """The moving average of the weights, `a <- d a + (1 - d) w`.

    At update t, counted from 0, `d = min(decay, (1 + t) / (10 + t))`: a large decay
    would otherwise keep the initial weights for `1 / (1 - decay)` updates.
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


# All replicas ------------------------------------------------------------------------


# Sessions with equal programs, such as rows of a study, share one compiled step; the
# last eight are kept.
@functools.lru_cache(maxsize=8)
def make_step(program: Program, *, steps_per_call: int | None = 1):
    """Compiles `step(state, inputs, taught, images, labels) -> state`.

    `taught` are the teachers' variables or `()`; see `Program.feed` for the data. A
    call makes `steps_per_call` updates by a loop of the program or, with None, as many
    as its last argument (int32) says. The state's memory is reused. For a click
    model a call trains on one window and returns `(state, scores [R, W])`.
    """
    counted = steps_per_call is None

    def steps(*args):
        *args, updates = args if counted else (*args, steps_per_call)
        return _local_steps(program, updates, *args)

    given = (*step_specs(program), *([P()] if counted else []))
    returned: Any = TrainState.specs(program.slots)
    placed: dict[str, Any] = {}
    if program.one_pass is not None:
        steps, returned = functools.partial(_local_window, program), (returned, P())
        placed = {
            "in_shardings": clicks.shardings(program, given),
            "out_shardings": clicks.shardings(program, returned),
        }
    sharded = jax.shard_map(
        steps, mesh=program.mesh, in_specs=given, out_specs=returned, check_vma=True
    )
    return jax.jit(
        sharded, donate_argnums=0, compiler_options=program.compilation, **placed
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
        if program.one_pass is None:
            inputs, data = _own_batches(program, inputs, data)
        else:
            window, number = data
            inputs, order = clicks.of_window(program, inputs, window, number)
            batch = clicks.batch_of(program, state, window, order, number)
            inputs = dataclasses.replace(inputs, batch=batch)
        one, given, variables = jax.tree.map(lambda x: x[0], (state, inputs, taught))
        loss, params = loss_function(program, one, given, variables, data)
        _, out = loss(params)
        return {name: jnp.zeros(1) for name in out.terms}

    return jax.jit(
        jax.shard_map(
            probe,
            mesh=program.mesh,
            in_specs=step_specs(program),
            out_specs=P(REPLICA),
            check_vma=True,
        )
    )


def step_specs(program: Program) -> tuple:
    """Partition specs of the step's arguments."""
    taught = P() if program.teacher is None else program.teacher.spec
    data = {"shared": P(DATA), "own": P(REPLICA, DATA)}.get(program.feed, P())
    return TrainState.specs(program.slots), P(REPLICA), taught, data, data


def _own_batches(program: Program, inputs, data: tuple):
    """Inputs and data; each replica's own batch moves into the inputs, to be mapped."""
    if program.feed != "own":
        return inputs, data
    return dataclasses.replace(inputs, batch=data), (None, None)


def _local_steps(program: Program, updates, state, inputs, taught, *data):
    """This device's replicas after `updates` updates, an int or a traced scalar."""
    inputs, data = _own_batches(program, inputs, data)
    count = state.step.shape[0]

    def repeat(step, states):
        if isinstance(updates, int) and updates == 1:
            return step(states)
        return jax.lax.fori_loop(0, updates, lambda _, s: step(s), states)

    if program.mapping != "unroll" and count > 1:

        def together(state):
            found = _gradients(program, state, inputs, taught, data)
            return jax.vmap(functools.partial(update, program))(state, inputs, *found)

        return repeat(together, state)

    def replica_step(state, inputs, taught):
        found = loss_and_gradients(program, state, inputs, taught, data)
        return update(program, state, inputs, *found)

    # Unstacked once for all updates: restacking the weights after each one costs more
    # than a small network's arithmetic.
    given = [slots.unstack(part, count) for part in (inputs, taught)]
    # An update that draws one teacher takes it out of the stacked ones.
    draws_one = inputs.coefficients.method.passes.drawn_teacher
    if program.teacher is not None and not draws_one:
        given[1] = [one_by_one(program.teacher, variables) for variables in given[1]]
    states = slots.unstack(state, count)
    return slots.stack(
        repeat(lambda states: slots.map_each(replica_step, states, *given), states)
    )


def _local_window(program: Program, state, inputs, taught, window, number):
    """Scores and learns a window of clicks; `(state, scores [R, W])`."""
    inputs, order = clicks.of_window(program, inputs, window, number)

    def learn(number, state):
        batch = clicks.batch_of(program, state, window, order, number)
        given = dataclasses.replace(inputs, batch=batch)
        towers = dataclasses.replace(state, tables=())
        out, gradients, finite = _gradients(program, towers, given, taught, ())
        (scores, *_), (*dense, rows) = out.model_state, gradients
        out = dataclasses.replace(out, model_state=state.model_state)
        moved = jax.vmap(functools.partial(update, program))(
            towers, given, out, tuple(dense), finite
        )
        tables = clicks.update_tables(program, state.tables, given, rows, moved.alive)
        return scores["score"], dataclasses.replace(moved, tables=tables)

    return clicks.over_batches(program, window, order, learn, state)


def _gradients(program: Program, state, inputs, taught, data):
    """`loss_and_gradients` of all local replicas at once."""

    def compute(state):
        return jax.vmap(lambda s, i, t: loss_and_gradients(program, s, i, t, data))(
            state, inputs, taught
        )

    return _guarded(compute, state) if program.convolutional else compute(state)


def _guarded(compute, state: Any):
    """`compute(state)`, where a replica with a non-finite loss spoils no other.

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
        own = state.replace(params=params, model_state=model_state, peers=peers)
        return compute(own)

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
    held = (state.model_state, state.memory, state.params)
    nothing = jax.tree.map(jnp.zeros_like, held)
    start = (
        state.alive,
        (*nothing, jnp.zeros_like(state.alive)),
        (zero, {name: zero for name in terms}),
        jnp.zeros_like(state.step[0]),
    )
    _, result, (loss, terms), _ = jax.lax.while_loop(lambda c: c[3] < 2, turn, start)
    model_state, memory, gradients, finite = result
    return LossOutput(loss, terms, model_state, memory), gradients, finite
