"""Figures of `churn-jax displacement`, each as SVG for the page and as PNG.

How they look is in `figure.py`; the two-class example is in `displacement_example.py`.
"""

import dataclasses
import io
from collections.abc import Mapping

import numpy as np

from churn_jax.analysis import UpdatesBySize
from churn_jax.documents.plotting import (
    INK,
    colour,
    dash,
    drawing,
    legend,
    marker,
    short_label,
)
from churn_jax.reports.displacement_norms import Norms
from churn_jax.reports.displacement_numbers import Comparison

__all__ = [
    "Picture",
    "errors_and_flips",
    "flip_ranks",
    "norm_histograms",
    "picture",
    "top_shares",
]

MOST_RANKS = 10  # bars of a figure of ranks
BINS = 60
DENSITY_DRAWS = 2000  # that a smooth curve is made of


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure of the page, and as files.

    Attributes:
        name: of the files, without ending.
        title: above it.
        caption: below it.
        svg: text that stands in a page or in a file.
        png: bytes of the same.
    """

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


def picture(figure, done, *, name: str, title: str, caption: str) -> Picture:
    """Both forms of a figure that `drawing` has opened."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120, facecolor="white")
    figure.set_layout_engine("none")  # everything has its place, which takes a while
    return Picture(name, title, caption, done(title), out.getvalue())


def errors_and_flips(updates: Mapping[str, UpdatesBySize]) -> Picture:
    """Negative flip rate and error rate by the size of ensembles.

    Args:
        updates: label to numbers, a line each.

    References:
        [elodi] Fig. 2 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """
    with drawing(7.4, 4.2) as (figure, done):
        flips, errors = figure.subplots(1, 2)
        for i, (label, found) in enumerate(updates.items()):
            style = {
                "color": colour(i),
                "linestyle": dash(i),
                "marker": marker(i),
                "markersize": 5,
                "label": short_label(label),
            }
            for axes, values in (
                (flips, 100 * found.negative_flip_rate),
                (errors, 100 * found.new_error),
            ):
                mean, spread = values.mean(axis=1), values.std(axis=1)
                axes.plot(found.sizes, mean, **style)
                axes.fill_between(
                    found.sizes,
                    mean - spread,
                    mean + spread,
                    color=colour(i),
                    alpha=0.15,
                    linewidth=0,
                )
        sizes = sorted({size for found in updates.values() for size in found.sizes})
        for axes, title in ((flips, "Negative flips %"), (errors, "Errors, new %")):
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set_xlabel("Members of an ensemble")
            axes.set_ylabel(title)
        flips.set_ylim(bottom=0)
        legend(figure, flips)
        return picture(
            figure,
            done,
            name="figure2",
            title="Flips and errors by the size of ensembles",
            caption="Random old and new ensembles that share no network. Line: mean "
            "over updates; band: standard deviation between one update and another.",
        )


def norm_histograms(found: Norms, name: str, what: str = "logits") -> Picture:
    """Histograms of norms beside the simulated density, a panel per image.

    Args:
        found: the numbers.
        name: of the files.
        what: what moves.

    References:
        [elodi] Fig. 5 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
        [elodi] Fig. 9 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
        [elodi] Fig. 10 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
        [elodi] Fig. 12 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """
    count = len(found.ids)
    columns = min(count, 2)
    lines = -(-count // columns)
    with drawing(3.8 * columns, 0.6 + 2.5 * lines) as (figure, done):
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        for image, axes in enumerate(panels):
            if image >= count:
                axes.set_visible(False)
                continue
            _norms_of_image(axes, found, image)
        for axes in panels[-columns:]:
            axes.set_xlabel("Norm of the displacement")
        for axes in panels[::columns]:
            axes.set_ylabel("Density")
        legend(figure, panels[0], columns=4)
        return picture(
            figure,
            done,
            name=name,
            title=f"How far {what} move, {found.label}",
            caption="Bars: random ensembles of m networks that share none. Lines: "
            "normal displacements with mean and covariance / m estimated from all "
            "single networks. Dotted: norm of the mean displacement.",
        )


def _norms_of_image(axes, found: Norms, image: int) -> None:
    top = max(norms[:, image].max() for norms in found.drawn.values())
    edges = np.linspace(0, 1.02 * top if top > 0 else 1.0, BINS + 1)
    grid = np.linspace(0, edges[-1], 200)
    for i, (size, norms) in enumerate(found.drawn.items()):
        axes.hist(
            norms[:, image],
            edges,
            density=True,
            histtype="stepfilled",
            color=colour(i),
            alpha=0.35,
            label=f"m = {size}",
        )
        density = _density(found.simulated[size][:, image], grid)
        if density is not None:
            axes.plot(
                grid,
                density,
                color=colour(i),
                linestyle="-" if size == 1 else "--",
                linewidth=1.5,
            )
    if found.centre[image] > 0:
        axes.axvline(found.centre[image], color=INK, linestyle=":", linewidth=1)
    axes.set_title(short_label(f"Image {found.ids[image]}"), fontsize=9)
    axes.set_xlim(0, edges[-1])
    axes.set_yticks(())


def _density(values, grid):
    """A Gaussian kernel estimate with Scott's bandwidth; None where all are one."""
    values = values[:DENSITY_DRAWS]
    if len(values) < 2 or np.ptp(values) <= 1e-9 * np.abs(values).max():
        return None
    width = values.std(ddof=1) * len(values) ** -0.2
    kernels = np.exp(-0.5 * ((grid[:, None] - values) / width) ** 2)
    return kernels.mean(axis=1) / (width * np.sqrt(2 * np.pi))


def flip_ranks(found: Comparison, name: str) -> Picture:
    """Rank of the wrong class of negative flips, single networks and ensembles.

    Args:
        found: the numbers.
        name: of the files.

    References:
        [elodi] Fig. 4 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """
    with drawing(5.4, 3.8) as (figure, done):
        axes = figure.add_subplot()
        width, classes = 0.8 / len(found.ranks), found.top.classes
        for i, (size, counts) in enumerate(found.ranks.items()):
            total = max(1, counts.sum())
            shown = 100 * counts[1:MOST_RANKS] / total
            kind = "single networks" if size == 1 else f"ensembles of {size}"
            places = np.arange(2, 2 + len(shown))
            axes.bar(
                places + (i - (len(found.ranks) - 1) / 2) * width,
                shown,
                width=0.9 * width,
                color=colour(i),
                edgecolor=INK,
                linewidth=0.6,
                hatch=("", "///")[i % 2],
                label=f"{kind}, {counts.sum():,} flips",
            )
            axes.set_xticks(places)
        axes.set_xlabel("Rank, in the old model, of the wrong class")
        axes.set_ylabel("Negative flips %")
        legend(figure, axes, columns=1)
        more = ""
        if classes > MOST_RANKS:
            more = f" Ranks above {MOST_RANKS} are not drawn."
        return picture(
            figure,
            done,
            name=name,
            title=f"Ranks of negative flips, {found.label}",
            caption="Rank 2 is the old model's second choice." + more,
        )


def top_shares(found: Comparison, name: str) -> Picture:
    """Share of the squared norm that the old model's top K classes have.

    Args:
        found: the numbers.
        name: of the files.

    References:
        [elodi] Eq. 5 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """
    top, classes = found.top.top, found.top.classes
    with drawing(5.4, 3.8) as (figure, done):
        axes = figure.add_subplot()
        axes.plot(
            top,
            100 * top / classes,
            color=INK,
            linewidth=0.8,
            label="if all classes moved alike",
        )
        for i, (size, shares) in enumerate(found.top.shares.items()):
            axes.plot(
                top,
                100 * shares,
                color=colour(i),
                linestyle=dash(i),
                marker=marker(i),
                markersize=5,
                label="single networks" if size == 1 else f"ensembles of {size}",
            )
        if classes > 20:
            axes.set_xscale("log")
        axes.set_xlabel("K, top classes of the old model")
        axes.set_ylabel("Share of the squared norm %")
        axes.set_ylim(0, 102)
        legend(figure, axes)
        return picture(
            figure,
            done,
            name=name,
            title=f"Displacement in the top K classes, {found.label}",
            caption="Mean over all test images. The old model ranks the classes.",
        )
