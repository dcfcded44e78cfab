"""The state of a launch next to its arrays: clock, checkpoints, metrics."""

import contextlib
import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

import jax
import numpy as np

from churn_compare.array_files import write_file
from churn_jax.training.checkpoint import CheckpointClock, Checkpoints, free_name
from churn_jax.training.folder_lock import check_lock
from churn_jax.training.loggers import LoggedRun, Loggers
from churn_jax.training.partition import greatest
from churn_jax.training.progress import Work
from churn_jax.training.run import Interrupted


def as_json(value: Any) -> Any:
    """A value as JSON; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [as_json(v) for v in np.asarray(value).tolist()]
    if isinstance(value, (np.floating, float)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl` that are not damaged."""
    return [line for line in _lines(path) if line is not None]


def _lines(path: Path) -> list[dict[str, Any] | None]:
    """The lines, None for one that is damaged; a last one that was cut is left out."""
    if not path.exists():
        return []
    lines: list[dict[str, Any] | None] = []
    text = path.read_text(errors="replace")
    for each in text.split("\n"):
        line: Any = None
        try:
            line = json.loads(each)
            whole = all(type(line[name]) is int for name in ("epoch", "step"))
        except (ValueError, TypeError, LookupError, RecursionError):
            whole = False
        lines.append(line if whole else None)
    # A kill or a full disk cuts a line before its end.
    return lines if lines[-1] else lines[:-1]


class MetricsWriter:
    """Appends to `metrics.jsonl`.

    Lines of epochs after `resume_epoch` are dropped first, so that a resumed run
    leaves the same file as an uninterrupted one. It is written in the caller's thread,
    so that a full disk is an `OSError` of `write`.

    Attributes:
        step: step of the last line that is kept, or 0.
        note: a sentence about damaged lines that were left out, or empty.
    """

    def __init__(self, directory: Path, *, resume_epoch: int = 0):
        """Opens the file; at an `OSError` the lines of earlier epochs are kept."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "metrics.jsonl"
        lines = _lines(path)
        kept = [x for x in lines if x and x["epoch"] <= resume_epoch]
        self.note: str = ""
        if damaged := [str(i) for i, x in enumerate(lines, 1) if x is None]:
            aside = free_name(path.with_name(f"{path.name}.unreadable"))
            shutil.copyfile(path, aside)
            self.note = (
                f"line {', '.join(damaged)} of {path} cannot be read and is left out "
                f"from now on; the file as it was is {aside.name}"
            )
        write_file(path, "".join(json.dumps(x) + "\n" for x in kept))
        self.step: int = kept[-1]["step"] if kept else 0
        self._file = path.open("a")

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes one evaluation; `train` and `validation` hold lists over replicas."""
        self._file.write(json.dumps(as_json(record)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file; `write` has flushed what is worth keeping."""
        with contextlib.suppress(OSError):
            self._file.close()


class Launch:
    """One launch of `train` or `train_clicks`, whose loop looks and saves."""

    unit = "updates"  # what `Work` counts

    def __init__(
        self, name: str, on_work: Callable[[Work], None], began: float | None = None
    ):
        self.name, self.on_work = name, on_work
        self.began = time.perf_counter() if began is None else began
        self.earlier_seconds = 0.0
        self.checkpoints: Checkpoints | None = None
        self.writer: MetricsWriter | None = None
        self.directory: Path | None = None
        self.loggers: Loggers | None = None

    def open_writer(self, directory: Path | None, epoch: int) -> None:
        """Opens `metrics.jsonl`, on the first process only."""
        if directory is not None and jax.process_index() == 0:
            self.directory = Path(directory)
            self.writer = MetricsWriter(self.directory, resume_epoch=epoch)

    def start_loggers(
        self,
        loggers: Loggers,
        on_note: Callable[[str], None],
        directory: Path | None,
        **facts: Any,
    ) -> None:
        """Starts loggers, on the first process only; `facts` are of the `LoggedRun`."""
        if jax.process_index() == 0:
            run = LoggedRun(
                self.name,
                directory=None if directory is None else Path(directory),
                step=0 if self.writer is None else self.writer.step,
                **facts,
            )
            self.loggers = loggers
            loggers.start(run, on_note)

    @property
    def note(self) -> str:
        """A sentence about damaged lines of earlier launches, or empty."""
        return "" if self.writer is None else self.writer.note

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes a line of metrics, on the first process."""
        self.check_lock()
        if self.writer is not None:
            self.writer.write(record)
        if self.loggers is not None:
            self.loggers.log(record)

    def check_lock(self) -> None:
        """Raises if another process may write into the folder by now."""
        if self.directory is not None:
            check_lock(self.directory)

    def start_clock(self, seconds: float) -> None:
        """Checkpoints are due from now on, every so many seconds."""
        self.clock = CheckpointClock(seconds)

    def seconds(self) -> float:
        """Seconds over all launches."""
        return self.earlier_seconds + time.perf_counter() - self.began

    def tell(self, doing: str, done: int, total: int | None = None) -> None:
        """Reports finished work."""
        self.on_work(Work(self.name, doing, done, total, self.unit))

    def look(
        self, stop: threading.Event, ahead: float, *values: float
    ) -> tuple[bool, bool, list[float]]:
        """Flags to stop and to save, and the largest `values` of all processes.

        All processes find the same; the next look comes in about `ahead` seconds.
        """
        self.check_lock()
        own = [stop.is_set(), self.clock.due(ahead), *values]
        stopping, due, *found = greatest(own)
        return bool(stopping), bool(due), found

    def interrupt(self, progress: str) -> NoReturn:
        """Ends a launch whose checkpoint is written."""
        raise Interrupted(f"{self.name} stopped after {progress}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.close(finished=error is None)

    def close(self, *, finished: bool = False) -> None:
        """Closes the files."""
        if self.loggers is not None:
            self.loggers.close(finished)
        if self.writer is not None:
            self.writer.close()
        if self.checkpoints is not None:
            self.checkpoints.close()
