"""Several benchmarks in one decision on accuracy."""

import math

import numpy as np

from churn_jax.comparison.gates import closest
from churn_jax.comparison.groups import NO_VALUE, coded
from churn_jax.comparison.intervals import cluster_p
from churn_jax.comparison.pair import Pair, Scanned
from churn_jax.comparison.result import Interval, Pooled
from churn_jax.comparison.sums import outcome_sums, partition
from churn_jax.comparison.uncertainty import Statistic, Uncertainty, difference_ends
from churn_jax.distributions import coin_cdf, student_cdf
from churn_jax.example_ids import PredictionsError


def pool(
    pair: Pair, scanned: Scanned, column: str | None, *, level: float, seed: int
) -> Pooled | None:
    """Does accuracy change over all benchmarks of a column? Three answers.

    * `items`: the test of equal accuracy on all examples, in which a benchmark counts
      by its examples;
    * `mean_gain`: the mean over benchmarks of their accuracy gains, each with the same
      weight, with Tango's interval for its variance `sum_k V_k / K^2` (over clusters
      and runs where there are) and a z-test, Student's with runs or clusters;
    * `fisher`: `-2 sum_k log p_k` of the one-sided exact McNemar tests of "the new
      version is no worse", chi-squared with 2 K degrees of freedom: some benchmark gets
      worse, though others may get better.

    Args:
        pair: with labels and the column in its slices.
        scanned: the pair after the pass.
        column: with the name of each example's benchmark; None for no pooling.
        level: of the interval.
        seed: of assigning more than 4096 examples or clusters to groups.

    Raises:
        PredictionsError: there is no such column, no label or only one benchmark.

    Notes:
        The questions are those of Kuebler et al., When LLMs get significantly worse
        (https://arxiv.org/abs/2602.10144), who test items with McNemar's test and
        aggregate benchmarks in three ways. The formulas are standard ones and not
        taken from there: the text of the paper was not available.

        With several runs the p of each benchmark is the median over pairs of runs, and
        the benchmarks share their runs, so that Fisher's p is approximate. With
        clusters the test of each benchmark is `sign_flip_exact`.

    References:
        [fisher] Section 21.1 -- Fisher, Statistical Methods for Research Workers, 1932.
        https://doi.org/10.1007/978-1-4612-4380-9_6
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
    mean_gain, mean_p = mean_of_shares(gained, lost, known, units, level)
    items, each = _tests(scanned, labels, pair.clusters, of, K)
    return Pooled(
        column=column,
        benchmarks=K,
        items_p=items,
        mean_gain=mean_gain,
        mean_p=mean_p,
        fisher_p=fisher(each),
    )


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
        p = min(1.0, 2 * student_cdf(known.freedom, -t))
    return Interval(float(value), float(low), float(high)), float(p)


def _tests(
    scanned: Scanned, labels: np.ndarray, clusters: np.ndarray | None, of, K: int
) -> tuple[float, np.ndarray]:
    """P of all items, and of each benchmark's "no worse", one-sided."""
    inside = np.where(of >= 0, 0, -1)
    whole = outcome_sums(scanned, labels, inside, 1)
    flips = outcome_sums(scanned, labels, of, K)
    if clusters is None:
        lost, gained = whole.negative, whole.positive
        p = np.minimum(1, 2 * coin_cdf(np.minimum(lost, gained), lost + gained))
        one_sided = coin_cdf(flips.positive, flips.positive + flips.negative)
        return float(np.median(p)), np.median(one_sided, axis=(1, 2))
    p = cluster_p(scanned, labels, clusters, inside, 1)
    each = cluster_p(scanned, labels, clusters, of, K)
    one_sided = np.where(flips.negative > flips.positive, each / 2, 1.0)
    return float(np.median(p)), np.median(one_sided, axis=(1, 2))


def fisher(each: np.ndarray) -> float:
    """The p of "none of K hypotheses is wrong" by Fisher's method, from theirs."""
    # P(X > -2 sum log p) of a chi-squared X with 2 K degrees of freedom
    half, K = float(-np.sum(np.log(np.maximum(each, 1e-300)))), len(each)
    term = total = math.exp(-half)
    for i in range(1, K):
        term *= half / i
        total += term
    return min(total, 1.0)
