"""Classes and slices: numbers and intervals of thousands of groups at once."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from churn_compare.intervals import cluster_p
from churn_compare.pair import Pair, Scanned
from churn_compare.result import Group, Interval
from churn_compare.significance import holm, mcnemar_exact
from churn_compare.sums import outcome_sums
from churn_compare.uncertainty import (
    Uncertainty,
    difference_ends,
    run_part,
    share_ends,
    uncertainty,
)

NO_VALUE = "(none)"  # the slice of examples that have no value


def class_groups(pair: Pair, scanned: Scanned, *, level: float) -> tuple[Group, ...]:
    """One group per class of the labels."""
    if pair.labels is None:
        return ()
    numbers, groups = np.unique(pair.labels, return_inverse=True)
    names = [pair.class_name(number) for number in numbers.tolist()]
    return _grouped(pair, scanned, "class", names, groups, level)


def slice_groups(pair: Pair, scanned: Scanned, *, level: float) -> tuple[Group, ...]:
    """One group per value of each column of `pair.slices`."""
    found: list[Group] = []
    for column, values in pair.slices.items():
        names, groups = coded(values)
        found += _grouped(pair, scanned, column, names, groups, level)
    return tuple(found)


def coded(values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The distinct values, and which of them each example has."""
    texts = values.tolist()  # a dict finds equal strings faster than sorting does
    names = [str(name) for name in dict.fromkeys(texts)]
    names = sorted(set(names) - {"", NO_VALUE})
    if len(names) < len(set(texts)):
        names.append(NO_VALUE)
    number = {name: i for i, name in enumerate(names)}
    number[""] = number.get(NO_VALUE, -1)
    return names, np.fromiter(map(number.__getitem__, texts), np.int64, len(texts))


def _grouped(
    pair: Pair,
    scanned: Scanned,
    grouping: str,
    names: Sequence[str],
    groups: np.ndarray,
    level: float,
) -> tuple[Group, ...]:
    """A group for each name; `groups` says which one each example is in."""
    found = group_intervals(
        scanned,
        pair.labels,
        groups,
        len(names),
        clusters=pair.clusters,
        level=level,
    )
    adjusted = holm(found.p)
    return tuple(
        Group(
            grouping=grouping,
            name=name,
            examples=int(found.examples[g]),
            accuracy_old=float(found.accuracy_old[g]),
            accuracy_new=float(found.accuracy_new[g]),
            accuracy_gain=found.accuracy_gain[g],
            churn=found.churn[g],
            negative_flip_rate=found.negative_flip_rate[g],
            positive_flip_rate=found.positive_flip_rate[g],
            p=float(found.p[g]),
            adjusted_p=float(adjusted[g]),
        )
        for g, name in enumerate(names)
    )


_BLOCK = 2**20  # pairs of runs times examples at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Intervals:
    """A number of every group with its interval."""

    value: np.ndarray  # `[G]`; NaN where it is undefined
    low: np.ndarray  # `[G]`
    high: np.ndarray  # `[G]`

    def __getitem__(self, group: int) -> Interval:
        """The number of one group."""
        return Interval(
            float(self.value[group]), float(self.low[group]), float(self.high[group])
        )


@dataclasses.dataclass(frozen=True, eq=False)
class GroupEstimates:
    """Numbers of `G` groups of examples."""

    examples: np.ndarray  # `[G]` int64
    accuracy_old: np.ndarray  # `[G]`, mean over runs; NaN without labels or examples
    accuracy_new: np.ndarray  # `[G]`
    accuracy_gain: Intervals  # new minus old, paired
    churn: Intervals  # share of changed predictions, which needs no labels
    negative_flip_rate: Intervals  # right before, wrong now
    positive_flip_rate: Intervals  # wrong before, right now
    # `[G]`, exact McNemar test, or sign-flip test with clusters; with several runs the
    # median over pairs of runs; NaN without labels or examples
    p: np.ndarray


def group_intervals(
    scanned: Scanned,
    labels: np.ndarray | None,
    groups: np.ndarray,
    count: int,
    *,
    clusters: np.ndarray | None = None,
    level: float = 0.95,
) -> GroupEstimates:
    """Numbers of every group, with the same intervals as `intervals`."""
    groups = np.asarray(groups)
    flips = outcome_sums(scanned, labels, groups, count)
    size, lost, gained = flips.examples, flips.negative, flips.positive
    kinds = {"changed": flips.changed}
    if labels is not None:
        kinds |= {"negative": lost, "positive": gained, "gain": gained - lost}
    units = size
    if clusters is None:
        squares = _squares(scanned, labels, groups, count, kinds)
        known = {kind: _known(kinds[kind], squares[kind], size) for kind in kinds}
    else:
        known, units = _clustered(scanned, labels, groups, count, clusters, size, kinds)

    def share(kind: str) -> Intervals:
        value = _over(kinds[kind].mean(axis=(1, 2)), size)
        most = value * (1 - value) / np.maximum(units, 1)
        variance = known[kind].widened(most)
        ends = share_ends(value, variance, known[kind].quantile(level), units)
        return Intervals(value, *ends)

    empty = np.full(count, np.nan)
    if labels is None:
        nothing = Intervals(empty, empty, empty)
        churn = share("changed")
        return GroupEstimates(
            size, empty, empty, nothing, churn, nothing, nothing, empty
        )
    right_old = (flips.both + lost)[:, :, 0].mean(axis=1)
    right_new = flips.both + gained
    right_new = (right_new[:, :, 0] if scanned.paired else right_new[:, 0]).mean(axis=1)
    negative, positive = share("negative"), share("positive")
    gain = positive.value - negative.value
    most = positive.value + negative.value - np.square(gain)
    ends = difference_ends(
        positive.value,
        negative.value,
        known["gain"].widened(most / np.maximum(units, 1)),
        known["gain"].quantile(level),
        units,
    )
    p = mcnemar_exact(lost, gained)
    if clusters is not None:
        p = cluster_p(scanned, labels, clusters, groups, count)
    return GroupEstimates(
        size,
        _over(right_old, size),
        _over(right_new, size),
        Intervals(gain, *ends),
        share("changed"),
        negative,
        positive,
        np.where(size > 0, np.median(p, (1, 2)), np.nan),
    )


def _clustered(
    scanned, labels, groups, count, clusters, size, kinds
) -> tuple[dict[str, Uncertainty], np.ndarray]:
    """Uncertainty of each kind, and clusters in each group; as `Statistic` has it."""
    inside = groups >= 0
    code = groups.astype(np.int64) * (int(clusters.max(initial=0)) + 1) + clusters
    cells, first, of = np.unique(code[inside], return_index=True, return_inverse=True)
    group = groups[inside][first]  # of each cell, a cluster within a group
    found = np.bincount(group, minlength=count)
    factor = found / np.maximum(found - 1, 1)
    most = np.maximum(size, 1)
    width = np.bincount(of, minlength=len(cells))
    A, B = scanned.shape
    # Sums over each cell of the mean over pairs and of the means of every run.
    means = {kind: [np.zeros((len(cells), R)) for R in (1, A, B)] for kind in kinds}
    for (a, b), before, after in scanned.pairs():
        values = {"changed": before != after}
        if labels is not None:
            was, now = before == labels, after == labels
            values |= {"negative": was & ~now, "positive": now & ~was}
            values["gain"] = now.astype(np.int8) - was
        for kind, value in values.items():
            sums = np.bincount(of, value[inside], len(cells))
            whole, of_old, of_new = means[kind]
            whole[:, 0] += sums / (A * B)
            of_old[:, a] += sums / B
            of_new[:, b] += sums / A
    known = {}
    for kind, (whole, *of_sides) in means.items():
        of_pairs = kinds[kind] / most[:, None, None]
        mean = of_pairs.mean(axis=(1, 2))
        moved = whole - (mean[group] * width)[:, None]
        examples = np.bincount(group, np.square(moved[:, 0]), count)
        parts = []
        for axis, sums in zip((2, 1), of_sides, strict=True):
            of_runs = of_pairs.mean(axis=axis)
            R = of_runs.shape[1]
            apart = sums - of_runs[group] * width[:, None] - moved
            noise = np.bincount(group, np.square(apart).sum(axis=1), count)
            noise *= factor / np.square(most) / (R * max(R - 1, 1))
            parts.append(run_part(of_runs, noise))
        fourth = np.bincount(group, moved[:, 0] ** 4, count)
        bearing = np.where(
            fourth > 0, np.square(examples) / np.maximum(fourth, 1e-300), np.inf
        )
        examples *= factor / np.square(most)
        known[kind] = uncertainty(
            examples, *parts, clusters=np.maximum(found, 1), bearing=bearing
        )
    return known, found


def _squares(scanned, labels, groups, count, kinds) -> dict[str, tuple]:
    """Sums of squares over the examples of each group, per kind."""
    # Of the mean over pairs, of each old run's deviation from it and of each new run's,
    # `[G]` each; the runs of a side are added up.
    old, new = scanned.old.predicted, scanned.new.predicted
    if len(old) == len(new) == 1:  # what is 0, 1 or -1 is known from its sums
        zero = np.zeros(count)
        return {
            kind: (
                (kinds["positive"] + kinds["negative"])[:, 0, 0]
                if kind == "gain"
                else counts[:, 0, 0],
                zero,
                zero,
            )
            for kind, counts in kinds.items()
        }
    out = {kind: tuple(np.zeros(count) for _ in range(3)) for kind in kinds}
    inside = np.flatnonzero(groups >= 0)
    block = max(1, _BLOCK // (len(old) * len(new)))
    for start in range(0, len(inside), block):
        chosen = inside[start : start + block]
        of = groups[chosen]
        before, after = old[:, chosen], new[:, chosen]
        if scanned.paired:
            truth = None if labels is None else labels[chosen]
            parts = _paired_squares(before, after, truth)
        else:
            parts = {"changed": _change_squares(before, after)}
            if labels is not None:
                truth = labels[chosen]
                parts |= _flip_squares(before == truth, after == truth)
        for kind, squares in parts.items():
            for total, square in zip(out[kind], squares, strict=True):
                total += np.bincount(of, square, count)
    return out


def _paired_squares(before, after, truth) -> dict[str, tuple]:
    """The three squares of `_squares`, `[n]` each, where run r goes with run r."""
    of_pairs = {"changed": before != after}
    if truth is not None:
        was, now = before == truth, after == truth
        of_pairs |= {"negative": was & ~now, "positive": now & ~was}
        of_pairs["gain"] = now.astype(np.int8) - was
    out = {}
    for kind, values in of_pairs.items():
        mean = values.mean(axis=0)
        between = np.square(values - mean).sum(axis=0)
        out[kind] = (np.square(mean), between, np.zeros(len(mean)))
    return out


def _change_squares(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, ...]:
    """The three squares of `_squares`, `[n]` each, of changed predictions."""
    by_old = np.stack([(run != after).mean(axis=0) for run in before])
    by_new = np.stack([(run != before).mean(axis=0) for run in after])
    mean = by_old.mean(axis=0)
    return (
        np.square(mean),
        np.square(by_old - mean).sum(axis=0),
        np.square(by_new - mean).sum(axis=0),
    )


def _flip_squares(was: np.ndarray, now: np.ndarray) -> dict[str, tuple]:
    """The three squares of `_squares`, `[n]` each, of flips and of the gain."""
    # Whether an old run is right does not depend on the new run. With the shares a and
    # b of runs that are right, the mean over pairs of negative flips is a (1 - b) and
    # the sum of squares over old runs (1 - b)^2 R_old a (1 - a).
    a, b = was.mean(axis=0), now.mean(axis=0)
    of_old, of_new = len(was) * a * (1 - a), len(now) * b * (1 - b)
    return {
        "negative": (
            np.square(a * (1 - b)),
            np.square(1 - b) * of_old,
            np.square(a) * of_new,
        ),
        "positive": (
            np.square((1 - a) * b),
            np.square(b) * of_old,
            np.square(1 - a) * of_new,
        ),
        "gain": (np.square(b - a), of_old, of_new),
    }


def _known(counts: np.ndarray, squares: tuple, size: np.ndarray) -> Uncertainty:
    """Uncertainty of the means over pairs of runs, from `[G, R_old, R_new]` sums."""
    size = np.maximum(size, 1)
    of_pairs = counts / size[:, None, None]
    mean = of_pairs.mean(axis=(1, 2))
    examples = np.maximum(squares[0] / size - np.square(mean), 0.0) / size
    parts = []
    for side in (1, 2):
        of_runs = of_pairs.mean(axis=3 - side)
        R = of_runs.shape[1]
        between = np.sum(np.square(of_runs - mean[:, None]), axis=1)
        noise = np.maximum(squares[side] / size - between, 0.0) / size
        parts.append(run_part(of_runs, noise / (R * max(R - 1, 1))))
    return uncertainty(examples, *parts)


def _over(total: np.ndarray, size: np.ndarray) -> np.ndarray:
    """`total / size`, NaN for empty groups."""
    return np.where(size > 0, total / np.maximum(size, 1), np.nan)
