"""A pair in the order of its old file, which is read fastest from front to back."""

import dataclasses

import numpy as np

from churn_jax.comparison.pair import Pair
from churn_jax.comparison.scanned import Scanned, ScannedSide
from churn_jax.comparison.side import Side

__all__ = ["in_file_order", "in_order_of"]


def in_file_order(pair: Pair) -> tuple[Pair, np.ndarray | None]:
    """The same pair with its examples in the order of the old side's rows.

    Files often list the same examples in one order, which is not that of their ids.
    Then both are read from front to back, and not row by row from all over the disk.

    Args:
        pair: two joined versions.

    Returns:
        The pair to read and, for each example of `pair`, its place in that; None where
        nothing moves.

    Example:
        >>> z = np.zeros((1, 3, 2))
        >>> old, new = Side("old", "logits", z), Side("new", "logits", z)
        >>> rows = np.array([2, 0, 1])
        >>> moved, place = in_file_order(Pair(old, new, np.arange(3), 2, rows, rows))
        >>> moved.ids, moved.old_rows, moved.new_rows, place
        (array([1, 2, 0]), None, None, array([2, 0, 1]))
    """
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
    """What was kept of each example, in the order that it had before.

    Args:
        scanned: of the pair that `in_file_order` gives.
        place: where each example is in that.

    Example:
        >>> side = ScannedSide(np.array([[5, 6, 7]]))
        >>> in_order_of(Scanned(side, side), np.array([2, 0, 1])).old.predicted
        array([[7, 5, 6]])
    """

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
