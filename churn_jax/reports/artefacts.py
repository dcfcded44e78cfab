"""What a study left in its folder: `study.json`, predictions and training curves.

Reading is forgiving about a study that is still running or was interrupted: a method
without a usable predictions file is listed with the reason, a half-written last line of
`metrics.jsonl` is passed over. What cannot be right is refused.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "TEST",
    "VALIDATION",
    "History",
    "MethodInfo",
    "ReportError",
    "StudyInfo",
    "read_history",
    "read_study",
]

# Predictions of a method, by split.
TEST, VALIDATION = "predictions.npz", "predictions-validation.npz"


class ReportError(ValueError):
    """A folder no report can be made of; the message says why in one sentence."""


@dataclasses.dataclass(frozen=True)
class MethodInfo:
    """One entry of `methods` in `study.json`; see `StudyInfo`.

    Attributes:
        name: folder under `methods/`.
        label: name for people.
        equation: paper equation, for example `"[reproducibility] Eq. 9"`.
        members: networks trained together.
        training_cost: relative to one network of the baseline; None if unknown.
        inference_cost: the same for the deployed prediction.
        coefficients: loss coefficients.
        seconds: training time, without compilation.
        compile_seconds: compilation time.
        parameters: trained numbers per replica.
        stopped: replicas stopped by a non-finite loss: replica, term, step.
        method: the resolved method with its class, for everything that is only told.
        train: what the row trains with instead of the study's configuration, by dotted
            path: `{"seeds.init": "fixed"}`.
        train_size: training examples of the row; None for those of the study.
        model: network of the row; empty for that of the study.
        separate: every member is a network of its own, whatever the model says.
        trained: False for a row that the study only plans.
    """

    name: str
    label: str
    equation: str = ""
    members: int | None = None
    training_cost: float | None = None
    inference_cost: float | None = None
    coefficients: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float | None = None
    compile_seconds: float | None = None
    parameters: int | None = None
    stopped: tuple[Mapping[str, Any], ...] = ()
    method: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_size: int | None = None
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    separate: bool = False
    trained: bool = True

    @property
    def stopped_replicas(self) -> tuple[int, ...]:
        """Replica numbers in `stopped`."""
        return tuple(int(entry["replica"]) for entry in self.stopped)


@dataclasses.dataclass(frozen=True)
class StudyInfo:
    """What was run, as `study.json` tells it.

    Attributes:
        folder: the run folder.
        name: preset or study name.
        title: heading of the report.
        baseline: name of the method the others are compared with.
        methods: finished methods and those `config.methods` still plans, in the order
            of the plan.
        unselected: names and labels of planned methods that the last launch was not
            to train (`--only`); they are in no other field.
        facts: the whole file, for everything that is only displayed.
        published: key of the paper's numbers for the same rows; empty without.
        columns: what its tables show, fields of a `MethodSummary`; empty for those of
            the first paper.
    """

    folder: Path
    name: str
    title: str
    baseline: str
    methods: tuple[MethodInfo, ...]
    facts: Mapping[str, Any]
    published: str = ""
    columns: tuple[str, ...] = ()
    unselected: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def method_folder(self, name: str) -> Path:
        """Folder of one method."""
        return self.folder / "methods" / name


def read_study(run_dir) -> StudyInfo:
    """Read `study.json` of a run folder.

    Args:
        run_dir: the folder of a study.

    Returns:
        The `StudyInfo`.

    Raises:
        ReportError: no such file, not JSON, or without methods.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as run:
        ...     file = Path(run) / "study.json"
        ...     _ = file.write_text('{"methods": [{"name": "a"}]}')
        ...     read_study(run).methods[0].label
        'a'
    """
    folder = Path(run_dir)
    path = folder / "study.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ReportError(
            f"{path} does not exist; is {folder} the folder of a study?"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ReportError(f"{path} cannot be read as JSON ({error})") from error
    try:
        return _study_info(folder, path, facts)
    except ReportError:
        raise
    except (TypeError, ValueError) as error:  # an entry of another type
        raise ReportError(f"{path} is damaged ({error})") from error


def _study_info(folder: Path, path: Path, facts: Any) -> StudyInfo:
    entries = _entries(facts) if isinstance(facts, Mapping) else []
    if not entries:
        raise ReportError(f"{path} lists no methods")
    methods = tuple(_method(entry, path) for entry in entries)
    names = [method.name for method in methods]
    if len(set(names)) != len(names):
        raise ReportError(f"{path} lists a method twice: {', '.join(names)}")
    selected = facts.get("selected")
    shown = tuple(
        method
        for method in methods
        if method.trained or not isinstance(selected, list) or method.name in selected
    )
    name = str(facts.get("name") or folder.resolve().name)
    return StudyInfo(
        folder=folder,
        name=name,
        title=str(facts.get("title") or name),
        baseline=str(facts.get("baseline") or "baseline"),
        methods=shown,
        facts=facts,
        published=str(facts.get("published") or ""),
        columns=_columns(facts.get("config")),
        unselected={
            method.name: method.label for method in methods if method not in shown
        },
    )


def _columns(config) -> tuple[str, ...]:
    found = config.get("columns") if isinstance(config, Mapping) else None
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _entries(facts: Mapping) -> list:
    """Finished methods, and those the configuration still plans, in its order."""
    finished = list(facts.get("methods") or ())
    config = facts.get("config")
    planned = (config.get("methods") if isinstance(config, Mapping) else None) or ()
    planned = [p for p in planned if isinstance(p, Mapping) and "name" in p]
    done = {f.get("name"): f for f in finished if isinstance(f, Mapping)}
    names = {p["name"] for p in planned}
    rest = [
        f for f in finished if not isinstance(f, Mapping) or f.get("name") not in names
    ]
    keep = ("name", "label", "equation")  # what a plan and an entry have in common
    return [
        done.get(p["name"], {k: p[k] for k in keep if k in p} | {"trained": False})
        for p in planned
    ] + rest


def _method(entry, path) -> MethodInfo:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not name or Path(name).name != name or name == "..":
        raise ReportError(f"{path} has a method without a usable name: {entry!r}")
    stopped = entry.get("stopped") or ()
    if not all(
        isinstance(s, Mapping) and isinstance(s.get("replica"), int) for s in stopped
    ):
        raise ReportError(
            f"{path}: stopped replicas of {name} must be objects with a replica number"
        )
    return MethodInfo(
        name=name,
        label=str(entry.get("label") or name),
        equation=str(entry.get("equation") or ""),
        members=_count(entry.get("members")),
        training_cost=_number(entry.get("training_cost")),
        inference_cost=_number(entry.get("inference_cost")),
        coefficients=dict(entry.get("coefficients") or {}),
        seconds=_number(entry.get("seconds")),
        compile_seconds=_number(entry.get("compile_seconds")),
        parameters=_count(entry.get("parameters")),
        stopped=tuple(stopped),
        method=_object(entry.get("method")),
        train=_overrides(entry.get("train")),
        train_size=_count(entry.get("train_size")),
        model=_object(entry.get("model")),
        separate=bool(entry.get("separate")),
        trained=bool(entry.get("trained", True)),
    )


def _object(value) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _overrides(value) -> dict[str, Any]:
    """`[[path, value], ...]`, as JSON keeps the tuples of a `MethodSpec`."""
    pairs = value.items() if isinstance(value, Mapping) else value or ()
    return {
        str(pair[0]): pair[1]
        for pair in pairs
        if isinstance(pair, list | tuple) and len(pair) == 2
    }


def _count(value) -> int | None:
    value = _number(value)
    return None if value is None else int(value)


def _number(value) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return value if good and math.isfinite(value) else None


@dataclasses.dataclass(frozen=True)
class History:
    """Training curves of one method.

    Attributes:
        steps: `[T]` optimiser steps, ascending.
        epochs: `[T]` passes over the training set.
        series: `"train/cross_entropy"`, `"validation/accuracy"`, ... to `[T, R]`, or
            `[T, 1]` for a number about all runs together; NaN where absent.
    """

    steps: np.ndarray
    epochs: np.ndarray
    series: Mapping[str, np.ndarray]


def read_history(path) -> History:
    """Read `metrics.jsonl`; a missing file is an empty history.

    Lines that are not JSON objects with a step (a write cut short) are passed over; a
    step written twice (a resumed run) counts once, the later line wins.

    Args:
        path: the file.

    Returns:
        The `History`, possibly with `T = 0`.

    Example:
        >>> read_history("no/such/file").series
        {}
    """
    path = Path(path)
    rows: dict[float, Mapping] = {}
    if path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, Mapping) and _number(row.get("step")) is not None:
                rows[row["step"]] = row
    steps = sorted(rows)
    flat = [dict(_series(rows[step])) for step in steps]
    series = {}
    for name in sorted({name for row in flat for name in row}):
        width = max(len(row.get(name, ())) for row in flat)
        values = np.full((len(flat), width), np.nan)
        for t, row in enumerate(flat):
            got = row.get(name, ())
            values[t, : len(got)] = got
        series[name] = values
    epochs = [_float(rows[step].get("epoch")) for step in steps]
    return History(np.asarray(steps, float), np.asarray(epochs, float), series)


def _series(row):
    for part in ("train", "validation"):
        entries = row.get(part)
        for name, value in (entries if isinstance(entries, Mapping) else {}).items():
            values = value if isinstance(value, list) else [value]
            yield f"{part}/{name}", [_float(v) for v in values]


def _float(value) -> float:
    value = _number(value)
    return math.nan if value is None else float(value)
