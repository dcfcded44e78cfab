"""The table of a sweep: Markdown, CSV and the terminal."""

import csv
import io
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from churn_jax.escaping import markdown_text, terminal_text
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.quantities import QUANTITIES, Quantity, shown_columns
from churn_jax.reports.report import SETS
from churn_jax.reports.selection import CRITERIA, paired
from churn_jax.reports.sweep import SPLITS, AxisResult, PointResult, SweepResult

__all__ = [
    "choice_sentence",
    "csv_sweep",
    "markdown_sweep",
    "print_sweep",
    "quantities",
]

_DEFAULT = ("accuracy", "churn", "surrogate_churn")
_DEFAULT += ("entropy", "confidence", "nll", "ece")


def quantities(result: SweepResult) -> tuple[Quantity, ...]:
    """What the tables show of each point: the study's columns, accuracy first."""
    named = shown_columns(result.record.config.columns)
    if not named:
        return tuple(QUANTITIES[name] for name in _DEFAULT)
    return tuple(sorted(named, key=lambda q: not q.narrow))


CHOSEN, WITHIN = "*", "~"
UNSEEN = (
    "Choices look at the validation split only; the test numbers are shown and never "
    "used."
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


def caption(result: SweepResult) -> str:
    """What the tables' numbers are."""
    names = [quantity.name for quantity in quantities(result)]
    sets = SETS if "prediction_difference" in names else ""
    return (
        f"Mean ± standard deviation over {result.seeds} seeds, or over all pairs of "
        f"them (churn, SChurn). {sets}{CHOSEN} chosen; {WITHIN} within one standard "
        f"error of it, paired by seed. {UNSEEN}"
    )


def rows(
    result: SweepResult, axis: AxisResult, split: str
) -> Iterator[tuple[str, Sequence[str]]]:
    """Mark and cells of every point of an axis, the baseline first."""
    points = axis.points
    if result.baseline is not None and result.baseline not in points:
        points = (result.baseline, *points)
    for point in points:
        cells = _cells(result, point, split)
        yield _mark(axis, point), [_label(result, point), *cells]


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


def markdown_sweep(result: SweepResult) -> str:
    """Choices and one table per axis and split, as a Markdown page."""
    lines = [f"# {markdown_text(result.title)}", ""]
    lines += [
        f"* {markdown_text(choice_sentence(result, axis))}" for axis in result.axes
    ]
    lines += [f"* {markdown_text(remark)}" for remark in remarks(result)]
    lines += ["", markdown_text(caption(result))]
    for axis in result.axes:
        for split in SPLITS:
            lines += ["", f"## {markdown_text(axis.title)}, {split}", ""]
            heads = [axis.field, "", *(q.heading for q in quantities(result))]
            lines.append("| " + " | ".join(heads) + " |")
            lines.append("|" + "--:|" + ":-:|" + "--:|" * (len(heads) - 2))
            for mark, (label, *cells) in rows(result, axis, split):
                cells = map(markdown_text, (label, mark, *cells))
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def remarks(result: SweepResult) -> list[str]:
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
    return out


def csv_sweep(result: SweepResult) -> str:
    """One line per point and split, fractions at full precision; absent is empty."""
    fields = ["point", "axis", "value", "label", "split", "baseline", "chosen"]
    fields += ["within_one_stderr", "runs", "stopped_runs"]
    for name in (q.name for q in quantities(result)):
        fields += [name, f"{name}_std", f"{name}_stderr"]
    for name in ("churn", "accuracy"):
        fields += [f"delta_{name}", f"delta_{name}_stderr", f"delta_{name}_p"]
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    choices = [axis.choice for axis in result.axes]
    for point in result.points:
        for split in SPLITS:
            line = {
                "point": point.name,
                "axis": point.axis,
                "value": "" if point.value is None else repr(point.value),
                "label": point.label,
                "split": split,
                "baseline": int(point is result.baseline),
                "chosen": int(any(c.point == point.name for c in choices)),
                "within_one_stderr": int(any(point.name in c.within for c in choices)),
            }
            writer.writerow(line | _csv_numbers(result, point, split))
    return out.getvalue()


def _csv_numbers(result: SweepResult, point: PointResult, split: str) -> dict:
    summary = point.on(split)
    if summary is None:
        return {}
    line = {
        "runs": len(summary.runs),
        "stopped_runs": " ".join(map(str, summary.stopped)),
    }
    for name in (q.name for q in quantities(result)):
        estimate: Estimate = getattr(summary, name)
        line[name] = _full(estimate.mean)
        line[f"{name}_std"] = _full(estimate.std)
        line[f"{name}_stderr"] = _full(estimate.stderr)
    if result.baseline is not None and point is not result.baseline:
        for name in ("churn", "accuracy"):
            difference = paired(name, summary, result.baseline.on(split))
            line[f"delta_{name}"] = _full(difference.difference)
            line[f"delta_{name}_stderr"] = _full(difference.stderr)
            line[f"delta_{name}_p"] = _full(difference.p)
    return line


def _full(value: float) -> str:
    return repr(float(value)) if np.isfinite(value) else ""


def print_sweep(result: SweepResult, console: Console | None = None) -> None:
    """Tables and choices in the terminal; a narrow one gets the validation split only.

    Args:
        result: from `run_sweep` or `collect_sweep`.
        console: where to; the standard output by default.
    """
    console = console or Console()
    wide = console.width >= 120
    for axis in result.axes:
        for split in SPLITS if wide else SPLITS[:1]:
            columns = quantities(result)[: None if wide else 2]
            table = Table(title=terminal_text(f"{axis.title}, {split}"))
            table.add_column(axis.field, justify="right")
            table.add_column("")
            for quantity in columns:
                table.add_column(quantity.heading, justify="right")
            for mark, (label, *cells) in rows(result, axis, split):
                table.add_row(
                    *(
                        terminal_text(cell)
                        for cell in (label, mark, *cells[: len(columns)])
                    )
                )
            console.print(table)
    console.print(terminal_text(caption(result), style="dim"))
    for axis in result.axes:
        console.print(terminal_text(choice_sentence(result, axis)))
    for remark in remarks(result):
        console.print(terminal_text(remark, style="yellow"))
