"""Classes and slices: numbers and intervals of thousands of groups at once."""

from collections.abc import Mapping, Sequence

import numpy as np

from churn_compare.estimates import Groups, Numbers, PerExample
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
    numbers: Numbers,
    groupings: Mapping[str, tuple[Sequence[str], np.ndarray]],
    clusters: np.ndarray | None,
    level: float,
    without: PerExample | None = None,
) -> tuple[Group, ...]:
    """A group for each name of each grouping, of which the examples have codes `[N]`.

    `without` is what gets worse without what is waived.
    """
    found: list[Group] = []
    for column, (names, group) in groupings.items():
        groups = Groups(group, len(names), clusters, level)
        quantities, p = numbers.intervals(groups), numbers.p(groups)
        waived = None if without is None else groups.share(without)
        adjusted = holm(p)
        found += [
            Group(
                grouping=column,
                name=name,
                examples=int(groups.size[g]),
                quantities={key: of.of(g) for key, of in quantities.items()},
                p=float(p[g]),
                adjusted_p=float(adjusted[g]),
                waived_rate=None if waived is None else waived.of(g),
            )
            for g, name in enumerate(names)
        ]
    return tuple(found)
