"""`metrics.jsonl`, a line per evaluation; resumed runs leave what whole ones do."""

import contextlib
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.array_files import write_file
from churn_jax.training.checkpoint import free_name


def as_json(value: Any) -> Any:
    """A value as JSON; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [as_json(v) for v in np.asarray(value).tolist()]
    if isinstance(value, (np.floating, float)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl` that are not damaged."""
    return [line for line in _lines(path) if line is not None]


def _lines(path: Path) -> list[dict[str, Any] | None]:
    """The lines, None for one that is damaged; a last one that was cut is left out."""
    lines: list[dict[str, Any] | None] = []
    text = path.read_text(errors="replace") if path.exists() else ""
    for each in text.split("\n"):
        line: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            line = json.loads(each)
        numbers = line if isinstance(line, dict) else {}
        whole = all(type(numbers.get(name)) is int for name in ("epoch", "step"))
        lines.append(line if whole else None)
    # A kill or a full disk cuts a line before its end.
    return lines if lines[-1] else lines[:-1]


class MetricsWriter:
    """Appends to `metrics.jsonl`; lines of epochs after `resume_epoch` are dropped.

    It writes in the caller's thread, so that a full disk is an `OSError` of `write`.

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
