"""The loop over clicks: windows, lines of metrics, checkpoints; one pass."""

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax import metrics
from churn_jax.configuration.record import Stopped
from churn_jax.data.clicks import Clicks, ClickSplit
from churn_jax.losses import binary_logits
from churn_jax.training.checkpoint import Checkpoints
from churn_jax.training.folder_lock import lock_folder
from churn_jax.training.identity import identity
from churn_jax.training.launch import Launch
from churn_jax.training.loggers import Logger, as_loggers, logged_settings
from churn_jax.training.partition import fetch, replicate
from churn_jax.training.progress import COMPILING, Work
from churn_jax.training.progressive.state import (
    ClickRun,
    init_clicks,
    init_inputs,
    make_program,
    parameter_count,
)
from churn_jax.training.progressive.step import make_score, make_step, term_names
from churn_jax.training.run import Progress, stopped_replicas
from churn_jax.training.state import (
    small_fields,
    term_means,
    with_sums,
    without_sums,
)

_LINES = 512  # of metrics, at most


@dataclasses.dataclass(frozen=True)
class ClickScores:
    """What R replicas said of every example; a score is the log-odds of a click.

    Attributes:
        stream: scores `[R, N]` of the examples `first` to the end, each given before
            it was learned.
        first: how many examples at the beginning are the warm start, which is common
            to all replicas and does not count.
        held_out: scores `[R, M]` of the held-out examples at the end.
        seconds: over all launches.
        parameters: trained numbers per replica.
        stopped: replicas frozen because something was not finite; their scores from
            there on say nothing.
        identity: what it was trained as.
    """

    stream: np.ndarray
    first: int
    held_out: np.ndarray
    seconds: float
    parameters: int
    stopped: tuple[Stopped, ...]
    identity: str = ""


def train_clicks(
    run: ClickRun,
    data: Clicks,
    directory: Path | None = None,
    *,
    loggers: Sequence[str | Logger] = ("tensorboard",),
    group: str = "",
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_work: Callable[[Work], None] = lambda work: None,
    on_note: Callable[[str], None] = lambda note: None,
    stop: threading.Event | None = None,
) -> ClickScores:
    """Trains R replicas in one pass; continues from `directory` where it can.

    Args:
        run: run to train.
        data: examples in time order.
        directory: for checkpoints, `metrics.jsonl` and `scores.npy`; None keeps
            nothing.
        loggers: where metrics go in addition, as for `train`.
        group: name under which loggers group runs.
        on_progress: called after every line of metrics.
        on_work: called after every window.
        on_note: called with sentences about what was restored or stopped.
        stop: when set, the loop saves a checkpoint after the window and raises.

    Returns:
        A `ClickScores`.

    Raises:
        Interrupted: `stop` was set; the checkpoint is written.
        CheckpointError: `directory` holds something else.
        ValueError: model and data do not fit, or all examples are the warm start.
    """
    logging = as_loggers(loggers)
    with (
        lock_folder(directory),
        _Loop(run, data, directory, on_progress, on_work, on_note) as loop,
    ):
        loop.start_loggers(
            logging,
            on_note,
            directory,
            group=group,
            settings=logged_settings(
                data=data.name, network=run.model, method=run.method, train=run.config
            ),
            identity=loop.identity,
        )
        loop.learn(stop or threading.Event())
        return loop.result()


@jax.jit
def _figures(scores, labels, mask):
    """Numbers of each run, and of all of them where there are several."""
    logits = binary_logits(scores)
    of_one = {
        "nll": metrics.log_loss,
        "auc": metrics.roc_auc,
        "accuracy": metrics.accuracy,
    }
    found = {
        name: jax.vmap(metric, (0, None, None))(logits, labels, mask)
        for name, metric in of_one.items()
    }
    if len(scores) < 2:
        return found
    return found | {
        "churn": metrics.hamming_prediction_difference(logits, mask),
        "prediction_difference": metrics.prediction_difference(logits, mask=mask),
        "positive_prediction_difference": metrics.positive_prediction_difference(
            logits, mask
        ),
    }


class _Loop(Launch):
    """Windows of a stream, several of which may share a line of metrics."""

    unit = "examples"

    def __init__(
        self, run: ClickRun, data: Clicks, directory, on_progress, on_work, on_note
    ):
        super().__init__(run.name, on_work)
        self.run, self.data = run, data
        self.on_progress, self.on_note = on_progress, on_note
        model, count = run.model, len(data.train)
        numeric = data.train.numeric.shape[1]
        if data.sizes != model.sizes or numeric != model.numeric:
            raise ValueError(
                f"{run.name}: the model has tables of {model.sizes} rows and "
                f"{model.numeric} numeric features, the data {data.sizes} and {numeric}"
            )
        self.program = make_program(run, count)
        self.mesh, self.window = self.program.mesh, run.one_pass.window
        self.first = self.program.warm_windows * self.window
        if self.first >= count:
            raise ValueError(
                f"{run.name}: all {count:,} examples are in the warm start of "
                f"{self.first:,}, which does not count; use a smaller window, a "
                "shorter warm start or more examples"
            )
        self.total = -(-count // self.window)
        self.every = -(-self.total // _LINES)  # windows to a line
        self.inputs = init_inputs(run, self.program)
        state = init_clicks(run, self.program, self.inputs)
        self.terms = term_names(self.program, state, self.inputs)
        dense = with_sums(state.dense, self.terms, self.mesh)
        self.state = dataclasses.replace(state, dense=dense)
        self.parameters = parameter_count(run, state)
        self.done = 0  # windows
        self.identity = identity(
            run.config, data=data.fingerprint, method=run.method, model=run.model
        )
        self.scores = np.zeros((run.config.replicas, count), np.float32)
        if directory is not None:
            self._restore(Path(directory))
        self.step = make_step(self.program)
        self.start_clock(run.config.checkpoint_every_seconds)

    @property
    def examples(self) -> int:
        """How many are learned."""
        return min(self.done * self.window, len(self.data.train))

    @property
    def lines(self) -> int:
        """How many lines of metrics what is learned makes."""
        return -(-self.done // self.every)

    def _restore(self, path: Path) -> None:
        self.checkpoints = Checkpoints(path / "checkpoints", identity=self.identity)
        try:
            restored = self.checkpoints.restore({"state": self.state})
            if restored is not None:
                self.state, self.done = restored.tree["state"], restored.step
                self.earlier_seconds = restored.meta["seconds"]
                if restored.skipped:
                    self.on_note(
                        f"{'; '.join(restored.skipped)}; going on from the checkpoint "
                        f"before, example {self.examples}"
                    )
            self._open_scores(path / "scores.npy", new=restored is None)
            whole = self.done // self.every
            self.open_writer(path, self.lines if self.done == self.total else whole)
            if self.note:
                self.on_note(self.note)
        except BaseException:
            self.close()
            raise

    def _open_scores(self, path: Path, new: bool) -> None:
        """Scores in a file, which a checkpoint of a long stream need not hold."""
        primary = jax.process_index() == 0
        if new and primary:
            shape = self.scores.shape
            self.scores = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        elif not new:
            self.scores = np.load(path, mmap_mode="r+" if primary else "c")

    def learn(self, stop: threading.Event) -> None:
        """Learns what is left of the stream."""
        self.tell(COMPILING, self.examples, len(self.data.train))
        start = self.done * self.window
        placed = (
            replicate(window, self.mesh)
            for window in self.data.train.windows(self.window, start)
        )
        given, began = next(placed, None), time.perf_counter()
        while given is not None:
            self.state, scores = self.step(
                self.state, self.inputs, given, np.int32(self.done)
            )
            given = next(placed, None)  # while the devices learn the last one
            here = slice(self.examples, self.examples + self.window)
            kept = self.scores[:, here]
            kept[:] = fetch(scores)[:, : kept.shape[1]]
            self.done += 1
            self.tell("training", self.examples, len(self.data.train))
            last = given is None
            if (last or self.done % self.every == 0) and not self._report():
                last = True
            took, began = time.perf_counter() - began, time.perf_counter()
            stopping, due, _ = self.look(stop, took)
            if due or stopping or last:
                self.save()
            if last:
                return
            if stopping:
                self.interrupt(f"{self.examples:,} examples")

    def _report(self) -> bool:
        """Writes a line of metrics and begins the next; whether any replica lives."""
        small = fetch(small_fields(self.state.dense))
        alive = np.asarray(small.alive)
        names = ("loss", *(f"term/{name}" for name in self.terms))
        found = self._figures_of_line(alive)
        record = {
            "epoch": self.lines,
            "step": self.done,
            "seconds": round(self.seconds(), 3),
            "examples": self.examples,
            "train": term_means(small, names),
            "validation": found,
        }
        self.write(record)
        dense = without_sums(self.state.dense)
        self.state = dataclasses.replace(self.state, dense=dense)
        stopped = stopped_replicas(small, self.terms)
        accuracy = float(np.nanmean(found["accuracy"])) if found else np.nan
        churn = float(found.get("churn", np.nan))
        lines = -(-self.total // self.every)
        self.on_progress(
            Progress(self.run.name, self.lines, lines, accuracy, churn, stopped)
        )
        if not alive.any():
            self.on_note(
                f"{self.run.name}: every replica has stopped, the first by its "
                f"{stopped[0].term}; the rest of the stream is not read"
            )
        return bool(alive.any())

    def _figures_of_line(self, alive: np.ndarray) -> dict[str, Any]:
        """Of the scores that count since the last line; nan for stopped replicas."""
        length = self.every * self.window
        low = max((self.lines - 1) * length, self.first)
        count = self.examples - low
        if count <= 0 or not alive.any():
            return {}
        part, rest = slice(low, self.examples), (0, length - count)
        scores = np.pad(self.scores[alive, part], ((0, 0), rest))
        labels = np.pad(self.data.train.labels[part], rest)
        found: dict[str, Any] = {}
        of = _figures(scores, labels, np.arange(length) < count)
        for name, value in fetch(of).items():
            found[name] = np.full(alive.shape, np.nan) if value.ndim else float(value)
            if value.ndim:
                found[name][alive] = value
        return found

    def result(self) -> ClickScores:
        """The scores of the stream, and those of the held-out part."""
        return ClickScores(
            stream=np.asarray(self.scores)[:, self.first :],
            first=self.first,
            held_out=self._held_out(self.data.validation),
            seconds=self.seconds(),
            parameters=self.parameters,
            stopped=stopped_replicas(fetch(small_fields(self.state.dense)), self.terms),
            identity=self.identity,
        )

    def _held_out(self, part: ClickSplit) -> np.ndarray:
        parts = [np.zeros((self.run.config.replicas, 0), np.float32)]
        for window in part.windows(self.window):
            self.tell("scoring the held-out part", self.examples)
            given = replicate(window, self.mesh)
            parts.append(
                fetch(make_score(self.program)(self.state, self.inputs, given))
            )
        return np.concatenate(parts, axis=1)[:, : len(part)]

    def save(self) -> None:
        """Writes a checkpoint and returns when it is on the disk."""
        if self.checkpoints is None:
            return
        self.tell("saving", self.examples)
        with self.clock.saving():
            if isinstance(self.scores, np.memmap):
                self.scores.flush()
            self.checkpoints.save(
                self.done, {"state": self.state}, {"seconds": self.seconds()}
            )
