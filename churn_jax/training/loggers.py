"""Where the metrics of a training go: `metrics.jsonl`, and loggers.

A logger is any object with the three methods of `Logger`. TensorBoard and CSV files are
here, adapters of other packages in `tracking.py`; `LOGGERS` has those that are known by
name, in Python and to the option `--log`.
"""

import contextlib
import csv
import dataclasses
import io
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from churn_compare.array_files import write_file
from churn_compare.documents import plain_values
from churn_jax.registry import Registry

Values = Mapping[str, float | Sequence[float]]

_LONGEST = 600  # characters of another package's error in a sentence


@dataclasses.dataclass(frozen=True)
class LoggedRun:
    """The facts that a logger gets when a training begins.

    Attributes:
        name: name of what is trained; a study trains several rows, one after the other.
        group: the study, or "" for a training of its own.
        directory: folder of the training, or None if nothing is kept.
        settings: flat, such as `{"method.beta": 0.5, "train.epochs": 80}`.
        step: updates of earlier launches, whose values this one will not log again; 0
            if it starts from the beginning.
        identity: equal texts mean equal training, and so equal values.
    """

    name: str
    group: str = ""
    directory: Path | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    step: int = 0
    identity: str = ""


class Logger(Protocol):
    """The protocol of loggers; one object logs the rows of a study in turn.

    A logger that raises is left out from then on, also of the later rows of a study,
    and training goes on without it. Only the first process of several logs.

    Example:
        >>> class Printer:
        ...     def start(self, run):
        ...         print(run.name, "begins")
        ...
        ...     def log(self, values, step):
        ...         print(step, scalars(values))
        ...
        ...     def close(self, finished):
        ...         print("finished" if finished else "stopped")
        >>> printer = Printer()
        >>> printer.log({"train/loss": [0.5, 1.5], "validation/churn": 0.25}, 40)
        40 {'train/loss': 1.0, 'validation/churn': 0.25}
    """

    def start(self, run: LoggedRun) -> None:
        """Called before the first update of a launch."""
        ...

    def log(self, values: Values, step: int) -> None:
        """Called after every evaluation.

        Args:
            values: by name, such as `train/loss`, `validation/accuracy` or `seconds`;
                a number, or a list of one per replica, nan for stopped replicas.
            step: updates so far; windows of a stream.
        """
        ...

    def close(self, finished: bool) -> None:
        """Called at the end of a launch; `finished` is False if training stopped."""
        ...


def scalars(values: Values, *, replicas: bool = False) -> dict[str, float]:
    """The finite values as one number each: lists by their mean over replicas.

    `values` are as given to `Logger.log`; `replicas` adds `<name>_replica_<r>` for
    every entry of a list.

    Example:
        >>> scalars({"train/loss": [0.5, float("nan")]}, replicas=True)
        {'train/loss': 0.5, 'train/loss_replica_0': 0.5}
    """
    found = {}
    for name, value in values.items():
        if not isinstance(value, Sequence):
            found |= {name: value} if math.isfinite(value) else {}
        elif finite := {r: x for r, x in enumerate(value) if math.isfinite(x)}:
            found[name] = sum(finite.values()) / len(finite)
            if replicas:
                found |= {f"{name}_replica_{r}": x for r, x in finite.items()}
    return found


def flat(tree: Mapping[str, Any], sep: str) -> dict[str, Any]:
    """The leaves of nested mappings by their path."""
    found = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found |= {f"{name}{sep}{k}": v for k, v in flat(value, sep).items()}
        else:
            found[name] = value.tolist() if hasattr(value, "tolist") else value
    return found


class TensorBoardLogger:
    """Writes TensorBoard's events to `tensorboard/` in the folder of the training.

    Args:
        replicas: also log every replica, not only their mean.
    """

    # tensorboardX's own `SummaryWriter` writes in another thread: when the disk is
    # full, that one dies alone and the program waits for it for ever.

    def __init__(self, *, replicas: bool = False):
        self.replicas = replicas
        self._writer: Any = None

    def start(self, run: LoggedRun) -> None:
        """Opens a file; TensorBoard ignores what earlier ones hold after `run.step`."""
        if run.directory is None:
            return
        from tensorboardX.event_file_writer import EventsWriter

        # pyrefly: ignore [missing-module-attribute] -- generated by protobuf
        from tensorboardX.proto.event_pb2 import SessionLog

        folder = run.directory / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        continued = any(folder.iterdir())
        # Two launches within one second must not share a file.
        suffix = f".{os.getpid()}.{time.monotonic_ns()}"
        self._writer = EventsWriter(str(folder / "events"), suffix)
        if continued:
            started = SessionLog(status=SessionLog.START)
            self._write(run.step + 1, session_log=started)

    def log(self, values: Values, step: int) -> None:
        """Writes the values of the splits, whose names have a slash."""
        if self._writer is None:
            return
        from tensorboardX.summary import scalar

        for name, value in scalars(values, replicas=self.replicas).items():
            if "/" in name:
                self._write(step, summary=scalar(name, value))
        self._writer.flush()

    def close(self, finished: bool) -> None:
        """Closes the file; `log` has flushed what is worth keeping."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.close()

    def _write(self, step: int, **content: Any) -> None:
        # pyrefly: ignore [missing-module-attribute] -- generated by protobuf
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time(), step=step, **content))


class CsvLogger:
    """Writes `metrics.csv` in the folder of the training, a row per evaluation.

    Values that are not finite are empty cells. A resumed training drops the rows that
    it will write again.

    Args:
        replicas: write a column per replica, not only their mean.
    """

    def __init__(self, *, replicas: bool = True):
        self.replicas = replicas
        self._path = Path()
        self._rows: list[dict[str, Any]] = []

    def start(self, run: LoggedRun) -> None:
        """Reads the rows that are kept; needs a folder."""
        if run.directory is None:
            raise ValueError("CsvLogger needs a folder: train(..., directory=...)")
        self._path, self._rows = run.directory / "metrics.csv", []
        if self._path.exists():
            with self._path.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if None not in row.values()]
            rows = [row for row in rows if row.get("step", "").isdecimal()]
            self._rows = [row for row in rows if int(row["step"]) <= run.step]

    def log(self, values: Values, step: int) -> None:
        """Adds a row: the file is written whole, so that columns may be added."""
        self._rows.append({"step": step, **scalars(values, replicas=self.replicas)})
        text = io.StringIO(newline="")
        columns = dict.fromkeys(name for row in self._rows for name in row)
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(self._rows)
        write_file(self._path, text.getvalue())

    def close(self, finished: bool) -> None:
        """Nothing is left open."""


LOGGERS = Registry(
    "logger",
    {
        "tensorboard": TensorBoardLogger,
        "csv": CsvLogger,
        "wandb": "churn_jax.training.tracking:WandbLogger",
        "mlflow": "churn_jax.training.tracking:MlflowLogger",
    },
)
"""Loggers by name."""

# A full disk under their files is one under `metrics.jsonl`: training stops, and goes
# on once there is room, so that they miss nothing. A `ValueError` is about an argument.
_FILES, _RAISED = (TensorBoardLogger, CsvLogger), (OSError, ValueError)


class Loggers(list[Logger]):
    """The loggers of one training, or of one study; one that fails is removed.

    `on_note` is called with a sentence about each that fails; errors of our own files
    are raised.
    """

    name: str
    on_note: Callable[[str], None]
    started: list[Logger]

    def start(self, run: LoggedRun, on_note: Callable[[str], None]) -> None:
        """Starts all."""
        self.name, self.on_note, self.started = run.name, on_note, []
        self._each("start", run)

    def log(self, record: Mapping[str, Any]) -> None:
        """Logs a line of `metrics.jsonl`."""
        values = flat(record, "/")
        self._each("log", values, int(values.pop("step")))

    def close(self, finished: bool) -> None:
        """Closes all that were started."""
        self._each("close", finished)

    def _each(self, method: str, *args: Any) -> None:
        for logger in tuple(self if method == "start" else self.started):
            if method == "start":
                self.started.append(logger)
            try:
                getattr(logger, method)(*args)
            except Exception as error:  # of whatever package it is
                if isinstance(logger, _FILES) and isinstance(error, _RAISED):
                    raise
                self.remove(logger)
                self.started.remove(logger)
                said = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
                self.on_note(
                    f"{self.name}: {type(logger).__name__} failed, and training "
                    f"goes on without it: {said}"
                )
                if method != "close":
                    with contextlib.suppress(Exception):
                        logger.close(False)


def as_loggers(loggers: Sequence[str | Logger]) -> Loggers:
    """The loggers that are named (`csv`, `package.module:Class`) or given."""
    if isinstance(loggers, Loggers):
        return loggers
    found = Loggers()
    for given in [loggers] if isinstance(loggers, str) else loggers:
        try:
            logger = LOGGERS.find(given)() if isinstance(given, str) else given
        except TypeError as error:
            raise ValueError(
                f"the logger {given} cannot be made without arguments ({error}); name "
                "a function that makes it"
            ) from error
        methods = [getattr(logger, n, None) for n in ("start", "log", "close")]
        if isinstance(logger, type) or not all(map(callable, methods)):
            raise TypeError(
                "a logger is a name or an object with the methods start, log and "
                f"close; got {logger!r}"
            )
        found.append(logger)
    return found


class MetricsWriter:
    """Appends to `metrics.jsonl`; lines of later steps than `done` are dropped.

    It writes in the caller's thread, so that a full disk is an `OSError` of `write`.
    Its `note` is a sentence about damaged lines that were left out, or empty.
    """

    def __init__(self, directory: Path, *, done: int = 0):
        """Opens the file; at an `OSError` the lines of earlier epochs are kept."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "metrics.jsonl"
        texts = path.read_text(errors="replace").split("\n") if path.exists() else []
        lines = list(map(_line, texts))
        kept = [line for line in lines if line and line["step"] <= done]
        # The last one may have been cut by a kill or a full disk.
        bad = [number for number, line in enumerate(lines[:-1], 1) if not line]
        damaged = ", ".join(map(str, bad))
        said = f"line {damaged} of {path} could not be read and was left out"
        self.note: str = said if damaged else ""
        write_file(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a")

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes one evaluation; `train` and `validation` hold lists over replicas."""
        self._file.write(json.dumps(plain_values(record)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file; `write` has flushed what is worth keeping."""
        with contextlib.suppress(OSError):
            self._file.close()


def _line(text: str) -> dict[str, Any]:
    """A line of `metrics.jsonl`; empty for one that is damaged."""
    line: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        line = json.loads(text)
    numbers = line if isinstance(line, dict) else {}
    whole = all(type(numbers.get(name)) is int for name in ("epoch", "step"))
    return numbers if whole else {}
