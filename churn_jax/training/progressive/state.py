"""The program, the state and the inputs of a stream's step."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax.ensembles import Group, from_function
from churn_jax.models.click import ClickModel, ClickNetwork, init_table
from churn_jax.training.optim import Optimizer
from churn_jax.training.partition import MEMBER, REPLICA, make_mesh, spreader
from churn_jax.training.program import Program
from churn_jax.training.progressive.config import StreamRun
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
class StreamProgram:
    """Everything about a run on a stream that is compiled."""

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
class StreamState:
    """Everything that is learned; checkpointed whole."""

    # The towers [R, K, ...] and, as a second group [R, 1, ...], the gate, with
    # everything else that is kept per replica.
    dense: TrainState
    tables: jax.Array  # [R V, width] float32, one replica's rows after the other's
    accumulators: PyTree  # AdaGrad's, in the same form; () for plain gradient descent

    @classmethod
    def specs(cls) -> "StreamState":
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
class StreamInputs:
    """Constants of a replica; leaves `[R]`, never donated."""

    order_key: jax.Array  # of the order inside a window
    augment_key: jax.Array  # of what methods draw
    sample_key: jax.Array  # [R, M], of the members' own samples
    # All three of replica number 0, for the warm start.
    warm_keys: tuple[jax.Array, jax.Array, jax.Array]
    coefficients: Coefficients

    def of_window(self, warm: Array) -> "StreamInputs":
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


def make_program(run: StreamRun, devices: Sequence[Any] | None = None) -> StreamProgram:
    """The program of a run; the same one for runs that differ only in coefficients."""
    config = run.config
    return _program(
        run.model,
        Optimizer.of(config.optimizer, steps_per_epoch=1, total_steps=1),
        config.batch_size,
        config.window,
        config.warm_windows,
        config.mesh,
        None if devices is None else tuple(devices),
    )


@functools.lru_cache(maxsize=16)
def _program(model, optimizer, batch_size, window, warm_windows, mesh, devices):
    engine = Program(
        groups=_counted(model),
        optimizer=optimizer,
        batch_size=batch_size,
        mesh=make_mesh(mesh, devices),
        convolutional=False,
    )
    return StreamProgram(model, engine, window, warm_windows)


def init_inputs(run: StreamRun, program: StreamProgram) -> StreamInputs:
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
    return StreamInputs(*own, warm_keys=warm, coefficients=coefficients)


def init_stream(
    run: StreamRun, program: StreamProgram, inputs: StreamInputs
) -> StreamState:
    """The state before the first update, with its sharding; `sums` has no terms yet."""
    config = run.config
    numbers = np.asarray(config.numbers)
    if config.warm_windows:
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
    return StreamState(dense, table, squares)


@functools.lru_cache(maxsize=16)
def _makers(program: StreamProgram):
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


def parameter_count(run: StreamRun, state: StreamState) -> int:
    """Trained numbers of one replica."""
    leaves = jax.tree.leaves(state.dense.params)
    dense = sum(int(np.prod(leaf.shape[1:])) for leaf in leaves)
    return dense + run.model.rows * run.model.width
