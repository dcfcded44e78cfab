"""Several benchmarks in one decision on the mean."""

from collections.abc import Mapping

import numpy as np

from churn_compare.estimates import Groups, PerExample
from churn_compare.example_ids import PredictionsError
from churn_compare.gates import closest
from churn_compare.groups import NO_VALUE, coded
from churn_compare.pair import Pair
from churn_compare.result import Pooled


def benchmarks(
    column: str, values: np.ndarray, clusters: np.ndarray | None, level: float
) -> Groups:
    """All examples as one group in which each benchmark has the same weight.

    The mean over benchmarks has the interval of its variance `sum_k V_k / K^2` (over
    clusters and runs where there are) and a z-test, Student's with runs or clusters.
    """
    names, of = coded(values)
    if names[-1] == NO_VALUE:
        of = np.where(of == len(names) - 1, -1, of)
        names = names[:-1]
    if len(names) < 2:
        raise PredictionsError(
            f"{column} names {len(names)} benchmark; pooling needs several"
        )
    return Groups(np.where(of < 0, -1, 0), 1, clusters, level, strata=of)


def pool_classes(
    pair: Pair, flips: Mapping[str, PerExample], column: str, level: float
) -> Pooled:
    """The mean over benchmarks of their accuracy gains, each with the same weight."""
    if column not in pair.slices:
        hint = closest(column, pair.slices) or "it must be a column of the slices"
        raise PredictionsError(f"there is no column {column!r} to pool; {hint}")
    if pair.labels is None:
        raise PredictionsError("benchmarks are pooled by accuracy; there are no labels")
    groups = benchmarks(column, pair.slices[column], pair.clusters, level)
    better, worse = flips["positive_flip_rate"], flips["negative_flip_rate"]
    gain = groups.gain(better - worse, better, worse).of(0)
    p = groups.t_test(better - worse, 1.0, share=True)[0]
    return Pooled(column, groups.benchmarks, gain, float(p))
