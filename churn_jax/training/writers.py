"""Metrics as JSON lines: the record that a resumed training and the reports read."""

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.array_files import write_file

__all__ = ["MetricsWriter", "as_json", "read_metrics"]


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
    """The lines of a `metrics.jsonl` up to the first that a kill or full disk cut."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            break
        if not isinstance(line, dict) or not {"epoch", "step"} <= line.keys():
            break
        lines.append(line)
    return lines


class MetricsWriter:
    """Appends to `metrics.jsonl`.

    Lines of epochs after `resume_epoch` are dropped first, so that a resumed run
    leaves the same file as an uninterrupted one. It is written in the caller's thread,
    so that a full disk is an `OSError` of `write`.

    Attributes:
        step: of the last line that is kept, or 0.
    """

    def __init__(self, directory: Path, *, resume_epoch: int = 0):
        """Opens the file; at an `OSError` the lines of earlier epochs are kept."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "metrics.jsonl"
        kept = [x for x in read_metrics(path) if x["epoch"] <= resume_epoch]
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
