"""Figures of a sweep: quantities against the coefficient, and accuracy against churn.

Every figure is drawn twice, as SVG inside the report and as a PNG file next to it.
"""

from collections.abc import Callable

import numpy as np

from churn_compare.documents import Figure
from churn_compare.documents.plotting import (
    INK,
    colour,
    dash,
    drawing,
    error_line,
    legend,
    level,
    line_style,
    picture,
    short_label,
)
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.sweep import SPLITS, AxisResult, PointResult, SweepResult

PANELS = (
    ("entropy", "Entropy, nats", 1),
    ("accuracy", "Accuracy %", 100),
    ("churn", "Churn %", 100),
    ("confidence", "Confidence", 1),
)
LOG_FROM = 15.0  # largest by smallest value, from where the axis is logarithmic
DPI = 200
# Of the best accuracy: points below it, or with stopped runs, set no scale.
BROKEN = 0.9


def sweep_figures(result: SweepResult) -> tuple[Figure, ...]:
    """One figure per axis and, where accuracy and churn are there, the trade-off."""
    shown = [axis for axis in result.axes if _any(axis)]
    broken = _broken(result, shown) if shown else []
    aside = (
        f" Out of the frame, since runs broke down there (the table has them): "
        f"{', '.join(broken)}."
        if broken
        else ""
    )
    figures = [
        _drawn(
            (4.8, 4.9),
            lambda figure, axis=axis: _curves(figure, result, axis, broken),
            name=f"curves-{axis.name}",
            title=axis.title,
            caption="Bars and bands: one standard error (churn: leaving one seed out). "
            "Band: the baseline. Dotted line: the value chosen on the validation split."
            + aside,
        )
        for axis in shown
    ]
    for split in SPLITS if shown else ():
        figures.append(
            _drawn(
                (4.8, 4.4),
                lambda figure, split=split: _trade_off(
                    figure, result, shown, split, broken
                ),
                name=f"trade-off-{split}",
                title=f"Accuracy against churn, {split}",
                caption="One line per coefficient, through its values in order; up and "
                "left is better. Bars: one standard error. Ringed: chosen on the "
                "validation split." + aside,
            )
        )
    return tuple(figures)


def _drawn(size, draw: Callable, **told: str) -> Figure:
    """`draw` gets the Matplotlib figure and returns what it shows in words."""
    with drawing(*size) as (figure, done):
        words = draw(figure)
        return picture(figure, done, words=words, dpi=DPI, **told)


def _any(axis: AxisResult) -> bool:
    return any(p.validation is not None for p in axis.points)


def _estimate(point: PointResult | None, split: str, quantity: str) -> Estimate | None:
    summary = None if point is None else point.on(split)
    found = None if summary is None else getattr(summary, quantity)
    return found if found is not None and np.isfinite(found.mean) else None


def _broken(result: SweepResult, shown) -> list[str]:
    """Names of the points at which runs broke down; figures are not scaled to them."""
    found = {p.name: p.validation for axis in shown for p in axis.points}
    if result.baseline is not None:
        found.setdefault(result.baseline.name, result.baseline.validation)
    known = {name: s for name, s in found.items() if s is not None}
    accuracy = {name: s.accuracy.mean for name, s in known.items()}
    best = np.nanmax(list(accuracy.values()))
    return [
        name
        for name, summary in known.items()
        if summary.stopped or not accuracy[name] >= BROKEN * best
    ]


def _frame(
    points: list[PointResult], broken: list[str], splits, quantity: str, scale: float
) -> tuple[float, float] | None:
    """Limits that hold the sound points with their errors; None: Matplotlib's do."""
    if not any(p.name in broken for p in points):
        return None
    sound = [p for p in points if p.name not in broken]
    found = [_estimate(p, split, quantity) for p in sound for split in splits]
    ends = [
        scale * (e.mean + sign * np.nan_to_num(e.stderr))
        for e in found
        if e is not None
        for sign in (-1, 1)
    ]
    if not ends or min(ends) == max(ends):
        return None
    margin = 0.1 * (max(ends) - min(ends))
    return min(ends) - margin, max(ends) + margin


def _curves(figure, result: SweepResult, axis: AxisResult, broken) -> str:
    """Entropy, accuracy, churn and confidence against the coefficient."""
    panels = figure.subplots(2, 2, sharex=True)
    values = [p.value for p in axis.points if p.value]
    log = bool(values) and max(values) / min(values) > LOG_FROM
    points = [p for p in axis.points if p.value or not log]
    for axes, (quantity, title, scale) in zip(panels.flat, PANELS, strict=True):
        for i, split in enumerate(SPLITS):
            if band := _estimate(result.baseline, split, quantity):
                style = {"color": colour(i), "linestyle": dash(i)}
                mean, stderr = scale * band.mean, scale * band.stderr
                level(axes, mean, stderr, alpha=0.18, linewidth=0.8, **style)
            drawn = [(p.value, _estimate(p, split, quantity)) for p in points]
            drawn = [(value, e) for value, e in drawn if e is not None]
            mean, stderr = (
                [scale * getattr(e, name) for _, e in drawn]
                for name in ("mean", "stderr")
            )
            at = [value for value, _ in drawn]
            style = {"markersize": 4.5, "capsize": 2.5}
            error_line(axes, i, at, mean, stderr, split.capitalize(), **style)
        if axis.choice.value is not None:
            axes.axvline(axis.choice.value, color=INK, linewidth=1.0, linestyle=":")
        axes.set_title(title, fontsize=10)
        framed = [*points, *([result.baseline] if result.baseline else [])]
        if limits := _frame(framed, broken, SPLITS, quantity, scale):
            axes.set_ylim(*limits)
        if log:
            _log_scale(axes, values)
    for axes in panels[1]:
        axes.set_xlabel(short_label(axis.field))
    legend(figure, panels[0, 0])
    return f"Entropy, accuracy, churn and confidence against {axis.title}"


def _log_scale(axes, values: list[float]) -> None:
    """A logarithmic axis that names the values of the grid as they are."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axes.set_xscale("log")
    kept = values if len(values) <= 5 else values[:: -(-len(values) // 5)]
    axes.xaxis.set_major_locator(FixedLocator(kept))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{v:g}" for v in kept]))
    axes.xaxis.set_minor_locator(NullLocator())


def _trade_off(figure, result: SweepResult, shown, split: str, broken) -> str:
    """Accuracy against churn, one line per axis, the baseline as a star."""
    axes = figure.add_subplot()
    for i, axis in enumerate(shown):
        points = [p for p in axis.points if p is not result.baseline]
        drawn = [
            (p, _estimate(p, split, "churn"), _estimate(p, split, "accuracy"))
            for p in points
        ]
        drawn = [(p, c, a) for p, c, a in drawn if c is not None and a is not None]
        if not drawn:
            continue
        x, y = ([100 * found[k].mean for found in drawn] for k in (1, 2))
        bars = (np.nan_to_num([100 * e[k].stderr for e in drawn]) for k in (1, 2))
        style = {"fmt": "none", "color": colour(i), "linewidth": 0.8, "alpha": 0.4}
        axes.errorbar(x, y, **dict(zip(("xerr", "yerr"), bars, strict=True)), **style)
        axes.plot(x, y, **line_style(i, axis.title, size=6), linewidth=1.5)
        for (point, *_), left, up in zip(drawn, x, y, strict=True):
            axes.annotate(
                f"{point.value:g}",
                (left, up),
                xytext=(5, 5) if i % 2 == 0 else (5, -12),
                textcoords="offset points",
                color=colour(i),
                fontsize=8,
                annotation_clip=True,
            )
            if point.name == axis.choice.point:
                axes.plot(left, up, "o", ms=13, mfc="none", mec=INK, mew=1.2)
    churn, accuracy = (
        _estimate(result.baseline, split, name) for name in ("churn", "accuracy")
    )
    if churn is not None and accuracy is not None:
        style = {"fmt": "*", "color": INK, "markersize": 13, "elinewidth": 0.6}
        axes.errorbar(
            100 * churn.mean,
            100 * accuracy.mean,
            xerr=100 * np.nan_to_num(churn.stderr),
            yerr=100 * np.nan_to_num(accuracy.stderr),
            label="Baseline",
            **style,
        )
    axes.set(xlabel="Churn %   (less is better)", ylabel="Accuracy %")
    axes.margins(0.1)
    framed = [p for axis in shown for p in axis.points]
    framed += [result.baseline] if result.baseline else []
    if limits := _frame(framed, broken, (split,), "churn", 100):
        axes.set_xlim(*limits)
    if limits := _frame(framed, broken, (split,), "accuracy", 100):
        axes.set_ylim(*limits)
    legend(figure, axes)
    return f"Accuracy against churn on the {split} split, one line per coefficient"
