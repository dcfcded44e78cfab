"""The report of a sweep: a study's whose rows are the points, and the choice.

Choices look at the validation split only; the numbers of the study's table are those of
the test split, as always, and never used for a choice.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from churn_compare.documents import Block, Column, Figure, Grid, Section, Table, Text
from churn_compare.documents import bullets as bullet_list
from churn_compare.documents.plotting import (
    INK,
    colour,
    dash,
    error_line,
    level,
    short_label,
)
from churn_compare.store import is_stored
from churn_jax.configuration.record import AxisRecord, PointRecord, SweepRecord
from churn_jax.reports.artefacts import Study
from churn_jax.reports.charts import Chart
from churn_jax.reports.estimates import COMPARED, paired
from churn_jax.reports.quantities import QUANTITIES, estimate_fields, plus_minus
from churn_jax.reports.report import Report, collected
from churn_jax.reports.summary import MethodSummary
from churn_jax.setting_checks import check_choice

SPLITS = ("validation", "test")
_AT_ACCURACY = "-at-accuracy"
_CLOSE = (
    "among the values whose validation accuracy, or log loss of clicks, is at most one "
    "standard error worse than the baseline's"
)
CRITERIA = {
    "churn": "the lowest validation churn",
    "accuracy": "the highest validation accuracy",
    "churn-at-accuracy": f"the lowest validation churn {_CLOSE}",
    "prediction-difference": "the lowest validation Δ₁",
    "prediction-difference-at-accuracy": f"the lowest validation Δ₁ {_CLOSE}",
}
CHOSEN, WITHIN = "*", "~"
_PANELS = ("entropy", "accuracy", "churn", "confidence")
_LOG_FROM = 15.0  # largest by smallest value, from where the axis is logarithmic
# Of the best accuracy: points below it, or with stopped runs, are in no figure.
_BROKEN = 0.9


@dataclasses.dataclass(frozen=True)
class Choice:
    """The choice on one axis."""

    point: str | None = None  # name of the chosen point; None where none could be
    value: float | None = None  # of the coefficient there
    # names of the other points that are within one standard error of the chosen one,
    # paired by seed, or without one: the data do not tell them apart from it
    within: tuple[str, ...] = ()
    reason: str = ""  # why there is no choice, or which points were no candidates


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep's results besides the numbers of its points on the test split."""

    record: SweepRecord  # the axes and the points
    validation: Mapping[str, MethodSummary]  # a point's numbers on that split, by name
    choices: Mapping[str, Choice]  # what the criterion picks, by axis

    def points(self, axis: AxisRecord) -> list[PointRecord]:
        """Those of an axis, the smallest value first."""
        found = [point for point in self.record.points if point.axis == axis.name]
        return sorted(found, key=lambda point: point.value or 0.0)


def collect_sweep(study: Study, record: SweepRecord) -> Report:
    """The report of a sweep, as far as it has been trained."""
    # Without the rows that only teach, the baseline first.
    rows = {row.name: row for row in study.record.rows()}
    names = sorted((p.name for p in record.points), key=lambda n: n != record.baseline)
    methods = tuple(rows[name] for name in names)
    points = dataclasses.replace(study, methods=methods)
    report, held_out = (collected(points, split) for split in ("test", "validation"))
    validation = {row.info.name: row.summary for row in held_out.rows}
    start = validation.get(record.baseline or "")
    wrong = {
        f"{lost.reason}.": lost.damaged
        for lost in held_out.missing
        if is_stored(points.file(lost.info.name, "validation"))
    }
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
        choices[axis.name] = choose(candidates, start, record.criterion, report.quality)
    return dataclasses.replace(
        report,
        unreadable={**report.unreadable, **held_out.unreadable, **wrong},
        sweep=Sweep(record, validation, choices),
    )


def choose(
    points: Sequence[tuple[str, float, MethodSummary | None]],
    baseline: MethodSummary | None,
    criterion: str = "churn",
    quality: str = "accuracy",
) -> Choice:
    """The best point of an axis by its validation numbers.

    At equal accuracy, if the criterion asks for it; `quality` is "nll" of clicks.
    """
    # Points at which a run stopped are not candidates: a coefficient that sometimes
    # diverges is not one to recommend. Nor are points with less than half the accuracy
    # of the best one: networks that predict one class for everything do not churn.
    # The paper reports the value "with the smallest churn" and not on which split; this
    # is the validation split.
    check_choice("criterion", criterion, CRITERIA)
    quantity = criterion.removesuffix(_AT_ACCURACY).replace("-", "_")
    why: dict[str, list[str]] = {}
    known: dict[str, MethodSummary] = {}
    for name, _, summary in points:
        if summary is not None and summary.stopped:
            why.setdefault("runs stopped there", []).append(name)
        elif summary is None or not np.isfinite(getattr(summary, quantity).mean):
            why.setdefault("they have no numbers", []).append(name)
        else:
            known[name] = summary
    best = [of.accuracy.mean for of in (*known.values(), baseline) if of is not None]
    for name, summary in [*known.items()]:
        if summary.accuracy.mean < 0.5 * max(best):
            why.setdefault("they learned little", []).append(name)
            del known[name]
    reason = "; ".join(f"{', '.join(n)}, because {cause}" for cause, n in why.items())
    if criterion.endswith(_AT_ACCURACY):
        if baseline is None:
            return Choice(reason="there is no baseline")
        changes = {name: paired(quality, of, baseline) for name, of in known.items()}
        worse = -1 if quality == "accuracy" else 1
        known = {
            name: known[name]
            for name, change in changes.items()
            if worse * change.difference <= np.nan_to_num(change.stderr)
        }
    if not known:
        without = f"; left out: {reason}" if reason else ""
        return Choice(reason=f"no value meets the criterion{without}")
    sign = -1 if quantity == "accuracy" else 1
    chosen = min(known, key=lambda name: sign * getattr(known[name], quantity).mean)
    value = next(value for name, value, _ in points if name == chosen)
    away = {name: paired(quantity, of, known[chosen]) for name, of in known.items()}
    within = [
        name
        for name, change in away.items()
        if name != chosen and not abs(change.difference) > change.stderr
    ]
    return Choice(chosen, value, tuple(within), reason)


def choice_section(report: Report) -> Section:
    """The choices, what they are made by, and the figures of every axis."""
    if (sweep := report.sweep) is None:
        return Section("", [])
    record = sweep.record
    rule = (
        f"The rule: {CRITERIA[record.criterion]}. Choices look at the validation split "
        "only; the test numbers are shown and never used."
    )
    said = [_choice_sentence(sweep, axis) for axis in record.axes]
    lacking = [p.name for p in record.points if p.name not in sweep.validation]
    none = f"Without numbers on the validation split: {', '.join(lacking)}."
    blocks: list[Block] = [Text(rule), bullet_list(said)]
    blocks += [Text(none, "note")] if lacking else []
    blocks += [_validation_table(report, sweep, axis) for axis in record.axes]
    return Section("Choice", [*blocks, Grid(sweep_figures(report))])


def sweep_fields(report: Report, name: str) -> dict:
    """A point's columns in the CSV, besides its numbers on the test split."""
    if (sweep := report.sweep) is None:
        return {}
    point = next(point for point in sweep.record.points if point.name == name)
    choices = sweep.choices.values()
    found = {
        "axis": point.axis,
        "value": point.value,
        "chosen": int(any(c.point == name for c in choices)),
        "within_one_stderr": int(any(name in c.within for c in choices)),
    }
    summary = sweep.validation.get(name)
    for quantity in report.columns if summary else ():
        estimate = getattr(summary, quantity.name)
        found |= estimate_fields(f"validation_{quantity.name}", estimate)
    return found


def _axis_title(axis: AxisRecord) -> str:
    return f"{axis.label}: {axis.field}"


def _choice_sentence(sweep: Sweep, axis: AxisRecord) -> str:
    """The value picked on an axis, by which rule, and how sure that is."""
    choice, title = sweep.choices[axis.name], _axis_title(axis)
    if choice.point is None:
        return f"{title}: nothing is chosen ({choice.reason})."
    criterion = sweep.record.criterion
    quantity = criterion.removesuffix(_AT_ACCURACY).replace("-", "_")
    text = f"{title}: of the candidates, {choice.value:g} has {CRITERIA[criterion]}"
    start = sweep.validation.get(sweep.record.baseline or "")
    for name in dict.fromkeys((quantity, "churn")):
        found = paired(name, sweep.validation[choice.point], start)
        what, _, points = COMPARED[name]
        scale, digits, unit = (100, 2, " points") if points else (1, 4, "")
        values = scale * found.difference, scale * found.stderr
        if np.isfinite(found.difference):
            value = plus_minus(*values, digits, "+")
            text += f"; validation {what} {value}{unit} against the baseline"
    if choice.within:
        points = sweep.points(axis)
        values = [f"{p.value:g}" for p in points if p.name in choice.within]
        text += (
            ". Not told apart from it (paired difference not above one standard "
            f"error): {', '.join(values)}"
        )
    return text + (f". Left out: {choice.reason}." if choice.reason else ".")


def _validation_table(report: Report, sweep: Sweep, axis: AxisRecord) -> Table:
    """Every point of an axis that has numbers on the validation split."""
    choice, points = sweep.choices[axis.name], sweep.points(axis)
    base = [p for p in sweep.record.points if p.name == sweep.record.baseline]
    rows, seeds = [], set()
    for point in [*(p for p in base if p not in points), *points]:
        if (summary := sweep.validation.get(point.name)) is None:
            continue
        seeds.add(len(summary.runs))
        value = "" if point.value is None else f"{point.value:g}"
        label = f"{value} (baseline)".strip() if point in base else value
        mark = WITHIN if point.name in choice.within else ""
        mark = CHOSEN if point.name == choice.point else mark
        cells = [quantity.cell(summary) for quantity in report.columns]
        rows.append((label, mark, *cells))
    columns = [Column(axis.field, "right"), Column("", "center")]
    columns += [quantity.column(120) for quantity in report.columns]
    ends = min(seeds, default=0), max(seeds, default=0)
    over = " to ".join(map(str, sorted({*ends})))
    caption = (
        f"On the validation split, over {over} seeds. {CHOSEN} chosen; "
        f"{WITHIN} within one standard error of it, paired by seed."
    )
    return Table(columns, rows, _axis_title(axis), caption, kind="")


def sweep_figures(report: Report) -> list[Figure]:
    """One figure per axis."""
    sweep = report.sweep
    if sweep is None or not (known := sweep.validation):
        return []
    best = np.nanmax([summary.accuracy.mean for summary in known.values()])
    broken = [
        name
        for name, summary in known.items()
        if summary.stopped or not summary.accuracy.mean >= _BROKEN * best
    ]
    summaries = {
        "validation": known,
        "test": {row.info.name: row.summary for row in report.rows},
    }

    def number(name: str | None, split: str, quantity: str) -> tuple[float, float]:
        """A quantity and its standard error as shown; NaN without."""
        summary = summaries[split].get(name or "")
        return QUANTITIES[quantity].shown(summary) if summary else (np.nan, np.nan)

    return [_curves(sweep, axis, broken, number) for axis in sweep.record.axes]


def _curves(sweep: Sweep, axis: AxisRecord, broken: Sequence[str], number) -> Figure:
    """Entropy, accuracy, churn and confidence against the coefficient."""
    gone = [point.name for point in sweep.points(axis) if point.name in broken]
    points = [point for point in sweep.points(axis) if point.name not in gone]
    why = " Left out (a run stopped, or accuracy below 90 % of the best):"
    aside = f"{why} {', '.join(gone)}." if gone else ""
    values = [point.value for point in points if point.value]
    log = bool(values) and max(values) / min(values) > _LOG_FROM
    points = [point for point in points if point.value or not log]

    def draw(*every):
        for axes, name in zip(every, _PANELS, strict=True):
            for i, split in enumerate(SPLITS):
                y, error = number(sweep.record.baseline, split, name)
                if np.isfinite(y):
                    style = {"color": colour(i), "linestyle": dash(i), "linewidth": 0.8}
                    level(axes, y, error, alpha=0.18, **style)
            for i, split in enumerate(SPLITS):
                known = [(p.value or 0.0, *number(p.name, split, name)) for p in points]
                known = [one for one in known if np.isfinite(one[1])]
                x, y, errors = np.array(known).reshape(-1, 3).T
                style = {"markersize": 4.5, "capsize": 2.5}
                error_line(axes, i, x, y, errors, split.capitalize(), **style)
            axes.set_title(QUANTITIES[name].heading, fontsize=10)
            if (mark := sweep.choices[axis.name].value) is not None:
                axes.axvline(mark, color=INK, linewidth=1.0, linestyle=":")
        for axes in every[2:]:
            axes.set(xscale="log" if log else "linear", xlabel=short_label(axis.field))
            if log:  # ticks at some of these values alone; none of the scale's own
                shown = values[:: max(1, -(-len(values) // 5))]
                axes.set_xticks(shown, [f"{value:g}" for value in shown])
                axes.minorticks_off()

    title = _axis_title(axis)
    chart = Chart(
        f"curves-{axis.name}",
        title,
        "Bars and bands: one standard error (churn: leaving one seed out). Band: the "
        f"baseline. Dotted line: the value chosen on the validation split.{aside}",
        f"Entropy, accuracy, churn and confidence against {title}",
        (4.8, 4.9),
    )
    return chart.of(draw, 2, 2)
