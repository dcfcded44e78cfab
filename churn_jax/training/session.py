"""Everything that training needs on the devices, made once before the first update."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax.data.records import StreamedSplit
from churn_jax.data.splits import is_tokens
from churn_jax.ensembles import interpolate_weights
from churn_jax.methods import Method
from churn_jax.methods.base import check_teacher
from churn_jax.training.checkpoint import CheckpointError, Checkpoints
from churn_jax.training.examples import (
    OTHER_NETWORKS,
    check_run,
    check_teacher_classes,
    split_example,
)
from churn_jax.training.feed import Feed, Stream
from churn_jax.training.identity import identity_of
from churn_jax.training.partition import (
    REPLICA,
    compilation,
    fetch,
    flat_examples,
    make_mesh,
    place,
    replicate,
    spreader,
)
from churn_jax.training.program import Program, make_program
from churn_jax.training.replicas import term_names
from churn_jax.training.run import Run, Trained, stopped_replicas
from churn_jax.training.seeds import draw_sample, epoch_order
from churn_jax.training.state import (
    BestState,
    ReplicaInputs,
    TrainState,
    init_best,
    init_coefficients,
    init_state,
    init_variables,
    joined,
    small_fields,
    with_sums,
)
from churn_jax.training.teachers import Teachers, as_teachers
from churn_jax.training.tuning import tuned


@dataclasses.dataclass
class Session:
    """One launch of training: constants on the devices and the state to start from."""

    program: Program
    images: jax.Array | jax.ShapeDtypeStruct  # replicated; a batch's shape if streamed
    labels: jax.Array | jax.ShapeDtypeStruct
    feed: Feed | None  # yields the batches of a streamed training set
    held_out: tuple[jax.Array | Stream, jax.Array]  # validation images and labels
    inputs: Callable[[int], ReplicaInputs]  # of an epoch
    teacher: PyTree  # the teachers' variables on the mesh, or ()
    start: PyTree | None  # weights and state that training starts from, if given
    terms: tuple[str, ...]  # that the method logs
    state: TrainState  # where training starts
    best: BestState  # weights of the best validation epoch so far
    done: int  # updates before this launch
    seconds: float  # before this launch
    steps_per_epoch: int
    steps_per_call: int  # updates per dispatch; the last of an epoch may make fewer
    parameters: int  # trained numbers per replica
    identity: str  # what a checkpoint must have been trained as to be continued
    checkpoints: Checkpoints | None
    notes: tuple[str, ...]  # sentences for the user about where weights are from


def open_session(
    run: Run,
    dataset,
    *,
    directory: Path | None,
    teacher: Trained | Teachers | None,
    start: Trained | None = None,
    mean: float | Sequence[float],
    std: float | Sequence[float],
) -> Session:
    """Places data, weights and teachers on the mesh; restores the last checkpoint."""
    config, train = run.config, dataset.train
    teachers = as_teachers(teacher)
    for trained in teachers.trained if teachers is not None else ():
        check_teacher(trained.run.method, run.name)
    steps_per_epoch = len(train.labels) // config.batch_size
    if steps_per_epoch == 0:
        raise ValueError(
            f"batch_size {config.batch_size} is larger than the training set, "
            f"{len(train.labels)} examples"
        )
    shape = split_example(train)
    image_shape, tokens = shape.shape[1:], is_tokens(shape)
    check_run(run, dataset)
    if teachers is not None:
        _check_teachers(run, teachers, dataset, shape)
    feed = None
    if isinstance(train, StreamedSplit):
        members = run.groups[0].size if run.independent else 0
        if members and len(run.groups) > 1:
            raise ValueError(
                f"{run.name}: networks of several kinds share the batches of a stream; "
                "set seeds.members to shared"
            )
        feed = Feed(train, config, make_mesh(config.mesh), dataset.reading, members)
    program_of = functools.partial(
        make_program,
        image_shape=image_shape,
        steps_per_epoch=steps_per_epoch,
        mean=plain_numbers(mean),
        std=plain_numbers(std),
        teacher_groups=None if teachers is None else teachers.own_groups(),
        old_groups=() if teachers is None else teachers.old_groups(),
        cached=teachers is not None and teachers.cached is not None,
        feed=feed.kind if feed else "resident",
        tokens=tokens,
    )
    program, steps_per_call = program_of(run)
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
        independent=program.independent,
        input_scale=run.method.input_scale,
        slots=program.slots,
    )
    begun: PyTree | None = None
    if start is not None:
        begun = _start_weights(run, start, variables)  # on the host: kept all along
        variables = place(joined(*begun), mesh, program.slots)
    coefficients = init_coefficients(
        run.method, config.optimizer, config.replicas, mesh
    )
    inputs = _epoch_inputs(run, len(train.labels), program, coefficients)
    taught: PyTree = ()
    if teachers is not None and program.teacher is not None:
        trees = zip(teachers.variables(), program.teacher.spec, strict=True)
        taught = tuple(place(tree, mesh, spec) for tree, spec in trees)
    memory = _memory(run, variables, example)
    state = init_state(program, variables, config.replicas, terms=0, memory=memory)
    terms = term_names(program, state, inputs(0), taught, images, labels)
    state = with_sums(state, terms, mesh)
    said = [*(g.network.note for g in run.groups)]
    said.append(program.optimizer.unread(config.optimizer))
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
        parameters=sum(p.size for p in jax.tree.leaves(state.params))
        // config.replicas,
        identity=identity_of(run, dataset.fingerprint, teachers, start),
        checkpoints=None,
        notes=tuple(dict.fromkeys(filter(None, said))),
    )
    if config.mapping == "tune" and feed is None and jax.process_count() == 1:
        session.program, session.steps_per_call, note = tuned(session, run, program_of)
        session.notes = (*session.notes, note)
    if directory is not None:
        _restore(session, directory)
    return session


def _check_teachers(run: Run, teachers: Teachers, dataset, example) -> None:
    for trained in teachers.trained:
        check_teacher_classes(run, trained.run, example, dataset.num_classes)
    examples = len(dataset.train.labels)
    if teachers.cached is not None and teachers.cached.shape[2] != examples:
        raise ValueError(
            f"{run.name}: cached logits are of {teachers.cached.shape[2]} examples, "
            f"the training set has {examples}"
        )


def plain_numbers(value: float | Sequence[float]) -> float | tuple[float, ...]:
    """A number, or one per channel, in a form that can be compiled in."""
    numbers = np.asarray(value, np.float64)
    return tuple(numbers.tolist()) if numbers.ndim else float(numbers)


def _start_weights(
    run: Run, start: Trained, drawn: tuple[PyTree, ...]
) -> tuple[tuple[PyTree, ...], tuple[PyTree, ...]]:
    """`(params, model_state)` of another row, in the form of those that were drawn."""

    def form(tree):
        return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)

    params, state = fetch((start.params, start.model_state))
    if form(joined(params, state)) != form(drawn):
        raise ValueError(OTHER_NETWORKS.format(run.name, start.run.name))
    return params, state


def _memory(run: Run, variables: tuple[PyTree, ...], example: jax.Array) -> PyTree:
    """One replica's memory before the first update."""
    method = run.method
    if type(method).init_memory is Method.init_memory:
        return ()
    # The number of classes is that of a member's logits.
    group, stacked = next((g, v) for g, v in zip(run.groups, variables) if not g.gate)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), stacked)
    outputs, _ = jax.eval_shape(group.network.apply, one, example)
    return method.init_memory(outputs.logits.shape[-1])


def _epoch_inputs(run: Run, num_examples: int, program: Program, coefficients):
    config = run.config
    sizes = tuple(g.size for g in run.groups) if program.independent else ()
    drawn = NamedSharding(program.mesh, program.input_specs.order)
    sampled = _keys(config.seeds, config.numbers, (), "sample")
    ordered = _keys(config.seeds, config.numbers, sizes, "order")
    order_of = _order_of(num_examples, config.sample, drawn)
    augmenting = _keys(config.seeds, config.numbers, sizes, "augment")
    augment_keys = spreader(drawn)(augmenting)
    sample_keys: PyTree = ()
    if run.method.member_sample != "shared":
        sample_keys = spreader(NamedSharding(program.mesh, P(REPLICA)))(sampled)
    return lambda epoch: ReplicaInputs(
        order_of(ordered, sampled, np.int32(epoch)),
        augment_keys,
        coefficients,
        sample_keys,
    )


# Keys are arguments, so rows and launches with other seeds have these in common.
@functools.lru_cache(maxsize=8)
def _order_of(num_examples, sample, sharding):
    def order_of(ordered, sampled, epoch):
        drawn = draw_sample(sampled, num_examples, sample)
        if not isinstance(ordered, tuple):
            return epoch_order(ordered, drawn, epoch)
        of_members = jax.vmap(epoch_order, (1, None, None), 1)
        return tuple(of_members(group, drawn, epoch) for group in ordered)

    quick = compilation()
    return jax.jit(order_of, out_shardings=sharding, compiler_options=quick)


def _keys(seeds, numbers, sizes, factor) -> Any:
    """Keys `[R]`; with `sizes` of independent groups, `[R, S]` for each of them."""
    if not sizes:
        return seeds.keys(factor, np.asarray(numbers))
    ends = np.cumsum(sizes)
    members = [np.arange(end - size, end) for end, size in zip(ends, sizes)]
    return tuple(seeds.keys(factor, np.asarray(numbers), part) for part in members)


def _restore(session: Session, directory: Path) -> None:
    checkpoints = Checkpoints(directory / "checkpoints", identity=session.identity)
    session.checkpoints = checkpoints
    try:
        restored = checkpoints.restore({"state": session.state, "best": session.best})
    except BaseException:
        checkpoints.close()
        raise
    if restored is None:
        return
    session.state, session.best = restored.tree["state"], restored.tree["best"]
    session.done = int(restored.meta["updates_done"])
    session.seconds = float(restored.meta["seconds"])
    if restored.skipped:
        session.notes = (
            *session.notes,
            f"{'; '.join(restored.skipped)}; going on from the checkpoint before, "
            f"update {session.done}",
        )


def trained_of(
    run: Run,
    session: Session,
    final: TrainState,
    best: BestState,
    *,
    seconds: float,
    compile_seconds: float = 0.0,
) -> Trained:
    """What came out of a training that is over; `final` is its last state."""
    chosen: BestState | TrainState = best if run.config.weights == "best" else final
    params, model_state = chosen.params, chosen.model_state
    if run.keep and session.start is not None:
        params, model_state = interpolate_weights(
            (params, model_state), session.start, run.keep
        )
    return Trained(
        run=run,
        params=params,
        model_state=model_state,
        last=final,
        best=best,
        program=session.program,
        stopped=stopped_replicas(fetch(small_fields(final)), session.terms),
        seconds=seconds,
        compile_seconds=compile_seconds,
        parameters=session.parameters,
        identity=session.identity,
        notes=session.notes,
    )


def restore(
    run: Run,
    dataset,
    *,
    directory: Path,
    teacher: Trained | Teachers | None = None,
    start: Trained | None = None,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
) -> Trained:
    """What `train` returned when it had finished, from its checkpoint alone."""
    saved = directory / "checkpoints"
    if not saved.is_dir():  # opening it would create it
        raise CheckpointError(f"{saved} does not exist; {run.name} cannot be restored")
    session = open_session(
        run,
        dataset,
        directory=directory,
        teacher=teacher,
        start=start,
        mean=mean,
        std=std,
    )
    if session.checkpoints is not None:
        session.checkpoints.close()
    total = session.steps_per_epoch * run.config.epochs
    if session.done < total:
        raise CheckpointError(
            f"{saved} holds update {session.done} of {total}; {run.name} has not "
            "finished"
        )
    return trained_of(
        run, session, session.state, session.best, seconds=session.seconds
    )
