"""Classes and slices, each compared for itself."""

from collections.abc import Sequence

import numpy as np

from churn_jax.analysis.significance import holm
from churn_jax.comparison.pair import Pair
from churn_jax.comparison.result import Group
from churn_jax.comparison.scanned import Scanned
from churn_jax.comparison.statistics.grouped import group_intervals

__all__ = ["NO_VALUE", "class_groups", "slice_groups"]

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
    """Distinct values and which of them each example has."""
    texts = values.tolist()  # a dict tells equal strings faster than sorting them
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
    found = group_intervals(scanned, pair.labels, groups, len(names), level=level)
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
