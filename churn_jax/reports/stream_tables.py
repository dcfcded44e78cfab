"""The table of a stream study: Markdown, CSV and the terminal.

Columns follow Table 3 of the anti-distillation paper. Changes are percent of the
baseline's number in the text forms, plain shares at full precision in the CSV.
"""

import csv
import dataclasses
import io
import math
from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from churn_jax.analysis.significance import Difference
from churn_jax.escaping import markdown_text, printable, terminal_text
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.stream import StreamReport, StreamRow
from churn_jax.reports.stream_beside import stream_beside
from churn_jax.reports.stream_numbers import DIFFERENCES, LOSSES, interval

__all__ = [
    "COLUMNS",
    "PART_TITLES",
    "StreamColumn",
    "caption",
    "csv_stream",
    "markdown_stream",
    "print_stream",
    "verdict",
]

ABSENT = "–"
SIGNIFICANT = 0.05
FEWEST_RUNS = 3  # with two, one degree of freedom finds nothing but accidents
PART_TITLES = {
    "stream": "Progressive validation: every example scored before it was learned",
    "holdout": "Examples held out of the stream, scored at its end",
}


def _signed(difference: Difference, digits: int) -> str:
    """`+0.38 ± 0.02`, both times 100."""
    if not math.isfinite(difference.difference):
        return ABSENT
    text = f"{100 * difference.difference:+.{digits}f}"
    if not math.isfinite(difference.stderr):
        return text
    return f"{text} ± {100 * difference.stderr:.{digits}f}"


def _with_interval(difference: Difference) -> str:
    """`-27.2 [-29.0, -25.4]`, times 100."""
    if not math.isfinite(difference.difference):
        return ABSENT
    text = f"{100 * difference.difference:+.1f}"
    low, high = interval(difference)
    if not (math.isfinite(low) and math.isfinite(high)):
        return text
    return f"{text} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _significant(estimate: Estimate, digits: int) -> str:
    """The value and its standard error."""
    if not math.isfinite(estimate.mean):
        return ABSENT
    if not math.isfinite(estimate.stderr):
        return f"{estimate.mean:.{digits}f}"
    return f"{estimate.mean:.{digits}f} ± {estimate.stderr:.{digits}f}"


def _number(name: str, digits: int) -> Callable[[StreamRow, str], str]:
    return lambda row, part: _significant(row.numbers[part].estimate(name), digits)


def _loss_change(name: str) -> Callable[[StreamRow, str], str]:
    def cell(row: StreamRow, part: str) -> str:
        if part not in row.changes:
            return ABSENT
        return _signed(row.changes[part].changes[name].relative, 3)

    return cell


def _pd_change(name: str) -> Callable[[StreamRow, str], str]:
    def cell(row: StreamRow, part: str) -> str:
        if part not in row.changes:
            return ABSENT
        return _with_interval(row.changes[part].changes[name].relative)

    return cell


@dataclasses.dataclass(frozen=True)
class StreamColumn:
    """A column of the text tables.

    Attributes:
        header: its heading.
        cell: the text of one row for one part of the stream.
        narrow: whether it is shown on a narrow terminal too.
    """

    header: str
    cell: Callable[[StreamRow, str], str]
    narrow: bool = False


COLUMNS = (
    StreamColumn("AD type", lambda row, part: row.info.label, narrow=True),
    StreamColumn("λ", lambda row, part: f"{row.strength:.3g}"),
    StreamColumn("s", lambda row, part: f"{row.input_scale:g}"),
    StreamColumn("Log loss change %", _loss_change("log_loss"), narrow=True),
    StreamColumn("Rank loss change %", _loss_change("rank_loss")),
    StreamColumn("Δʳ₁", _number("relative_pd", 4), narrow=True),
    StreamColumn("Δʳ₁ change %", _pd_change("relative_pd"), narrow=True),
    StreamColumn("Δ₁", _number("pd_1", 5)),
    StreamColumn("Δᴴ", _number("hamming", 5)),
    StreamColumn("Log loss", _number("log_loss", 4)),
    StreamColumn("Calibration", _number("calibration", 3)),
)


def caption(report: StreamReport) -> str:
    """What the numbers are."""
    base = report.baseline
    against = base.info.label if base is not None else report.study.baseline
    runs = report.study.replicas
    counted = report.rows[0].examples if report.rows else 0
    return (
        f"{runs} runs per row, {counted:,} examples. Log loss (nats) and calibration "
        "(mean predicted over observed share of positives): mean ± standard error over "
        "runs. Rank loss is 1 − AUC. Changes are against "
        f"{against}, paired by run; those of losses ± standard error over runs, those "
        "of Δʳ₁ with a 95 % interval. Prediction differences are of all runs together, "
        "± standard error by the jackknife that leaves one run out at a time."
    )


def verdict(row: StreamRow, part: str = "stream") -> str:
    """One sentence on prediction difference and log loss; empty for the baseline."""
    if part not in row.changes:
        return ""
    found = row.changes[part]
    pd, loss = found.changes["relative_pd"], found.changes["log_loss"].relative
    if not math.isfinite(found.p_holm):
        if loss.runs < FEWEST_RUNS:
            return f"too few runs to test Δʳ₁ ({loss.runs} in common)"
        return "Δʳ₁ is of other runs than the baseline's, so it is not tested"
    said = "p < 0.001" if found.p_holm < 0.001 else f"p = {found.p_holm:.3f}"
    low, high = interval(pd.relative)
    spread = f" (95 %: {100 * low:+.1f} to {100 * high:+.1f})"
    if not math.isfinite(pd.relative.difference):
        size = f"by {abs(pd.absolute.difference):.4f}"
    else:
        size = f"by {100 * abs(pd.relative.difference):.1f} %{spread}"
    if found.p_holm < SIGNIFICANT:
        verb = "Increases" if pd.absolute.difference > 0 else "Reduces"
        text = f"{verb} Δʳ₁ {size}, {said}"
    else:
        text = f"No detectable effect on Δʳ₁ ({_with_interval(pd.relative)} %, {said})"
    digits = 2 if 100 * loss.stderr >= 0.01 else 3
    return f"{text}; log loss {_signed(loss, digits)} %."


def markdown_stream(report: StreamReport) -> str:
    """The study as a Markdown page: tables, verdicts, remarks, the paper's numbers."""
    lines = [f"# {markdown_text(report.study.title)}"]
    for part in report.parts:
        lines += ["", f"## {PART_TITLES[part]}", ""]
        lines.append("| " + " | ".join(c.header for c in COLUMNS) + " |")
        lines.append("|:--|" + "--:|" * (len(COLUMNS) - 1))
        for row in report.rows:
            if part in row.numbers:
                cells = (markdown_text(column.cell(row, part)) for column in COLUMNS)
                lines.append("| " + " | ".join(cells) + " |")
    lines += ["", markdown_text(caption(report))] if report.rows else []
    if said := [row for row in report.rows if verdict(row)]:
        lines += ["", "Over the stream:", ""]
        lines += [
            f"* **{markdown_text(row.info.label)}**: {markdown_text(verdict(row))}"
            for row in said
        ]
    if report.remarks:
        lines += ["", *(f"* {markdown_text(remark)}" for remark in report.remarks)]
    if found := stream_beside(report):
        lines += ["", "## Beside the paper", ""]
        lines.append("| " + " | ".join(found.heads) + " |")
        lines.append("|:--|" + "--:|" * (len(found.heads) - 1))
        lines += [
            "| " + " | ".join(markdown_text(cell) for cell in cells) + " |"
            for cells in found.rows
        ]
        lines += ["", markdown_text(found.caption), ""]
        lines += [
            f"{i}. Doubtful: {markdown_text(note)}."
            for i, note in enumerate(found.notes, 1)
        ]
    return "\n".join(lines).rstrip() + "\n"


def csv_stream(report: StreamReport) -> str:
    """The study for programs: one line per row and part, shares at full precision.

    Absent numbers are empty. `_change` is the row's number minus the baseline's,
    `_relative_change` that as a share of the baseline's; `p` is two-sided, of the
    relative change.
    """
    names = (*LOSSES, *DIFFERENCES)
    fields = ["row", "label", "part", "status", "penalty", "strength", "input_scale"]
    fields += ["members", "parameters", "examples", "runs", "stopped_runs", "seconds"]
    for name in names:
        fields += [name, f"{name}_stderr"]
        for kind in ("change", "relative_change"):
            fields += [f"{name}_{kind}", f"{name}_{kind}_stderr"]
    fields += ["relative_pd_p", "relative_pd_p_holm"]
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    for row in report.rows:
        for part in row.numbers:
            writer.writerow(_csv_row(row, part, names))
    for missing in report.missing:
        info = missing.info
        writer.writerow(
            {"row": info.name, "label": info.label, "status": missing.reason}
        )
    return out.getvalue()


def _csv_row(row: StreamRow, part: str, names: tuple[str, ...]) -> dict:
    numbers, info = row.numbers[part], row.info
    out = {
        "row": info.name,
        "label": info.label,
        "part": part,
        "status": "finished",
        "penalty": row.penalty,
        "strength": _full(row.strength),
        "input_scale": _full(row.input_scale),
        "members": info.members,
        "parameters": info.parameters,
        "examples": row.examples if part == "stream" else "",
        "runs": len(numbers.runs),
        "stopped_runs": " ".join(map(str, info.stopped_replicas)),
        "seconds": info.seconds,
    }
    for name in names:
        estimate = numbers.estimate(name)
        out[name], out[f"{name}_stderr"] = _full(estimate.mean), _full(estimate.stderr)
        if part not in row.changes:
            continue
        change = row.changes[part].changes[name]
        for kind, found in (
            ("change", change.absolute),
            ("relative_change", change.relative),
        ):
            out[f"{name}_{kind}"] = _full(found.difference)
            out[f"{name}_{kind}_stderr"] = _full(found.stderr)
    if part in row.changes:
        found = row.changes[part]
        out["relative_pd_p"] = _full(found.changes["relative_pd"].p)
        out["relative_pd_p_holm"] = _full(found.p_holm)
    return out


def _full(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else ""


def print_stream(report: StreamReport, console: Console | None = None) -> None:
    """Prints tables, verdicts and remarks; a narrow terminal gets fewer columns.

    Args:
        report: what `write_stream` returned.
        console: where to; the standard output by default.
    """
    console = console or Console()
    columns = [c for c in COLUMNS if console.width >= 150 or c.narrow]
    for part in report.parts:
        last = part == report.parts[-1]
        table = Table(
            title=terminal_text(f"{report.study.title}: {PART_TITLES[part]}"),
            caption=terminal_text(caption(report)) if last else None,
        )
        for column in columns:
            first = column is COLUMNS[0]
            table.add_column(column.header, justify="left" if first else "right")
        for row in report.rows:
            if part in row.numbers:
                table.add_row(
                    *(terminal_text(column.cell(row, part)) for column in columns)
                )
        console.print(table)
    for row in report.rows:
        if said := verdict(row):
            console.print(
                Text.assemble(
                    (printable(row.info.label), "bold"), ": ", printable(said)
                )
            )
    for remark in report.remarks:
        console.print(terminal_text(remark, style="yellow"))
