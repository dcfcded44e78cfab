"""Two classes, two logits, and arrows from the old to the new model's.

A network of C classes takes part with the logits of the two classes that networks
confuse most, on the examples of those classes, and is judged between the two alone. Of
two classes that is the paper's example.
"""

import dataclasses

import jax
import numpy as np
from numpy.typing import NDArray

from churn_jax.analysis.displacement_draws import drawn_weights, generator, two_sides
from churn_jax.reports.displacement_numbers import Networks
from churn_jax.reports.displacement_plots import Picture, picture
from churn_jax.reports.figure import INK, drawing

__all__ = ["TwoClasses", "flip_kinds", "two_class_figure", "two_classes"]

OLD, NEW = "#D55E00", "#009E73"
ARROWS = {"negative flip": "#D81BD8", "positive flip": "#0072B2", "same": "#9A9A9A"}
SHAPES = "^o"  # of the two classes
MOST_DRAWN = 40  # examples with arrows
SOME_DRAWN = 5  # examples with all members
MEMBERS = 3
BINS = 26


@dataclasses.dataclass(frozen=True, eq=False)
class TwoClasses:
    """Logits of two classes on the examples that are drawn.

    Attributes:
        classes: ids of the two.
        old: `[R1, n, 2]`, networks of the old kind.
        new: `[R2, n, 2]`, networks of the new kind, none of them among the old.
        labels: `[n]`, 0 or 1.
        marked: the example with a black border, whose displacements are shown too.
    """

    classes: tuple[int, int]
    old: NDArray[np.float64]
    new: NDArray[np.float64]
    labels: NDArray[np.int64]
    marked: int


def two_classes(old: Networks, new: Networks | None) -> TwoClasses:
    """The two classes that old networks confuse most, on some of their examples.

    Args:
        old: networks of the old kind.
        new: of the new kind; None draws both sides from two halves of `old`.
    """
    first, second = two_sides(old.logits, None if new is None else new.logits)
    pair = _most_confused(first, old.labels)
    (places,) = np.nonzero(np.isin(old.labels, pair))
    if len(places) > MOST_DRAWN:
        spaced = np.linspace(0, len(places) - 1, MOST_DRAWN).round().astype(int)
        places = places[spaced]
    labels = (old.labels[places] == pair[1]).astype(np.int64)
    a, b = (side[:, places][..., list(pair)] for side in (first, second))
    # The example that flips in most updates from one network to another.
    right = [(side.argmax(axis=-1) == labels).mean(axis=0) for side in (a, b)]
    return TwoClasses(
        classes=(int(old.classes[pair[0]]), int(old.classes[pair[1]])),
        old=a,
        new=b,
        labels=labels,
        marked=int(np.argmax(right[0] * (1 - right[1]))),
    )


def _most_confused(logits, labels) -> tuple[int, int]:
    """Places of two classes; the first two where no network errs."""
    count = logits.shape[-1]
    predicted = logits.argmax(axis=-1)
    cells = np.zeros((count, count))
    np.add.at(cells, (np.broadcast_to(labels, predicted.shape), predicted), 1)
    cells = np.triu(cells + cells.T, 1)
    if not cells.any():
        return 0, 1
    i, j = np.unravel_index(np.argmax(cells), cells.shape)
    return int(i), int(j)


def flip_kinds(old, new, labels) -> list[str]:
    """`negative flip`, `positive flip` or `same` for each example.

    Args:
        old: `[n, 2]` logits.
        new: `[n, 2]`.
        labels: `[n]`, 0 or 1.

    Example:
        >>> flip_kinds(np.eye(2), np.eye(2)[::-1], np.array([0, 0]))
        ['negative flip', 'positive flip']
    """
    was, now = old.argmax(axis=-1) == labels, new.argmax(axis=-1) == labels
    changed = np.where(was, "negative flip", "positive flip")
    return np.where(was == now, "same", changed).tolist()


def two_class_figure(
    found: TwoClasses, *, name: str, label: str, draws: int, seed: int
) -> Picture:
    """Arrows of single networks and of ensembles, members, and where logits move to.

    Args:
        found: from `two_classes`.
        name: of the files.
        label: of the rows.
        draws: displacements that the density is made of.
        seed: of their draws.

    References:
        [elodi] Fig. 3 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
        [elodi] Fig. 8 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """
    size = min(MEMBERS, len(found.old), len(found.new))
    ensembles = [side[:size].mean(axis=0) for side in (found.old, found.new)]
    with drawing(9.6, 6.6) as (figure, done):
        panels = figure.subplots(2, 3)
        single, several, members = panels[0]
        _arrows(single, found, found.old[0], found.new[0])
        single.set_title("Two single networks", fontsize=9)
        _arrows(several, found, *ensembles)
        several.set_title(f"Two ensembles of {size}", fontsize=9)
        _members(members, found, ensembles, size)
        members.set_title("Ensembles among their members", fontsize=9)
        _one_frame((single, several, members), found, size)
        _densities(panels[1][:2], found, size, draws, seed)
        _key(panels[1][2], found)
        return picture(
            figure,
            done,
            name=name,
            title=f"Classes {found.classes[0]} and {found.classes[1]}, {label}",
            caption=f"Logits of the two classes on {len(found.labels)} of their test "
            "images, right or wrong between the two. The thin line is the decision "
            "boundary. Below: displacements of the image with the black border between "
            "random old and new networks or ensembles, lighter is more frequent, each "
            "panel by itself.",
        )


def _arrows(axes, found: TwoClasses, old, new) -> None:
    kinds = np.array(flip_kinds(old, new, found.labels))
    for kind in ("same", "positive flip", "negative flip"):  # the last lies on top
        of = kinds == kind
        axes.quiver(
            *old[of].T,
            *(new - old)[of].T,
            angles="xy",
            scale_units="xy",
            scale=1,
            width=0.006,
            color=ARROWS[kind],
            zorder=2 if kind == "same" else 4,
        )
    for values, face in ((old, OLD), (new, NEW)):
        _points(axes, found, values, face)


def _points(axes, found: TwoClasses, values, face, **style) -> None:
    for label, shape in enumerate(SHAPES):
        of = found.labels == label
        axes.scatter(
            *values[of].T,
            marker=shape,
            s=16,
            linewidths=0,
            **{"color": face, "zorder": 3} | style,
        )
    axes.scatter(
        *values[found.marked],
        marker=SHAPES[found.labels[found.marked]],
        s=40,
        color=face,
        edgecolors=INK,
        linewidths=1.2,
        zorder=6,
    )


def _members(axes, found: TwoClasses, ensembles, size: int) -> None:
    """A few images only, the marked one among them."""
    rest = [n for n in range(len(found.labels)) if n != found.marked]
    step = max(1, len(rest) // max(1, SOME_DRAWN - 1))
    some = [found.marked, *rest[::step][: SOME_DRAWN - 1]]
    few = dataclasses.replace(found, labels=found.labels[some], marked=0)
    for side, mean, face in zip(
        (found.old, found.new), ensembles, (OLD, NEW), strict=True
    ):
        for member in side[:size]:
            for n in some:
                line = np.stack([member[n], mean[n]])
                axes.plot(*line.T, color=face, linewidth=0.5, alpha=0.5, zorder=1)
            for label, shape in enumerate(SHAPES):
                of = [n for n in some if found.labels[n] == label]
                axes.scatter(
                    *member[of].T,
                    marker=shape,
                    s=14,
                    alpha=0.4,
                    color=face,
                    linewidths=0,
                )
        _points(axes, few, mean[some], face)


def _one_frame(panels, found: TwoClasses, size: int) -> None:
    """The same limits, so that arrows of both panels can be compared."""
    values = np.concatenate([found.old[:size], found.new[:size]]).reshape(-1, 2)
    low, high = values.min(axis=0), values.max(axis=0)
    room = 0.05 * np.maximum(high - low, 1e-6)
    line = [min(low - room), max(high + room)]
    for axes in panels:
        axes.plot(line, line, color=INK, linewidth=0.6, zorder=1)
        axes.set_xlim(low[0] - room[0], high[0] + room[0])
        axes.set_ylim(low[1] - room[1], high[1] + room[1])
        axes.set_xlabel(f"Logit of class {found.classes[0]}")
    panels[0].set_ylabel(f"Logit of class {found.classes[1]}")


def _densities(panels, found: TwoClasses, size: int, draws: int, seed: int) -> None:
    rng = generator(jax.random.key(seed))
    moved = []
    for m in (1, size):
        sides = [
            drawn_weights(len(x), m, draws, rng) @ x[:, found.marked]
            for x in (found.old, found.new)
        ]
        moved.append(sides[0] - sides[1])
    reach = max(np.abs(moved[0]).max(), 1e-6)
    edges = np.linspace(-reach, reach, BINS + 1)
    for axes, values, m in zip(panels, moved, (1, size), strict=True):
        counts, _, _ = np.histogram2d(*values.T, bins=(edges, edges))
        axes.imshow(
            np.ma.masked_equal(counts.T, 0),
            origin="lower",
            extent=(-reach, reach, -reach, reach),
            cmap="viridis",
        )
        axes.axhline(0, color=INK, linewidth=0.4)
        axes.axvline(0, color=INK, linewidth=0.4)
        kind = "single networks" if m == 1 else f"ensembles of {m}"
        axes.set_title(f"Displacement, {kind}", fontsize=9)
        axes.set_xlabel(f"Of class {found.classes[0]}")
    panels[0].set_ylabel(f"Of class {found.classes[1]}")


def _key(axes, found: TwoClasses) -> None:
    """What shapes and colours mean, where a panel is free."""
    from matplotlib.lines import Line2D

    points = [(OLD, "s", "old"), (NEW, "s", "new")]
    points += [
        (INK, shape, f"class {c}")
        for shape, c in zip(SHAPES, found.classes, strict=True)
    ]
    entries = [
        Line2D([], [], color=face, marker=shape, linestyle="", label=text)
        for face, shape, text in points
    ]
    entries += [
        Line2D([], [], color=shade, label="both right or both wrong")
        if kind == "same"
        else Line2D([], [], color=shade, label=kind)
        for kind, shade in ARROWS.items()
    ]
    axes.set_axis_off()
    axes.legend(handles=entries, loc="center left")
