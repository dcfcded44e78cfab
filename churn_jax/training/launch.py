"""The state of a launch next to its arrays: clock, checkpoints, files."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

import jax

from churn_jax.training.checkpoint import CheckpointClock, Checkpoints
from churn_jax.training.folder_lock import check_lock
from churn_jax.training.loggers import LoggedRun, Loggers
from churn_jax.training.partition import greatest
from churn_jax.training.progress import Work
from churn_jax.training.run import Interrupted
from churn_jax.training.writers import MetricsWriter


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
