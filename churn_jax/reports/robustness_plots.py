"""Figures about foreign and corrupted images, as SVG text that sits in an HTML page.

How they look is in `figure.py`; the numbers are those of `churn_jax.analysis`.
"""

from collections.abc import Mapping

import numpy as np

from churn_jax.analysis.corruption import CorruptionSummary
from churn_jax.analysis.foreign_examples import EntropyHistogram, OutOfDistribution
from churn_jax.documents.plotting import (
    INK,
    colour,
    dash,
    drawing,
    legend,
    short_label,
)

__all__ = ["corruption_boxes", "entropy_histograms"]

HATCHES = ("", "///", "...", "xxx")
AXES = {
    "accuracy": ("Accuracy %", 100),
    "nll": ("NLL, nats", 1),
    "brier": ("Brier score", 1),
    "ece": ("ECE", 1),
}


def entropy_histograms(
    methods: Mapping[str, OutOfDistribution], *, foreign: str = "foreign images"
) -> str:
    """Entropies of predictions on own and on foreign images, a line per method.

    Args:
        methods: label of a method to its numbers; the counts of all runs that did not
            stop are added up.
        foreign: what the foreign images are, such as `SVHN`.

    Returns:
        SVG text.

    Raises:
        ValueError: there is no method, or two have other bins, as those of data sets
            with other numbers of classes have.

    References:
        [diversity] Fig. 8 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    _check_methods(methods)
    edges = next(iter(methods.values())).histogram_in.edges
    for found in methods.values():
        for one in (found.histogram_in, found.histogram_out):
            if not np.array_equal(one.edges, edges):
                raise ValueError(
                    "all histograms must have the same bins; got "
                    f"{len(edges) - 1} bins up to {edges[-1]:.3f} and "
                    f"{len(one.edges) - 1} up to {one.edges[-1]:.3f}"
                )
    with drawing(7.4, 3.6) as (figure, done):
        # Each its own height: a confident method's own images are one tall column.
        panels = figure.subplots(1, 2, sharex=True)
        for i, (label, found) in enumerate(methods.items()):
            whole = ~np.isnan(found.auroc_entropy)
            for axes, one in zip(
                panels, (found.histogram_in, found.histogram_out), strict=True
            ):
                axes.stairs(
                    _percent(one, whole),
                    edges,
                    color=colour(i),
                    linestyle=dash(i),
                    linewidth=1.6,
                    label=short_label(label),
                )
        for axes, title in zip(panels, ("own test images", foreign), strict=True):
            axes.set_title(short_label(title), fontsize=10)
            axes.set_xlabel("Entropy, nats")
            axes.set_xlim(0, edges[-1])
        panels[0].set_ylabel("Predictions %")
        legend(figure, panels[0], columns=3)
        return done(
            f"Entropy of predictions on own test images and on {foreign}, by method"
        )


def _percent(histogram: EntropyHistogram, whole: np.ndarray) -> np.ndarray:
    """`[bins]`, over the runs that did not stop; nan without one."""
    counts = histogram.counts[whole].sum(axis=0)
    return 100 * EntropyHistogram(histogram.edges, counts).shares


def corruption_boxes(
    methods: Mapping[str, CorruptionSummary],
    quantities: tuple[str, ...] = ("nll", "ece"),
) -> str:
    """Boxes over the kinds of corruption, by severity and method, a panel a quantity.

    A box reaches from the first to the third quartile with a line at the median; the
    whiskers reach to the smallest and the largest value.

    Args:
        methods: label of a method to its numbers. Each kind's value is the mean over
            runs, so a run that stopped must not be among them.
        quantities: of `churn_jax.analysis.corruption.QUANTITIES`.

    Returns:
        SVG text.

    Raises:
        ValueError: there is no method or no such quantity, or methods differ in their
            severities.

    References:
        [diversity] Fig. 9 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    _check_methods(methods)
    severities = next(iter(methods.values())).severities
    for label, summary in methods.items():
        if summary.severities != severities:
            raise ValueError(
                f"all methods must have the same severities; {label} has "
                f"{summary.severities}, others have {severities}"
            )
    width = 0.8 / len(methods)
    with drawing(7.4, 0.6 + 2.4 * len(quantities)) as (figure, done):
        panels = figure.subplots(len(quantities), 1, sharex=True, squeeze=False)[:, 0]
        for axes, quantity in zip(panels, quantities, strict=True):
            for i, summary in enumerate(methods.values()):
                shift = (i - (len(methods) - 1) / 2) * width
                _boxes(axes, summary, quantity, shift, 0.85 * width, i)
            title, _ = AXES[quantity]
            axes.set_ylabel(title)
            axes.set_xticks(range(len(severities)), map(str, severities))
        panels[-1].set_xlabel("Severity")
        for i, label in enumerate(methods):  # boxes have no entry of their own
            panels[0].bar(np.nan, 0, label=short_label(label), **_face(i))
        legend(figure, panels[0], columns=3)
        names = " and ".join(AXES[quantity][0] for quantity in quantities)
        return done(f"{names} on corrupted test images, by severity and method")


def _face(i: int) -> dict:
    return {
        "facecolor": colour(i),
        "edgecolor": INK,
        "linewidth": 0.8,
        "hatch": HATCHES[i % len(HATCHES)],
        "alpha": 0.8,
    }


def _boxes(axes, summary, quantity: str, shift: float, width: float, i: int) -> None:
    _, scale = AXES.get(quantity, ("", 1))
    boxes = [
        {
            "whislo": scale * box.low,
            "q1": scale * box.first,
            "med": scale * box.median,
            "q3": scale * box.third,
            "whishi": scale * box.high,
        }
        for box in summary.quartiles(quantity)
    ]
    line = {"color": INK, "linewidth": 0.8}
    axes.bxp(
        boxes,
        positions=np.arange(len(boxes)) + shift,
        widths=width,
        manage_ticks=False,
        showfliers=False,
        patch_artist=True,
        boxprops=_face(i),
        medianprops={"color": INK, "linewidth": 1.6},
        whiskerprops=line,
        capprops=line,
    )


def _check_methods(methods: Mapping) -> None:
    if not methods:
        raise ValueError("there must be at least one method")
