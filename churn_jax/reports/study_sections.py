"""Sections of a study's page: its members, which inputs churn, bounds on churn.

Members that share most of their weights can come out nearly identical, and then their
mean is worth no more than one of them. So every report says how much they differ.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from churn_compare.documents import (
    Block,
    Card,
    Figure,
    Fold,
    Grid,
    Section,
    Strong,
    Table,
    Text,
)
from churn_compare.documents.plotting import (
    INK,
    drawing,
    face,
    legend,
    line_style,
    short_label,
)
from churn_jax.reports.cells import number, percent, share
from churn_jax.reports.estimates import over_runs
from churn_jax.reports.examples import load_examples, png_bytes
from churn_jax.reports.members import Agreement
from churn_jax.reports.report import Report, Row

HARDLY = 0.001  # share of examples; below it members are as good as the same
CAPTION = (
    "Of the members of one run on the test split, mean ± standard deviation over runs. "
    "KL: mean over ordered pairs of members, nats. Disagreement: share of examples "
    "that two members predict differently, over all pairs. The mean is the one that "
    "the row serves."
)


_COLUMNS: tuple[tuple[str, Callable[[Agreement], str]], ...] = (
    ("Members", lambda found: str(found.members)),
    ("KL", lambda found: number(over_runs(found.mean_kl))),
    ("Disagreement %", lambda found: percent(over_runs(found.disagreement))),
    ("Accuracy of a member %", lambda found: percent(over_runs(found.member_accuracy))),
    ("Accuracy of the mean %", lambda f: percent(over_runs(f.ensemble_accuracy))),
)


def members_section(report: Report) -> Section | None:
    """How much the members of each row differ; None where none were kept."""
    rows, sentences = [], [CAPTION]
    for row in report.rows:
        found, label = row.agreement, row.info.label
        if found is None:
            continue
        rows.append((label, *(cell(found) for _, cell in _COLUMNS)))
        if found.examples < found.total:
            sentences.append(
                f"{label}: on {found.examples:,} of {found.total:,} examples, evenly "
                "spaced."
            )
        if found.disagreement.mean() < HARDLY:
            sentences.append(
                f"{label}: two members predict the same class for more than 99.9 % of "
                "the examples. Members that agree in everything give nothing that one "
                "of them does not."
            )
    if not rows:
        return None
    heads = ("Method", *(head for head, _ in _COLUMNS))
    return Section("Members", [Table(heads, rows, caption=" ".join(sentences))])


SHOWN = 24
BINS = 10
TOP = (0.01, 0.05, 0.10)


@dataclasses.dataclass(frozen=True, eq=False)
class AmbiguousInput:
    """One test input the baseline's runs disagree about."""

    identity: str  # its id
    label: int  # its class id
    # `(class, runs)` of the baseline, most votes first
    votes: tuple[tuple[int, int], ...]
    ambiguity: float  # share of pairs of the baseline's runs that differ
    best: float  # the same under the best method; NaN without one
    image: np.ndarray | None  # `[H, W, C]` uint8, or None where none was kept


def best_row(report: Report) -> Row | None:
    """The row with the least churn except the baseline; None if there is none."""
    others = [
        row
        for row in report.rows
        if row.info.name != report.study.config.baseline
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
    kept = load_examples(report.study.folder) if report.study.trained else None
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
    """Share of all churn that the most ambiguous examples carry."""
    total = float(np.sum(ambiguity))
    if not total > 0:
        return math.nan
    # 0.05 * 60 is 3.0000000000000004 in floating point, and three examples.
    most = math.ceil(round(share * len(ambiguity), 9))
    return float(np.sum(np.sort(ambiguity)[::-1][:most])) / total


def ambiguity_histogram(report: Report) -> str:
    """Examples by ambiguity, of the baseline and the best method."""
    # Examples on which all runs agree would dwarf the rest: the legend counts them.
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
            at = middle + (i - (len(rows) - 1) / 2) * width
            label = f"{short_label(row.info.label)} ({_agreed(row)} agreed on)"
            axes.bar(at, 100 * shares, width=width, label=label, **face(i))
        axes.set_xlabel("Ambiguity: pairs of runs that differ, %")
        axes.set(ylabel="Examples %", xticks=np.arange(0, 101, 20), xlim=(0, 100))
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
    inputs, name = most_ambiguous(report), report.class_name
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
        name=ambiguity_histogram.__name__,
    )
    shown = _inputs(inputs, name, compared=best is not None)
    grid = Grid([histogram, _carried(report)])
    return Section("Which inputs churn", [Text(intro), *shown, grid], detail="full")


def _votes(one: AmbiguousInput, name: Callable[[int], str]) -> str:
    return ", ".join(f"{name(predicted)} ({runs})" for predicted, runs in one.votes)


def _change(one: AmbiguousInput) -> str:
    text = f"{100 * one.ambiguity:.0f} %"
    return text if math.isnan(one.best) else f"{text} → {100 * one.best:.0f} %"


def _inputs(
    inputs: Sequence[AmbiguousInput], name: Callable[[int], str], *, compared: bool
) -> list[Block]:
    """Images where there are some, else a table; nothing without inputs."""
    if not inputs:
        return []
    images = [one.image for one in inputs if one.image is not None]
    if len(images) < len(inputs):
        heads = ["Id", "Label", "Votes", "Ambiguity"]
        if compared:
            heads[-1] += " → under the best method"
        rows = [
            (one.identity, name(one.label), _votes(one, name), _change(one))
            for one in inputs
        ]
        return [Table(heads, rows)]
    figures = []
    for one, image in zip(inputs, images, strict=True):
        votes = _votes(one, name).replace(" (", "\u00a0(")  # lines break between votes
        told = f"\nlabel {name(one.label)}\nvotes {votes}\n{_change(one)}"
        words = f"{one.identity}, label {name(one.label)}"
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


PANELS = (
    ("bound_from_errors", "Lemma 1", "err₁ + err₂"),
    ("bound_from_confidence", "Lemma 2", "P[D > min(γ₁, γ₂)]"),
    ("bound_from_confidence_sum", "Lemma 2, sharper", "P[D ≥ γ₁ + γ₂]"),
)
RUNS_SHOWN = 20  # per method


def _pairs(row: Row, name: str, runs: int | None = None) -> np.ndarray:
    """Values of all unordered pairs of runs."""
    matrix = row.summary.pair_values[name][:runs, :runs]
    return matrix[np.triu_indices(len(matrix), 1)]


def mean_bounds(row: Row) -> dict[str, float]:
    """Churn and its bounds, each averaged over all pairs of runs."""
    names = ("churn", *(name for name, _, _ in PANELS))
    pairs = {name: _pairs(row, name) for name in names}
    return {k: float(v.mean()) if v.size else np.nan for k, v in pairs.items()}


def bounds_against_churn(report: Report) -> str:
    """Churn of every two runs against each bound; below the diagonal it holds."""
    rows = [(i, r) for i, r in enumerate(report.rows) if len(r.summary.runs) > 1]
    if not rows:
        return ""
    with drawing(5.4, 8.6) as (figure, done):
        panels = figure.subplots(3, 1)
        for axes, (name, title, formula) in zip(panels, PANELS, strict=True):
            top = 0.0
            for i, row in rows:
                bound = 100 * _pairs(row, name, RUNS_SHOWN)
                churn = 100 * _pairs(row, "churn", RUNS_SHOWN)
                top = max(top, bound.max())
                style = line_style(i, row.info.label, size=4)
                style |= {"linestyle": "none", "markeredgewidth": 0, "alpha": 0.6}
                axes.plot(bound, churn, **style)
            highest = max(100 * _pairs(r, "churn", RUNS_SHOWN).max() for _, r in rows)
            top, highest = max(top, 1e-3) * 1.05, max(highest, 1e-3) * 1.3
            axes.plot([0, top], [0, top], color=INK, linewidth=0.8, alpha=0.6)
            axes.set(xlim=(0, top), ylim=(0, min(top, highest)))
            axes.set(xlabel=f"{title}: {formula}, %", ylabel="Churn %")
        legend(figure, panels[0])
        return done("Churn of every two runs against three upper bounds, by method")


def bounds_section(report: Report) -> Section | None:
    """A folded section with the figure and the means; None without two runs."""
    if all(len(row.summary.runs) < 2 for row in report.rows):
        return None
    figure = Figure(
        functools.partial(bounds_against_churn, report),
        caption="One point per pair of runs; on or below the line the bound holds, and "
        f"the nearer to it the tighter it is. At most {RUNS_SHOWN} runs per method.",
        name=bounds_against_churn.__name__,
    )
    about = (
        "Means over all pairs of runs. Lemma 1: the sum of both error rates. Lemma 2: "
        "how often the L1 distance D of two predictions exceeds the smaller prediction "
        "confidence γ. Sharper, from the lemma's proof: how often it reaches the sum "
        "of both."
    )
    heads = ("Method", "Churn %", *(f"{title} %" for _, title, _ in PANELS))
    rows = [
        (row.info.label, *map(share, mean_bounds(row).values())) for row in report.rows
    ]
    means = Table(heads, rows, caption=about)
    title = "Bounds on churn: Lemmas 1 and 2"
    return Section("", [Fold(title, [Grid([figure, means])], heading=True)])
