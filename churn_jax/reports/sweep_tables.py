"""The table of a sweep: Markdown, CSV and the terminal."""

import csv
import io
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from churn_jax.reports.cells import number, percent
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.selection import CRITERIA, paired
from churn_jax.reports.sweep import SPLITS, AxisResult, PointResult, SweepResult

__all__ = [
    "QUANTITIES",
    "choice_sentence",
    "csv_sweep",
    "markdown_sweep",
    "print_sweep",
]

QUANTITIES = (
    ("accuracy", "Accuracy %", percent),
    ("churn", "Churn %", percent),
    ("surrogate_churn", "SChurn %", percent),
    ("entropy", "Entropy, nats", number),
    ("confidence", "Confidence", number),
    ("nll", "NLL", number),
    ("ece", "ECE %", percent),
)
"""Field of a `MethodSummary`, heading, and how it is written."""

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
    return (
        f"Mean ± standard deviation over {result.seeds} seeds, or over all pairs of "
        f"them (churn, SChurn). {CHOSEN} chosen; {WITHIN} within one standard error of "
        f"it, paired by seed. {UNSEEN}"
    )


def rows(
    result: SweepResult, axis: AxisResult, split: str
) -> Iterator[tuple[str, Sequence[str]]]:
    """Mark and cells of every point of an axis, the baseline first."""
    points = axis.points
    if result.baseline is not None and result.baseline not in points:
        points = (result.baseline, *points)
    for point in points:
        yield _mark(axis, point), [_label(result, point), *_cells(point, split)]


def _label(result: SweepResult, point: PointResult) -> str:
    value = "" if point.value is None else f"{point.value:g}"
    return f"{value} (baseline)".strip() if point is result.baseline else value


def _mark(axis: AxisResult, point: PointResult) -> str:
    if point.name == axis.choice.point:
        return CHOSEN
    return WITHIN if point.name in axis.choice.within else ""


def _cells(point: PointResult, split: str) -> list[str]:
    summary = point.on(split)
    if summary is None:
        return [point.missing, *["–"] * (len(QUANTITIES) - 1)]
    return [write(getattr(summary, name)) for name, _, write in QUANTITIES]


def markdown_sweep(result: SweepResult) -> str:
    """Choices and one table per axis and split, as a Markdown page."""
    lines = [f"# {_escaped(result.title)}", ""]
    lines += [f"* {_escaped(choice_sentence(result, axis))}" for axis in result.axes]
    lines += [f"* {_escaped(remark)}" for remark in remarks(result)]
    lines += ["", _escaped(caption(result))]
    for axis in result.axes:
        for split in SPLITS:
            lines += ["", f"## {_escaped(axis.title)}, {split}", ""]
            heads = [axis.field, "", *(head for _, head, _ in QUANTITIES)]
            lines.append("| " + " | ".join(heads) + " |")
            lines.append("|" + "--:|" + ":-:|" + "--:|" * len(QUANTITIES))
            for mark, (label, *cells) in rows(result, axis, split):
                cells = map(_escaped, (label, mark, *cells))
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


def _escaped(text: str) -> str:
    for character in "\\|<*_`[~":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())


def csv_sweep(result: SweepResult) -> str:
    """One line per point and split, fractions at full precision; absent is empty."""
    fields = ["point", "axis", "value", "label", "split", "baseline", "chosen"]
    fields += ["within_one_stderr", "runs", "stopped_runs"]
    for name, *_ in QUANTITIES:
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
    for name, *_ in QUANTITIES:
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
            columns = QUANTITIES if wide else QUANTITIES[:2]
            table = Table(title=Text(f"{axis.title}, {split}"))
            table.add_column(axis.field, justify="right")
            table.add_column("")
            for _, head, _ in columns:
                table.add_column(head, justify="right")
            for mark, (label, *cells) in rows(result, axis, split):
                table.add_row(
                    *(Text(cell) for cell in (label, mark, *cells[: len(columns)]))
                )
            console.print(table)
    console.print(Text(caption(result), style="dim"))
    for axis in result.axes:
        console.print(Text(choice_sentence(result, axis)))
    for remark in remarks(result):
        console.print(Text(remark, style="yellow"))
