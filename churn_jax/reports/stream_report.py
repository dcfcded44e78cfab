"""The report of a stream study: `report.html`, `table.md` and `table.csv`.

Columns follow Table 3 of the anti-distillation paper. Changes are percent of the
baseline's number in the text forms, plain shares at full precision in the CSV.
"""

import math
from collections.abc import Callable

from rich.console import Console

from churn_compare.documents import (
    Block,
    Card,
    Column,
    Document,
    Facts,
    Grid,
    Records,
    Rows,
    Section,
    Strong,
    Table,
    Term,
    Terms,
    Text,
    print_document,
    table_files,
    write_files,
)
from churn_compare.documents.plotting import drawn_later
from churn_jax.analysis.significance import Difference
from churn_jax.configuration.codec import to_json
from churn_jax.configuration.streams import differs
from churn_jax.reports import stream_figures
from churn_jax.reports.cells import (
    ABSENT,
    difference_fields,
    ends,
    of_set,
    p_text,
    signed,
    with_error,
)
from churn_jax.reports.compare import FEWEST_RUNS, SIGNIFICANT
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.paper_numbers import PaperRow, assemble, paper_section
from churn_jax.reports.published import PublishedTable, published
from churn_jax.reports.quantities import Quantity
from churn_jax.reports.report import check_readable
from churn_jax.reports.run_facts import page_facts, run_section
from churn_jax.reports.stream import StreamReport, StreamRow, collect_stream
from churn_jax.reports.stream_numbers import DIFFERENCES, LOSSES

WIDE = 150  # columns of a terminal that shows the whole table
PART_TITLES = {
    "stream": "Progressive validation: every example scored before it was learned",
    "holdout": "Examples held out of the stream, scored at its end",
}
METHOD_FACTS = ("class", "penalty", "strength", "input_scale", "on", "deploy")
FIGURES = (
    (
        stream_figures.trade_off,
        "What reproducibility costs",
        "Down is more reproducible, left predicts better. Numbers: λ. Bars: one "
        "standard error.",
    ),
    (
        stream_figures.along_the_stream,
        "Along the stream",
        "Each point is one stretch of the stream, scored before it was learned; the "
        "first stretches are of models that know little.",
    ),
)
GLOSSARY = (
    Term(
        "Progressive validation",
        "One pass over the data in time order. Each batch is scored before it is "
        "learned, so every score is of an example that the model has not seen.",
    ),
    Term(
        "Δʳ₁, relative prediction difference",
        "Mean over examples of the mean distance of each run's distribution from the "
        "mean over runs, both labels counted, divided by the mean probability of a "
        "positive. 0.05 reads: a run's probability is typically some per cent off the "
        "runs' mean.",
    ),
    Term(
        "Δ₁, Δᴴ",
        "The same distance without the division; the share of examples that two runs "
        "label differently, averaged over pairs of runs.",
    ),
    Term(
        "Rank loss",
        "One minus the area under the ROC curve: how often a negative is ranked above "
        "a positive. The paper does not define its ranking loss; this reading is ours.",
    ),
    Term(
        "λ, s",
        "Weight of the anti-distillation penalty; factor of the variance of the "
        "embeddings' initial values.",
    ),
)


def _change_cell(estimate: Estimate) -> str:
    """`-1.234`, times 100."""
    known = math.isfinite(estimate.mean)
    return f"{100 * estimate.mean:+.3f}" if known else ABSENT


PUBLISHED = (
    Quantity("log_loss_change", "Log loss change %", _change_cell),
    Quantity("rank_loss_change", "Rank loss change %", _change_cell),
    Quantity("positive_prediction_difference", "Δʳ₁", of_set),
)


def write_stream(folder) -> StreamReport:
    """Writes `table.md`, `table.csv` and `report.html` of a stream study.

    Works while the study is unfinished: rows without a result are named with the
    reason. Every file is replaced whole or not at all.

    Args:
        folder: `runs/<study>`.

    Returns:
        The `StreamReport`; its `files` map names to the paths written.

    Raises:
        ReportError: there is no usable `study.json`, or no row can be reported and one
            is damaged.
        OSError: a file could not be written; an earlier one is left as it was.
    """
    report = collect_stream(folder)
    check_readable(report)
    contents = table_files(stream_document(report))
    report.files.update(write_files(report.study.folder, contents))
    return report


def print_stream(report: StreamReport, console: Console | None = None) -> None:
    """Prints tables, verdicts and remarks; a narrow terminal gets fewer columns.

    Args:
        report: what `write_stream` returned.
        console: where to; the standard output by default.
    """
    print_document(stream_document(report).as_lines(), console)


def stream_document(report: StreamReport) -> Document:
    """Verdicts, tables of every part, figures and the paper's numbers."""
    study = report.study
    published = stream_paper_section(report)
    examples = study.record.data.examples
    run = {
        "Runs per row": study.config.train.replicas,
        "What two runs differ in": differs(study.config.train),
        "Examples": "" if examples is None else f"{examples:,}",
    }
    return Document(
        study.config.title,
        page_facts(study.record, f"{study.config.train.replicas} runs per row"),
        [
            _results(report),
            Section("Figures", [Grid(drawn_later(FIGURES, report))]),
            *([published] if published else []),
            Section("Rows", [Grid([*map(_card, report.rows)])], detail="full"),
            run_section(study.record, run),
            Section("Glossary", [Terms(GLOSSARY)], detail="full"),
        ],
        study.record.launch.command,
        data=_records(report),
    )


def _results(report: StreamReport) -> Section:
    """Verdicts, remarks, and the table of every part."""
    config, base = report.study.config, report.baseline
    said = [(row, verdict(row)) for row in report.rows if verdict(row)]
    blocks: list[Block] = []
    if said:
        blocks.append(Text(f"Against {base.info.label if base else config.baseline}:"))
    blocks += [
        Rows([Text((Strong(r.info.label), f": {v}"), _tone(v)) for r, v in said]),
        Text(f"What two runs of a row differ in: {differs(config.train)}."),
        *(Text(remark, "note") for remark in report.remarks),
        Text(_caption(report) if report.rows else "", "soft"),
    ]
    for part in report.parts:
        found = _table(report, part)
        title = PART_TITLES[part]
        blocks.append(Table(found.columns, found.rows, title, kind="main"))
    return Section("Results", blocks)


def _card(row: StreamRow) -> Card:
    """What a row was, and how long it took."""
    info = row.info
    rate = f", {row.examples / info.seconds:,.0f} examples/s" if info.seconds else ""
    method = to_json(info.method)
    if method.get("input_scale") == 1.0 and "penalty" not in method:
        del method["input_scale"]
    method = {k: method[k] for k in METHOD_FACTS if k in method}
    facts = {
        "Equation": info.equation,
        "Method": ", ".join(f"{k} = {v}" for k, v in method.items()),
        "Training of its own": ", ".join(f"{k} = {v}" for k, v in info.spec.train),
        "Components": "" if info.members is None else str(info.members),
        "Parameters": "" if info.parameters is None else f"{info.parameters:,}",
        "Time": f"{info.seconds:,.1f} s{rate}" if info.seconds else "",
        "Runs counted": f"{len(row.numbers['stream'].runs)}",
    }
    return Card(info.label, [Facts(facts)])


def _tone(said: str) -> str:
    return {"Reduces": "good", "Increases": "bad"}.get(said.split()[0], "even")


def _with_interval(difference: Difference, p: float | None = None) -> str:
    """`-27.2 (-29.0 to -25.4)`, times 100."""
    if not math.isfinite(difference.difference):
        return ABSENT
    text, found = f"{100 * difference.difference:+.1f}", ends(difference, p, 100, 1)
    return f"{text} ({found})" if found else text


def _number(name: str, digits: int) -> Callable[[StreamRow, str], str]:
    return lambda row, part: with_error(row.numbers[part].estimate(name), digits)


def _change(
    name: str, write: Callable[[Difference], str]
) -> Callable[[StreamRow, str], str]:
    def cell(row: StreamRow, part: str) -> str:
        if part not in row.changes:
            return ABSENT
        return write(row.changes[part].changes[name].relative)

    return cell


# Heading, the cell of a row for a part of the stream, whether a narrow terminal has it.
_COLUMNS: tuple[tuple[str, Callable[[StreamRow, str], str], bool], ...] = (
    ("AD type", lambda row, part: row.info.label, True),
    ("λ", lambda row, part: f"{row.strength:.3g}", False),
    ("s", lambda row, part: f"{row.input_scale:g}", False),
    ("Log loss change %", _change("log_loss", lambda d: signed(d, 100, 3)), True),
    ("Rank loss change %", _change("rank_loss", lambda d: signed(d, 100, 3)), False),
    ("Δʳ₁", _number("relative_pd", 4), True),
    ("Δʳ₁ change %", _change("relative_pd", _with_interval), True),
    ("Δ₁", _number("pd_1", 5), False),
    ("Δᴴ", _number("hamming", 5), False),
    ("Log loss", _number("log_loss", 4), False),
    ("Calibration", _number("calibration", 3), False),
)


def _table(report: StreamReport, part: str) -> Table:
    columns = [
        Column(heading, from_width=0 if narrow else WIDE)
        for heading, _, narrow in _COLUMNS
    ]
    rows = [
        [cell(row, part) for _, cell, _ in _COLUMNS]
        for row in report.rows
        if part in row.numbers
    ]
    return Table(columns, rows)


def _caption(report: StreamReport) -> str:
    """What the numbers are."""
    base = report.baseline
    against = base.info.label if base is not None else report.study.config.baseline
    runs = report.study.config.train.replicas
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
    said = p_text(found.p_holm)
    spread = f" (95 %: {ends(pd.relative, found.p_holm, 100, 1)})"
    if not math.isfinite(pd.relative.difference):
        size = f"by {abs(pd.absolute.difference):.4f}"
    else:
        size = f"by {100 * abs(pd.relative.difference):.1f} %{spread}"
    if found.p_holm < SIGNIFICANT:
        verb = "Increases" if pd.absolute.difference > 0 else "Reduces"
        text = f"{verb} Δʳ₁ {size}, {said}"
    else:
        shown = _with_interval(pd.relative, found.p_holm)
        text = f"No detectable effect on Δʳ₁ ({shown} %, {said})"
    digits = 2 if 100 * loss.stderr >= 0.01 else 3
    return f"{text}; log loss {signed(loss, 100, digits)} %."


def _records(report: StreamReport) -> Records:
    """One line per row and part, shares at full precision; absent numbers are empty."""
    # `_change` is the row's number minus the baseline's, `_relative_change` that as a
    # share of the baseline's; `p` is two-sided, of the relative change.
    fields = ["row", "label", "part", "status", "penalty", "strength", "input_scale"]
    fields += ["members", "parameters", "examples", "runs", "stopped_runs", "seconds"]
    for name in (*LOSSES, *DIFFERENCES):
        fields += [name, f"{name}_stderr"]
        for kind in ("change", "relative_change"):
            fields += [f"{name}_{kind}", f"{name}_{kind}_stderr"]
    fields += ["relative_pd_p", "relative_pd_p_holm"]
    rows = [_csv_row(row, part) for row in report.rows for part in row.numbers]
    rows += [
        {"row": m.info.name, "label": m.info.label, "status": m.reason}
        for m in report.missing
    ]
    return Records(fields, rows)


def _csv_row(row: StreamRow, part: str) -> dict:
    numbers, info = row.numbers[part], row.info
    out = {
        "row": info.name,
        "label": info.label,
        "part": part,
        "status": "finished",
        "penalty": row.penalty,
        "strength": row.strength,
        "input_scale": row.input_scale,
        "members": info.members,
        "parameters": info.parameters,
        "examples": row.examples if part == "stream" else "",
        "runs": len(numbers.runs),
        "stopped_runs": " ".join(map(str, info.stopped_replicas)),
        "seconds": info.seconds,
    }
    for name in (*LOSSES, *DIFFERENCES):
        estimate = numbers.estimate(name)
        out[name], out[f"{name}_stderr"] = estimate.mean, estimate.stderr
        if part not in row.changes:
            continue
        change = row.changes[part].changes[name]
        out |= difference_fields(f"{name}_change", change.absolute)
        out |= difference_fields(f"{name}_relative_change", change.relative)
    if part in row.changes:
        found = row.changes[part]
        out["relative_pd_p"] = found.changes["relative_pd"].p
        out["relative_pd_p_holm"] = found.p_holm
    return out


def stream_paper_section(report: StreamReport) -> Section | None:
    """The published numbers of a study's rows next to those over its stream."""
    found = published(report.study.config.published)
    if found is None:
        return None
    printed = {name for row in found.rows.values() for name in row}
    metrics = tuple(quantity for quantity in PUBLISHED if quantity.name in printed)
    rows = [
        PaperRow(
            name=row.info.name,
            label=row.info.label,
            paper=dict(found.rows.get(row.info.name, {})),
            measured=_measured(row, row.info.name == report.study.config.baseline),
        )
        for row in report.rows
    ]
    caption = _published_caption(found)
    numbers = assemble(report.study, found, metrics, rows, caption)
    return paper_section(numbers, "Row", ("paper", "ours"))


def _measured(row: StreamRow, baseline: bool) -> dict[str, Estimate]:
    """Numbers over the stream by the names of `PUBLISHED`."""
    found = {
        "positive_prediction_difference": row.numbers["stream"].whole["relative_pd"]
    }
    for name in ("log_loss", "rank_loss"):
        if baseline:
            found[f"{name}_change"] = 0.0
        elif "stream" in row.changes:
            change = row.changes["stream"].changes[name].relative
            found[f"{name}_change"] = change.difference
    return {name: Estimate(value, math.nan, math.nan) for name, value in found.items()}


def _published_caption(found: PublishedTable) -> str:
    runs = f", {found.runs} runs" if found.runs else ""
    return (
        f"Paper: {found.citation}, {found.title}{runs}. Ours: this stream. The paper's "
        "data are private and its settings mostly unstated: only the direction and the "
        "rough size of an effect can be compared."
    )
