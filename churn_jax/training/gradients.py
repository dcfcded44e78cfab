"""A replica's batch, its loss and its gradients; several replicas at once."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from churn_jax._jax import to_varying, varying_axes
from churn_jax.data.augment import augment, normalize
from churn_jax.ensembles import apply_committee
from churn_jax.ensembles import mapping as slots
from churn_jax.methods import Batch, LossOutput
from churn_jax.training.partition import DATA, MEMBER, REPLICA
from churn_jax.training.program import Program
from churn_jax.training.resident import shaped_examples
from churn_jax.training.seeds import member_weights
from churn_jax.training.state import ReplicaInputs, Weights
from churn_jax.training.teachers import TeacherProgram, make_teacher
from churn_jax.typing import PyTree

__all__ = [
    "all_finite",
    "all_gradients",
    "checked_memory",
    "followed_peers",
    "replica_gradients",
    "select",
    "vmapped_gradients",
]


def _forward(program: Program, key: jax.Array):
    """`apply(variables, images, train, extras)` of all members, over the whole mesh."""

    def apply(variables, images, train=True, extras=()):
        extra: dict[str, Any] = {"axis_name": DATA, "key": key} if train else {}
        return apply_committee(
            program.groups,
            variables,
            images,
            member_axis=program.member_axis,
            mapping=program.member_mapping,
            train=train,
            extras=extras,
            **extra,
        )

    return apply


def _batch(program: Program, state, inputs: ReplicaInputs, images, labels):
    """This replica's share of the batch: gather unless fed, augment, normalise."""
    shards = program.mesh.shape[DATA]
    share = program.batch_size // shards
    per_epoch = inputs.order.shape[0] // program.batch_size
    position = jax.lax.axis_index(DATA) * share + jnp.arange(share)
    start = (state.step % per_epoch) * program.batch_size + position[0]
    indices = jax.lax.dynamic_slice(inputs.order, (start,), (share,))
    step_key = jax.random.fold_in(inputs.augment_key, state.step)
    # Keyed by the position in the global batch: results do not depend on the mesh.
    base = jax.random.fold_in(step_key, 0)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(base, position)
    if program.feed == "resident":
        x = jnp.take(images, indices, axis=0, mode="clip")
        x = shaped_examples(x, program.example_shape)
        y = jnp.take(labels, indices, axis=0, mode="clip")
    else:
        x, y = inputs.batch or (images, labels)
    if program.augmentation is not None:
        x = augment(x, keys, program.augmentation)
    x = normalize(x, program.mean, program.std)
    method = inputs.coefficients.method
    weights = member_weights(
        method.member_sample,
        inputs.sample_key,
        method.members,
        indices,
        method.member_share,
    )
    batch = Batch(
        x,
        y,
        jnp.ones(share, jnp.float32),
        keys,
        DATA,
        weights,
        state.memory,
        pixel_mean=program.mean,
        pixel_std=program.std,
        rows=indices,
    )
    dropout = jax.random.fold_in(
        jax.random.fold_in(step_key, 2), jax.lax.axis_index(DATA)
    )
    return batch, jax.random.fold_in(step_key, 1), dropout


def followed_peers(program: Program, state) -> PyTree:
    """The copies that this update's members follow: made now, or still the old ones."""
    if not program.stale_steps:
        return ()
    due = state.step % program.stale_steps == 0
    return select(due, Weights(state.params, state.model_state), state.peers)


def select(condition, new: PyTree, old: PyTree) -> PyTree:
    """`new` where the scalar `condition` holds, else `old`, leaf by leaf."""
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def all_finite(tree: PyTree):
    """Whether every number of the tree is finite; True where there is none."""
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.logical_and, leaves, True)


def checked_memory(method, before: PyTree, after: PyTree) -> PyTree:
    """The memory that an update leaves, in the form in which it was found.

    Raises:
        ValueError: structure, shapes or dtypes are others, or devices of one replica
            would remember different things; said while tracing.
    """
    name = f"{type(method).__name__}.loss"
    found, left = (
        jax.tree.map(lambda x: f"{jnp.result_type(x)}{list(jnp.shape(x))}", tree)
        for tree in (before, after)
    )
    if found != left:
        raise ValueError(
            f"{name} must return its memory as it found it, {found}; got {left}"
        )
    axes = {a for leaf in jax.tree.leaves(after) for a in varying_axes(leaf)}
    axes -= {REPLICA}
    if axes:
        raise ValueError(
            f"{name} must return one memory for the whole replica; its values differ "
            f"along {', '.join(sorted(axes))} (sum them over the global batch)"
        )
    return jax.lax.stop_gradient(after)


def _slots(program: Program, tree: PyTree) -> PyTree:
    """Stacked groups, or lists of trees where the networks are unrolled.

    Unstacked before differentiation, so that no gradient passes through a slice.
    """
    local = [g.size // program.member_devices for g in program.groups]
    if program.member_mapping == "vmap" and max(local) > 1:
        return list(tree)
    return [slots.unstack(part, n) for part, n in zip(tree, local)]


def _stacked(parts: list[PyTree]) -> tuple[PyTree, ...]:
    return tuple(slots.stack(p) if isinstance(p, list) else p for p in parts)


def _with_params(params: PyTree, model_state: PyTree) -> PyTree:
    if isinstance(params, list):
        return [_with_params(p, s) for p, s in zip(params, model_state)]
    return {**model_state, "params": params}


def _without_params(state: PyTree) -> PyTree:
    if isinstance(state, list):
        return [_without_params(s) for s in state]
    return {k: v for k, v in state.items() if k != "params"}


def _shared(leaf):
    """State as one value for all data shards, where its type does not say so yet.

    It is the same on all: it follows from the weights alone, or there is one shard
    (`check_run` refuses what does not).
    """
    return jax.lax.pmax(leaf, DATA) if DATA in varying_axes(leaf) else leaf


def replica_gradients(program: Program, state, inputs, teacher, images, labels):
    """`(LossOutput, gradients, gradients are finite)` of one replica; no R axis."""
    batch, key, dropout = _batch(program, state, inputs, images, labels)
    method = inputs.coefficients.method
    model_state = _slots(program, state.model_state)
    teach = None
    if program.teacher is not None:
        members = program.mesh.shape[MEMBER]
        teach = make_teacher(program.teacher, teacher, members, batch.rows)
    if program.stale_steps:
        peers = followed_peers(program, state)
        variables = tuple(map(_with_params, peers.params, peers.model_state))
        itself = TeacherProgram(
            program.groups, not program.replicated, program.member_mapping
        )
        teach = make_teacher(itself, variables, program.mesh.shape[MEMBER])

    def objective(params):
        # Handed to the data shards here, once: so a gradient is summed over them once,
        # and not at every place where a layer or a second pass uses the weight.
        params = jax.tree.map(lambda p: to_varying(p, DATA), params)
        variables = [_with_params(p, s) for p, s in zip(params, model_state)]
        out = method.loss(
            _forward(program, dropout),
            variables,
            batch,
            teacher=teach,
            step=state.step,
            key=key,
        )
        return out.loss, out

    params = _slots(program, state.params)
    (_, out), gradients = jax.value_and_grad(objective, has_aux=True)(params)
    gradients = _stacked(gradients)
    bad = sum(jnp.sum(~jnp.isfinite(g)) for g in jax.tree.leaves(gradients))
    finite = jax.lax.psum(bad, MEMBER) == 0
    new_state = _stacked([_without_params(s) for s in out.model_state])
    new_state = jax.tree.map(_shared, new_state)
    memory = checked_memory(method, state.memory, out.memory)
    out = LossOutput(out.loss, dict(out.terms), new_state, memory)
    return out, gradients, finite


def all_gradients(program: Program, state, inputs, teacher, images, labels):
    """`replica_gradients` of all local replicas at once."""
    return jax.vmap(
        lambda s, i, t: replica_gradients(program, s, i, t, images, labels)
    )(state, inputs, teacher)


def vmapped_gradients(program: Program, state, inputs, teacher, images, labels):
    """Gradients of all local replicas at once, with the blame put where it belongs.

    Under a vmapped convolution one slot's non-finite cotangent makes its neighbours'
    weight gradients non-finite (seen on CPU). So where a replica has a finite loss and
    bad gradients, all are computed again with the culprits' weights set to zero.

    Both passes are turns of one loop, because a second copy of the computation in the
    program would be fused otherwise and round otherwise: the neighbours would differ
    in the last bit from a run without the culprits.
    """

    def compute(live):
        def neutral(leaf):
            return jnp.where(live.reshape(-1, *([1] * (leaf.ndim - 1))), leaf, 0)

        safe = state.replace(
            params=jax.tree.map(neutral, state.params),
            model_state=jax.tree.map(neutral, state.model_state),
            peers=jax.tree.map(neutral, state.peers),
        )
        return all_gradients(program, safe, inputs, teacher, images, labels)

    def turn(carry):
        live, _, first, done = carry
        out, gradients, finite = compute(live)
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
    terms = jax.eval_shape(compute, state.alive)[0].terms
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
