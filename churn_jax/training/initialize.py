"""Initial state, born with the sharding that it keeps."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike

from churn_jax.configuration.training import OptimizerConfig, Seeds
from churn_jax.ensembles import Group, Network, StartingFrom
from churn_jax.methods import Method
from churn_jax.training.optim import is_fast, is_vector, make_optimizer
from churn_jax.training.partition import MEMBER, REPLICA, fetch, place
from churn_jax.training.program import Program
from churn_jax.training.run import Run, Trained
from churn_jax.training.state import (
    BestState,
    Coefficients,
    TrainState,
    Weights,
    joined,
)
from churn_jax.typing import PyTree

__all__ = [
    "check_start",
    "init_best",
    "init_coefficients",
    "init_state",
    "init_variables",
    "network_parameters",
    "scale_inputs",
    "start_variables",
]


def _per_replica(value, replicas: int, name: str) -> np.ndarray:
    array = np.asarray(value, np.float32)
    if array.ndim == 0:
        return np.full(replicas, array)
    if array.shape != (replicas,):
        raise ValueError(
            f"{name} must be one number or one per replica, [{replicas}]; got shape "
            f"{array.shape}"
        )
    return array


def init_coefficients(
    method: Method, optimizer: OptimizerConfig, replicas: int, mesh
) -> Coefficients:
    """Every coefficient as an array `[R]` on the mesh.

    Raises:
        ValueError: an array of coefficients has another length than R.
    """
    leaves, treedef = jax.tree.flatten(method)
    paths = [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, _ in jax.tree_util.tree_flatten_with_path(method)[0]
    ]
    arrays = [
        _per_replica(leaf, replicas, f"{type(method).__name__}.{path}")
        for leaf, path in zip(leaves, paths)
    ]
    rates = (
        _per_replica(optimizer.learning_rate, replicas, "learning_rate"),
        _per_replica(optimizer.weight_decay, replicas, "weight_decay"),
    )
    placed, rates = place((treedef.unflatten(arrays), rates), mesh, P(REPLICA))
    return Coefficients(placed, *rates)


def init_variables(
    groups: Sequence[Group],
    seeds: Seeds,
    replicas: Sequence[int],
    example: jax.Array,
    mesh,
    *,
    stream: int = 0,
    input_scale: ArrayLike = 1.0,
    slots: P = P(REPLICA, MEMBER),
) -> tuple[PyTree, ...]:
    """Variables of every group, leaves `[R, S, ...]`, sharded over replica and member.

    Args:
        groups: the committee.
        seeds: which factors vary.
        replicas: replica numbers.
        example: one normalised batch, `[1, ...]`.
        mesh: where the leaves live.
        stream: separates methods that must not start from equal weights (a student
            and its teacher); methods that are compared share stream 0.
        input_scale: factor of the variance of the weights that the input meets first,
            one number or one per replica; see `scale_inputs`.
        slots: how the leaves lie on the mesh, `Program.slots`.

    Raises:
        ValueError: as `scale_inputs` does.
    """
    sharding = NamedSharding(mesh, slots)
    numbers = jnp.asarray(replicas)
    scale = _per_replica(input_scale, len(replicas), "input_scale")
    scaled = bool(np.any(scale != 1.0))

    # Arguments and not constants of the program: see `StartingFrom`.
    given = [
        g.network.init.weights if isinstance(g.network.init, StartingFrom) else {}
        for g in groups
    ]

    def build(given):
        root = seeds.keys("init", numbers)
        root = jax.vmap(jax.random.fold_in, (0, None))(root, stream)
        variables, first = [], 0
        for group, weights in zip(groups, given):
            index = jnp.arange(first, first + group.size)
            fold = jax.vmap(
                jax.vmap(jax.random.fold_in, (None, 0)), (0, None)
            )  # [R], [S] -> [R, S]
            one = group.network.init
            if weights:
                one = functools.partial(one, weights=weights)
            init = jax.vmap(jax.vmap(one, (0, None)), (0, None))
            drawn = init(fold(root, index), example)
            if scaled and not group.gate:
                params = scale_inputs(group.network, drawn["params"], scale)
                drawn = {**drawn, "params": params}
            variables.append(drawn)
            first += group.size
        # A weakly typed leaf would be a strong one after the first update, and the
        # step would be compiled twice.
        return jax.tree.map(
            lambda x: jax.lax.convert_element_type(x, x.dtype), tuple(variables)
        )

    return jax.jit(build, out_shardings=sharding)(given)


def scale_inputs(network: Network, params: PyTree, scale: ArrayLike) -> PyTree:
    """Initial weights whose variance at the input is `scale` times what it was.

    Kernels and embeddings of `Network.input_params` are multiplied by the root of
    `scale`; vectors (biases) and fast weights stay.

    Args:
        network: says which parameters the input meets first.
        params: of R replicas of some networks, leaves `[R, S, ...]`.
        scale: s, a number or `[R]`.

    Raises:
        ValueError: the network does not say, or `scale` is negative or not finite.

    References:
        [anti-distillation] Section 5 -- Shamir and Coviello, Anti-Distillation:
        Improving Reproducibility of Deep Networks, 2020.
        https://arxiv.org/abs/2010.09923
    """
    named = [name for name in network.input_params if name in params]
    if not named:
        raise ValueError(
            f"{network.name} does not say which parameters the input meets first "
            "(Network.input_params), so their variance cannot be scaled; use "
            "input_scale 1"
        )
    if not np.all(np.isfinite(scale)) or np.any(np.asarray(scale) < 0):
        raise ValueError(f"input_scale must be finite and not negative; got {scale}")
    root = jnp.sqrt(jnp.asarray(scale, jnp.float32)).reshape(-1, 1)

    def scaled(path, leaf):
        # Fast weights multiply the kernel and would count twice; vectors are replicas,
        # networks and one axis, or two where a layer has a bias for every member.
        if leaf.ndim < 4 or is_fast(path) or is_vector(path):
            return leaf
        return leaf * jnp.expand_dims(root, range(2, leaf.ndim)).astype(leaf.dtype)

    return {
        **params,
        **{
            name: jax.tree_util.tree_map_with_path(scaled, params[name])
            for name in named
        },
    }


def start_variables(
    run: Run, start: Trained, drawn: tuple[PyTree, ...]
) -> tuple[tuple[PyTree, ...], tuple[PyTree, ...]]:
    """Another row's deployed weights, to start from; on the host.

    Args:
        run: what is to be trained.
        start: whose weights.
        drawn: the variables that `run` would start from, for their form.

    Returns:
        `(params, model_state)`, one tree per group each.

    Raises:
        ValueError: the networks are others.
    """

    def form(tree):
        return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)

    params, state = fetch((start.params, start.model_state))
    if form(joined(params, state)) != form(drawn):
        raise ValueError(_OTHER_NETWORKS.format(run.name, start.run.name))
    return params, state


_OTHER_NETWORKS = (
    "{} cannot start from the weights of {}: their networks, members or replicas differ"
)


def check_start(run: Run, start: Run, example: jax.ShapeDtypeStruct) -> None:
    """Refuses weights to start from before hours are spent on training them.

    Args:
        run: what is to be trained.
        start: what it would start from, trained or not.
        example: `[1, ...]`, as networks are given it.

    Raises:
        ValueError: the networks are others.
    """

    def form(run: Run):
        return [
            (g.size, g.gate, jax.eval_shape(g.network.init, jax.random.key(0), example))
            for g in run.groups
        ]

    if form(run) != form(start) or run.config.replicas != start.config.replicas:
        raise ValueError(_OTHER_NETWORKS.format(run.name, start.name))


def init_state(
    program: Program,
    variables: tuple[PyTree, ...],
    replicas: int,
    terms: int,
    memory: PyTree = (),
) -> TrainState:
    """The state before the first update.

    Args:
        program: for the optimiser and the mesh.
        variables: from `init_variables`.
        replicas: R.
        terms: how many terms the method logs.
        memory: of one replica, from `Method.init_memory`.
    """
    mesh = program.mesh
    params = tuple(v["params"] for v in variables)
    model_state = tuple(
        {k: x for k, x in v.items() if k != "params"} for v in variables
    )
    optimizer = make_optimizer(
        program.optimizer,
        program.schedule,
        learning_rate=jnp.float32(0.0),
        weight_decay=jnp.float32(0.0),
    )

    def init_optimizer(params):
        return tuple(jax.vmap(jax.vmap(optimizer.init))(p) for p in params)

    slots = NamedSharding(mesh, program.slots)
    opt_state = jax.jit(init_optimizer, out_shardings=slots)(params)
    fields = place(
        {
            "step": np.zeros(replicas, np.int32),
            "alive": np.ones(replicas, bool),
            "stopped_step": np.full(replicas, -1, np.int32),
            "stopped_term": np.full(replicas, -1, np.int32),
            "sums": np.zeros((replicas, terms + 1), np.float32),
            "updates": np.zeros(replicas, np.float32),
            "memory": jax.tree.map(
                lambda leaf: np.stack([np.asarray(leaf)] * replicas), memory
            ),
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
        ema=jax.tree.map(jnp.copy, weights) if program.ema_decay else (),
        **fields,
    )


def init_best(state: TrainState, mesh) -> BestState:
    """No best epoch yet: a copy of the initial weights, score -1."""
    replicas = state.step.shape[0]
    copy = jax.tree.map(jnp.copy, (state.params, state.model_state))
    fields = place(
        {
            "score": np.full(replicas, -1.0, np.float32),
            "epoch": np.zeros(replicas, np.int32),
        },
        mesh,
        P(REPLICA),
    )
    return BestState(params=copy[0], model_state=copy[1], **fields)


def network_parameters(variables: Sequence[PyTree]) -> int:
    """Trained numbers of one replica, over all its networks."""
    leaves = jax.tree.leaves([v["params"] for v in variables])
    return int(sum(np.prod(leaf.shape[1:]) for leaf in leaves))
