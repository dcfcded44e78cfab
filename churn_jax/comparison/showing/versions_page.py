"""The page of a folder of versions: one file that needs nothing else."""

import datetime
import os
import platform
from pathlib import Path

import numpy as np

from churn_jax.comparison.result import CompareResult, VersionsResult
from churn_jax.comparison.showing.flow_diagram import flow_diagram
from churn_jax.comparison.showing.notebook import STYLE as NOTEBOOK_STYLE
from churn_jax.comparison.showing.page import page_head
from churn_jax.comparison.showing.page_tables import (
    regressions_table,
    update_table,
    versions_table,
)
from churn_jax.comparison.showing.sorting import SCRIPT
from churn_jax.comparison.showing.verdict import sentences
from churn_jax.comparison.showing.versions_plots import (
    accuracy_line,
    flips_on_the_way,
    heat_map,
)
from churn_jax.comparison.showing.versions_tables import (
    VersionsTable,
    gate_lines,
    matrix_tables,
    short_labels,
    step_table,
    version_table,
    versions_gate_sentence,
    versions_sentences,
)
from churn_jax.comparison.showing.wording import count_text, level_text
from churn_jax.escaping import escape
from churn_jax.predictions import replace_file
from churn_jax.reports.page import facts_table, header, page

MOST_REGRESSIONS = 20  # of each update
_WHOLE = "first-to-last"


def write_versions_page(
    result: VersionsResult, path: str | os.PathLike, *, command: str | None = None
) -> Path:
    """Writes the page, whole or not at all."""
    text = render_versions(result, command=command)
    with replace_file(path) as file:
        file.write(text.encode())
    return Path(path)


def render_versions(result: VersionsResult, *, command: str | None = None) -> str:
    """The page as text: HTML that loads nothing and runs one script, which sorts."""
    title = f"{result.names[0]} → {result.names[-1]}"
    counts = (
        f"{count_text(len(result.names))} versions",
        f"{count_text(result.examples)} examples"
        + ("" if result.labelled else " without labels"),
    )
    updates = [_update(step, f"update-{i + 1}") for i, step in enumerate(result.steps)]
    if len(result.steps) > 1:
        updates.append(_update(result.whole, _WHOLE))
    sections = (
        header(title, counts, command),
        _verdict(result),
        _versions(result),
        _steps(result),
        _matrices(result),
        *updates,
        _run(result, command),
        f"<script>{SCRIPT}</script>",
    )
    return page(title, sections, page_head())


def notebook_versions(result: VersionsResult) -> str:
    """Sentences, gates and tables, whose style reaches nothing else in a notebook."""
    title = f"{result.names[0]} → {result.names[-1]}"
    labels = short_labels(result)
    tables = [version_table(result, labels), step_table(result)]
    for found in matrix_tables(result, labels)[:2]:  # churn and NFR
        tables.append(found._replace(caption=f"{found.title}. {found.caption}"))
    parts = [f"<style>{NOTEBOOK_STYLE}</style>"]
    parts += [f"<p><strong>{escape(title)}</strong></p>", *_gates(result)]
    said = (*versions_sentences(result), *result.notes)
    parts += [f"<p>{escape(text)}</p>" for text in said]
    parts += [_table(found) for found in tables]
    return '<div class="churn-jax">' + "\n".join(parts) + "</div>"


def _verdict(result: VersionsResult) -> str:
    out = ['<section class="said">']
    if text := versions_gate_sentence(result):
        kind = "good" if result.passed else "bad"
        out.append(f'<p class="outcome {kind}">{escape(text)}</p>')
    first, *others = versions_sentences(result)
    out.append(f'<p class="lead">{escape(first)}</p>')
    out += [f"<p>{escape(text)}</p>" for text in others]
    out += _gates(result)
    out += [f'<p class="note remark">{escape(note)}</p>' for note in result.notes]
    return "\n".join([*out, "</section>"])


def _gates(result: VersionsResult) -> list[str]:
    lines = gate_lines(result)
    if not lines:
        return []
    out = ['<ul class="verdicts">']
    for passed, line in lines:
        kind, word = ("good", "PASS") if passed else ("bad", "FAIL")
        rest = escape(line.removeprefix(word).strip())
        out.append(f'<li class="{kind}"><b>{word}</b> {rest}</li>')
    return [*out, "</ul>"]


def _versions(result: VersionsResult) -> str:
    labels = short_labels(result)
    figures = [
        (
            "Accuracy",
            accuracy_line(result, labels),
            f"Bars: {level_text(result.level)} intervals.",
        ),
        (
            "Do flips accumulate?",
            flips_on_the_way(result, labels),
            "What lies between the lines has cancelled on the way.",
        ),
    ]
    shown = "\n".join(_figure(*figure) for figure in figures if figure[1])
    grid = f'<div class="grid" style="margin-top:1rem">{shown}</div>' if shown else ""
    table = _table(version_table(result, labels))
    return f"<section><h2>Versions</h2>{table}{grid}</section>"


def _steps(result: VersionsResult) -> str:
    links = [f"update-{i + 1}" for i in range(len(result.steps))]
    links += [_WHOLE] if len(links) > 1 else []
    return (
        f"<section><h2>Updates</h2>{_table(step_table(result), tuple(links))}</section>"
    )


def _matrices(result: VersionsResult) -> str:
    labels = short_labels(result)
    tables = matrix_tables(result, labels)
    if not tables:
        return ""
    figures = [("Churn", heat_map(result.churn, labels, "churn"))]
    if result.negative_flip_rate is not None:
        drawn = heat_map(result.negative_flip_rate, labels, "NFR")
        figures.append(("Negative flips", drawn))
    shown = "\n".join(
        _figure(title, drawn, found.caption)
        for (title, drawn), found in zip(figures, tables, strict=False)
    )
    listed = "\n".join(f"<h3>{escape(t.title)}</h3>{_table(t)}" for t in tables)
    return (
        "<section><h2>Every version against every other</h2>"
        f'<div class="grid">{shown}</div>'
        f"<details><summary>As tables</summary>{listed}</details></section>"
    )


def _update(step: CompareResult, anchor: str) -> str:
    """One update for itself; classes and slices are on the page of the two alone."""
    title = f"{step.old.name} → {step.new.name}"
    out = [f'<section id="{anchor}"><h2>{escape(title)}</h2>']
    out += [f"<p>{escape(text)}</p>" for text in sentences(step)]
    out += [versions_table(step), update_table(step)]
    if drawn := flow_diagram(step.flow, anchor):
        summary = "Where changed predictions go"
        out.append(
            f"<details><summary>{summary}</summary><figure>{drawn}</figure></details>"
        )
    if step.regressions:
        shown = step.regressions[:MOST_REGRESSIONS]
        summary = (
            f"Largest regressions, {count_text(len(shown))} of "
            f"{count_text(step.regressions_total)}"
        )
        table = regressions_table(
            shown,
            scored="classes" not in (step.old.kind, step.new.kind),
            runs=step.run_pairs > 1,
        )
        out.append(f"<details><summary>{summary}</summary>{table}</details>")
    return "\n".join([*out, "</section>"])


def _run(result: VersionsResult, command: str | None) -> str:
    import churn_jax

    facts = {
        "Command": command or "",
        "Versions": ", ".join(
            f"{version.name} ({version.kind})" for version in result.versions
        ),
        "Compared": f"{count_text(result.examples)} examples that all versions have",
        "Intervals": f"{level_text(result.level)} confidence",
        "Date": datetime.date.today().isoformat(),
        "Software": f"churn_jax {churn_jax.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}",
    }
    shown = {name: value for name, value in facts.items() if value}
    return f"<section><h2>What was run</h2>{facts_table(shown)}</section>"


def _figure(title: str, svg: str, caption: str) -> str:
    return (
        f"<figure><h3>{escape(title)}</h3>{svg}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(found: VersionsTable, links: tuple[str, ...] = ()) -> str:
    """The table with intervals in small print; the first rows lead to `links`."""
    # A number goes to the right, the name of a version to the left.
    kinds = [' class="text"' if head == "Version" else "" for head in found.heads]
    heads = "".join(
        f'<th scope="col"{kind}>{escape(head)}</th>'
        for head, kind in zip(found.heads, kinds, strict=True)
    )
    lines = []
    for i, (label, *cells) in enumerate(found.rows):
        shown = escape(label)
        if i < len(links):
            shown = f'<a href="#{links[i]}">{shown}</a>'
        data = "".join(
            f"<td{kind}>{_cell(cell)}</td>"
            for cell, kind in zip(cells, kinds[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{shown}</th>{data}</tr>')
    said = f"<caption>{escape(found.caption)}</caption>" if found.caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table class="compare history">{said}'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _cell(text: str) -> str:
    value, _, ends = text.partition("\n")
    return escape(value) + (f"<small>{escape(ends)}</small>" if ends else "")
