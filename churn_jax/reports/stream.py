"""The report of a stream study as data: which rows finished, with which numbers."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from churn_jax.configuration.record import (
    RecordError,
    RowRecord,
    StreamRecord,
    read_record,
)
from churn_jax.reports.artefacts import Study, as_float, read_study
from churn_jax.reports.report import Missing
from churn_jax.reports.stream_numbers import (
    StreamChange,
    StreamNumbers,
    compare_streams,
)

RESULT = "result.json"
PARTS = ("stream", "holdout")
UNFINISHED = "it has not finished"


@dataclasses.dataclass(frozen=True)
class StreamRow:
    """One finished row."""

    info: RowRecord  # what `study.json` says about it
    # `stream`, and `holdout` where one was held out, to what was measured
    numbers: Mapping[str, StreamNumbers]
    # the same parts against the baseline; empty for the baseline
    changes: Mapping[str, StreamChange]
    # one entry per stretch of the stream, with the stream's `totals`
    curve: tuple[Mapping[str, Any], ...]
    examples: int  # that counted, after the warm-up

    @property
    def penalty(self) -> str:
        """Kind of anti-distillation as the paper's table has it: `correlation`, ..."""
        return str(getattr(self.info.method, "penalty", "No AD"))

    @property
    def strength(self) -> float:
        """Lambda; 0 without a penalty."""
        return float(getattr(self.info.method, "strength", 0.0))

    @property
    def input_scale(self) -> float:
        """`s`, the factor of the variance of the inputs' initial weights."""
        return float(self.info.method.input_scale)


@dataclasses.dataclass(frozen=True)
class StreamReport:
    """Everything that the tables and the page of a stream study show.

    Attributes:
        study: what was run.
        rows: finished rows, in the order of the study.
        missing: the others, each with the reason.
        files: what was written, by name.
    """

    study: Study
    rows: tuple[StreamRow, ...]
    missing: tuple[Missing, ...]
    files: dict[str, Path] = dataclasses.field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """`stream`, and `holdout` where any row has one."""
        return tuple(p for p in PARTS if any(p in row.numbers for row in self.rows))

    @property
    def baseline(self) -> StreamRow | None:
        """The row that the others are compared with, where it finished."""
        named = (
            row for row in self.rows if row.info.name == self.study.config.baseline
        )
        return next(named, None)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know before the numbers."""
        said = []
        for row in self.rows:
            for stop in row.info.stopped:
                where = "" if stop.step is None else f" at update {stop.step}"
                term = f", {stop.term} was not finite" if stop.term else ""
                said.append(
                    f"{row.info.label}: replica {stop.replica} stopped{where}{term};"
                    " it is in no number of single runs, and in prediction differences "
                    "only up to there"
                )
        if self.rows and self.baseline is None:
            said.append(
                f"{self.study.config.baseline} has not finished, so nothing is "
                "compared with it"
            )
        waiting = [m.info.label for m in self.missing if m.reason == UNFINISHED]
        if waiting:
            said.append(f"Not finished: {'; '.join(waiting)}")
        said += [
            f"{m.info.label} is missing: {m.reason}"
            for m in self.missing
            if m.reason != UNFINISHED
        ]
        return tuple(said)


def is_stream(folder) -> bool:
    """Whether the folder is a stream study's.

    Example:
        >>> is_stream("no/such/folder")
        False
    """
    try:
        record = read_record(Path(folder) / "study.json")
    except RecordError:
        return False
    return isinstance(record, StreamRecord)


def collect_stream(folder) -> StreamReport:
    """Reads what a stream study has left, finished or not.

    Args:
        folder: `runs/<study>`.

    Returns:
        The `StreamReport`; nothing is written.

    Raises:
        ReportError: there is no usable `study.json`.
    """
    study = read_study(folder)
    found: dict[str, dict[str, Any]] = {}
    reasons: dict[str, str] = {}
    damaged: set[str] = set()
    numbers: dict[str, dict[str, StreamNumbers]] = {part: {} for part in PARTS}
    for info in study.methods:
        if not info.trained:
            reasons[info.name] = UNFINISHED
            continue
        path = study.method_folder(info.name) / RESULT
        try:
            result = _read(path)
            stopped = info.stopped_replicas
            own = {"stream": StreamNumbers.of(result["totals"], stopped)}
            if result.get("holdout"):
                own["holdout"] = StreamNumbers.of(result["holdout"], stopped)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reasons[info.name] = f"{path} cannot be used ({_sentence(error)})"
            damaged.add(info.name)
            continue
        if not own["stream"].runs:
            reasons[info.name] = "every replica stopped"
            continue
        found[info.name] = result
        for part, measured in own.items():
            numbers[part][info.name] = measured
    changes = {
        part: compare_streams(numbers[part], study.config.baseline) for part in PARTS
    }
    rows, missing = [], []
    for info in study.methods:
        if info.name not in found:
            missing.append(Missing(info, reasons[info.name], info.name in damaged))
            continue
        result = found[info.name]
        rows.append(
            StreamRow(
                info=info,
                numbers=_of(numbers, info.name),
                changes=_of(changes, info.name),
                curve=tuple(c for c in result.get("curve") or () if c),
                examples=int(result.get("counted") or 0),
            )
        )
    return StreamReport(study, tuple(rows), tuple(missing))


def _of(parts: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    return {part: rows[name] for part, rows in parts.items() if name in rows}


def _read(path: Path) -> dict[str, Any]:
    result = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(result, dict):
        raise ValueError("it is not an object")
    return result


def _sentence(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    return " ".join(str(error).split())


def number_or_nan(value: Any) -> float:
    """A number of a curve's entry, the mean of a list; NaN for anything else."""
    if isinstance(value, list):
        numbers = [number_or_nan(v) for v in value]
        numbers = [v for v in numbers if math.isfinite(v)]
        return sum(numbers) / len(numbers) if numbers else math.nan
    return as_float(value)
