"""Figures of the third paper's analyses, as SVG text that sits in an HTML page.

How they look is in `figure.py`; figures of foreign and corrupted images are in
`robustness_plots.py`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from churn_jax.analysis.jacobians import SimilarityROC
from churn_jax.documents.plotting import (
    INK,
    colour,
    dash,
    drawing,
    legend,
    marker,
    short_label,
)
from churn_jax.reports.diversity_numbers import Spread

__all__ = [
    "boxes",
    "boxes_by_confidence",
    "diversity_by_confidence",
    "ratios",
    "roc_curves",
]

HATCHES = ("", "///", "...", "xxx")
FEWEST = 10  # examples of all runs in a bin that is drawn
SMALLEST = 1e-4  # nats; what is below is as good as nothing
FACE = {"edgecolor": INK, "linewidth": 0.8, "alpha": 0.8}
LINE = {"color": INK, "linewidth": 0.8}


def _face(i: int) -> dict:
    return {**FACE, "facecolor": colour(i), "hatch": HATCHES[i % len(HATCHES)]}


def diversity_by_confidence(spreads: Mapping[str, Spread], what: str) -> str:
    """Mean pairwise KL and share of examples by the members' least confidence.

    Args:
        spreads: label to numbers, a line each.
        what: of which images, for the description.

    Returns:
        SVG text; empty without a line.

    References:
        [diversity] Fig. 3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    if not spreads:
        return ""
    with drawing(5.4, 5.0) as (figure, done):
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for i, (label, found) in enumerate(spreads.items()):
            middle = (found.edges[:-1] + found.edges[1:]) / 2
            enough = found.counts.sum(axis=0) >= FEWEST
            style = {
                "color": colour(i),
                "linestyle": dash(i),
                "marker": marker(i),
                "markersize": 5,
                "linewidth": 1.5,
            }
            above.plot(
                middle[enough], found.by_bin[enough], label=short_label(label), **style
            )
            below.plot(middle, 100 * found.shares, **style)
        above.set_yscale("log")
        above.set_ylabel("Mean pairwise KL, nats")
        below.set_ylabel("Examples %")
        below.set_ylim(bottom=0)
        below.set_xlim(0, 1)
        below.set_xlabel("Least top probability among members")
        _plain_log(above.yaxis)
        legend(figure, above)
        return done(f"Mean pairwise KL by confidence, {what}")


def boxes_by_confidence(spreads: Mapping[str, Spread], what: str) -> str:
    """A box of pairwise KL per bin of confidence, a panel per kind or row.

    A box reaches from the first to the third quartile, its line is the median, and the
    whiskers reach to the smallest and the largest value; each the mean over runs.

    Args:
        spreads: label to numbers, a panel each.
        what: of which images, for the description.

    References:
        [diversity] Fig. 3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    if not spreads:
        return ""
    columns = min(len(spreads), 4)
    lines = -(-len(spreads) // columns)
    low = []
    with drawing(7.4, 0.7 + 2.1 * lines) as (figure, done):
        panels = figure.subplots(
            lines, columns, sharex=True, sharey=True, squeeze=False
        ).ravel()
        for i, (label, found) in enumerate(spreads.items()):
            enough = found.counts.sum(axis=0) >= FEWEST
            middle = ((found.edges[:-1] + found.edges[1:]) / 2)[enough]
            with np.errstate(all="ignore"):
                cuts = np.nanmean(found.quartiles[:, :, enough], axis=0).T
            width = 0.7 * (found.edges[1] - found.edges[0])
            _draw(panels[i], cuts, middle, width, [0] * len(cuts), vertical=True)
            panels[i].set_title(short_label(label), fontsize=9)
            panels[i].set_yscale("log")
            low += cuts[:, 1].tolist()  # whiskers of near agreement go down for ever
            panels[i].set_xlim(0, 1)
            panels[i].set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
            _plain_log(panels[i].yaxis)
        for i in range(len(spreads) - columns, len(spreads)):
            panels[i].tick_params(labelbottom=True)  # perhaps nothing is below it
        for panel in panels[len(spreads) :]:
            panel.set_visible(False)
        panels[0].set_ylim(bottom=max(SMALLEST, 0.3 * min(low, default=SMALLEST)))
        figure.supxlabel("Least top probability among members", fontsize=10)
        figure.supylabel("Pairwise KL, nats", fontsize=10)
        return done(f"Boxes of pairwise KL by confidence, {what}")


def boxes(cuts: Mapping[str, np.ndarray], axis: str, what: str, *, log: bool) -> str:
    """One box per kind or row: the 5th, 25th, 50th, 75th and 95th percentile.

    Args:
        cuts: label to `[R, 5]`, of which the mean over runs is drawn.
        axis: label of the axis.
        what: the description.
        log: whether the axis is logarithmic.

    References:
        [diversity] Fig. 5 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    if not cuts:
        return ""
    with drawing(5.4, 1.2 + 0.38 * len(cuts)) as (figure, done):
        axes = figure.add_subplot()
        places = np.arange(len(cuts))
        means = [np.mean(found, axis=0) for found in cuts.values()]
        _draw(axes, means, places, 0.6, list(places), vertical=False)
        axes.set_yticks(places, [short_label(label) for label in cuts])
        axes.invert_yaxis()
        if log:
            axes.set_xscale("log")
            low = min(found[0] for found in means)
            axes.set_xlim(left=max(SMALLEST, 0.8 * low))
            _plain_log(axes.xaxis)
        axes.set_xlabel(axis)
        return done(what)


def _draw(axes, cuts, places, width: float, faces: Sequence[int], *, vertical: bool):
    """Boxes of five numbers each."""
    if not len(cuts):
        return
    names = ("whislo", "q1", "med", "q3", "whishi")
    drawn = axes.bxp(
        [dict(zip(names, map(float, cut), strict=True)) for cut in cuts],
        positions=places,
        widths=width,
        orientation="vertical" if vertical else "horizontal",
        manage_ticks=False,
        showfliers=False,
        patch_artist=True,
        medianprops={"color": INK, "linewidth": 1.6},
        whiskerprops=LINE,
        capprops=LINE,
    )
    for patch, i in zip(drawn["boxes"], faces, strict=True):
        patch.set(**_face(i))


def roc_curves(rocs: Mapping[str, Sequence[SimilarityROC]], scratch: str) -> str:
    """ROC of Jacobian similarity, distilled against from scratch, mean over runs.

    Args:
        rocs: label of a row to its curves, one per run.
        scratch: label of the row from scratch.

    References:
        [diversity] Fig. 6 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    if not rocs:
        return ""
    grid = np.linspace(0, 1, 101)
    with drawing(5.4, 4.6) as (figure, done):
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, alpha=0.5)
        for i, (label, runs) in enumerate(rocs.items()):
            curves = [
                np.interp(grid, roc.false_positive_rate, roc.true_positive_rate)
                for roc in runs
            ]
            axes.plot(
                grid,
                np.mean(curves, axis=0),
                color=colour(i),
                linestyle=dash(i),
                marker=marker(i),
                markevery=(5 + 3 * i, 20),
                markersize=5,
                linewidth=1.6,
                label=short_label(label),
            )
        axes.set_xlabel(f"Share of {short_label(scratch)} at or above")
        axes.set_ylabel("Share of the distilled row at or above")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.01)
        legend(figure, axes)
        return done("ROC curves of Jacobian similarity against a row from scratch")


def ratios(found: Mapping[str, Mapping[str, np.ndarray]], axis: str, what: str) -> str:
    """Bars per row and kind with standard deviations over runs.

    Args:
        found: row to kind to `[R]`.
        axis: label of the axis.
        what: the description.

    References:
        [diversity] Fig. 4 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    if not found:
        return ""
    kinds = list(dict.fromkeys(kind for row in found.values() for kind in row))
    places = np.arange(len(found))
    height = 0.8 / len(kinds)
    with drawing(5.4, 1.4 + 0.6 * len(found)) as (figure, done):
        axes = figure.add_subplot()
        for k, kind in enumerate(kinds):
            values = [row.get(kind, np.array([np.nan])) for row in found.values()]
            spread = [np.std(v, ddof=1) if len(v) > 1 else np.nan for v in values]
            axes.barh(
                places + (k - (len(kinds) - 1) / 2) * height,
                [np.mean(v) for v in values],
                height=0.9 * height,
                xerr=np.nan_to_num(spread),
                ecolor=INK,
                capsize=2,
                label=kind,
                **_face(k),
            )
        axes.set_yticks(places, [short_label(label) for label in found])
        axes.invert_yaxis()
        axes.set_xlabel(axis)
        axes.set_xlim(left=0)
        legend(figure, axes)
        return done(what)


_FEW_DECADES = 1e3


def _plain_log(axis) -> None:
    """0.01, 0.02 and 0.05 instead of powers of ten alone, where there is room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    crowded = low <= 0 or high / low > _FEW_DECADES
    axis.set_major_locator(LogLocator(subs=(1,) if crowded else (1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())
