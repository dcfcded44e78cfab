"""The page of a comparison: one file that needs nothing else."""

import base64
import datetime
import hashlib
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from churn_jax.comparison.result import CompareResult, Version
from churn_jax.comparison.showing.explained import glossary
from churn_jax.comparison.showing.flow_diagram import flow_diagram, mean_count
from churn_jax.comparison.showing.group_tables import groups_section
from churn_jax.comparison.showing.page_plots import (
    churn_bars,
    confidence_and_displacement,
    reliability,
)
from churn_jax.comparison.showing.page_style import STYLE
from churn_jax.comparison.showing.page_tables import (
    flow_table,
    noise_table,
    regressions_table,
    update_table,
    versions_table,
)
from churn_jax.comparison.showing.sorting import SCRIPT
from churn_jax.comparison.showing.verdict import gate_sentence, sentences
from churn_jax.comparison.showing.wording import count_text, level_text
from churn_jax.escaping import escape
from churn_jax.predictions import replace_file
from churn_jax.reports.page import facts_table, header, page

MOST_FLOWS = 15  # rows of the table beside the diagram
MOST_LISTED, MOST_REGRESSIONS = 50, 2000  # shown openly, and at all


def write_page(
    result: CompareResult, path: str | os.PathLike, *, command: str | None = None
) -> Path:
    """Writes the page, whole or not at all."""
    text = render_page(result, command=command)
    with replace_file(path) as file:
        file.write(text.encode())
    return Path(path)


def render_page(result: CompareResult, *, command: str | None = None) -> str:
    """The page as text: HTML that loads nothing and runs one script, which sorts."""
    title = f"{result.old.name} → {result.new.name}"
    sections = [
        header(title, _facts(result), command),
        _verdict(result),
        _notes(result.notes),
        _numbers(result),
        _noise(result),
        _flow(result),
        _figures(result),
        groups_section(result.groups, level=result.level, labelled=result.labelled),
        _regressions(result),
        _run(result, command),
        glossary(result),
        f"<script>{SCRIPT}</script>",
    ]
    return page(title, (section for section in sections if section), page_head())


def page_head() -> str:
    """The style, and a promise that the browser keeps: nothing is loaded or run."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return (
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'\">\n"
        f"<style>{STYLE}</style>\n"
    )


def _facts(result: CompareResult) -> list[str]:
    """What was compared, in parts of a line."""
    old, new = result.old, result.new
    facts = [f"{count_text(result.examples)} examples"]
    if not result.labelled:
        facts[0] += " without labels"
    of_old, of_new = _side(old), _side(new)
    if of_old == of_new:
        return [*facts, f"each: {of_old}"]
    return [*facts, f"old: {of_old}", f"new: {of_new}"]


def _side(version: Version) -> str:
    kind = {"classes": "predicted classes"}.get(version.kind, version.kind)
    runs = "1 run" if version.runs == 1 else f"{version.runs} runs"
    return f"{kind}, {count_text(version.classes)} classes, {runs}"


def _verdict(result: CompareResult) -> str:
    said = list(sentences(result))
    out = ['<section class="said">']
    if result.gates:
        kind = "good" if result.passed else "bad"
        out.append(f'<p class="outcome {kind}">{escape(gate_sentence(result))}</p>')
    out += [f'<p class="lead">{_prose(text)}</p>' for text in said[:1]]
    out += [f"<p>{_prose(text)}</p>" for text in said[1:]]
    if result.gates:
        out.append('<ul class="verdicts">')
        for outcome in result.gates:
            kind, word = ("good", "PASS") if outcome.passed else ("bad", "FAIL")
            line = outcome.line.removeprefix(word).strip()
            out.append(f'<li class="{kind}"><b>{word}</b> {_prose(line)}</li>')
        out.append("</ul>")
    return "\n".join([*out, "</section>"])


def _notes(notes: Sequence[str]) -> str:
    said = "".join(f"<p>{_prose(note)}</p>" for note in notes)
    return f'<div class="note remark">{said}</div>' if said else ""


def _prose(text: str) -> str:
    """Escaped; a line never breaks between a number and its percent sign."""
    return escape(text).replace(" %", "\u00a0%")


def _numbers(result: CompareResult) -> str:
    tables = [versions_table(result), update_table(result)]
    return "\n".join(["<section><h2>Numbers</h2>", *filter(None, tables), "</section>"])


def _noise(result: CompareResult) -> str:
    if result.noise is None:
        return ""
    return (
        "<section><h2>More than retraining?</h2>"
        '<p class="soft">Two runs of one version differ though nothing was changed. '
        "Only what the update changes beyond that is its own doing.</p>"
        f'<div class="grid"><figure>{churn_bars(result.noise, result["churn"])}'
        f"<figcaption>Lines: {level_text(result.level)} intervals.</figcaption>"
        f"</figure>{noise_table(result.noise)}</div></section>"
    )


def _flow(result: CompareResult) -> str:
    flow = result.flow
    drawn = flow_diagram(flow)
    heading = "<h2>Where changed predictions go</h2>"
    if not drawn:
        return f"<section>{heading}<p>No prediction changes.</p></section>"
    runs = result.run_pairs
    changed = result["churn"].value * result.examples
    said = f"{mean_count(changed)} examples change their class"
    if runs > 1:
        said += f", mean over {runs} pairs of runs"
    said += ". Ribbons are as wide as they have examples"
    if result.labelled:
        said += '; "worse" counts those that were right before and are wrong now'
    if sum(flow.examples) < changed - 0.5:
        said += f"; shown are the {count_text(len(flow.old))} largest flows"
    return (
        f"<section>{heading}"
        f'<div class="grid"><figure>{drawn}<figcaption>{escape(said)}.</figcaption>'
        f"</figure>{flow_table(flow, MOST_FLOWS)}</div></section>"
    )


def _figures(result: CompareResult) -> str:
    figures = []
    if result.curves is not None:
        figures.append(
            (
                "Reliability",
                reliability(*result.curves),
                "On the dotted line, predictions made with confidence 0.8 are right in "
                "80 % of cases. Hollow marks: bins of fewer than 10 examples. Below: "
                "how many examples each bin has.",
            )
        )
    if result.points is not None:
        figures.append(
            (
                "Confidence and displacement",
                confidence_and_displacement(result.points),
                _sampling(result),
            )
        )
    shown = [
        f"<figure><h3>{escape(title)}</h3>{svg}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for title, svg, caption in figures
        if svg
    ]
    if not shown:
        return ""
    grid = '<div class="grid">' + "\n".join(shown) + "</div>"
    return f"<section><h2>Probabilities</h2>{grid}</section>"


def _sampling(result: CompareResult) -> str:
    points = result.points
    if points is None or len(points.outcome) >= points.sampled_from:
        return "One mark per example."
    return (
        f"A sample of {count_text(len(points.outcome))} of the "
        f"{count_text(points.sampled_from)} examples, more of the changed ones than of "
        "the rest: see the numbers below the figure."
    )


def _regressions(result: CompareResult) -> str:
    if not result.labelled:
        return ""
    runs = result.run_pairs > 1
    scored = "classes" not in (result.old.kind, result.new.kind)
    out = ["<section><h2>Largest regressions</h2>"]
    if not result.regressions:
        said = "None is listed." if result.regressions_total else "There is none."
        return "\n".join([*out, f"<p>{said}</p></section>"])
    when = "in some pair of runs" if runs else "now"
    listed, total = len(result.regressions), result.regressions_total
    of = f"{count_text(listed)} of the {count_text(total)}"
    out.append(
        f'<p class="soft">{of if listed < total else f"All {count_text(total)}"} '
        f"examples that were right before and are wrong {when}, worst first.</p>"
    )
    out += _folded(result.regressions[:MOST_REGRESSIONS], scored, runs)
    return "\n".join([*out, "</section>"])


def _folded(listed: Sequence, scored: bool, runs: bool) -> list[str]:
    """The first ones, and the others behind a line that opens them."""
    first, others = listed[:MOST_LISTED], listed[MOST_LISTED:]
    out = [regressions_table(first, scored=scored, runs=runs)]
    if others:
        table = regressions_table(others, scored=scored, runs=runs)
        summary = f"{count_text(len(others))} more"
        out.append(f"<details><summary>{summary}</summary>{table}</details>")
    return out


def _run(result: CompareResult, command: str | None) -> str:
    import churn_jax

    facts = {
        "Command": command or "",
        "Old": f"{result.old.name}: {_read(result.old)}",
        "New": f"{result.new.name}: {_read(result.new)}",
        "Compared": f"{count_text(result.examples)} examples",
        "Intervals": f"{level_text(result.level)} confidence",
        "Date": datetime.date.today().isoformat(),
        "Versions": f"churn_jax {churn_jax.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}",
    }
    shown = {name: value for name, value in facts.items() if value}
    return f"<section><h2>What was run</h2>{facts_table(shown)}</section>"


def _read(version: Version) -> str:
    return f"{_side(version)}, {count_text(version.examples)} examples"
