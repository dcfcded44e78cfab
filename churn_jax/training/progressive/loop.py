"""The loop over a stream: windows, lines of metrics, checkpoints; one pass."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from churn_jax.configuration.record import Stopped
from churn_jax.training.checkpoint import CheckpointClock, Checkpoints
from churn_jax.training.folder_lock import lock_folder
from churn_jax.training.partition import (
    REPLICA,
    any_process,
    fetch,
    place,
    replicate,
)
from churn_jax.training.progress import COMPILING, Work
from churn_jax.training.progressive.checks import check_schema, check_window
from churn_jax.training.progressive.config import StreamRun, stream_identity
from churn_jax.training.progressive.metrics import StreamMetrics
from churn_jax.training.progressive.result import (
    StreamResult,
    curve_entry,
    save_result,
    without_stopped,
)
from churn_jax.training.progressive.state import (
    StreamInputs,
    StreamState,
    init_inputs,
    init_stream,
    make_program,
    parameter_count,
)
from churn_jax.training.progressive.step import (
    Examples,
    make_score,
    make_step,
    term_names,
)
from churn_jax.training.progressive.tables import (
    by_replica,
    in_step,
    shapes_by_replica,
)
from churn_jax.training.run import Interrupted, stopped_replicas
from churn_jax.training.state import TrainState
from churn_jax.training.writers import MetricsWriter, read_metrics

__all__ = ["Stream", "StreamProgress", "run_stream", "segment_length"]

# Lines of metrics to each doubling of the stream; twice as many at its beginning.
_LINES = 256

_compute = jax.jit(StreamMetrics.compute)
_merge = jax.jit(StreamMetrics.merge)


class Stream(Protocol):
    """What is learned from: `TableStream` of `churn_jax.data.tables`, or alike."""

    @property
    def fingerprint(self) -> str:
        """Names the stream's contents."""
        ...

    def windows(self, size: int, *, start: int = 0, part: str = "train") -> Iterator:
        """Windows of constant shape, the last one padded."""
        ...


@dataclasses.dataclass(frozen=True)
class StreamProgress:
    """What the loop reports after a segment of the stream.

    Attributes:
        name: of the run.
        examples: learned so far.
        seconds: over all launches.
        log_loss: of the segment, mean over living replicas; nan in the warm start.
        relative_pd: of the segment.
        stopped: replicas frozen so far.
    """

    name: str
    examples: int
    seconds: float
    log_loss: float
    relative_pd: float
    stopped: tuple[Stopped, ...]


def segment_length(windows: int, shortest: int) -> int:
    """Windows that the line of metrics covers which begins after `windows` of them.

    `shortest` for the first 512 lines; after that it doubles whenever the stream has
    become twice as long, so that n windows give about `512 + 256 log2(n / 512)` lines.
    """
    longer = max(windows // (_LINES * shortest), 1)
    return shortest << (longer.bit_length() - 1)


def run_stream(
    run: StreamRun,
    stream: Stream,
    directory: Path | None = None,
    *,
    on_progress: Callable[[StreamProgress], None] = lambda progress: None,
    on_work: Callable[[Work], None] = lambda work: None,
    on_note: Callable[[str], None] = lambda note: None,
    stop: threading.Event | None = None,
) -> StreamResult:
    """Trains R replicas in one pass; continues from `directory` where it can.

    Args:
        run: what to train.
        stream: where examples come from, in time order.
        directory: for checkpoints, `metrics.jsonl` and `result.json`; None keeps
            nothing.
        on_progress: called after every line of metrics.
        on_work: called after every window.
        on_note: called with sentences about what was restored or stopped.
        stop: when set, the loop saves a checkpoint after the window and raises.

    Returns:
        A `StreamResult`.

    Raises:
        Interrupted: `stop` was set; the checkpoint is written.
        CheckpointError: `directory` holds something else.
        ValueError: model and stream do not fit, or the stream holds no example.
    """
    with lock_folder(directory):
        loop = _Loop(run, stream, directory, on_progress, on_work, on_note)
        try:
            loop.learn(stop or threading.Event())
            result = loop.result()
        finally:
            loop.close()
        if directory is not None and jax.process_index() == 0:
            save_result(Path(directory) / "result.json", result)
    return result


class _Loop:
    """The mutable part of a launch: state, metrics, clock and files."""

    def __init__(
        self,
        run: StreamRun,
        stream: Stream,
        directory,
        on_progress,
        on_work,
        on_note,
    ):
        self.began = time.perf_counter()
        self.run, self.stream = run, stream
        self.on_progress, self.on_work = on_progress, on_work
        self.on_note = on_note
        check_schema(run, stream)
        self.program = make_program(run)
        self.inputs: StreamInputs = init_inputs(run, self.program)
        state = init_stream(run, self.program, self.inputs)
        self.terms = term_names(self.program, state, self.inputs)
        sums = np.zeros((run.config.replicas, 1 + len(self.terms)), np.float32)
        sums = place(sums, self.program.mesh, P(REPLICA))
        dense = dataclasses.replace(state.dense, sums=sums)
        self.state: StreamState = dataclasses.replace(state, dense=dense)
        self.parameters = parameter_count(run, state)
        self.total, self.segment = self._nothing(), self._nothing()
        self.windows = self.examples = self.counted = 0
        self.lines = self.segment_start = self.segment_counted = 0
        self.earlier_seconds = 0.0
        self.identity = stream_identity(run, stream.fingerprint)
        self.curve: list[dict[str, Any]] = []
        self.checkpoints: Checkpoints | None = None
        self.writer: MetricsWriter | None = None
        self.path = None if directory is None else Path(directory)
        if self.path is not None:
            self._restore(self.path)
        self.step = make_step(self.program)
        self.clock = CheckpointClock(run.config.checkpoint_every_seconds)
        self.window_seconds = 0.0

    def _nothing(self) -> StreamMetrics:
        """No sums, each in memory of its own: they are donated."""
        shapes = jax.eval_shape(lambda: StreamMetrics.empty(self.run.config.replicas))
        empty = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
        return replicate(empty, self.program.mesh)

    def _tree(self):
        return {"state": self.state, "total": self.total, "segment": self.segment}

    def _restore(self, path: Path) -> None:
        checkpoints = Checkpoints(path / "checkpoints", identity=self.identity)
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
            self._tree(),
        )
        like["state"] = shapes_by_replica(self.program.mesh, like["state"])
        try:
            restored = checkpoints.restore(like)
            if restored is not None:
                for name, part in restored.tree.items():
                    setattr(self, name, part)
                self.state = in_step(self.program.mesh, self.state)
                for name, value in restored.meta["progress"].items():
                    setattr(self, name, value)
                if restored.skipped:
                    self.on_note(
                        f"{'; '.join(restored.skipped)}; going on from the checkpoint "
                        f"before, example {self.examples}"
                    )
            if jax.process_index() == 0:
                self.writer = MetricsWriter(path, resume_epoch=self.lines)
        except BaseException:
            checkpoints.close()
            raise
        self.checkpoints = checkpoints

    def seconds(self) -> float:
        return self.earlier_seconds + time.perf_counter() - self.began

    def learn(self, stop: threading.Event) -> None:
        """Learns what is left of the stream."""
        running, size = None, self.run.config.window
        self._tell(COMPILING)
        began = time.perf_counter()
        # What is dispatched runs while the next window is read; two are in memory.
        for window in self._reading(size):
            given = replicate(Examples.of(window), self.program.mesh)
            if running is not None:
                jax.block_until_ready(running)
                self._tell("training")
                self.window_seconds = time.perf_counter() - began
                if not self._between_windows(stop):
                    break
                began = time.perf_counter()
            self.state, self.segment, running = self.step(
                self.state, self.segment, self.inputs, given, np.int32(self.windows)
            )
            learned = int(np.sum(window.mask > 0))
            if self.windows >= self.run.config.warm_windows:
                self.counted += learned
            self.examples += learned
            self.windows += 1
        if not self.examples:
            raise ValueError(f"{self.run.name}: the stream holds no example")
        self.save()
        if self.windows > self.segment_start:
            self._report()
        if not self.counted:
            raise ValueError(
                f"{self.run.name}: all {self.examples:,} examples are in the warm "
                f"start of {self.run.config.warm_windows * size:,}, which is not "
                "scored; use a smaller window, fewer warm_examples or a longer stream"
            )

    def _tell(self, doing: str, examples: int | None = None) -> None:
        done = self.examples if examples is None else examples
        self.on_work(Work(self.run.name, doing, done, unit="examples"))

    def _between_windows(self, stop: threading.Event) -> bool:
        """Reports and saves where it is time to; whether any replica lives.

        Raises:
            Interrupted: the user wants to stop; what was learned is saved.
        """
        goes_on = self._report_where_due()
        if any_process(stop.is_set()):
            self.save()
            raise Interrupted(
                f"{self.run.name} stopped after {self.examples:,} examples"
            )
        if any_process(self.clock.due(self.window_seconds)):
            self.save()
        return goes_on

    def _report_where_due(self) -> bool:
        """Writes a line of metrics where one is full; whether any replica lives."""
        every = self.run.config.report_every_windows
        length = segment_length(self.segment_start, every)
        return self.windows - self.segment_start < length or self._report()

    def _reading(self, size: int) -> Iterator:
        """What is left of the stream; what was learned is saved if it breaks off."""
        try:
            for window in self.stream.windows(size, start=self.examples):
                check_window(self.run, window)
                yield window
        except (ValueError, OSError):
            if self.examples:
                self._report_where_due()
                self.save()
            raise

    def _report(self) -> bool:
        """Writes a line of metrics and begins the next; whether any replica lives."""
        self.lines += 1
        small = _small(self.state.dense)
        alive = np.asarray(small.alive)
        figures = without_stopped(fetch(_compute(self.segment)), alive)
        means = small.sums / np.maximum(small.updates, 1.0)[:, None]
        means[small.updates == 0] = np.nan
        names = ("loss", *(f"term/{name}" for name in self.terms))
        record = {
            "epoch": self.lines,
            "step": self.windows,
            "seconds": round(self.seconds(), 3),
            "examples": self.examples,
            "counted": self.counted - self.segment_counted,
            "train": dict(zip(names, means.T)),
            "validation": figures,
        }
        if self.writer is not None:
            self.writer.write(record)
        elif self.path is None:
            self.curve.append(curve_entry(record))
        self.total = _merge(self.total, self.segment)
        self.segment = self._nothing()
        self.state = dataclasses.replace(
            self.state, dense=_new_segment(self.state.dense)
        )
        self.segment_start, self.segment_counted = self.windows, self.counted
        stopped = stopped_replicas(small, self.terms)
        log_loss = np.mean(figures["log_loss"][alive]) if alive.any() else np.nan
        self.on_progress(
            StreamProgress(
                self.run.name,
                self.examples,
                self.seconds(),
                float(log_loss),
                float(figures["relative_pd"]),
                stopped,
            )
        )
        if not alive.any():
            self.on_note(
                f"{self.run.name}: every replica has stopped, the first by its "
                f"{stopped[0].term}; the rest of the stream is not read"
            )
        return bool(alive.any())

    def result(self) -> StreamResult:
        """The figures of the whole stream, then those of the held-out part."""
        small = _small(self.state.dense)
        alive = np.asarray(small.alive)
        totals = fetch(_compute(self.total))
        curve = self.curve
        if self.path is not None:
            lines = read_metrics(self.path / "metrics.jsonl")
            curve = [curve_entry(line) for line in lines]
        return StreamResult(
            examples=self.examples,
            counted=self.counted,
            seconds=self.seconds(),
            parameters=self.parameters,
            stopped=stopped_replicas(small, self.terms),
            totals=without_stopped(totals, alive),
            curve=curve,
            holdout=self._held_out(alive),
            identity=self.identity,
        )

    def _held_out(self, alive: np.ndarray) -> dict[str, Any]:
        metrics, running, examples = self._nothing(), None, 0
        score = None
        for window in self.stream.windows(self.run.config.window, part="holdout"):
            check_window(self.run, window)
            score = score or make_score(self.program)
            given = replicate(Examples.of(window), self.program.mesh)
            if running is not None:
                jax.block_until_ready(running)
                self._tell("scoring the held-out part", examples)
            metrics, running = score(self.state, metrics, self.inputs, given)
            examples += int(np.sum(window.mask > 0))
        if not examples:
            return {}
        figures = without_stopped(fetch(_compute(metrics)), alive)
        return {"examples": examples, **figures}

    def save(self) -> None:
        """Writes a checkpoint and returns when it is on the disk."""
        if self.checkpoints is None:
            return
        jax.block_until_ready(self._tree())
        self._tell("saving")
        names = (
            "windows",
            "examples",
            "counted",
            "lines",
            "segment_start",
            "segment_counted",
        )
        progress = {name: getattr(self, name) for name in names}
        progress["earlier_seconds"] = self.seconds()
        with self.clock.saving():
            self.state = by_replica(self.program.mesh, self.state)
            self.checkpoints.save(self.windows, self._tree(), {"progress": progress})
            self.state = in_step(self.program.mesh, self.state)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        if self.checkpoints is not None:
            self.checkpoints.close()


def _small(dense: TrainState) -> TrainState:
    """The towers' state without its trees, on the host."""
    return fetch(
        dataclasses.replace(
            dense,
            params=(),
            model_state=(),
            opt_state=(),
            peers=(),
            ema=(),
            memory=(),
        )
    )


def _new_segment(dense: TrainState) -> TrainState:
    return dataclasses.replace(
        dense, sums=jnp.zeros_like(dense.sums), updates=jnp.zeros_like(dense.updates)
    )
