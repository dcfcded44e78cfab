"""What a sweep left in its folder, and which value of a coefficient to take."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from churn_compare.store import PredictionsError, load_predictions
from churn_jax.configuration.record import (
    AxisRecord,
    PointRecord,
    RecordError,
    SweepRecord,
    read_record,
)
from churn_jax.reports.artefacts import ReportError
from churn_jax.reports.compare import paired
from churn_jax.reports.own_columns import with_columns
from churn_jax.reports.quantities import shown_columns
from churn_jax.reports.summary import MethodSummary, summarize
from churn_jax.setting_checks import check_choice

SPLITS = ("validation", "test")
CRITERIA = {
    "churn": "the lowest validation churn",
    "accuracy": "the highest validation accuracy",
    "churn-at-accuracy": "the lowest validation churn among the values whose "
    "validation accuracy is at most one standard error below the baseline's",
    "prediction-difference": "the lowest validation Δ₁",
    "prediction-difference-at-accuracy": "the lowest validation Δ₁ among the values "
    "whose validation accuracy is at most one standard error below the baseline's",
}
_AT_ACCURACY = "-at-accuracy"


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was picked on one axis."""

    axis: str  # name of the axis
    criterion: str  # one of `CRITERIA`
    point: str | None  # name of the chosen point; None where none could be
    value: float | None  # of the coefficient there
    # names of the other points that are within one standard error of the chosen one,
    # paired by seed: the data do not tell them apart from it
    within: tuple[str, ...] = ()
    reason: str = ""  # why there is no choice, or which points were no candidates


@dataclasses.dataclass(frozen=True)
class PointResult:
    """One point of the grid: its setting and its numbers over all seeds."""

    record: PointRecord
    # numbers on the validation split; None where there are none
    validation: MethodSummary | None
    test: MethodSummary | None  # numbers on the test split, which no choice looks at
    missing: str = ""  # why there are no numbers; empty where there are
    wrong: tuple[str, ...] = ()  # why columns of the user's own have no numbers

    @property
    def name(self) -> str:
        """Folder under `points/`."""
        return self.record.name

    @property
    def value(self) -> float | None:
        """Of the coefficient; None for a baseline that is on no axis."""
        return self.record.value

    def on(self, split: str) -> MethodSummary | None:
        """The numbers on `validation` or `test`."""
        return getattr(self, split)


@dataclasses.dataclass(frozen=True)
class AxisResult:
    """One swept coefficient."""

    record: AxisRecord
    # smallest value first; the baseline among them if it is on this axis
    points: tuple[PointResult, ...]
    choice: Choice  # what the criterion picks

    @property
    def name(self) -> str:
        """Of the axis."""
        return self.record.name

    @property
    def title(self) -> str:
        """`Co-distill SKL, beta`, with what is held fixed."""
        held = "".join(f", {k} = {v:g}" for k, v in self.record.fixed.items())
        return f"{self.record.label}: {self.record.field}{held}"


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """A sweep's numbers and choices.

    Attributes:
        folder: of the sweep.
        axes: the swept coefficients.
        baseline: the point the others are compared with; None without one.
        record: `sweep.json`.
        files: what `write_sweep` wrote: name to path.
    """

    folder: Path
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
        choices = {found.name: found.choice for found in self.axes}
        if axis not in choices:
            names = ", ".join(choices)
            raise ValueError(f"the sweep has no axis {axis!r}; it has: {names}")
        return choices[axis]


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
    axes = tuple(_axis(axis, points, baseline, record) for axis in record.axes)
    return SweepResult(folder, axes, baseline, record)


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
    told = tuple(" ".join(sentence.split()) for sentence in wrong)
    both = (summaries.get(split) for split in SPLITS)
    return PointResult(point, *both, missing=missing, wrong=told)


def _axis(axis: AxisRecord, points, baseline: PointResult | None, record) -> AxisResult:
    on_axis = [p for p in points.values() if p.record.axis == axis.name]
    on_axis.sort(key=lambda p: p.value or 0.0)
    # A weight of 0 is no candidate; the preset's own learning rate is.
    candidates = [
        (p.name, p.value or 0.0, p.validation)
        for p in on_axis
        if axis.field.startswith("optimizer.")
        or not (p is baseline or p.record.is_baseline)
    ]
    start = None if baseline is None else baseline.validation
    choice = choose(axis.name, candidates, start, record.criterion)
    return AxisResult(axis, tuple(on_axis), choice)


def choose(
    axis: str,
    points: Sequence[tuple[str, float, MethodSummary | None]],
    baseline: MethodSummary | None,
    criterion: str = "churn",
) -> Choice:
    """The best point of an axis by its validation numbers."""
    # Points at which a run stopped are no candidates: a coefficient that sometimes
    # diverges is not one to recommend. Nor are points with less than half the accuracy
    # of the best one: networks that predict one class for everything do not churn.
    # The paper reports the value "with the smallest churn" and not on which split; this
    # is the validation split.
    check_choice("criterion", criterion, CRITERIA)
    quantity = criterion.removesuffix(_AT_ACCURACY).replace("-", "_")
    known = {
        name: (value, summary)
        for name, value, summary in points
        if summary is not None
        and not summary.stopped
        and np.isfinite(getattr(summary, quantity).mean)
    }
    best = [summary.accuracy.mean for _, summary in known.values()]
    best += [] if baseline is None else [baseline.accuracy.mean]
    sound = {
        name: found
        for name, found in known.items()
        if not found[1].accuracy.mean < 0.5 * max(best)
    }
    why: dict[str, list[str]] = {}
    for name, _, summary in points:
        if name not in known:
            halted = summary is not None and summary.stopped
            cause = "runs stopped there" if halted else "they have no numbers"
            why.setdefault(cause, []).append(name)
        elif name not in sound:
            why.setdefault("they learned little", []).append(name)
    said = [f"because {cause}: {', '.join(names)}" for cause, names in why.items()]
    reason = f"no candidates, {'; '.join(said)}" if said else ""
    if criterion.endswith(_AT_ACCURACY):
        if baseline is None:
            return Choice(axis, criterion, None, None, (), "there is no baseline")
        sound = {n: f for n, f in sound.items() if _as_accurate(f[1], baseline)}
    if not sound:
        none = reason or "no value meets the criterion"
        return Choice(axis, criterion, None, None, (), none)
    sign = -1 if quantity == "accuracy" else 1
    name = min(sound, key=lambda name: sign * getattr(sound[name][1], quantity).mean)
    value, chosen = sound[name]
    within = []
    for other, (_, summary) in sound.items():
        difference = paired(quantity, summary, chosen)
        if other != name and abs(difference.difference) <= difference.stderr:
            within.append(other)
    return Choice(axis, criterion, name, value, tuple(within), reason)


def _as_accurate(point: MethodSummary, baseline: MethodSummary) -> bool:
    difference = paired("accuracy", point, baseline)
    return difference.difference >= -np.nan_to_num(difference.stderr)
