"""A grid of coefficients: its axes, its points as rows, and many rows as one method.

Nothing here trains. A point is a `MethodSpec` with one number changed; points that
differ by numbers alone become one method whose coefficients are arrays `[R]`, with
R = points x seeds, which the engine trains as one program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from churn_compare.suggestions import did_you_mean
from churn_jax.configuration.codec import replaced
from churn_jax.configuration.record import AxisRecord, PointRecord, SweepRecord
from churn_jax.configuration.rows import MethodSpec, coefficient_names
from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import MeshShape, TrainConfig, check_read
from churn_jax.lazy import jax
from churn_jax.methods.base import Method

OPTIMIZER = ("optimizer.learning_rate", "optimizer.weight_decay")
COLUMNS = ("accuracy", "churn", "surrogate_churn")
COLUMNS += ("entropy", "confidence", "nll", "ece")
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the preset's value, where none are given


@dataclasses.dataclass(frozen=True)
class Axis:
    """One coefficient of one method and the values it takes."""

    method: str  # name of a row of the study
    # a coefficient of its method (`beta`, `beta_ramp.steps`), or
    # `optimizer.learning_rate` or `optimizer.weight_decay`
    field: str
    # finite, at least 0 and distinct; empty for 1/4 to 4 times the preset's value (for
    # a share, those below 1 and the preset's own)
    values: tuple[float, ...] = ()

    def __post_init__(self):
        """Checks the values."""
        for value in self.values:
            if not math.isfinite(value) or value < 0:
                raise ValueError(
                    f"{self.path} takes finite values of at least 0; got {value}"
                )
        if len(set(self.values)) != len(self.values):
            values = ", ".join(map(_text, self.values))
            raise ValueError(f"{self.path} has a value twice: {values}")

    @property
    def path(self) -> str:
        """`method.field`."""
        return f"{self.method}.{self.field}"

    @classmethod
    def parse(
        cls, text: str, config: StudyConfig, values: Sequence[float] = ()
    ) -> "Axis":
        """Reads `codistill_skl.beta` or `codistill_skl.beta=0.1,0.3`.

        A bare `optimizer.weight_decay` is the baseline's.

        Args:
            text: the axis.
            config: the study, for the names.
            values: values of the axis if `text` has none.

        Raises:
            ValueError: no such method or coefficient, or a value is not a number.

        Example:
            >>> from churn_jax.studies import preset
            >>> axis = Axis.parse("codistill_skl.beta=0,0.1", preset("digits"))
            >>> axis.method, axis.field, axis.values
            ('codistill_skl', 'beta', (0.0, 0.1))
        """
        path, equals, listed = text.partition("=")
        path = path.strip()
        if path in OPTIMIZER:
            path = f"{config.baseline}.{path}"
        method, _, field = path.partition(".")
        if equals:
            values = numbers(listed, path)
        return cls(method, field, tuple(map(float, values))).checked(config)

    def checked(self, config: StudyConfig) -> "Axis":
        """The axis with values, whose method and field are in the study.

        Raises:
            ValueError: method or field is unknown, or a default grid would start at 0.
        """
        spec = config.spec(self.method)
        known = [*coefficient_names(spec.method), *OPTIMIZER]
        if self.field not in known:
            raise ValueError(
                f"{self.method} has no coefficient {self.field!r} that can be swept; "
                f"it has: {', '.join(known)}{did_you_mean(self.field, known)}"
            )
        check_read([self.field], spec.config(config.train).optimizer)
        if self.values:
            grid_points(config, self)  # refuses values out of the field's range
            return self
        own: Any = spec.method
        own = spec.config(config.train) if self.field in OPTIMIZER else own
        start = attrgetter(self.field)(own)
        if np.ndim(start) or start == 0:
            found = "one number per replica" if np.ndim(start) else "0"
            raise ValueError(
                f"{self.path} is {found} in the preset, so a default grid cannot be "
                "derived; give --values"
            )
        values = tuple(float(f"{f * float(start):.6g}") for f in FACTORS)
        fields = {f.name: f.metadata for f in dataclasses.fields(spec.method)}
        if fields.get(self.field, {}).get("within") == "from 0 to 1":
            values = tuple(v for v in values if v < 1 or v == start)
        return dataclasses.replace(self, values=values)


def numbers(text: str, path: str) -> tuple[float, ...]:
    """`"0.1, 0.3"` as numbers."""
    try:
        return tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ValueError(
            f"the values of {path} must be numbers like 0.1,0.3,1; got {text!r}"
        ) from None


def grid_points(config: StudyConfig, axis: Axis) -> dict[float, MethodSpec]:
    """A row for each value of an axis, the smallest value first."""
    spec = config.spec(axis.method)

    def point(value: float) -> MethodSpec:
        name, label = f"{axis.path}={_text(value)}", f"{axis.field} = {value:g}"
        changes = {"name": name, "label": f"{spec.label}: {label}"}
        if axis.field in OPTIMIZER:
            train = (*spec.train, (axis.field, value))
            return dataclasses.replace(spec, **changes, train=train)
        method = replaced(spec.method, [(axis.field, value)])
        return dataclasses.replace(spec, **changes, method=method)

    return {value: point(value) for value in sorted(axis.values)}


def baseline_point(
    config: StudyConfig, axes: Sequence[Axis]
) -> tuple[PointRecord, MethodSpec]:
    """The point that the others are compared with, and its row.

    A point of the grid that trains as the baseline does (a weight of 0), else the value
    0 of an axis where that is the baseline, else the baseline itself.
    """
    zero = (dataclasses.replace(axis, values=(0.0,)) for axis in axes)
    for axis in (*axes, *zero):
        with contextlib.suppress(ValueError):  # of a coefficient that is above 0
            for value, row in grid_points(config, axis).items():
                if is_baseline(config, row):
                    return PointRecord(row.name, axis.path, value, True), row
    row = config.spec(config.baseline)
    return PointRecord(row.name, is_baseline=True), row


def swept(
    config: StudyConfig,
    axes: Sequence[Axis],
    *,
    seeds: int,
    baseline: bool = True,
    **options: Any,
) -> tuple[StudyConfig, SweepRecord]:
    """The study whose rows are the points of a grid, and what the grid is.

    The rows come after those that they learn from, the baseline before the others;
    `options` are settings of `SweepRecord`.
    """
    points: dict[str, PointRecord] = {}
    rows: dict[str, MethodSpec] = {}
    first = None
    if baseline:
        point, row = baseline_point(config, axes)
        first, points[point.name] = point.name, point
        rows[row.name] = dataclasses.replace(row, label=f"{row.label} (baseline)")
    for axis in axes:
        for value, row in grid_points(config, axis).items():
            alike = is_baseline(config, row)
            points.setdefault(row.name, PointRecord(row.name, axis.path, value, alike))
            rows.setdefault(row.name, row)
    # Without `baseline` the study's baseline stays as a row, but is not trained.
    needed = [name for row in rows.values() for name in row.dependencies]
    needed += [] if baseline else [config.baseline]
    others = config.select(tuple(needed)) if needed else ()
    given, train = config.train.seed_numbers, config.train
    if 0 < len(given) < seeds:
        raise ValueError(
            f"the study names {len(given)} seed numbers (train.seed_numbers); take at "
            f"most as many --seeds; got {seeds}"
        )
    study = dataclasses.replace(
        config,
        title=f"{config.title}: sweep",
        train=dataclasses.replace(
            train,
            replicas=seeds,
            seed_numbers=given[:seeds],
            mesh=MeshShape(),  # programs differ in their number of replicas
        ),
        methods=(*(r for r in others if r.name not in rows), *rows.values()),
        baseline=first or config.baseline,
        columns=config.columns or COLUMNS,
        updates=(),
        published="",
    )
    records = tuple(
        AxisRecord(axis.path, axis.method, config.spec(axis.method).label, axis.field)
        for axis in axes
    )
    return study, SweepRecord(
        axes=records,
        points=tuple(points.values()),
        baseline=first,
        mesh=train.mesh,
        **options,
    )


def is_baseline(config: StudyConfig, spec: MethodSpec) -> bool:
    """True if a row is trained as the baseline: one network on the labels alone.

    A pair without any coupling is two such networks, of which the first, with the
    baseline's initial weights, batches and augmentation, is deployed. Members that
    share weights are never alone.
    """
    baseline = config.spec(config.baseline)
    shared = (spec.model or config.model).sharing and not spec.separate
    if spec.models or spec.dependencies or (shared and spec.method.members > 1):
        return False
    names = ("model", "classes", "class_share", "train_size", "separate")
    return (
        baseline.method.is_plain
        and spec.method.is_plain
        and all(getattr(spec, name) == getattr(baseline, name) for name in names)
        and spec.config(config.train) == baseline.config(config.train)
        and spec.method.input_scale == baseline.method.input_scale
    )


def together(
    config: StudyConfig, rows: Sequence[MethodSpec], largest: int = 0
) -> list[list[MethodSpec]]:
    """Rows that can be trained as one program, at most `largest` together; 0 is all.

    Methods of one structure, with the same networks, teacher and training, differ by
    numbers alone.
    """
    numbers = ("name", "label", "equation", "method", "train")
    same = [f.name for f in dataclasses.fields(MethodSpec) if f.name not in numbers]
    found: dict[Any, list[MethodSpec]] = {}
    for row in rows:
        train = row.config(config.train)
        key = (
            jax.tree.structure(row.method),
            replaced(train, [(path, 0.0) for path in OPTIMIZER]),
            *(getattr(row, name) for name in same),
        )
        found.setdefault(key, []).append(row)
    size = largest or max(len(rows), 1)
    return [
        part[i : i + size] for part in found.values() for i in range(0, len(part), size)
    ]


@dataclasses.dataclass(frozen=True)
class Program:
    """Rows of a study that are trained as replicas of one program."""

    name: str  # name of the row, or of the folder of several
    rows: tuple[MethodSpec, ...]  # the rows, whose replicas follow each other
    replicas: int  # number of replicas of each row
    work: int  # epochs of single networks that each replica takes, for the progress

    @property
    def label(self) -> str:
        """Name for people."""
        return self.rows[0].label if len(self.rows) == 1 else self.name


def stacked(
    config: StudyConfig, rows: Sequence[MethodSpec]
) -> tuple[Method, TrainConfig]:
    """Rows as one method with coefficients `[rows x replicas]`, and its training."""
    trains = [row.config(config.train) for row in rows]
    replicas = trains[0].replicas

    def column(*values):  # a number for each row, or one for each of its replicas
        return np.ravel([np.broadcast_to(value, replicas) for value in values])

    numbers: dict[str, Any] = {
        "replicas": len(rows) * replicas,
        "seed_numbers": trains[0].numbers * len(rows),
    }
    for path in OPTIMIZER:
        numbers[path] = tuple(column(*map(attrgetter(path), trains)).tolist())
    methods = (row.method for row in rows)
    method = jax.tree.map(lambda *values: np.float32(column(*values)), *methods)
    return method, replaced(trains[0], numbers.items())


def _text(value: float) -> str:
    return format(value, ".12g")
