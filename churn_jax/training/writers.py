"""Metrics as JSON lines and TensorBoard events."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["MetricsWriter", "read_metrics"]


def _plain(value: Any) -> Any:
    """JSON values; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(v) for v in np.asarray(value).tolist()]
    if isinstance(value, (np.floating, float)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`; a last line cut off by a kill is ignored."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


class MetricsWriter:
    """Appends to `metrics.jsonl` and, where tensorboardX is present, to events.

    Lines of epochs after `resume_epoch` are dropped first, so that a resumed run
    leaves the same file as an uninterrupted one.
    """

    def __init__(self, directory: Path, *, resume_epoch: int = 0):
        """Opens both files in `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "metrics.jsonl"
        kept = [x for x in read_metrics(path) if x["epoch"] <= resume_epoch]
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(x) + "\n" for x in kept))
        os.replace(temporary, path)
        self._file = path.open("a")
        self._events = None
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            return
        purge = kept[-1]["step"] + 1 if kept else None
        self._events = SummaryWriter(
            str(directory / "tensorboard"), purge_step=purge, flush_secs=30
        )

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes one evaluation; `train` and `validation` hold lists over replicas."""
        record = _plain(record)
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        if self._events is None:
            return
        for split in ("train", "validation"):
            for name, value in record.get(split, {}).items():
                values = value if isinstance(value, list) else [value]
                finite = [v for v in values if v is not None]
                if finite:
                    mean = sum(finite) / len(finite)
                    self._events.add_scalar(f"{split}/{name}", mean, record["step"])

    def close(self) -> None:
        """Flushes and closes both files."""
        self._file.close()
        if self._events is not None:
            self._events.close()
