"""A click model in the step: its run, program and state; batches, forward and tables.

The towers are the networks of a run like any other. Their tables lie beside them in the
state, `TrainState.tables`: a batch's rows are looked up before the loss, which is
differentiated in them too, and only those rows are updated.
"""

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax._jax import all_gather_replicated, to_varying
from churn_jax.configuration.training import TrainConfig
from churn_jax.data.clicks import Window
from churn_jax.ensembles import Group, Outputs, from_function
from churn_jax.methods import Batch, Method, deploy
from churn_jax.models.click import ClickModel, ClickNetwork, init_table
from churn_jax.setting_checks import check_none
from churn_jax.training.optim import Optimizer
from churn_jax.training.partition import DATA, MEMBER, REPLICA, make_mesh
from churn_jax.training.program import OnePassProgram, Program
from churn_jax.training.run import Run
from churn_jax.training.state import ReplicaInputs, TrainState, init_state
from churn_jax.typing import Array

# XLA for TPUs looks rows up in a table whose rows it pads to 128 numbers if that needs
# at most twice the memory, and counts a row's numbers in eights.
_PADDED_FROM = 57

# Run, program and state ------------------------------------------------------------

# Counted as networks; `forward` applies the click model itself.
_TOWER = from_function(lambda key, x: {}, lambda params, x: x, name="tower")


def click_run(name: str, method: Method, model: ClickModel, config: TrainConfig) -> Run:
    """The run of a click model in one pass, for `churn_jax.training.train`.

    Args:
        name: name of the run, in its folder and in messages.
        method: its `input_scale` scales the variance of the initial embeddings; what it
            remembers between updates is kept over the whole stream.
        model: its components must be the method's members.
        config: with `one_pass`.

    Raises:
        ValueError: model and method do not fit, or the method needs a teacher.
    """
    gated = method.deploy == "gate"
    check_none(
        name,
        (config.one_pass is None, "the training has no one_pass"),
        (
            method.needs_teacher or method.stale_steps,
            f"{type(method).__name__} follows another set of weights, which one pass "
            "does not keep",
        ),
        (
            model.shared_embeddings and config.optimizer.member_rates,
            "components that share their embeddings cannot learn at rates of their own "
            "(member_rates)",
        ),
        (
            gated and not model.gate,
            "the method deploys a gate, the click model has none; set gate=True",
        ),
        (
            gated and method.gate == "constant",
            "the gate of a click model reads the input; it cannot be constant",
        ),
    )
    towers = Group(_TOWER, model.components)
    groups = (towers, Group(_TOWER, 1, gate=True)) if model.gate else (towers,)
    return Run(name, method, groups, config, clicks=model)


def click_program(run: Run, examples: int) -> Program:
    """The program of a run on so many examples.

    It is the same one for runs that differ only in coefficients.
    """
    config, model, one_pass = run.config, run.clicks, run.config.one_pass
    assert model is not None and one_pass is not None
    warm = one_pass.warm_windows(examples)
    return Program(
        groups=run.groups,
        optimizer=Optimizer.of(config.optimizer, steps_per_epoch=1, total_steps=1),
        batch_size=config.batch_size,
        mesh=make_mesh(config.mesh),
        convolutional=False,
        feed="windows",
        one_pass=OnePassProgram(model, one_pass.window, warm),
    )


def table_placement(mesh: jax.sharding.Mesh, width: int) -> Any:
    """Sharding or `Format` of a table of some width between windows, for `jax.jit`.

    A wide one lies row after row. That is the layout of every backend except a TPU,
    which would otherwise pad the rows in every window, in memory of their own.
    """
    sharding = NamedSharding(mesh, P(REPLICA))
    if width < _PADDED_FROM:
        return sharding
    return Format(Layout(major_to_minor=(0, 1)), sharding)


def shardings(program: Program, specs: tuple) -> tuple:
    """Shardings or `Format`s of a step's arguments or results, the state first."""
    first, *others = jax.tree.map(lambda s: NamedSharding(program.mesh, s), specs)
    table = table_placement(program.mesh, program.one_pass.model.width)
    return dataclasses.replace(first, tables=table), *others


def init_clicks(run: Run, program: Program, inputs: ReplicaInputs) -> TrainState:
    """`init_state` with tables.

    The towers [R, K, ...] are the first group and the gate [R, 1, ...] the second.
    """
    config = run.config
    # All replicas are one until a warm start ends.
    own = 0 if program.one_pass.warm_windows else 1
    keys = config.seeds.keys("init", own * np.asarray(config.numbers))
    scale = jnp.asarray(inputs.coefficients.method.input_scale, jnp.float32)
    scale = jnp.broadcast_to(scale, (config.replicas,))
    towers, tables = _makers(program)
    state = init_state(run, program, towers(keys), 2)
    return dataclasses.replace(state, tables=tables(keys, scale))


@functools.lru_cache(maxsize=16)
def _makers(program: Program):
    """Compiled functions that make towers and `TrainState.tables`."""
    model, optimizer = program.one_pass.model, program.optimizer.config
    row = jnp.zeros((1, len(model.sizes), model.width))
    example = (model.split_rows(row), jnp.zeros((1, model.numeric)))

    def towers(keys):
        params = jax.vmap(
            lambda key: ClickNetwork(model).init(jax.random.fold_in(key, 0), *example)
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
        table = drawn.reshape(-1, model.width)
        if optimizer.name != "adagrad":
            return table, ()
        start = optimizer.adagrad_accumulator
        return table, jnp.full(table.shape, start, jnp.float32)

    kept = table_placement(program.mesh, model.width)
    return (
        jax.jit(towers, out_shardings=NamedSharding(program.mesh, program.slots)),
        jax.jit(tables, out_shardings=kept),
    )


# Batches of a window, inside `shard_map` ---------------------------------------------


class ClickBatch(NamedTuple):
    """A batch of every replica; `ReplicaInputs.batch` of a click model."""

    rows: Array  # [R, B, F, width], looked up
    ids: Array  # [R, B, F], within each field's rows
    numeric: Array  # [R, B, D]
    labels: Array  # [R, B]
    mask: Array  # [R, B]
    place: Array  # [R, B] uint32, from the beginning of the stream

    def given(self, keys: Array, weights: Array | None, memory: PyTree) -> Batch:
        """One replica's batch as methods see it."""
        # Methods sum over the data axis, which has one device here.
        images, labels, mask = (
            to_varying(leaf, DATA) for leaf in (self.numeric, self.labels, self.mask)
        )
        return Batch(images, labels, mask, keys, DATA, weights, memory)


def window_order(key: Array, number: Array, mask: Array) -> Array:
    """In which order a replica visits the examples of a window, `[W]` int32.

    A pure function of (order seed, window number); padding comes last.
    """
    bits = jax.random.bits(jax.random.fold_in(key, number), mask.shape, "uint32")
    bits = jnp.where(mask > 0, bits >> 1, jnp.uint32(2**31))
    return jnp.argsort(bits).astype(jnp.int32)


def of_window(
    program: Program, inputs: ReplicaInputs, window: Any, number: Array
) -> tuple[ReplicaInputs, Array]:
    """The inputs for one window, which may belong to the warm start, and the order.

    The order is `window_order` of every replica, `[R, W]`.
    """
    warm = number < program.one_pass.warm_windows
    own = (inputs.order, inputs.augment_key, inputs.sample_key)
    order, augment, sample = jax.tree.map(
        lambda shared, key: jnp.where(warm, shared, key), inputs.warm_keys, own
    )
    given = dataclasses.replace(
        inputs, order=order, augment_key=augment, sample_key=sample, warm_keys=()
    )
    orders = jax.vmap(window_order, (0, None, None))
    return given, orders(order, number, window.mask)


def batch_of(program: Program, state: TrainState, window: Any, order: Array, number):
    """Batch `number` of every replica, in its order of the window."""
    size = program.batch_size
    place = jax.lax.dynamic_slice_in_dim(order, number * size, size, axis=1)
    ids = window.ids[place]
    offsets = jnp.asarray(program.one_pass.model.offsets, jnp.int32)
    return ClickBatch(
        look_up(state.tables[0], ids + offsets[None, None]),
        ids,
        window.numeric[place],
        window.labels[place],
        window.mask[place],
        window.first + place.astype(jnp.uint32),
    )


def over_batches(program: Program, window: Window, order: Array, body, carry):
    """`body(number, carry) -> (scores [R, B], carry)` over all batches with an example.

    Returns the last carry, and the scores `[R, W]` of all replicas at their places.
    """
    valid = jnp.sum((window.mask > 0).astype(jnp.int32))
    batches = (valid + program.batch_size - 1) // program.batch_size
    nothing = to_varying(jnp.zeros(order.shape, jnp.float32), REPLICA)

    def turn(number, both):
        carry, scores = both
        scored, carry = body(number, carry)
        scores = jax.lax.dynamic_update_slice_in_dim(
            scores, scored, number * program.batch_size, axis=1
        )
        return carry, scores

    carry, scores = jax.lax.fori_loop(0, batches, turn, (carry, nothing))
    placed = jax.vmap(lambda z, o: jnp.zeros_like(z).at[o].set(z))(scores, order)
    return carry, all_gather_replicated(placed, REPLICA)


def _outputs(model: ClickModel, groups, rows: Array, numeric: Array) -> Outputs:
    """All components on a batch; `groups` are the parameters of towers and gate."""
    params = {"towers": groups[0]}
    if model.gate:
        params["gate"] = jax.tree.map(lambda leaf: leaf[0], groups[1])
    given = model.split_rows(rows)
    out: Any = ClickNetwork(model).apply({"params": params}, given, numeric)

    # The mesh has one device along its member axis; this makes that known.
    def gathered(leaf):
        return None if leaf is None else all_gather_replicated(leaf, MEMBER)

    rest = map(gathered, (out.features, out.part, out.gate))
    return Outputs(all_gather_replicated(out.logits, MEMBER), *rest)


def _score(method: Method, outputs: Outputs) -> Array:
    """Logit of the positive label of the deployed prediction, `[B]`."""
    deployed = deploy(method, outputs.logits, outputs.gate)
    return deployed[..., 1] - deployed[..., 0]


def forward(program: Program, method: Method, batch: Batch):
    """`apply` of a method's loss: all components on the rows, its last variables.

    The state that it returns is the score of each example, which so comes from the pass
    whose gradient is taken.
    """

    def apply(variables, images, train=True, extras=()):
        del train, extras  # nothing depends on it; every output is at hand
        *groups, rows = (v["params"] for v in variables)
        rows = batch.hide(rows, axis=0)
        outputs = _outputs(program.one_pass.model, groups, rows, images)
        left = [{"score": _score(method, outputs)}, *({} for _ in groups[1:])]
        return outputs, left

    return apply


def update_tables(
    program: Program, tables: PyTree, inputs: ReplicaInputs, gradients, alive: Array
) -> tuple[Array, PyTree]:
    """Table and accumulators with new rows for the batch of living replicas."""
    # Nothing is selected from tables: a stopped replica's rows are not written.
    model, optimizer = program.one_pass.model, program.optimizer.config
    table, accumulators = tables
    summed = sum_by_row(gradients, inputs.batch.ids, alive, sizes=model.sizes)
    rate = inputs.coefficients.learning_rate
    if optimizer.member_rates:
        # A component's own rate is that of its own tables' columns.
        rates = jnp.asarray(optimizer.member_rates, jnp.float32)
        each = jnp.repeat(rates[: model.tables], model.width // model.tables)
        rate = rate[:, None] * each[None]
    return update_rows(table, accumulators, summed, rate)


# Tables: looked up and updated row by row ---------------------------------------------

# optax.scale_by_rss's.
_EPSILON = 1e-7


def _places(table: Array, rows: Array) -> Array:
    """Rows `[R, N]` of every replica's own table in the one array, `[R N]`.

    Those beyond their table lie behind the whole array, and are distinct there.
    """
    replicas, count = rows.shape
    own = table.shape[0] // replicas
    if replicas * (own + count) >= 2**31:
        raise ValueError(
            f"a device would hold {replicas} tables of {own} rows, more than int32 "
            "can number; use more devices along replica"
        )
    first = own * jnp.arange(replicas, dtype=jnp.int32)[:, None]
    behind = table.shape[0] + jnp.arange(replicas * count, dtype=jnp.int32)
    return jnp.where(rows < own, first + rows, behind.reshape(rows.shape)).reshape(-1)


def look_up(table: Array, ids: Array) -> Array:
    """Rows `[R, B, F, width]`; `ids [R, B, F]` are rows of each replica's table."""
    place = _places(table, ids.reshape(ids.shape[0], -1))
    rows = table.at[place].get(mode="fill", fill_value=0.0)
    return rows.reshape(*ids.shape, table.shape[-1])


def sum_by_row(
    gradients: Array, ids: Array, alive: Array, *, sizes: tuple[int, ...]
) -> tuple[Array, Array]:
    """Sums gradients with respect to equal rows from `look_up`, as a dense one would.

    `ids [R, B, F]` count within each field's own rows (`sizes`); replicas that are not
    alive touch no row. Returns distinct rows `[R, N]` of each replica's table, int32 in
    ascending order, and their gradients `[R, N, width]`. Rows beyond the table stand
    for nothing, and every update drops them.
    """
    _, batch, fields = ids.shape
    count, width = batch * fields, gradients.shape[-1]
    offsets = jnp.asarray((0, *itertools.accumulate(sizes[:-1])), jnp.int32)
    beyond = sum(sizes) + jnp.arange(count, dtype=jnp.int32)  # distinct

    def one(gradients, ids, alive):
        # Equal rows become neighbours, in the order of the batch.
        own, order = _sorted_fields(ids.T, max(sizes))
        place = order * fields + jnp.arange(fields, dtype=jnp.int32)[:, None]
        ascending = (own + offsets[:, None]).reshape(-1)
        first = jnp.concatenate([ascending[:1] >= 0, jnp.diff(ascending) != 0])
        segment = jnp.cumsum(first.astype(jnp.int32)) - 1
        total = jax.ops.segment_sum(
            gradients.reshape(-1, width)[place.reshape(-1)],
            segment,
            count,
            indices_are_sorted=True,
        )
        # The places that are left over are beyond the table; no two are alike.
        rows = beyond.at[segment].set(ascending)
        return jnp.where(alive, rows, beyond), total

    return jax.vmap(one)(gradients, ids, alive)


def _sorted_fields(ids: Array, largest: int) -> tuple[Array, Array]:
    """Each field's ids `[F, B]` in ascending order, and where in the batch they were.

    Id and place share one number where they fit: sorting pairs takes XLA several
    times as long on CPU.
    """
    batch = ids.shape[1]
    place = jax.lax.broadcasted_iota(jnp.int32, ids.shape, 1)
    if largest * batch <= 2**32:
        both = ids.astype(jnp.uint32) * jnp.uint32(batch) + place.astype(jnp.uint32)
        both = jnp.sort(both, axis=1)
        pair = jnp.divmod(both, jnp.uint32(batch))
        return pair[0].astype(jnp.int32), pair[1].astype(jnp.int32)
    own, order = jax.lax.sort((ids, place), dimension=1, is_stable=True, num_keys=1)
    return own, order


def _add(table: Array, place: Array, change: Array) -> Array:
    return table.at[place].add(
        change.reshape(-1, change.shape[-1]),
        mode="drop",
        unique_indices=True,
        wrap_negative_indices=False,
    )


def update_rows(
    table: Array, accumulators: PyTree, summed: tuple[Array, Array], rate: Array
) -> tuple[Array, PyTree]:
    r"""Table and accumulators (AdaGrad's, or `()`) with new rows for the batch.

    In place where the arguments are donated; `rate` is `[R]` or `[R, width]`.

    AdaGrad: `a <- a + g^2`, `v <- v - rate g / sqrt(a + 1e-7)`: where g is zero nothing
    would change, so the dense update of the whole table gives the same. Without
    accumulators plain gradient descent, `v <- v - rate g`.
    """
    rows, gradients = summed
    place = _places(table, rows)
    change = -rate.reshape(rate.shape[0], 1, -1)  # [R, 1, 1 or width]
    if isinstance(accumulators, tuple):
        return _add(table, place, change * gradients), accumulators
    # Written before it is read, and never read again as it was: otherwise XLA keeps a
    # copy of the whole table.
    accumulators = _add(accumulators, place, jnp.square(gradients))
    total = accumulators.at[place].get(
        mode="fill", fill_value=1.0, wrap_negative_indices=False
    )
    total = total.reshape(gradients.shape)
    scale = jnp.where(total > 0.0, jax.lax.rsqrt(total + _EPSILON), 0.0)
    return _add(table, place, change * (scale * gradients)), accumulators


# Scores alone ------------------------------------------------------------------------


@functools.lru_cache(maxsize=16)
def make_score(program: Program):
    """Compiles `score(state, inputs, window) -> scores [R, W]`."""
    size = program.one_pass.window

    def local(state, inputs, window):
        replicas = state.alive.shape[0]
        order = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), (replicas, size))

        def one(params, method, rows, numeric):
            found = _outputs(program.one_pass.model, params, rows, numeric)
            return _score(method, found)

        def body(number, carry):
            batch = batch_of(program, state, window, order, number)
            method = inputs.coefficients.method
            return jax.vmap(one)(state.params, method, batch.rows, batch.numeric), carry

        return over_batches(program, window, order, body, ())[1]

    return jax.jit(
        jax.shard_map(
            local,
            mesh=program.mesh,
            in_specs=(TrainState.specs(program.slots), P(REPLICA), P()),
            out_specs=P(),
            check_vma=True,
        )
    )
