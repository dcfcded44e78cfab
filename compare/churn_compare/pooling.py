"""Several benchmarks in one decision on the mean."""

import numpy as np

from churn_compare.estimates import Groups, Numbers
from churn_compare.example_ids import PredictionsError
from churn_compare.groups import NO_VALUE, coded
from churn_compare.result import Pooled


def pool(
    numbers: Numbers,
    column: str,
    values: np.ndarray,
    clusters: np.ndarray | None,
    level: float,
) -> Pooled:
    """The mean over benchmarks of their changes, each with the same weight.

    It has the interval of its variance `sum_k V_k / K^2` (over clusters and runs where
    there are) and a z-test of right answers, Student's of means, with runs or clusters.
    """
    names, of = coded(values)
    if names[-1] == NO_VALUE:
        of = np.where(of == len(names) - 1, -1, of)
        names = names[:-1]
    if len(names) < 2:
        raise PredictionsError(
            f"{column} names {len(names)} benchmark; pooling needs several"
        )
    groups = Groups(np.where(of < 0, -1, 0), 1, clusters, level, strata=of)
    gain, p = numbers.change(groups).of(0), float(numbers.p(groups)[0])
    return Pooled(column, len(names), gain, p)
