"""`report.html`, tables and PNG figures of a sweep."""

import json
from collections.abc import Sequence
from html import escape

from churn_jax.predictions import replace_file
from churn_jax.reports.html import _facts, _mapping
from churn_jax.reports.selection import CRITERIA
from churn_jax.reports.style import STYLE
from churn_jax.reports.sweep import SPLITS, AxisResult, SweepResult, collect_sweep
from churn_jax.reports.sweep_plots import Figure, sweep_figures
from churn_jax.reports.sweep_tables import (
    QUANTITIES,
    UNSEEN,
    caption,
    choice_sentence,
    csv_sweep,
    markdown_sweep,
    remarks,
    rows,
)

__all__ = ["render_sweep", "write_sweep"]


def write_sweep(folder) -> SweepResult:
    """Writes `table.md`, `table.csv`, `report.html` and PNG figures of a sweep.

    Args:
        folder: of the sweep; it may be unfinished.

    Returns:
        The `SweepResult`; its `files` map names to the paths written.

    Raises:
        ReportError: there is no usable `sweep.json`.
        OSError: a file could not be written; an earlier one is left as it was.
    """
    result = collect_sweep(folder)
    figures = sweep_figures(result)
    texts = {
        "table.md": markdown_sweep(result),
        "table.csv": csv_sweep(result),
        "report.html": render_sweep(result, figures),
    }
    contents = {name: text.encode() for name, text in texts.items()}
    contents |= {f"{figure.name}.png": figure.png for figure in figures}
    for name, content in contents.items():
        path = result.folder / name
        with replace_file(path) as file:
            file.write(content)
        result.files[name] = path
    return result


def render_sweep(result: SweepResult, figures: Sequence[Figure]) -> str:
    """The page as text: a whole HTML document that needs nothing else.

    Args:
        result: from `collect_sweep`.
        figures: from `sweep_figures`.
    """
    body = "\n".join(
        (
            _header(result),
            _choices(result),
            _figures(figures),
            *(_tables(result, axis) for axis in result.axes),
            _what_was_run(result),
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(result.title)}</title>\n<style>{STYLE}</style>\n"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _header(result: SweepResult) -> str:
    facts = result.facts
    parts = (
        facts.get("date"),
        _mapping(facts.get("data")).get("name"),
        f"{result.seeds} seeds per value",
        facts.get("hardware"),
    )
    line = " · ".join(escape(str(part)) for part in parts if part)
    command = facts.get("command")
    return (
        f"<header><h1>{escape(result.title)}</h1>\n"
        f'<p class="soft">{line}</p>'
        + (f"<pre>{escape(str(command))}</pre>" if command else "")
        + "</header>"
    )


def _choices(result: SweepResult) -> str:
    rule = CRITERIA[result.facts["criterion"]]
    out = ["<section><h2>Choice</h2>", f"<p>The rule: {escape(rule)}. {escape(UNSEEN)}"]
    out.append('</p><ul class="verdicts">')
    out += [f"<li>{escape(choice_sentence(result, axis))}</li>" for axis in result.axes]
    out.append("</ul>")
    out += [f'<p class="note">{escape(remark)}</p>' for remark in remarks(result)]
    return "\n".join([*out, "</section>"])


def _figures(figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    out = ['<section><h2>Figures</h2><div class="grid">']
    out += [
        f"<figure><h3>{escape(figure.title)}</h3>{figure.svg}"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
        for figure in figures
    ]
    return "\n".join([*out, "</div></section>"])


def _tables(result: SweepResult, axis: AxisResult) -> str:
    heads = [axis.field, "", *(head for _, head, _ in QUANTITIES)]
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in heads)
    out = [f"<section><h2>{escape(axis.title)}</h2>"]
    out.append(f'<p class="soft">{escape(caption(result))}</p>')
    for split in SPLITS:
        lines = []
        for mark, (label, *cells) in rows(result, axis, split):
            data = "".join(f"<td>{escape(cell)}</td>" for cell in (mark, *cells))
            lines.append(f'<tr><th scope="row">{escape(label)}</th>{data}</tr>')
        out.append(
            f'<h3 style="margin-top:1rem">On the {split} split</h3>'
            f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
            "\n<tbody>\n" + "\n".join(lines) + "\n</tbody></table></div>"
        )
    return "\n".join([*out, "</section>"])


def _what_was_run(result: SweepResult) -> str:
    facts, data = result.facts, _mapping(result.facts.get("data"))
    sizes = [f"{data[k]:,} {k}" for k in ("train", *SPLITS) if k in data]
    shown = {
        "Command": facts.get("command"),
        "Date": facts.get("date"),
        "Hardware": facts.get("hardware"),
        "Devices": ", ".join(map(str, facts.get("devices") or ())),
        "Versions": ", ".join(
            f"{k} {v}" for k, v in _mapping(facts.get("versions")).items()
        ),
        "Data": ", ".join([str(data.get("name") or ""), *sizes]).strip(", "),
        "Data fingerprint": data.get("fingerprint"),
        "Programs": "; ".join(map(_program, facts.get("programs") or ())),
    }
    text = json.dumps(facts.get("config") or {}, indent=2, ensure_ascii=False)
    return (
        "<section><h2>What was run</h2>"
        + _facts({name: str(value) for name, value in shown.items() if value})
        + f"<details><summary>Configuration</summary><pre>{escape(text)}</pre>"
        "</details></section>"
    )


def _program(entry) -> str:
    """What one program trained, and how long it took."""
    text = f"{entry['name']}: {len(entry['points'])} points"
    if "seconds" in entry:
        text += (
            f", {entry['replicas']} replicas, {entry['networks']} networks side by "
            f"side ({entry['mapping']}), {entry['seconds']:,.1f} s of which "
            f"{entry['compile_seconds']:.1f} s compiling"
        )
    return text
