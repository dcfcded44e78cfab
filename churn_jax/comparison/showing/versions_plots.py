"""Figures of a folder of versions: every one against every other, and accuracy."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from churn_jax.comparison.result import Interval, VersionsResult
from churn_jax.comparison.showing.wording import has_range
from churn_jax.documents.plotting import COLOURS, INK, drawing, legend, short_label

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


def accuracy_line(result: VersionsResult, labels: Sequence[str]) -> str:
    """Accuracy of each version with its interval; "" without labels of examples."""
    if not result.accuracy:
        return ""
    with drawing(5.0, 3.6) as (figure, done):
        axes = figure.add_subplot()
        _line(axes, result.accuracy)
        _versions_below(axes, labels)
        axes.set_ylabel("Accuracy %")
        axes.margins(0.08)
        return done("Accuracy of every version, with intervals")


def flips_on_the_way(result: VersionsResult, labels: Sequence[str]) -> str:
    """Flips added up over the updates, beside those since the first version."""
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
    """How labels below an axis are turned, where they need it to fit."""
    if sum(map(len, labels)) <= _LEVEL:
        return {}
    return {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
