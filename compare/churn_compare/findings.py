"""Flows between classes, largest regressions and reliability curves."""

import numpy as np

from churn_compare.example_numbers import Numbers
from churn_compare.pair import Pair, Scanned, ScannedSide
from churn_compare.result import Change, Curve, Flow, Regression
from churn_compare.sums import BINS, bins_of

LARGEST = 2000  # entries kept in a flow


def class_flow(pair: Pair, scanned: Scanned) -> Flow:
    """Numbers of predictions that change from one class to another."""
    # Mean over pairs of runs. An example labelled with the class before is a negative
    # flip, one labelled with the class now a positive one.
    labels = pair.labels
    ways, table = np.arange(0), np.zeros((3, 0))  # all, negative, positive
    for _, old, new in scanned.pairs():
        rows = np.flatnonzero(old != new)
        before, now = old[rows].astype(np.int64), new[rows]
        counts = np.ones((3, len(rows)))
        counts[1:] = np.nan
        if labels is not None:
            counts[1:] = labels[rows] == before, labels[rows] == now
        counts = np.append(table, counts, axis=1)
        every = np.append(ways, before * pair.classes + now)
        ways, way = np.unique(every, return_inverse=True)
        table = np.stack([np.bincount(way, of, len(ways)) for of in counts])
    order = np.argsort(-table[0], kind="stable")[:LARGEST]
    sides = np.divmod(ways[order], pair.classes)
    was, then = (tuple(map(pair.class_name, side.tolist())) for side in sides)
    means = table[:, order] / np.prod(scanned.shape)
    changed, negative, positive = map(tuple, means.tolist())
    return Flow(was, then, changed, negative, positive)


def largest_regressions(
    pair: Pair, scanned: Scanned, flips: np.ndarray | None, count: int
) -> tuple[tuple[Regression, ...], int]:
    """The largest negative flips, and the number of all of them."""
    # Sorted by pairs of runs, by the fall of the label's probability, and by the order
    # of the examples.
    if pair.labels is None or flips is None:
        return (), 0
    flipped = np.flatnonzero(flips)
    sides = scanned.old, scanned.new
    drop = np.full(len(flipped), np.nan)  # without scores
    log_probs = [s.label_log_prob for s in sides if s.label_log_prob is not None]
    if len(log_probs) == 2:
        old, new = (np.exp(of[:, flipped], dtype=np.float64) for of in log_probs)
        drop = old.mean(axis=0) - new.mean(axis=0)
    worst = np.lexsort([-np.nan_to_num(drop), -flips[flipped]])[:count]
    rows, drop = flipped[worst], drop[worst]
    old, new = (_most_frequent(side, rows) for side in sides)
    before, now = (_mean_confidence(side, rows) for side in sides)
    found = tuple(
        Regression(
            id=str(pair.ids[row]),
            label=pair.class_name(int(pair.labels[row])),
            old=pair.class_name(int(old[i])),
            new=pair.class_name(int(new[i])),
            old_confidence=float(before[i]),
            new_confidence=float(now[i]),
            label_drop=float(drop[i]),
            share=float(flips[row]),
        )
        for i, row in enumerate(rows.tolist())
    )
    return found, len(flipped)


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
    votes = (predicted[:, None] == predicted[None]).sum(axis=0)  # [R, rows]
    first = np.where(votes == votes.max(axis=0), predicted, np.iinfo(np.int32).max)
    return first.min(axis=0)


def largest_changes(
    numbers: Numbers, ids: np.ndarray, listed: int
) -> tuple[tuple[Change, ...], int]:
    """The examples that fall most, or whose outcomes lie farthest apart."""
    measure, A = numbers.of, numbers.runs[0]
    best, lowest = np.zeros((2, len(ids)), int)  # runs between which it falls most
    if not measure.judged:
        fall = (numbers.changed if measure.named else numbers.distance).mean
        beyond = numbers.changed.mean > 0
    else:
        before, after = (
            [measure.worth(run) for run in runs] for runs in (measure.old, measure.new)
        )
        fall = np.mean(before, axis=0) - np.mean(after, axis=0)
        sides = (np.mean(runs, axis=0) for runs in (measure.old, measure.new))
        beyond = measure.beyond(fall, *sides)
        if measure.things is not None:
            best, lowest = np.argmax(before, axis=0), np.argmin(after, axis=0)
    found = np.flatnonzero(beyond)
    worst = found[np.argsort(-fall[found], kind="stable")][:listed]
    if not measure.judged and measure.things is not None:
        pairs = [(r, s) for _, r, s in numbers.pairs()]
        runs = [of[worst] for of in numbers.rows]
        far = np.argmax([measure.distance(runs[r], runs[s]) for r, s in pairs], axis=0)
        best[worst], lowest[worst] = (np.array(pairs) - (0, A))[far].T
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
    assert side.confidence is not None
    examples, confidence, right = np.zeros(BINS, np.int64), np.zeros(BINS), 0.0
    for predicted, top in zip(side.of_scores, side.confidence, strict=True):
        bins = bins_of(top)
        examples += np.bincount(bins, minlength=BINS)
        confidence += np.bincount(bins, top, BINS)
        right = right + np.bincount(bins, predicted == labels, BINS)
    some = np.where(examples > 0, examples, np.nan)
    return Curve(confidence / some, right / some, examples)
