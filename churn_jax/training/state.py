"""The state of training: stacked trees, one entry per replica, and how it begins.

Seeds are an experimental factor: what differs between replicas, and what does not.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import PyTree

from churn_jax.configuration.training import NETWORK, SAMPLES, Seeds, TrainConfig
from churn_jax.data.splits import first_line
from churn_jax.ensembles import Group, Network
from churn_jax.ensembles.wrappers import StartingFrom
from churn_jax.methods import Method
from churn_jax.methods.fields import check_coefficients
from churn_jax.setting_checks import check_choice
from churn_jax.training.examples import changed_form
from churn_jax.training.optim import Optimizer, in_float32, is_fast, is_vector
from churn_jax.training.partition import MEMBER, REPLICA, compilation, place

if TYPE_CHECKING:
    from churn_jax.training.program import Program
    from churn_jax.training.run import Run

# Fields with the networks' leaves `[R, S, ...]`, and those that a log line can do
# without.
_OF_NETWORKS = ("params", "model_state", "opt_state", "peers", "ema")
_TREES = (*_OF_NETWORKS, "memory", "tables")


@struct.dataclass
class Weights:
    """Another set of weights than the one that trains, such as an average of it."""

    params: tuple[PyTree, ...]
    model_state: tuple[PyTree, ...]


@struct.dataclass
class TrainState:
    """Everything that changes during training; checkpointed whole."""

    step: jax.Array  # [R] int32, updates done
    params: tuple[PyTree, ...]  # one tree per group, leaves [R, S, ...]
    model_state: tuple[PyTree, ...]  # like params, such as batch statistics
    opt_state: tuple[PyTree, ...]  # like params
    alive: jax.Array  # [R] bool; a replica whose loss turned non-finite is frozen
    stopped_step: jax.Array  # [R] int32, the update that was refused; -1 while alive
    stopped_term: jax.Array  # [R] int32, what was non-finite; see `stopped_replicas`
    sums: jax.Array  # [R, 1 + terms] float32, loss and terms since the epoch began
    updates: jax.Array  # [R] float32, since the epoch began
    # `Weights`: copies of all members that their peers follow, and an exponential
    # moving average; () without.
    peers: PyTree = ()
    ema: PyTree = ()
    # What the method remembers between updates (`Method.init_memory`), leaves [R, ...],
    # the same on all devices of a replica; () for methods that remember nothing.
    memory: PyTree = ()
    # A click model's table [R V, width] float32, one replica's rows after the other's,
    # and AdaGrad's accumulators in the same form, () for plain gradient descent.
    tables: PyTree = ()

    @classmethod
    def specs(cls, slots: Any = P(REPLICA, MEMBER)) -> "TrainState":
        """Placement of every field; `slots` is that of the networks' leaves."""
        specs: Any = {field.name: P(REPLICA) for field in dataclasses.fields(cls)}
        return cls(**specs | dict.fromkeys(_OF_NETWORKS, slots))


@struct.dataclass
class BestState:
    """The weights of each replica's best validation epoch."""

    params: tuple[PyTree, ...]
    model_state: tuple[PyTree, ...]
    score: jax.Array  # [R] float32, the validation accuracy; -1 before the first
    epoch: jax.Array  # [R] int32, after how many epochs

    def update(self, state: TrainState, score: jax.Array, epoch) -> "BestState":
        """Takes over the replicas whose score has risen; ties keep the earlier one."""
        better = state.alive & (score > self.score)

        def pick(new, old):
            return jnp.where(better.reshape(-1, *([1] * (new.ndim - 1))), new, old)

        return BestState(
            params=jax.tree.map(pick, state.params, self.params),
            model_state=jax.tree.map(pick, state.model_state, self.model_state),
            score=jnp.where(better, score, self.score),
            epoch=jnp.where(better, jnp.asarray(epoch, jnp.int32), self.epoch),
        )


@struct.dataclass
class Coefficients:
    """Settings that may differ between replicas, apart from seeds; leaves `[R]`."""

    method: Method
    learning_rate: jax.Array
    weight_decay: jax.Array
    # The method's class, since programs are shared by structure and jaxlib 0.10 finds
    # the structures of two dataclasses equal that differ in their class alone.
    kind: type = struct.field(pytree_node=False, default=Method)


@struct.dataclass
class ReplicaInputs:
    """Constants of a replica during one epoch; never donated."""

    order: jax.Array  # this epoch's, [R, N] int32
    augment_key: jax.Array  # typed keys [R]
    coefficients: Coefficients  # leaves [R]
    sample_key: PyTree = ()  # [R, M], of the members' own samples; () if all share one
    # Images [R, B, ...] and labels [R, B] of the next update if each replica is fed its
    # own, or a `ClickBatch`; otherwise ().
    batch: Any = ()  # put in by the step
    # Of a click model, whose `order` are keys as well: the keys of order, augmentation
    # and samples of replica number 0, for the warm start.
    warm_keys: PyTree = ()


def small_fields(state: TrainState) -> TrainState:
    """The state without its trees: what is fetched for a log line."""
    none: Any = dict.fromkeys(_TREES, ())
    return dataclasses.replace(state, **none)


def term_means(state: TrainState, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Means `[R]` of loss and terms since the epoch began; nan without an update."""
    means = state.sums / np.maximum(state.updates, 1.0)[:, None]
    means[state.updates == 0] = np.nan
    return dict(zip(names, means.T))


def joined(
    params: Sequence[PyTree], model_state: Sequence[PyTree]
) -> tuple[PyTree, ...]:
    """Weights as variables, one tree per group, or a list of its networks' trees."""

    def one(params: PyTree, model_state: PyTree) -> PyTree:
        if isinstance(params, list):
            return list(map(one, params, model_state))
        return {**model_state, "params": params}

    return tuple(one(*group) for group in zip(params, model_state, strict=True))


def _per_replica(value, replicas: int, name: str) -> Any:
    array = np.asarray(value, np.float32)
    if array.shape not in ((), (replicas,)):
        raise ValueError(
            f"{name} must be one number or one per replica, [{replicas}]; got shape "
            f"{array.shape}"
        )
    return np.broadcast_to(array, replicas)


def init_coefficients(method: Method, config: TrainConfig, mesh) -> Coefficients:
    """Every coefficient as an array `[R]` on the mesh."""
    replicas, optimizer = config.replicas, config.optimizer

    def array(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return _per_replica(leaf, replicas, f"{type(method).__name__}.{name}")

    arrays = jax.tree_util.tree_map_with_path(array, method)
    check_coefficients(arrays, np.ndarray)
    found = Coefficients(
        arrays,
        _per_replica(optimizer.learning_rate, replicas, "learning_rate"),
        _per_replica(optimizer.weight_decay, replicas, "weight_decay"),
        type(method),
    )
    return place(found, mesh, P(REPLICA))


def init_variables(run: "Run", program: "Program", example: jax.Array) -> tuple:
    """Variables of every group, leaves `[R, S, ...]`, born with their sharding."""
    # Arguments and not constants of the program: see `StartingFrom`.
    given = [
        g.network.init.weights if isinstance(g.network.init, StartingFrom) else {}
        for g in run.groups
    ]
    scale = _per_replica(run.method.input_scale, run.config.replicas, "input_scale")
    draw = _draw(
        without_weights(run.groups),
        None if np.all(scale == 1.0) else tuple(scale.tolist()),
        NamedSharding(program.mesh, program.slots),
    )
    root = run.config.seeds.keys("init", np.asarray(run.config.numbers))  # [R]
    return draw(root, np.uint32(run.stream), given, example)


def without_weights(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups with networks that draw all layers: a program holds no weights."""

    def drawn(group: Group) -> Group:
        init = group.network.init
        if not isinstance(init, StartingFrom):
            return group
        network = dataclasses.replace(group.network, init=init.draw)
        return Group(network, group.size, group.gate)

    return tuple(map(drawn, groups))


# Keys are arguments, so rows that start alike have this program in common.
@functools.lru_cache(maxsize=8)
def _draw(groups, scale, sharding):
    """`init_variables` compiled: `draw(keys [R], stream, given weights, example)`."""

    def one(group: Group, weights: PyTree):
        if not weights:
            return group.network.init
        return functools.partial(StartingFrom(group.network.init, {}), weights=weights)

    def draw(root, stream, given, example):
        root = jax.vmap(jax.random.fold_in, (0, None))(root, stream)
        fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
        variables, first = [], 0
        for group, weights in zip(groups, given):
            keys = fold(root, np.arange(first, first := first + group.size))  # [R, S]
            init = jax.vmap(jax.vmap(one(group, weights), (0, None)), (0, None))
            drawn = init(keys, example)
            if scale is not None and not group.gate:
                params = scale_inputs(group.network, drawn["params"], scale)
                drawn = {**drawn, "params": params}
            variables.append(drawn)
        # A weakly typed leaf would be a strong one after the first update, and the
        # step would be compiled twice.
        return jax.tree.map(
            lambda x: jax.lax.convert_element_type(x, x.dtype), tuple(variables)
        )

    return jax.jit(draw, out_shardings=sharding, compiler_options=compilation())


def scale_inputs(network: Network, params: PyTree, scale: ArrayLike) -> PyTree:
    """Initial weights whose variance at the input is `scale` times what it was.

    Kernels and embeddings of `Network.input_params` are multiplied by the root of
    `scale`, a number or `[R]`; vectors (biases) and fast weights stay. Of Section 5 of
    the anti-distillation paper.
    """
    named = [name for name in network.input_params if name in params]
    if not named:
        raise ValueError(
            f"{network.name} does not say which parameters the input meets first "
            "(Network.input_params), so their variance cannot be scaled; use "
            "input_scale 1"
        )
    root = jnp.sqrt(jnp.asarray(scale, jnp.float32)).reshape(-1, 1)

    def scaled(path, leaf):
        # Fast weights multiply the kernel and would count twice; vectors are replicas,
        # networks and one axis, or two where a layer has a bias for every member.
        if leaf.ndim < 4 or is_fast(path) or is_vector(path):
            return leaf
        return leaf * jnp.expand_dims(root, range(2, leaf.ndim)).astype(leaf.dtype)

    new = {n: jax.tree_util.tree_map_with_path(scaled, params[n]) for n in named}
    return {**params, **new}


def init_state(
    run: "Run", program: "Program", variables: tuple[PyTree, ...], num_classes: int
) -> TrainState:
    """The state before the first update.

    It has no sums of terms yet, which only the step knows; see `with_sums`.
    """
    mesh, replicas = program.mesh, run.config.replicas
    held = run.method.init_memory(num_classes)
    memory = jax.tree.map(lambda x: jnp.stack([jnp.array(x)] * replicas), held)
    params = tuple(v["params"] for v in variables)
    rest = ({k: x for k, x in v.items() if k != "params"} for v in variables)
    model_state = tuple(rest)
    sharding = NamedSharding(mesh, program.slots)
    opt_state = _init_optimizer(program.optimizer, sharding)(params)
    fields = place(
        {
            "step": np.zeros(replicas, np.int32),
            "alive": np.ones(replicas, bool),
            "stopped_step": np.full(replicas, -1, np.int32),
            "stopped_term": np.full(replicas, -1, np.int32),
            "sums": np.zeros((replicas, 1), np.float32),
            "updates": np.zeros(replicas, np.float32),
            "memory": memory,
        },
        mesh,
        P(REPLICA),
    )
    weights = Weights(params, model_state)
    return TrainState(
        params=params,
        model_state=model_state,
        opt_state=opt_state,
        # Copies, since the whole state is donated.
        peers=jax.tree.map(jnp.copy, weights) if program.stale_steps else (),
        ema=in_float32(jax.tree.map(jnp.copy, weights)) if program.ema_decay else (),
        **fields,
    )


@functools.lru_cache(maxsize=8)
def _init_optimizer(optimizer: Optimizer, sharding):
    zero = jnp.float32(0.0)
    one = optimizer.transformation(learning_rate=zero, weight_decay=zero)

    def init(params):
        return tuple(jax.vmap(jax.vmap(one.init))(p) for p in params)

    # A user's optimiser is traced for an update of all networks before it is used.
    def update(params):
        state = init(params)
        moved = [jax.vmap(jax.vmap(one.update))(p, s, p) for p, s in zip(params, state)]
        updates, after = zip(*moved)
        return (state, in_float32(params)), (after, updates)

    def checked(params):
        name = optimizer.config.name
        try:
            before, after = jax.eval_shape(update, params)
        except Exception as error:
            raise ValueError(
                f"optimizer {name} cannot update all networks at once, as under "
                f"jax.vmap ({type(error).__name__}: {first_line(error)})"
            ) from error
        if change := changed_form(before, after):
            raise ValueError(
                f"optimizer {name} must leave its state and the updates in the form "
                f"that they had; {change}"
            )
        return compiled(params)

    compiled = jax.jit(init, out_shardings=sharding)
    return compiled if optimizer.own is None else checked


@functools.lru_cache(maxsize=8)
def gatherer(ensemble: "Program"):
    """The state of an ensemble from those of networks that were trained as replicas.

    There is one for every group, with leaves `[R x S, 1, ...]` that become
    `[R, S, ...]`. A replica stops when its first network does; the others go on.
    """
    sizes = [group.size for group in ensemble.groups]

    def gather(states):
        def every(name):
            """One field of all networks of a replica, `[R, networks, ...]`."""
            fields = [getattr(state, name) for state in states]
            rows = [x.reshape(-1, n, *x.shape[1:]) for x, n in zip(fields, sizes)]
            return jnp.concatenate(rows, axis=1)

        def networks(trees):
            return tuple(
                jax.tree.map(lambda x, n=size: x.reshape(-1, n, *x.shape[2:]), tree)
                for (tree,), size in zip(trees, sizes)
            )

        def of_first(name):
            return jnp.take_along_axis(every(name), first, axis=1)[:, 0]

        stops = every("stopped_step")
        stops = jnp.where(stops < 0, jnp.iinfo(jnp.int32).max, stops)
        first = jnp.argmin(stops, axis=1)[:, None]
        trees = ("params", "model_state", "opt_state")
        updates = every("updates")  # a stopped network has fewer
        means = every("sums") / jnp.maximum(updates, 1.0)[..., None]
        fewest = jnp.min(updates, axis=1)
        averages = [state.ema for state in states if isinstance(state.ema, Weights)]
        ema = averages and Weights(
            networks([average.params for average in averages]),
            networks([average.model_state for average in averages]),
        )
        return TrainState(
            step=jnp.min(every("step"), axis=1),
            **{name: networks([getattr(s, name) for s in states]) for name in trees},
            alive=jnp.all(every("alive"), axis=1),
            stopped_step=of_first("stopped_step"),
            stopped_term=of_first("stopped_term"),
            sums=jnp.sum(means, axis=1) * fewest[:, None],
            updates=fewest,
            ema=ema or (),
        )

    specs = TrainState.specs(ensemble.slots)
    shardings = jax.tree.map(lambda spec: NamedSharding(ensemble.mesh, spec), specs)
    return jax.jit(gather, out_shardings=shardings)


def with_sums(state: TrainState, terms: Sequence[str], mesh) -> TrainState:
    """The state with sums of the loss and of terms, which are known from the step."""
    sums = np.zeros((state.step.shape[0], 1 + len(terms)), np.float32)
    return dataclasses.replace(state, sums=place(sums, mesh, P(REPLICA)))


def without_sums(state: TrainState) -> TrainState:
    """The state as a new epoch begins: nothing summed; placed as before if eager."""
    return dataclasses.replace(
        state, sums=jnp.zeros_like(state.sums), updates=jnp.zeros_like(state.updates)
    )


def init_best(state: TrainState, mesh) -> BestState:
    """No best epoch yet: a copy of the initial weights, score -1."""
    replicas = state.step.shape[0]
    params, model_state = jax.tree.map(jnp.copy, (state.params, state.model_state))
    fields = (np.full(replicas, -1.0, np.float32), np.zeros(replicas, np.int32))
    return BestState(params, model_state, *place(fields, mesh, P(REPLICA)))


# P[k <= 0], P[k <= 1], ... of a Poisson count of mean 1. A float32 uniform is a
# multiple of 2^-23, about as much as P[k > 9] = 1.1e-7: there is no longer a table.
_POISSON = np.cumsum([math.exp(-1.0) / math.factorial(k) for k in range(10)])


def draw_sample(keys: jax.Array, num_examples: int, kind: str) -> jax.Array:
    """Each replica's training set as indices `[R, N]`; `kind` is one of `SAMPLES`."""
    check_choice("sample", kind, SAMPLES)
    if kind == "all":
        everything = jnp.arange(num_examples, dtype=jnp.int32)
        return jnp.broadcast_to(everything, (keys.shape[0], num_examples))
    return jax.vmap(
        lambda key: jax.random.randint(key, (num_examples,), 0, num_examples, jnp.int32)
    )(keys)


def member_keys(seeds: Seeds, numbers: ArrayLike, members: int) -> jax.Array:
    """Keys `[R, M]` of the samples that the members of each seed number have."""
    slots = np.asarray(numbers)[:, None] // NETWORK * members + np.arange(members)
    fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)))
    return fold(seeds.keys("sample", numbers), slots)


def member_weights(
    kind: str, keys: jax.Array, examples: jax.Array, share: float = 1.0
) -> jax.Array | None:
    """`Batch.member_weights [M, B]` for a method's `member_sample`; None is all equal.

    `keys [M]` are those of one replica (`member_keys`), `examples [B]` are positions
    in the training set. A pure function of a member's key and an example: the same in
    every epoch, on every mesh and whatever else is in the batch.

    For `bootstrap`: how often each member's sample holds the examples, 0 to 10:
    independent Poisson(1) counts, by inverting the distribution function at one uniform
    number. An example is in a member's `subset` with probability `share`, in (0, 1],
    independently of other examples and members, and then weighs `1 / share`: 1 on
    average (Section 2 of the anti-distillation paper).
    """
    if kind == "split":
        # Of the rows of one device, as the network splits them.
        members = keys.shape[0]
        part = jnp.arange(examples.shape[0]) * members // examples.shape[0]
        own = part[None] == jnp.arange(members)[:, None]
        return jnp.where(own, jnp.float32(members), jnp.float32(0.0))
    if kind not in ("bootstrap", "subset"):
        return None
    fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
    uniform = jax.vmap(jax.vmap(jax.random.uniform))(fold(keys, examples))
    if kind == "subset":
        return jnp.where(uniform < share, jnp.float32(1.0 / share), jnp.float32(0.0))
    held = uniform[..., None] >= jnp.asarray(_POISSON, jnp.float32).reshape(1, 1, -1)
    return jnp.sum(held, axis=-1).astype(jnp.float32)


def epoch_order(keys: jax.Array, sample: jax.Array, epoch: jax.Array) -> jax.Array:
    """Data order of one epoch, `[R, N]` indices; a pure function of (seed, epoch)."""

    def one(key, indices):
        key = jax.random.fold_in(key, epoch)
        return indices[jax.random.permutation(key, indices.shape[0])]

    return jax.vmap(one)(keys, sample)
