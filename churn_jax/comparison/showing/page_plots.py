"""Figures of a comparison: noise, reliability, confidence against displacement."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from churn_jax.comparison.result import Curve, Interval, Noise, Points
from churn_jax.comparison.showing.wording import count_text, has_range, value_text
from churn_jax.documents.plotting import COLOURS, INK, drawing, legend

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
    """Churn of the update beside that of retraining each version."""
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
            path = _marks(axes, confidence[chosen], displacement[chosen], strokes)
            axes.add_patch(_drawn(path, width, style))
            text += f" ({_counted(int(chosen.sum()), points.totals.get(outcome, 0))})"
            axes.plot([], [], linestyle="", marker=marker, label=text, **style)
        axes.set_xlabel("Confidence of the old version (top probability)")
        axes.set_ylabel("Displacement of the logits")
        legend(figure, axes, columns=1)
        return done("Confidence of the old version against displacement of the logits")


def _counted(drawn: int, total: int) -> str:
    """How many examples are drawn, and of how many where those are more."""
    text = count_text(drawn)
    return f"{text} of {count_text(total)}" if total > drawn else text


def _around(values: np.ndarray, least: float = -np.inf, most: float = np.inf):
    """Limits of an axis, with a margin except at an end that values cannot pass."""
    low, high = max(values.min(), least), min(values.max(), most)
    margin = 0.03 * (high - low) or 0.05
    return (0.0 if least == 0 else low - margin), high + margin


def _marks(axes, x: np.ndarray, y: np.ndarray, strokes: Sequence[tuple[int, ...]]):
    """One path with a mark at every point."""
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
    return path


def _drawn(path, width: float, style: Mapping[str, Any]):
    from matplotlib.patches import PathPatch

    return PathPatch(path, fill=False, capstyle="round", linewidth=width, **style)
