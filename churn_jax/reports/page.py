"""What all pages are put together from; whatever comes from a file is escaped."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from churn_jax.escaping import escape
from churn_jax.reports.factors import network
from churn_jax.reports.style import STYLE

__all__ = [
    "facts_table",
    "figure",
    "figures_section",
    "header",
    "mapping",
    "page",
    "run_facts",
    "run_section",
    "scrolling_table",
    "size_list",
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


def run_section(record: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    """What was run, from the record that a study or a sweep leaves.

    Args:
        record: `study.json` or `sweep.json`.
        extra: facts that only one of them has; empty ones are left out.
    """
    data, devices = mapping(record.get("data")), record.get("devices")
    shown = {
        "Command": record.get("command"),
        "Date": record.get("date"),
        "Hardware": record.get("hardware"),
        "Devices": ", ".join(map(str, devices))
        if isinstance(devices, list)
        else devices,
        "Versions": ", ".join(
            f"{k} {v}" for k, v in mapping(record.get("versions")).items()
        ),
        "Data": ", ".join([str(data.get("name") or ""), *size_list(data)]).strip(", "),
        "Classes": data.get("num_classes"),
        "Data fingerprint": data.get("fingerprint"),
        **extra,
    }
    config = record.get("config")
    text = json.dumps(config, indent=2, ensure_ascii=False) if config else ""
    folded = (
        f"<details><summary>Configuration</summary><pre>{escape(text)}</pre></details>"
    )
    return (
        "<section><h2>What was run</h2>"
        + facts_table({name: str(value) for name, value in shown.items() if value})
        + (folded if text else "")
        + "</section>"
    )


def run_facts(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Data, network, length and runs of a study in words; what is unknown is left out.

    Args:
        record: `study.json`.

    Example:
        >>> config = {"model": {"name": "lenet5"}, "train": {"epochs": 3}}
        >>> run_facts({"data": {"name": "a.npz", "test": 40}, "config": config})
        ('a.npz: 40 test', 'lenet5', '3 epochs')
    """
    data, config = mapping(record.get("data")), mapping(record.get("config"))
    model, train = mapping(config.get("model")), mapping(config.get("train"))
    name = data.get("title") or data.get("name")
    called = record.get("network") or model.get("name")
    epochs, runs = train.get("epochs"), record.get("replicas")
    found = (
        ": ".join(filter(None, (str(name or ""), ", ".join(size_list(data))))),
        network({**model, "name": called}) if called else "",
        f"{epochs} epochs" if epochs else "",
        f"{runs} runs per method" if runs else "",
    )
    return tuple(filter(None, found))


def size_list(data: Mapping[str, Any]) -> list[str]:
    """How many examples each split has.

    Example:
        >>> size_list({"train": 1200, "test": 40})
        ['1,200 train', '40 test']
    """
    splits = ("train", "validation", "test")
    return [f"{data[k]:,} {k}" for k in splits if isinstance(data.get(k), int)]


def mapping(value: Any) -> Mapping[str, Any]:
    """What a record holds, or nothing where it holds something else."""
    return value if isinstance(value, Mapping) else {}
