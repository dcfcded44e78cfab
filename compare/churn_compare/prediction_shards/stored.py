"""Predictions of a path in either form: one file, or a folder of shards next to it.

`predictions.npz` stands for the file or, if there is none, for the finished shards in
the folder `predictions` next to it, so that readers need not know how a row was
written.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.example_ids import errors_of
from churn_compare.prediction_shards.folder import INDEX, read_order, read_shards
from churn_compare.prediction_shards.rows import ShardedRows
from churn_compare.predictions import (
    Predictions,
    PredictionsError,
    load_predictions,
    stopped_runs,
)

__all__ = [
    "WHOLE_BYTES",
    "MappedPredictions",
    "TooLargeError",
    "fits_whole",
    "is_stored",
    "load_stored",
    "load_whole",
    "shard_folder",
]

WHOLE_BYTES = 2 * 2**30
"""Logits of up to this many bytes are read whole; more, block by block."""


class TooLargeError(PredictionsError):
    """Predictions that are too large to be read whole."""


@dataclasses.dataclass(frozen=True, eq=False)
class MappedPredictions:
    """Predictions that stay on the disk; logits are read when they are used.

    Attributes:
        ids: `[N]` unique integers or strings, in the order of the split.
        labels: `[N]` int64 class ids.
        values: `[R, N, C]` logits, in the order in which they are stored; not checked.
        meta: facts as in `Predictions`.
        order: `[N]` where in `values` each example is; None where that is its place.

    Example:
        >>> values = ShardedRows([np.zeros((1, 2, 3)), np.ones((1, 1, 3))])
        >>> p = MappedPredictions(
        ...     np.array([7, 8, 9]), np.zeros(3, int), values, {}, np.array([2, 0, 1])
        ... )
        >>> p.rows(0, [0, 1]).tolist()
        [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    """

    ids: np.ndarray
    labels: np.ndarray
    values: ShardedRows
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)
    order: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(R, N, C)` of the logits."""
        return self.values.shape

    @property
    def stopped(self) -> tuple[int, ...]:
        """Runs that `meta` marks as stopped before the end, in ascending order."""
        return stopped_runs(self.meta, len(self.values))

    def rows(self, run: int, picked: Any) -> np.ndarray:
        """Logits of some examples of a run.

        Args:
            run: its number.
            picked: a slice, or `[n]` integers.

        Returns:
            `[n, C]` float32.
        """
        if self.order is not None:
            picked = self.order[picked]
        return self.values[run, picked].astype(np.float32, copy=False)

    def blocks(self, runs: Sequence[int], numbers: int) -> Iterator[tuple]:
        """All logits of some runs, a part of the examples at a time.

        Args:
            runs: which.
            numbers: the most logits in a part, unless one example has more.

        Yields:
            `(start, logits [r, b, C])`, of the examples from `start` on.
        """
        _, examples, classes = self.shape
        size = max(1, numbers // (len(runs) * classes))
        for start in range(0, examples, size):
            part = slice(start, start + size)
            logits = np.stack([self.rows(run, part) for run in runs])  # a copy
            self.values.give_back()
            yield start, logits

    def whole(self) -> Predictions:
        """All predictions in memory, checked like those of a file."""
        logits = np.stack(
            [self.rows(run, slice(None)) for run in range(len(self.values))]
        )
        return Predictions(self.ids, self.labels, logits, self.meta)


def fits_whole(numbers: int) -> bool:
    """Whether this many float32 logits take at most `WHOLE_BYTES`.

    Example:
        >>> fits_whole(10_000 * 10), fits_whole(1_000_000 * 21_841)
        (True, False)
    """
    return 4 * numbers <= WHOLE_BYTES


def shard_folder(path: str | os.PathLike) -> Path:
    """The folder of shards that may stand in for a file of predictions.

    Example:
        >>> shard_folder("methods/erm/predictions.npz").as_posix()
        'methods/erm/predictions'
    """
    path = Path(path)
    return path.with_suffix("") if path.suffix == ".npz" else path


def is_stored(path: str | os.PathLike) -> bool:
    """Whether there is a file, or finished shards in its place."""
    return Path(path).is_file() or (shard_folder(path) / INDEX).is_file()


def load_stored(path: str | os.PathLike) -> Predictions | MappedPredictions:
    """Reads predictions of either form.

    Args:
        path: a `.npz` file, which may stand for the shards next to it, or their folder.

    Returns:
        `Predictions` of a file, and of shards of up to `WHOLE_BYTES` of float32
        logits; else `MappedPredictions`. In the order of the split in either case.

    Raises:
        PredictionsError: there are none, or they are damaged; begins with the path.
    """
    folder = shard_folder(path)
    if Path(path).is_file() or not (folder / INDEX).is_file():
        return load_predictions(path)
    found = read_shards(folder)
    order = read_order(folder, len(found.ids))
    ids, labels = found.ids, found.labels
    if order is not None:
        ids, labels = ids[order], labels[order]
    mapped = MappedPredictions(ids, labels, found.values, found.meta, order)
    with errors_of(folder):
        return mapped.whole() if fits_whole(found.values.size) else mapped


def load_whole(path: str | os.PathLike) -> Predictions:
    """Reads predictions of either form for what needs all logits at once.

    Args:
        path: as in `load_stored`.

    Raises:
        TooLargeError: they are shards of more than `WHOLE_BYTES`.
        PredictionsError: there are none, or they are damaged.
    """
    found = load_stored(path)
    if isinstance(found, Predictions):
        return found
    runs, examples, classes = found.shape
    raise TooLargeError(
        f"{shard_folder(path)}: this needs all logits in memory, at most "
        f"{WHOLE_BYTES / 2**30:.3g} GiB, and {runs} runs, {examples:,} examples and "
        f"{classes:,} classes make {4 * found.values.size / 2**30:.3g} GiB; "
        "churn-jax compare and report read shards of any size"
    )
