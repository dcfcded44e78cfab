"""The report of a study: `report.html`, `table.md` and `table.csv`.

`study_document` composes it: every section is a function from a `Report` to a `Section`
of blocks, and one without blocks is not shown. Columns follow Table 2 of the first
paper unless the study names its own. Percentages in the text forms, plain fractions at
full precision in the CSV, which has every quantity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
    Term,
    Terms,
    Text,
    csv_text,
    html_fragment,
    html_page,
    markdown,
    print_document,
    table_files,
    write_files,
)
from churn_compare.tables import number_cell
from churn_jax.configuration.record import RowRecord, Stopped
from churn_jax.reports.cells import (
    ABSENT,
    change_cell,
    difference_fields,
    estimate_fields,
    p_value,
    times,
)
from churn_jax.reports.factors import training_table
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
from churn_jax.reports.published import Published
from churn_jax.reports.report import Report, Row, check_readable, collect
from churn_jax.reports.run_facts import run_facts, run_section
from churn_jax.reports.sections import (
    ambiguous_section,
    bounds_section,
    members_section,
)
from churn_jax.reports.study_figures import first_figure, study_figures
from churn_jax.reports.updates_report import (
    paper_updates,
    updates_csv,
    updates_markdown,
    updates_section,
)

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 150  # columns of a terminal that shows the whole tables

# Fields of a `Comparison` that the CSV has; the last one on request.
COMPARED = ("churn", "accuracy", "prediction_difference", "calibrated_nll")

# Quantities of `compare` that rows of mere logits have, with heading and field.
VERSUS = {
    "churn": ("Churn", "churn_to_baseline"),
    "negative_flip_rate": ("NFR", "negative_flips_to_baseline"),
}


def write(run_dir) -> Report:
    """Write `table.md`, `table.csv` and `report.html` into a run folder.

    A study of model updates gets `updates.md` and `updates.csv`, too.
    Works while a study is unfinished: methods without usable predictions are named
    with the reason. Every file is replaced whole or not at all.

    Args:
        run_dir: the folder of a study.

    Returns:
        The `Report`; its `files` map names to the paths written.

    Raises:
        ReportError: there is no usable `study.json`, no row can be reported and one is
            damaged, or an update names a file of other examples.
        OSError: a file could not be written; an earlier one is left as it was.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from churn_jax.configuration.record import StudyRecord, write_record
        >>> from churn_compare.store import Predictions, save_predictions
        >>> from churn_jax.studies import preset
        >>> config = preset("digits:tiny")
        >>> row = RowRecord("baseline", "Baseline", config.spec("baseline"))
        >>> logits = 9.0 * np.eye(2)[[[0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 0]]]
        >>> runs = Predictions(np.arange(4), np.array([0, 1, 1, 1]), logits)
        >>> with tempfile.TemporaryDirectory() as run:
        ...     record = StudyRecord(config, methods=(row,))
        ...     write_record(Path(run) / "study.json", record)
        ...     file = Path(run) / "methods" / "baseline" / "predictions.npz"
        ...     _ = save_predictions(file, runs)
        ...     report = write(run)
        >>> sorted(report.files)
        ['report.html', 'table.csv', 'table.md']
        >>> round(report.rows[0].summary.churn.mean, 3)
        0.5
    """
    report = collect(run_dir)
    check_readable(report)
    contents = table_files(study_document(report))
    if report.updates is not None:
        contents["updates.md"] = updates_markdown(report)
        contents["updates.csv"] = updates_csv(report)
    if report.held_out is not None:
        contents["held_out.csv"] = csv_table(report.held_out)
    report.files.update(write_files(report.study.folder, contents))
    return report


def write_report(run_dir) -> Path:
    """Write `report.html` into a run folder.

    Args:
        run_dir: the folder of a study.

    Returns:
        The path written.

    Raises:
        ReportError: there is no usable `study.json`.
        OSError: the file could not be written; an earlier one is left as it was.
    """
    page = {"report.html": render(collect(run_dir))}
    return write_files(run_dir, page)["report.html"]


def render(report: Report) -> str:
    """The page as text.

    Args:
        report: from `collect`.

    Returns:
        A whole HTML document.
    """
    return html_page(study_document(report))


def markdown_table(report: Report) -> str:
    """The study as a Markdown page: table, verdicts, remarks.

    Args:
        report: from `collect` or `write`.

    Returns:
        The text of `table.md`; `±` is a standard deviation, as in the paper's Table 2.
    """
    return markdown(study_document(report).at("summary"))


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
    return csv_text(_records(report))


def html_table(report: Report) -> str:
    """What a notebook shows of a study: the table and what to take away.

    Args:
        report: from `collect` or `write`.

    Returns:
        A `div` with its own style, for a method `_repr_html_`.
    """
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
    """Verdicts, table, remarks and figures of a study."""
    trained, record = report.study.trained, report.study.record
    named, stop, rest = report.best.partition(". ")
    said = (Strong(named + stop[:1]), stop[1:] + rest)
    best = Text(said if named else "", "best")
    verdicts = Card(f"Against {report.baseline_label}", [Rows(_verdicts(report))], "")
    results: list[Block] = [Text(remark, "note") for remark in report.remarks]
    results += map(Text, (report.few, *report.context))
    results += [_table(report)] if report.rows else []
    glossary = [Term(n, m, f, s) for n, s, f, m in GLOSSARY]
    glossary = glossary if trained else logits_glossary(report, glossary)
    sections = [
        *report.first_sections,
        Section("Results", results),
        _held_out(report),
        Section("What the rows differ in", _training(report), detail="summary"),
        updates_section(report),
        *version_sections(report),
        paper_section(paper_updates(report), "Update"),
        members_section(report),
        paper_section(paper_numbers(report)),
        Section("Figures", [Grid(study_figures(report))]),
        ambiguous_section(report),
        bounds_section(report),
        Section("Methods", [Grid(_cards(report))], detail="full"),
        run_section(record, _run(report)) if trained else logits_section(report),
        Section("Glossary", [Terms(glossary)], detail="full"),
    ]
    return Document(
        report.study.config.title,
        run_facts(record) if trained else logits_facts(report),
        [best, Grid([first_figure(report), verdicts], kind="first"), *sections],
        data=_records(report),
    )


def _held_out(report: Report) -> Section:
    """Of clicks, what the rows say of examples that are never learned."""
    found = report.held_out
    tables = [_table(found)] if found is not None and found.rows else []
    return Section("Examples held out of the stream", tables)


def _verdicts(report: Report) -> list[Text]:
    """The effect of every row on the headline and on accuracy."""
    if not report.study.trained:
        return logits_verdicts(report)
    return [
        Text((Strong(row.info.label), f": {row.verdict}"), row.tone)
        for row in report.rows
        if row.verdict
    ]


def _table(report: Report) -> Table:
    """Method and costs, the quantities the study chose, and the comparison."""
    about, trained, steps = report.headline, report.study.trained, report.steps
    points = about.name == "churn"
    scale, digits = (100, 2) if points else (1, 4)
    # What a row is judged by comes first: a phone shows it without scrolling.
    quantities = sorted(report.columns, key=lambda q: q is not about)
    columns: dict[Column, list[Cell | str]] = {}
    for quantity in quantities:
        head = Column(quantity.heading, from_width=0 if quantity.narrow else WIDE)
        cells = [getattr(row.summary, quantity.name) for row in report.rows]
        columns[head] = [quantity.write(cell) for cell in cells]
    first = dict([*columns.items()][: quantities[:1].count(about)])
    tested: dict[Column, list[Cell | str]] = {}
    if trained or any(
        row.change is not None and math.isfinite(row.change.difference)
        for row in report.rows
    ):
        change = Column("Δ churn" if points else f"Δ of {about.heading}")
        tested[change] = [
            change_cell(row.change, row.change_p, scale, digits) for row in report.rows
        ]
        tested[Column("p")] = [p_value(row.change_p) for row in report.rows]
    for name, (heading, _) in VERSUS.items() if steps else ():
        tested[Column(f"{heading} vs. {report.baseline_label}")] = [
            number_cell(steps[row.label][name], "share")
            if row.label in steps
            else Cell(ABSENT)
            for row in report.rows
        ]
    costs: dict[Column, list[Cell | str]] = {
        Column(f"{what.capitalize()} cost", from_width=WIDE): [
            times(getattr(row.info, f"{what}_cost")) for row in report.rows
        ]
        for what in (("training", "inference") if trained else ())
    }
    found = {**first, **tested, **columns, **costs}
    rows = zip([row.label for row in report.rows], *found.values())
    return Table([Column("Method"), *found], [*rows], "", report.caption, "main")


def _training(report: Report) -> list[Table]:
    """What runs share, row by row; none where all rows train alike."""
    if not report.study.trained:
        return []
    lines = training_table(report.study, [row.info for row in report.rows])
    if not lines:
        return []
    heads = [Column(head, "left") for head in lines[0]]
    return [Table(heads, lines[1:], kind="words")]


def _run(report: Report) -> dict[str, object]:
    study = report.study
    return {
        "Runs per method": study.config.train.replicas,
        "Rows not asked for": ", ".join(study.unselected.values()),
        "Settings": " ".join(study.config.notes),
    }


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
        out.append(Card(row.info.label, [Facts(_method_facts(row)), more]))
    out += [
        Card(missing.info.label, [Text(f"Not in the tables: {missing.reason}.")])
        for missing in report.missing
    ]
    return out


def _method_facts(row: Row) -> dict[str, str]:
    info, summary = row.info, row.summary
    told = {stop.replica: stop for stop in info.stopped}
    stopped = []
    for run in summary.stopped:
        stop = told.get(run, Stopped(run))
        term = f", term {stop.term}" if stop.term else ""
        step = "" if stop.step is None else f", step {stop.step}"
        stopped.append(f"{stop.replica}{term}{step}")
    costs, training = info.training_cost, ""
    if info.seconds is not None:
        training = f"{info.seconds:,.1f} s"
        if info.compile_seconds is not None:
            training += f" + {info.compile_seconds:.1f} s compiling"
    return {
        "Equation": info.equation,
        "Coefficients": ", ".join(
            f"{k} = {v:.6g}" if isinstance(v, float) else f"{k} = {v}"
            for k, v in info.coefficients.items()
        ),
        "Networks": "" if info.members is None else str(info.members),
        "Cost": ""
        if costs is None and info.inference_cost is None
        else f"training {times(costs)}, inference {times(info.inference_cost)}",
        "Parameters": "" if info.parameters is None else f"{info.parameters:,}",
        "Training": training,
        "Runs counted": f"{len(summary.runs)}, on {summary.examples:,} examples",
        "Stopped runs": "; ".join(stopped),
    }


def _records(report: Report) -> Records:
    """A line per method; of mere logits without what nothing is known of."""
    # `parameters` has one column, next to the costs; the others have three each.
    measured = [q.name for q in report.quantities if q.name != "parameters"]
    shown = {quantity.name for quantity in report.quantities}
    compared = [name for name in COMPARED if name in shown]
    fields = ["method", "label", "status", *_INFO, "runs", "stopped_runs"]
    fields += ["examples", "classes"]
    for name in measured:
        fields += [name, f"{name}_std", f"{name}_stderr"]
    for name in compared:
        name = f"delta_{name}"
        fields += [name, f"{name}_stderr", f"{name}_p", f"{name}_p_holm"]
    fields.append("verdict")
    found = paper_numbers(report)
    names = [quantity.name for quantity in (found.metrics if found else ())]
    for name in names:
        fields += [f"paper_{name}", f"paper_{name}_std", f"paper_{name}_doubtful"]
    paper = {row.name: row.paper for row in found.rows} if found else {}
    rows = [
        _csv_row(report, row, measured, compared)
        | _csv_paper(paper.get(row.info.name, {}), names)
        for row in report.rows
    ]
    rows += [_csv_info(m.info) | {"status": m.reason} for m in report.missing]
    more = [report.more(row["method"]) for row in rows]
    rows = [row | own for row, own in zip(rows, more, strict=True)]
    fields += dict.fromkeys(name for own in more for name in own)
    if report.study.trained:
        return Records(fields, rows)

    def known(field: str) -> bool:
        values = (row.get(field) for row in rows)
        return any(v not in (None, "") and v == v for v in values)  # NaN is not itself

    fields = [f for f in (*fields, *_VERSUS_FIELDS) if f != "status" and known(f)]
    return Records(fields, [{f: r[f] for f in fields if f in r} for r in rows])


_INFO = ("equation", "members", "training_cost", "inference_cost", "parameters")
_INFO += ("seconds", "compile_seconds")
_VERSUS_FIELDS = [
    f"{field}{end}" for _, field in VERSUS.values() for end in ("", "_low", "_high")
]


def table_fields(report: Report) -> list[str]:
    """Those of the CSV that the table shows, with their standard errors."""
    fields = ["method", "label", "runs"]
    shown = [quantity.name for quantity in report.columns]
    for name in shown:
        fields += [name, f"{name}_stderr"]
    for name in (f"delta_{name}" for name in COMPARED if name in shown):
        fields += [name, f"{name}_stderr", f"{name}_p_holm"]
    more = dict.fromkeys(k for row in report.rows for k in report.more(row.info.name))
    if report.study.trained:
        return [*fields, *more]
    known = _records(report).fields
    return [f for f in (*fields, *_VERSUS_FIELDS) if f in known]


def _csv_info(info: RowRecord) -> dict:
    told = {name: getattr(info, name) for name in _INFO}
    return {"method": info.name, "label": info.label, **told}


def _csv_row(
    report: Report, row: Row, measured: Sequence[str], compared: Sequence[str]
) -> dict:
    summary = row.summary
    out = _csv_info(row.info) | {
        "status": "finished",
        "runs": len(summary.runs),
        "stopped_runs": " ".join(str(r) for r in summary.stopped),
        "examples": summary.examples,
        "classes": summary.num_classes,
        "verdict": row.verdict,
    }
    for name in measured:
        out |= estimate_fields(name, getattr(summary, name))
    if (versus := row.comparison) is not None:
        for field in compared:
            difference, name = getattr(versus, field), f"delta_{field}"
            out |= difference_fields(name, difference)
            out[f"{name}_p"] = difference.p
            out[f"{name}_p_holm"] = getattr(versus, f"{field}_p")
    if (step := report.steps.get(row.label)) is not None:
        out["verdict"] = logits_verdict(report, row)
        for name, (_, field) in VERSUS.items():
            found = step[name]
            out |= {field: found.value, f"{field}_low": found.low}
            out |= {f"{field}_high": found.high}
    return out


def _csv_paper(paper: Mapping[str, Published], names: Sequence[str]) -> dict:
    out: dict = {}
    for name in names:
        if (number := paper.get(name)) is not None:
            out[f"paper_{name}"] = number.mean
            out[f"paper_{name}_std"] = number.std
            out[f"paper_{name}_doubtful"] = number.note
    return out
