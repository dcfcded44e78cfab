"""Everything that training needs on the devices, made once before the first update."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.data.records import StreamedSplit
from churn_jax.data.splits import is_tokens
from churn_jax.ensembles import Group
from churn_jax.methods import Method
from churn_jax.methods.base import check_teacher
from churn_jax.training.checkpoint import Checkpoints
from churn_jax.training.examples import (
    check_run,
    check_teacher_classes,
    example_of,
    split_example,
)
from churn_jax.training.feed import Feed, Stream
from churn_jax.training.identity import identity_of
from churn_jax.training.initialize import (
    init_best,
    init_coefficients,
    init_state,
    init_variables,
    network_parameters,
    start_variables,
)
from churn_jax.training.mappings import choose_mappings
from churn_jax.training.optim import make_schedule
from churn_jax.training.partition import REPLICA, make_mesh, place, replicate
from churn_jax.training.program import Program
from churn_jax.training.resident import flat_examples
from churn_jax.training.run import Run, Trained
from churn_jax.training.seeds import draw_sample, epoch_order
from churn_jax.training.state import BestState, ReplicaInputs, TrainState, joined
from churn_jax.training.steps import term_names
from churn_jax.training.teachers import teacher_program
from churn_jax.training.tutors import Tutors, tutors_of
from churn_jax.typing import PyTree

__all__ = ["Session", "make_program", "open_session"]

# The longest scan: longer ones save nothing and delay an interruption.
_LONGEST_CALL = 64


@dataclasses.dataclass
class Session:
    """One launch of training: constants on the devices and the state to start from.

    Attributes:
        program: what is compiled.
        images: training images, replicated; of a stream, the shape of a batch.
        labels: training labels, replicated; of a stream, the shape of a batch.
        feed: yields the batches of a stream; None where the training set is resident.
        held_out: validation images, replicated or a stream, and labels, replicated.
        inputs: epoch number to the inputs of that epoch.
        teacher: the teacher's variables on the mesh, or `()`.
        start: weights and state that training starts from, where they were given.
        terms: what the method logs.
        state: where training starts.
        best: weights of the best validation epoch so far.
        done: updates done before this launch.
        seconds: spent before this launch.
        steps_per_epoch: updates per epoch.
        steps_per_call: updates per dispatch; the last of an epoch may make fewer.
        parameters: trained numbers per replica.
        identity: what a checkpoint must have been trained as to be continued.
        checkpoints: where to save, or None.
        notes: sentences for the user about where weights are from.
    """

    program: Program
    images: jax.Array | jax.ShapeDtypeStruct
    labels: jax.Array | jax.ShapeDtypeStruct
    feed: Feed | None
    held_out: tuple[jax.Array | Stream, jax.Array]
    inputs: Callable[[int], ReplicaInputs]
    teacher: PyTree
    start: PyTree | None
    terms: tuple[str, ...]
    state: TrainState
    best: BestState
    done: int
    seconds: float
    steps_per_epoch: int
    steps_per_call: int
    parameters: int
    identity: str
    checkpoints: Checkpoints | None
    notes: tuple[str, ...]


def make_program(
    run: Run,
    image_shape: tuple[int, ...],
    steps_per_epoch: int,
    *,
    mean: float | tuple[float, ...] = 0.0,
    std: float | tuple[float, ...] = 1.0,
    teacher_groups: tuple[Group, ...] | None = None,
    old_groups: tuple[Group, ...] = (),
    cached: bool = False,
    devices: Sequence | None = None,
    feed: str = "resident",
    tokens: bool = False,
) -> tuple[Program, int]:
    """The program of a run, and how many updates one dispatch makes.

    Args:
        run: what to train.
        image_shape: `[H, W, C]` or `[D]`, or `[L]` of texts.
        steps_per_epoch: updates per epoch.
        mean: of pixels in [0, 1], a number or one per channel.
        std: likewise.
        teacher_groups: the teacher's committee, or None where nobody teaches.
        old_groups: of the old models, which teach beside it.
        cached: whether the teacher is a table of logits.
        devices: default are all of this program's.
        feed: see `Program`; a stream is dispatched update by update.
        tokens: whether examples are token ids.

    Raises:
        ValueError: mesh, mapping or steps per call do not fit.
    """
    config = run.config
    mesh = make_mesh(config.mesh, devices)
    platform = mesh.devices.flat[0].platform
    example = example_of(image_shape, tokens=tokens)
    taught_by = (*(teacher_groups or ()), *old_groups)
    mapped = choose_mappings(
        run,
        taught_by,
        example,
        platform=platform,
        updates=steps_per_epoch * config.epochs,
    )
    augment = not config.augmentation.is_off and config.seeds.augment != "off"
    program = Program(
        groups=run.groups,
        optimizer=config.optimizer,
        schedule=make_schedule(
            config.optimizer,
            steps_per_epoch=steps_per_epoch,
            total_steps=steps_per_epoch * config.epochs,
        ),
        batch_size=config.batch_size,
        mesh=mesh,
        mapping=mapped.replicas,
        at_once=mapped.at_once,
        member_mapping=mapped.members,
        convolutional=mapped.convolutional,
        stale_steps=run.method.stale_steps,
        ema_decay=config.ema_decay,
        feed=feed,
        example_shape=tuple(image_shape),
        augmentation=config.augmentation if augment else None,
        mean=mean,
        std=std,
        teacher=None
        if teacher_groups is None
        else teacher_program(
            taught_by,
            config.mesh.member,
            mapped.teachers,
            old=len(old_groups),
            cached=cached,
        ),
    )
    if feed != "resident":
        if config.steps_per_call > 1:
            raise ValueError(
                f"streamed data take one update per call; got steps_per_call "
                f"{config.steps_per_call}"
            )
        return program, 1
    if config.steps_per_call > steps_per_epoch:
        raise ValueError(
            f"steps_per_call {config.steps_per_call} is more than the "
            f"{steps_per_epoch} steps of an epoch"
        )
    if config.steps_per_call:
        return program, config.steps_per_call
    # A scan saves dispatches, but a convolution's weight gradient inside one is many
    # times slower on CPU.
    if mapped.slow_scan:
        return program, 1
    return program, min(steps_per_epoch, _LONGEST_CALL)


def open_session(
    run: Run,
    dataset,
    *,
    directory: Path | None,
    teacher: Trained | Tutors | None,
    start: Trained | None = None,
    mean: float | tuple[float, ...],
    std: float | tuple[float, ...],
) -> Session:
    """Places data, weights and teacher on the mesh and restores the last checkpoint.

    Raises:
        CheckpointError: `directory` holds something else.
        ValueError: configuration and data do not fit.
    """
    config, train = run.config, dataset.train
    teacher = tutors_of(teacher)
    if teacher is not None:
        for trained in teacher.trained:
            check_teacher(trained.run.method, run.name)
        if teacher.cached is not None and teacher.cached.shape[2] != len(train.labels):
            raise ValueError(
                f"{run.name}: cached logits are of {teacher.cached.shape[2]} examples, "
                f"the training set has {len(train.labels)}"
            )
    steps_per_epoch = len(train.labels) // config.batch_size
    if steps_per_epoch == 0:
        raise ValueError(
            f"batch_size {config.batch_size} is larger than the training set, "
            f"{len(train.labels)} examples"
        )
    shape = split_example(train)
    image_shape, tokens = shape.shape[1:], is_tokens(shape)
    check_run(run, dataset)
    if teacher is not None:
        for trained in teacher.trained:
            check_teacher_classes(run, trained.run, shape, dataset.num_classes)
    feed = None
    if isinstance(train, StreamedSplit):
        mesh = make_mesh(config.mesh)
        feed = Feed(train, config, mesh, dataset.reading)
    program, steps_per_call = make_program(
        run,
        image_shape,
        steps_per_epoch,
        mean=mean,
        std=std,
        teacher_groups=None if teacher is None else teacher.own_groups(),
        old_groups=() if teacher is None else teacher.old_groups(),
        cached=teacher is not None and teacher.cached is not None,
        feed=feed.kind if feed else "resident",
        tokens=tokens,
    )
    mesh, numbers = program.mesh, config.numbers
    if feed is not None:
        images, labels = feed.shapes()
        held_out = (
            Stream(dataset.validation, dataset.reading),
            replicate(dataset.validation.labels, mesh),
        )
    else:
        parts = (train, dataset.validation)
        (images, labels), held_out = replicate(
            tuple((flat_examples(p.images, image_shape), p.labels) for p in parts), mesh
        )
    example = jnp.zeros_like(shape)
    variables = init_variables(
        run.groups,
        config.seeds,
        numbers,
        example,
        mesh,
        stream=run.stream,
        input_scale=run.method.input_scale,
        slots=program.slots,
    )
    begun: PyTree | None = None
    if start is not None:
        begun = start_variables(run, start, variables)  # on the host: kept all along
        variables = place(joined(*begun), mesh, program.slots)
    coefficients = init_coefficients(
        run.method, config.optimizer, config.replicas, mesh
    )
    inputs = _epoch_inputs(run, len(train.labels), mesh, coefficients)
    taught: PyTree = ()
    if teacher is not None and program.teacher is not None:
        trees = zip(teacher.variables(), program.teacher.spec, strict=True)
        taught = tuple(place(tree, mesh, spec) for tree, spec in trees)
    memory = _memory(run, variables, example)
    state = init_state(program, variables, config.replicas, terms=0, memory=memory)
    terms = term_names(program, state, inputs(0), taught, images, labels)
    # The terms are known only now; the rest of the state is made once.
    sums = np.zeros((config.replicas, 1 + len(terms)), np.float32)
    state = dataclasses.replace(state, sums=place(sums, mesh, P(REPLICA)))
    session = Session(
        program=program,
        images=images,
        labels=labels,
        feed=feed,
        held_out=held_out,
        inputs=inputs,
        teacher=taught,
        start=begun,
        terms=terms,
        state=state,
        best=init_best(state, mesh),
        done=0,
        seconds=0.0,
        steps_per_epoch=steps_per_epoch,
        steps_per_call=steps_per_call,
        parameters=network_parameters(variables),
        identity=identity_of(run, dataset.fingerprint, teacher, start),
        checkpoints=None,
        notes=tuple(
            dict.fromkeys(g.network.note for g in run.groups if g.network.note)
        ),
    )
    if directory is not None:
        _restore(session, run, directory)
    return session


def _memory(run: Run, variables: tuple[PyTree, ...], example: jax.Array) -> PyTree:
    """One replica's memory before the first update."""
    method = run.method
    if type(method).init_memory is Method.init_memory:
        return ()
    # The number of classes is what a member answers with.
    group, stacked = next((g, v) for g, v in zip(run.groups, variables) if not g.gate)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), stacked)
    outputs, _ = jax.eval_shape(group.network.apply, one, example)
    return method.init_memory(outputs.logits.shape[-1])


def _epoch_inputs(run: Run, num_examples: int, mesh, coefficients):
    seeds, numbers = run.config.seeds, np.asarray(run.config.numbers)
    per_replica = NamedSharding(mesh, P(REPLICA))

    @functools.partial(jax.jit, out_shardings=per_replica)
    def order_of(epoch):
        sample = draw_sample(
            seeds.keys("sample", numbers), num_examples, run.config.sample
        )
        return epoch_order(seeds.keys("order", numbers), sample, epoch)

    augment_keys = jax.jit(
        lambda: seeds.keys("augment", numbers), out_shardings=per_replica
    )()
    sample_keys: PyTree = ()
    if run.method.member_sample != "shared":
        sample_keys = jax.jit(
            lambda: seeds.keys("sample", numbers), out_shardings=per_replica
        )()
    return lambda epoch: ReplicaInputs(
        order_of(np.int32(epoch)), augment_keys, coefficients, sample_keys
    )


def _restore(session: Session, run: Run, directory: Path) -> None:
    session.checkpoints = Checkpoints(
        directory / "checkpoints", identity=session.identity
    )
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
        {"state": session.state.saved(), "best": session.best},
    )
    try:
        restored = session.checkpoints.restore(like)
    except BaseException:
        session.checkpoints.close()
        raise
    if restored is None:
        return
    session.state = dataclasses.replace(session.state, **restored.tree["state"])
    session.best = restored.tree["best"]
    session.done = int(restored.meta["updates_done"])
    session.seconds = float(restored.meta["seconds"])
    if restored.skipped:
        session.notes = (
            *session.notes,
            f"{'; '.join(restored.skipped)}; going on from the checkpoint before, "
            f"update {session.done}",
        )
