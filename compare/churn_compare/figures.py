"""Figures of a comparison, drawn with Matplotlib if it is installed."""

import importlib.util

import numpy as np

from churn_compare.documents.plotting import COLOURS, INK, drawing
from churn_compare.result import Curve

FEW = 10  # examples of a bin below which its mark is hollow
_SIZE = (5.4, 4.2)  # inches


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
