"""How far logits move, from predictions of two rows of a study.

A row's replicas are the networks; ensembles of all sizes are formed of them. Classes
that not all networks know are left out, with their examples (Zhao et al., ELODI, TPAMI
2023).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from churn_compare.class_sets import known_classes
from churn_compare.store import check_comparable, is_stored, load_predictions
from churn_compare.suggestions import did_you_mean
from churn_jax.analysis import (
    GoodnessOfFit,
    UpdatesBySize,
    displacement_distribution,
    ensemble_displacement_norms,
    er_nfr_by_ensemble_size,
    few_classes,
    flip_rank_counts,
    goodness_of_fit,
    mixed_sides,
    simulate_displacement_norms,
    top_k_share,
)
from churn_jax.analysis.displacement import two_sides
from churn_jax.reports.artefacts import TEST, ReportError, Study
from churn_jax.setting_checks import check_least

FEWEST_NETWORKS = 64  # fewer say little about a distribution over networks
SHOWN = 4  # images whose histograms are drawn
MOST_UPDATES = 200  # draws that are taken on the whole test set
MOST_RANKED = 50  # of them, whose flips are ranked
MOST_DRAWN = 40  # examples of a plane

Float64 = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class DisplacementOptions:
    """The numbers to compute.

    Attributes:
        images: number of test images, evenly spaced, whose norms are tested.
        sizes: numbers of members of ensembles, increasing.
        draws: number of pairs of ensembles, and of simulated displacements.
        resamples: sets of normal networks drawn for a p-value.
        seed: seed of all draws.
    """

    images: int = 8
    sizes: tuple[int, ...] = (1, 2, 4, 8)
    draws: int = 10_000
    resamples: int = 200
    seed: int = 0

    def __post_init__(self):
        """Checks what needs no predictions."""
        for name in ("images", "draws", "resamples"):
            check_least(name, getattr(self, name), 1)
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must be at least 1; got {self.sizes}")
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"sizes must increase; got {self.sizes}")


# ---- the networks --------------------------------------------------------------------


class Networks(NamedTuple):
    """Predictions of a row's networks on the examples that are compared."""

    label: str  # of the row, for people
    ids: NDArray  # `[N]` of the examples
    labels: NDArray[np.int64]  # `[N]`, places among `classes`
    logits: Float64  # `[R, N, C]`
    classes: NDArray[np.int64]  # `[C]` ids of the classes that all networks know


def read_networks(study: Study, rows: Sequence[str]) -> dict[str, Networks]:
    """Networks of rows on the same examples and classes."""
    found = {row: load_predictions(_file_of(study, row), whole=True) for row in rows}
    first = next(iter(found.values()))
    logits = {}
    for row, predictions in found.items():
        check_comparable(first, predictions)
        stopped = set(predictions.stopped)
        kept = [r for r in range(len(predictions.logits)) if r not in stopped]
        if not kept:
            raise ReportError(f"all replicas of {row} have stopped")
        logits[row] = predictions.logits[kept]
    width = min(x.shape[-1] for x in logits.values())
    known = [known_classes(x[..., :width]).all(axis=(0, 1)) for x in logits.values()]
    (classes,) = np.nonzero(np.all(known, axis=0))
    examples = np.isin(first.labels, classes)
    if len(classes) < 2 or not examples.any():
        raise ReportError(
            f"the rows {', '.join(rows)} share {len(classes)} classes and "
            f"{int(examples.sum())} examples of them; there is nothing to compare"
        )
    labels = {method.name: method.label for method in study.methods}
    places = np.searchsorted(classes, first.labels[examples])
    return {
        row: Networks(
            labels.get(row, row),
            first.ids[examples],
            places,
            x[:, examples][..., classes].astype(np.float64),
            classes,
        )
        for row, x in logits.items()
    }


def _file_of(study: Study, row: str) -> Path:
    if row.endswith(".npz"):
        return Path(row)
    names = [method.name for method in study.methods]
    if row not in names:
        hint = did_you_mean(row, names, 1, 0.6) or f"; rows: {', '.join(names)}"
        raise ReportError(f"{study.folder} has no row {row!r}{hint}")
    path = study.method_folder(row) / TEST
    if not is_stored(path):
        raise ReportError(f"{path} does not exist; has the row {row} finished?")
    return path


# ---- displacements -------------------------------------------------------------------


class Plane(NamedTuple):
    """Logits of two classes, of every network on the examples that are drawn."""

    classes: tuple[int, int]  # their ids
    old: NDArray[np.float64]  # `[R1, n, 2]`, networks of the old kind
    new: NDArray[np.float64]  # `[R2, n, 2]`, none of them among the old
    labels: NDArray[np.int64]  # `[n]`, 0 or 1

    def right(self, values) -> NDArray[np.bool_]:
        """True if `[..., n, 2]` are of the right class."""
        return np.argmax(values, axis=-1) == self.labels

    @property
    def marked(self) -> int:
        """The example that flips in most updates from one network to another."""
        was, now = (self.right(side).mean(axis=0) for side in (self.old, self.new))
        return int(np.argmax(was * (1 - now)))


class Comparison(NamedTuple):
    """All numbers of updates from one kind of network to another, or to its own."""

    label: str  # of the two rows
    networks: tuple[int, ...]  # how many there are of each kind
    fits: tuple[GoodnessOfFit, ...]  # of norms of displacements, one per size
    ids: tuple[str, ...]  # of the images whose norms are kept
    drawn: Mapping[int, Float64]  # size to `[draws, images]`, of random ensembles
    simulated: Mapping[int, Float64]  # the same of normal displacements
    centre: Float64  # `[images]`, of the mean displacement: what no size takes away
    updates: UpdatesBySize  # error and negative flip rates, per size
    # size to `[C]`, negative flips by the rank of their wrong class
    ranks: Mapping[int, NDArray[np.int64]]
    top: NDArray[np.int64]  # `[k]` values of K
    # size to `[k]`, share of the squared norm in the old model's top K classes
    shares: Mapping[int, Float64]
    plane: Plane  # of the two classes that old networks confuse most


def compare_rows(
    old: Networks,
    new: Networks | None,
    options: DisplacementOptions,
    on_part: Callable[[str], None] = lambda part: None,
) -> Comparison:
    """All numbers of two kinds of networks, or of one; `on_part` follows every part."""
    label = old.label if new is None else f"{old.label} → {new.label}"
    kinds = [old.logits] if new is None else [old.logits, new.logits]
    side = len(old.logits) // 2 if new is None else min(map(len, kinds))
    if max(options.sizes) > side or min(map(len, kinds)) < 2:
        raise ReportError(
            f"{label}: ensembles of {max(options.sizes)} need as many networks on "
            f"either side, and two of each kind; there are {side} on a side"
        )
    spaced = np.linspace(0, len(old.ids) - 1, options.images).round().astype(int)
    images = np.unique(spaced)
    shown = images[:SHOWN]
    tested, kept = ([x[:, at] for x in kinds] for at in (images, shown))
    mean, covariance = displacement_distribution(*kept)
    fits, drawn, simulated = [], {}, {}
    for size in options.sizes:
        key = jax.random.fold_in(jax.random.key(options.seed), size)
        draw = {"size": size, "draws": options.draws, "key": key}
        fits.append(goodness_of_fit(*tested, **draw, resamples=options.resamples))
        drawn[size] = ensemble_displacement_norms(*kept, **draw)
        simulated[size] = simulate_displacement_norms(mean, covariance, **draw)
        on_part(f"{label}, ensembles of {size}")
    key, draws = jax.random.key(options.seed), min(options.draws, MOST_UPDATES)
    both = kinds[0], None if new is None else kinds[1]
    few, ends = min(draws, MOST_RANKED), sorted({options.sizes[0], options.sizes[-1]})
    top = np.unique(np.geomspace(1, len(old.classes), 12).round().astype(int))
    sides = two_sides(*both)
    found = Comparison(
        label,
        networks=fits[0].networks,
        fits=tuple(fits),
        ids=tuple(map(str, old.ids[shown])),
        drawn=drawn,
        simulated=simulated,
        centre=np.linalg.norm(mean, axis=-1),
        updates=er_nfr_by_ensemble_size(
            *both, old.labels, sizes=options.sizes, draws=draws, key=key
        ),
        ranks={
            size: flip_rank_counts(*both, old.labels, size=size, draws=few, key=key)
            for size in ends
        },
        top=top,
        shares={size: _top_shares(sides, size, top) for size in ends},
        plane=two_classes(old, new),
    )
    on_part(f"{label}, updates")
    return found


def two_classes(old: Networks, new: Networks | None) -> Plane:
    """Logits of the two classes that old networks confuse most."""
    sides = two_sides(old.logits, None if new is None else new.logits)
    pair = few_classes(sides[0], old.labels, 2)
    (places,) = np.nonzero(np.isin(old.labels, pair))
    if len(places) > MOST_DRAWN:
        spaced = np.linspace(0, len(places) - 1, MOST_DRAWN)
        places = places[spaced.round().astype(int)]
    logits = (side[:, places][..., pair] for side in sides)
    labels = np.searchsorted(pair, old.labels[places])
    return Plane(tuple(old.classes[pair].tolist()), *logits, labels)


def _top_shares(sides: Sequence[Float64], size: int, top: NDArray) -> Float64:
    """Mean over images and disjoint ensembles, as many as the networks give."""
    found = []
    for i in range(min(map(len, sides)) // size):
        old, new = (x[i * size : (i + 1) * size].mean(axis=0) for x in sides)
        shares = (
            top_k_share(old_logits=old, new_logits=new, top_k=int(k)) for k in top
        )
        found.append([np.nanmean(share) for share in shares])
    return np.mean(found, axis=0)


def updates_of_mixture(
    rows: Sequence[Networks], options: DisplacementOptions
) -> UpdatesBySize:
    """Updates between heterogeneous ensembles, whose members are of several rows."""
    if len(rows) < 2 or min(len(row.logits) for row in rows) < 2:
        raise ReportError(
            "heterogeneous ensembles need at least two rows of at least two networks"
        )
    old, new = mixed_sides([row.logits for row in rows])
    if max(options.sizes) > len(old):
        raise ReportError(
            f"heterogeneous ensembles of {max(options.sizes)} need as many networks "
            f"on either side; there are {len(old)}"
        )
    return er_nfr_by_ensemble_size(
        old,
        new,
        rows[0].labels,
        sizes=options.sizes,
        draws=min(options.draws, MOST_UPDATES),
        key=jax.random.key(options.seed),
    )


def averaged_feature_logits(
    features: ArrayLike, head_kernel: ArrayLike, head_bias: ArrayLike
) -> Float64:
    """Logits `[..., C]` of the mean feature under a reference's head.

    `H_ref((1/R) sum_n F_n(x))`, which is near `(1/R) sum_n H_n(F_n(x))`, the mean of
    the networks' own logits, where backward-compatible training kept the heads H_n
    close to the reference's. Of features `[R, ..., D]` the first columns count, as many
    as the kernel `[D_ref, C]` has rows.

    References:
        [elodi] Eq. 13
        [elodi] Eq. 14
    """
    kernel = np.asarray(head_kernel, np.float64)
    features = np.asarray(features, np.float64)[..., : len(kernel)]
    return features.mean(axis=0) @ kernel + np.asarray(head_bias, np.float64)
