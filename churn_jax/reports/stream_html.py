"""`report.html`, `table.md` and `table.csv` of a stream study."""

from churn_jax.configuration.codec import to_json
from churn_jax.configuration.streams import differs
from churn_jax.escaping import escape
from churn_jax.methods.base import Method
from churn_jax.predictions import replace_file
from churn_jax.reports import stream_plots
from churn_jax.reports.artefacts import Study
from churn_jax.reports.page import (
    facts_table,
    figures_section,
    header,
    page,
    run_section,
    scrolling_table,
)
from churn_jax.reports.report import check_readable
from churn_jax.reports.stream import StreamReport, StreamRow, collect_stream
from churn_jax.reports.stream_beside import stream_beside
from churn_jax.reports.stream_tables import (
    COLUMNS,
    PART_TITLES,
    caption,
    csv_stream,
    markdown_stream,
    verdict,
)

__all__ = ["render_stream", "write_stream"]

FIGURES = (
    (
        stream_plots.trade_off,
        "What reproducibility costs",
        "Down is more reproducible, left predicts better. Numbers: λ. Bars: one "
        "standard error.",
    ),
    (
        stream_plots.along_the_stream,
        "Along the stream",
        "Each point is one stretch of the stream, scored before it was learned; the "
        "first stretches are of models that know little.",
    ),
)

METHOD_FACTS = ("class", "penalty", "strength", "input_scale", "on", "deploy")

GLOSSARY = (
    (
        "Progressive validation",
        "One pass over the data in time order. Each batch is scored before it is "
        "learned, so every score is of an example that the model has not seen.",
    ),
    (
        "Δʳ₁, relative prediction difference",
        "Mean over examples of the mean distance of each run's distribution from the "
        "mean over runs, both labels counted, divided by the mean probability of a "
        "positive. 0.05 reads: a run's probability is typically some per cent off the "
        "runs' mean.",
    ),
    (
        "Δ₁, Δᴴ",
        "The same distance without the division; the share of examples that two runs "
        "label differently, averaged over pairs of runs.",
    ),
    (
        "Rank loss",
        "One minus the area under the ROC curve: how often a negative is ranked above "
        "a positive. The paper does not define its ranking loss; this reading is ours.",
    ),
    (
        "λ, s",
        "Weight of the anti-distillation penalty; factor of the variance of the "
        "embeddings' initial values.",
    ),
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
    for name, text in (
        ("table.md", markdown_stream(report)),
        ("table.csv", csv_stream(report)),
        ("report.html", render_stream(report)),
    ):
        path = report.study.folder / name
        with replace_file(path) as file:
            file.write(text.encode())
        report.files[name] = path
    return report


def render_stream(report: StreamReport) -> str:
    """The page as text: a whole HTML document that needs nothing else."""
    study = report.study
    figures = ((draw(report), title, text) for draw, title, text in FIGURES)
    return page(
        report.study.title,
        (
            _header(report),
            _results(report),
            figures_section(figures),
            _beside(report),
            _rows(report),
            run_section(
                study.record,
                {
                    "Runs per row": study.replicas,
                    "What two runs differ in": differs(study.config.train),
                    "Examples": _examples(study),
                },
            ),
            _glossary(),
        ),
    )


def _examples(study: Study) -> str:
    count = study.record.data.examples
    return "" if count is None else f"{count:,}"


def _header(report: StreamReport) -> str:
    study, launch = report.study, report.study.record.launch
    runs = f"{study.replicas} runs per row"
    parts = (launch.date, study.record.data.name, runs, launch.hardware)
    return header(study.title, parts, launch.command)


def _results(report: StreamReport) -> str:
    out = ["<section><h2>Results</h2>"]
    if said := [row for row in report.rows if verdict(row)]:
        base = report.baseline
        against = base.info.label if base else report.study.baseline
        out.append(f'<p>Against {escape(against)}:</p><ul class="verdicts">')
        out += [
            f'<li class="{_tone(row)}"><strong>{escape(row.info.label)}</strong>: '
            f"{escape(verdict(row))}</li>"
            for row in said
        ]
        out.append("</ul>")
    differ = escape(differs(report.study.config.train))
    out.append(f"<p>What two runs of a row differ in: {differ}.</p>")
    out += [f'<p class="note">{escape(remark)}</p>' for remark in report.remarks]
    if report.rows:
        out.append(f'<p class="soft">{escape(caption(report))}</p>')
    for part in report.parts:
        lines = [
            [column.cell(row, part) for column in COLUMNS]
            for row in report.rows
            if part in row.numbers
        ]
        table = scrolling_table([c.header for c in COLUMNS], lines, "main")
        out.append(f'<h3 style="margin-top:1rem">{PART_TITLES[part]}</h3>{table}')
    return "\n".join([*out, "</section>"])


def _tone(row: StreamRow) -> str:
    words = {"Reduces": "good", "Increases": "bad"}
    return words.get(verdict(row).split()[0], "even")


def _beside(report: StreamReport) -> str:
    found = stream_beside(report)
    if found is None:
        return ""
    notes = "".join(f"<li>Doubtful: {escape(note)}.</li>" for note in found.notes)
    return (
        "<section><h2>Beside the paper</h2>"
        f'<p class="soft">{escape(found.caption)}</p>'
        + scrolling_table(found.heads, found.rows, "plain")
        + (f'<ol class="soft">{notes}</ol>' if notes else "")
        + "</section>"
    )


def _rows(report: StreamReport) -> str:
    """What every row was, and how long it took."""
    out = ['<section><h2>Rows</h2><div class="grid">']
    for row in report.rows:
        info = row.info
        rate = (
            f", {row.examples / info.seconds:,.0f} examples/s" if info.seconds else ""
        )
        facts = {
            "Equation": info.equation,
            "Method": _method(info.method),
            "Training of its own": ", ".join(f"{k} = {v}" for k, v in info.spec.train),
            "Components": "" if info.members is None else str(info.members),
            "Parameters": "" if info.parameters is None else f"{info.parameters:,}",
            "Time": f"{info.seconds:,.1f} s{rate}" if info.seconds else "",
            "Runs counted": f"{len(row.numbers['stream'].runs)}",
        }
        shown = {name: value for name, value in facts.items() if value}
        out.append(
            f'<div class="card"><h3>{escape(info.label)}</h3>{facts_table(shown)}</div>'
        )
    return "\n".join([*out, "</div></section>"])


def _method(method: Method) -> str:
    """Its class and the settings that the paper varies."""
    known = to_json(method)
    if known.get("input_scale") == 1.0:
        del known["input_scale"]
    return ", ".join(f"{k} = {known[k]}" for k in METHOD_FACTS if k in known)


def _glossary() -> str:
    entries = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in GLOSSARY
    )
    return f"<section><h2>Glossary</h2><dl>{entries}</dl></section>"
