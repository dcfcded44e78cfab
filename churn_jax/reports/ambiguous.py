"""Which inputs churn: the examples on which runs disagree, shown as images."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from churn_jax.documents import Block, Card, Figure, Grid, Section, Strong, Table, Text
from churn_jax.documents.plotting import COLOURS, drawing, legend, short_label
from churn_jax.reports.examples import load_examples, png_bytes
from churn_jax.reports.report import Report, Row

__all__ = [
    "AmbiguousInput",
    "ambiguity_histogram",
    "ambiguous_section",
    "best_row",
    "carried",
    "most_ambiguous",
]

SHOWN = 24
BINS = 10
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
    """The baseline's most ambiguous test inputs, the worst first."""
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

    Example:
        >>> carried(np.array([0.0, 0.75, 0.25, 0.0]), 0.25)
        0.75
    """
    total = float(np.sum(ambiguity))
    if not total > 0:
        return math.nan
    # 0.05 * 60 is 3.0000000000000004 in floating point, and three examples.
    most = math.ceil(round(share * len(ambiguity), 9))
    return float(np.sum(np.sort(ambiguity)[::-1][:most])) / total


def ambiguity_histogram(report: Report) -> str:
    """Examples by ambiguity, of the baseline and the best method.

    Examples on which all runs agree would dwarf the rest: the legend counts them.
    """
    rows = [(0, report.baseline), (1, best_row(report))]
    rows = [(i, r) for i, r in rows if r is not None and len(r.summary.runs) > 1]
    if not rows:
        return ""
    edges = np.linspace(0.0, 1.0, BINS + 1)
    width = 100 / BINS / (len(rows) + 0.4)
    with drawing(5.4, 3.6) as (figure, done):
        axes = figure.add_subplot()
        for i, row in rows:
            shares = _shares(row.summary.curves.ambiguity)
            middle = 50 * (edges[:-1] + edges[1:])
            axes.bar(
                middle + (i - (len(rows) - 1) / 2) * width,
                100 * shares,
                width=width,
                color=COLOURS[i],
                hatch=("", "///")[i],
                edgecolor="white",
                linewidth=0.4,
                label=f"{short_label(row.info.label)} ({_agreed(row)} agreed on)",
            )
        axes.set_xlabel("Ambiguity: pairs of runs that differ, %")
        axes.set_ylabel("Examples %")
        axes.set_xticks(np.arange(0, 101, 20))
        axes.set_xlim(0, 100)
        legend(figure, axes, columns=1)
        return done(
            "Histogram of ambiguity over the test examples on which runs differ"
        )


def _shares(ambiguity: np.ndarray) -> np.ndarray:
    """Share of all examples per bin `(0, 0.1], (0.1, 0.2], ...`."""
    where = np.ceil(np.round(ambiguity[ambiguity > 0] * BINS, 6)).astype(int) - 1
    counts = np.bincount(np.minimum(where, BINS - 1), minlength=BINS)
    return counts / max(len(ambiguity), 1)


def _agreed(row: Row) -> str:
    return f"{100 * np.mean(row.summary.curves.ambiguity == 0):.1f} %"


def ambiguous_section(report: Report) -> Section | None:
    """The section of the page; None without two runs of the baseline."""
    base = report.baseline
    if base is None or len(base.summary.runs) < 2:
        return None
    best = best_row(report)
    inputs = most_ambiguous(report)
    intro = (
        f"All {len(base.summary.runs)} runs of {base.info.label} agree on "
        f"{_agreed(base)} of {base.summary.examples:,} test examples. "
    )
    if inputs:
        intro += f"These are the {len(inputs)} they agree on least, with the classes "
        intro += "that runs voted for (and how many did) and the ambiguity"
        intro += (
            f"; the second percentage is under {best.info.label}, which churns least."
            if best
            else "."
        )
    histogram = Figure(
        functools.partial(ambiguity_histogram, report),
        "Ambiguity",
        "Ambiguity of an example: the share of pairs of runs that predict it "
        "differently; its mean over examples is the churn. Examples that all runs "
        "agree on are not drawn.",
    )
    shown = _inputs(inputs, compared=best is not None)
    grid = Grid([histogram, _carried(report)])
    return Section("Which inputs churn", [Text(intro), *shown, grid])


def _votes(one: AmbiguousInput) -> str:
    return ", ".join(f"{predicted} ({runs})" for predicted, runs in one.votes)


def _change(one: AmbiguousInput) -> str:
    text = f"{100 * one.ambiguity:.0f} %"
    return text if math.isnan(one.best) else f"{text} → {100 * one.best:.0f} %"


def _inputs(inputs: Sequence[AmbiguousInput], *, compared: bool) -> list[Block]:
    """Images where there are some, else a table; nothing without inputs."""
    if not inputs:
        return []
    images = [one.image for one in inputs if one.image is not None]
    if len(images) < len(inputs):
        heads = ["Id", "Label", "Votes", "Ambiguity"]
        if compared:
            heads[-1] += " → under the best method"
        rows = [
            (one.identity, str(one.label), _votes(one), _change(one)) for one in inputs
        ]
        return [Table(heads, rows)]
    figures = []
    for one, image in zip(inputs, images, strict=True):
        votes = _votes(one).replace(" (", "\u00a0(")  # lines break between votes
        told = f"\nlabel {one.label}\nvotes {votes}\n{_change(one)}"
        words = f"{one.identity}, label {one.label}"
        caption = (Strong(one.identity), told)
        figures.append(Figure(image=png_bytes(image), words=words, caption=caption))
    return [Grid(figures, kind="inputs")]


def _carried(report: Report) -> Card:
    rows = []
    for row in report.rows:
        shares = [carried(row.summary.curves.ambiguity, t) for t in TOP]
        cells = (f"{100 * s:.0f} %" if math.isfinite(s) else "–" for s in shares)
        rows.append((row.info.label, *cells))
    table = Table(["Method", *(f"top {100 * t:.0f} %" for t in TOP)], rows)
    return Card("Share of all churn on the most ambiguous examples", [table])
