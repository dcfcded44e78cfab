"""Metrics as JSON lines and TensorBoard events."""

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from churn_jax.predictions import replace_file

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
    """Appends to `metrics.jsonl` and, where tensorboardX is present, to events.

    Lines of epochs after `resume_epoch` are dropped first, so that a resumed run
    leaves the same file as an uninterrupted one. Both files are written at once, in
    the caller's thread: a full disk is an `OSError` of `write`, not of a thread that
    nobody hears.
    """

    def __init__(self, directory: Path, *, resume_epoch: int = 0):
        """Opens both files in `directory`.

        Raises:
            OSError: the disk is full or the folder is not writable; the lines of
                earlier epochs are as they were.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "metrics.jsonl"
        kept = [x for x in read_metrics(path) if x["epoch"] <= resume_epoch]
        with replace_file(path) as file:
            file.write("".join(json.dumps(x) + "\n" for x in kept).encode())
        self._file = path.open("a")
        try:
            self._events = _open_events(directory / "tensorboard", kept)
        except OSError:
            self._file.close()
            raise

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes one evaluation; `train` and `validation` hold lists over replicas.

        Raises:
            OSError: the disk is full.
        """
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
        self._events.flush()

    def close(self) -> None:
        """Closes both files; `write` has flushed what is worth keeping."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self._events is not None:
            with contextlib.suppress(OSError):
                self._events.close()


class _Events:
    """TensorBoard's file, written in this thread.

    tensorboardX's own `SummaryWriter` writes in another one: when the disk is full,
    that thread dies alone and the program waits for it for ever.
    """

    def __init__(self, directory: Path):
        from tensorboardX.event_file_writer import EventsWriter

        directory.mkdir(parents=True, exist_ok=True)
        # Two launches within one second must not share a file.
        suffix = f".{os.getpid()}.{time.monotonic_ns()}"
        self._writer = EventsWriter(str(directory / "events"), suffix)

    def hide_from(self, step: int) -> None:
        """TensorBoard shows nothing that earlier files hold from `step` on."""
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        started = SessionLog(status=SessionLog.START)
        self._writer.write_event(
            Event(wall_time=time.time(), step=step, session_log=started)
        )

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        summary = scalar(tag, value)
        self._writer.write_event(
            Event(wall_time=time.time(), step=step, summary=summary)
        )

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _open_events(directory: Path, kept: list[dict[str, Any]]) -> _Events | None:
    """A new file of events, or None without tensorboardX."""
    try:
        events = _Events(directory)
    except ImportError:
        return None
    if kept:
        events.hide_from(kept[-1]["step"] + 1)
    return events
