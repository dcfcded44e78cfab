"""The report of a sweep: `report.html`, `table.md`, `table.csv` and PNG figures."""

import io
from collections.abc import Sequence

import numpy as np
from rich.console import Console

from churn_compare.documents import (
    Column,
    Document,
    Figure,
    Grid,
    Records,
    Section,
    Table,
    Text,
    bullets,
    print_document,
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
from churn_jax.configuration.record import ProgramRecord
from churn_jax.reports import charts
from churn_jax.reports.cells import ABSENT, difference_fields, estimate_fields
from churn_jax.reports.charts import Across, Chart, Level, Line, Panel, Point
from churn_jax.reports.compare import paired
from churn_jax.reports.quantities import QUANTITIES, Quantity, shown_columns
from churn_jax.reports.report import SETS, of_all_runs
from churn_jax.reports.run_facts import page_facts, run_section
from churn_jax.reports.sweep import (
    CRITERIA,
    SPLITS,
    AxisResult,
    PointResult,
    SweepResult,
    collect_sweep,
)

WIDE = 120  # columns of a terminal that shows the whole tables
FIRST = 2  # quantities that every terminal shows
CHOSEN, WITHIN = "*", "~"
UNSEEN = (
    "Choices look at the validation split only; the test numbers are shown and never "
    "used."
)
_DEFAULT = ("accuracy", "churn", "surrogate_churn")
_DEFAULT += ("entropy", "confidence", "nll", "ece")
_PANELS = ("entropy", "accuracy", "churn", "confidence")
_LOG_FROM = 15.0  # largest by smallest value, from where the axis is logarithmic
_DPI = 200
# Of the best accuracy: points below it, or with stopped runs, set no scale.
_BROKEN = 0.9


def quantities(result: SweepResult) -> tuple[Quantity, ...]:
    """What the tables show of each point: the study's columns, accuracy first."""
    named = shown_columns(result.record.config.columns)
    if not named:
        return tuple(QUANTITIES[name] for name in _DEFAULT)
    return tuple(sorted(named, key=lambda q: not q.narrow))


def write_sweep(folder) -> SweepResult:
    """Writes `table.md`, `table.csv`, `report.html` and PNG figures of a sweep.

    Args:
        folder: of the sweep; it may be unfinished.

    Returns:
        The `SweepResult`; its `files` map names to the paths written.

    Raises:
        ReportError: there is no usable `sweep.json`.
        OSError: a file could not be written; an earlier one is left as it was.
    """
    result = collect_sweep(folder)
    document = sweep_document(result)
    contents: dict[str, str | bytes] = {**table_files(document)}
    for name, figure in page_figures(document.blocks).items():
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=_DPI, facecolor="white")
        contents[f"{name}.png"] = out.getvalue()
    result.files.update(write_files(result.folder, contents))
    return result


def print_sweep(result: SweepResult, console: Console | None = None) -> None:
    """Choices and tables in the terminal; a narrow one gets fewer columns.

    Args:
        result: from `run_sweep` or `collect_sweep`.
        console: where to; the standard output by default.
    """
    print_document(sweep_document(result).as_lines(), console)


def sweep_document(result: SweepResult) -> Document:
    """The choices, and a table for every axis and split."""
    record = result.record
    choices = [choice_sentence(result, axis) for axis in result.axes]
    notes = [Text(remark, "note") for remark in _remarks(result)]
    rule = f"The rule: {CRITERIA[record.criterion]}. {UNSEEN}"
    programs = "; ".join(map(_program, record.programs))
    shown = quantities(result)
    sets = SETS if QUANTITIES["prediction_difference"] in shown else ""
    caption = (
        f"Mean ± standard deviation over {record.seeds} seeds, or over all pairs of "
        f"them (churn, SChurn). {sets}{of_all_runs(shown)}{CHOSEN} chosen; {WITHIN} "
        f"within one standard error of it, paired by seed. {UNSEEN}"
    )
    return Document(
        record.title,
        page_facts(record, f"{record.seeds} seeds per value"),
        [
            Section("Choice", [Text(rule), bullets(choices), *notes]),
            Section("Figures", [Grid(sweep_figures(result))]),
            Section("", [Text(caption, "soft")]),
            *(
                Section(axis.title, [_table(result, axis, split) for split in SPLITS])
                for axis in result.axes
            ),
            run_section(record, {"Programs": programs}),
        ],
        record.launch.command,
        data=_records(result),
    )


def choice_sentence(result: SweepResult, axis: AxisResult) -> str:
    """What was picked on an axis, by which rule, and how sure that is."""
    choice = axis.choice
    if choice.point is None:
        return f"{axis.title}: nothing is chosen ({choice.reason})."
    text = f"{axis.title}: {choice.value:g} has {CRITERIA[choice.criterion]}"
    chosen = next(p for p in axis.points if p.name == choice.point)
    if result.baseline is not None:
        against = paired("churn", chosen.validation, result.baseline.validation)
        if np.isfinite(against.difference):
            error = against.stderr
            spread = f" ± {100 * error:.2f}" if np.isfinite(error) else ""
            text += (
                f"; validation churn {100 * against.difference:+.2f}{spread} points "
                "against the baseline"
            )
    if choice.within:
        values = [f"{p.value:g}" for p in axis.points if p.name in choice.within]
        text += (
            f". Not told apart from it (paired difference within one standard error): "
            f"{', '.join(values)}"
        )
    return text + (f". Left out as {choice.reason}." if choice.reason else ".")


def _table(result: SweepResult, axis: AxisResult, split: str) -> Table:
    """Every point of an axis, the baseline first."""
    shown = quantities(result)
    columns = [Column(axis.record.field, "right"), Column("", "center")]
    columns += [
        Column(quantity.heading, from_width=0 if i < FIRST else WIDE)
        for i, quantity in enumerate(shown)
    ]
    points = axis.points
    if result.baseline is not None and result.baseline not in points:
        points = (result.baseline, *points)
    rows = []
    for point in points:
        label = "" if point.value is None else f"{point.value:g}"
        if point is result.baseline:
            label = f"{label} (baseline)".strip()
        mark = CHOSEN if point.name == axis.choice.point else ""
        mark = mark or (WITHIN if point.name in axis.choice.within else "")
        cells = [point.missing, *[ABSENT] * (len(shown) - 1)]
        if (summary := point.on(split)) is not None:
            cells = [q.write(getattr(summary, q.name)) for q in shown]
        rows.append((label, mark, *cells))
    return Table(columns, rows, f"On the {split} split", kind="")


def _remarks(result: SweepResult) -> list[str]:
    """Sentences about stopped runs and missing points."""
    out = []
    for point in result.points:
        if point.validation is not None and point.validation.stopped:
            seeds = ", ".join(map(str, point.validation.stopped))
            out.append(
                f"{point.name}: runs stopped because something was not finite "
                f"(counted from 0: {seeds}); its numbers are over the others."
            )
        if point.missing:
            out.append(f"{point.name} has no numbers: {point.missing}.")
        out += [f"{sentence}." for sentence in point.wrong]
    return out


def _records(result: SweepResult) -> Records:
    """One line per point and split, fractions at full precision; absent is empty."""
    names = [quantity.name for quantity in quantities(result)]
    fields = ["point", "axis", "value", "label", "split", "baseline", "chosen"]
    fields += ["within_one_stderr", "runs", "stopped_runs"]
    for name in names:
        fields += [name, f"{name}_std", f"{name}_stderr"]
    for name in ("churn", "accuracy"):
        fields += [f"delta_{name}", f"delta_{name}_stderr", f"delta_{name}_p"]
    choices = [axis.choice for axis in result.axes]
    lines = []
    for point in result.points:
        line: dict = {
            "point": point.name,
            "axis": point.record.axis,
            "value": point.value,
            "label": point.record.spec.label,
            "baseline": int(point is result.baseline),
            "chosen": int(any(c.point == point.name for c in choices)),
            "within_one_stderr": int(any(point.name in c.within for c in choices)),
        }
        for split in SPLITS:
            numbers = _numbers(result, point, split, names)
            lines.append(line | {"split": split} | numbers)
    return Records(fields, lines)


def _numbers(
    result: SweepResult, point: PointResult, split: str, names: Sequence[str]
) -> dict:
    summary = point.on(split)
    if summary is None:
        return {}
    stopped = " ".join(map(str, summary.stopped))
    line: dict = {"runs": len(summary.runs), "stopped_runs": stopped}
    for name in names:
        line |= estimate_fields(name, getattr(summary, name))
    if result.baseline is not None and point is not result.baseline:
        for name in ("churn", "accuracy"):
            difference = paired(name, summary, result.baseline.on(split))
            line |= difference_fields(f"delta_{name}", difference)
            line[f"delta_{name}_p"] = difference.p
    return line


def _program(program: ProgramRecord) -> str:
    """What one program trained, and how long it took."""
    text = f"{program.name}: {len(program.points)} points"
    if program.seconds is not None:
        text += (
            f", {program.replicas} replicas, {program.networks} networks side by "
            f"side ({program.mapping}), {program.seconds:,.1f} s of which "
            f"{program.compile_seconds:.1f} s compiling"
        )
    return text


def sweep_figures(result: SweepResult) -> list[Figure]:
    """One figure per axis and, where accuracy and churn are there, the trade-off."""
    shown = [a for a in result.axes if any(p.validation is not None for p in a.points)]
    if not shown:
        return []
    broken = _broken(result, shown)
    aside = (
        " Out of the frame, since runs broke down there (the table has them): "
        f"{', '.join(broken)}."
    )
    aside = aside if broken else ""
    return [
        *(_curves(result, axis, broken, aside) for axis in shown),
        *(_trade_off(result, shown, split, broken, aside) for split in SPLITS),
    ]


def _number(point: PointResult | None, split: str, name: str) -> tuple[float, float]:
    """A quantity and its standard error as shown; NaN without."""
    summary = None if point is None else point.on(split)
    if summary is None:
        return np.nan, np.nan
    estimate, scale = getattr(summary, name), QUANTITIES[name].scale
    return scale * estimate.mean, scale * estimate.stderr


def _broken(result: SweepResult, shown: Sequence[AxisResult]) -> list[str]:
    """Names of the points at which runs broke down; figures are not scaled to them."""
    every = [p for axis in shown for p in axis.points]
    every += [result.baseline] if result.baseline else []
    known = {p.name: p.validation for p in every if p.validation is not None}
    best = np.nanmax([summary.accuracy.mean for summary in known.values()])
    return [
        name
        for name, summary in known.items()
        if summary.stopped or not summary.accuracy.mean >= _BROKEN * best
    ]


def _frame(
    points: Sequence[PointResult], broken: Sequence[str], splits, name: str
) -> tuple[float, float] | None:
    """Limits that hold the sound points with their errors; None: Matplotlib's do."""
    if not any(p.name in broken for p in points):
        return None
    sound = [p for p in points if p.name not in broken]
    found = [_number(p, split, name) for p in sound for split in splits]
    ends = [
        y + s * np.nan_to_num(e) for y, e in found if np.isfinite(y) for s in (-1, 1)
    ]
    if not ends or min(ends) == max(ends):
        return None
    margin = 0.1 * (max(ends) - min(ends))
    return min(ends) - margin, max(ends) + margin


def _curves(
    result: SweepResult, axis: AxisResult, broken: Sequence[str], aside: str
) -> Figure:
    """Entropy, accuracy, churn and confidence against the coefficient."""
    values = [p.value for p in axis.points if p.value]
    log = bool(values) and max(values) / min(values) > _LOG_FROM
    points = [p for p in axis.points if p.value or not log]
    framed = [*points, *([result.baseline] if result.baseline else [])]
    panels = []
    for name in _PANELS:
        lines, levels = [], []
        for i, split in enumerate(SPLITS):
            y, error = _number(result.baseline, split, name)
            if np.isfinite(y):
                style = {"color": colour(i), "linestyle": dash(i), "linewidth": 0.8}
                levels.append(Level("", y, error, style, 0.18))
            drawn = [(p.value, *_number(p, split, name)) for p in points]
            drawn = [one for one in drawn if np.isfinite(one[1])]
            x, y, errors = zip(*drawn) if drawn else ((), (), ())
            style = {"markersize": 4.5, "capsize": 2.5}
            lines.append(Line(i, split.capitalize(), x, y, errors, style))
        limits = _frame(framed, broken, SPLITS, name)
        title = QUANTITIES[name].heading
        panels.append(Panel("", lines, levels, title, limits))
    kept = values if len(values) <= 5 else values[:: -(-len(values) // 5)]
    chart = Chart(
        f"curves-{axis.name}",
        axis.title,
        "Bars and bands: one standard error (churn: leaving one seed out). Band: the "
        f"baseline. Dotted line: the value chosen on the validation split.{aside}",
        f"Entropy, accuracy, churn and confidence against {axis.title}",
        (4.8, 4.9),
    )
    across = Across(
        short_label(axis.record.field),
        "log" if log else "linear",
        kept if log else (),
        mark=axis.choice.value,
    )
    return charts.lines(chart, panels, across, columns=2)


def _trade_off(
    result: SweepResult,
    shown: Sequence[AxisResult],
    split: str,
    broken: Sequence[str],
    aside: str,
) -> Figure:
    """Accuracy against churn, one line per axis, the baseline as a star."""

    def place(point: PointResult | None):
        """Churn and accuracy, each with its error."""
        return _number(point, split, "churn"), _number(point, split, "accuracy")

    def behind(axes):
        for i, axis in enumerate(shown):
            points = [p for p in axis.points if p is not result.baseline]
            points = [p for p in points if np.isfinite([y for y, _ in place(p)]).all()]
            found = np.array([place(p) for p in points]).reshape(-1, 2, 2)
            (x, xerr), (y, yerr) = found.transpose(1, 2, 0)
            style = {"xerr": np.nan_to_num(xerr), "elinewidth": 0.8, "capsize": 0}
            error_line(axes, i, x, y, yerr, axis.title, markersize=6, **style)
            for point, left, up in zip(points, x, y, strict=True):
                axes.annotate(
                    f"{point.value:g}",
                    (left, up),
                    xytext=(5, 5) if i % 2 == 0 else (5, -12),
                    textcoords="offset points",
                    color=colour(i),
                    fontsize=8,
                    annotation_clip=True,
                )
                if point.name == axis.choice.point:
                    axes.plot(left, up, "o", ms=13, mfc="none", mec=INK, mew=1.2)
        framed = [p for axis in shown for p in axis.points]
        framed += [result.baseline] if result.baseline else []
        axes.margins(0.1)
        if limits := _frame(framed, broken, (split,), "churn"):
            axes.set_xlim(*limits)
        if limits := _frame(framed, broken, (split,), "accuracy"):
            axes.set_ylim(*limits)

    chart = Chart(
        f"trade-off-{split}",
        f"Accuracy against churn, {split}",
        "One line per coefficient, through its values in order; up and left is better. "
        f"Bars: one standard error. Ringed: chosen on the validation split.{aside}",
        f"Accuracy against churn on the {split} split, one line per coefficient",
        (4.8, 4.4),
    )
    baseline = Point(len(shown), "Baseline", *place(result.baseline))
    x = "Churn %   (less is better)"
    return charts.scatter(chart, [baseline], x, "Accuracy %", behind=behind)
