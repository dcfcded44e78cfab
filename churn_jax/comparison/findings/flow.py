"""From which class to which class predictions change."""

from collections.abc import Sequence

import numpy as np

from churn_jax.comparison.pair import Pair
from churn_jax.comparison.result import Flow
from churn_jax.comparison.scanned import Scanned

__all__ = ["LARGEST", "class_flow"]

LARGEST = 2000  # entries that a flow keeps
_HELD = 2**21  # entries that wait to be merged


def class_flow(pair: Pair, scanned: Scanned) -> Flow:
    """Counts of (class predicted before, class predicted now) where the two differ."""
    # Mean over pairs of runs. An example labelled with the class before is a negative
    # flip, one labelled with the class now a positive one.
    labels = pair.labels
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for _, old, new in scanned.pairs():
        rows = np.flatnonzero(old != new)
        before, now = old[rows].astype(np.int64), new[rows]
        ways, way = np.unique(before * pair.classes + now, return_inverse=True)
        counts = np.zeros((len(ways), 3))  # all, negative, positive
        counts[:, 0] = np.bincount(way, minlength=len(ways))
        if labels is not None:
            label = labels[rows]
            counts[:, 1] = np.bincount(way, label == before, len(ways))
            counts[:, 2] = np.bincount(way, label == now, len(ways))
        parts.append((ways, counts))
        if sum(len(part[0]) for part in parts) > _HELD:
            parts = [_merged(parts)]
    ways, table = _merged(parts)
    table = table / np.prod(scanned.shape)
    order = np.argsort(-table[:, 0], kind="stable")[:LARGEST]
    ways, table = ways[order], table[order]
    unknown = (float("nan"),) * len(ways)
    return Flow(
        old=tuple(pair.class_name(way) for way in (ways // pair.classes).tolist()),
        new=tuple(pair.class_name(way) for way in (ways % pair.classes).tolist()),
        examples=tuple(table[:, 0].tolist()),
        negative=unknown if labels is None else tuple(table[:, 1].tolist()),
        positive=unknown if labels is None else tuple(table[:, 2].tolist()),
    )


def _merged(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Ways in ascending order, and their counts, those of the same way added."""
    if len(parts) == 1:
        return parts[0]
    ways, way = np.unique(
        np.concatenate([part[0] for part in parts]), return_inverse=True
    )
    counts = np.concatenate([part[1] for part in parts])
    columns = [np.bincount(way, column, len(ways)) for column in counts.T]
    return ways, np.stack(columns, axis=1)
