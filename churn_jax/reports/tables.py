"""The table of a study: Markdown, CSV and the terminal.

Columns follow Table 2 of the first paper unless the study names its own. Percentages in
the text forms, plain fractions at full precision in the CSV, which has every quantity.
"""

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from churn_jax.analysis.significance import Difference
from churn_jax.configuration.record import RowRecord
from churn_jax.documents import Document, print_document
from churn_jax.escaping import markdown_text, printable, terminal_text
from churn_jax.reports.agreement import members_table, terminal_table
from churn_jax.reports.beside import Beside, beside
from churn_jax.reports.cells import times
from churn_jax.reports.factors import training_table
from churn_jax.reports.page import run_facts
from churn_jax.reports.published import Published
from churn_jax.reports.quantities import Quantity
from churn_jax.reports.report import Report, Row
from churn_jax.reports.updates_report import updates_terminal

__all__ = [
    "Column",
    "beside_lines",
    "columns",
    "csv_table",
    "markdown_table",
    "print_report",
]


def _points(difference: Difference | None) -> str:
    return _signed(difference, 100, 2)


def _plain(difference: Difference | None) -> str:
    return _signed(difference, 1, 4)


def _signed(difference: Difference | None, scale: float, digits: int) -> str:
    if difference is None or not math.isfinite(difference.difference):
        return "–"
    mean = f"{scale * difference.difference:+.{digits}f}"
    if not math.isfinite(difference.stderr):
        return mean
    return f"{mean} ± {scale * difference.stderr:.{digits}f}"


def _p(p: float | None) -> str:
    if p is None or not math.isfinite(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the text tables.

    Attributes:
        header: its heading.
        cell: the text of one row.
        narrow: whether it is shown on a narrow terminal too.
    """

    header: str
    cell: Callable[[Row], str]
    narrow: bool = False


_FIRST: Sequence[Column] = (
    Column("Method", lambda row: row.info.label, narrow=True),
    Column("Training cost", lambda row: times(row.info.training_cost)),
    Column("Inference cost", lambda row: times(row.info.inference_cost)),
)


def columns(report: Report) -> tuple[Column, ...]:
    """The columns of the study's text tables.

    Args:
        report: from `collect`.

    Returns:
        Method and costs, the quantities the study chose, and the comparison.
    """
    about = report.headline
    points = about.name == "churn"
    return (
        *_FIRST,
        *(_quantity(quantity) for quantity in report.columns),
        Column(
            "Δ churn" if points else f"Δ of {about.heading}",
            lambda row: _points(row.change) if points else _plain(row.change),
            narrow=True,
        ),
        Column("p", lambda row: _p(row.change_p), narrow=True),
    )


def _quantity(quantity: Quantity) -> Column:
    def cell(row: Row) -> str:
        return quantity.write(getattr(row.summary, quantity.name))

    return Column(quantity.heading, cell, quantity.narrow)


def markdown_table(report: Report) -> str:
    """The study as a Markdown page: table, verdicts, remarks.

    Args:
        report: from `collect` or `write`.

    Returns:
        The text of `table.md`; `±` is a standard deviation, as in the paper's Table 2.
    """
    lines = [f"# {markdown_text(report.study.title)}", ""]
    for text in ("; ".join(run_facts(report.study.record)), report.best):
        lines += [markdown_text(text), ""] if text else []
    shown = columns(report)
    lines.append("| " + " | ".join(c.header for c in shown) + " |")
    lines.append("|" + "|".join([":--"] + ["--:"] * (len(shown) - 1)) + "|")
    for row in report.rows:
        cells = (markdown_text(column.cell(row)) for column in shown)
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", markdown_text(report.caption)]
    if verdicts := [row for row in report.rows if row.verdict]:
        lines += ["", f"Against {markdown_text(report.baseline_label)}:", ""]
        lines += [
            f"* **{markdown_text(row.info.label)}**: {markdown_text(row.verdict)}"
            for row in verdicts
        ]
    if report.remarks:
        lines += ["", *(f"* {markdown_text(remark)}" for remark in report.remarks)]
    lines += [line for text in report.context for line in ("", markdown_text(text))]
    lines += _training_lines(report)
    lines += _member_lines(report)
    if found := beside(report):
        lines += beside_lines(found)
    return "\n".join(lines) + "\n"


def _training_lines(report: Report) -> list[str]:
    """What runs share, row by row, where rows differ in it."""
    head, *rows = training_table(report.study, [r.info for r in report.rows]) or [()]
    lines = [
        "| " + " | ".join(map(markdown_text, cells)) + " |" for cells in (head, *rows)
    ]
    return ["", lines[0], "|:--|:--|:--|:--|", *lines[1:]] if head else []


def _member_lines(report: Report) -> list[str]:
    """How much the members of ensembles differ."""
    found = members_table(report)
    if found is None:
        return []
    head, *rows = (
        "| " + " | ".join(map(markdown_text, cells)) + " |"
        for cells in (found.heads, *found.rows)
    )
    line = "|" + "|".join([":--"] + ["--:"] * (len(found.heads) - 1)) + "|"
    notes = [
        text for sentence in found.sentences for text in ("", markdown_text(sentence))
    ]
    return ["", "## Members", "", head, line, *rows, *notes]


def beside_lines(found: Beside, first: str = "Method") -> list[str]:
    """The paper's numbers and ours, two columns per quantity."""
    heads = [f"{q.heading}, {kind}" for q in found.metrics for kind in _KINDS]
    lines = ["", "## Beside the paper", ""]
    lines.append("| " + " | ".join((first, *heads)) + " |")
    lines.append("|" + "|".join([":--"] + ["--:"] * len(heads)) + "|")
    for row in found.rows:
        cells = [row.label]
        for metric in found.metrics:
            cells += [
                found.paper_cell(row, metric.name),
                found.measured_cell(row, metric.name),
            ]
        lines.append("| " + " | ".join(markdown_text(cell) for cell in cells) + " |")
    lines += ["", markdown_text(found.caption)]
    if found.notes:
        lines.append("")
    lines += [
        f"{i}. {markdown_text(note)}" for i, note in enumerate(found.explained, 1)
    ]
    return lines


_KINDS = ("paper", "measured")


# Fields of a `Comparison` that the CSV has; the last one on request.
_COMPARED = ("churn", "accuracy", "prediction_difference", "calibrated_nll")


def _compared(report: Report) -> tuple[str, ...]:
    shown = {quantity.name for quantity in report.quantities}
    return tuple(name for name in _COMPARED if name in shown)


def _measured(report: Report) -> tuple[str, ...]:
    """Quantities with three columns each; `parameters` has one, beside the costs."""
    return tuple(q.name for q in report.quantities if q.name != "parameters")


def csv_table(report: Report) -> str:
    """The study for programs: one line per method, fractions at full precision.

    Absent numbers are empty. `p` columns are two-sided; `_holm` ones are adjusted over
    the methods of the study. A study with published numbers has them in `paper_...`
    columns, as fractions too, with the reason where a cell is doubtful.

    Args:
        report: from `collect` or `write`.

    Returns:
        The text of `table.csv`, with a header line.
    """
    fields = ["method", "label", "status", "equation", "members", "training_cost"]
    fields += ["inference_cost", "parameters", "seconds", "compile_seconds"]
    fields += ["runs", "stopped_runs", "examples", "classes"]
    for name in _measured(report):
        fields += [name, f"{name}_std", f"{name}_stderr"]
    for name in _compared(report):
        name = f"delta_{name}"
        fields += [name, f"{name}_stderr", f"{name}_p", f"{name}_p_holm"]
    fields.append("verdict")
    found = beside(report)
    names = [quantity.name for quantity in (found.metrics if found else ())]
    for name in names:
        fields += [f"paper_{name}", f"paper_{name}_std", f"paper_{name}_doubtful"]
    paper = {row.name: row.paper for row in found.rows} if found else {}
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    for row in report.rows:
        printed = _csv_paper(paper.get(row.info.name, {}), names)
        writer.writerow(_csv_row(report, row) | printed)
    for missing in report.missing:
        writer.writerow(_csv_info(missing.info) | {"status": missing.reason})
    return out.getvalue()


def _csv_info(info: RowRecord) -> dict:
    shared = ("label", "equation", "members", "training_cost", "inference_cost")
    shared += ("parameters", "seconds", "compile_seconds")
    return {"method": info.name} | {name: getattr(info, name) for name in shared}


def _csv_row(report: Report, row: Row) -> dict:
    summary = row.summary
    out = _csv_info(row.info) | {
        "status": "finished",
        "runs": len(summary.runs),
        "stopped_runs": " ".join(str(r) for r in summary.stopped),
        "examples": summary.examples,
        "classes": summary.num_classes,
        "verdict": row.verdict,
    }
    for name in _measured(report):
        estimate = getattr(summary, name)
        out[name] = _full(estimate.mean)
        out[f"{name}_std"] = _full(estimate.std)
        out[f"{name}_stderr"] = _full(estimate.stderr)
    if (versus := row.comparison) is not None:
        for field in _compared(report):
            difference = getattr(versus, field)
            holm_p, name = getattr(versus, f"{field}_p"), f"delta_{field}"
            out[name] = _full(difference.difference)
            out[f"{name}_stderr"] = _full(difference.stderr)
            out[f"{name}_p"] = _full(difference.p)
            out[f"{name}_p_holm"] = _full(holm_p)
    return out


def _csv_paper(paper: Mapping[str, Published], names: Sequence[str]) -> dict:
    out = {}
    for name in names:
        if (number := paper.get(name)) is not None:
            out[f"paper_{name}"] = _full(number.mean)
            out[f"paper_{name}_std"] = "" if number.std is None else _full(number.std)
            out[f"paper_{name}_doubtful"] = number.note
    return out


def _full(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else ""


def print_report(report: Report, console: Console | None = None) -> None:
    """Print table, verdicts and remarks; a narrow terminal gets fewer columns.

    Args:
        report: what `write` returned.
        console: where to; the standard output by default.
    """
    console = console or Console()
    wide = console.width >= 150
    shown = [c for c in columns(report) if wide or c.narrow]
    title = "\n".join(
        map(printable, (report.study.title, "; ".join(run_facts(report.study.record))))
    )
    table = Table(title=Text(title), caption=terminal_text(report.caption))
    for i, column in enumerate(shown):
        table.add_column(column.header, justify="right" if i else "left")
    for row in report.rows:
        table.add_row(*(terminal_text(column.cell(row)) for column in shown))
    console.print(table)
    if found := members_table(report):
        console.print(terminal_table(found))
    if report.updates is not None:
        table = updates_terminal(report.updates)
        print_document(Document("", blocks=[table]), console)
    for row in report.rows:
        if row.verdict:
            console.print(
                Text.assemble(
                    (printable(row.info.label), "bold"), ": ", printable(row.verdict)
                )
            )
    if report.best:
        console.print(terminal_text(report.best, style="bold"))
    for remark in report.remarks:
        console.print(terminal_text(remark, style="yellow"))
    for sentence in report.context:
        console.print(terminal_text(sentence))
    if page := report.files.get("report.html"):
        console.print(terminal_text(f"Report: {page}"))
