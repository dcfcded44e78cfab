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
from churn_jax.ensembles import interpolate_weights
from churn_jax.training.checkpoint import CheckpointError, Checkpoints, identity_of
from churn_jax.training.click_feed import ClickFeed
from churn_jax.training.clicks import click_program, init_clicks
from churn_jax.training.examples import (
    check_run,
    check_start,
    check_teacher_classes,
    split_example,
)
from churn_jax.training.feed import Feed
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
from churn_jax.training.predictions import placed
from churn_jax.training.program import Program, make_program
from churn_jax.training.run import Run, Trained, chunk_count, stopped_replicas
from churn_jax.training.state import (
    ReplicaInputs,
    TrainState,
    draw_sample,
    epoch_order,
    gatherer,
    init_best,
    init_coefficients,
    init_state,
    init_variables,
    joined,
    member_keys,
    small_fields,
    with_sums,
)
from churn_jax.training.step import term_names
from churn_jax.training.teachers import Teachers, as_teachers


@dataclasses.dataclass
class Part:
    """The networks of one compiled step: a run's, or those of a plain ensemble."""

    run: Run
    program: Program
    state: TrainState  # where training starts
    inputs: Callable[[int], ReplicaInputs]  # of an epoch
    steps_per_call: int = 1  # updates per dispatch; the last of an epoch may be fewer

    @property
    def chunks(self) -> int:
        """Number of states into which the replicas are split."""
        return chunk_count(self.program, self.run.config.replicas)


@dataclasses.dataclass
class Session:
    """One launch of training: constants on the devices and the state to start from."""

    run: Run
    parts: list[Part]  # several for a plain ensemble of several kinds of networks
    program: Program  # of predictions, and of the step but for a plain ensemble
    data: tuple  # images and labels, replicated; the shapes of a batch if they are fed
    feed: Feed | ClickFeed | None  # yields the batches of a streamed training set
    terms: tuple[str, ...]  # that the method logs
    steps_per_epoch: int  # windows to a line of metrics for clicks
    updates: int  # of the whole run; windows for clicks
    identity: str  # what a checkpoint must have been trained as to be continued
    held_out: tuple = ()  # validation images (or a stream) and labels
    teacher: PyTree = ()  # the teachers' variables on the mesh
    start: PyTree | None = None  # weights and state that training starts from, if given
    best: Any = ()  # `BestState` of the best validation epoch so far
    done: int = 0  # updates before this launch
    seconds: float = 0.0  # before this launch
    checkpoints: Checkpoints | None = None
    notes: tuple[str, ...] = ()  # sentences about weights, warm-up and checkpoints

    def gathered(self, states: Sequence[TrainState]) -> TrainState:
        """The states of the parts as that of the run."""
        if self.program is self.parts[0].program:
            return states[0]
        return gatherer(self.program)(tuple(states))


def open_session(
    run: Run,
    dataset,
    *,
    directory: Path | None = None,
    teacher: Trained | Teachers | None = None,
    start: Trained | None = None,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
) -> Session:
    """Places data, weights and teachers on the mesh; restores the last checkpoint."""
    if run.clicks is None:
        moments = plain_numbers(mean), plain_numbers(std)
        if not np.all(np.greater(moments[1], 0.0)):
            raise ValueError(f"{run.name}: std must be above 0; got {moments[1]}")
        session = _of_networks(run, dataset, as_teachers(teacher), start, *moments)
    elif teacher is not None or start is not None:
        raise ValueError(f"{run.name}: a click model learns without a teacher or start")
    else:
        session = _of_clicks(run, dataset)
    notes = [*(g.network.note for g in run.groups)]
    warmup, epochs = run.config.optimizer.warmup_epochs, run.config.epochs
    if warmup > epochs:
        notes.append(
            f"{run.name}: the warm-up of {warmup:g} epochs is longer than training, "
            f"{epochs:g}, so the learning rate does not reach its peak"
        )
    if directory is not None:
        notes += _restore(session, directory)
    session.notes = tuple(dict.fromkeys(filter(None, notes)))
    return session


def _of_networks(
    run: Run, dataset, teachers: Teachers | None, start: Trained | None, mean, std
) -> Session:
    config, train = run.config, dataset.train
    steps_per_epoch = run.steps_per_epoch(len(train))
    example = split_example(train)
    check_run(run, dataset)
    if run.keep and start is None:
        raise ValueError(f"{run.name}: keep={run.keep} needs a start, which it keeps")
    cached, times = (teachers.cached, teachers.repeats) if teachers else (None, 1)
    models = teachers.trained if teachers is not None else ()
    for trained in models:
        trained.run.method.check_teaches(run.name)
        check_teacher_classes(run, trained.run, example, dataset.num_classes)
        if (count := times * trained.run.config.replicas) != config.replicas:
            raise ValueError(f"{run.name}: {trained.run.name} teaches {count} replicas")
    seen = models if teachers is None or cached is None else teachers.old
    for trained in (*seen, *([] if start is None else [start])):
        own = (trained.program.mean, trained.program.std)
        if own != (mean, std):
            raise ValueError(
                f"{run.name} and {trained.run.name} must normalise pixels alike; got "
                f"mean and std {(mean, std)} and {own}"
            )
    sizes = config.replicas // times, 1, len(train.labels), dataset.num_classes
    if cached is not None and cached.shape != sizes:
        raise ValueError(
            f"{run.name}: cached logits must be [R, 1, N, C], here {list(sizes)}; got "
            f"{list(cached.shape)}"
        )

    # Mesh, data and programs -----------------------------------------------------
    runs = run.as_replicas()
    taught_by = teachers if runs[0] is run else None  # a plain ensemble has no teacher
    mesh = make_mesh(runs[0].config.mesh)
    feed = None
    if isinstance(train, StreamedSplit):
        if len(runs) > 1:
            raise ValueError(
                f"{run.name}: networks of several kinds share the batches of a stream; "
                "set seeds.members to shared"
            )
        feed = Feed(train, runs[0].config, mesh)
    program_of = functools.partial(
        make_program,
        example=example,
        steps_per_epoch=steps_per_epoch,
        mean=mean,
        std=std,
        teachers=taught_by,
        feed=feed.kind if feed else "resident",
    )
    programs = [program_of(part) for part in runs]
    program = programs[0][0] if runs[0] is run else program_of(run)[0]
    if feed is not None:
        data = feed.shapes()
    else:
        rows = flat_examples(train.images, example.shape[1:])
        data = replicate((rows, train.labels), mesh)
    validation = dataset.validation
    held_out = placed(validation, program), replicate(validation.labels, program.mesh)

    # Initial state ---------------------------------------------------------------
    begun, given = None, iter(())
    if start is not None:
        begun = fetch((start.params, start.model_state))
        check_start(run, start.run, example, len(jax.tree.leaves(begun)[0]))
        given = iter(joined(*begun))
    taught: PyTree = ()
    if taught_by is not None and program.teacher is not None:
        trees = zip(taught_by.variables(), program.teacher.spec, strict=True)
        taught = tuple(place(tree, mesh, spec) for tree, spec in trees)
    parts = []
    for part, (of, steps_per_call) in zip(runs, programs):
        variables = init_variables(part, of, jnp.zeros_like(example))
        if begun is not None:
            shaped = [
                jax.tree.map(lambda x, like: x.reshape(like.shape), next(given), like)
                for like in variables
            ]
            variables = place(tuple(shaped), mesh, of.slots)
        inputs = epoch_inputs(part, len(train.labels), of)
        state = init_state(part, of, variables, dataset.num_classes)
        terms = term_names(of, state, inputs(0), taught, *data)
        state = with_sums(state, terms, mesh)
        parts.append(Part(part, of, state, inputs, steps_per_call))
    session = Session(
        run=run,
        parts=parts,
        program=program,
        data=data,
        feed=feed,
        held_out=held_out,
        teacher=taught,
        start=begun,
        terms=terms,
        steps_per_epoch=steps_per_epoch,
        updates=steps_per_epoch * config.epochs,
        identity=identity_of(run, dataset.fingerprint, teachers, start),
    )
    whole = session.gathered([part.state for part in parts])
    session.best = init_best(whole, program.mesh)
    return session


def _of_clicks(run: Run, data) -> Session:
    """The session of a click model, whose data are `Clicks`."""
    program = click_program(run, len(data.train))
    feed = ClickFeed(run, data, program)
    inputs = replica_inputs(run, program)
    state = init_clicks(run, program, inputs)
    terms = term_names(program, state, inputs, (), *feed.shapes())
    state = with_sums(state, terms, program.mesh)
    return Session(
        run=run,
        parts=[Part(run, program, state, lambda epoch: inputs)],
        program=program,
        data=(),
        feed=feed,
        terms=terms,
        steps_per_epoch=feed.every,
        updates=feed.windows,
        identity=identity_of(run, data.fingerprint),
    )


def plain_numbers(value: float | Sequence[float]) -> float | tuple[float, ...]:
    """A number, or one per channel, in a form that can be compiled in."""
    numbers = np.asarray(value, np.float64)
    return tuple(numbers.tolist()) if numbers.ndim else float(numbers)


def epoch_inputs(run: Run, num_examples: int, program: Program):
    """A function that makes the inputs of an epoch."""
    config, numbers = run.config, np.asarray(run.config.numbers)
    replicas = NamedSharding(program.mesh, P(REPLICA))
    keys = [config.seeds.keys(factor, numbers) for factor in ("order", "sample")]
    order_of = _order_of(num_examples, config.sample, replicas)
    given = replica_inputs(run, program)
    return lambda epoch: dataclasses.replace(
        given, order=order_of(*keys, np.int32(epoch))
    )


def replica_inputs(run: Run, program: Program, order: Any = ()) -> ReplicaInputs:
    """The inputs of an epoch; all but its order are the same in every epoch.

    Those of a click model are the same in every window, and its order are keys, too.
    """
    config, seeds, method = run.config, run.config.seeds, run.method

    def keys(numbers: np.ndarray) -> tuple:
        members: PyTree = ()
        if method.member_sample != "shared":
            members = member_keys(seeds, numbers, method.members)
        return seeds.keys("order", numbers), seeds.keys("augment", numbers), members

    numbers = np.asarray(config.numbers)
    spread = spreader(NamedSharding(program.mesh, P(REPLICA)))
    ordered, augment, members = spread(keys(numbers))
    coefficients = init_coefficients(method, config, program.mesh)
    if run.clicks is None:
        return ReplicaInputs(order, augment, coefficients, members)
    warm = spread(keys(np.zeros_like(numbers)))
    return ReplicaInputs(ordered, augment, coefficients, members, warm_keys=warm)


# Keys are arguments, so rows and launches with other seeds have these in common.
@functools.lru_cache(maxsize=8)
def _order_of(num_examples, sample, sharding):
    def order_of(ordered, sampled, epoch):
        return epoch_order(ordered, draw_sample(sampled, num_examples, sample), epoch)

    return jax.jit(order_of, out_shardings=sharding, compiler_options=compilation())


def _restore(session: Session, directory: Path) -> list[str]:
    """Goes to the last checkpoint; returns a sentence about those that are damaged."""
    folder, program = directory / "checkpoints", session.program
    modules = [group.network.settings for group in session.run.groups]
    also = {"mean": program.mean, "std": program.std, "modules": modules}
    checkpoints = Checkpoints(folder, identity=session.identity, also=also)
    session.checkpoints = checkpoints
    try:
        states = [part.state for part in session.parts]
        restored = checkpoints.restore({"state": states, "best": session.best})
        if isinstance(session.feed, ClickFeed):
            session.feed.open(directory / "scores.npy", new=restored is None)
    except BaseException:
        checkpoints.close()
        raise
    if restored is None:
        return []
    session.best = restored.tree["best"]
    for part, state in zip(session.parts, restored.tree["state"]):
        part.state = state
    session.done = int(restored.meta["updates_done"])
    session.seconds = float(restored.meta["seconds"])
    going_on = f"going on from the checkpoint before, update {session.done}"
    return ["; ".join((*restored.skipped, going_on))] if restored.skipped else []


def trained_of(
    session: Session,
    final: Sequence[TrainState],
    *,
    seconds: float,
    compile_seconds: float = 0.0,
) -> Trained:
    """The result of a training that is over; `final` are its parts' last states."""
    run, last = session.run, session.gathered(final)
    chosen: Any = session.best if run.config.weights == "best" else last
    params, model_state = chosen.params, chosen.model_state
    if run.keep and session.start is not None:
        params, model_state = interpolate_weights(
            (params, model_state), session.start, run.keep
        )
    numbers = (*jax.tree.leaves(last.params), *last.tables[:1])
    scores = None
    if isinstance(session.feed, ClickFeed):
        scores = session.feed.result(last, session.parts[0].inputs(0))
    return Trained(
        run=run,
        params=params,
        model_state=model_state,
        last=last,
        best=session.best,
        program=session.program,
        stopped=stopped_replicas(fetch(small_fields(last)), session.terms),
        seconds=seconds,
        compile_seconds=compile_seconds,
        parameters=sum(x.size for x in numbers) // run.config.replicas,
        identity=session.identity,
        notes=session.notes,
        scores=scores,
    )


def restore(run: Run, dataset, *, directory: Path, **given: Any) -> Trained:
    """The result of a finished `train`, `given` the same, from its checkpoint alone."""
    saved = directory / "checkpoints"
    if not saved.is_dir():  # opening it would create it
        raise CheckpointError(f"{saved} does not exist; {run.name} cannot be restored")
    session = open_session(run, dataset, directory=directory, **given)
    if session.checkpoints is not None:
        session.checkpoints.close()
    if session.done < (total := session.updates):
        raise CheckpointError(
            f"{saved} holds update {session.done} of {total}; {run.name} has not "
            "finished"
        )
    states = [part.state for part in session.parts]
    return trained_of(session, states, seconds=session.seconds)
