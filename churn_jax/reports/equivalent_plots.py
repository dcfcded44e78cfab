"""Figures of studies about calibrated likelihood: what ensembles and their size buy."""

import numpy as np

from churn_jax.documents.plotting import (
    INK,
    colour,
    drawing,
    error_bar,
    legend,
    marker,
    short_label,
)
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.quantities import QUANTITIES
from churn_jax.reports.report import Report, Row

__all__ = ["against_diversity", "against_parameters", "on_reference_curve"]

NLL = "calibrated_nll"
LESS = "Calibrated NLL   (less is better)"


def _places(report: Report, across: str) -> list[tuple[int, Row]]:
    """Rows with both numbers, by their place in the study."""
    return [
        (i, row)
        for i, row in enumerate(report.rows)
        if np.isfinite(getattr(row.summary, across).mean)
        and np.isfinite(row.summary.calibrated_nll.mean)
    ]


def _point(axes, place: int, row: Row, across: Estimate, scale: float = 1.0) -> None:
    nll = row.summary.calibrated_nll
    axes.errorbar(
        scale * across.mean,
        nll.mean,
        xerr=error_bar(scale * across.stderr),
        yerr=error_bar(nll.stderr),
        fmt=marker(place),
        color=colour(place),
        markersize=8,
        capsize=3,
        alpha=0.85,
        label=short_label(row.info.label),
    )


def on_reference_curve(report: Report) -> str:
    """Calibrated NLL of deep ensembles by size, and where every row lands on it."""
    from matplotlib.ticker import MaxNLocator

    curve = report.reference
    rows = [
        (i, row)
        for i, row in _places(report, "dee")
        if curve is not None and row.info.name != curve.name
    ]
    if curve is None or not rows:
        return ""
    sizes = np.arange(1, len(curve.mean) + 1)
    with drawing(5.4, 4.4) as (figure, done):
        axes = figure.add_subplot()
        spread = np.nan_to_num(curve.std)
        low, high = curve.mean - spread, curve.mean + spread
        axes.fill_between(sizes, low, high, color=INK, alpha=0.12, linewidth=0)
        axes.plot(
            sizes,
            curve.mean,
            color=INK,
            linewidth=1.5,
            marker=".",
            label=f"Deep ensembles of {short_label(curve.label)}",
        )
        for i, row in rows:
            nll = row.summary.calibrated_nll.mean
            axes.axhline(nll, color=colour(i), linewidth=0.8, linestyle=":", zorder=0)
            _point(axes, i, row, row.summary.dee)
        axes.set_xlabel("Members of a deep ensemble")
        axes.set_ylabel(LESS)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(0.08)
        legend(figure, axes)
        return done("Calibrated NLL of deep ensembles by size, and of every method")


def against_parameters(report: Report) -> str:
    """What a lower calibrated NLL costs in trained numbers."""
    return _against(report, "parameters", "Parameters, millions, log scale", 1e-6)


def against_diversity(report: Report) -> str:
    """Whether members that differ more are better together."""
    return _against(report, "member_kl", "KL of two members, nats", 1.0)


def _against(report: Report, across: str, label: str, scale: float) -> str:
    from matplotlib.ticker import FuncFormatter, NullLocator

    if report.headline.name != NLL:
        return ""
    rows = _places(report, across)
    values = {getattr(row.summary, across).mean for _, row in rows}
    if len(values) < 2:
        return ""
    with drawing(5.4, 4.0) as (figure, done):
        axes = figure.add_subplot()
        for i, row in rows:
            _point(axes, i, row, getattr(row.summary, across), scale)
        if across == "parameters":
            axes.set_xscale("log")
            axes.set_xticks(_apart([scale * value for value in values]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(label)
        axes.set_ylabel(LESS)
        axes.margins(0.15)
        legend(figure, axes)
        what = QUANTITIES[across].heading.lower()
        return done(f"Calibrated NLL against {what} of every method")


def _apart(values: list[float]) -> list[float]:
    """Values whose labels do not overlap on a logarithmic axis.

    Example:
        >>> _apart([0.46, 1.84, 0.461])
        [0.46, 1.84]
    """
    kept: list[float] = []
    for value in sorted(values):
        if not kept or value > 1.25 * kept[-1]:
            kept.append(value)
    return kept
