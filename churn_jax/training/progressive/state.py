"""Training in one pass: the run, its program, its state and its inputs."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax.configuration.training import OnePass, TrainConfig
from churn_jax.ensembles import Group, from_function
from churn_jax.methods import Method
from churn_jax.models.click import ClickModel, ClickNetwork, init_table
from churn_jax.training.optim import Optimizer
from churn_jax.training.partition import MEMBER, REPLICA, make_mesh, spreader
from churn_jax.training.program import Program
from churn_jax.training.seeds import member_keys
from churn_jax.training.state import (
    Coefficients,
    TrainState,
    init_coefficients,
    init_state,
)
from churn_jax.typing import Array

# XLA for TPUs looks rows up in a table whose rows it pads to 128 numbers if that needs
# at most twice the memory, and counts a row's numbers in eights.
_PADDED_FROM = 57


@dataclasses.dataclass(frozen=True)
class ClickRun:
    """A run in one pass: a method and its click model.

    Attributes:
        name: folder and messages.
        method: with coefficients as numbers or one per replica; its `input_scale`
            scales the variance of the initial embeddings. What the method remembers
            between updates is kept over the whole stream.
        model: its components must be the method's members.
        config: see `TrainConfig`; with `one_pass`.

    Raises:
        ValueError: the model's components are not the method's members, the method
            needs a teacher, or one of model and method has a gate and the other not.
    """

    name: str
    method: Method
    model: ClickModel
    config: TrainConfig

    def __post_init__(self):
        """Checks that the model suits the method."""
        method, model = self.method, self.model
        scale = np.asarray(method.input_scale)
        gated = method.deploy == "gate"
        for wrong, message in (
            (self.config.one_pass is None, "the training has no one_pass"),
            (
                model.components != method.members,
                f"the method has {method.members} members, the click model "
                f"{model.components} components",
            ),
            (
                method.needs_teacher or method.stale_steps,
                f"{type(method).__name__} follows another set of weights, which one "
                "pass does not keep",
            ),
            (
                not np.all(np.isfinite(scale)) or np.any(scale < 0),
                f"input_scale must be finite and not negative; got {scale}",
            ),
            (
                model.shared_embeddings and self.config.optimizer.member_rates,
                "components that share their embeddings cannot learn at rates of their "
                "own (member_rates)",
            ),
            (
                model.gate and not gated,
                "the click model has a gate that nothing reads; the method deploys "
                f"{method.deploy!r}, not 'gate'",
            ),
            (
                gated and not model.gate,
                "the method deploys a gate, the click model has none; set gate=True",
            ),
            (
                gated and method.gate == "constant",
                "the gate of a click model reads the input; it cannot be constant",
            ),
        ):
            if wrong:
                raise ValueError(f"{self.name}: {message}")

    @property
    def one_pass(self) -> OnePass:
        """Its settings."""
        return self.config.one_pass or OnePass()


@dataclasses.dataclass(frozen=True)
class ClickProgram:
    """Everything about a run that is compiled."""

    model: ClickModel
    engine: Program  # of the towers' update; towers come first, then the gate
    window: int  # W
    warm_windows: int  # windows in which all replicas take replica number 0's order

    @property
    def mesh(self) -> Mesh:
        """`("replica", "member", "data")`."""
        return self.engine.mesh

    @property
    def batch_size(self) -> int:
        """B, over all data shards."""
        return self.engine.batch_size

    @property
    def network(self) -> ClickNetwork:
        """The towers."""
        return ClickNetwork(self.model)

    def column_rates(self) -> Array:
        """`OptimizerConfig.member_rates` of every column of the tables, `[width]`."""
        rates = jnp.asarray(self.engine.optimizer.config.member_rates, jnp.float32)
        each = self.model.width // self.model.tables
        return jnp.repeat(rates[: self.model.tables], each)

    def as_params(self, groups: tuple[PyTree, ...]) -> dict[str, PyTree]:
        """The network's parameters from the engine's groups, towers then gate."""
        params = {"towers": groups[0]}
        if self.model.gate:
            params["gate"] = jax.tree.map(lambda leaf: leaf[0], groups[1])
        return params


@struct.dataclass
class ClickState:
    """Everything that is learned; checkpointed whole."""

    # The towers [R, K, ...] and, as a second group [R, 1, ...], the gate, with
    # everything else that is kept per replica.
    dense: TrainState
    tables: jax.Array  # [R V, width] float32, one replica's rows after the other's
    accumulators: PyTree  # AdaGrad's, in the same form; () for plain gradient descent

    @classmethod
    def specs(cls) -> "ClickState":
        """Placement of every field."""
        tables: Any = P(REPLICA)
        return cls(dense=TrainState.specs(), tables=tables, accumulators=tables)


def table_placement(mesh: Mesh, width: int) -> Any:
    """Sharding or `Format` of a table of some width between windows, for `jax.jit`.

    A wide one lies row after row. That is the layout of every backend except a TPU,
    which would otherwise pad the rows in every window, in memory of their own.
    """
    sharding = NamedSharding(mesh, P(REPLICA))
    if width < _PADDED_FROM:
        return sharding
    return Format(Layout(major_to_minor=(0, 1)), sharding)


@struct.dataclass
class ClickInputs:
    """Constants of a replica; leaves `[R]`, never donated."""

    order_key: jax.Array  # of the order inside a window
    augment_key: jax.Array  # of what methods draw
    sample_key: jax.Array  # [R, M], of the members' own samples
    # All three of replica number 0, for the warm start.
    warm_keys: tuple[jax.Array, jax.Array, jax.Array]
    coefficients: Coefficients

    def of_window(self, warm: Array) -> "ClickInputs":
        """These inputs for one window, which may belong to the warm start."""
        own = (self.order_key, self.augment_key, self.sample_key)
        order, augment, sample = (
            jnp.where(warm, shared, key) for shared, key in zip(self.warm_keys, own)
        )
        return dataclasses.replace(
            self, order_key=order, augment_key=augment, sample_key=sample
        )


def _counted(model: ClickModel) -> tuple[Group, ...]:
    """Towers and gate as `Program` counts them; this package applies them itself."""
    network = from_function(lambda key, x: {}, lambda params, x: x, name="tower")
    towers = Group(network, model.components)
    return (towers, Group(network, 1, gate=True)) if model.gate else (towers,)


def make_program(run: ClickRun, examples: int) -> ClickProgram:
    """The program of a run on so many examples.

    It is the same one for runs that differ only in coefficients.
    """
    config, one_pass = run.config, run.one_pass
    return _program(
        run.model,
        Optimizer.of(config.optimizer, steps_per_epoch=1, total_steps=1),
        config.batch_size,
        one_pass.window,
        one_pass.warm_windows(examples),
        config.mesh,
    )


@functools.lru_cache(maxsize=16)
def _program(model, optimizer, batch_size, window, warm_windows, mesh):
    engine = Program(
        groups=_counted(model),
        optimizer=optimizer,
        batch_size=batch_size,
        mesh=make_mesh(mesh),
        convolutional=False,
    )
    return ClickProgram(model, engine, window, warm_windows)


def init_inputs(run: ClickRun, program: ClickProgram) -> ClickInputs:
    """Keys and coefficients of every replica on the mesh."""
    seeds, numbers = run.config.seeds, np.asarray(run.config.numbers)
    coefficients = init_coefficients(
        run.method, run.config.optimizer, run.config.replicas, program.mesh
    )

    own, warm = spreader(NamedSharding(program.mesh, P(REPLICA)))(
        [
            (
                *(seeds.keys(factor, of) for factor in ("order", "augment")),
                member_keys(seeds, of, run.method.members),
            )
            for of in (numbers, np.zeros_like(numbers))
        ]
    )
    return ClickInputs(*own, warm_keys=warm, coefficients=coefficients)


def init_clicks(
    run: ClickRun, program: ClickProgram, inputs: ClickInputs
) -> ClickState:
    """The state before the first update, with its sharding; `sums` has no terms yet."""
    config = run.config
    numbers = np.asarray(config.numbers)
    if program.warm_windows:
        # All replicas are one until the warm start ends.
        numbers = np.zeros_like(numbers)
    keys = config.seeds.keys("init", numbers)
    scale = jnp.asarray(inputs.coefficients.method.input_scale, jnp.float32)
    scale = jnp.broadcast_to(scale, (config.replicas,))
    towers, tables, accumulators = _makers(program)
    table = tables(keys, scale)
    squares: PyTree = ()
    if config.optimizer.name == "adagrad":
        squares = accumulators(table)
    variables = towers(keys)
    dense = init_state(
        program.engine,
        variables,
        config.replicas,
        terms=0,
        memory=run.method.init_memory(2),
    )
    return ClickState(dense, table, squares)


@functools.lru_cache(maxsize=16)
def _makers(program: ClickProgram):
    """Compiled functions that make towers, tables and AdaGrad's accumulators."""
    model = program.model
    row = jnp.zeros((1, len(model.sizes), model.width))
    example = (model.split_rows(row), jnp.zeros((1, model.numeric)))

    def towers(keys):
        params = jax.vmap(
            lambda key: program.network.init(jax.random.fold_in(key, 0), *example)
        )(keys)["params"]
        groups = [{"params": params["towers"]}]
        if model.gate:
            gate = jax.tree.map(lambda leaf: leaf[:, None], params["gate"])
            groups.append({"params": gate})
        return jax.tree.map(
            lambda x: jax.lax.convert_element_type(x, x.dtype), tuple(groups)
        )

    def tables(keys, scale):
        drawn = jax.vmap(
            lambda key, s: init_table(model, jax.random.fold_in(key, 1), s)
        )(keys, scale)
        return drawn.reshape(-1, model.width)

    def accumulators(table):
        start = program.engine.optimizer.config.adagrad_accumulator
        return jnp.full(table.shape, start, jnp.float32)

    slots = NamedSharding(program.mesh, P(REPLICA, MEMBER))
    kept = table_placement(program.mesh, model.width)
    return (
        jax.jit(towers, out_shardings=slots),
        jax.jit(tables, out_shardings=kept),
        jax.jit(accumulators, out_shardings=kept),
    )


def parameter_count(run: ClickRun, state: ClickState) -> int:
    """Trained numbers of one replica."""
    leaves = jax.tree.leaves(state.dense.params)
    dense = sum(int(np.prod(leaf.shape[1:])) for leaf in leaves)
    return dense + run.model.rows * run.model.width
