"""What a sweep left in its folder: `sweep.json` and every point's predictions."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from churn_compare.store import PredictionsError, load_predictions
from churn_jax.configuration.record import (
    AxisRecord,
    PointRecord,
    RecordError,
    SweepRecord,
    read_record,
)
from churn_jax.reports.artefacts import ReportError
from churn_jax.reports.own_columns import with_columns
from churn_jax.reports.quantities import shown_columns
from churn_jax.reports.selection import Choice, choose
from churn_jax.reports.summary import MethodSummary, summarize

SPLITS = ("validation", "test")


@dataclasses.dataclass(frozen=True)
class PointResult:
    """One point of the grid: its setting and its numbers over all seeds."""

    name: str  # folder under `points/`
    axis: str  # name of its axis; empty for a baseline that is on none
    value: float | None  # of the coefficient; None for such a baseline
    label: str  # of its method
    # numbers on the validation split; None where there are none
    validation: MethodSummary | None
    test: MethodSummary | None  # numbers on the test split, which no choice looks at
    missing: str = ""  # why there are no numbers; empty where there are
    # whether it trains as the baseline does, which another point may be
    is_baseline: bool = False
    wrong: tuple[str, ...] = ()  # why columns of the user's own have no numbers

    def on(self, split: str) -> MethodSummary | None:
        """The numbers on `validation` or `test`."""
        return getattr(self, split)


@dataclasses.dataclass(frozen=True)
class AxisResult:
    """One swept coefficient."""

    name: str  # of the axis
    label: str  # of its method, for people
    field: str  # the coefficient
    # other coefficients of the method and what they were held at
    fixed: Mapping[str, float]
    # smallest value first; the baseline among them if it is on this axis
    points: tuple[PointResult, ...]
    choice: Choice  # what the criterion picks

    @property
    def title(self) -> str:
        """`Co-distill SKL, beta`, with what is held fixed."""
        held = "".join(f", {k} = {v:g}" for k, v in self.fixed.items())
        return f"{self.label}: {self.field}{held}"


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """A sweep's numbers and choices.

    Attributes:
        folder: of the sweep.
        title: heading of the report.
        seeds: runs per point.
        axes: the swept coefficients.
        baseline: the point the others are compared with; None without one.
        record: `sweep.json`.
        files: what `write_sweep` wrote: name to path.
    """

    folder: Path
    title: str
    seeds: int
    axes: tuple[AxisResult, ...]
    baseline: PointResult | None
    record: SweepRecord
    files: dict = dataclasses.field(default_factory=dict)

    @property
    def points(self) -> tuple[PointResult, ...]:
        """All points, the baseline first, every one once."""
        found = {} if self.baseline is None else {self.baseline.name: self.baseline}
        for axis in self.axes:
            found |= {point.name: point for point in axis.points}
        return tuple(found.values())

    def choice(self, axis: str) -> Choice:
        """What was picked on the axis called `axis`."""
        for found in self.axes:
            if found.name == axis:
                return found.choice
        names = ", ".join(a.name for a in self.axes)
        raise ValueError(f"the sweep has no axis {axis!r}; it has: {names}")


def collect_sweep(folder) -> SweepResult:
    """Reads a sweep's folder, computes every point's numbers and the choices.

    A sweep that is still running is read as far as it is.

    Args:
        folder: of the sweep.

    Returns:
        The `SweepResult`; nothing is written.

    Raises:
        ReportError: there is no usable `sweep.json`.

    Example:
        >>> from churn_jax.reports import ReportError
        >>> try:
        ...     collect_sweep("no/such/sweep")
        ... except ReportError as error:
        ...     print(error)
        no/such/sweep/sweep.json does not exist; is no/such/sweep the folder of a sweep?
    """
    folder = Path(folder)
    path = folder / "sweep.json"
    try:
        record = read_record(path)
    except RecordError as error:
        raise ReportError(str(error)) from error
    if not isinstance(record, SweepRecord):
        raise ReportError(f"{path} is no sweep's record")
    columns = [quantity.name for quantity in shown_columns(record.config.columns)]
    points = {point.name: _point(folder, point, columns) for point in record.points}
    baseline = points.get(record.baseline or "")
    axes = tuple(
        _axis(axis, tuple(points.values()), baseline, record.criterion)
        for axis in record.axes
    )
    return SweepResult(folder, record.title, record.seeds, axes, baseline, record)


def _point(folder: Path, point: PointRecord, columns: Sequence[str]) -> PointResult:
    summaries, missing, wrong = {}, "", []
    for split in SPLITS:
        path = folder / "points" / point.name / f"{split}.npz"
        if not path.exists():
            missing = "it has no predictions yet"
            continue
        try:
            predictions = load_predictions(path)
            found = summarize(predictions)
            summaries[split], errors = with_columns(found, predictions, columns)
            wrong += [f"{point.name}, {split}: {error}" for error in errors]
        except PredictionsError as error:
            missing = " ".join(str(error).split())
    return PointResult(
        name=point.name,
        axis=point.axis,
        value=point.value,
        label=point.spec.label,
        validation=summaries.get("validation"),
        test=summaries.get("test"),
        missing=missing,
        is_baseline=point.is_baseline,
        wrong=tuple(" ".join(sentence.split()) for sentence in wrong),
    )


def _axis(
    axis: AxisRecord,
    points: Sequence[PointResult],
    baseline: PointResult | None,
    criterion: str,
) -> AxisResult:
    on_axis = sorted(
        (p for p in points if p.axis == axis.name), key=lambda p: p.value or 0.0
    )
    choice = choose(
        axis.name,
        [
            (p.name, p.value or 0.0, p.validation)
            for p in on_axis
            # A weight of 0 is no candidate; the preset's own learning rate is.
            if axis.field.startswith("optimizer.")
            or not (p is baseline or p.is_baseline)
        ],
        None if baseline is None else baseline.validation,
        criterion,
    )
    return AxisResult(
        name=axis.name,
        label=axis.label,
        field=axis.field,
        fixed=axis.fixed,
        points=tuple(on_axis),
        choice=choice,
    )
