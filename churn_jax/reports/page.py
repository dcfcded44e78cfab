"""What all pages are put together from; whatever comes from a file is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from churn_jax.configuration.record import StudyRecord, SweepRecord
from churn_jax.documents.html import html_blocks
from churn_jax.escaping import escape
from churn_jax.reports import run_facts as facts
from churn_jax.reports.run_facts import run_facts
from churn_jax.reports.style import STYLE

__all__ = [
    "facts_table",
    "figure",
    "figures_section",
    "header",
    "page",
    "run_facts",
    "run_section",
    "scrolling_table",
]


def page(title: str, sections: Iterable[str], head: str = "") -> str:
    """A whole HTML document that needs nothing else.

    Args:
        title: not yet escaped.
        sections: HTML.
        head: HTML that this page alone has in its head, after the style sheet.
    """
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n{head}"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def header(title: str, facts: Sequence[Any], command: Any) -> str:
    """The title, one line of facts and the command; empty facts are left out."""
    line = " · ".join(escape(str(fact)) for fact in facts if fact)
    return (
        f'<header><h1>{escape(title)}</h1>\n<p class="soft">{line}</p>'
        + (f"<pre>{escape(str(command))}</pre>" if command else "")
        + "</header>"
    )


def scrolling_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = ""
) -> str:
    """A table that scrolls sideways; the first cell of a row is its head.

    Args:
        heads: of the columns, not yet escaped.
        rows: cells, likewise.
        kind: class of the style sheet.

    Example:
        >>> print(scrolling_table(["Method"], [["A & B"]]))
        <div class="scroll" tabindex="0"><table><thead><tr><th scope="col">Method</th>\
</tr></thead>
        <tbody>
        <tr><th scope="row">A &amp; B</th></tr>
        </tbody></table></div>
    """
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    lines = []
    for label, *cells in rows:
        data = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(label)}</th>{data}</tr>')
    opened = f'<table class="{kind}">' if kind else "<table>"
    return (
        f'<div class="scroll" tabindex="0">{opened}<thead><tr>{head}</tr></thead>\n'
        "<tbody>\n" + "\n".join(lines) + "\n</tbody></table></div>"
    )


def figure(svg: str, title: str, caption: str) -> str:
    """A drawing between its title and its caption."""
    return (
        f"<figure><h3>{escape(title)}</h3>{svg}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def figures_section(figures: Iterable[tuple[str, str, str]]) -> str:
    """A grid of `(svg, title, caption)`; empty without figures."""
    shown = [figure(*parts) for parts in figures if parts[0]]
    if not shown:
        return ""
    opened = '<section><h2>Figures</h2><div class="grid">'
    return "\n".join([opened, *shown, "</div></section>"])


def facts_table(facts: Mapping[str, str]) -> str:
    """Names and values, one per line."""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def run_section(record: StudyRecord | SweepRecord, extra: Mapping[str, Any]) -> str:
    """What was run, as HTML."""
    return html_blocks([facts.run_section(record, extra)])
