"""Figures of a comparison, drawn with Matplotlib if it is installed."""

import importlib.util

import numpy as np

from churn_compare.documents.plotting import COLOURS, INK, drawing, legend
from churn_compare.number_text import count_text
from churn_compare.result import Curve, Points

FEW = 10  # examples of a bin below which its mark is hollow
_SIZE = (5.4, 4.2)  # inches
# Outcome: label in the legend, marker, colour, opacity.
_OUTCOMES = {
    "same": ("same class", ".", COLOURS[6], 0.45),
    "other": ("changed", "_", COLOURS[0], 0.8),
    "positive": ("wrong before, right now", "+", COLOURS[2], 0.9),
    "negative": ("right before, wrong now", "x", COLOURS[5], 0.9),
}


def has_matplotlib() -> bool:
    """True if Matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def reliability(old: Curve, new: Curve) -> str:
    """Accuracy against confidence of both versions; below, examples of each bin."""
    with drawing(*_SIZE) as (figure, done):
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        upper.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
        for i, (name, curve) in enumerate((("old", old), ("new", new))):
            counts = np.asarray(curve.examples)
            full, few = counts >= FEW, (counts > 0) & (counts < FEW)
            style = {"color": COLOURS[i], "marker": "os"[i]}
            where = curve.confidence, curve.accuracy
            upper.plot(
                *(x[full] for x in where), label=name, ls=("-", "--")[i], **style
            )
            upper.plot(*(x[few] for x in where), ls="", mfc="none", **style)
            place = (np.arange(len(counts)) + 0.3 + 0.4 * i) / len(counts)
            share = 100 * counts / max(counts.sum(), 1)
            lower.bar(place, share, 0.4 / len(counts), color=COLOURS[i])
        upper.set_ylabel("Accuracy")
        lower.set(ylabel="Examples %", xlabel="Confidence (top probability)")
        upper.legend()
        return done("Reliability of the old and the new version")


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
    with drawing(*_SIZE) as (figure, done):
        axes = figure.subplots()
        for outcome, (text, marker, colour, opacity) in _OUTCOMES.items():
            chosen = finite & (outcomes == outcome)
            if not chosen.any():
                continue
            if outcome == "other" and labelled:
                text = "wrong before and now"
            shown, total = int(chosen.sum()), points.totals.get(outcome, 0)
            of = f" of {count_text(total)}" if total > shown else ""
            style = {"marker": marker, "color": colour, "alpha": opacity, "ls": ""}
            label = f"{text} ({count_text(shown)}{of})"
            axes.plot(confidence[chosen], displacement[chosen], label=label, **style)
        axes.set_xlabel("Confidence of the old version (top probability)")
        axes.set_ylabel("Displacement of the logits")
        legend(figure, axes)
        return done("Confidence of the old version against displacement of the logits")
