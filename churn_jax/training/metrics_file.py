"""`metrics.jsonl`, a line per evaluation; resumed runs leave what whole ones do."""

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.array_files import write_file


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, without those that cannot be read."""
    return [line for _, line in _lines(path) if line]


def _lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Lines by number, empty for a damaged one; a last one that was cut is left out."""
    lines = []
    text = path.read_text(errors="replace") if path.exists() else ""
    for number, each in enumerate(text.split("\n"), 1):
        line: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            line = json.loads(each)
        numbers = line if isinstance(line, dict) else {}
        whole = all(type(numbers.get(name)) is int for name in ("epoch", "step"))
        lines.append((number, numbers if whole else {}))
    # A kill or a full disk cuts a line before its end.
    return lines if lines[-1][1] else lines[:-1]


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
        kept = [line for _, line in lines if line and line["epoch"] <= resume_epoch]
        damaged = ", ".join(str(number) for number, line in lines if not line)
        said = f"line {damaged} of {path} could not be read and was left out"
        self.note: str = said if damaged else ""
        write_file(path, "".join(json.dumps(line) + "\n" for line in kept))
        self.step: int = kept[-1]["step"] if kept else 0
        self._file = path.open("a")

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes one evaluation; `train` and `validation` hold lists over replicas."""
        self._file.write(json.dumps(_as_json(record)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file; `write` has flushed what is worth keeping."""
        with contextlib.suppress(OSError):
            self._file.close()


def _as_json(value: Any) -> Any:
    """A value as JSON; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): _as_json(v) for k, v in value.items()}
    value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    if isinstance(value, (list, tuple)):
        return [_as_json(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
