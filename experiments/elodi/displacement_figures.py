"""Figures of how far logits move, each as SVG for the page and as PNG.

A `Plane` has two numbers per network and image, with arrows from the old to the new
model's: the logits of the two classes that networks confuse most, on examples of those
classes, judged between the two alone; of networks of two classes that is the paper's
example. Or they are features, where there are two of them, of the three classes that
are confused most, judged by the reference's last layer.
"""

from collections.abc import Mapping

import jax
import numpy as np
from scipy import stats

from churn_compare.documents import Figure
from churn_compare.documents.plotting import (
    INK,
    colour,
    drawing,
    face,
    legend,
    line_style,
    picture,
    short_label,
)
from churn_jax.analysis import UpdatesBySize
from churn_jax.analysis.displacement import drawn_weights, generator
from experiments.elodi.displacement_numbers import Comparison, Norms, Plane

MOST_RANKS = 10  # bars of a figure of ranks
BINS = 60
DENSITY_DRAWS = 2000  # that a smooth curve is made of

OLD, NEW = "#D55E00", "#009E73"
ARROWS = {"negative flip": "#D81BD8", "positive flip": "#0072B2", "same": "#9A9A9A"}
SHAPES = "^os"  # of the classes
MEMBERS = 3
PLANE_BINS = 26
GRID = 60  # points a side that boundaries are found on


def errors_and_flips(updates: Mapping[str, UpdatesBySize]) -> Figure:
    """Negative flip rate and error rate by the size of ensembles ([elodi] Fig. 2)."""
    with drawing(7.4, 4.2) as (figure, done):
        flips, errors = figure.subplots(1, 2)
        for i, (label, found) in enumerate(updates.items()):
            style = line_style(i, label)
            for axes, values in (
                (flips, 100 * found.negative_flip_rate),
                (errors, 100 * found.new_error),
            ):
                mean, spread = values.mean(axis=1), values.std(axis=1)
                axes.plot(found.sizes, mean, **style)
                band = {"color": colour(i), "alpha": 0.15, "linewidth": 0}
                axes.fill_between(found.sizes, mean - spread, mean + spread, **band)
        sizes = sorted({size for found in updates.values() for size in found.sizes})
        for axes, title in ((flips, "Negative flips %"), (errors, "Errors, new %")):
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set(xlabel="Members of an ensemble", ylabel=title)
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


def norm_histograms(found: Norms, name: str) -> Figure:
    """Norms and their simulated density, by image ([elodi] Fig. 5, 9, 10, 12)."""
    count = len(found.ids)
    columns = min(count, 2)
    lines = -(-count // columns)
    with drawing(3.8 * columns, 0.6 + 2.5 * lines) as (figure, done):
        panels = figure.subplots(lines, columns, squeeze=False)
        for image, axes in enumerate(panels.flat):
            axes.set_visible(image < count)
            if image < count:
                _norms_of_image(axes, found, image)
        legend(figure, panels[0, 0], columns=4)
        return picture(
            figure,
            done,
            name=name,
            title=f"How far {found.what} move, {found.label}",
            caption="Density. Bars: random ensembles of m networks that share none. "
            "Lines: normal displacements, mean and covariance / m estimated from all "
            "single networks. Dotted: norm of the mean displacement.",
        )


def _norms_of_image(axes, found: Norms, image: int) -> None:
    top = max(norms[:, image].max() for norms in found.drawn.values())
    edges = np.linspace(0, 1.02 * top if top > 0 else 1.0, BINS + 1)
    grid = np.linspace(0, edges[-1], 200)
    for i, (size, norms) in enumerate(found.drawn.items()):
        style = {"histtype": "stepfilled", "color": colour(i), "alpha": 0.35}
        axes.hist(norms[:, image], edges, density=True, label=f"m = {size}", **style)
        simulated = found.simulated[size][:DENSITY_DRAWS, image]
        if np.ptp(simulated) > 1e-9 * np.abs(simulated).max():
            line = "-" if size == 1 else "--"
            density = stats.gaussian_kde(simulated)(grid)
            axes.plot(grid, density, color=colour(i), linestyle=line, linewidth=1.5)
    if found.centre[image] > 0:
        axes.axvline(found.centre[image], color=INK, linestyle=":", linewidth=1)
    axes.set_title(short_label(f"Image {found.ids[image]}"), fontsize=9)
    axes.set(xlim=(0, edges[-1]), yticks=(), xlabel="Norm of the displacement")


def _kind(size: int) -> str:
    return "single networks" if size == 1 else f"ensembles of {size}"


def flip_ranks(found: Comparison, name: str) -> Figure:
    """Negative flips by the rank of their wrong class ([elodi] Fig. 4)."""
    with drawing(5.4, 3.8) as (figure, done):
        axes = figure.add_subplot()
        width, classes = 0.8 / len(found.ranks), found.top[-1]
        for i, (size, counts) in enumerate(found.ranks.items()):
            total = max(1, counts.sum())
            shown = 100 * counts[1:MOST_RANKS] / total
            places = np.arange(2, 2 + len(shown))
            at = places + (i - (len(found.ranks) - 1) / 2) * width
            label = f"{_kind(size)}, {counts.sum():,} flips"
            axes.bar(at, shown, width=0.9 * width, label=label, **face(i))
            axes.set_xticks(places)
        x = "Rank, in the old model, of the wrong class"
        axes.set(xlabel=x, ylabel="Negative flips %")
        legend(figure, axes, columns=1)
        above = f" Ranks above {MOST_RANKS} are not drawn."
        return picture(
            figure,
            done,
            name=name,
            title=f"Ranks of negative flips, {found.label}",
            caption="Rank 2 is the old model's second choice."
            + (above if classes > MOST_RANKS else ""),
        )


def top_shares(found: Comparison, name: str) -> Figure:
    """Share of the squared norm in the old model's top K classes ([elodi] Eq. 5)."""
    top, classes = found.top, found.top[-1]
    with drawing(5.4, 3.8) as (figure, done):
        axes = figure.add_subplot()
        style = {"color": INK, "linewidth": 0.8, "label": "if all classes moved alike"}
        axes.plot(top, 100 * top / classes, **style)
        for i, (size, shares) in enumerate(found.shares.items()):
            axes.plot(top, 100 * shares, **line_style(i, _kind(size)))
        if classes > 20:
            axes.set_xscale("log")
        x = "K, top classes of the old model"
        axes.set(xlabel=x, ylabel="Share of the squared norm %", ylim=(0, 102))
        legend(figure, axes)
        return picture(
            figure,
            done,
            name=name,
            title=f"Displacement in the top K classes, {found.label}",
            caption="Mean over all test images. The old model ranks the classes.",
        )


def flip_kinds(plane: Plane, old, new) -> list[str]:
    """`negative flip`, `positive flip` or `same` for each example."""
    was, now = plane.right(old), plane.right(new)
    changed = np.where(was, "negative flip", "positive flip")
    return np.where(was == now, "same", changed).tolist()


def plane_figure(found: Plane, label: str, name: str, draws: int, seed: int) -> Figure:
    """Arrows of networks and ensembles, and their density ([elodi] Fig. 3, 8, 11)."""
    size = min(MEMBERS, len(found.old), len(found.new))
    ensembles = [side[:size].mean(axis=0) for side in (found.old, found.new)]
    with drawing(6.6, 7.2) as (figure, done):
        panels = figure.subplots(2, 2)
        single, several = panels[0]
        _arrows(single, found, found.old[0], found.new[0])
        single.set_title("Two single networks", fontsize=9)
        _arrows(several, found, *ensembles)
        several.set_title(f"Two ensembles of {size}", fontsize=9)
        _one_frame((single, several), found, size)
        _densities(panels[1], found, size, draws, seed)
        _key(figure, found)
        classes = ", ".join(map(str, found.classes))
        return picture(
            figure,
            done,
            name=name,
            title=f"{found.what.capitalize()} of classes {classes}, {label}",
            caption=f"{len(found.labels)} test images, right or wrong among these "
            "classes alone. Thin lines are decision boundaries. Below: displacements "
            "of the image with the black border between random old and new networks or "
            "ensembles, lighter is more frequent, each panel by itself.",
        )


def _arrows(axes, found: Plane, old, new) -> None:
    kinds = np.array(flip_kinds(found, old, new))
    for kind in ("same", "positive flip", "negative flip"):  # the last lies on top
        of = kinds == kind
        whole = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.006}
        style = whole | {"color": ARROWS[kind], "zorder": 2 if kind == "same" else 4}
        axes.quiver(*old[of].T, *(new - old)[of].T, **style)
    every = np.arange(len(found.labels))
    for values, shade in ((old, OLD), (new, NEW)):
        _points(axes, found, values, every, color=shade, s=16, zorder=3)
        border = {"edgecolors": INK, "linewidths": 1.2, "zorder": 6}
        _points(axes, found, values, [found.marked], color=shade, s=40, **border)


def _points(axes, found: Plane, values, places, **style) -> None:
    """Images at `places`, with a shape for each class."""
    style = {"linewidths": 0} | style
    for label, shape in enumerate(SHAPES[: len(found.classes)]):
        of = [place for place in places if found.labels[place] == label]
        axes.scatter(*values[of].T, marker=shape, **style)


def _one_frame(panels, found: Plane, size: int) -> None:
    """The same limits, so that arrows of both panels can be compared."""
    values = np.concatenate([found.old[:size], found.new[:size]]).reshape(-1, 2)
    low, high = values.min(axis=0), values.max(axis=0)
    room = 0.05 * np.maximum(high - low, 1e-6)
    low, high = low - room, high + room
    grid = np.stack(np.meshgrid(*np.linspace(low, high, GRID).T))
    scores = np.moveaxis(grid, 0, -1) @ found.kernel + found.bias
    for axes in panels:
        for k in range(len(found.classes) - (len(found.classes) == 2)):
            ahead = scores[..., k] - np.delete(scores, k, axis=-1).max(axis=-1)
            if ahead.min() < 0 < ahead.max():
                axes.contour(*grid, ahead, [0], colors=INK, linewidths=0.6)
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        axes.set_xlabel(found.axes[0].capitalize())
    panels[0].set_ylabel(found.axes[1].capitalize())


def _densities(panels, found: Plane, size: int, draws: int, seed: int) -> None:
    rng = generator(jax.random.key(seed))
    marked = [side[:, found.marked] for side in (found.old, found.new)]
    moved = []
    for m in (1, size):
        old, new = (drawn_weights(len(x), m, draws, rng) @ x for x in marked)
        moved.append(old - new)
    reach = max(np.abs(moved[0]).max(), 1e-6)
    edges = np.linspace(-reach, reach, PLANE_BINS + 1)
    for axes, values, m in zip(panels, moved, (1, size), strict=True):
        counts, _, _ = np.histogram2d(*values.T, bins=(edges, edges))
        frame = {"extent": (-reach, reach, -reach, reach), "origin": "lower"}
        axes.imshow(np.ma.masked_equal(counts.T, 0), cmap="viridis", **frame)
        axes.axhline(0, color=INK, linewidth=0.4)
        axes.axvline(0, color=INK, linewidth=0.4)
        axes.set_title(f"Displacement, {_kind(m)}", fontsize=9)
        axes.set_xlabel(f"Of {found.axes[0]}")
    panels[0].set_ylabel(f"Of {found.axes[1]}")


def _key(figure, found: Plane) -> None:
    """Legend of shapes and colours, below the panels."""
    from matplotlib.lines import Line2D

    points = [(OLD, "s", "old"), (NEW, "s", "new")]
    classes = zip(SHAPES, found.classes, strict=False)
    points += [(INK, shape, f"class {c}") for shape, c in classes]
    entries = [
        Line2D([], [], color=shade, marker=shape, linestyle="", label=text)
        for shade, shape, text in points
    ]
    for kind, shade in ARROWS.items():
        label = "both right or both wrong" if kind == "same" else kind
        entries.append(Line2D([], [], color=shade, label=label))
    figure.legend(handles=entries, loc="outside lower center", ncols=4)
