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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from churn_compare.documents import (
    Block,
    Card,
    Cell,
    Column,
    Document,
    Facts,
    Fold,
    Grid,
    Records,
    Rows,
    Section,
    Strong,
    Table,
    Terms,
    Text,
    csv_text,
    html_fragment,
    markdown,
    print_document,
    table_files,
    write_files,
)
from churn_compare.documents.plotting import page_figures
from churn_compare.tables import number_cell
from churn_jax.reports.artefacts import ReportError, read_study
from churn_jax.reports.cells import (
    ABSENT,
    change_cells,
    difference_fields,
    estimate_fields,
    times,
)
from churn_jax.reports.compare import UNTESTED
from churn_jax.reports.estimates import UNKNOWN
from churn_jax.reports.factors import run_facts, run_section, training_section
from churn_jax.reports.glossary import GLOSSARY
from churn_jax.reports.logits_sections import (
    logits_facts,
    logits_glossary,
    logits_section,
    logits_verdict,
    logits_verdicts,
    version_sections,
)
from churn_jax.reports.paper_numbers import paper_numbers, paper_section
from churn_jax.reports.report import Missing, Report, Row, collected
from churn_jax.reports.sections import (
    ambiguous_section,
    bounds_section,
    members_section,
)
from churn_jax.reports.study_figures import first_figure, study_figures
from churn_jax.reports.sweep import choice_section, collect_sweep, sweep_fields
from churn_jax.reports.updates import updates_document, updates_sections

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 150  # columns of a terminal that shows the whole tables

# Quantities of `compare` that rows of mere logits have, with heading and field.
VERSUS = {
    "churn": ("Churn", "churn_to_baseline"),
    "negative_flip_rate": ("NFR", "negative_flips_to_baseline"),
}
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
        ReportError: there is no usable `study.json`, or an update names a file of
            other examples.

    Example:
        >>> from churn_jax.reports import ReportError
        >>> try:
        ...     collect("no/such/run")
        ... except ReportError as error:
        ...     print(error)
        no/such/run/study.json does not exist; is no/such/run the folder of a study?
    """
    study = read_study(run_dir)
    if study.record.sweep is not None:
        return collect_sweep(study)
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
        ReportError: there is no usable `study.json`, no row can be reported and one is
            damaged, or an update names a file of other examples.
        OSError: a file could not be written; an earlier one is left as it was.

    Example:
        `write("runs/digits").files["report.html"]` is the page of a study that
        `churn-jax study digits` has trained.
    """
    report = collect(run_dir)
    damaged = [missing.reason for missing in report.missing if missing.damaged]
    if damaged and not report.rows:
        raise ReportError(f"{damaged[0]}; there is no other row to report")
    contents: dict[str, str | bytes] = {**table_files(study_document(report))}
    if report.updates is not None:
        own = updates_document(report)
        contents |= {"updates.md": markdown(own), "updates.csv": csv_text(own.data)}
    if report.held_out is not None:
        contents["held_out.csv"] = csv_text(_records(report.held_out))
    report.files.update(write_files(report.study.folder, contents))
    return report


def html_table(report: Report) -> str:
    """The form of a report in notebooks: the table and the conclusion."""
    notes = [Text(remark, "note") for remark in report.remarks]
    verdicts = Rows(_verdicts(report))
    return html_fragment([Text(report.best), *notes, _table(report), verdicts])


def print_report(report: Report, console: Console | None = None) -> None:
    """Print verdicts, remarks and table; a narrow terminal gets fewer columns.

    Args:
        report: what `write` returned.
        console: where to; the standard output by default.
    """
    print_document(in_terminal(report), console)


def in_terminal(report: Report) -> Document:
    """The verdict as lines, and where the page is."""
    found, page = study_document(report).as_lines(), report.files.get("report.html")
    written = Text(f"Report: {page}" if page else "")
    return Document(found.title, blocks=[*found.blocks, written])


def study_document(report: Report) -> Document:
    """Verdicts, table, remarks and figures of a study, a sweep or logits."""
    trained, record = report.study.trained, report.study.record
    named, stop, rest = report.best.partition(". ")
    said = (Strong(named + stop[:1]), stop[1:] + rest)
    best = Text(said if named else "", "best")
    verdicts = Card(f"Against {report.baseline_label}", [Rows(_verdicts(report))], "")
    results: list[Block] = [Text(remark, "note") for remark in report.remarks]
    results += map(Text, (report.few, *report.context))
    results += [_table(report)] if report.rows else []
    glossary = GLOSSARY if trained else logits_glossary(report, GLOSSARY)
    made = logits_section(report)
    if trained:
        facts = {
            "Runs per method": report.study.config.train.replicas,
            "Rows not asked for": ", ".join(report.study.unselected.values()),
            "Settings": " ".join(report.study.config.notes),
        }
        made = run_section(record, facts)
    held_out = report.held_out
    infos = [row.info for row in report.rows] if trained else []
    updates, paper_updates = updates_sections(report)
    sections = [
        choice_section(report),
        Section("Results", results),
        Section(
            "Examples held out of the stream",
            [_table(held_out)] if held_out is not None and held_out.rows else [],
        ),
        training_section(report.study, infos),
        updates,
        *version_sections(report),
        paper_updates,
        members_section(report),
        paper_section(paper_numbers(report)),
        Section("Figures", [Grid(study_figures(report))]),
        ambiguous_section(report),
        bounds_section(report),
        Section("Methods", [Grid(_cards(report))], detail="full"),
        made,
        Section("Glossary", [Terms(glossary)], detail="full"),
    ]
    return Document(
        report.study.config.title,
        run_facts(record) if trained else logits_facts(report),
        [best, Grid([first_figure(report), verdicts], kind="first"), *sections],
        data=_records(report),
    )


def _verdicts(report: Report) -> list[Text]:
    """The effect of every row on the headline and on its quality."""
    if not report.study.trained:
        return logits_verdicts(report)
    return [
        Text((Strong(row.label), f": {row.verdict}"), row.tone)
        for row in report.rows
        if row.verdict
    ]


def _table(report: Report) -> Table:
    """Method and costs, the quantities the study chose, and the comparison."""
    about, trained, rows = report.headline, report.study.trained, report.rows
    points = about.name == "churn"
    scale, digits = (100, 2) if points else (1, 4)
    columns: dict[Column, Callable[[Row], Cell | str]] = {}
    # What a row is judged by comes first: a phone shows it without scrolling.
    for quantity in sorted(report.columns, key=lambda q: q is not about):
        head = Column(quantity.heading, from_width=0 if quantity.narrow else WIDE)
        columns[head] = lambda row, q=quantity: q.write(getattr(row.summary, q.name))
    tested: dict[Column, Callable[[Row], Cell | str]] = {}

    def change(row: Row) -> tuple[Cell | str, str]:
        found = row.change
        if found is None:
            return ABSENT, ABSENT
        return change_cells(found.difference, found.p, scale, digits)

    known = (row.change.difference.difference for row in rows if row.change)
    if trained or any(map(math.isfinite, known)):
        head = Column("Δ churn" if points else f"Δ of {about.heading}")
        tested[head] = lambda row: change(row)[0]
        tested[Column("p")] = lambda row: change(row)[1]
    for name, (heading, _) in VERSUS.items() if report.comparisons else ():
        head = Column(f"{heading} vs. {report.baseline_label}")
        tested[head] = lambda row, name=name: (
            number_cell(step[name], "share")
            if (step := report.comparisons.get(row.label))
            else Cell(ABSENT)
        )
    costs: dict[Column, Callable[[Row], Cell | str]] = {
        Column(f"{what.capitalize()} cost", from_width=WIDE): (
            lambda row, name=f"{what}_cost": times(getattr(row.info, name))
        )
        for what in (("training", "inference") if trained else ())
    }
    first = 1 if about in report.columns else 0
    every = [*columns.items()]
    every[first:first] = tested.items()
    every += costs.items()
    cells = [(row.label, *(cell(row) for _, cell in every)) for row in rows]
    heads = [Column("Method"), *(head for head, _ in every)]
    return Table(heads, cells, "", report.caption, "main")


def _cards(report: Report) -> list[Card]:
    """One for each method: how it was trained, and what the table has no column for."""
    out = []
    for row in report.rows:
        others = {
            quantity.heading: quantity.write(getattr(row.summary, quantity.name))
            for quantity in report.quantities
            if quantity not in report.columns and quantity.name != "parameters"
        }
        if not report.study.trained:
            others = {head: text for head, text in others.items() if text != ABSENT}
        more = Fold("More numbers", [Facts(others)])
        out.append(Card(row.label, [Facts(_method_facts(row)), more]))
    out += [
        Card(missing.info.label, [Text(f"Not in the tables: {missing.reason}.")])
        for missing in report.missing
    ]
    return out


def _method_facts(row: Row) -> dict[str, str]:
    info, summary = row.info, row.summary
    known = info.training_cost is not None or info.inference_cost is not None
    costs = f"training {times(info.training_cost)}"
    training = "" if info.seconds is None else f"{info.seconds:,.1f} s"
    if training and info.compile_seconds is not None:
        training += f" + {info.compile_seconds:.1f} s compiling"
    return {
        "Equation": info.equation,
        "Coefficients": ", ".join(
            f"{k} = {v:.6g}" if isinstance(v, float) else f"{k} = {v}"
            for k, v in info.coefficients.items()
        ),
        "Networks": "" if info.members is None else str(info.members),
        "Cost": f"{costs}, inference {times(info.inference_cost)}" if known else "",
        "Parameters": "" if info.parameters is None else f"{info.parameters:,}",
        "Training": training,
        "Runs counted": f"{len(summary.runs)}, on {summary.examples:,} examples",
        "Stopped runs": row.stopped,
    }


def _records(report: Report) -> Records:
    """A line per method; of mere logits without what nothing is known of."""
    found = paper_numbers(report)
    printed = [quantity.name for quantity in (found.metrics if found else ())]
    papers = {row.name: row.paper for row in found.rows} if found else {}
    rows = []
    for one in (*report.rows, *report.missing):
        row = _csv_row(report, one)
        for name in printed:
            number = papers.get(one.info.name, {}).get(name)
            row[f"paper_{name}"] = None if number is None else number.mean
            row[f"paper_{name}_std"] = None if number is None else number.std
            row[f"paper_{name}_doubtful"] = "" if number is None else number.note
        rows.append(row | sweep_fields(report, one.info.name))
    fields = list(dict.fromkeys(name for row in rows for name in row))
    if report.study.trained:
        return Records(fields, rows)

    def known(field: str) -> bool:
        values = (row.get(field) for row in rows)
        return any(v not in (None, "") and v == v for v in values)  # NaN is not itself

    fields = [field for field in fields if field != "status" and known(field)]
    return Records(fields, [{f: r[f] for f in fields if f in r} for r in rows])


def _csv_row(report: Report, one: Row | Missing) -> dict:
    """The fields of one method, in order; those of a missing one are empty."""
    row = one if isinstance(one, Row) else None
    summary = row.summary if row else None
    out: dict = {"method": one.info.name, "label": one.info.label}
    out["status"] = one.reason if isinstance(one, Missing) else "finished"
    out |= {name: getattr(one.info, name) for name in _FACTS}
    out |= dict.fromkeys(("runs", "stopped_runs", "examples", "classes"))
    if summary is not None:
        out["runs"] = len(summary.runs)
        out["stopped_runs"] = " ".join(map(str, summary.stopped))
        out |= {"examples": summary.examples, "classes": summary.num_classes}
    # `parameters` has one column, next to the costs; the others have three each.
    measured = [q.name for q in report.quantities if q.name != "parameters"]
    for name in measured:
        out |= estimate_fields(name, getattr(summary, name, UNKNOWN))
    for name in report.compared:
        if name in measured:
            found = row.changes.get(name, UNTESTED) if row else UNTESTED
            out |= difference_fields(name, found.difference, found.p)
    out["verdict"] = row.verdict if row else ""
    if row and (step := report.comparisons.get(row.label)) is not None:
        out["verdict"] = logits_verdict(report, row)
        for name, (_, field) in VERSUS.items():
            found = step[name]
            out |= {field: found.value, f"{field}_low": found.low}
            out |= {f"{field}_high": found.high}
    return out


def table_fields(report: Report) -> list[str]:
    """Those of the CSV that the table shows, with their standard errors."""
    shown = [quantity.name for quantity in report.columns]
    fields = ["method", "label", "runs"]
    fields += [f"{name}{end}" for name in shown for end in ("", "_stderr")]
    ends = ("", "_stderr", "_p_holm")
    fields += [f"delta_{n}{e}" for n in report.compared if n in shown for e in ends]
    known = _records(report).fields
    more = [name for name in known if "_to_baseline" in name]
    more += {
        name: None
        for row in report.rows
        for name in sweep_fields(report, row.info.name)
    }
    return [name for name in (*fields, *more) if report.study.trained or name in known]


Source = str | os.PathLike | Report


def table(source: Source) -> Any:
    """The table of a study or a sweep, as numbers.

    One row per method, with the numbers that the report shows, shares as fractions. A
    quantity has its mean in a column of its name and the standard error in another, as
    in `churn`, `churn_stderr`; differences from the baseline are in `delta_churn`,
    `delta_churn_stderr` and `delta_churn_p_holm`. A sweep has a row per point, on the
    test split, with what was chosen and `validation_churn` and so on in addition.

    Args:
        source: the folder, or what `collect` or a function that writes a report
            returned.

    Returns:
        A `pandas.DataFrame` whose index is the name of the row, where pandas is
        installed; else a list of dicts. Absent numbers are NaN.

    Raises:
        ReportError: the folder has no usable record.
    """
    report = source if isinstance(source, Report) else collect(source)
    fields = table_fields(report)
    rows = [
        {f: math.nan if row.get(f) is None else row[f] for f in fields}
        for row in study_document(report).data.rows
    ]
    try:
        import pandas  # pyrefly: ignore[missing-import]
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=list(fields)).set_index(fields[0])


def figures(source: Source) -> dict[str, Any]:
    """The figures of the page, as Matplotlib objects but for those of comparisons.

    Args:
        source: as in `table`.

    Returns:
        Name to `matplotlib.figure.Figure`, in the order of the page. They are not
        registered with pyplot, so they take no memory once they are out of use; a
        notebook shows them, and `figure.savefig(path)` writes them. Figures of
        comparisons are SVG, a string that a notebook shows, too.

    Raises:
        ReportError: the folder has no usable record.
    """
    report = source if isinstance(source, Report) else collect(source)
    return page_figures(study_document(report).blocks)
