"""Figures of comparisons: noise, reliability, displacement, matrices of versions."""

import math
from collections.abc import Sequence

import numpy as np

from churn_compare.documents.chart import (
    LETTER,
    LINE,
    Axes,
    bottom_axis,
    chart,
    element,
    height_below,
    left_axis,
    legend,
    line,
    marks,
    shortened,
)
from churn_compare.documents.plotting import COLOURS
from churn_compare.number_text import count_text, has_range, value_text
from churn_compare.result import Curve, Interval, Noise, Points, VersionsFindings

OLD, NEW = COLOURS[0], COLOURS[1]
FEW = 10  # examples of a bin whose accuracy says little
WIDTH = 380.0
_RIGHT = 12  # free at the right edge

# Outcome: what the legend says, shape of the mark, colour, opacity, width of a stroke.
OUTCOMES = {
    "same": ("same class", "dot", COLOURS[6], 0.45, 2.6),
    "other": ("changed", "dash", COLOURS[0], 0.8, 1.3),
    "positive": ("wrong before, right now", "plus", COLOURS[2], 0.9, 1.3),
    "negative": ("right before, wrong now", "cross", COLOURS[5], 0.9, 1.3),
}


def churn_bars(noise: Noise, churn: Interval) -> str:
    """Churn of the update next to churn of retraining each version."""
    bars = [
        ("update", churn, COLOURS[5]),
        ("retraining old", noise.within_old, OLD),
        ("retraining new", noise.within_new, NEW),
    ]
    bars = [bar for bar in bars if not math.isnan(bar[1].value)]
    ends = [found.high if has_range(found) else found.value for _, found, _ in bars]
    most = 125 * max(ends) or 1.0  # a quarter for the numbers
    bottom = 8.0 + 32 * len(bars)
    axes = Axes(100, 8, WIDTH - _RIGHT, bottom, (0, most), (len(bars), 0))
    parts = []
    for place, (_, found, colour) in enumerate(bars):
        middle, length = axes.y(place + 0.5), axes.x(100 * found.value) - axes.left
        style = {"fill": colour, "fill_opacity": 0.6, "stroke": "currentColor"}
        where = {"x": axes.left, "y": middle - 10, "height": 20.0, "width": length}
        parts.append(element("rect", **where, **style, stroke_width=0.6))
        if has_range(found):
            low, high = axes.x(100 * found.low), axes.x(100 * found.high)
            parts.append(_error_bar((low, middle), (high, middle)))
        x = axes.x(100 * ends[place]) + 7
        said = value_text(found, "share")
        parts.append(element("text", text=said, x=x, y=middle + 4))
    places = [place + 0.5 for place in range(len(bars))]
    parts.append(left_axis(axes, places=places, labels=[name for name, *_ in bars]))
    parts.append(bottom_axis(axes, "Changed predictions %"))
    words = "Churn of the update and of retraining the same version"
    return chart(WIDTH, bottom + height_below(axes), words, *parts)


def _error_bar(low: tuple[float, float], high: tuple[float, float]) -> str:
    """The line of an interval, with a short line across at each end."""
    (x1, y1), (x2, y2) = low, high
    dx, dy = (3, 0) if x1 == x2 else (0, 3)
    ends = (
        f"M{x - dx:.1f} {y - dy:.1f}L{x + dx:.1f} {y + dy:.1f}" for x, y in (low, high)
    )
    path = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" + "".join(ends)
    return element("path", d=path, stroke="currentColor", stroke_width=1.3)


def reliability(old: Curve, new: Curve) -> str:
    """Accuracy against confidence of both versions; below, examples of each bin."""
    bins = len(old.examples)
    upper = Axes(48, 10, WIDTH - _RIGHT, 270, (0, 1), (0, 1))
    shares = [100 * c.examples / max(c.examples.sum(), 1) for c in (old, new)]
    most = max(float(np.max(share)) for share in shares) or 1.0
    lower = Axes(48, 285, WIDTH - _RIGHT, 355, (0, 1), (0, 1.05 * most))
    corners = [(upper.left, upper.bottom), (upper.right, upper.top)]
    parts = [line(corners, "currentColor", stroke_width=0.8, stroke_dasharray="1 3")]
    entries = []
    for i, (name, curve, colour, shape, dashes) in enumerate(
        (("old", old, OLD, "circle", "full"), ("new", new, NEW, "square", "6 3"))
    ):
        points = [
            (upper.x(float(x)), upper.y(float(y)))
            for x, y in zip(curve.confidence, curve.accuracy)
        ]
        counts = np.asarray(curve.examples)
        full = [p for p, n in zip(points, counts) if n >= FEW]
        few = [p for p, n in zip(points, counts) if 0 < n < FEW]
        dash = None if dashes == "full" else dashes
        if full:
            parts.append(line(full, colour, stroke_dasharray=dash))
        parts.append(marks(full, colour, shape))
        parts.append(marks(few, colour, shape, fill="none", opacity=0.7))
        entries.append((shape, name, {"colour": colour, "dashes": dashes}))
        wide = 0.4 * (lower.right - lower.left) / bins
        for k, share in enumerate(shares[i]):
            x, y = lower.x((k + 0.5) / bins) + (i - 1) * wide, lower.y(float(share))
            where = {"x": x, "y": y, "width": wide, "height": lower.bottom - y}
            parts.append(element("rect", **where, fill=colour, opacity=0.8))
    tenths = [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    parts += [
        left_axis(upper, "Accuracy", tenths),
        bottom_axis(upper, "", [], []),
        left_axis(lower, "Examples %", [0.0, float(f"{most:.1g}")][: 1 + (most >= 1)]),
        bottom_axis(lower, "Confidence (top probability)", tenths),
        legend(entries, upper.left + 24, upper.top + 10),
    ]
    words = "Reliability of the old and the new version"
    return chart(WIDTH, lower.bottom + height_below(lower), words, *parts)


def confidence_and_displacement(points: Points) -> str:
    """Old confidence against the displacement of the logits; "" without points."""
    confidence, displacement = (
        np.asarray(array, float) for array in (points.confidence, points.displacement)
    )
    finite = np.isfinite(confidence) & np.isfinite(displacement)
    if not finite.any():
        return ""
    outcomes = np.asarray(points.outcome)
    labelled = bool(np.isin(outcomes, ("negative", "positive")).any())
    across = _around(confidence[finite], most=1.0)
    axes = Axes(
        48, 10, WIDTH - _RIGHT, 290, across, _around(displacement[finite], least=0.0)
    )
    parts, entries = [], []
    for outcome, (text, shape, colour, opacity, width) in OUTCOMES.items():
        chosen = finite & (outcomes == outcome)
        if not chosen.any():
            continue
        if outcome == "other" and labelled:
            text = "wrong before and now"
        style = {"colour": colour, "opacity": opacity, "stroke_width": width}
        x, y = confidence[chosen].tolist(), displacement[chosen].tolist()
        drawn = [(axes.x(a), axes.y(b)) for a, b in zip(x, y)]
        parts.append(marks(drawn, shape=shape, **style))
        text += f" ({_counted(int(chosen.sum()), points.totals.get(outcome, 0))})"
        entries.append((shape, text, style))
    below = axes.bottom + height_below(axes)
    parts += [
        left_axis(axes, "Displacement of the logits"),
        bottom_axis(axes, "Confidence of the old version (top probability)"),
        legend(entries, axes.left + 60, below + 12),
    ]
    words = "Confidence of the old version against displacement of the logits"
    return chart(WIDTH, below + 8 + LINE * len(entries), words, *parts)


def _counted(drawn: int, total: int) -> str:
    """How many examples are drawn, and of how many if not all are."""
    text = count_text(drawn)
    return f"{text} of {count_text(total)}" if total > drawn else text


def _around(values: np.ndarray, least: float = -np.inf, most: float = np.inf):
    """Limits of an axis, with a margin except where values cannot go."""
    low, high = float(max(values.min(), least)), float(min(values.max(), most))
    margin = 0.03 * (high - low) or 0.05
    return (0.0 if least == 0 else low - margin), high + margin


MOST_NUMBERS = 12  # versions; numbers in more squares could not be read
_DARK = 0.55  # of the colour scale; numbers are white below and black above
# Ten colours of cividis (Nunez, Anderton and Renslow, PLoS ONE 2018), dark to light.
_SCALE = (
    (0, 34, 78),
    (15, 51, 112),
    (60, 77, 110),
    (87, 93, 109),
    (110, 110, 114),
    (133, 128, 119),
    (160, 147, 113),
    (188, 168, 103),
    (219, 190, 85),
    (254, 232, 56),
)


def _shade(place: float) -> str:
    """The colour at a place from 0, dark, to 1."""
    place = min(max(place, 0.0), 1.0) * (len(_SCALE) - 1)
    i = min(int(place), len(_SCALE) - 2)
    mixed = (a + (place - i) * (b - a) for a, b in zip(_SCALE[i], _SCALE[i + 1]))
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def heat_map(values: np.ndarray, labels: Sequence[str], title: str) -> str:
    """Squares of every version (rows) against every other (columns), in percent."""
    shown, size = 100 * np.asarray(values, float), len(labels)
    known = shown[np.isfinite(shown)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    light = low + _DARK * (high - low) if high > low else math.inf
    numbered = size <= MOST_NUMBERS
    left = 34 + LETTER * max(len(shortened(label)) for label in labels)
    width, square = WIDTH + 60, min(max(22.0, 300.0 / size), 30.0) if numbered else 12.0
    right = width - (_RIGHT if numbered else 56)
    axes = Axes(left, 8, right, 8 + square * size, (0, size), (size, 0))
    parts = []
    digits, wide = 1 if high >= 1 else 2, (right - left) / size
    for i, j in np.argwhere(np.isfinite(shown)).tolist():
        value, x, y = float(shown[i, j]), axes.x(j), axes.y(i)
        place = (value - low) / (high - low) if high > low else 0.0
        where = {"x": x, "y": y, "width": wide + 0.3, "height": square + 0.3}
        parts.append(element("rect", **where, fill=_shade(place)))
        if numbered:
            colour = "#ffffff" if value < light else "#000000"
            style = {"text_anchor": "middle", "font_size": 9, "fill": colour}
            where = {"x": x + wide / 2, "y": y + square / 2 + 3}
            parts.append(element("text", text=f"{value:.{digits}f}", **where, **style))
    places = [i + 0.5 for i in range(size)]
    parts.append(left_axis(axes, "Old", places, labels, ruled=False))
    parts.append(bottom_axis(axes, f"New   ({title} %)", places, labels, ruled=False))
    if not numbered:
        parts.append(_colour_bar(right + 10, axes.top, axes.bottom, low, high))
    words = f"{title} of every version against every other"
    return chart(width, axes.bottom + height_below(axes, labels), words, *parts)


def _colour_bar(left: float, top: float, bottom: float, low: float, high: float) -> str:
    bar = Axes(
        left, top, left + 12, bottom, (0, 1), (low, high if high > low else low + 1)
    )
    step = (bottom - top) / 32
    parts = [
        element(
            "rect",
            x=left,
            y=bottom - step * (i + 1),
            width=12.0,
            height=step + 0.3,
            fill=_shade(i / 31),
        )
        for i in range(32)
    ]
    for value in sorted({low, high}):
        parts.append(
            element("text", text=f"{value:.1f}", x=left + 16, y=bar.y(value) + 4)
        )
    return "".join(parts)


def accuracy_line(result: VersionsFindings, labels: Sequence[str]) -> str:
    """Accuracy of each version with its interval; "" without labels."""
    if not result.accuracy:
        return ""
    shown = [
        100 * np.array([f.low, f.value, f.high] if has_range(f) else [f.value] * 3)
        for f in result.accuracy
    ]
    axes = _over_versions(len(shown), _around(np.concatenate(shown)))
    bars = [
        _error_bar((axes.x(i), axes.y(float(low))), (axes.x(i), axes.y(float(high))))
        for i, (low, _, high) in enumerate(shown)
        if high > low
    ]
    points = [
        (axes.x(i), axes.y(float(middle))) for i, (_, middle, _) in enumerate(shown)
    ]
    drawn = [*bars, line(points, COLOURS[0]), marks(points, COLOURS[0])]
    words = "Accuracy of every version, with intervals"
    return _versions_chart(axes, labels, "Accuracy %", words, drawn)


def flips_on_the_way(result: VersionsFindings, labels: Sequence[str]) -> str:
    """Flips summed over the updates next to those since the first version."""
    # What lies between the two lines has cancelled.
    if len(result.steps) < 2:
        return ""
    flips = result.negative_flip_rate
    name = "churn" if flips is None else "negative_flip_rate"
    matrix = result.churn if flips is None else flips
    summed = 100 * np.cumsum([step[name].value for step in result.steps])
    since = 100 * np.asarray(matrix[0, 1:], float)
    most = float(np.nanmax([*summed, *since])) or 1.0
    axes = _over_versions(len(summed), (0.0, 1.05 * most))
    drawn, entries = [], []
    for values, text, colour, shape, dashes in (
        (summed, "added up over the updates", COLOURS[0], "circle", "full"),
        (since, "since the first version", COLOURS[1], "square", "6 3"),
    ):
        points = [(axes.x(i), axes.y(float(value))) for i, value in enumerate(values)]
        dash = None if dashes == "full" else dashes
        drawn += [line(points, colour, stroke_dasharray=dash)]
        drawn += [marks(points, colour, shape)]
        entries.append((shape, text, {"colour": colour, "dashes": dashes}))
    words = "Flips added up over the updates and since the first version"
    title = "NFR %" if result.labelled else "Churn %"
    return _versions_chart(axes, labels[1:], title, words, drawn, entries)


def _over_versions(count: int, up: tuple[float, float]) -> Axes:
    margin = 0.08 * max(count - 1, 1)
    across = (-margin, count - 1 + margin)
    return Axes(52, 10, WIDTH - _RIGHT, 240, across, up)


def _versions_chart(axes, labels, title, words, drawn, entries=()) -> str:
    below = axes.bottom + height_below(axes, labels, titled=False)
    parts = [
        left_axis(axes, title),
        bottom_axis(axes, "", range(len(labels)), labels),
        *drawn,
        legend(entries, axes.left + 60, below + 12),
    ]
    return chart(WIDTH, below + 8 + LINE * len(entries), words, *parts)
