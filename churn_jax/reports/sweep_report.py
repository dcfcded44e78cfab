"""The report of a sweep: `report.html`, `table.md`, `table.csv` and PNG figures."""

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
from churn_jax.configuration.record import ProgramRecord
from churn_jax.reports.cells import difference_fields, estimate_fields
from churn_jax.reports.compare import paired
from churn_jax.reports.quantities import QUANTITIES, Quantity, shown_columns
from churn_jax.reports.report import SETS, of_all_runs
from churn_jax.reports.run_facts import page_facts, run_section
from churn_jax.reports.selection import CRITERIA
from churn_jax.reports.sweep import (
    SPLITS,
    AxisResult,
    PointResult,
    SweepResult,
    collect_sweep,
)
from churn_jax.reports.sweep_figures import sweep_figures

WIDE = 120  # columns of a terminal that shows the whole tables
FIRST = 2  # quantities that every terminal shows
CHOSEN, WITHIN = "*", "~"
UNSEEN = (
    "Choices look at the validation split only; the test numbers are shown and never "
    "used."
)
_DEFAULT = ("accuracy", "churn", "surrogate_churn")
_DEFAULT += ("entropy", "confidence", "nll", "ece")


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
    figures = sweep_figures(result)
    contents = table_files(sweep_document(result, figures))
    pictures = {f"{figure.name}.png": figure.png for figure in figures}
    result.files.update(write_files(result.folder, contents | pictures))
    return result


def print_sweep(result: SweepResult, console: Console | None = None) -> None:
    """Choices and tables in the terminal; a narrow one gets fewer columns.

    Args:
        result: from `run_sweep` or `collect_sweep`.
        console: where to; the standard output by default.
    """
    print_document(sweep_document(result).as_lines(), console)


def sweep_document(result: SweepResult, figures: Sequence[Figure] = ()) -> Document:
    """The choices, and a table for every axis and split."""
    choices = [choice_sentence(result, axis) for axis in result.axes]
    notes = [Text(remark, "note") for remark in _remarks(result)]
    rule = f"The rule: {CRITERIA[result.record.criterion]}. {UNSEEN}"
    programs = "; ".join(map(_program, result.record.programs))
    return Document(
        result.title,
        page_facts(result.record, f"{result.seeds} seeds per value"),
        [
            Section("Choice", [Text(rule), bullets(choices), *notes]),
            Section("Figures", [Grid(figures)]),
            Section("", [Text(_caption(result), "soft")]),
            *(
                Section(axis.title, [_table(result, axis, split) for split in SPLITS])
                for axis in result.axes
            ),
            run_section(result.record, {"Programs": programs}),
        ],
        result.record.launch.command,
        data=_records(result),
    )


def choice_sentence(result: SweepResult, axis: AxisResult) -> str:
    """What was picked on an axis, by which rule, and how sure that is."""
    choice = axis.choice
    rule = CRITERIA[choice.criterion]
    if choice.point is None:
        return f"{axis.title}: nothing is chosen ({choice.reason})."
    text = f"{axis.title}: {choice.value:g} has {rule}"
    chosen = next(p for p in axis.points if p.name == choice.point)
    if result.baseline is not None:
        against = paired("churn", chosen.validation, result.baseline.validation)
        if np.isfinite(against.difference):
            spread = ""
            if np.isfinite(against.stderr):
                spread = f" ± {100 * against.stderr:.2f}"
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


def _caption(result: SweepResult) -> str:
    """What the tables' numbers are."""
    shown = quantities(result)
    sets = SETS if "prediction_difference" in [q.name for q in shown] else ""
    sets += of_all_runs(shown)
    return (
        f"Mean ± standard deviation over {result.seeds} seeds, or over all pairs of "
        f"them (churn, SChurn). {sets}{CHOSEN} chosen; {WITHIN} within one standard "
        f"error of it, paired by seed. {UNSEEN}"
    )


def _table(result: SweepResult, axis: AxisResult, split: str) -> Table:
    """Every point of an axis, the baseline first."""
    columns = [Column(axis.field, "right"), Column("", "center")]
    columns += [
        Column(quantity.heading, from_width=0 if i < FIRST else WIDE)
        for i, quantity in enumerate(quantities(result))
    ]
    points = axis.points
    if result.baseline is not None and result.baseline not in points:
        points = (result.baseline, *points)
    rows = [
        (_label(result, point), _mark(axis, point), *_cells(result, point, split))
        for point in points
    ]
    return Table(columns, rows, f"On the {split} split", kind="")


def _label(result: SweepResult, point: PointResult) -> str:
    value = "" if point.value is None else f"{point.value:g}"
    return f"{value} (baseline)".strip() if point is result.baseline else value


def _mark(axis: AxisResult, point: PointResult) -> str:
    if point.name == axis.choice.point:
        return CHOSEN
    return WITHIN if point.name in axis.choice.within else ""


def _cells(result: SweepResult, point: PointResult, split: str) -> list[str]:
    summary, shown = point.on(split), quantities(result)
    if summary is None:
        return [point.missing, *["–"] * (len(shown) - 1)]
    return [q.write(getattr(summary, q.name)) for q in shown]


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
    fields = ["point", "axis", "value", "label", "split", "baseline", "chosen"]
    fields += ["within_one_stderr", "runs", "stopped_runs"]
    for name in (q.name for q in quantities(result)):
        fields += [name, f"{name}_std", f"{name}_stderr"]
    for name in ("churn", "accuracy"):
        fields += [f"delta_{name}", f"delta_{name}_stderr", f"delta_{name}_p"]
    choices = [axis.choice for axis in result.axes]
    lines = [
        {
            "point": point.name,
            "axis": point.axis,
            "value": point.value,
            "label": point.label,
            "split": split,
            "baseline": int(point is result.baseline),
            "chosen": int(any(c.point == point.name for c in choices)),
            "within_one_stderr": int(any(point.name in c.within for c in choices)),
            **_csv_numbers(result, point, split),
        }
        for point in result.points
        for split in SPLITS
    ]
    return Records(fields, lines)


def _csv_numbers(result: SweepResult, point: PointResult, split: str) -> dict:
    summary = point.on(split)
    if summary is None:
        return {}
    line: dict = {
        "runs": len(summary.runs),
        "stopped_runs": " ".join(map(str, summary.stopped)),
    }
    for name in (q.name for q in quantities(result)):
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
