"""Clicks as the feed of the loop: windows go out, scores of each come back."""

import collections
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax import metrics
from churn_jax.data.clicks import Clicks, Window
from churn_jax.losses import binary_logits
from churn_jax.training.checkpoint import CheckpointError
from churn_jax.training.clicks import make_score
from churn_jax.training.feed import ahead
from churn_jax.training.partition import fetch, replicate
from churn_jax.training.program import Program
from churn_jax.training.run import Run

_LINES = 512  # of metrics, at most
# Windows whose scores stay on the devices while the next ones are learned.
_SCORED = 2


@dataclasses.dataclass(frozen=True)
class ClickScores:
    """Scores of R replicas for every example, the log-odds of a click.

    Scores of a replica that stopped say nothing from there on.
    """

    # scores `[R, N]` of the examples `first` to the end, each given before it was
    # learned
    stream: np.ndarray
    # how many examples at the beginning are the warm start, which is common to all
    # replicas and does not count
    first: int
    held_out: np.ndarray  # scores `[R, M]` of the held-out examples at the end


@jax.jit
def _figures(scores, labels, mask):
    """Metrics of each run, and of pairs of runs where there are several."""
    logits = binary_logits(scores)
    of_one: dict[str, Any] = {
        "nll": metrics.log_loss,
        "auc": metrics.roc_auc,
        "accuracy": metrics.accuracy,
    }
    of_all: dict[str, Any] = {
        "churn": metrics.hamming_prediction_difference,
        "prediction_difference": metrics.prediction_difference,
        "positive_prediction_difference": metrics.positive_prediction_difference,
    }
    several = of_all if len(scores) > 1 else {}
    return {
        name: jax.vmap(metric, (0, None, None))(logits, labels, mask)
        for name, metric in of_one.items()
    } | {name: metric(logits, mask=mask) for name, metric in several.items()}


class ClickFeed:
    """Windows of a stream, several of which may share a line of metrics.

    Attributes:
        windows: number of windows.
        every: windows to a line, which are the updates of an epoch to the loop.
    """

    kind = "shared"

    def __init__(self, run: Run, data: Clicks, program: Program):
        self.data, self.program, self._one = data, program, program.one_pass
        model, count = self._one.model, len(data.train)
        numeric = data.train.numeric.shape[1]
        if data.sizes != model.sizes or numeric != model.numeric:
            raise ValueError(
                f"{run.name}: the model has tables of {model.sizes} rows and "
                f"{model.numeric} numeric features, the data {data.sizes} and {numeric}"
            )
        self.first = self._one.warm_windows * self._one.window
        if self.first >= count:
            raise ValueError(
                f"{run.name}: all {count:,} examples are in the warm start of "
                f"{self.first:,}, which does not count; use a smaller window, a "
                "shorter warm start or more examples"
            )
        self.windows = -(-count // self._one.window)
        self.every = -(-self.windows // _LINES)
        self.scores = np.zeros((run.config.replicas, count), np.float32)
        self._scored: collections.deque = collections.deque()

    def shapes(self) -> tuple[Window, Any]:
        """The first window and its number, as in `batches`."""
        return next(self.data.train.windows(self._one.window)), np.int32(0)

    def open(self, path: Path, *, new: bool) -> None:
        """Keeps scores in a file, which a checkpoint of a long stream need not hold."""
        primary = jax.process_index() == 0
        if new and primary:
            shape = self.scores.shape
            self.scores = np.lib.format.open_memmap(path, "w+", np.float32, shape)
            if hasattr(os, "posix_fallocate"):  # holes on a full disk are SIGBUS
                with open(path, "r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        elif not new:
            try:
                self.scores = np.load(path, mmap_mode="r+" if primary else "c")
            except (FileNotFoundError, EOFError, ValueError) as error:
                raise CheckpointError(
                    f"{path} is missing or damaged, so the pass cannot be continued; "
                    "use another output folder or --fresh"
                ) from error

    def batches(self, order: Any, number: int) -> Iterator[tuple[Window, Any]]:
        """The windows on the devices from `number` on, with their numbers."""
        del order  # replicas differ inside windows alone
        size, mesh = self._one.window, self.program.mesh
        windows = self.data.train.windows(size, number * size)
        numbered = ((w, np.int32(number + k)) for k, w in enumerate(windows))
        return ahead(((replicate(w, mesh), k) for w, k in numbered), 1)

    def keep(self, number: int, scores: jax.Array) -> None:
        """Takes the scores `[R, W]` of window `number`."""
        self._scored.append((number, scores))
        self._write(_SCORED)

    def _write(self, left: int) -> None:
        while len(self._scored) > left:
            number, scores = self._scored.popleft()
            here = self.scores[:, number * self._one.window :][:, : self._one.window]
            here[:] = fetch(scores)[:, : here.shape[1]]

    def flush(self) -> None:
        """Writes all scores, to the disk if they have a file."""
        self._write(0)
        if isinstance(self.scores, np.memmap):
            self.scores.flush()

    def examples(self, windows: int) -> int:
        """How many examples so many windows hold."""
        return min(windows * self._one.window, len(self.data.train))

    def figures(self, windows: int, alive: np.ndarray) -> dict[str, Any]:
        """The metrics of the line that ends after so many windows.

        They are of the scores since the last line, without the warm start; nan for
        stopped replicas.
        """
        self._write(0)
        length, end = self.every * self._one.window, self.examples(windows)
        low = max((-(-windows // self.every) - 1) * length, self.first)
        count = end - low
        if count <= 0 or not alive.any():
            return {}
        part, rest = slice(low, end), (0, length - count)
        scores = np.pad(self.scores[alive, part], ((0, 0), rest))
        labels = np.pad(self.data.train.labels[part], rest)
        found = fetch(_figures(scores, labels, np.arange(length) < count))
        row = np.cumsum(alive) - 1
        return {
            name: np.where(alive, x[row], np.nan) if x.ndim else float(x)
            for name, x in found.items()
        }

    def result(self, state, inputs) -> ClickScores:
        """The scores of the stream, and of the held-out part by the last state."""
        self._write(0)
        score, size, held_out = make_score(self.program), self._one.window, []
        for window in self.data.validation.windows(size):
            placed = replicate(window, self.program.mesh)
            held_out.append(fetch(score(state, inputs, placed)))
        none = np.zeros((len(self.scores), 0), np.float32)
        return ClickScores(
            np.asarray(self.scores)[:, self.first :],
            self.first,
            np.concatenate([none, *held_out], axis=1)[:, : len(self.data.validation)],
        )
