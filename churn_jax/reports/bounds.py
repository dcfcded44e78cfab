"""Lemmas 1 and 2 at work: upper bounds on churn against the churn of every two runs."""

import functools

import numpy as np

from churn_jax.documents import Figure, Fold, Grid, Section, Table
from churn_jax.documents.plotting import (
    INK,
    colour,
    drawing,
    legend,
    marker,
    short_label,
)
from churn_jax.reports.report import Report, Row

__all__ = ["bounds_against_churn", "bounds_section", "mean_bounds"]

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
                axes.plot(
                    bound,
                    churn,
                    linestyle="none",
                    marker=marker(i),
                    markersize=4,
                    markeredgewidth=0,
                    color=colour(i),
                    alpha=0.6,
                    label=short_label(row.info.label),
                )
            highest = max(100 * _pairs(r, "churn", RUNS_SHOWN).max() for _, r in rows)
            top, highest = max(top, 1e-3) * 1.05, max(highest, 1e-3) * 1.3
            axes.plot([0, top], [0, top], color=INK, linewidth=0.8, alpha=0.6)
            axes.set_xlim(0, top)
            axes.set_ylim(0, min(top, highest))
            axes.set_xlabel(f"{title}: {formula}, %")
            axes.set_ylabel("Churn %")
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
    )
    about = (
        "Means over all pairs of runs. Lemma 1: the sum of both error rates. Lemma 2: "
        "how often the L1 distance D of two predictions exceeds the smaller prediction "
        "confidence γ. Sharper, from the lemma's proof: how often it reaches the sum "
        "of both."
    )
    heads = ("Method", "Churn %", *(f"{title} %" for _, title, _ in PANELS))
    rows = [
        (row.info.label, *map(_percent, mean_bounds(row).values()))
        for row in report.rows
    ]
    means = Table(heads, rows, caption=about)
    title = "Bounds on churn: Lemmas 1 and 2"
    return Section("", [Fold(title, [Grid([figure, means])], heading=True)])


def _percent(value: float) -> str:
    return f"{100 * value:.2f}" if np.isfinite(value) else "–"
