"""The report of a study: `report.html`, `table.md` and `table.csv`.

`study_document` composes it: every section is a function from a `Report` to a `Section`
of blocks, and one without blocks is not shown. Columns follow Table 2 of the first
paper unless the study names its own. Percentages in the text forms, plain fractions at
full precision in the CSV, which has every quantity.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from churn_compare import documents as doc
from churn_compare.documents.plotting import page_figures
from churn_jax.reports.artefacts import ReportError, read_study
from churn_jax.reports.estimates import UNKNOWN, UNTESTED
from churn_jax.reports.factors import run_facts, run_section, training_section
from churn_jax.reports.paper_numbers import next_to_paper
from churn_jax.reports.quantities import WIDE, estimate_fields, times
from churn_jax.reports.report import Missing, Report, Row, collected
from churn_jax.reports.sections import GLOSSARY, ambiguous_section, members_section
from churn_jax.reports.study_figures import first_figure, study_figures
from churn_jax.reports.sweep import choice_section, collect_sweep, sweep_fields
from churn_jax.reports.updates import paper_updates, updates_document, updates_section

if TYPE_CHECKING:
    from rich.console import Console

_FACTS = ("equation", "members", "training_cost", "inference_cost", "parameters")
_FACTS += ("seconds", "compile_seconds")


def collect(run_dir) -> Report:
    """Read the folder of a study or a sweep and compute every finished row's numbers.

    Rows of a sweep are its points, and `Report.sweep` has what was chosen on the
    validation split. What is still running is read as far as it is.

    Args:
        run_dir: the folder.

    Returns:
        The `Report`; nothing is written.

    Raises:
        ReportError: there is no usable `study.json`.

    Example:
        >>> from churn_jax.reports import ReportError
        >>> try:
        ...     collect("no/such/run")
        ... except ReportError as error:
        ...     print(error)
        no/such/run/study.json does not exist; is no/such/run the folder of a study?
    """
    study = read_study(run_dir)
    if (sweep := study.record.sweep) is not None:
        return collect_sweep(study, sweep)
    report = collected(study)
    if study.one_pass and study.record.data.validation:
        return dataclasses.replace(report, held_out=collected(study, "validation"))
    return report


def write(run_dir) -> Report:
    """Write `table.md`, `table.csv` and `report.html` into a run folder.

    A study of model updates gets `updates.md` and `updates.csv`, too. Works while a
    study is unfinished: methods without usable predictions are named with the reason.
    Every file is replaced whole or not at all.

    Args:
        run_dir: the folder of a study or a sweep.

    Returns:
        The `Report`; its `files` map names to the paths written.

    Raises:
        ReportError: there is no usable `study.json`, or no row can be reported and one
            is damaged.
        OSError: a file could not be written; an earlier one is left as it was.

    Example:
        `write("runs/digits").files["report.html"]` is the page of a study that
        `churn-jax study digits` has trained.
    """
    report = collect(run_dir)
    damaged = [missing.reason for missing in report.missing if missing.damaged]
    if damaged and not report.rows:
        raise ReportError(f"{damaged[0]}; there is no other row to report")
    contents: dict[str, str | bytes] = {**doc.table_files(study_document(report))}
    if report.updates is not None:
        own = updates_document(report)
        contents["updates.md"] = doc.markdown(own)
        contents["updates.csv"] = doc.csv_text(own.data)
    if report.held_out is not None:
        contents["held_out.csv"] = doc.csv_text(_records(report.held_out))
    report.files.update(doc.write_files(report.study.folder, contents))
    for name in {"updates.md", "updates.csv"} - contents.keys():
        (report.study.folder / name).unlink(missing_ok=True)  # of earlier settings
    return report


def html_table(report: Report) -> str:
    """The form of a report in notebooks: the table and the conclusion."""
    notes = [doc.Text(remark, "note") for remark in report.remarks]
    verdicts = doc.Rows(_verdicts(report))
    return doc.html_fragment([doc.Text(report.best), *notes, _table(report), verdicts])


def print_report(report: Report, console: Console | None = None) -> None:
    """Print verdicts, remarks and table; a narrow terminal gets fewer columns.

    Args:
        report: what `write` returned.
        console: where to; the standard output by default.
    """
    found, page = study_document(report).as_lines(), report.files.get("report.html")
    written = doc.Text(f"Report: {page}" if page else "")
    shown = doc.Document(found.title, blocks=[*found.blocks, written])
    doc.print_document(shown, console)


def study_document(report: Report) -> doc.Document:
    """Verdicts, table, remarks and figures of a study or a sweep."""
    named, stop, rest = report.best.partition(". ")
    said = (doc.Strong(named + stop[:1]), stop[1:] + rest)
    best = doc.Text(said if named else "", "best")
    against = f"Against {report.baseline_label}"
    verdicts = doc.Card(against, [doc.Rows(_verdicts(report))])
    results: list[doc.Block] = [doc.Text(remark, "note") for remark in report.remarks]
    results += map(doc.Text, (report.few, *report.context))
    results += [_table(report)] if report.rows else []
    held_out = report.held_out
    apart = [_table(held_out)] if held_out is not None and held_out.rows else []
    parts = [
        choice_section(report),
        doc.Section("Results", results),
        doc.Section("Examples held out of the stream", apart),
        training_section(report.study, [row.info for row in report.rows]),
        updates_section(report),
        paper_updates(report)[0],
        members_section(report),
        _next_to_paper(report)[0],
        doc.Section("Figures", [doc.Grid(study_figures(report))]),
        ambiguous_section(report),
        run_section(report.study),
        doc.Section("Glossary", [doc.Terms(GLOSSARY)], detail="full"),
    ]
    return doc.Document(
        report.study.config.title,
        run_facts(report.study.record),
        [best, doc.Grid([first_figure(report), verdicts], kind="first"), *parts],
        data=_records(report),
    )


def _verdicts(report: Report) -> list[doc.Text]:
    """The effect of every row on the headline and on its quality."""
    return [
        doc.Text((doc.Strong(row.label), f": {row.verdict}"), row.tone)
        for row in report.rows
        if row.verdict
    ]


def _table(report: Report) -> doc.Table:
    """Method and costs, the quantities the study chose, and the comparison."""
    about, rows = report.headline, report.rows
    # What a row is judged by comes first: a phone shows it without scrolling.
    columns: list[tuple[doc.Column, Sequence[doc.Cell | str]]] = [
        (q.column(), [q.cell(row.summary) for row in rows])
        for q in sorted(report.columns, key=lambda q: q is not about)
    ]
    head = "Δ churn" if about.name == "churn" else f"Δ of {about.heading}"
    first = 1 if about in report.columns else 0
    columns[first:first] = [
        (doc.Column(name), [row.change.cells[i] for row in rows])
        for i, name in enumerate((head, "p"))
    ]
    columns += [
        (
            doc.Column(f"{what.capitalize()} cost", from_width=WIDE),
            [times(getattr(row.info, f"{what}_cost")) for row in rows],
        )
        for what in ("training", "inference")
    ]
    heads, cells = zip(*columns, strict=True)
    lines = list(zip((row.label for row in rows), *cells, strict=True))
    return doc.Table(["Method", *heads], lines, "", report.caption, "main")


def _next_to_paper(report: Report) -> tuple[doc.Section, list[dict[str, Any]]]:
    """The paper's numbers next to those of every row, also of a missing one."""
    measured = [
        ((one.info.name,), one.info.label, getattr(one, "summary", None), True)
        for one in (*report.rows, *report.missing)
    ]
    # The `temperature` of a table's coefficients is another one.
    quantities = [q for q in report.quantities if q.name != "temperature"]
    return next_to_paper(report, quantities, measured)


def _records(report: Report) -> doc.Records:
    """A line per method."""
    rows = []
    every = (*report.rows, *report.missing)
    for one, paper in zip(every, _next_to_paper(report)[1], strict=True):
        swept = sweep_fields(report, one.info.name)
        rows.append(_csv_row(report, one) | paper | swept)
    fields = list(dict.fromkeys(name for row in rows for name in row))
    return doc.Records(fields, rows)


def _csv_row(report: Report, one: Row | Missing) -> dict[str, Any]:
    """The fields of one method, in order; those of a missing one are empty."""
    info, summary = one.info, getattr(one, "summary", None)
    out: dict = {"method": info.name, "label": info.label}
    out["status"] = getattr(one, "reason", "finished")
    out |= {name: getattr(info, name) for name in _FACTS}
    out |= dict.fromkeys(("runs", "stopped_runs", "examples", "classes"))
    if summary is not None:
        out["runs"] = len(summary.runs)
        out["stopped_runs"] = " ".join(map(str, summary.stopped))
        out |= {"examples": summary.examples, "classes": summary.num_classes}
    # `parameters` has one column, next to the costs; the others have three each.
    measured = [q.name for q in report.quantities if q.name != "parameters"]
    for name in measured:
        out |= estimate_fields(name, getattr(summary, name, UNKNOWN))
    changes = getattr(one, "changes", {})
    for name in report.compared:
        if name in measured:
            out |= changes.get(name, UNTESTED._replace(quantity=name)).fields
    return out | {"verdict": getattr(one, "verdict", "")}


Source = str | os.PathLike | Report


def table(source: Source) -> Any:
    """The table of a study or a sweep, as numbers.

    One row per method, with the numbers that the report shows, shares as fractions. A
    quantity has its mean in a column of its name and the standard error in another, as
    in `churn`, `churn_stderr`; differences from the baseline are in `delta_churn`,
    `delta_churn_stderr` and `delta_churn_p_holm`. A sweep has a row per point, on the
    test split, with what was chosen and `validation_churn` and so on in addition.

    Args:
        source: the folder, or what `collect` or `write` returned.

    Returns:
        A `pandas.DataFrame` whose index is the name of the row, where pandas is
        installed; else a list of dicts. Absent numbers are NaN.

    Raises:
        ReportError: the folder has no usable record.
    """
    report = source if isinstance(source, Report) else collect(source)
    records, shown = _records(report), [quantity.name for quantity in report.columns]
    fields = ["method", "label", "runs"]
    fields += [f"{name}{end}" for name in shown for end in ("", "_stderr")]
    ends = ("", "_stderr", "_p_holm")
    compared = [n for n in report.compared if n in (*shown, report.headline.name)]
    fields += [f"delta_{name}{end}" for name in compared for end in ends]
    swept = {n for row in report.rows for n in sweep_fields(report, row.info.name)}
    fields += [name for name in records.fields if name in swept]
    rows = [
        {f: math.nan if row.get(f) is None else row[f] for f in fields}
        for row in records.rows
    ]
    try:
        import pandas  # pyrefly: ignore[missing-import]
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=list(fields)).set_index(fields[0])


def figures(source: Source) -> dict[str, Any]:
    """The figures of the page, as Matplotlib objects.

    Args:
        source: as in `table`.

    Returns:
        Name to `matplotlib.figure.Figure`, in the order of the page. They are not
        registered with pyplot, so they take no memory once they are out of use; a
        notebook shows them, and `figure.savefig(path)` writes them.

    Raises:
        ReportError: the folder has no usable record.
    """
    report = source if isinstance(source, Report) else collect(source)
    return page_figures(study_document(report).blocks)
