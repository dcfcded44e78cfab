"""Records of studies: what was trained, when and where."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from churn_compare.array_files import write_file
from churn_jax.configuration.codec import differences, from_json, to_json, without
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import MeshShape
from churn_jax.methods.base import Method


class StudyError(ValueError):
    """A study that cannot go on, or cannot be read, in one sentence."""


@dataclasses.dataclass(frozen=True)
class Stopped:
    """A replica that was frozen because something was not finite."""

    replica: int
    term: str = ""
    step: int | None = None


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The examples of a study."""

    name: str = ""
    title: str = ""
    fingerprint: str = ""
    num_classes: int | None = None
    train: int | None = None
    validation: int | None = None
    test: int | None = None


@dataclasses.dataclass(frozen=True)
class LaunchRecord:
    """The last launch that finished a row: when (ISO), where, with which versions."""

    command: str = ""
    date: str = ""
    hardware: str = ""
    devices: tuple[str, ...] = ()
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of JAX


@dataclasses.dataclass(frozen=True)
class RowRecord:
    """A row of a study, trained or planned."""

    name: str  # folder under `methods/`
    label: str  # name for people
    spec: MethodSpec  # what was trained
    # the rows that it learned or started from, and theirs, as trained
    dependencies: tuple[MethodSpec, ...] = ()
    trained: bool = True  # False for a row that the study only plans
    # which of the trained weights predict: `config`, those that the configuration
    # deploys, or `ema`, their moving average
    weights: str = "config"
    of: str = ""  # name of the row whose averaged weights these are; empty for others
    # networks trained, whatever their size and length
    training_cost: float | None = None
    seconds: float | None = None  # training time
    # part of them until the first update was compiled; near zero where it was compiled
    # while the row before trained
    compile_seconds: float | None = None
    parameters: int | None = None  # trained numbers per replica
    mapping: str = ""  # mapping of the replicas on one device
    stopped: tuple[Stopped, ...] = ()  # replicas that were frozen
    # passes that answer for all members; of MIMO, one answers for several
    passes: int | None = None
    # digest of the files of weights and logits that it and its dependencies learned
    # from; empty if there are none, or if it is not known
    files: str = ""
    hardware: str = ""  # machine that trained it

    @property
    def method(self) -> Method:
        """The method with its coefficients."""
        return self.spec.method

    @property
    def equation(self) -> str:
        """Where the method comes from."""
        return self.spec.equation

    @property
    def members(self) -> int | None:
        """Networks trained together; None for a planned row."""
        return self.method.members if self.trained else None

    @property
    def inference_cost(self) -> float | None:
        """Networks that one prediction passes, of any size; None for a plan."""
        cost = self.method.inference_cost
        return float(min(cost, self.passes or cost)) if self.trained else None

    @property
    def stopped_replicas(self) -> tuple[int, ...]:
        """Numbers of the replicas that were frozen."""
        return tuple(one.replica for one in self.stopped)


@dataclasses.dataclass(frozen=True)
class AxisRecord:
    """A swept coefficient: its name and its row."""

    name: str
    method: str
    label: str
    field: str


@dataclasses.dataclass(frozen=True)
class PointRecord:
    """One row of a sweep."""

    name: str
    axis: str = ""  # name of its axis; empty for a baseline that is on none
    value: float | None = None  # value of the coefficient; None for such a baseline
    is_baseline: bool = False  # True if it is trained as the baseline is


@dataclasses.dataclass(frozen=True)
class SweepRecord:
    """The grid whose points are rows of a study."""

    criterion: str  # rule that chooses a value, of `churn_jax.reports.sweep.CRITERIA`
    axes: tuple[AxisRecord, ...] = ()
    points: tuple[PointRecord, ...] = ()
    # name of the point that the others are compared with, if any
    baseline: str | None = None
    # names of the rows that are trained together, by name of the folder under
    # `programs/` that has their checkpoints
    programs: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    points_per_program: int = 0  # number of rows that may be trained together; 0 is all
    # devices along the axes, for all replicas of a program
    mesh: MeshShape = MeshShape()

    def after(self, old: SweepRecord) -> SweepRecord:
        """The sweep with the axes, points and programs of earlier launches, too."""

        def both(earlier: tuple, now: tuple) -> tuple:
            return tuple({one.name: one for one in (*earlier, *now)}.values())

        return dataclasses.replace(
            self,
            axes=both(old.axes, self.axes),
            points=both(old.points, self.points),
            baseline=self.baseline or old.baseline,
            programs=old.programs,
        )


@dataclasses.dataclass(frozen=True)
class StudyRecord:
    """`study.json`."""

    config: StudyConfig  # settings that the study was launched with last
    data: DataRecord = DataRecord()
    launch: LaunchRecord = LaunchRecord()
    # names of the rows that the last launch was to train; None is all
    selected: tuple[str, ...] | None = None
    methods: tuple[RowRecord, ...] = ()  # the finished rows
    # the grid whose points are the rows; None for other studies
    sweep: SweepRecord | None = None
    kind: str = "study"

    def __post_init__(self):
        """Refuses names that are not folders, or are given twice."""
        names = [row.name for row in self.methods]
        for name in (*names, *(spec.name for spec in self.config.methods)):
            if not name or Path(name).name != name or name == "..":
                raise ValueError(f"{name!r} cannot be the name of a row's folder")
        if len(set(names)) != len(names):
            raise ValueError(f"a row is there twice: {', '.join(names)}")

    def row(self, name: str) -> Any:
        """The finished row called `name`; None where there is none."""
        return next((row for row in self.methods if row.name == name), None)

    def outdated(self, row: RowRecord) -> bool:
        """True if a row was trained otherwise than the configuration says now."""
        name = row.of or row.name
        spec = next((s for s in self.config.methods if s.name == name), None)
        if spec is None:
            return False
        there = (row.spec, *row.dependencies)
        here = (spec, *self.config.dependencies(spec))
        return bool(differences(without(to_json(there)), without(to_json(here))))

    def rows(self) -> tuple[Any, ...]:
        """Rows of the plan, finished or not, then finished ones that are not in it."""
        names = [spec.name for spec in self.config.methods]
        planned = (
            self.row(spec.name) or RowRecord(spec.name, spec.label, spec, trained=False)
            for spec in self.config.methods
        )
        return (*planned, *(row for row in self.methods if row.name not in names))

    def with_rows(self, *rows: RowRecord) -> Any:
        """The record with finished rows, in place of those of the same names.

        They are in the order of the plan, averaged weights after the row's own.
        """
        found = {row.name: row for row in (*self.methods, *rows)}
        places = {spec.name: i for i, spec in enumerate(self.config.methods)}

        def place(row: RowRecord) -> tuple[int, bool]:
            return places.get(row.of or row.name, len(places)), bool(row.of)

        ordered = tuple(sorted(found.values(), key=place))
        return dataclasses.replace(self, methods=ordered)


def read_record(path: Path) -> StudyRecord:
    """The record of a study in a file.

    Args:
        path: `study.json`.

    Raises:
        StudyError: there is none, or it was left by another version of churn_jax.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise StudyError(
            f"{path} does not exist; is {path.parent} the folder of a study?"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise StudyError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(found, dict) or found.get("kind") != "study":
        raise StudyError(f"{path} is not a record of a study of this churn_jax")
    try:
        return from_json(StudyRecord, found)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise StudyError(
            f"{path} is damaged, or was left by another version of churn_jax ({error})"
        ) from error


def write_record(path: Path, record: Any) -> None:
    """Writes a record whole or not at all."""
    write_file(path, json.dumps(to_json(record), indent=2) + "\n")
