"""From which class to which class predictions change."""

import numpy as np

from churn_jax.comparison.pair import Pair
from churn_jax.comparison.result import Flow
from churn_jax.comparison.scanned import Scanned

__all__ = ["LARGEST", "class_flow"]

LARGEST = 2000  # entries that a flow keeps

_OTHER, _NEGATIVE, _POSITIVE, _KINDS = 0, 1, 2, 3


def class_flow(pair: Pair, scanned: Scanned) -> Flow:
    """Counts of (class predicted before, class predicted now) where the two differ.

    `count(a, b) = sum_i [yhat_old_i = a and yhat_new_i = b]`, mean over pairs of runs.
    An example labelled `a` is a negative flip, one labelled `b` a positive one.

    Args:
        pair: of which the classes have names.
        scanned: what the pass over the pair has kept.

    Returns:
        The largest 2000 entries that are not zero, largest first, then in the order of
        the classes. Where there are no more than 2000, the counts sum to N times the
        churn.
    """
    labels = pair.labels
    entries = np.zeros(0, np.int64)  # (old * C + new) * 3 + kind
    counts = np.zeros(0, np.int64)
    for old in scanned.old.predicted:
        for new in scanned.new.predicted:
            rows = np.flatnonzero(old != new)
            before, now = old[rows].astype(np.int64), new[rows]
            codes = (before * pair.classes + now) * _KINDS
            if labels is not None:
                codes += _NEGATIVE * (labels[rows] == before)
                codes += _POSITIVE * (labels[rows] == now)
            found, times = np.unique(codes, return_counts=True)
            entries, position = np.unique(
                np.concatenate([entries, found]), return_inverse=True
            )
            weights = np.concatenate([counts, times])
            counts = np.bincount(position, weights, len(entries)).astype(np.int64)
    ways, position = np.unique(entries // _KINDS, return_inverse=True)
    table = np.bincount(
        position * _KINDS + entries % _KINDS, counts, len(ways) * _KINDS
    ).reshape(-1, _KINDS)
    table /= len(scanned.old.predicted) * len(scanned.new.predicted)
    order = np.argsort(-table.sum(axis=1), kind="stable")[:LARGEST]
    ways, table = ways[order], table[order]
    unknown = (float("nan"),) * len(ways)
    return Flow(
        old=tuple(pair.class_name(way) for way in (ways // pair.classes).tolist()),
        new=tuple(pair.class_name(way) for way in (ways % pair.classes).tolist()),
        examples=tuple(table.sum(axis=1).tolist()),
        negative=unknown if labels is None else tuple(table[:, _NEGATIVE].tolist()),
        positive=unknown if labels is None else tuple(table[:, _POSITIVE].tolist()),
    )
