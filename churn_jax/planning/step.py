"""The training step of a row of a study, ready to be compiled without its data.

Networks, state and teachers are those of `training`, traced and not computed; of the
data set only sizes are known.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.data import Split
from churn_jax.data.cutting import cut
from churn_jax.data.digits import VALIDATION_SIZE
from churn_jax.data.sources import is_object
from churn_jax.ensembles import Group
from churn_jax.studies.inputs import DataFacts, facts_of, load_inputs, row_run
from churn_jax.training.examples import example_of
from churn_jax.training.feed import Streams
from churn_jax.training.program import Program, make_program
from churn_jax.training.run import Run, chunk_count
from churn_jax.training.session import replica_inputs
from churn_jax.training.state import init_state
from churn_jax.training.step import make_step, step_specs, term_names
from churn_jax.training.teachers import Teachers

# As published, and as TFDS has them; of the embedded digits 897 are for testing.
SIZES = {
    "digits": DataFacts((8, 8, 1), 10, 900),
    "mnist": DataFacts((28, 28, 1), 10, 60_000),
    "fashion_mnist": DataFacts((28, 28, 1), 10, 60_000),
    "svhn_cropped": DataFacts((32, 32, 3), 10, 73_257),
    "cifar10": DataFacts((32, 32, 3), 10, 50_000),
    "cifar100": DataFacts((32, 32, 3), 100, 50_000),
    "tiny_imagenet": DataFacts((64, 64, 3), 200, 90_000, 10_000),
    "imagenet2012": DataFacts((), 1000, 1_281_167, streamed=True),
    "i_naturalist2017": DataFacts((), 5089, 579_184, streamed=True),
    "i_naturalist2018": DataFacts((), 8142, 437_513, streamed=True),
    "ag_news_subset": DataFacts((), 4, 120_000, dtype=np.int32),
}


def row_sizes(config: DataConfig, spec: MethodSpec) -> DataFacts:
    """The sizes of what one row of a study is trained on, cut as the study cuts it."""
    name = config.name.removeprefix("tfds:")
    size = config.train_size if spec.train_size is None else spec.train_size
    if found := SIZES.get(name):
        shape = found.shape
        if not shape:
            image = (config.image_size, config.image_size, 3)
            shape = image if found.streamed else (config.sequence_length,)
        counts = {"train": found.train, "validation": found.validation}
        none = np.empty(max(counts.values()))
        splits = {
            k: Split(none[:n], none[:n], none[:n]) for k, n in counts.items() if n
        }
        held = config.validation
        if held is None and name == "digits":
            held = VALIDATION_SIZE
        train, validation = map(len, cut(name, splits, held, size))
        sizes = found._replace(shape=shape, train=train, validation=validation)
    elif is_object(config.name) or Path(config.name).expanduser().exists():
        sizes = facts_of(load_inputs(config, size).dataset)
    else:
        raise ValueError(
            "a plan needs the sizes of the data set: it knows those of "
            f"{', '.join(SIZES)}, and opens a file, folder or function of your own; "
            f"got {config.name!r}"
        )
    # Classes are taken to be of equal size.
    known = len(spec.classes) or sizes.classes
    kept = int(sizes.train * spec.class_share * known / sizes.classes)
    return sizes._replace(train=kept)


def row_teachers(
    config: StudyConfig, spec: MethodSpec, sizes: DataFacts
) -> Teachers | None:
    """The teachers of a row, of which only networks and shapes are known."""
    teaching, classes = spec.teaching, sizes.classes
    if not spec.taught:
        return None

    def known(name: str) -> Any:
        return SimpleNamespace(run=row_run(config, config.spec(name), classes))

    teacher = None if spec.teacher is None else known(spec.teacher)
    groups, cached, temperatures = (), None, None
    if teaching.dtype and teacher is not None:
        row = config.spec(teacher.run.name).computing_in(teaching.dtype, config.model)
        groups = row.groups(config.model, classes)
    if teaching.calibrated:
        temperatures = np.ones(())
    if teaching.offline or teaching.logits:
        replicas = spec.config(config.train).replicas
        table = (replicas, 1, sizes.train, classes)
        cached = np.broadcast_to(np.float32(0), table)
    old = tuple(map(known, teaching.old))
    return Teachers(teacher, old, teaching.members, groups, temperatures, cached)


@dataclasses.dataclass(frozen=True)
class Step:
    """A step that can be compiled, and what its arguments are."""

    run: Run
    program: Program
    arguments: tuple  # shapes with shardings; none is allocated
    parts: dict[str, PyTree]  # by category, trees of the arguments' leaves
    others: dict[str, PyTree]  # by category, what else the devices hold meanwhile
    updates: int = 1  # that one call makes
    calls: int = 1  # until every replica took part, where some wait for the others

    @property
    def jitted(self) -> Any:
        """The step, to be lowered with the arguments."""
        return make_step(self.program, steps_per_call=self.updates)


def study_step(config: StudyConfig, name: str, devices: Sequence[Any]) -> Step:
    """The real step of one row of a study, for devices that need not be there."""

    def drawn(model: ModelConfig) -> ModelConfig:  # in place of pretrained weights
        return dataclasses.replace(model, pretrained="")

    config = dataclasses.replace(config.with_networks(drawn), updates=())
    spec = config.spec(name)
    sizes = row_sizes(config.data, spec)
    deployed = row_run(config, spec, sizes.classes)
    runs = deployed.as_replicas()
    run = deployed if len(runs) > 1 else runs[0]  # kinds of networks count together
    teachers = row_teachers(config, spec, sizes)
    train, tokens = run.config, np.dtype(sizes.dtype) == np.int32
    example = example_of(sizes.shape, tokens=tokens)
    feed = "resident"
    if sizes.streamed:
        feed = Streams(train, drawn=train.seeds.augment != "off").kind
    # Values of moments change no shape.
    channels = 1 if tokens else sizes.shape[-1]
    program, updates = make_program(
        run,
        example,
        run.steps_per_epoch(sizes.train),
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
        teachers=teachers,
        devices=devices,
        feed=feed,
    )
    arguments = _arguments(run, program, sizes, example)
    best = (arguments[0].params, arguments[0].model_state)
    calls, waiting = chunk_count(program, train.replicas), ()
    if calls > 1:  # one call takes a part of all replicas [R, ...]
        own = 5 if feed == "own" else 3
        part = jax.tree.map(
            lambda x: _shape((x.shape[0] // calls, *x.shape[1:]), x.dtype, x.sharding),
            arguments[:own],
        )
        arguments = (*part, *arguments[own:])
        waiting = (calls - 1) * arguments[:3]
    state, inputs, taught, images, labels = arguments
    counters = (state.step, state.alive, state.stopped_step, state.stopped_term)
    parts: dict[str, PyTree] = {
        "weights": state.params,
        "optimiser": state.opt_state,
        "batch statistics": state.model_state,
        "averages and copies": (state.ema, state.peers, state.memory),
        "teachers": taught,
        "batches" if sizes.streamed else "training set": (images, labels),
        "data order, keys, coefficients": inputs,
        "counters": (*counters, state.sums, state.updates),
    }
    others: dict[str, PyTree] = {
        "replicas that wait": waiting,
        "best weights so far": best,
    }
    if not sizes.streamed:
        rows = (sizes.validation, math.prod(sizes.shape))
        others["validation set"] = _shape(rows, sizes.dtype, images.sharding)
    return Step(deployed, program, arguments, parts, others, updates, calls)


def _shape(shape: Sequence[int], dtype: Any, sharding: Any = None) -> Any:
    return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=sharding)


def _variables(groups: Sequence[Group], replicas: int, example) -> tuple[PyTree, ...]:
    """Shapes `[R, S, ...]` of every group's variables."""

    def stacked(group: Group) -> PyTree:
        one = jax.eval_shape(group.network.init, jax.random.key(0), example)
        lead = (replicas, group.size)
        return jax.tree.map(lambda x: _shape((*lead, *x.shape), x.dtype), one)

    return tuple(map(stacked, groups))


def _arguments(run: Run, program: Program, sizes: DataFacts, example) -> tuple:
    """The arguments of the step as shapes with shardings."""
    replicas, batch = run.config.replicas, program.batch_size

    def begin(variables):
        order = jnp.zeros((replicas, sizes.train), jnp.int32)
        state = init_state(run, program, variables, sizes.classes)
        return state, replica_inputs(run, program, order)

    # What draws weights and orders is compiled with options, so it cannot be traced.
    state, inputs = jax.eval_shape(begin, _variables(run.groups, replicas, example))
    taught: list[PyTree] = []
    if program.teacher is not None:
        if program.teacher.cached:
            table = (replicas, 1, sizes.train, sizes.classes)
            taught.append({"logits": _shape(table, np.float32)})
        taught += _variables(program.teacher.groups, replicas, example)
    lead = {"resident": (sizes.train,), "shared": (batch,), "own": (replicas, batch)}
    whole = (math.prod(sizes.shape),) if program.feed == "resident" else sizes.shape
    images = _shape(lead[program.feed] + whole, sizes.dtype)
    labels = _shape(lead[program.feed], np.int32)
    others = (inputs, tuple(taught), images, labels)
    terms = term_names(program, state, *others)
    sums = _shape((replicas, 1 + len(terms)), np.float32)

    def placed(spec, part):
        sharding = NamedSharding(program.mesh, spec)
        return jax.tree.map(lambda x: _shape(x.shape, x.dtype, sharding), part)

    trees = (dataclasses.replace(state, sums=sums), *others)
    specs = step_specs(program)
    return jax.tree.map(placed, specs, trees, is_leaf=lambda x: isinstance(x, P))
