"""A pair in the order of its old file, which is read fastest from front to back."""

import dataclasses

import numpy as np

from churn_jax.comparison.pair import Pair
from churn_jax.comparison.scanned import Scanned, ScannedSide
from churn_jax.comparison.side import Side

__all__ = ["in_file_order", "in_order_of"]


def in_file_order(pair: Pair) -> tuple[Pair, np.ndarray | None]:
    """The same pair with its examples in the order of the old side's rows."""
    # Files often list the same examples in one order, which is not that of their ids.
    # Both are then read from front to back, not row by row from all over the disk.
    rows = pair.old_rows
    if rows is None or np.all(rows[:-1] < rows[1:]):
        return pair, None
    order = np.argsort(rows)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    new_rows = order if pair.new_rows is None else pair.new_rows[order]
    moved = dataclasses.replace(
        pair,
        ids=pair.ids[order],
        old_rows=_unless_all(rows[order], pair.old),
        new_rows=_unless_all(new_rows, pair.new),
        labels=None if pair.labels is None else pair.labels[order],
        slices={},
    )
    return moved, place


def in_order_of(scanned: Scanned, place: np.ndarray) -> Scanned:
    """What was kept of each example, in the order that it had before."""

    def moved(side: ScannedSide) -> ScannedSide:
        return ScannedSide(
            side.predicted[:, place],
            _taken(side.confidence, place),
            _taken(side.label_log_prob, place),
            _taken(side.brier, place),
        )

    return Scanned(
        moved(scanned.old),
        moved(scanned.new),
        _taken(scanned.surrogate, place),
        _taken(scanned.displacement, place),
        _taken(scanned.own_displacement, place),
    )


def _taken(values: np.ndarray | None, place: np.ndarray) -> np.ndarray | None:
    return None if values is None else values[..., place]


def _unless_all(rows: np.ndarray, side: Side) -> np.ndarray | None:
    whole = len(rows) == side.examples and np.array_equal(rows, np.arange(len(rows)))
    return None if whole else rows
