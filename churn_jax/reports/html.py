"""`report.html`: one file that needs nothing else, on a screen, a phone or paper.

No scripts, no fonts, no images from elsewhere. Whatever comes from a file is escaped.
"""

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path

from churn_jax.predictions import replace_file
from churn_jax.reports import ambiguous, beside, bounds, plots, sizes
from churn_jax.reports.cells import number, percent, times
from churn_jax.reports.factors import training_table
from churn_jax.reports.glossary import GLOSSARY
from churn_jax.reports.report import Report, Row, collect
from churn_jax.reports.style import STYLE
from churn_jax.reports.tables import COLUMNS

__all__ = ["render", "write_report"]

FIGURES = (
    (
        sizes.churn_against_training_size,
        "Training-set size",
        "Bars: one standard error, leaving one run out at a time.",
    ),
    (
        plots.accuracy_against_churn,
        "Accuracy against churn",
        "Down and right is worse, up and left is better. Bars: one standard error.",
    ),
    (
        plots.pairwise_churn,
        "Every two runs",
        "Blocks on the diagonal are runs of one method; off the diagonal, runs of "
        f"different methods. At most {plots.RUNS_SHOWN} runs per method.",
    ),
    (
        plots.churn_by_correctness,
        "Where the churn is",
        "Churn on the examples that one of two runs gets right, and on those it gets "
        "wrong; both directions averaged. Bars: standard deviation over pairs.",
    ),
    (
        plots.training_curves,
        "Training",
        "Mean over the runs that finished. The loss is each method's own objective: "
        "its height cannot be compared between methods.",
    ),
    (
        plots.confidence_histogram,
        "Prediction confidence",
        "All runs pooled, 10 bins. More confident is not better calibrated.",
    ),
    (
        plots.reliability_diagram,
        "Reliability",
        "All runs pooled, 15 bins; above the line is under-confident. Bins with fewer "
        f"than {plots.FEWEST_IN_BIN} examples are left out.",
    ),
)


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
    path = Path(run_dir) / "report.html"
    page = render(collect(run_dir))
    with replace_file(path) as file:
        file.write(page.encode())
    return path


def render(report: Report) -> str:
    """The page as text.

    Args:
        report: from `collect`.

    Returns:
        A whole HTML document.
    """
    body = "\n".join(
        (
            _header(report),
            _results(report),
            _training(report),
            beside.html_section(report),
            _figures(report),
            ambiguous.html_section(report),
            bounds.html_section(report),
            _methods(report),
            _what_was_run(report),
            _glossary(),
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.study.title)}</title>\n<style>{STYLE}</style>\n"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _header(report: Report) -> str:
    facts, data = report.study.facts, _mapping(report.study.facts.get("data"))
    parts = [
        facts.get("date"),
        data.get("name"),
        f"{facts['replicas']} runs per method" if "replicas" in facts else None,
        facts.get("hardware"),
    ]
    line = " · ".join(escape(str(part)) for part in parts if part)
    command = facts.get("command")
    return (
        f"<header><h1>{escape(report.study.title)}</h1>\n"
        f'<p class="soft">{line}</p>'
        + (f"<pre>{escape(str(command))}</pre>" if command else "")
        + "</header>"
    )


def _results(report: Report) -> str:
    out = ["<section><h2>Results</h2>"]
    if verdicts := [row for row in report.rows if row.verdict]:
        out.append(f"<p>Against {escape(report.baseline_label)}:</p>")
        out.append('<ul class="verdicts">')
        out += [
            f'<li class="{_tone(row)}"><strong>{escape(row.info.label)}</strong>: '
            f"{escape(row.verdict)}</li>"
            for row in verdicts
        ]
        out.append("</ul>")
    out += [f'<p class="note">{escape(remark)}</p>' for remark in report.remarks]
    out += [f"<p>{escape(sentence)}</p>" for sentence in report.context]
    if report.rows:
        out.append(_main_table(report))
    return "\n".join([*out, "</section>"])


def _tone(row: Row) -> str:
    words = {"Reduces": "good", "Increases": "bad"}
    return words.get(row.verdict.split()[0], "even")


def _main_table(report: Report) -> str:
    head = "".join(f'<th scope="col">{escape(c.header)}</th>' for c in COLUMNS)
    lines = []
    for row in report.rows:
        label, *cells = (escape(column.cell(row)) for column in COLUMNS)
        data = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{label}</th>{data}</tr>')
    return (
        f'<p class="soft">{escape(report.caption)}</p>'
        '<div class="scroll" tabindex="0"><table class="main">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _training(report: Report) -> str:
    """What runs share, row by row; nothing where all rows train alike."""
    head, *rows = training_table(report.study, [r.info for r in report.rows]) or [()]
    if not head:
        return ""
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    lines = []
    for label, *texts in rows:
        cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
        lines.append(f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>')
    return (
        "<section><h2>What the rows differ in</h2>"
        '<div class="scroll" tabindex="0"><table class="words">'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div></section>"
    )


def _figures(report: Report) -> str:
    if not report.rows:
        return ""
    out = ['<section><h2>Figures</h2><div class="grid">']
    for draw, title, caption in FIGURES:
        if svg := draw(report):
            out.append(
                f"<figure><h3>{escape(title)}</h3>{svg}"
                f"<figcaption>{escape(caption)}</figcaption></figure>"
            )
    return "\n".join([*out, "</div></section>"])


DETAILS = (
    ("L1", "l1", number),
    ("NFR %", "nfr", percent),
    ("Confidence", "confidence", number),
    ("Entropy, nats", "entropy", number),
    ("Brier", "brier", number),
    ("Relative prediction difference", "relative_prediction_difference", number),
)


def _methods(report: Report) -> str:
    out = ['<section><h2>Methods</h2><div class="grid">']
    for row in report.rows:
        facts = _method_facts(row)
        facts |= {
            label: show(getattr(row.summary, name)) for label, name, show in DETAILS
        }
        out.append(
            f'<div class="card"><h3>{escape(row.info.label)}</h3>{_facts(facts)}</div>'
        )
    for missing in report.missing:
        out.append(
            f'<div class="card"><h3>{escape(missing.info.label)}</h3>'
            f"<p>Not in the tables: {escape(missing.reason)}.</p></div>"
        )
    return "\n".join([*out, "</div></section>"])


def _method_facts(row: Row) -> dict[str, str]:
    info, summary = row.info, row.summary
    facts = {
        "Equation": info.equation,
        "Coefficients": ", ".join(
            f"{k} = {v:.6g}" if isinstance(v, float) else f"{k} = {v}"
            for k, v in info.coefficients.items()
        ),
        "Networks": _text(info.members),
        "Cost": _cost(info.training_cost, info.inference_cost),
        "Parameters": "" if info.parameters is None else f"{info.parameters:,}",
        "Training": _seconds(info.seconds, info.compile_seconds),
        "Runs counted": f"{len(summary.runs)}, on {summary.examples:,} examples",
    }
    if summary.stopped:
        told = {entry["replica"]: entry for entry in info.stopped}
        facts["Stopped runs"] = "; ".join(
            f"{run}"
            + "".join(
                f", {key} {told[run][key]}"
                for key in ("term", "step")
                if run in told and key in told[run]
            )
            for run in summary.stopped
        )
    return {name: value for name, value in facts.items() if value}


def _cost(training, inference) -> str:
    if training is None and inference is None:
        return ""
    return f"training {times(training)}, inference {times(inference)}"


def _seconds(seconds, compile_seconds) -> str:
    if seconds is None:
        return ""
    extra = "" if compile_seconds is None else f" + {compile_seconds:.1f} s compiling"
    return f"{seconds:,.1f} s{extra}"


def _what_was_run(report: Report) -> str:
    facts = report.study.facts
    data = _mapping(facts.get("data"))
    splits = [f"{data[k]:,} {k}" for k in SPLITS if isinstance(data.get(k), int)]
    devices = facts.get("devices")
    shown = {
        "Command": facts.get("command"),
        "Date": facts.get("date"),
        "Hardware": facts.get("hardware"),
        "Devices": ", ".join(map(str, devices))
        if isinstance(devices, list)
        else devices,
        "Versions": ", ".join(
            f"{k} {v}" for k, v in _mapping(facts.get("versions")).items()
        ),
        "Data": ", ".join([str(data.get("name") or ""), *splits]).strip(", "),
        "Classes": data.get("num_classes"),
        "Data fingerprint": data.get("fingerprint"),
        "Runs per method": facts.get("replicas"),
    }
    config = facts.get("config")
    text = json.dumps(config, indent=2, ensure_ascii=False) if config else ""
    return (
        "<section><h2>What was run</h2>"
        + _facts({name: _text(value) for name, value in shown.items() if value})
        + (
            "<details><summary>Configuration</summary><pre>"
            f"{escape(text)}</pre></details>"
            if text
            else ""
        )
        + "</section>"
    )


SPLITS = ("train", "validation", "test")


def _glossary() -> str:
    out = ["<section><h2>Glossary</h2><dl>"]
    for name, source, formula, meaning in GLOSSARY:
        where = f' <span class="soft">{escape(source)}</span>' if source else ""
        out.append(
            f"<dt>{escape(name)}{where}</dt>"
            f'<dd><span class="math">{escape(formula)}</span><br>{escape(meaning)}</dd>'
        )
    return "\n".join([*out, "</dl></section>"])


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def _mapping(value) -> Mapping:
    return value if isinstance(value, Mapping) else {}


def _text(value) -> str:
    return "" if value is None else str(value)
