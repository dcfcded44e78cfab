"""A sweep's report: a study's whose rows are the points, with what was chosen.

Choices look at the validation split only; the numbers of the study's table are those of
the test split, as always, and never used for a choice.
"""

import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from churn_compare.documents import (
    Block,
    Column,
    Figure,
    Grid,
    Section,
    Table,
    Text,
    bullets,
    table_files,
    write_files,
)
from churn_compare.documents.plotting import (
    INK,
    colour,
    dash,
    error_line,
    page_figures,
    short_label,
)
from churn_compare.store import PredictionsError, is_stored, load_predictions
from churn_jax.configuration.record import (
    AxisRecord,
    PointRecord,
    RecordError,
    RowRecord,
    StudyRecord,
    SweepRecord,
    read_record,
)
from churn_jax.configuration.training import MeshShape
from churn_jax.reports import charts
from churn_jax.reports.artefacts import ReportError, Study
from churn_jax.reports.cells import estimate_fields
from churn_jax.reports.charts import Across, Chart, Level, Line, Panel, Point
from churn_jax.reports.compare import paired
from churn_jax.reports.own_columns import with_columns
from churn_jax.reports.quantities import QUANTITIES
from churn_jax.reports.report import Report, collected
from churn_jax.reports.study_report import study_document
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
CHOSEN, WITHIN = "*", "~"
UNSEEN = (
    "Choices look at the validation split only; the test numbers are shown and never "
    "used."
)
_AT_ACCURACY = "-at-accuracy"
_COLUMNS = ("accuracy", "churn", "surrogate_churn")
_COLUMNS += ("entropy", "confidence", "nll", "ece")
_PANELS = ("entropy", "accuracy", "churn", "confidence")
_LOG_FROM = 15.0  # largest by smallest value, from where the axis is logarithmic
_DPI = 200
# Of the best accuracy: points below it, or with stopped runs, are in no figure.
_BROKEN = 0.9


@dataclasses.dataclass(frozen=True)
class Choice:
    """The choice on one axis."""

    axis: str  # name of the axis
    criterion: str  # one of `CRITERIA`
    point: str | None  # name of the chosen point; None where none could be
    value: float | None  # of the coefficient there
    # names of the other points that are within one standard error of the chosen one,
    # paired by seed: the data do not tell them apart from it
    within: tuple[str, ...] = ()
    reason: str = ""  # why there is no choice, or which points were no candidates


@dataclasses.dataclass(frozen=True)
class SweepResult(Report):
    """A sweep's numbers and choices; `rows` are its points on the test split.

    Attributes:
        record: `sweep.json`.
        validation: name of a point to its numbers on the validation split.
        choices: what the criterion picks, by axis.
    """

    record: SweepRecord = dataclasses.field(kw_only=True)
    validation: Mapping[str, MethodSummary] = dataclasses.field(kw_only=True)
    choices: Mapping[str, Choice] = dataclasses.field(kw_only=True)

    def choice(self, axis: str) -> Choice:
        """The choice on the axis called `axis`."""
        if axis not in self.choices:
            names = ", ".join(self.choices)
            raise ValueError(f"the sweep has no axis {axis!r}; it has: {names}")
        return self.choices[axis]

    def points(self, axis: AxisRecord) -> list[PointRecord]:
        """Those of an axis, the smallest value first."""
        found = [point for point in self.record.points if point.axis == axis.name]
        return sorted(found, key=lambda point: point.value or 0.0)

    @property
    def best(self) -> str:
        """Nothing: what is best on the test split is not to be chosen."""
        return ""

    @property
    def few(self) -> str:
        """As of a study, with the option of a sweep."""
        return super().few.replace("--replicas", "--seeds")

    @property
    def first_sections(self) -> list[Section]:
        """The choices, what they are made by, and the figures of every axis."""
        rule = f"The rule: {CRITERIA[self.record.criterion]}. {UNSEEN}"
        said = [choice_sentence(self, axis) for axis in self.record.axes]
        lacking = [p.name for p in self.record.points if p.name not in self.validation]
        blocks: list[Block] = [Text(rule), bullets(said)]
        if lacking:
            text = f"Without numbers on the validation split: {', '.join(lacking)}."
            blocks.append(Text(text, "note"))
        blocks += [_validation_table(self, axis) for axis in self.record.axes]
        return [Section("Choice", [*blocks, Grid(sweep_figures(self))])]

    def more(self, name: str) -> dict:
        """What the CSV has of a point in addition to its numbers on the test split."""
        point = next(point for point in self.record.points if point.name == name)
        choices = self.choices.values()
        found = {
            "axis": point.axis,
            "value": point.value,
            "chosen": int(any(c.point == name for c in choices)),
            "within_one_stderr": int(any(name in c.within for c in choices)),
        }
        summary = self.validation.get(name)
        for quantity in self.columns if summary else ():
            estimate = getattr(summary, quantity.name)
            found |= estimate_fields(f"validation_{quantity.name}", estimate)
        return found


def collect_sweep(folder) -> SweepResult:
    """Reads a sweep's folder, computes every point's numbers and the choices.

    A sweep that is still running is read as far as it is.

    Args:
        folder: folder of the sweep.

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
        raise ReportError(f"{path} is not a sweep's record")
    report = collected(_as_study(folder, record))
    names = [quantity.name for quantity in report.columns]
    validation, wrong = {}, []
    for point in record.points:
        file = report.study.file(point.name, "validation")
        if is_stored(file):
            try:
                predictions = load_predictions(file)
                found = with_columns(summarize(predictions), predictions, names)
                validation[point.name], _ = found
            except PredictionsError as error:
                wrong.append(f"{file}: {' '.join(str(error).split())}.")
    start = validation.get(record.baseline or "")
    choices = {}
    for axis in record.axes:
        # A weight of 0 is not a candidate; the preset's own learning rate is.
        candidates = [
            (point.name, point.value or 0.0, validation.get(point.name))
            for point in record.points
            if point.axis == axis.name
            and (
                axis.field.startswith("optimizer.")
                or not (point.name == record.baseline or point.is_baseline)
            )
        ]
        choices[axis.name] = choose(axis.name, candidates, start, record.criterion)
    fields = {f.name: getattr(report, f.name) for f in dataclasses.fields(report)}
    fields["unreadable"] += tuple(wrong)
    return SweepResult(**fields, record=record, validation=validation, choices=choices)


def _as_study(folder: Path, record: SweepRecord) -> Study:
    """The points as rows of a study, the baseline first."""
    axes = {axis.name: axis for axis in record.axes}
    rows = []
    for point in sorted(record.points, key=lambda point: point.name != record.baseline):
        label = point.spec.label
        if point.axis in axes and point.value is not None:
            axis = axes[point.axis]
            set_to = {axis.field: point.value, **axis.fixed}
            words = ", ".join(f"{name} = {value:g}" for name, value in set_to.items())
            label = f"{axis.label}: {words}"
        label += " (baseline)" if point.name == record.baseline else ""
        spec = dataclasses.replace(point.spec, name=point.name, label=label)
        trained = is_stored(folder / "points" / point.name / "test.npz")
        rows.append(RowRecord(point.name, label, spec, trained=trained))
    config = record.config
    # Without a baseline of the sweep the study's has no row, and nothing is compared.
    specs = tuple(row.spec for row in rows)
    known = [] if record.baseline else [config.spec(config.baseline)]
    known += [teacher for point in record.points for teacher in point.dependencies]
    others = {spec.name: spec for spec in known if spec not in specs}
    train = dataclasses.replace(
        config.train, replicas=record.seeds, seed_numbers=(), mesh=MeshShape()
    )
    config = dataclasses.replace(
        config,
        title=record.title,
        train=train,
        methods=(*others.values(), *specs),
        baseline=record.baseline or config.baseline,
        columns=config.columns or _COLUMNS,
        updates=(),
        published="",
    )
    study = StudyRecord(config, record.data, record.launch, methods=tuple(rows))
    files = {split: f"points/{{}}/{split}.npz" for split in SPLITS}
    return Study(folder, study, tuple(rows), files=files)


def write_sweep(folder) -> SweepResult:
    """Writes `table.md`, `table.csv`, `report.html` and PNG figures of a sweep.

    Args:
        folder: folder of the sweep; it may be unfinished.

    Returns:
        The `SweepResult`; its `files` map names to the paths written.

    Raises:
        ReportError: there is no usable `sweep.json`.
        OSError: a file could not be written; an earlier one is left as it was.
    """
    result = collect_sweep(folder)
    contents: dict[str, str | bytes] = {**table_files(study_document(result))}
    for name, figure in page_figures(sweep_figures(result)).items():
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=_DPI, facecolor="white")
        contents[f"{name}.png"] = out.getvalue()
    result.files.update(write_files(result.study.folder, contents))
    return result


def choose(
    axis: str,
    points: Sequence[tuple[str, float, MethodSummary | None]],
    baseline: MethodSummary | None,
    criterion: str = "churn",
) -> Choice:
    """The best point of an axis by its validation numbers."""
    # Points at which a run stopped are not candidates: a coefficient that sometimes
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


def axis_title(axis: AxisRecord) -> str:
    """`Co-distill SKL: beta`, with what is held fixed."""
    held = "".join(f", {k} = {v:g}" for k, v in axis.fixed.items())
    return f"{axis.label}: {axis.field}{held}"


def choice_sentence(result: SweepResult, axis: AxisRecord) -> str:
    """What was picked on an axis, by which rule, and how sure that is."""
    choice, title = result.choices[axis.name], axis_title(axis)
    if choice.point is None:
        return f"{title}: nothing is chosen ({choice.reason})."
    text = f"{title}: {choice.value:g} has {CRITERIA[choice.criterion]}"
    start = result.validation.get(result.record.baseline or "")
    against = paired("churn", result.validation[choice.point], start)
    if np.isfinite(against.difference):
        error = against.stderr
        spread = f" ± {100 * error:.2f}" if np.isfinite(error) else ""
        text += (
            f"; validation churn {100 * against.difference:+.2f}{spread} points "
            "against the baseline"
        )
    if choice.within:
        points = result.points(axis)
        values = [f"{p.value:g}" for p in points if p.name in choice.within]
        text += (
            f". Not told apart from it (paired difference within one standard error): "
            f"{', '.join(values)}"
        )
    return text + (f". Left out as {choice.reason}." if choice.reason else ".")


def _validation_table(result: SweepResult, axis: AxisRecord) -> Table:
    """Every point of an axis that has numbers on the validation split."""
    choice = result.choices[axis.name]
    points = result.points(axis)
    base = [p for p in result.record.points if p.name == result.record.baseline]
    rows = []
    for point in [*(p for p in base if p not in points), *points]:
        if (summary := result.validation.get(point.name)) is None:
            continue
        value = "" if point.value is None else f"{point.value:g}"
        label = f"{value} (baseline)".strip() if point in base else value
        mark = CHOSEN if point.name == choice.point else ""
        mark = mark or (WITHIN if point.name in choice.within else "")
        cells = [q.write(getattr(summary, q.name)) for q in result.columns]
        rows.append((label, mark, *cells))
    columns = [Column(axis.field, "right"), Column("", "center")]
    columns += [
        Column(q.heading, from_width=0 if q.narrow else 120) for q in result.columns
    ]
    caption = (
        f"On the validation split, over {result.record.seeds} seeds. {CHOSEN} chosen; "
        f"{WITHIN} within one standard error of it, paired by seed."
    )
    return Table(columns, rows, axis_title(axis), caption, kind="")


def sweep_figures(result: SweepResult) -> list[Figure]:
    """One figure per axis, and accuracy against churn on the validation split."""
    known = result.validation
    if not known:
        return []
    best = np.nanmax([summary.accuracy.mean for summary in known.values()])
    broken = [
        name
        for name, summary in known.items()
        if summary.stopped or not summary.accuracy.mean >= _BROKEN * best
    ]
    aside = f" Left out, since runs broke down there: {', '.join(broken)}."
    aside = aside if broken else ""
    every = {axis.name: result.points(axis) for axis in result.record.axes}
    shown = {k: [p for p in v if p.name not in broken] for k, v in every.items()}
    axes = [(axis, shown[axis.name]) for axis in result.record.axes]
    curves = [_curves(result, axis, points, aside) for axis, points in axes]
    return [*curves, _trade_off(result, axes, aside)]


def _number(
    result: SweepResult, name: str | None, split: str, quantity: str
) -> tuple[float, float]:
    """A quantity and its standard error as shown; NaN without."""
    rows = {row.info.name: row.summary for row in result.rows}
    summary = (result.validation if split == "validation" else rows).get(name or "")
    if summary is None:
        return np.nan, np.nan
    estimate, scale = getattr(summary, quantity), QUANTITIES[quantity].scale
    return scale * estimate.mean, scale * estimate.stderr


def _curves(
    result: SweepResult, axis: AxisRecord, points: Sequence[PointRecord], aside: str
) -> Figure:
    """Entropy, accuracy, churn and confidence against the coefficient."""
    values = [point.value for point in points if point.value]
    log = bool(values) and max(values) / min(values) > _LOG_FROM
    points = [point for point in points if point.value or not log]
    panels = []
    for name in _PANELS:
        lines, levels = [], []
        for i, split in enumerate(SPLITS):
            y, error = _number(result, result.record.baseline, split, name)
            if np.isfinite(y):
                style = {"color": colour(i), "linestyle": dash(i), "linewidth": 0.8}
                levels.append(Level("", y, error, style, 0.18))
            drawn = [(p.value, *_number(result, p.name, split, name)) for p in points]
            drawn = [one for one in drawn if np.isfinite(one[1])]
            x, y, errors = zip(*drawn) if drawn else ((), (), ())
            style = {"markersize": 4.5, "capsize": 2.5}
            lines.append(Line(i, split.capitalize(), x, y, errors, style))
        panels.append(Panel("", lines, levels, QUANTITIES[name].heading))
    choice, title = result.choices[axis.name], axis_title(axis)
    chart = Chart(
        f"curves-{axis.name}",
        title,
        "Bars and bands: one standard error (churn: leaving one seed out). Band: the "
        f"baseline. Dotted line: the value chosen on the validation split.{aside}",
        f"Entropy, accuracy, churn and confidence against {title}",
        (4.8, 4.9),
    )
    across = Across(
        short_label(axis.field),
        "log" if log else "linear",
        values[:: max(1, -(-len(values) // 5))] if log else (),
        mark=choice.value,
    )
    return charts.lines(chart, panels, across, columns=2)


def _trade_off(
    result: SweepResult,
    shown: Sequence[tuple[AxisRecord, list[PointRecord]]],
    aside: str,
) -> Figure:
    """Accuracy against churn, one line per axis, the baseline as a point."""

    def place(name: str | None) -> tuple[tuple[float, float], tuple[float, float]]:
        """Churn and accuracy, each with its error."""
        split = "validation"
        churn = _number(result, name, split, "churn")
        return churn, _number(result, name, split, "accuracy")

    def behind(axes):
        for i, (axis, points) in enumerate(shown):
            points = [p for p in points if p.name != result.record.baseline]
            points = [p for p in points if p.name in result.validation]
            found = np.array([place(p.name) for p in points]).reshape(-1, 2, 2)
            (x, xerr), (y, yerr) = found.transpose(1, 2, 0)
            style = {"xerr": np.nan_to_num(xerr), "elinewidth": 0.8, "capsize": 0}
            error_line(axes, i, x, y, yerr, axis_title(axis), markersize=6, **style)
            for point, left, up in zip(points, x, y, strict=True):
                offset = {"textcoords": "offset points", "fontsize": 8}
                offset |= {"xytext": (5, -12 if i % 2 else 5), "color": colour(i)}
                axes.annotate(f"{point.value:g}", (left, up), **offset)
                if point.name == result.choices[axis.name].point:
                    axes.plot(left, up, "o", ms=13, mfc="none", mec=INK, mew=1.2)

    chart = Chart(
        "trade-off-validation",
        "Accuracy against churn, validation",
        "One line per coefficient, through its values in order; up and left is better. "
        f"Bars: one standard error. Ringed: chosen.{aside}",
        "Accuracy against churn on the validation split, one line per coefficient",
        (4.8, 4.4),
    )
    baseline = Point(len(shown), "Baseline", *place(result.record.baseline))
    x = "Churn %   (less is better)"
    return charts.scatter(
        chart, [baseline], x, "Accuracy %", margins=0.1, behind=behind
    )
