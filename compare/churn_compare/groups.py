"""Classes and slices: numbers and intervals of thousands of groups at once."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from churn_compare.estimates import Groups, Intervals, PerExample
from churn_compare.pair import Pair, Scanned
from churn_compare.result import Group
from churn_compare.significance import holm

NO_VALUE = "(none)"  # the slice of examples that have no value


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


def grouped(
    grouping: str,
    names: Sequence[str],
    groups: Groups,
    quantities: Mapping[str, Intervals],
    p: np.ndarray,
    waived: Intervals | None = None,
) -> Iterator[Group]:
    """A group for each name."""
    adjusted = holm(p)
    for g, name in enumerate(names):
        yield Group(
            grouping=grouping,
            name=name,
            examples=int(groups.size[g]),
            quantities={key: of.of(g) for key, of in quantities.items()},
            p=float(p[g]),
            adjusted_p=float(adjusted[g]),
            waived_rate=None if waived is None else waived.of(g),
        )


def class_and_slice_groups(
    pair: Pair,
    scanned: Scanned,
    flips: Mapping[str, PerExample],
    *,
    level: float,
    waived: np.ndarray | None = None,
) -> tuple[Group, ...]:
    """A group per class of the labels, then per value of each column of the slices."""
    groupings = {}
    if pair.labels is not None:
        numbers, group = np.unique(pair.labels, return_inverse=True)
        names = [pair.class_name(number) for number in numbers.tolist()]
        groupings["class"] = names, group
    groupings |= {column: coded(values) for column, values in pair.slices.items()}
    found: list[Group] = []
    for column, (names, group) in groupings.items():
        groups = Groups(group, len(names), pair.clusters, level)
        numbers, p = flip_intervals(scanned, pair.labels, flips, groups)
        rate = None
        if waived is not None:
            rate = groups.share(flips["negative_flip_rate"].without(waived))
        found += grouped(column, names, groups, numbers, p, rate)
    return tuple(found)


def flips_of(scanned: Scanned, labels: np.ndarray | None) -> dict[str, PerExample]:
    """What every example adds to churn and, with labels, to flips."""
    names = ("churn", "negative_flip_rate", "positive_flip_rate")
    names = names[: 1 if labels is None else 3]
    A, B = scanned.shape
    N = scanned.old.predicted.shape[1]
    sums = {name: np.zeros(N, np.int32) for name in names}
    of_runs = {
        name: [np.zeros((R, N), np.int16) if R > 1 else None for R in (A, B)]
        for name in names
    }
    for at, before, after in scanned.pairs():
        values = [before != after]
        if labels is not None:
            was, now = before == labels, after == labels
            values += [was & ~now, now & ~was]
        for name, value in zip(names, values, strict=True):
            sums[name] += value
            for run, runs in zip(at, of_runs[name], strict=True):
                if runs is not None:
                    runs[run] += value
    return {
        name: PerExample(
            sums[name] / (A * B),
            tuple(
                (runs, A * B // len(runs)) for runs in of_runs[name] if runs is not None
            ),
        )
        for name in names
    }


def flip_intervals(
    scanned: Scanned,
    labels: np.ndarray | None,
    flips: Mapping[str, PerExample],
    groups: Groups,
) -> tuple[dict[str, Intervals], np.ndarray]:
    """Numbers of every group, with the intervals of `intervals`, and their p.

    p is that of the exact McNemar test, or of the sign-flip test with clusters, and
    with several runs the median over pairs of runs; NaN without labels or examples.
    """
    empty = np.full(groups.count, np.nan)
    order = ("accuracy_old", "accuracy_new", "accuracy_gain", *flips)
    found = {name: groups.share(of) for name, of in flips.items()}
    if labels is None:
        return found, empty
    lost, gained = flips["negative_flip_rate"], flips["positive_flip_rate"]
    found["accuracy_gain"] = groups.gain(gained - lost, gained, lost)
    for version, side in (("old", scanned.old), ("new", scanned.new)):
        right = np.mean([groups.value(run == labels) for run in side.predicted], axis=0)
        found[f"accuracy_{version}"] = Intervals(right, empty, empty)
    p = [
        groups.sign_flip((after == labels).astype(np.int8) - (before == labels))
        for _, before, after in scanned.pairs()
    ]
    return {name: found[name] for name in order}, np.median(p, axis=0)
