"""The files of a study's folder: `study.json`, predictions, training curves.

Reading is forgiving about a study that is still running or was interrupted: a method
without a usable predictions file is listed with the reason, a half-written last line of
`metrics.jsonl` is passed over. What cannot be right is refused.
"""

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from churn_compare.example_ids import PredictionsError
from churn_compare.store import Predictions, is_stored, load_predictions
from churn_jax.configuration.record import (
    RowRecord,
    StudyError,
    StudyRecord,
    read_record,
)
from churn_jax.configuration.study import StudyConfig

TEST, VALIDATION = "predictions.npz", "predictions-validation.npz"
FILES = {"test": TEST, "validation": VALIDATION}  # file of a row, by split


class ReportError(ValueError):
    """A folder no report can be made of; the message says why in one sentence."""


@dataclasses.dataclass(frozen=True)
class Study:
    """The folder of a study and its record."""

    folder: Path  # of the study
    record: StudyRecord
    # finished rows and those that are still planned, in the order of the plan; of a
    # sweep its points
    methods: tuple[RowRecord, ...]

    @property
    def config(self) -> StudyConfig:
        """The configuration of its last launch."""
        return self.record.config

    @property
    def unselected(self) -> dict[str, str]:
        """Names and labels of planned rows that the last launch was not to train."""
        chosen = self.record.selected
        return {
            row.name: row.label
            for row in self.record.rows()
            if chosen and not row.trained and row.name not in chosen
        }

    @property
    def one_pass(self) -> bool:
        """True if the rows are click models, which learn in one pass."""
        return self.config.train.one_pass is not None

    def file(self, name: str, split: str = "test") -> Path:
        """Predictions of one method."""
        return self.method_folder(name) / FILES[split]

    def predictions(self, name: str, split: str, whole: bool = False) -> Predictions:
        """Reads them; refuses a file of another row, or of fewer or more runs."""
        found = load_predictions(path := self.file(name, split), whole)
        of, runs = found.meta.get("method", name), self.config.train.replicas
        if (of, found.shape[0]) != (name, runs):
            here = f"{of} (runs: {found.shape[0]})"
            raise PredictionsError(f"{path} is of {here}, not {name} (runs: {runs})")
        return found

    def method_folder(self, name: str) -> Path:
        """Folder of one method."""
        return self.folder / "methods" / name


def read_study(run_dir) -> Study:
    """Reads `study.json` of a run folder."""
    folder = Path(run_dir)
    try:
        record = read_record(folder / "study.json")
    except StudyError as error:
        raise ReportError(str(error)) from error
    if not (rows := record.rows()):
        raise ReportError(f"{folder / 'study.json'} lists no methods")
    chosen = record.selected
    shown = [row for row in rows if row.trained or not chosen or row.name in chosen]
    return Study(folder, record, tuple(shown))


@dataclasses.dataclass(frozen=True)
class History:
    """Training curves of one method."""

    steps: np.ndarray  # `[T]` optimiser steps, ascending
    epochs: np.ndarray  # `[T]` passes over the training set
    # `"train/cross_entropy"`, `"validation/accuracy"`, ... to `[T, R]`, or `[T, 1]` for
    # a number about all runs together; NaN where absent.
    series: Mapping[str, np.ndarray]


NO_HISTORY = History(np.zeros(0), np.zeros(0), {})


def read_history(path: Path) -> History:
    """Reads `metrics.jsonl`; a missing file is an empty history."""
    # Lines that are not JSON objects with a step (a write cut short) are passed over; a
    # step written twice (a resumed run) counts once, the later line wins.
    rows: dict[float, Mapping] = {}
    if path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, Mapping) and math.isfinite(_number(row.get("step"))):
                rows[row["step"]] = row
    steps = sorted(rows)
    flat = [dict(_series(rows[step])) for step in steps]
    series = {}
    for name in sorted({name for row in flat for name in row}):
        width = max(len(row.get(name, ())) for row in flat)
        series[name] = np.full((len(flat), width), np.nan)
        for values, row in zip(series[name], flat, strict=True):
            values[: len(row.get(name, ()))] = row.get(name, ())
    epochs = [_number(rows[step].get("epoch")) for step in steps]
    return History(np.asarray(steps, float), np.asarray(epochs, float), series)


def _series(row):
    for part in ("train", "validation"):
        entries = row.get(part)
        for name, value in (entries if isinstance(entries, Mapping) else {}).items():
            values = value if isinstance(value, list) else [value]
            yield f"{part}/{name}", [_number(v) for v in values]


def _number(value) -> float:
    """A finite number as it is, anything else as NaN."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else math.nan


class StoredLogits(Mapping[str, np.ndarray]):
    """Logits `[R, N, C]` of every finished row, read from its file when it is used."""

    def __init__(self, study: Study, split: str):
        names = (row.name for row in study.methods)
        self.names = [name for name in names if is_stored(study.file(name, split))]
        self._study, self._split = study, split

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise KeyError(f"no predictions of {name!r}; there are: {known}")
        found = self._study.predictions(name, self._split, whole=True)
        logits = np.require(found.logits, requirements="W")
        logits[[*found.stopped]] = np.nan
        return logits

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self) or 'no row'}>"

    @property
    def ids(self) -> np.ndarray:
        """`[N]` of the examples."""
        return self._first.ids

    @property
    def labels(self) -> np.ndarray:
        """`[N]` class numbers of the examples."""
        return self._first.labels

    @property
    def _first(self) -> Predictions:
        if not self.names:
            raise ReportError("no predictions are stored; train a row of the study")
        return self._study.predictions(self.names[0], self._split)


def predictions(
    folder: str | os.PathLike, split: Literal["test", "validation"] = "test"
) -> StoredLogits:
    """The predictions that a study keeps, a row at a time.

    Args:
        folder: folder of the study.
        split: on which split.

    Returns:
        A mapping of names of rows to logits, with `ids` and `labels`. Runs that were
        stopped, which a report leaves out, are NaN.

    Raises:
        ReportError: the folder has no usable record.
        ValueError: there is no such split.
    """
    study = read_study(folder)
    if split not in FILES:
        raise ValueError(f"split must be test or validation; got {split!r}")
    return StoredLogits(study, split)
