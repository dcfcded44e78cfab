"""What runs of one version change, and what an update changes beyond that."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from churn_compare.estimates import PerExample, Weighted

_ROUNDING = 1e-9

Differ = Callable[[int, int], np.ndarray]


class BetweenRuns(NamedTuple):
    """How often runs differ."""

    within: dict[str, PerExample]  # two runs of one version, by side
    expected: PerExample  # the mean of the sides that have several runs
    beyond: PerExample  # an old and a new run, less `expected`


def between_runs(differ: Differ, A: int, R: int, across: PerExample) -> BetweenRuns:
    """How often runs of one version differ, and those of both beyond it.

    Args:
        differ: where two of the R runs do, `[N]`; the first A are of the old version.
        A: runs of the old version.
        R: of both.
        across: how often an old and a new run differ.
    """
    # A run's effect on a mean over pairs within its side is twice that of its row. The
    # row leaves the run out, so that differences between rows are too small by (S - 2)
    # / (S - 1), which is mended for churn within a side. Two runs have one row: the
    # effect on the churn against the other side takes its place. In the excess over
    # both sides the effects cancel, and it is left as it is.
    sides = {"old": range(A), "new": range(A, R)}
    inside: dict[str, np.ndarray] = {}
    for side, of in sides.items():
        if len(of) > 1:
            counts = np.zeros((len(of), len(across.mean)), np.int16)
            for r, s in itertools.combinations(range(len(of)), 2):
                apart = differ(of[r], of[s])
                counts[r] += apart
                counts[s] += apart
            inside[side] = counts
    of_across = dict(zip(inside, across.runs))
    twice: dict[str, tuple[Weighted, ...]] = {}  # effects on churn within the side
    for side, counts in inside.items():
        rows: tuple[Weighted, ...] = (Weighted(0.0, counts),)
        if len(counts) > 2:
            rows = (Weighted(2 / (len(counts) - 2), counts),)
        elif side in of_across:
            rows = tuple(Weighted(2 * w, sums) for w, sums in of_across[side])
        twice[side] = rows
    within = {}
    for side, counts in inside.items():
        pairs = len(counts) * (len(counts) - 1)
        mean = counts.sum(axis=0, dtype=np.int32) / pairs
        others = {name: (Weighted(0.0, of),) for name, of in inside.items()}
        runs = tuple((others | {side: twice[side]}).values()) if across.runs else ()
        within[side] = PerExample(mean, runs)
    first, *second = within.values()
    expected = (first + second[0]) * 0.5 if second else first
    runs = []
    for side, counts in inside.items() if across.runs else ():
        own = tuple(Weighted(-w, sums) for w, sums in twice[side])
        if second:
            own = (Weighted(-1 / (len(counts) - 1), counts),)
        runs.append((*of_across.get(side, ()), *own))
    beyond = PerExample(across.mean - expected.mean, tuple(runs))
    return BetweenRuns(within, expected, beyond)


def permuted_variance(
    differ: Callable[[int, int], np.ndarray],
    R: int,
    A: int,
    N: int,
    clusters: np.ndarray | None,
) -> np.ndarray:
    """Variance of each example's or cluster's excess if its runs are permuted.

    `differ` says where two runs do, `[N]`.
    """
    B = R - A
    units = N if clusters is None else int(clusters.max()) + 1
    kind = np.int32 if clusters is None else np.int64
    disagreeing = np.zeros((R, units), kind)  # predictions, with each run
    of_pairs = np.zeros(units, np.int64)  # squares of each pair's
    for r, s in itertools.combinations(range(R), 2):
        apart = differ(r, s)
        if clusters is not None:
            apart = np.bincount(clusters[apart], minlength=units)
        disagreeing[r] += apart
        disagreeing[s] += apart
        if clusters is not None:
            of_pairs += np.square(apart, dtype=np.int64)
    if min(A, B) == 1:
        return disagreeing.var(axis=0) * (R / ((R - 1) * (R - 2))) ** 2
    # What the mean and an effect of each run leave of the pairs' squares.
    total = disagreeing.sum(axis=0)
    squares = np.square(disagreeing).sum(axis=0, dtype=np.int64)
    if clusters is None:  # of each pair 0 or 1, which is its own square
        of_pairs = total / 2
    left = of_pairs - (squares - np.square(total) / (2 * (R - 1))) / (R - 2)
    left[left < _ROUNDING] = 0.0
    return left / (R * (R - 3) / 2) * spread(A, B)


def spread(A: int, B: int) -> float:
    """Variance of the excess if the churn of each pair has variance 1."""
    return 1 / (A * B) + 1 / (2 * A * (A - 1)) + 1 / (2 * B * (B - 1))
