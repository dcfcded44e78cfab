"""The loop over a stream: windows, lines of metrics, checkpoints; one pass."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from churn_jax.configuration.record import Stopped
from churn_jax.training.checkpoint import Checkpoints
from churn_jax.training.folder_lock import lock_folder
from churn_jax.training.launch import Launch
from churn_jax.training.loggers import Logger, as_loggers, logged_settings
from churn_jax.training.partition import fetch, replicate
from churn_jax.training.progress import COMPILING, Work
from churn_jax.training.progressive.config import (
    StreamRun,
    check_schema,
    check_window,
    stream_identity,
)
from churn_jax.training.progressive.metrics import (
    StreamMetrics,
    StreamResult,
    curve_entry,
    empty_metrics,
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
from churn_jax.training.run import stopped_replicas
from churn_jax.training.state import (
    small_fields,
    term_means,
    with_sums,
    without_sums,
)
from churn_jax.training.writers import read_metrics

# Lines of metrics to each doubling of the stream; twice as many at its beginning.
_LINES = 256

_compute = jax.jit(StreamMetrics.compute)
_merge = jax.jit(StreamMetrics.merge)


class Stream(Protocol):
    """What is learned from, such as `churn_jax.data.tables.TableStream`."""

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
    """Windows covered by the line of metrics that begins after `windows` windows.

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
    loggers: Sequence[str | Logger] = ("tensorboard",),
    group: str = "",
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
        loggers: where metrics go in addition, as for `train`.
        group: name under which loggers group runs.
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
    logging = as_loggers(loggers)
    with lock_folder(directory):
        with _Loop(run, stream, directory, on_progress, on_work, on_note) as loop:
            loop.start_loggers(
                logging,
                on_note,
                directory,
                group=group,
                settings=logged_settings(
                    network=run.model, method=run.method, train=run.config
                ),
                identity=loop.identity,
            )
            loop.learn(stop or threading.Event())
            result = loop.result()
        if directory is not None and jax.process_index() == 0:
            save_result(Path(directory) / "result.json", result)
    return result


@dataclasses.dataclass
class _Place:
    """How far the stream is learned; a checkpoint has it next to the state."""

    windows: int = 0
    examples: int = 0
    counted: int = 0  # examples after the warm start
    lines: int = 0  # of metrics
    segment_start: int = 0  # windows before the current line
    segment_counted: int = 0  # and examples that counted before it


class _Loop(Launch):
    """Windows of a stream, several of which share a line of metrics (a segment)."""

    unit = "examples"

    def __init__(
        self, run: StreamRun, stream: Stream, directory, on_progress, on_work, on_note
    ):
        super().__init__(run.name, on_work)
        self.run, self.stream = run, stream
        self.on_progress, self.on_note = on_progress, on_note
        check_schema(run, stream)
        self.program = make_program(run)
        self.mesh = self.program.mesh
        self.inputs: StreamInputs = init_inputs(run, self.program)
        state = init_stream(run, self.program, self.inputs)
        self.terms = term_names(self.program, state, self.inputs)
        dense = with_sums(state.dense, self.terms, self.mesh)
        self.state: StreamState = dataclasses.replace(state, dense=dense)
        self.parameters = parameter_count(run, state)
        self.total, self.segment = self._nothing(), self._nothing()
        self.at = _Place()
        self.identity = stream_identity(run, stream.fingerprint)
        self.curve: list[dict[str, Any]] = []
        self.path = None if directory is None else Path(directory)
        if self.path is not None:
            self._restore(self.path)
        self.step = make_step(self.program)
        self.window_seconds = 0.0
        self.start_clock(run.config.checkpoint_every_seconds)

    def _nothing(self) -> StreamMetrics:
        return empty_metrics(self.run.config.replicas, self.mesh)

    def _tree(self) -> dict[str, Any]:
        return {"state": self.state, "total": self.total, "segment": self.segment}

    def _restore(self, path: Path) -> None:
        self.checkpoints = Checkpoints(path / "checkpoints", identity=self.identity)
        try:
            restored = self.checkpoints.restore(self._tree())
            if restored is not None:
                self.state, self.total, self.segment = (
                    restored.tree[name] for name in ("state", "total", "segment")
                )
                self.at = _Place(**restored.meta["place"])
                self.earlier_seconds = restored.meta["seconds"]
                if restored.skipped:
                    self.on_note(
                        f"{'; '.join(restored.skipped)}; going on from the checkpoint "
                        f"before, example {self.at.examples}"
                    )
            self.open_writer(path, self.at.lines)
            if self.note:
                self.on_note(self.note)
        except BaseException:
            self.close()
            raise

    def learn(self, stop: threading.Event) -> None:
        """Learns what is left of the stream."""
        at, config = self.at, self.run.config
        self.tell(COMPILING, at.examples)
        began, running = time.perf_counter(), None
        # What is dispatched runs while the next window is read; two are in memory.
        for window in self._windows():
            given = replicate(Examples.of(window), self.mesh)
            if running is not None:
                jax.block_until_ready(running)
                self.tell("training", at.examples)
                self.window_seconds = time.perf_counter() - began
                if not self._between_windows(stop):
                    break
                began = time.perf_counter()
            self.state, self.segment, running = self.step(
                self.state, self.segment, self.inputs, given, np.int32(at.windows)
            )
            learned = int(np.sum(window.mask > 0))
            if at.windows >= config.warm_windows:
                at.counted += learned
            at.examples += learned
            at.windows += 1
        if not at.examples:
            raise ValueError(f"{self.run.name}: the stream holds no example")
        self.save()
        if at.windows > at.segment_start:
            self._report()
        if not at.counted:
            raise ValueError(
                f"{self.run.name}: all {at.examples:,} examples are in the warm start "
                f"of {config.warm_windows * config.window:,}, which is not scored; use "
                "a smaller window, fewer warm_examples or a longer stream"
            )

    def _windows(self) -> Iterator:
        """What is left of the stream; what was learned is saved if it breaks off."""
        windows = self.stream.windows(self.run.config.window, start=self.at.examples)
        try:
            for window in windows:
                check_window(self.run, window)
                yield window
        except (ValueError, OSError):
            if self.at.examples:
                self._report_if_due()
                self.save()
            raise

    def _between_windows(self, stop: threading.Event) -> bool:
        """Reports and saves if it is time to; whether any replica lives."""
        goes_on = self._report_if_due()
        stopping, due, _ = self.look(stop, self.window_seconds)
        if stopping or due:
            self.save()
        if stopping:
            self.interrupt(f"{self.at.examples:,} examples")
        return goes_on

    def _report_if_due(self) -> bool:
        """Writes a line of metrics if it is full; whether any replica lives."""
        every = self.run.config.report_every_windows
        length = segment_length(self.at.segment_start, every)
        return self.at.windows - self.at.segment_start < length or self._report()

    def _report(self) -> bool:
        """Writes a line of metrics and begins the next; whether any replica lives."""
        at = self.at
        at.lines += 1
        small = fetch(small_fields(self.state.dense))
        alive = np.asarray(small.alive)
        figures = without_stopped(fetch(_compute(self.segment)), alive)
        record = {
            "epoch": at.lines,
            "step": at.windows,
            "seconds": round(self.seconds(), 3),
            "examples": at.examples,
            "counted": at.counted - at.segment_counted,
            "train": term_means(small, ("loss", *(f"term/{n}" for n in self.terms))),
            "validation": figures,
        }
        self.write(record)
        if self.path is None:
            self.curve.append(curve_entry(record))
        self.total = _merge(self.total, self.segment)
        self.segment = self._nothing()
        dense = without_sums(self.state.dense)
        self.state = dataclasses.replace(self.state, dense=dense)
        at.segment_start, at.segment_counted = at.windows, at.counted
        stopped = stopped_replicas(small, self.terms)
        log_loss = np.mean(figures["log_loss"][alive]) if alive.any() else np.nan
        self.on_progress(
            StreamProgress(
                self.run.name,
                at.examples,
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
        small = fetch(small_fields(self.state.dense))
        alive = np.asarray(small.alive)
        curve = self.curve
        if self.path is not None:
            lines = read_metrics(self.path / "metrics.jsonl")
            curve = [curve_entry(line) for line in lines]
        return StreamResult(
            examples=self.at.examples,
            counted=self.at.counted,
            seconds=self.seconds(),
            parameters=self.parameters,
            stopped=stopped_replicas(small, self.terms),
            totals=without_stopped(fetch(_compute(self.total)), alive),
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
            given = replicate(Examples.of(window), self.mesh)
            if running is not None:
                jax.block_until_ready(running)
                self.tell("scoring the held-out part", examples)
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
        self.tell("saving", self.at.examples)
        meta = {"place": dataclasses.asdict(self.at), "seconds": self.seconds()}
        with self.clock.saving():
            self.checkpoints.save(self.at.windows, self._tree(), meta)
