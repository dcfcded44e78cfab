"""What the plots of a comparison show: calibration, and how far predictions moved."""

import numpy as np

from churn_jax.comparison.pair import Pair
from churn_jax.comparison.result import Curve, Points
from churn_jax.comparison.scanned import Scanned, ScannedSide

__all__ = ["BINS", "reliability_curve", "scatter_points"]

BINS = 15  # as in the calibration error
_MOST = 3000  # points
_MOST_NEGATIVE = 1500
_OUTCOMES = ("negative", "positive", "other", "same")


def reliability_curve(side: ScannedSide, labels: np.ndarray) -> Curve:
    """Confidence and accuracy in 15 bins `((m - 1)/15, m/15]`, all runs pooled."""
    if side.confidence is None:
        raise ValueError("a reliability curve needs logits or probabilities")
    edges = (np.arange(1, BINS) / BINS).astype(np.float32)
    examples, confidence, right = np.zeros(BINS, np.int64), np.zeros(BINS), 0.0
    for predicted, top in zip(side.predicted, side.confidence, strict=True):
        bins = np.searchsorted(edges, top, side="left")
        examples += np.bincount(bins, minlength=BINS)
        confidence += np.bincount(bins, top, BINS)
        right = right + np.bincount(bins, predicted == labels, BINS)
    some = np.where(examples > 0, examples, np.nan)
    return Curve(confidence / some, right / some, examples)


def scatter_points(pair: Pair, scanned: Scanned, *, seed: int) -> Points:
    """A sample of examples: how confident the old version was, how far logits moved."""
    # All negative flips, or 1500 drawn at random of more, then a random sample of the
    # rest, 3000 points at most: the two are not drawn equally often, see
    # `Points.totals`.
    if scanned.old.confidence is None or scanned.displacement is None:
        raise ValueError("confidences and displacements need scores of both sides")
    outcome = _outcomes(scanned, pair.labels)
    negative = np.flatnonzero(outcome == 0)
    rest = np.flatnonzero(outcome != 0)
    generator = np.random.default_rng(seed)
    first = _draw(generator, negative, _MOST_NEGATIVE)
    rows = np.concatenate([first, _draw(generator, rest, _MOST - len(first))])
    counts = np.bincount(outcome, minlength=len(_OUTCOMES)).tolist()
    return Points(
        confidence=scanned.old.confidence[:, rows].mean(axis=0, dtype=np.float64),
        displacement=scanned.displacement[rows].astype(np.float64),
        outcome=np.array(_OUTCOMES)[outcome[rows]],
        sampled_from=pair.examples,
        totals={
            name: count for name, count in zip(_OUTCOMES, counts, strict=True) if count
        },
    )


def _draw(generator: np.random.Generator, rows: np.ndarray, count: int) -> np.ndarray:
    """`count` of the rows at random, in order; all where there are no more."""
    if len(rows) <= count:
        return rows
    return np.sort(generator.choice(rows, count, replace=False, shuffle=False))


def _outcomes(scanned: Scanned, labels: np.ndarray | None) -> np.ndarray:
    """`[N]` index into `_OUTCOMES`, what happens in most pairs of runs."""
    # Of two that are equally frequent, the one that comes first in `_OUTCOMES`.
    counts = np.zeros((len(_OUTCOMES), scanned.old.predicted.shape[1]), np.int32)
    for _, before, now in scanned.pairs():
        was_right = np.False_ if labels is None else before == labels
        is_right = np.False_ if labels is None else now == labels
        same = before == now
        counts[0] += was_right & ~is_right
        counts[1] += ~was_right & is_right
        counts[2] += ~(same | was_right | is_right)
        counts[3] += same
    return counts.argmax(axis=0)
