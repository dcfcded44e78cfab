"""Which inputs churn: the examples on which runs disagree, shown as images."""

import dataclasses
import math
from html import escape

import numpy as np

from churn_jax.reports.examples import load_examples, png_data_uri
from churn_jax.reports.figure import colour, dash, drawing, legend, short_label
from churn_jax.reports.report import Report, Row

__all__ = [
    "AmbiguousInput",
    "ambiguity_histogram",
    "best_row",
    "carried",
    "html_section",
    "most_ambiguous",
]

SHOWN = 24
BINS = 20
TOP = (0.01, 0.05, 0.10)


@dataclasses.dataclass(frozen=True, eq=False)
class AmbiguousInput:
    """One test input the baseline's runs disagree about.

    Attributes:
        identity: its id.
        label: its class id.
        votes: `(class, runs)` of the baseline, most votes first.
        ambiguity: share of pairs of the baseline's runs that differ.
        best: the same under the best method; NaN without one.
        image: `[H, W, C]` uint8, or None where none was kept.
    """

    identity: str
    label: int
    votes: tuple[tuple[int, int], ...]
    ambiguity: float
    best: float
    image: np.ndarray | None


def best_row(report: Report) -> Row | None:
    """The row with the least churn besides the baseline; None if there is none."""
    others = [
        row
        for row in report.rows
        if row.info.name != report.study.baseline
        and math.isfinite(row.summary.churn.mean)
    ]
    return min(others, key=lambda row: row.summary.churn.mean, default=None)


def most_ambiguous(report: Report, count: int = SHOWN) -> tuple[AmbiguousInput, ...]:
    """The baseline's most ambiguous test inputs, the worst first.

    Args:
        report: from `collect`.
        count: at most so many.

    Returns:
        Inputs that at least two runs predict differently; empty without a baseline of
        at least two runs.
    """
    base, best = report.baseline, best_row(report)
    if base is None or len(base.summary.runs) < 2:
        return ()
    ambiguity = base.summary.curves.ambiguity
    order = np.argsort(-ambiguity, kind="stable")[:count]
    kept = load_examples(report.study.folder)
    out = []
    for n in order[ambiguity[order] > 0]:
        classes, runs = np.unique(base.summary.curves.classes[:, n], return_counts=True)
        votes = sorted(zip(classes, runs, strict=True), key=lambda v: (-v[1], v[0]))
        out.append(
            AmbiguousInput(
                identity=str(report.ids[n]),
                label=int(report.labels[n]),
                votes=tuple((int(c), int(r)) for c, r in votes),
                ambiguity=float(ambiguity[n]),
                best=float(best.summary.curves.ambiguity[n]) if best else math.nan,
                image=kept.find(report.ids[n]) if kept else None,
            )
        )
    return tuple(out)


def carried(ambiguity: np.ndarray, share: float) -> float:
    """Share of all churn that the most ambiguous examples carry.

    Args:
        ambiguity: `[N]`, per example.
        share: of the examples, rounded up to whole ones.

    Returns:
        Between `share` (every example alike) and 1; NaN where nothing churns.

    Example:
        >>> carried(np.array([0.0, 0.6, 0.2, 0.0]), 0.25)
        0.75
    """
    total = float(np.sum(ambiguity))
    if not total > 0:
        return math.nan
    # 0.05 * 60 is 3.0000000000000004 in floating point, and three examples.
    most = math.ceil(round(share * len(ambiguity), 9))
    return float(np.sum(np.sort(ambiguity)[::-1][:most])) / total


def ambiguity_histogram(report: Report) -> str:
    """Share of examples by ambiguity, for all methods with two runs or more."""
    from matplotlib.ticker import LogFormatter

    rows = [(i, r) for i, r in enumerate(report.rows) if len(r.summary.runs) > 1]
    if not rows:
        return ""
    with drawing(5.4, 3.8) as (figure, done):
        axes = figure.add_subplot()
        for i, row in rows:
            ambiguity = row.summary.curves.ambiguity
            counts, edges = np.histogram(ambiguity, bins=BINS, range=(0.0, 1.0))
            shares = 100 * counts / max(len(ambiguity), 1)
            axes.stairs(
                np.where(counts, shares, np.nan),
                100 * edges,
                baseline=None,
                color=colour(i),
                linestyle=dash(i),
                linewidth=1.8,
                label=short_label(row.info.label),
            )
        axes.set_xlabel("Ambiguity: pairs of runs that differ, %")
        axes.set_ylabel("Examples %, log scale")
        axes.set_yscale("log")
        for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            ticks(LogFormatter(minor_thresholds=(2, 0.5)))  # 10, not ten to the one
        axes.set_xlim(0, 100)
        legend(figure, axes)
        return done("Histogram of ambiguity over the test examples, by method")


def html_section(report: Report) -> str:
    """The section of the page; empty without two runs of the baseline."""
    base = report.baseline
    if base is None or len(base.summary.runs) < 2:
        return ""
    best = best_row(report)
    inputs = most_ambiguous(report)
    unanimous = float(np.mean(base.summary.curves.ambiguity == 0))
    intro = (
        f"All {len(base.summary.runs)} runs of {base.info.label} agree on "
        f"{100 * unanimous:.1f} % of {base.summary.examples:,} test examples. "
    )
    if inputs:
        intro += f"These are the {len(inputs)} they agree on least"
        intro += (
            f"; the second percentage is under {best.info.label}, which churns least."
            if best
            else "."
        )
    pictures = inputs and all(one.image is not None for one in inputs)
    shown = _pictures(inputs) if pictures else _table(inputs, best is not None)
    return (
        f"<section><h2>Which inputs churn</h2><p>{escape(intro)}</p>"
        + shown
        + '<div class="grid"><figure><h3>Ambiguity</h3>'
        + ambiguity_histogram(report)
        + "<figcaption>Ambiguity of an example: the share of pairs of runs that "
        "predict it differently. Its mean over examples is the churn.</figcaption>"
        "</figure>" + _carried_table(report) + "</div></section>"
    )


def _votes(one: AmbiguousInput) -> str:
    return ", ".join(f"{runs} × {predicted}" for predicted, runs in one.votes)


def _change(one: AmbiguousInput) -> str:
    text = f"{100 * one.ambiguity:.0f} %"
    return text if math.isnan(one.best) else f"{text} → {100 * one.best:.0f} %"


def _pictures(inputs) -> str:
    parts = []
    for one in inputs:
        words = f"{one.identity}, label {one.label}"
        parts.append(
            f'<figure><img src="{png_data_uri(one.image)}" alt="{escape(words)}">'
            f"<figcaption><strong>{escape(one.identity)}</strong><br>"
            f"label {one.label}<br>votes {escape(_votes(one))}<br>"
            f"{escape(_change(one))}</figcaption></figure>"
        )
    return '<div class="inputs">' + "\n".join(parts) + "</div>"


def _table(inputs, compared: bool) -> str:
    if not inputs:
        return ""
    names = ["Id", "Label", "Votes", "Ambiguity"]
    if compared:
        names[-1] += " → under the best method"
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = [
        f'<tr><th scope="row">{escape(one.identity)}</th><td>{one.label}</td>'
        f"<td>{escape(_votes(one))}</td><td>{escape(_change(one))}</td></tr>"
        for one in inputs
    ]
    return (
        '<div class="scroll" tabindex="0"><table class="plain"><thead><tr>'
        f"{head}</tr></thead><tbody>\n" + "\n".join(lines) + "\n</tbody></table></div>"
    )


def _carried_table(report: Report) -> str:
    head = "".join(f'<th scope="col">top {100 * t:.0f} %</th>' for t in TOP)
    lines = []
    for row in report.rows:
        shares = [carried(row.summary.curves.ambiguity, t) for t in TOP]
        cells = "".join(
            f"<td>{f'{100 * s:.0f} %' if math.isfinite(s) else '–'}</td>"
            for s in shares
        )
        lines.append(f'<tr><th scope="row">{escape(row.info.label)}</th>{cells}</tr>')
    return (
        '<div class="card"><h3>Share of all churn on the most ambiguous examples</h3>'
        '<div class="scroll" tabindex="0"><table class="plain"><thead><tr>'
        f'<th scope="col">Method</th>{head}</tr></thead><tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div></div>"
    )
