"""How far logits move, from predictions of two rows of a study, and how far features.

A row's replicas are the networks; ensembles of all sizes are formed of them. Classes
that not all networks know are left out, with their examples. Features are of networks
that backward-compatible training gave one space (Zhao et al., ELODI, TPAMI 2023).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
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
    few_classes,
    flip_rank_counts,
    goodness_of_fit,
    mixed_sides,
    simulate_displacement_norms,
    top_k_share,
)
from churn_jax.analysis.displacement import two_sides
from churn_jax.data.augment import normalize
from churn_jax.ensembles import apply_committee
from churn_jax.reports.artefacts import TEST, ReportError, Study
from churn_jax.setting_checks import check_least
from churn_jax.studies.inputs import StudyError
from churn_jax.studies.study import FinishedStudy
from churn_jax.typing import Array
from experiments.diversity.study import (
    AnalysedStudy,
    DiversityOptions,
    RowNetworks,
    over_chunks,
    to_pixels,
)

FEWEST_NETWORKS = 64  # fewer say little about a distribution over networks
SHOWN = 4  # images whose histograms are drawn
MOST_UPDATES = 200  # draws that are taken on the whole test set
MOST_RANKED = 50  # of them, whose flips are ranked
MOST_DRAWN = 40  # examples of a plane
CHUNK = 500  # examples whose features are asked for at once

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
    """Two numbers of every network on the examples that are drawn."""

    what: str  # logits or features
    classes: tuple[int, ...]  # ids of two or three
    axes: tuple[str, ...]  # names of the two numbers
    old: NDArray[np.float64]  # `[R1, n, 2]`, networks of the old kind
    new: NDArray[np.float64]  # `[R2, n, 2]`, none of them among the old
    labels: NDArray[np.int64]  # `[n]`, places among `classes`
    kernel: Float64  # `[2, k]`, turns the numbers into logits of the classes
    bias: Float64  # `[k]`

    def right(self, values) -> NDArray[np.bool_]:
        """True if `[..., n, 2]` are of the right class."""
        return np.argmax(values @ self.kernel + self.bias, axis=-1) == self.labels

    @property
    def marked(self) -> int:
        """The example that flips in most updates from one network to another."""
        was, now = (self.right(side).mean(axis=0) for side in (self.old, self.new))
        return int(np.argmax(was * (1 - now)))


@dataclasses.dataclass(frozen=True, eq=False)
class Norms:
    """Norms of displacements from one kind of network to another, or to its own."""

    label: str  # of the two rows
    what: str  # that moves: logits or features
    networks: tuple[int, ...]  # how many there are of each kind
    fits: tuple[GoodnessOfFit, ...]  # of norms of displacements, one per size
    ids: tuple[str, ...]  # of the images whose norms are kept
    drawn: Mapping[int, Float64]  # size to `[draws, images]`, of random ensembles
    simulated: Mapping[int, Float64]  # the same of normal displacements
    centre: Float64  # `[images]`, of the mean displacement: what no size takes away


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison(Norms):
    """All numbers of updates from one kind of network to another, or to its own."""

    updates: UpdatesBySize  # error and negative flip rates, per size
    # size to `[C]`, negative flips by the rank of their wrong class
    ranks: Mapping[int, NDArray[np.int64]]
    top: NDArray[np.int64]  # `[k]` values of K
    # size to `[k]`, share of the squared norm in the old model's top K classes
    shares: Mapping[int, Float64]
    plane: Plane  # of the two classes that old networks confuse most


def compare_norms(
    rows: Sequence[Networks],
    kinds: Sequence[Float64],
    what: str,
    options: DisplacementOptions,
    on_part: Callable[[str], None],
) -> Norms:
    """Norms of what `[R, N, D]` one row's networks have, or two rows'."""
    label = " → ".join(row.label for row in rows)
    side = len(kinds[0]) // 2 if len(kinds) == 1 else min(map(len, kinds))
    if max(options.sizes) > side or min(map(len, kinds)) < 2:
        raise ReportError(
            f"{label}: ensembles of {max(options.sizes)} need as many networks on "
            f"either side, and two of each kind; there are {side} on a side"
        )
    spaced = np.linspace(0, len(rows[0].ids) - 1, options.images).round().astype(int)
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
        on_part(f"{what} of {label}, ensembles of {size}")
    return Norms(
        label,
        what,
        networks=fits[0].networks,
        fits=tuple(fits),
        ids=tuple(map(str, rows[0].ids[shown])),
        drawn=drawn,
        simulated=simulated,
        centre=np.linalg.norm(mean, axis=-1),
    )


def compare_rows(
    old: Networks,
    new: Networks | None,
    options: DisplacementOptions,
    on_part: Callable[[str], None] = lambda part: None,
) -> Comparison:
    """All numbers of two kinds of networks, or of one; `on_part` follows every part."""
    rows = [old] if new is None else [old, new]
    kinds = [row.logits for row in rows]
    norms = compare_norms(rows, kinds, "logits", options, on_part)
    key, draws = jax.random.key(options.seed), min(options.draws, MOST_UPDATES)
    both = kinds[0], None if new is None else kinds[1]
    few, ends = min(draws, MOST_RANKED), sorted({options.sizes[0], options.sizes[-1]})
    top = np.unique(np.geomspace(1, len(old.classes), 12).round().astype(int))
    sides = two_sides(*both)
    found = Comparison(
        **vars(norms),
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
    on_part(f"{norms.label}, updates")
    return found


def two_classes(old: Networks, new: Networks | None) -> Plane:
    """Logits of the two classes that old networks confuse most."""
    sides = two_sides(old.logits, None if new is None else new.logits)
    pair = few_classes(sides[0], old.labels, 2)
    axes = tuple(f"logit of class {c}" for c in old.classes[pair])
    logits, head = [side[..., pair] for side in sides], (np.eye(2), np.zeros(2))
    return _plane("logits", axes, old, pair, logits, head)


def _plane(what, axes, old: Networks, few: list[int], sides, head) -> Plane:
    (places,) = np.nonzero(np.isin(old.labels, few))
    if len(places) > MOST_DRAWN:
        spaced = np.linspace(0, len(places) - 1, MOST_DRAWN)
        places = places[spaced.round().astype(int)]
    ids, labels = old.classes[few].tolist(), np.searchsorted(few, old.labels[places])
    return Plane(what, tuple(ids), axes, *(x[:, places] for x in sides), labels, *head)


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


# ---- features that share a space -----------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Features of rows that were trained to be compatible with one reference."""

    reference: str  # label of the row that is the reference
    one_reference: bool  # whether all replicas had the same reference
    ids: NDArray  # `[N]` of all test examples
    # row to `[R, N, D]`, D at least that of the reference
    features: Mapping[str, NDArray]
    kernel: Float64  # `[D_ref, C]` of the reference's last layer
    bias: Float64  # `[C]`


def feature_space(
    study: FinishedStudy, reference: str, rows: Sequence[str]
) -> FeatureSpace:
    """Test features of rows, and the head of the row whose features they should be.

    All replicas of `reference` should be one network, as they are with fixed seeds:
    else replicas of the others have features for several.
    """
    analysed = AnalysedStudy(study, DiversityOptions(rows=(reference, *rows)))
    test, features = analysed.dataset.test, {}
    images = (to_pixels(test.images),)
    for spec in analysed.rows:
        if (count := spec.method.members) != 1:
            raise StudyError(f"{spec.name} deploys {count} networks, not one")
        row = analysed.networks(spec.name)
        stopped = study.folder.record.row(spec.name).stopped_replicas
        kept = [r for r in range(study.config.train.replicas) if r not in stopped]
        asks = (functools.partial(_features, row, row.replica(r)) for r in kept)
        features[spec.name] = np.stack([over_chunks(x, images, CHUNK) for x in asks])
    first, row = features[reference], analysed.networks(reference)
    same = bool(np.all(first == first[0]))
    head = _head(row, analysed.runs[0], first.shape[-1])
    return FeatureSpace(row.spec.label, same, np.asarray(test.ids), features, *head)


@functools.partial(jax.jit, static_argnums=0)
def _features(row: RowNetworks, variables: Sequence[PyTree], pixels: Array) -> Array:
    """`[B, D]` of the only member, float32."""
    program = row.trained.program
    pixels = normalize(pixels, program.mean, program.std)
    how = {"mapping": program.member_mapping, "train": False}
    outputs, _ = apply_committee(program.groups, variables, pixels, **how)
    if outputs.features is None:
        raise StudyError(f"{row.spec.name} has no features (Outputs.features)")
    return outputs.features[0].astype(jnp.float32)


def _head(row: RowNetworks, replica: int, width: int) -> tuple[Float64, Float64]:
    """Kernel `[D, C]` and bias `[C]` of a replica's last layer."""
    if (head := row.trained.program.groups[0].network.head) is None:
        raise StudyError(f"{row.spec.name} has no known last layer (Network.head)")
    variables = jax.tree.map(lambda x: x[0], row.replica(replica)[0])
    inputs = jnp.concatenate([jnp.zeros((1, width)), jnp.eye(width)])
    with jax.default_matmul_precision("highest"):
        found = np.asarray(head(variables, inputs), np.float64)
    return found[1:] - found[0], found[0]


def averaged_feature_logits(
    features: Float64, head_kernel: Float64, head_bias: Float64
) -> Float64:
    """Logits `[..., C]` of the mean feature under a reference's head.

    `H_ref((1/R) sum_n F_n(x))`, which is near `(1/R) sum_n H_n(F_n(x))` where training
    kept the heads H_n close to the reference's. Of features `[R, ..., D]` the first
    columns count, as many as the kernel `[D_ref, C]` has rows.

    References:
        [elodi] Eq. 14
    """
    return features[..., : len(head_kernel)].mean(axis=0) @ head_kernel + head_bias


@dataclasses.dataclass(frozen=True)
class FeatureAgreement:
    """How close averaged features through one head come to averaged logits."""

    agreement: float  # share of examples with the same arg max
    # mean norm of the difference over that of averaged logits, without their means over
    # classes, which change no prediction
    relative_distance: float


def averaged_feature_agreement(
    features: Float64, logits: Float64, head_kernel: Float64, head_bias: Float64
) -> FeatureAgreement:
    """Compares `averaged_feature_logits` with the mean of the networks' own logits.

    The left side of the approximation is `(1/R) sum_n H_n(F_n(x))`: the mean of
    `logits [R, N, C]`, of the networks with `features [R, N, D]`.

    References:
        [elodi] Eq. 13
    """
    both = (
        logits.mean(axis=0),
        averaged_feature_logits(features, head_kernel, head_bias),
    )
    own, through_head = (x - x.mean(axis=-1, keepdims=True) for x in both)
    same = np.argmax(own, axis=-1) == np.argmax(through_head, axis=-1)
    apart = own - through_head
    distance, scale = (np.linalg.norm(x, axis=-1).mean() for x in (apart, own))
    relative = distance / scale if scale > 0 else np.nan
    return FeatureAgreement(float(same.mean()), float(relative))


class FeatureComparison(NamedTuple):
    """All numbers of features, as `Comparison` has them of logits."""

    space: FeatureSpace
    norms: tuple[Norms, ...]  # of the old row with itself, and with the new one
    agreement: Mapping[str, FeatureAgreement]  # label of a row to all its networks'
    plane: Plane | None  # of both features and three classes; None if there are more


def compare_features(
    space: FeatureSpace,
    networks: Mapping[str, Networks],
    rows: Sequence[str],
    options: DisplacementOptions,
    on_part: Callable[[str], None] = lambda part: None,
) -> FeatureComparison:
    """Features of an old row, or of an old and a new one, against their predictions."""
    kinds, features = [networks[row] for row in rows], []
    agreement, plane, width = {}, None, len(space.kernel)
    for row, own in zip(rows, kinds, strict=True):
        found = space.features[row][:, np.isin(space.ids, own.ids)].astype(np.float64)
        if found.shape[:2] != own.logits.shape[:2] or found.shape[-1] < width:
            raise ReportError(
                f"{row} has features {found.shape}, predictions {own.logits.shape}; "
                f"they must be of the same networks, and at least {width} features"
            )
        features.append(found[..., :width])
        head = space.kernel[:, own.classes], space.bias[own.classes]
        agreement[own.label] = averaged_feature_agreement(found, own.logits, *head)
    norms = tuple(
        compare_norms(kinds[:n], features[:n], "features", options, on_part)
        for n in range(1, len(rows) + 1)
    )
    if width == 2:
        old, axes = kinds[0], ("feature 1", "feature 2")
        few = few_classes(old.logits, old.labels, min(3, len(old.classes)))
        head = space.kernel[:, old.classes[few]], space.bias[old.classes[few]]
        plane = _plane("features", axes, old, few, two_sides(*features), head)
    return FeatureComparison(space, norms, agreement, plane)
