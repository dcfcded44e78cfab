"""The examples that an update breaks, worst first."""

from collections.abc import Sequence

import numpy as np

from churn_jax.comparison.pair import Pair
from churn_jax.comparison.result import Regression
from churn_jax.comparison.scanned import Scanned, ScannedSide

__all__ = ["largest_regressions"]


def largest_regressions(
    pair: Pair, scanned: Scanned, count: int
) -> tuple[tuple[Regression, ...], int]:
    """The largest negative flips: right before, wrong now."""
    # Most pairs of runs first, then the largest fall of the label's probability, then
    # the largest displacement, then the order of the examples.
    if count < 0:
        raise ValueError(f"regressions must be at least 0; got {count}")
    if pair.labels is None:
        return (), 0
    if scanned.paired:
        flips = np.zeros(len(pair.labels), np.int64)
        for _, old, new in scanned.pairs():
            flips += (old == pair.labels) & (new != pair.labels)
    else:  # every old run with every new one, so their counts multiply
        flips = _right(scanned.old, pair.labels)
        flips *= len(scanned.new.predicted) - _right(scanned.new, pair.labels)
    flipped = np.flatnonzero(flips)
    drop = _mean_label_prob(scanned.old, flipped)
    if drop is not None:
        new = _mean_label_prob(scanned.new, flipped)
        drop = None if new is None else drop - new
    moved = None if scanned.displacement is None else scanned.displacement[flipped]
    keys = [key for key in (flips[flipped], drop, moved) if key is not None]
    listed = _largest(keys, min(count, len(flipped)))
    rows = flipped[listed]
    old, new = _most_frequent(scanned.old, rows), _most_frequent(scanned.new, rows)
    before = _mean_confidence(scanned.old, rows)
    now = _mean_confidence(scanned.new, rows)
    found = tuple(
        Regression(
            id=str(pair.ids[row]),
            label=pair.class_name(int(pair.labels[row])),
            old=pair.class_name(int(old[i])),
            new=pair.class_name(int(new[i])),
            old_confidence=float(before[i]),
            new_confidence=float(now[i]),
            label_drop=float("nan") if drop is None else float(drop[listed[i]]),
            displacement=float("nan") if moved is None else float(moved[listed[i]]),
            share=float(flips[row] / np.prod(scanned.shape)),
        )
        for i, row in enumerate(rows.tolist())
    )
    return found, len(flipped)


def _right(side: ScannedSide, labels: np.ndarray) -> np.ndarray:
    """`[N]` in how many runs the example is right."""
    total = np.zeros(len(labels), np.int64)
    for predicted in side.predicted:  # one run at a time: little memory
        total += predicted == labels
    return total


def _mean_label_prob(side: ScannedSide, rows: np.ndarray) -> np.ndarray | None:
    """Probability of the label, mean over runs; None without scores."""
    if side.label_log_prob is None:
        return None
    total = np.zeros(len(rows))
    for log_prob in side.label_log_prob:
        total += np.exp(log_prob[rows], dtype=np.float64)
    return total / len(side.label_log_prob)


def _mean_confidence(side: ScannedSide, rows: np.ndarray) -> np.ndarray:
    """Top probability, mean over runs; NaN without scores."""
    if side.confidence is None:
        return np.full(len(rows), np.nan)
    return side.confidence[:, rows].mean(axis=0, dtype=np.float64)


def _most_frequent(side: ScannedSide, rows: np.ndarray) -> np.ndarray:
    """The class that most runs predict, of the given examples; ties to the lowest."""
    predicted = side.predicted[:, rows]
    if len(predicted) == 1:
        return predicted[0]
    votes = (predicted[:, None] == predicted[None]).sum(axis=0)  # [R, rows]
    first = np.where(votes == votes.max(axis=0), predicted, np.iinfo(np.int32).max)
    return first.min(axis=0)


def _largest(keys: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Indices of the `count` largest by one key after the other, then by order."""
    total = len(keys[0])
    among = np.arange(total)
    if not count:
        return among[:0]
    for key in keys:  # the first key that differs at all leaves few to sort
        if key.min() < key.max():
            among = np.flatnonzero(key >= np.partition(key, total - count)[-count])
            break
    order = np.lexsort([-key[among] for key in reversed(keys)])
    return among[order[:count]]
