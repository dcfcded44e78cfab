"""Sections of a study's page: its members, which inputs churn, bounds on churn.

Members that share most of their weights can come out nearly identical, and then their
mean is worth no more than one of them. So every report says how much they differ.
"""

import dataclasses
import math

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
from churn_compare.documents.plotting import INK
from churn_jax.reports import charts
from churn_jax.reports.cells import number, percent, share
from churn_jax.reports.charts import Across, Chart, Line, Panel
from churn_jax.reports.estimates import over_runs
from churn_jax.reports.examples import load_examples, png_bytes
from churn_jax.reports.report import Report, Row

HARDLY = 0.001  # share of examples; below it members are as good as the same
_MEMBERS = (
    "Of the members of one run on the test split, mean ± standard deviation over runs. "
    "KL: mean over ordered pairs of members, nats. Disagreement: share of examples "
    "that two members predict differently, over all pairs. The mean is the one that "
    "the row serves."
)
_MEMBERS_HEADS = ("Method", "Members", "KL", "Disagreement %")
_MEMBERS_HEADS += ("Accuracy of a member %", "Accuracy of the mean %")


def members_section(report: Report) -> Section:
    """How much the members of each row differ; empty where none were kept."""
    rows, sentences = [], [_MEMBERS]
    for row in report.rows:
        found, label = row.agreement, row.label
        if found is None:
            continue
        shares = found.disagreement, found.member_accuracy, found.ensemble_accuracy
        cells = (percent(over_runs(values)) for values in shares)
        kl = number(over_runs(found.mean_kl))
        rows.append((label, str(found.members), kl, *cells))
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
    table = Table(_MEMBERS_HEADS, rows, caption=" ".join(sentences))
    return Section("Members", [table] if rows else [])


SHOWN = 24
BINS = 10
TOP = (0.01, 0.05, 0.10)


@dataclasses.dataclass(frozen=True, eq=False)
class AmbiguousInput:
    """One test input the baseline's runs disagree about."""

    identity: str  # its id
    label: str  # name of its class
    # names of classes and how many of the baseline's runs vote for them, most first
    votes: tuple[tuple[str, int], ...]
    ambiguity: float  # share of pairs of the baseline's runs that differ
    best: float  # the same under the best method; NaN without one
    image: np.ndarray | None  # `[H, W, C]` uint8, or None where none was kept

    @property
    def change(self) -> str:
        """`67 % → 0 %`, under the baseline and under the best method."""
        text = f"{100 * self.ambiguity:.0f} %"
        return text if math.isnan(self.best) else f"{text} → {100 * self.best:.0f} %"


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
    base, best, name = report.baseline, best_row(report), report.class_name
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
                label=name(int(report.labels[n])),
                votes=tuple((name(int(c)), int(r)) for c, r in votes),
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


def ambiguous_section(report: Report) -> Section:
    """Which inputs churn; empty without two runs of the baseline."""
    base = report.baseline
    if base is None or len(base.summary.runs) < 2:
        return Section("", [])
    inputs, best = most_ambiguous(report), best_row(report)
    intro = (
        f"All {len(base.summary.runs)} runs of {base.label} agree on {_agreed(base)} "
        f"of {base.summary.examples:,} test examples. "
    )
    if inputs:
        intro += f"These are the {len(inputs)} they agree on least, with the classes "
        intro += "that runs voted for (and how many did) and the ambiguity"
        intro += (
            f"; the second percentage is under {best.label}, which churns least."
            if best
            else "."
        )
    rows = []
    for row in report.rows:
        shares = [carried(row.summary.curves.ambiguity, t) for t in TOP]
        cells = (f"{100 * s:.0f} %" if math.isfinite(s) else "–" for s in shares)
        rows.append((row.label, *cells))
    table = Table(["Method", *(f"top {100 * t:.0f} %" for t in TOP)], rows)
    card = Card("Share of all churn on the most ambiguous examples", [table])
    grid = Grid([ambiguity_histogram(report), card])
    shown = _inputs(inputs, compared=best is not None)
    return Section("Which inputs churn", [Text(intro), *shown, grid], detail="full")


def _agreed(row: Row) -> str:
    return f"{100 * np.mean(row.summary.curves.ambiguity == 0):.1f} %"


def _inputs(inputs: tuple[AmbiguousInput, ...], *, compared: bool) -> list[Block]:
    """Images where there are some, else a table; nothing without inputs."""
    if not inputs:
        return []
    votes = [
        ", ".join(f"{name} ({runs})" for name, runs in one.votes) for one in inputs
    ]
    images = [one.image for one in inputs if one.image is not None]
    if len(images) < len(inputs):
        heads = ["Id", "Label", "Votes", "Ambiguity"]
        if compared:
            heads[-1] += " → under the best method"
        rows = [
            (one.identity, one.label, said, one.change)
            for one, said in zip(inputs, votes, strict=True)
        ]
        return [Table(heads, rows)]
    figures = []
    for one, image, said in zip(inputs, images, votes, strict=True):
        said = said.replace(" (", "\u00a0(")  # lines break between votes
        told = f"\nlabel {one.label}\nvotes {said}\n{one.change}"
        words = f"{one.identity}, label {one.label}"
        caption = (Strong(one.identity), told)
        figures.append(Figure(image=png_bytes(image), words=words, caption=caption))
    return [Grid(figures, kind="inputs")]


def ambiguity_histogram(report: Report) -> Figure:
    """Examples by ambiguity, of the baseline and the best method."""
    # Examples on which all runs agree would dwarf the rest: the legend counts them.
    rows = [(0, report.baseline), (1, best_row(report))]
    shares = [
        (i, f"{row.label} ({_agreed(row)} agreed on)", _shares(row))
        for i, row in rows
        if row is not None and len(row.summary.runs) > 1
    ]
    chart = Chart(
        "ambiguity_histogram",
        "Ambiguity",
        "Ambiguity of an example: the share of pairs of runs that predict it "
        "differently; its mean over examples is the churn. Examples that all runs "
        "agree on are not drawn.",
        "Histogram of ambiguity over the test examples on which runs differ",
        (5.4, 3.6),
    )
    x = "Ambiguity: pairs of runs that differ, %"
    return charts.histogram(chart, shares, x, most=100)


def _shares(row: Row) -> np.ndarray:
    """Share of all examples per bin `(0, 0.1], (0.1, 0.2], ...`."""
    ambiguity = row.summary.curves.ambiguity
    where = np.ceil(np.round(ambiguity[ambiguity > 0] * BINS, 6)).astype(int) - 1
    counts = np.bincount(np.minimum(where, BINS - 1), minlength=BINS)
    return counts / max(len(ambiguity), 1)


PANELS = (
    ("bound_from_errors", "Lemma 1", "err₁ + err₂"),
    ("bound_from_confidence", "Lemma 2", "P[D > min(γ₁, γ₂)]"),
    ("bound_from_confidence_sum", "Lemma 2, sharper", "P[D ≥ γ₁ + γ₂]"),
)
RUNS_SHOWN = 20  # per method


def _pairs(row: Row, name: str, runs: int | None = None) -> np.ndarray:
    """Values of all unordered pairs of runs, per cent."""
    matrix = row.summary.pair_values[name][:runs, :runs]
    return 100 * matrix[np.triu_indices(len(matrix), 1)]


def mean_bounds(row: Row) -> dict[str, float]:
    """Churn and its bounds, each averaged over all pairs of runs."""
    names = ("churn", *(name for name, _, _ in PANELS))
    pairs = {name: _pairs(row, name) / 100 for name in names}
    return {k: float(v.mean()) if v.size else np.nan for k, v in pairs.items()}


def bounds_against_churn(report: Report) -> list[Figure]:
    """Churn of every two runs against each bound; below the diagonal it holds."""
    rows = [(i, r) for i, r in enumerate(report.rows) if len(r.summary.runs) > 1]
    churn = {i: _pairs(row, "churn", RUNS_SHOWN) for i, row in rows}
    highest = 1.3 * max(1e-3, *(values.max() for values in churn.values()), 0.0)
    dots = {"linestyle": "none", "markeredgewidth": 0, "alpha": 0.6, "markersize": 4}
    diagonal = {"color": INK, "linewidth": 0.8, "alpha": 0.6, "marker": ""}
    found = []
    for name, title, formula in PANELS:
        bounds = {i: _pairs(row, name, RUNS_SHOWN) for i, row in rows}
        top = 1.05 * max(1e-3, *(values.max() for values in bounds.values()), 0.0)
        points = [Line(i, r.label, bounds[i], churn[i], style=dots) for i, r in rows]
        line = Line(0, "", [0, top], [0, top], style=diagonal | {"linestyle": "-"})
        limits = (0, min(top, highest))
        chart = Chart(
            "bounds_against_churn",
            f"{title}: {formula}",
            "",
            f"Churn of every two runs against its upper bound of {title}, by method",
            (5.4, 3.6),
        )
        across = Across(f"{title}, %", limits=(0, top))
        panel = Panel("Churn %", [*points, line], limits=limits)
        found.append(charts.lines(chart, [panel], across))
    return found


def bounds_section(report: Report) -> Section:
    """A folded section with the figures and the means; empty without two runs."""
    if all(len(row.summary.runs) < 2 for row in report.rows):
        return Section("", [])
    about = (
        "Means over all pairs of runs. Lemma 1: the sum of both error rates. Lemma 2: "
        "how often the L1 distance D of two predictions exceeds the smaller prediction "
        "confidence γ. Sharper, from the lemma's proof: how often it reaches the sum "
        "of both. In the figures a point is a pair of runs; on or below the line the "
        "bound holds, and the nearer to it the tighter it is. At most "
        f"{RUNS_SHOWN} runs per method."
    )
    heads = ("Method", "Churn %", *(f"{title} %" for _, title, _ in PANELS))
    rows = [(row.label, *map(share, mean_bounds(row).values())) for row in report.rows]
    means = Table(heads, rows, caption=about)
    title = "Bounds on churn: Lemmas 1 and 2"
    blocks = [Grid([*bounds_against_churn(report), means])]
    return Section("", [Fold(title, blocks, heading=True)])
