"""The numbers of `churn-jax displacement`, from predictions of two rows of a study.

A row's replicas are the networks; ensembles of all sizes are formed of them. What
classes not all networks know are left out, and the examples of those classes.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from churn_jax.analysis import (
    UpdatesBySize,
    er_nfr_by_ensemble_size,
    flip_rank_counts,
    mixed_sides,
    top_k_share,
)
from churn_jax.class_sets import known_classes
from churn_jax.prediction_shards import is_stored, load_whole
from churn_jax.predictions import check_comparable
from churn_jax.reports.artefacts import TEST, ReportError, Study
from churn_jax.reports.displacement_norms import (
    DisplacementOptions,
    Norms,
    compare_norms,
)

__all__ = [
    "Comparison",
    "Networks",
    "TopShares",
    "compare_rows",
    "read_networks",
    "updates_of_mixture",
]

MOST_UPDATES = 200  # draws that are taken on the whole test set
MOST_RANKED = 50  # of them, whose flips are ranked


@dataclasses.dataclass(frozen=True, eq=False)
class Networks:
    """Predictions of a row's networks on the examples that are compared.

    Attributes:
        label: of the row, for people.
        ids: `[N]` of the examples.
        labels: `[N]`, places among `classes`.
        logits: `[R, N, C]` float64.
        classes: `[C]` ids of the classes that all networks know.
    """

    label: str
    ids: NDArray
    labels: NDArray[np.int64]
    logits: NDArray[np.float64]
    classes: NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class TopShares:
    """Share of the displacement in the top K classes, mean over images and draws.

    Attributes:
        top: `[k]` values of K.
        classes: C; if all classes moved alike, shares were `top / classes`.
        shares: size of the ensembles to `[k]`.
    """

    top: NDArray[np.int64]
    classes: int
    shares: Mapping[int, NDArray[np.float64]]


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """All numbers of updates from one kind of network to another, or to its own.

    Attributes:
        label: of the two rows.
        norms: of displacements, against normal ones.
        updates: error and negative flip rates, per size.
        ranks: size to `[C]`, negative flips by the rank of their wrong class.
        top: shares of the top K classes.
    """

    label: str
    norms: Norms
    updates: UpdatesBySize
    ranks: Mapping[int, NDArray[np.int64]]
    top: TopShares


def read_networks(study: Study, rows: Sequence[str]) -> dict[str, Networks]:
    """Networks of rows on the same examples and classes.

    Args:
        study: from `read_study`.
        rows: names of rows, or paths of predictions of any framework.

    Raises:
        ReportError: there is no such row, its predictions are missing, or the rows
            share too few classes or no example.
        PredictionsError: a file cannot be read, holds other examples, or stands for
            shards that do not fit into memory.
    """
    found = {row: load_whole(_file_of(study, row)) for row in rows}
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
        close = difflib.get_close_matches(row, names, n=1)
        hint = f"did you mean {close[0]}?" if close else f"rows: {', '.join(names)}"
        raise ReportError(f"{study.folder} has no row {row!r}; {hint}")
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
    """All numbers of two kinds of networks.

    Args:
        old: networks of the old kind.
        new: of the new kind; None compares ensembles of one kind, from two halves.
        options: what to compute.
        on_part: told of every part that is done, `1 + len(sizes)` of them.

    Raises:
        ReportError: there are too few networks for the sizes.
    """
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
    """Updates between heterogeneous ensembles, whose members are of several rows.

    Args:
        rows: two at least.
        options: of which the sizes, draws and the seed count.

    Raises:
        ReportError: there are too few networks.
    """
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
