"""The figures of a stream study, as SVG text that sits inside an HTML page."""

import math

import numpy as np

from churn_compare.documents.plotting import (
    INK,
    colour,
    dash,
    drawing,
    legend,
    line_style,
    marker,
    short_label,
)
from churn_jax.reports.stream import StreamReport, StreamRow, number_or_nan
from churn_jax.reports.stream_numbers import Change

PANELS = (("relative_pd", "Δʳ₁"), ("log_loss", "Log loss, nats"))


def trade_off(report: StreamReport) -> str:
    """Prediction difference against the log loss it costs, one line per (type, s)."""
    points = [(row, *_point(row, report)) for row in report.rows]
    points = [p for p in points if math.isfinite(p[1]) and math.isfinite(p[3])]
    if len(points) < 2:
        return ""
    groups: dict[tuple[str, float], list] = {}
    for point in points:
        row = point[0]
        groups.setdefault((row.penalty, row.input_scale), []).append(point)
    scales = sorted({s for _, s in groups})
    kinds = list(dict.fromkeys(kind for kind, _ in groups))
    with drawing(5.4, 4.2) as (figure, done):
        axes = figure.add_subplot()
        for (kind, s), members in groups.items():
            members.sort(key=lambda p: p[0].strength)
            label = kind.replace("_", " ")
            if len(scales) > 1:
                label += f", s = {s:g}"
            axes.errorbar(
                [p[1] for p in members],
                [p[3] for p in members],
                xerr=np.nan_to_num([p[2] for p in members]),
                yerr=np.nan_to_num([p[4] for p in members]),
                color=colour(scales.index(s)),
                marker=marker(kinds.index(kind)),
                linestyle=dash(kinds.index(kind)) if len(members) > 1 else "none",
                markersize=7,
                linewidth=1.2,
                capsize=2,
                alpha=0.85,
                label=short_label(label),
            )
            for row, x, _, y, _ in members:
                if row.strength:
                    style = {"textcoords": "offset points", "fontsize": 8, "color": INK}
                    axes.annotate(f"{row.strength:.2g}", (x, y), xytext=(5, 4), **style)
        axes.set_xlabel("Log loss change %   (less is better)")
        axes.set(ylabel="Δʳ₁   (less is better)", xmargin=0.12, ymargin=0.12)
        legend(figure, axes)
        return done("Relative prediction difference against the change of log loss")


def _point(row: StreamRow, report: StreamReport) -> tuple[float, float, float, float]:
    """Change of log loss in percent and Delta^r_1, each with its standard error."""
    estimate = row.numbers["stream"].estimate("relative_pd")
    if row.info.name == report.study.config.baseline:
        return 0.0, 0.0, estimate.mean, estimate.stderr
    if "stream" not in row.changes:
        return math.nan, math.nan, math.nan, math.nan
    change: Change = row.changes["stream"].changes["log_loss"]
    x, error = change.relative.difference, change.relative.stderr
    return 100 * x, 100 * error, estimate.mean, estimate.stderr


def along_the_stream(report: StreamReport) -> str:
    """Prediction difference and log loss of every stretch of the stream."""
    rows = [row for row in report.rows if len(row.curve) > 1]
    if not rows:
        return ""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    with drawing(5.4, 5.2) as (figure, done):
        panels = figure.subplots(2, 1, sharex=True)
        for axes, (name, title) in zip(panels, PANELS, strict=True):
            for row in rows:
                i = report.rows.index(row)
                axes.plot(
                    [number_or_nan(c.get("examples")) for c in row.curve],
                    [number_or_nan(c.get(name)) for c in row.curve],
                    **line_style(i, row.info.label, size=4),
                    markevery=max(1, len(row.curve) // 12),
                    linewidth=1.3,
                )
            axes.set_ylabel(title)
        panels[-1].set_xlabel("Examples of the stream")
        panels[-1].xaxis.set_major_locator(MaxNLocator(6))
        panels[-1].xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        legend(figure, panels[0])
        return done("Prediction difference and log loss along the stream, by row")
