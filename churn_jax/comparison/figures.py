"""Figures of comparisons: noise, reliability, displacement, matrices of versions."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from churn_jax.comparison.number_text import count_text, has_range, value_text
from churn_jax.comparison.result import Curve, Interval, Noise, Points, VersionsFindings
from churn_jax.documents.plotting import COLOURS, INK, drawing, legend, short_label

OLD, NEW = COLOURS[0], COLOURS[1]
FEW = 10  # examples of a bin whose accuracy says little

# Half lengths of the strokes of a mark, as a share of the axes: from x, y to x, y.
_DOT, _DASH = ((0, 0, 0, 0),), ((-1, 0, 1, 0),)
_CROSS, _PLUS = ((-1, -1, 1, 1), (-1, 1, 1, -1)), ((-1, 0, 1, 0), (0, -1, 0, 1))
_REACH = 0.009

# Outcome: what the legend says, colour, opacity, width of a stroke, strokes, and the
# marker of Matplotlib that looks like them.
OUTCOMES = {
    "same": ("same class", COLOURS[6], 0.45, 2.6, _DOT, "."),
    "other": ("changed", COLOURS[0], 0.8, 1.3, _DASH, "_"),
    "positive": ("wrong before, right now", COLOURS[2], 0.9, 1.3, _PLUS, "+"),
    "negative": ("right before, wrong now", COLOURS[5], 0.9, 1.3, _CROSS, "x"),
}


def churn_bars(noise: Noise, churn: Interval) -> str:
    """Churn of the update next to churn of retraining each version."""
    bars = [
        ("update", churn, COLOURS[5], ""),
        ("retraining old", noise.within_old, OLD, "//"),
        ("retraining new", noise.within_new, NEW, ".."),
    ]
    bars = [bar for bar in bars if not math.isnan(bar[1].value)]
    with drawing(4.2, 0.55 + 0.42 * len(bars)) as (figure, done):
        axes = figure.add_subplot()
        for place, (_, found, colour, hatch) in enumerate(bars):
            axes.barh(
                place,
                100 * found.value,
                height=0.62,
                color=colour,
                alpha=0.6,
                hatch=hatch,
                edgecolor=INK,
                linewidth=0.6,
            )
            right = found.value
            if has_range(found):
                right = found.high
                axes.plot(
                    [100 * found.low, 100 * found.high],
                    [place, place],
                    color=INK,
                    linewidth=1.4,
                    marker="|",
                )
            axes.annotate(
                value_text(found, "share"),
                (100 * right, place),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.margins(x=0.2)
        axes.set_xlabel("Changed predictions %")
        return done("Churn of the update and of retraining the same version")


def reliability(old: Curve, new: Curve) -> str:
    """Accuracy against confidence of both versions; below, examples of each bin."""
    with drawing(4.2, 4.6) as (figure, done):
        upper, lower = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": (3.4, 1)}
        )
        upper.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":", alpha=0.7)
        bins = len(old.examples)
        edges = np.linspace(0, 1, bins + 1)
        for name, curve, colour, mark, line, shift in (
            ("old", old, OLD, "o", "-", -0.2),
            ("new", new, NEW, "s", "--", 0.2),
        ):
            x, y = np.asarray(curve.confidence), np.asarray(curve.accuracy)
            full, few = (
                curve.examples >= FEW,
                (0 < curve.examples) & (curve.examples < FEW),
            )
            style = {"color": colour, "marker": mark, "markersize": 5, "clip_on": False}
            upper.plot(
                x[full], y[full], linestyle=line, linewidth=1.5, label=name, **style
            )
            upper.plot(
                x[few], y[few], linestyle="", markerfacecolor="none", alpha=0.7, **style
            )
            lower.bar(
                (edges[:-1] + edges[1:]) / 2 + shift / bins,
                100 * curve.examples / max(curve.examples.sum(), 1),
                width=0.38 / bins,
                color=colour,
                hatch="" if name == "old" else "////",
                edgecolor=colour if name == "old" else INK,
                linewidth=0,
                alpha=0.8,
            )
        upper.set(xlim=(0, 1), ylim=(0, 1), ylabel="Accuracy")
        upper.legend(loc="upper left")
        lower.set(xlabel="Confidence (top probability)", ylabel="Examples %")
        return done("Reliability of the old and the new version")


def confidence_and_displacement(points: Points) -> str:
    """Old confidence against the displacement of the logits; "" without points."""
    # All marks of an outcome are one path, so that thousands of them stay a small file.
    confidence, displacement = (
        np.asarray(array, float) for array in (points.confidence, points.displacement)
    )
    finite = np.isfinite(confidence) & np.isfinite(displacement)
    if not finite.any():
        return ""
    outcomes = np.asarray(points.outcome)
    labelled = bool(np.isin(outcomes, ("negative", "positive")).any())
    with drawing(4.2, 4.6) as (figure, done):
        axes = figure.add_subplot()
        axes.set_xlim(*_around(confidence[finite], most=1.0))
        axes.set_ylim(*_around(displacement[finite], least=0.0))
        for outcome, (text, colour, alpha, width, strokes, marker) in OUTCOMES.items():
            chosen = finite & (outcomes == outcome)
            if not chosen.any():
                continue
            if outcome == "other" and labelled:
                text = "wrong before and now"
            style = {"color": colour, "alpha": alpha}
            x, y = confidence[chosen], displacement[chosen]
            axes.add_patch(_marks(axes, x, y, strokes, linewidth=width, **style))
            text += f" ({_counted(int(chosen.sum()), points.totals.get(outcome, 0))})"
            axes.plot([], [], linestyle="", marker=marker, label=text, **style)
        axes.set_xlabel("Confidence of the old version (top probability)")
        axes.set_ylabel("Displacement of the logits")
        legend(figure, axes, columns=1)
        return done("Confidence of the old version against displacement of the logits")


def _counted(drawn: int, total: int) -> str:
    """How many examples are drawn, and of how many if not all are."""
    text = count_text(drawn)
    return f"{text} of {count_text(total)}" if total > drawn else text


def _around(values: np.ndarray, least: float = -np.inf, most: float = np.inf):
    """Limits of an axis, with a margin except where values cannot go."""
    low, high = max(values.min(), least), min(values.max(), most)
    margin = 0.03 * (high - low) or 0.05
    return (0.0 if least == 0 else low - margin), high + margin


def _marks(axes, x, y, strokes: Sequence[tuple[int, ...]], **style):
    """One path with a mark at every point."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    across, up = (
        _REACH * (high - low) for low, high in (axes.get_xlim(), axes.get_ylim())
    )
    ends = [
        np.stack([x + across * dx, y + up * dy], axis=-1)
        for x0, y0, x1, y1 in strokes
        for dx, dy in ((x0, y0), (x1, y1))
    ]
    vertices = np.stack(ends, axis=1).reshape(-1, 2)
    path = Path(vertices, np.tile([Path.MOVETO, Path.LINETO], len(vertices) // 2))
    path.should_simplify = False  # a dot is a stroke without length
    return PathPatch(path, fill=False, capstyle="round", **style)


MOST_NUMBERS = 12  # versions; numbers in more squares could not be read
_LEVEL = 36  # characters that fit below an axis side by side
_DARK = 0.55  # of the colour scale; numbers are white below and black above


def heat_map(values: np.ndarray, labels: Sequence[str], title: str) -> str:
    """Squares of every version (rows) against every other (columns), in percent."""
    shown = np.ma.masked_invalid(100 * np.asarray(values, float))
    size = len(labels)
    with drawing(5.0, 1.5 + 0.32 * min(max(size, 4), 20)) as (figure, done):
        axes = figure.add_subplot()
        mesh = axes.pcolormesh(shown, cmap="cividis", linewidth=0, rasterized=False)
        low, high = shown.min(), shown.max()
        light = low + _DARK * (high - low) if high > low else np.inf
        axes.invert_yaxis()
        axes.set_yticks(np.arange(size) + 0.5, _ticks(labels))
        axes.set_xticks(np.arange(size) + 0.5, _ticks(labels), **_slanted(labels))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        digits = 1 if high >= 1 else 2
        if size <= MOST_NUMBERS:
            for i, j in np.argwhere(~np.ma.getmaskarray(shown)):
                axes.text(
                    j + 0.5,
                    i + 0.5,
                    f"{shown[i, j]:.{digits}f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if shown[i, j] < light else "black",
                )
        else:
            bar = figure.colorbar(mesh, ax=axes, shrink=0.85)
            bar.outline.set_visible(False)
        axes.set_ylabel("Old")
        axes.set_xlabel(f"New   ({title} %)")
        return done(f"{title} of every version against every other")


def accuracy_line(result: VersionsFindings, labels: Sequence[str]) -> str:
    """Accuracy of each version with its interval; "" without labels."""
    if not result.accuracy:
        return ""
    with drawing(5.0, 3.6) as (figure, done):
        axes = figure.add_subplot()
        _line(axes, result.accuracy)
        _versions_below(axes, labels)
        axes.set_ylabel("Accuracy %")
        axes.margins(0.08)
        return done("Accuracy of every version, with intervals")


def flips_on_the_way(result: VersionsFindings, labels: Sequence[str]) -> str:
    """Flips summed over the updates next to those since the first version."""
    # What lies between the two lines has cancelled.
    if len(result.steps) < 2:
        return ""
    flips = result.negative_flip_rate
    name = "churn" if flips is None else "negative_flip_rate"
    matrix = result.churn if flips is None else flips
    steps = [step[name].value for step in result.steps]
    places = np.arange(1, len(steps) + 1)
    with drawing(5.0, 3.6) as (figure, done):
        axes = figure.add_subplot()
        for i, (values, label, mark, line) in enumerate(
            (
                (np.cumsum(steps), "added up over the updates", "o", "-"),
                (matrix[0, 1:], "since the first version", "s", "--"),
            )
        ):
            axes.plot(
                places,
                100 * np.asarray(values),
                color=COLOURS[i],
                marker=mark,
                linestyle=line,
                linewidth=1.6,
                label=label,
            )
        _versions_below(axes, labels, first=1)
        axes.set_ylabel("NFR %" if result.labelled else "Churn %")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.08)
        legend(figure, axes)
        return done("Flips added up over the updates and since the first version")


def _line(axes, accuracy: tuple[Interval, ...]) -> None:
    middle = 100 * np.array([found.value for found in accuracy])
    ends = np.array(
        [
            (found.value - found.low, found.high - found.value)
            if has_range(found)
            else (0.0, 0.0)
            for found in accuracy
        ]
    )
    axes.errorbar(
        np.arange(len(accuracy)),
        middle,
        yerr=100 * np.maximum(ends.T, 0),
        color=COLOURS[0],
        ecolor=INK,
        marker="o",
        capsize=3,
        linewidth=1.6,
        elinewidth=1.0,
    )


def _versions_below(axes, labels: Sequence[str], first: int = 0) -> None:
    places = range(first, len(labels))
    axes.set_xticks(places, _ticks(labels[first:]), **_slanted(labels))


def _ticks(labels: Sequence[str]) -> list[str]:
    return [short_label(label) for label in labels]


def _slanted(labels: Sequence[str]) -> dict[str, Any]:
    """How labels below an axis are rotated if they do not fit side by side."""
    if sum(map(len, labels)) <= _LEVEL:
        return {}
    return {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
