"""The one train step: written for one replica, mapped and sharded around it once."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike

from churn_jax.data.augment import Augmentation, augment, normalize
from churn_jax.ensembles import Group, apply_committee
from churn_jax.ensembles import mapping as slots
from churn_jax.methods import Batch, LossOutput
from churn_jax.training.optim import OptimizerConfig, make_optimizer
from churn_jax.training.partition import DATA, MEMBER, REPLICA
from churn_jax.training.seeds import member_counts
from churn_jax.training.state import ReplicaInputs, TrainState, Weights
from churn_jax.training.teachers import TeacherProgram, make_teacher
from churn_jax.typing import PyTree

__all__ = ["Program", "make_step", "term_names"]


@dataclasses.dataclass(frozen=True)
class Program:
    """Everything about a run that is compiled into its step.

    Attributes:
        groups: the committee of one replica.
        optimizer: structure of the optimiser.
        schedule: factor of the learning rate by update.
        batch_size: examples per update and replica, over all data shards.
        mesh: `("replica", "member", "data")`.
        mapping: of replicas: `vmap`, `unroll` or `loop`.
        member_mapping: of a replica's networks: `vmap` or `unroll`.
        augmentation: policy; None is none.
        mean: of pixels in [0, 1], a number or one per channel.
        std: likewise.
        teacher: the teacher's networks, or None.
        stale_steps: every how many updates the copies are refreshed that members
            follow; 0 keeps none.
        ema_decay: of the moving average of the weights; 0 keeps none.
        feed: what the step's images and labels are: the whole training set
            (`resident`), a batch for all replicas (`shared`), or a batch for each
            (`own`).
        convolutional: whether a network convolves, so that vmapped replicas can
            spoil each other's gradients; see `_vmapped_gradients`.
    """

    groups: tuple[Group, ...]
    optimizer: OptimizerConfig
    schedule: Callable[[ArrayLike], ArrayLike]
    batch_size: int
    mesh: Mesh
    mapping: str = "vmap"
    member_mapping: str = "vmap"
    augmentation: Augmentation | None = None
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    teacher: TeacherProgram | None = None
    convolutional: bool = True
    stale_steps: int = 0
    ema_decay: float = 0.0
    feed: str = "resident"

    def __post_init__(self):
        """Checks that the mesh divides what it shards."""
        shape = dict(self.mesh.shape)
        if self.batch_size % shape[DATA]:
            raise ValueError(
                f"batch_size {self.batch_size} is not divisible by the mesh's data "
                f"axis, {shape[DATA]}"
            )
        for group in self.groups:
            if group.size % shape[MEMBER]:
                raise ValueError(
                    f"{group.size} networks of {group.network.name} cannot be sharded "
                    f"over a member axis of {shape[MEMBER]} devices"
                )


def _forward(program: Program, key: jax.Array):
    """`apply(variables, images, train)` of all members, gathered over the mesh."""

    def apply(variables, images, train=True):
        extra: dict[str, Any] = {"axis_name": DATA, "key": key} if train else {}
        return apply_committee(
            program.groups,
            variables,
            images,
            member_axis=MEMBER,
            mapping=program.member_mapping,
            train=train,
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
        y = jnp.take(labels, indices, axis=0, mode="clip")
    else:
        x, y = inputs.batch or (images, labels)
    if program.augmentation is not None:
        x = augment(x, keys, program.augmentation)
    x = normalize(x, program.mean, program.std)
    method, weights = inputs.coefficients.method, None
    if method.member_sample == "bootstrap":
        weights = member_counts(inputs.sample_key, method.members, indices)
    batch = Batch(x, y, jnp.ones(share, jnp.float32), keys, DATA, weights)
    dropout = jax.random.fold_in(
        jax.random.fold_in(step_key, 2), jax.lax.axis_index(DATA)
    )
    return batch, jax.random.fold_in(step_key, 1), dropout


def _fed(program: Program, inputs: ReplicaInputs, data: tuple):
    """Inputs and data, with batches of the replicas' own where replicas are mapped."""
    if program.feed != "own":
        return inputs, data
    return dataclasses.replace(inputs, batch=data), (None, None)


def _data_specs(program: Program) -> tuple[P, P]:
    """How images and labels lie on the mesh."""
    feeds = {"resident": P(), "shared": P(DATA), "own": P(REPLICA, DATA)}
    return (feeds[program.feed],) * 2


def _peers(program: Program, state) -> PyTree:
    """The copies that this update's members follow: made now, or still the old ones."""
    if not program.stale_steps:
        return ()
    due = state.step % program.stale_steps == 0
    return _select(due, Weights(state.params, state.model_state), state.peers)


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


def _select(condition, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def _slots(program: Program, tree: PyTree) -> PyTree:
    """Stacked groups, or lists of trees where the networks are unrolled.

    Unstacked before differentiation, so that no gradient passes through a slice.
    """
    local = [g.size // program.mesh.shape[MEMBER] for g in program.groups]
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


def _replica_gradients(program: Program, state, inputs, teacher, images, labels):
    """`(LossOutput, gradients, gradients are finite)` of one replica; no R axis."""
    batch, key, dropout = _batch(program, state, inputs, images, labels)
    method = inputs.coefficients.method
    model_state = _slots(program, state.model_state)
    teach = None
    if program.teacher is not None:
        teach = make_teacher(program.teacher, teacher, program.mesh.shape[MEMBER])
    if program.stale_steps:
        peers = _peers(program, state)
        variables = tuple(map(_with_params, peers.params, peers.model_state))
        itself = TeacherProgram(program.groups, True, program.member_mapping)
        teach = make_teacher(itself, variables, program.mesh.shape[MEMBER])

    def objective(params):
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
    return LossOutput(out.loss, dict(out.terms), new_state), gradients, finite


def _replica_update(program: Program, state, inputs, out, gradients, finite):
    """Applies the optimiser per network, or freezes a replica gone non-finite."""
    coefficients = inputs.coefficients
    optimizer = make_optimizer(
        program.optimizer,
        program.schedule,
        learning_rate=coefficients.learning_rate,
        weight_decay=coefficients.weight_decay,
    )

    def update(gradient, opt_state, params):
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return jax.tree.map(jnp.add, params, updates), opt_state

    moved = [
        jax.vmap(update)(*group)
        for group in zip(gradients, state.opt_state, state.params)
    ]
    logged = jnp.stack([out.loss, *(out.terms[k] for k in sorted(out.terms))])
    bad = ~jnp.isfinite(logged)
    loss_finite = ~jnp.any(bad)
    # Terms come first in the code, then the loss, then the gradient.
    terms = len(out.terms)
    code = jnp.where(jnp.any(bad[1:]), jnp.argmax(bad[1:]), terms)
    code = jnp.where(loss_finite, terms + 1, code).astype(jnp.int32)
    go = state.alive & loss_finite & finite
    stop = state.alive & ~go

    weights = Weights(tuple(p for p, _ in moved), out.model_state)
    return TrainState(
        step=state.step + go.astype(jnp.int32),
        params=_select(go, weights.params, state.params),
        model_state=_select(go, weights.model_state, state.model_state),
        opt_state=_select(go, tuple(o for _, o in moved), state.opt_state),
        alive=go,
        stopped_step=jnp.where(stop, state.step, state.stopped_step),
        stopped_term=jnp.where(stop, code, state.stopped_term),
        sums=state.sums + jnp.where(go, logged, 0.0),
        updates=state.updates + go.astype(jnp.float32),
        peers=_select(go, _peers(program, state), state.peers),
        ema=_select(go, _average(program, state, weights), state.ema),
    )


def _all_gradients(program: Program, state, inputs, teacher, images, labels):
    """`_replica_gradients` of all local replicas at once."""
    return jax.vmap(
        lambda s, i, t: _replica_gradients(program, s, i, t, images, labels)
    )(state, inputs, teacher)


def _vmapped_gradients(program: Program, state, inputs, teacher, images, labels):
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
        return _all_gradients(program, safe, inputs, teacher, images, labels)

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
        result = (out.model_state, gradients, finite)
        return live & ~culprits, result, logged, jnp.where(again, 1, 2)

    # Zeros like what a pass yields, varying over the same mesh axes.
    zero = jnp.zeros_like(state.sums[:, 0])
    terms = jax.eval_shape(compute, state.alive)[0].terms
    nothing = jax.tree.map(jnp.zeros_like, (state.model_state, state.params))
    start = (
        state.alive,
        (*nothing, jnp.zeros_like(state.alive)),
        (zero, {name: zero for name in terms}),
        jnp.zeros_like(state.step[0]),
    )
    _, result, (loss, terms), _ = jax.lax.while_loop(lambda c: c[3] < 2, turn, start)
    model_state, gradients, finite = result
    return LossOutput(loss, terms, model_state), gradients, finite


def _local_steps(program: Program, updates: int, state, inputs, teacher, *data):
    """Some updates of the replicas that live on this device."""
    count = state.step.shape[0]
    inputs, data = _fed(program, inputs, data)

    def apply(computed, state, inputs):
        return _replica_update(program, state, inputs, *computed)

    def repeat(update, states):
        if updates == 1:
            return update(states)
        return jax.lax.scan(
            lambda s, _: (update(s), None), states, None, length=updates
        )[0]

    if program.mapping == "vmap" and count > 1:
        gradients = _vmapped_gradients if program.convolutional else _all_gradients

        def together(state):
            computed = gradients(program, state, inputs, teacher, *data)
            return jax.vmap(apply)(computed, state, inputs)

        return repeat(together, state)

    def replica_step(state, inputs, teacher):
        computed = _replica_gradients(program, state, inputs, teacher, *data)
        return apply(computed, state, inputs)

    # Unstacked once for all updates: restacking the weights after each one costs more
    # than a small network's arithmetic.
    given = [slots.unstack(part, count) for part in (inputs, teacher)]
    states = slots.unstack(state, count)
    return slots.stack(
        repeat(lambda states: slots.map_each(replica_step, states, *given), states)
    )


def make_step(program: Program, *, steps_per_call: int = 1, donate: bool = True):
    """Compiles the step of `program`.

    Args:
        program: what to train.
        steps_per_call: updates per dispatch, by `lax.scan`; leave 1 for convolutions
            on CPU, whose weight gradients are slow inside a scan.
        donate: reuse the state's memory.

    Returns:
        `step(state, inputs, teacher, images, labels) -> state`; `teacher` is a tree
        of variables or `()`; of `images` and `labels` see `Program.feed`.
    """

    def steps(*args):
        return _local_steps(program, steps_per_call, *args)

    teacher_spec = P() if program.teacher is None else program.teacher.spec
    sharded = jax.shard_map(
        steps,
        mesh=program.mesh,
        in_specs=(
            TrainState.specs(),
            P(REPLICA),
            teacher_spec,
            *_data_specs(program),
        ),
        out_specs=TrainState.specs(),
        check_vma=True,
    )
    return jax.jit(sharded, donate_argnums=(0,) if donate else ())


def term_names(program: Program, state, inputs, teacher, images, labels):
    """Names of the method's terms, in the order of `TrainState.sums[:, 1:]`.

    Traces the loss without compiling it; the arguments may be shapes only.
    """
    seen = []

    def probe(state, inputs, teacher, *data):
        inputs, data = _fed(program, inputs, data)
        one, given, taught = jax.tree.map(lambda x: x[0], (state, inputs, teacher))
        out, _, _ = _replica_gradients(program, one, given, taught, *data)
        seen.append(tuple(sorted(out.terms)))
        return out.loss[None]

    teacher_spec = P() if program.teacher is None else program.teacher.spec
    sharded = jax.shard_map(
        probe,
        mesh=program.mesh,
        in_specs=(
            TrainState.specs(),
            P(REPLICA),
            teacher_spec,
            *_data_specs(program),
        ),
        out_specs=P(REPLICA),
        check_vma=True,
    )
    jax.eval_shape(sharded, state, inputs, teacher, images, labels)
    return seen[0]
