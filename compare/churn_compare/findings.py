"""Flows between classes, largest regressions and reliability curves."""

from collections.abc import Sequence

import numpy as np

from churn_compare.measures import Measure
from churn_compare.pair import Pair, Scanned, ScannedSide
from churn_compare.result import Change, Curve, Flow, Regression
from churn_compare.sums import BINS, bins_of

LARGEST = 2000  # entries kept in a flow
_HELD = 2**21  # entries held before they are merged


def class_flow(pair: Pair, scanned: Scanned) -> Flow:
    """Numbers of predictions that change from one class to another."""
    # Mean over pairs of runs. An example labelled with the class before is a negative
    # flip, one labelled with the class now a positive one.
    labels = pair.labels
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for _, old, new in scanned.pairs():
        rows = np.flatnonzero(old != new)
        before, now = old[rows].astype(np.int64), new[rows]
        counts = np.ones((3, len(rows)))  # all, negative, positive
        if labels is not None:
            counts[1:] = labels[rows] == before, labels[rows] == now
        parts.append((before * pair.classes + now, counts))
        if sum(len(ways) for ways, _ in parts) > _HELD:
            parts = [_merged(parts)]
    ways, table = _merged(parts)
    table = table / np.prod(scanned.shape)
    order = np.argsort(-table[0], kind="stable")[:LARGEST]
    ways, (every, negative, positive) = ways[order], table[:, order].tolist()
    unknown = (float("nan"),) * len(ways)
    return Flow(
        old=tuple(pair.class_name(way) for way in (ways // pair.classes).tolist()),
        new=tuple(pair.class_name(way) for way in (ways % pair.classes).tolist()),
        examples=tuple(every),
        negative=unknown if labels is None else tuple(negative),
        positive=unknown if labels is None else tuple(positive),
    )


def _merged(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Flows in ascending order, with the counts of equal flows added."""
    every = np.concatenate([ways for ways, _ in parts])
    counts = np.concatenate([counts for _, counts in parts], axis=1)
    ways, way = np.unique(every, return_inverse=True)
    return ways, np.stack([np.bincount(way, of, len(ways)) for of in counts])


def largest_regressions(
    pair: Pair, scanned: Scanned, flips: np.ndarray | None, count: int
) -> tuple[tuple[Regression, ...], int]:
    """The largest negative flips, and the number of all of them."""
    # Sorted by pairs of runs, by the fall of the label's probability, and by the order
    # of the examples.
    if count < 0:
        raise ValueError(f"regressions must be at least 0; got {count}")
    if pair.labels is None or flips is None:
        return (), 0
    flipped = np.flatnonzero(flips)
    drop = _mean_label_prob(scanned.old, flipped)
    if drop is not None:
        new = _mean_label_prob(scanned.new, flipped)
        drop = None if new is None else drop - new
    keys = [flips[flipped]] if drop is None else [flips[flipped], drop]
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
            share=float(flips[row]),
        )
        for i, row in enumerate(rows.tolist())
    )
    return found, len(flipped)


def _mean_label_prob(side: ScannedSide, rows: np.ndarray) -> np.ndarray | None:
    """Probability of the label, mean over runs; None without scores."""
    if side.label_log_prob is None:
        return None
    total = np.zeros(len(rows))
    for log_prob in side.label_log_prob:
        total += np.exp(log_prob[rows], dtype=np.float64)
    return total / len(side.label_log_prob)


def _mean_confidence(side: ScannedSide, rows: np.ndarray) -> np.ndarray:
    """Top probability, mean over runs; NaN if it is not that of the prediction."""
    if side.confidence is None:
        return np.full(len(rows), np.nan)
    own = side.predicted[:, rows] == side.of_scores[:, rows]
    known = np.where(own, side.confidence[:, rows], np.nan)
    return known.mean(axis=0, dtype=np.float64)


def _most_frequent(side: ScannedSide, rows: np.ndarray) -> np.ndarray:
    """Most frequent class of each example over runs; ties go to the lowest."""
    predicted = side.predicted[:, rows]
    if len(predicted) == 1:
        return predicted[0]
    votes = (predicted[:, None] == predicted[None]).sum(axis=0)  # [R, rows]
    first = np.where(votes == votes.max(axis=0), predicted, np.iinfo(np.int32).max)
    return first.min(axis=0)


def _largest(keys: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Indices of the `count` largest, by the first key, then the second and so on."""
    total = len(keys[0])
    among = np.arange(total)
    if not count:
        return among[:0]
    for key in keys:  # the first key that varies leaves few to sort
        if key.min() < key.max():
            among = np.flatnonzero(key >= np.partition(key, total - count)[-count])
            break
    order = np.lexsort([-key[among] for key in reversed(keys)])
    return among[order[:count]]


def largest_changes(
    measure: Measure, ids: np.ndarray, listed: int
) -> tuple[tuple[Change, ...], int]:
    """The examples that fall most, or lie farthest apart."""
    if measure.judged:
        before, after = (
            np.mean([measure.worth(run) for run in runs], axis=0)
            for runs in (measure.old, measure.new)
        )
        fall = before - after
    else:
        fall = measure.distance(measure.old[0], measure.new[0])
    beyond = measure.beyond(fall, measure.old[0], measure.new[0])
    found = np.flatnonzero(beyond)
    worst = found[np.argsort(-fall[found], kind="stable")][:listed]
    best = lowest = np.zeros(len(ids), int)  # of several runs, those that fall most
    if measure.judged and measure.things is not None:
        best = np.argmax([measure.worth(run) for run in measure.old], axis=0)
        lowest = np.argmin([measure.worth(run) for run in measure.new], axis=0)
    rows = tuple(
        Change(
            str(ids[i]),
            measure.text("old", i, best[i]),
            measure.text("new", i, lowest[i]),
            "" if measure.target is None else measure.text("target", i),
            float(fall[i]),
        )
        for i in worst
    )
    return rows, len(found)


def reliability_curve(side: ScannedSide, labels: np.ndarray) -> Curve:
    """Confidence and accuracy in 15 bins `((m - 1)/15, m/15]`, all runs pooled."""
    if side.confidence is None:
        raise ValueError("a reliability curve needs logits or probabilities")
    examples, confidence, right = np.zeros(BINS, np.int64), np.zeros(BINS), 0.0
    for predicted, top in zip(side.of_scores, side.confidence, strict=True):
        bins = bins_of(top)
        examples += np.bincount(bins, minlength=BINS)
        confidence += np.bincount(bins, top, BINS)
        right = right + np.bincount(bins, predicted == labels, BINS)
    some = np.where(examples > 0, examples, np.nan)
    return Curve(confidence / some, right / some, examples)
