"""The training step of a row of a study, ready to be compiled without its data."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.ensembles import Group
from churn_jax.ensembles.wrappers import with_temperature
from churn_jax.planning.datasets import Sizes, row_sizes
from churn_jax.studies.inputs import row_run
from churn_jax.training.examples import example_of
from churn_jax.training.feed import stream_keys
from churn_jax.training.partition import REPLICA
from churn_jax.training.program import Program, make_program
from churn_jax.training.run import Run, chunk_count
from churn_jax.training.seeds import member_keys
from churn_jax.training.state import (
    ReplicaInputs,
    TrainState,
    init_coefficients,
    init_state,
)
from churn_jax.training.step import make_step, term_names


@dataclasses.dataclass(frozen=True)
class Step:
    """A step that can be compiled, and what its arguments are."""

    jitted: Any
    arguments: tuple
    parts: dict[str, PyTree]  # by category, trees of the arguments' leaves
    others: dict[str, PyTree]  # by category, what else the devices hold meanwhile
    program: Any
    run: Any
    network: str
    updates: int = 1  # that one call makes
    calls: int = 1  # until every replica took part, where some wait for the others


def without_weights(config: StudyConfig) -> StudyConfig:
    """The study with drawn weights for pretrained ones, of the same shapes."""

    def plain(model: ModelConfig) -> ModelConfig:
        return dataclasses.replace(model, pretrained="")

    return dataclasses.replace(config.with_networks(plain), updates=())


def taught_by(
    config: StudyConfig, spec: MethodSpec, classes: int
) -> tuple[tuple[Group, ...], tuple[Group, ...], bool]:
    """The teacher's groups, those of the old models, and whether logits are cached."""
    teaching, own = spec.teaching, ()
    old = tuple(
        group
        for name in teaching.old
        for group in config.spec(name).groups(config.model, classes)
    )
    cached = bool(teaching.logits) or (spec.teacher is not None and teaching.offline)
    if spec.teacher is not None and not cached:
        row = config.spec(spec.teacher)
        if teaching.dtype:
            row = row.computing_in(teaching.dtype, config.model)
        own = row.groups(config.model, classes)
        if teaching.members:
            own = (Group(own[0].network, teaching.members),)
        if teaching.calibrated:
            own = tuple(Group(with_temperature(g.network), g.size) for g in own)
    return own, old, cached


def _network_names(groups: tuple[Group, ...]) -> str:
    return ", ".join(
        f"{group.size} x {group.network.name}" for group in groups if not group.gate
    )


def _feed(run: Run, sizes: Sizes) -> str:
    """How batches are fed, decided as in `churn_jax.training.feed.Feed`."""
    if not sizes.streamed:
        return "resident"
    words = stream_keys(run.config, drawn=run.config.seeds.augment != "off")
    alike = len(np.unique(np.concatenate(list(words.values()), axis=1), axis=0)) == 1
    return "shared" if alike else "own"


def _first(calls: int, tree: PyTree) -> PyTree:
    """The part of all replicas `[R, ...]` that one of `calls` calls takes."""

    def share(leaf):
        shape = (leaf.shape[0] // calls, *leaf.shape[1:])
        return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=leaf.sharding)

    return jax.tree.map(share, tree)


def study_step(config: StudyConfig, name: str, devices: Sequence[Any]) -> Step:
    """The real step of one row of a study, for devices that need not be there."""
    config = without_weights(config)
    spec = config.spec(name)
    sizes = row_sizes(config.data, spec)
    deployed = row_run(config, spec, sizes.classes)
    runs = deployed.as_replicas()
    run = deployed if len(runs) > 1 else runs[0]  # kinds of networks count together
    steps = sizes.train // run.config.batch_size
    if not steps:
        raise ValueError(
            f"batch_size {run.config.batch_size} is larger than the training set, "
            f"{sizes.train} examples"
        )
    own, old, cached = taught_by(config, spec, sizes.classes)
    mean, std = sizes.moments
    program, updates = make_program(
        run,
        sizes.shape,
        steps,
        mean=mean,
        std=std,
        teacher_groups=own if spec.taught else None,
        old_groups=old,
        cached=cached,
        devices=devices,
        feed=_feed(run, sizes),
        tokens=sizes.tokens,
    )
    arguments = abstract_arguments(
        run,
        program,
        sizes.shape,
        sizes.train,
        classes=sizes.classes,
        dtype=sizes.dtype,
    )
    state, inputs, teacher, images, labels = arguments
    best = (state.params, state.model_state)
    calls = chunk_count(program, run.config.replicas)
    waiting = ()
    if calls > 1:
        state, inputs, teacher = _first(calls, (state, inputs, teacher))
        if program.feed == "own":
            images, labels = _first(calls, (images, labels))
        arguments = (state, inputs, teacher, images, labels)
        waiting = (calls - 1) * (state, inputs, teacher)
    parts: dict[str, PyTree] = {
        "weights": state.params,
        "optimiser": state.opt_state,
        "batch statistics": state.model_state,
        "averages and copies": (state.ema, state.peers, state.memory),
        "teachers": teacher,
        "batches" if sizes.streamed else "training set": (images, labels),
        "data order, keys, coefficients": inputs,
        "counters": (
            *(state.step, state.alive, state.stopped_step, state.stopped_term),
            *(state.sums, state.updates),
        ),
    }
    others: dict[str, PyTree] = {
        "replicas that wait": waiting,
        "best weights so far": best,
    }
    if not sizes.streamed:
        every = jax.ShapeDtypeStruct(
            (sizes.validation, math.prod(sizes.shape)),
            sizes.dtype,
            sharding=images.sharding,
        )
        others["validation set"] = every
    return Step(
        jitted=make_step(program, steps_per_call=updates),
        arguments=arguments,
        parts=parts,
        others=others,
        program=program,
        run=deployed,
        network=_network_names(deployed.groups),
        updates=updates,
        calls=calls,
    )


def _variables(groups: tuple[Group, ...], replicas: int, example) -> tuple[PyTree, ...]:
    """Shapes `[R, S, ...]` of every group's variables."""

    def stacked(group: Group):
        one = jax.eval_shape(group.network.init, jax.random.key(0), example)
        lead = (replicas, group.size)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), one
        )

    return tuple(map(stacked, groups))


def abstract_arguments(
    run: Run,
    program: Program,
    image: tuple[int, ...],
    examples: int,
    *,
    classes: int = 10,
    dtype: Any = np.uint8,
) -> tuple:
    """The arguments of `make_step` as shapes with shardings; none is allocated."""
    config, mesh = run.config, program.mesh
    replicas, batch = config.replicas, program.batch_size
    example = example_of(image, tokens=np.dtype(dtype) == np.int32)
    variables = _variables(run.groups, replicas, example)

    def build(variables, terms):
        numbers = np.arange(replicas)
        memory = run.method.init_memory(classes)
        state = init_state(program, variables, replicas, terms, memory)
        shared = run.method.member_sample == "shared"
        inputs = ReplicaInputs(
            jnp.zeros((replicas, examples), jnp.int32),
            config.seeds.keys("augment", numbers),
            init_coefficients(run.method, config.optimizer, replicas, mesh),
            () if shared else member_keys(config.seeds, numbers, run.method.members),
        )
        return state, inputs

    teacher: tuple = ()
    if program.teacher is not None:
        if program.teacher.cached:
            table = jax.ShapeDtypeStruct((replicas, 1, examples, classes), jnp.float32)
            teacher = ({"logits": table},)
        teacher += _variables(program.teacher.groups, replicas, example)
    lead = {"resident": (examples,), "shared": (batch,), "own": (replicas, batch)}
    shape = (math.prod(image),) if program.feed == "resident" else image
    images = jax.ShapeDtypeStruct((*lead[program.feed], *shape), dtype)
    labels = jax.ShapeDtypeStruct(lead[program.feed], jnp.int32)
    specs = (
        TrainState.specs(program.slots),
        P(REPLICA),
        program.teacher_spec,
        *program.data_specs,
    )

    def arguments(terms: int) -> tuple:
        state, inputs = jax.eval_shape(lambda v: build(v, terms), variables)

        def placed(spec, part):
            sharding = NamedSharding(mesh, spec)
            return jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
                part,
            )

        trees = (state, inputs, teacher, images, labels)
        return jax.tree.map(placed, specs, trees, is_leaf=lambda x: isinstance(x, P))

    return arguments(len(term_names(program, *arguments(0))))
