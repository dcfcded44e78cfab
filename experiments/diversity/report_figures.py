"""Figures of the analyses, each as the text of an SVG file."""

from collections.abc import Mapping, Sequence

import numpy as np

from churn_compare.documents.plotting import (
    INK,
    bars_by_row,
    colour,
    dash,
    drawing,
    face,
    legend,
    line_style,
    short_label,
)
from experiments.diversity.jacobians import SimilarityROC
from experiments.diversity.sections import CorruptionSummary, OutOfDistribution, Spread

FEWEST = 10  # examples of all runs in a bin that is drawn
SMALLEST = 1e-4  # nats; what is below is as good as nothing
LINE = {"color": INK, "linewidth": 0.8}
BINS = 50  # of entropy; the paper does not print its number


def diversity_by_confidence(spreads: Mapping[str, Spread], what: str) -> str:
    """KL and examples by the members' least confidence ([diversity] Fig. 3)."""
    with drawing(5.4, 5.0) as (figure, done):
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for i, (label, found) in enumerate(spreads.items()):
            middle = (found.edges[:-1] + found.edges[1:]) / 2
            enough = found.counts.sum(axis=0) >= FEWEST
            style = {**line_style(i, label), "linewidth": 1.5}
            above.plot(middle[enough], found.by_bin[enough], **style)
            below.plot(middle, 100 * found.shares, **style)
        above.set(yscale="log", ylabel="Mean pairwise KL, nats")
        below.set(ylabel="Examples %", ylim=(0, None), xlim=(0, 1))
        below.set_xlabel("Least top probability among members")
        legend(figure, above)
        return done(f"Mean pairwise KL by confidence, {what}")


def boxes(cuts: Mapping[str, np.ndarray], axis: str, what: str, *, log: bool) -> str:
    """A box per row: percentiles 5, 25, 50, 75 and 95 ([diversity] Fig. 5)."""
    with drawing(5.4, 1.2 + 0.38 * len(cuts)) as (figure, done):
        axes = figure.add_subplot()
        places = np.arange(len(cuts))
        means = [np.mean(found, axis=0) for found in cuts.values()]
        _draw(axes, means, places, 0.6, list(places), "horizontal")
        axes.set_yticks(places, [short_label(label) for label in cuts])
        axes.invert_yaxis()
        if log:
            axes.set_xscale("log")
            low = min(found[0] for found in means)
            axes.set_xlim(left=max(SMALLEST, 0.8 * low))
        axes.set_xlabel(axis)
        return done(what)


def _draw(axes, cuts, places, width: float, faces: Sequence[int], orientation: str):
    """Boxes of five numbers each."""
    names = ("whislo", "q1", "med", "q3", "whishi")
    drawn = axes.bxp(
        [dict(zip(names, map(float, cut), strict=True)) for cut in cuts],
        positions=places,
        widths=width,
        orientation=orientation,
        manage_ticks=False,
        showfliers=False,
        patch_artist=True,
        medianprops={"color": INK, "linewidth": 1.6},
        whiskerprops=LINE,
        capprops=LINE,
    )
    for patch, i in zip(drawn["boxes"], faces, strict=True):
        patch.set(**face(i))


def roc_curves(rocs: Mapping[str, Sequence[SimilarityROC]], scratch: str) -> str:
    """ROC of Jacobian similarity to a row from scratch ([diversity] Fig. 6)."""
    grid = np.linspace(0, 1, 101)
    with drawing(5.4, 4.6) as (figure, done):
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, alpha=0.5)
        for i, (label, runs) in enumerate(rocs.items()):
            curves = [
                np.interp(grid, roc.false_positive_rate, roc.true_positive_rate)
                for roc in runs
            ]
            style = {**line_style(i, label), "markevery": (5 + 3 * i, 20)}
            axes.plot(grid, np.mean(curves, axis=0), **style, linewidth=1.6)
        axes.set_xlabel(f"Share of {short_label(scratch)} at or above")
        axes.set_ylabel("Share of the distilled row at or above")
        axes.set(xlim=(0, 1), ylim=(0, 1.01))
        legend(figure, axes)
        return done("ROC curves of Jacobian similarity against a row from scratch")


def ratios(found: Mapping[str, Mapping[str, np.ndarray]], what: str) -> str:
    """Bars per row and kind with standard deviations over runs ([diversity] Fig. 4)."""
    bars = {}
    for kind in dict.fromkeys(kind for row in found.values() for kind in row):
        values = [row[kind] for row in found.values()]
        spread = [np.std(v, ddof=1) if len(v) > 1 else np.nan for v in values]
        bars[kind] = [np.mean(v) for v in values], spread
    with drawing(5.4, 1.4 + 0.6 * len(found)) as (figure, done):
        axes = figure.add_subplot()
        bars_by_row(axes, list(found), bars)
        axes.set_xlabel(what)
        legend(figure, axes)
        return done(f"{what} by perturbation")


def entropy_histograms(methods: Mapping[str, OutOfDistribution], foreign: str) -> str:
    """Entropies on own and on foreign images, by method ([diversity] Fig. 8)."""
    highest = next(iter(methods.values())).highest
    edges = np.linspace(0, highest, BINS + 1)
    with drawing(7.4, 3.6) as (figure, done):
        # Each its own height: a confident method's own images are one tall column.
        panels = figure.subplots(1, 2, sharex=True)
        for i, (label, found) in enumerate(methods.items()):
            style = {"color": colour(i), "linestyle": dash(i), "linewidth": 1.6}
            for axes, entropies in zip(panels, found[:2], strict=True):
                counts, _ = np.histogram(np.minimum(entropies, highest), edges)
                shares = 100 * counts / counts.sum()
                axes.stairs(shares, edges, label=short_label(label), **style)
        for axes, title in zip(panels, ("own test images", foreign), strict=True):
            axes.set_title(short_label(title), fontsize=10)
            axes.set(xlabel="Entropy, nats", xlim=(0, highest))
        panels[0].set_ylabel("Predictions %")
        legend(figure, panels[0], columns=3)
        return done(
            f"Entropy of predictions on own test images and on {foreign}, by method"
        )


def corruption_boxes(methods: Mapping[str, CorruptionSummary]) -> str:
    """Boxes over kinds of corruption, by severity and method ([diversity] Fig. 9)."""
    # Quartiles; whiskers reach to the smallest and the largest value.
    severities = next(iter(methods.values())).severities
    width = 0.8 / len(methods)
    with drawing(7.4, 5.4) as (figure, done):
        panels = figure.subplots(2, 1, sharex=True)
        for axes, quantity in zip(panels, ("nll", "ece"), strict=True):
            for i, summary in enumerate(methods.values()):
                cuts = summary.quartiles(quantity)
                places = np.arange(len(cuts)) + (i - (len(methods) - 1) / 2) * width
                _draw(axes, cuts, places, 0.85 * width, [i] * len(cuts), "vertical")
            axes.set_ylabel({"nll": "NLL, nats", "ece": "ECE"}[quantity])
            axes.set_xticks(range(len(severities)), map(str, severities))
        panels[-1].set_xlabel("Severity")
        for i, label in enumerate(methods):  # boxes have no entry of their own
            panels[0].bar(np.nan, 0, label=short_label(label), **face(i))
        legend(figure, panels[0], columns=3)
        return done("NLL and ECE on corrupted test images, by severity and method")
