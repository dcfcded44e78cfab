"""Several benchmarks in one decision on accuracy."""

import math

import numpy as np
from scipy import special

from churn_compare.example_ids import PredictionsError
from churn_compare.gates import closest
from churn_compare.groups import NO_VALUE, coded
from churn_compare.pair import Pair, Scanned
from churn_compare.result import Interval, Pooled
from churn_compare.sums import partition
from churn_compare.uncertainty import Statistic, Uncertainty, difference_ends


def pool(
    pair: Pair, scanned: Scanned, column: str | None, *, level: float, seed: int
) -> Pooled | None:
    """The mean over benchmarks of their accuracy gains, each with the same weight.

    It has Tango's interval for its variance `sum_k V_k / K^2` (over clusters and runs
    where there are) and a z-test, Student's with runs or clusters.

    Args:
        pair: with labels and the column in its slices.
        scanned: the pair after the pass.
        column: with the name of each example's benchmark; None for no pooling.
        level: confidence level of the interval.
        seed: seed of assigning more than 4096 examples or clusters to groups.

    Raises:
        PredictionsError: there is no such column, no label or only one benchmark.
    """
    if column is None:
        return None
    if column not in pair.slices:
        hint = closest(column, pair.slices) or "it must be a column of the slices"
        raise PredictionsError(f"there is no column {column!r} to pool; {hint}")
    labels = pair.labels
    if labels is None:
        raise PredictionsError("benchmarks are pooled by accuracy; there are no labels")
    names, of = coded(pair.slices[column])
    if names[-1] == NO_VALUE:
        of = np.where(of == len(names) - 1, -1, of)
        names = names[:-1]
    K = len(names)
    if K < 2:
        raise PredictionsError(f"{column} names {K} benchmark; pooling needs several")
    inside = of >= 0
    size = np.bincount(of[inside], minlength=K)
    weight = np.where(inside, 1 / (K * size[of]), 0.0)
    parts = partition(len(labels), int(np.prod(scanned.shape)), seed, pair.clusters)
    matrix = np.zeros(scanned.shape)
    influence = np.zeros((parts.groups, *scanned.shape))
    rates = np.zeros(2)  # of positive and negative flips, mean over benchmarks
    for at, old, new in scanned.pairs():
        net = (new == labels).astype(np.int8) - (old == labels)
        gains = np.bincount(of[inside], net[inside], K) / size
        matrix[at] = gains.mean()
        moved = weight * (net - gains[of])
        influence[(slice(None), *at)] = np.bincount(parts.group, moved, parts.groups)
        rates += [weight[net > 0].sum(), weight[net < 0].sum()]
    known = Statistic(matrix, influence, 0.0).uncertainty(parts.clusters)
    gained, lost = rates / np.prod(scanned.shape)
    units = parts.units(units_of(size))
    return Pooled(column, K, *mean_of_shares(gained, lost, known, units, level))


def units_of(size: np.ndarray) -> float:
    """Examples of one benchmark whose share is known as well as the mean of shares."""
    return float(len(size) ** 2 / np.sum(1 / size))


def mean_of_shares(
    gained: float, lost: float, known: Uncertainty, units: float, level: float
) -> tuple[Interval, float]:
    """The mean over benchmarks of their gains in accuracy, and its p."""
    value = gained - lost
    low, high = difference_ends(
        np.array(gained),
        np.array(lost),
        known.widened((gained + lost - value**2) / units),
        known.quantile(level),
        np.array(units),
    )
    p = 2.0 ** (1 - units) if value else 1.0  # all change alike: signs are flipped
    if known.total > 0:
        t = abs(value) / math.sqrt(known.total)
        p = min(1.0, 2 * special.stdtr(known.freedom, -t))
    return Interval(float(value), float(low), float(high)), float(p)
