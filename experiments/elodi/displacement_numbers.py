"""How far logits move, from predictions of two rows of a study.

A row's replicas are the networks; ensembles of all sizes are formed of them. What
classes not all networks know are left out, and the examples of those classes. Norms of
displacements are of logits, or of features that share a space.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from churn_compare.class_sets import known_classes
from churn_compare.store import check_comparable, is_stored, load_predictions
from churn_compare.suggestions import did_you_mean
from churn_jax.analysis import (
    GoodnessOfFit,
    UpdatesBySize,
    displacement_distribution,
    ensemble_displacement_norms,
    er_nfr_by_ensemble_size,
    flip_rank_counts,
    goodness_of_fit,
    mixed_sides,
    simulate_displacement_norms,
    top_k_share,
)
from churn_jax.reports.artefacts import TEST, ReportError, Study
from experiments.elodi.displacement_features import (
    FeatureAgreement,
    FeatureSpace,
    averaged_feature_agreement,
)

FEWEST_NETWORKS = 64  # fewer say little about a distribution over networks
SHOWN = 4  # images whose histograms are drawn


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
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1; got {getattr(self, name)}"
                )
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must be at least 1; got {self.sizes}")
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"sizes must increase; got {self.sizes}")


@dataclasses.dataclass(frozen=True, eq=False)
class Norms:
    """Norms of displacements between ensembles, on some images."""

    label: str  # of the two rows
    networks: tuple[int, ...]  # how many there are of each kind
    fits: tuple[GoodnessOfFit, ...]  # one per size
    ids: tuple[str, ...]  # of the images whose norms are kept
    # size to `[draws, images]`, of random ensembles
    drawn: Mapping[int, NDArray[np.float64]]
    simulated: Mapping[int, NDArray[np.float64]]  # the same of normal displacements
    # `[images]`, norm of the mean displacement: what no size takes away
    centre: NDArray[np.float64]


def compare_norms(
    label: str,
    a: NDArray[np.float64],
    b: NDArray[np.float64] | None,
    ids: NDArray,
    options: DisplacementOptions,
    on_part: Callable[[str], None] = lambda part: None,
) -> Norms:
    """Norms of two kinds of networks, or of one."""
    side = len(a) // 2 if b is None else min(len(a), len(b))
    if max(options.sizes) > side or min(len(x) for x in (a, b) if x is not None) < 2:
        raise ReportError(
            f"{label}: ensembles of {max(options.sizes)} need as many networks on "
            f"either side, and two of each kind; there are {side} on a side"
        )
    key, draws = jax.random.key(options.seed), options.draws
    spaced = np.linspace(0, len(ids) - 1, options.images).round().astype(int)
    images = np.unique(spaced)
    shown = images[:SHOWN]
    tested, drawn_of = (
        (a[:, places], None if b is None else b[:, places])
        for places in (images, shown)
    )
    mean, covariance = displacement_distribution(*drawn_of)
    fits, drawn, simulated = [], {}, {}
    for size in options.sizes:
        own = jax.random.fold_in(key, size)
        resamples = options.resamples
        fits.append(
            goodness_of_fit(
                *tested, size=size, draws=draws, key=own, resamples=resamples
            )
        )
        drawn[size] = ensemble_displacement_norms(
            *drawn_of, size=size, draws=draws, key=own
        )
        simulated[size] = simulate_displacement_norms(
            mean, covariance, size=size, draws=draws, key=own
        )
        on_part(f"{label}, ensembles of {size}")
    return Norms(
        label=label,
        networks=fits[0].networks,
        fits=tuple(fits),
        ids=tuple(str(x) for x in ids[shown]),
        drawn=drawn,
        simulated=simulated,
        centre=np.linalg.norm(mean, axis=-1),
    )


MOST_UPDATES = 200  # draws that are taken on the whole test set
MOST_RANKED = 50  # of them, whose flips are ranked


@dataclasses.dataclass(frozen=True, eq=False)
class Networks:
    """Predictions of a row's networks on the examples that are compared."""

    label: str  # of the row, for people
    ids: NDArray  # `[N]` of the examples
    labels: NDArray[np.int64]  # `[N]`, places among `classes`
    logits: NDArray[np.float64]  # `[R, N, C]` float64
    classes: NDArray[np.int64]  # `[C]` ids of the classes that all networks know


@dataclasses.dataclass(frozen=True, eq=False)
class TopShares:
    """Share of the displacement in the top K classes, mean over images and draws."""

    top: NDArray[np.int64]  # `[k]` values of K
    classes: int  # C; if all classes moved alike, shares were `top / classes`
    shares: Mapping[int, NDArray[np.float64]]  # size of the ensembles to `[k]`


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """All numbers of updates from one kind of network to another, or to its own."""

    label: str  # of the two rows
    norms: Norms  # of displacements, against normal ones
    updates: UpdatesBySize  # error and negative flip rates, per size
    # size to `[C]`, negative flips by the rank of their wrong class
    ranks: Mapping[int, NDArray[np.int64]]
    top: TopShares  # shares of the top K classes


def read_networks(study: Study, rows: Sequence[str]) -> dict[str, Networks]:
    """Networks of rows on the same examples and classes."""
    found = {row: load_predictions(_file_of(study, row), whole=True) for row in rows}
    first = next(iter(found.values()))
    for other in found.values():
        check_comparable(first, other)
    logits = {}
    for row, predictions in found.items():
        stopped = set(predictions.stopped)
        kept = [r for r in range(len(predictions.logits)) if r not in stopped]
        if not kept:
            raise ReportError(f"all replicas of {row} have stopped")
        logits[row] = predictions.logits[kept]
    width = min(x.shape[-1] for x in logits.values())
    known = np.all(
        [known_classes(x[..., :width]).all(axis=(0, 1)) for x in logits.values()],
        axis=0,
    )
    (classes,) = np.nonzero(known)
    examples = np.isin(first.labels, classes)
    if len(classes) < 2 or not examples.any():
        raise ReportError(
            f"the rows {', '.join(rows)} share {len(classes)} classes and "
            f"{int(examples.sum())} examples of them; there is nothing to compare"
        )
    labels = {method.name: method.label for method in study.methods}
    return {
        row: Networks(
            label=labels.get(row, row),
            ids=first.ids[examples],
            labels=np.searchsorted(classes, first.labels[examples]),
            logits=x[:, examples][..., classes].astype(np.float64),
            classes=classes,
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


def compare_rows(
    old: Networks,
    new: Networks | None,
    options: DisplacementOptions,
    on_part: Callable[[str], None] = lambda part: None,
) -> Comparison:
    """All numbers of two kinds of networks."""
    label = old.label if new is None else f"{old.label} → {new.label}"
    a, b = old.logits, None if new is None else new.logits
    norms = compare_norms(label, a, b, old.ids, options, on_part)
    key, updates = jax.random.key(options.seed), min(options.draws, MOST_UPDATES)
    rates = er_nfr_by_ensemble_size(
        a, b, old.labels, sizes=options.sizes, draws=updates, key=key
    )
    ends = sorted({options.sizes[0], options.sizes[-1]})
    ranks = {
        size: flip_rank_counts(
            a, b, old.labels, size=size, draws=min(updates, MOST_RANKED), key=key
        )
        for size in ends
    }
    top = _top_shares(a, b, ends)
    on_part(f"{label}, updates")
    return Comparison(label, norms, rates, ranks, top)


def _top_shares(a, b, sizes: Sequence[int]) -> TopShares:
    """Of disjoint ensembles, one after another: as many as the networks give."""
    classes = a.shape[-1]
    top = np.unique(np.geomspace(1, classes, 12).round().astype(int))
    shares = {}
    first, second = (a[: len(a) // 2], a[len(a) // 2 :]) if b is None else (a, b)
    for size in sizes:
        updates = min(len(first), len(second)) // size
        found = [
            [
                np.nanmean(top_k_share(old_logits=old, new_logits=new, top_k=int(k)))
                for k in top
            ]
            for old, new in (
                [x[i * size : (i + 1) * size].mean(axis=0) for x in (first, second)]
                for i in range(updates)
            )
        ]
        shares[size] = np.mean(found, axis=0)
    return TopShares(top, classes, shares)


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


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureNumbers:
    """Numbers of features' displacements and of their averages."""

    reference: str  # label of the row that is the reference
    one_reference: bool  # whether all replicas had the same reference
    norms: tuple[Norms, ...]  # of the old row with itself, and with the new one
    # label of a row to how close averaged features come to averaged logits, with all
    # its networks
    agreement: Mapping[str, FeatureAgreement]


def compare_features(
    space: FeatureSpace,
    networks: Mapping[str, Networks],
    old: str,
    new: str,
    options: DisplacementOptions,
) -> FeatureNumbers:
    """Norms of features' displacements, and averaged features under one head."""
    features, agreement = {}, {}
    for row in dict.fromkeys((old, new)):
        own = networks[row]
        found = np.asarray(space.features[row], np.float64)
        places = np.nonzero(np.isin(space.ids, own.ids))[0]
        same = np.array_equal(space.ids[places], own.ids)
        if not same or len(found) != len(own.logits):
            raise ReportError(
                f"{row} has features of {len(found)} networks and predictions of "
                f"{len(own.logits)}, or they are of other examples"
            )
        if found.shape[-1] < len(space.kernel):
            raise ReportError(
                f"{row} has {found.shape[-1]} features, the reference "
                f"{len(space.kernel)}; compatible ones are at least as wide"
            )
        features[row] = found[:, places, : len(space.kernel)]
        agreement[own.label] = averaged_feature_agreement(
            features[row],
            own.logits,
            space.kernel[:, own.classes],
            space.bias[own.classes],
        )
    ids = networks[old].ids
    norms = [compare_norms(networks[old].label, features[old], None, ids, options)]
    if new != old:
        label = f"{networks[old].label} → {networks[new].label}"
        norms.append(compare_norms(label, features[old], features[new], ids, options))
    return FeatureNumbers(space.reference, space.one_reference, tuple(norms), agreement)
