"""The training loop of every method: epochs, validation, checkpoints."""

import collections
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from churn_compare.flip_counts import count_flips
from churn_jax import metrics
from churn_jax.configuration.codec import to_json
from churn_jax.training.checkpoint import CheckpointClock
from churn_jax.training.click_feed import ClickFeed
from churn_jax.training.folder_lock import check_lock, lock_folder
from churn_jax.training.loggers import (
    LoggedRun,
    Logger,
    Loggers,
    MetricsWriter,
    as_loggers,
    flat,
)
from churn_jax.training.partition import fetch, greatest, join, replicate, split
from churn_jax.training.predictions import predict_split
from churn_jax.training.progress import COMPILING, Display, Work
from churn_jax.training.run import (
    Interrupted,
    Progress,
    Run,
    Trained,
    chunk_count,
    stopped_replicas,
)
from churn_jax.training.session import Session, open_session, trained_of
from churn_jax.training.state import (
    BestState,
    TrainState,
    small_fields,
    term_means,
    without_sums,
)
from churn_jax.training.step import make_step
from churn_jax.training.teachers import Teachers, as_teachers

# Seconds that a block of updates takes, about. One block runs while the next is
# dispatched, so the devices never wait for the host, and the host is at most two blocks
# ahead: the progress shown lags by so much, and a checkpoint or a stop waits for them.
_BLOCK_SECONDS = 1.0
# On a CPU every call maps its temporary memory anew: a fifth of the time of ResNet-20.
# So a block of slow updates has up to `_ENOUGH_UPDATES` within `_LONG_BLOCK_SECONDS`.
_ENOUGH_UPDATES = 4
_LONG_BLOCK_SECONDS = 8.0
# Updates of the first block, whose speed is not known yet.
_FIRST_BLOCK = 1
# Updates of a stream that may be unfinished: each holds a batch in memory.
_RUNNING = 2


def train(
    run: Run,
    dataset,
    *,
    directory: Path | None = None,
    teacher: Trained | Teachers | None = None,
    start: Trained | None = None,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    loggers: Sequence[str | Logger] = ("tensorboard",),
    group: str = "",
    on_progress: Callable[[Progress], None] | None = None,
    on_work: Callable[[Work], None] = lambda work: None,
    on_note: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
    show_progress: bool = True,
) -> Trained:
    """Trains R replicas of a method; continues from `directory` where it can.

    Args:
        run: run to train.
        dataset: a `churn_jax.data.Dataset` or `StreamingDataset`.
        directory: for checkpoints, metrics and events; None keeps nothing. It knows
            networks of plain functions by their names alone.
        teacher: a trained method, for methods that need one, or several as
            `churn_jax.training.teachers.Teachers`; replica r teaches replica r.
        start: a trained method whose deployed weights training starts from, of the
            same networks; None draws them.
        mean: mean of pixels in [0, 1], a number or one per channel.
        std: the same for their standard deviation.
        loggers: where metrics go in addition to `metrics.jsonl` in `directory`: names
            such as `csv`, `wandb` and `mlflow`, or objects, see
            `churn_jax.training.Logger`.
        group: name under which loggers group runs, such as that of a study.
        on_progress: called after every evaluation; without `show_progress` it must
            itself report replicas that stopped.
        on_work: called with what is finished, about once a second and whenever
            something else begins, such as an evaluation.
        on_note: called with sentences about checkpoints that could not be used; the
            default shows them.
        stop: when set, the loop saves a checkpoint and raises.
        show_progress: show one line on a terminal, and elsewhere one every few seconds.

    Returns:
        A `Trained`.

    Raises:
        Interrupted: `stop` was set; the checkpoint is written.
        CheckpointError: `directory` holds something else.
        FolderInUseError: another process trains into `directory`.
        ValueError: configuration and data do not fit, or a stream breaks off.
    """
    began = time.perf_counter()
    directory = None if directory is None else Path(directory)
    teachers, logging = as_teachers(teacher), as_loggers(loggers)
    taught = teachers.trained if teachers else ()
    if run.method.needs_teacher and teachers is None:
        raise ValueError(f"{run.name} needs a trained teacher")
    display = Display(silent=jax.process_index() != 0, quiet=not show_progress)
    noted = on_note or display.note

    def progressed(progress: Progress) -> None:
        if show_progress or on_progress is None:
            display.update(progress)
        if on_progress is not None:
            on_progress(progress)

    def worked(work: Work) -> None:
        display.work(work)
        on_work(work)

    with display, lock_folder(directory):
        display.begin(run.name)
        session = open_session(
            run,
            dataset,
            directory=directory,
            teacher=teachers,
            start=start,
            mean=mean,
            std=std,
        )
        for note in (*stopped_teachers(run.name, teachers, start), *session.notes):
            noted(note)
        with _Loop(session, directory, began, worked) as loop:
            if loop.writer is not None and loop.writer.note:
                noted(loop.writer.note)
            if loop.done < loop.total and jax.process_index() == 0:
                networks = [f"{g.size} x {g.network.name}" for g in run.groups]
                settings = {
                    "data": dataset.name,
                    "network": networks if run.clicks is None else run.clicks,
                    "method": run.method,
                    "teacher": [t.run.name for t in taught],
                    "train": run.config,
                }
                logged = LoggedRun(
                    run.name,
                    group=group,
                    directory=loop.directory,
                    settings=flat(to_json(settings), "."),
                    step=loop.done,
                    identity=session.identity,
                )
                loop.loggers = logging
                logging.start(logged, noted)
            loop.run_epochs(progressed, stop or threading.Event())
    return trained_of(
        session,
        loop.joined(),
        seconds=loop.seconds(),
        compile_seconds=loop.compile_seconds,
    )


def stopped_teachers(
    student: str, teachers: Teachers | None, start: Trained | None = None
) -> tuple[str, ...]:
    """A sentence for each teacher or start with replicas that stopped early."""
    followed = [("learns", t) for t in (teachers.trained if teachers else ())]
    followed += [] if start is None else [("starts", start)]
    return tuple(
        f"{student} {verb} from {trained.run.name}, whose replica"
        f"{'s' if len(trained.stopped) > 1 else ''} "
        f"{', '.join(str(one.replica) for one in trained.stopped)} stopped early, with "
        "the weights of that time"
        for verb, trained in followed
        if trained.stopped
    )


class _Loop:
    """Epochs of blocks of updates, each epoch followed by an evaluation."""

    def __init__(
        self,
        session: Session,
        directory: Path | None,
        began: float,
        on_work: Callable[[Work], None],
    ):
        self.session, self.run, self.on_work = session, session.run, on_work
        self.began, self.total = began, session.updates
        # For each `Part`, states of chunks of replicas, which run one after another.
        self.states = [split(part.state, part.chunks) for part in session.parts]
        self.taught = [[()] * len(chunks) for chunks in self.states]
        if session.program.teacher is not None:
            self.taught = [split(session.teacher, len(self.states[0]))]
        self.done = session.done
        for part in session.parts:
            del part.state
        self.steps_per_call = min(part.steps_per_call for part in session.parts)
        counted = self.steps_per_call > 1
        each = None if counted else 1
        programs = [part.program for part in session.parts]
        self.steps = [make_step(one, steps_per_call=each) for one in programs]
        mesh = programs[0].mesh
        # The last argument of a step that is told how many updates it makes.
        self.count = functools.cache(
            lambda updates: (replicate(np.int32(updates), mesh),) if counted else ()
        )
        self.clicks = session.feed if isinstance(session.feed, ClickFeed) else None
        self.unit = "updates" if self.clicks is None else "windows"
        self.compile_seconds = 0.0
        self.evaluation_seconds = 0.0
        self.clock = CheckpointClock(self.run.config.checkpoint_every_seconds)
        self.finished = self.done  # updates that the devices have done
        self.ahead = collections.deque()  # blocks that they have not
        self.unmarked = 0  # updates that are in no block yet
        self.size, self.looked = _FIRST_BLOCK, time.perf_counter()
        self.running = collections.deque()
        self.batches: Iterator[tuple] = iter(())
        # Files, which the first process writes.
        self.directory = directory if jax.process_index() == 0 else None
        self.writer: MetricsWriter | None = None
        self.loggers: Loggers | None = None
        if self.directory is not None:
            self.writer = MetricsWriter(self.directory, done=self.done)

    def run_epochs(self, on_progress, stop: threading.Event) -> None:
        config, per_epoch = self.run.config, self.session.steps_per_epoch
        while self.done < self.total:
            epoch = self.done // per_epoch
            if self.done % per_epoch == 0:
                self.states = [[without_sums(s) for s in part] for part in self.states]
            whole = [part.inputs(epoch) for part in self.session.parts]
            if self.session.feed is not None:
                self.batches = self.session.feed.batches(whole[0].order, self.done)
            inputs = [split(p, len(chunks)) for p, chunks in zip(whole, self.states)]
            end = min((epoch + 1) * per_epoch, self.total)
            while self.done < end:
                self.report("training" if self.compile_seconds else COMPILING)
                self._block(inputs, end - self.done)
                self._wait(1)
                # An epoch's end is evaluated first: the checkpoint stands after it.
                if self.done < end and self._due(stop):
                    self.save()
            last = self.done == self.total
            if (epoch + 1) % config.eval_every_epochs == 0 or last:
                self.report("evaluating")
                on_progress(self.evaluate(epoch + 1))
            if self._due(stop, last) or last:
                self.save()
        self.report("trained")

    def seconds(self) -> float:
        """Seconds of training over all launches, this one included."""
        return self.session.seconds + time.perf_counter() - self.began

    def report(self, doing: str) -> None:
        name, unit = self.run.name, self.unit
        self.on_work(Work(name, doing, self.finished, self.total, unit))

    def _due(self, stop: threading.Event, last: bool = False) -> bool:
        """True to save now; if `stop` is set and work is left, saves and raises."""
        check_lock(self.directory)
        ahead = self.evaluation_seconds + 2 * _BLOCK_SECONDS
        # Processes take the greatest of each, so that all do the same.
        own = [stop.is_set(), self.clock.due(ahead), -self.size]
        stopping, due, shortest = greatest(own)
        self.size = int(-shortest)
        if stopping and not last:
            self.save()
            progress = f"{self.done} of {self.total} {self.unit}"
            raise Interrupted(f"{self.run.name} stopped after {progress}")
        return bool(due)

    def _wait(self, blocks: int) -> None:
        """Waits until at most so many blocks are left for the devices."""
        while len(self.ahead) > blocks:
            updates, steps = self.ahead.popleft()
            jax.block_until_ready(steps)
            self.finished += updates
            before, self.looked = self.looked, time.perf_counter()
            self.size = _next_block(updates, self.looked - before)

    def _block(self, inputs, left: int) -> None:
        """Dispatches a block, at most `left` updates, chunk by chunk of replicas."""
        per_call = self.steps_per_call
        feed = self.session.feed
        updates = max(self.size, self.run.config.steps_per_call)
        if updates > per_call:
            updates -= updates % per_call
        updates = min(left, updates)
        calls = [min(per_call, updates - k) for k in range(0, updates, per_call)]
        # A stream's batch serves all replicas before the next one is taken.
        for turn in [calls] if feed is None else [[one] for one in calls]:
            fed = None if feed is None else self._fed(feed.kind)
            for part, chunks in enumerate(self.states):
                for i in range(len(chunks)):
                    data = fed[i] if fed else self.session.data
                    arguments = inputs[part][i], self.taught[part][i], *data
                    for count in turn:
                        self._call(part, i, *arguments, *self.count(count))
            self.done += sum(turn)
        self.unmarked += updates
        if self.unmarked >= self.size:
            self._mark()

    def _call(self, part: int, chunk: int, *arguments) -> None:
        """Dispatches a step of some replicas; the first call compiles."""
        before, states = time.perf_counter(), self.states[part]
        found = self.steps[part](states[chunk], *arguments)
        if self.clicks is not None:
            found, scores = found
            self.clicks.keep(self.done, scores)
        states[chunk] = found
        if self.compile_seconds == 0.0:
            self.looked = time.perf_counter()
            self.compile_seconds = self.looked - before
            # Compiling is not work that a checkpoint would keep.
            self.clock = CheckpointClock(self.run.config.checkpoint_every_seconds)

    def joined(self) -> list[TrainState]:
        """The states of the parts, of all their replicas."""
        return [join(chunks) for chunks in self.states]

    def _mark(self) -> None:
        """Ends a block."""
        if self.unmarked:
            # The next block reuses the states' memory, so wait for copies.
            steps = [jnp.copy(state.step) for chunks in self.states for state in chunks]
            self.ahead.append((self.unmarked, steps))
            self.unmarked = 0

    def _fed(self, kind: str) -> list[tuple]:
        """The next batch per chunk, once at most `_RUNNING` updates are unfinished."""
        # The next update reuses the state's memory, so wait for a copy.
        (states,) = self.states
        self.running.append(jnp.copy(states[-1].step))
        if len(self.running) > _RUNNING:
            jax.block_until_ready(self.running.popleft())
        batch, count = next(self.batches), len(states)
        return [batch] * count if kind == "shared" else split(batch, count)

    def evaluate(self, epoch: int) -> Progress:
        """Scores the validation split, keeps the best weights, writes a line."""
        began, extra = time.perf_counter(), {}
        if self.clicks is None:
            small, validation = self._validation(epoch)
        else:
            small = fetch(small_fields(self.states[0][0]))
            validation = self.clicks.figures(self.done, small.alive)
            extra = {"examples": self.clicks.examples(self.done)}
        self.ahead.clear()  # fetching waited for these blocks
        self.finished, self.unmarked = self.done, 0
        self.looked = time.perf_counter()
        self.evaluation_seconds = self.looked - began
        counted = {"epoch": epoch, "step": self.done}
        counted |= {"seconds": round(self.seconds(), 3), **extra}
        means = term_means(small, ("loss", *self.session.terms))
        record = {**counted, "train": means, "validation": validation}
        check_lock(self.directory)
        if self.writer is not None:
            self.writer.write(record)
        if self.loggers is not None:
            self.loggers.log(record)
        accuracy = validation["accuracy"][small.alive] if validation else np.zeros(0)
        return Progress(
            self.run.name,
            epoch,
            -(-self.total // self.session.steps_per_epoch),
            float(np.mean(accuracy)) if accuracy.size else float("nan"),
            float(validation.get("churn", np.nan)),
            stopped_replicas(small, self.session.terms),
        )

    def _validation(self, epoch: int) -> tuple[TrainState, dict[str, Any]]:
        """The state's small fields, and validation metrics of the current weights."""
        session, states, chunks = self.session, self.joined(), self.states[0]
        state = states[0]
        if session.program is not session.parts[0].program:
            lean = [dataclasses.replace(state, opt_state=((),)) for state in states]
            state = session.gathered(lean)
            chunks = split(state, chunk_count(session.program, len(state.step)))
        scores = {"": self._validate(chunks)}
        if session.program.ema_decay:
            scores["_ema"] = self._validate([chunk.ema for chunk in chunks])
        score = scores[""][0]
        session.best = _update_best(session.best, state, score, np.int32(epoch))
        small, scores = fetch((small_fields(state), scores))
        found: dict[str, Any] = {}
        for weights, (accuracy, nll, predicted, sums_to_one) in scores.items():
            if sums_to_one:
                raise ValueError(
                    f"{self.run.name}: the network returns probabilities; losses take "
                    "logits, so leave the softmax out"
                )
            found[f"accuracy{weights}"] = np.where(small.alive, accuracy, np.nan)
            if not weights:
                found["nll"] = np.where(small.alive, nll, np.nan)
            found[f"churn{weights}"] = _mean_churn(predicted, small.alive)
        return small, found

    def _validate(self, chunks):
        """`_scores` of the validation split under the weights of `chunks`."""
        images, labels = self.session.held_out
        held = [(chunk.params, chunk.model_state) for chunk in chunks]
        logits = predict_split(self.run, self.session.program, held, images)
        return _scores(logits, labels)

    def save(self) -> None:
        agreed = self.size  # by all processes, before this one's own measurements
        self._mark()
        self._wait(0)
        self.size = agreed
        self.report("saving")
        tree = {"state": self.joined(), "best": self.session.best}
        meta = {"updates_done": self.done, "seconds": self.seconds()}
        with self.clock.saving():
            if self.clicks is not None:
                self.clicks.flush()
            if self.session.checkpoints is not None:
                self.session.checkpoints.save(self.done, tree, meta)
        self.looked = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.batches = iter(())  # stops reading ahead
        if self.loggers is not None:
            self.loggers.close(error is None)
        if self.writer is not None:
            self.writer.close()
        if self.session.checkpoints is not None:
            self.session.checkpoints.close()


def _next_block(updates: int, seconds: float) -> int:
    """Updates of the next block, at most 4 times the last: a time may be wrong."""
    speed = updates / max(seconds, 1e-9)
    wanted = speed * _BLOCK_SECONDS
    if jax.default_backend() == "cpu":
        wanted = max(wanted, min(speed * _LONG_BLOCK_SECONDS, _ENOUGH_UPDATES))
    return max(int(min(wanted, 4 * updates)), 1)


_update_best = jax.jit(BestState.update)


@jax.jit
def _scores(logits: jax.Array, labels: jax.Array):
    """Accuracy `[R]`, NLL `[R]`, classes `[R, N]`, True if rows sum to one."""
    accuracy = jax.vmap(metrics.accuracy, (0, None))(logits, labels)
    nll = jax.vmap(metrics.negative_log_likelihood, (0, None))(logits, labels)
    off = jnp.where(logits < 0.0, 1.0, jnp.abs(jnp.sum(logits, -1, keepdims=True) - 1))
    classes = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return accuracy, nll, classes, jnp.max(off) < 1e-3


def _mean_churn(predicted: np.ndarray, alive) -> float:
    """Mean churn over all pairs of living runs, from predicted classes `[R, N]`."""
    runs = predicted[alive]
    if len(runs) < 2:
        return float("nan")
    changed = count_flips(runs, runs).changed[np.triu_indices(len(runs), k=1)]
    return float(changed.sum() / (len(changed) * runs.shape[1]))
