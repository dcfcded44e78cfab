"""Means of per-example numbers in groups of examples, with intervals and tests."""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy import special

from churn_compare.result import Interval
from churn_compare.significance import mcnemar_exact, sign_flip_exact
from churn_compare.uncertainty import (
    Uncertainty,
    difference_ends,
    run_part,
    share_ends,
    uncertainty,
)

_ROUNDING, _NEAR = 1e-24, 1e-12


class Intervals(NamedTuple):
    """A number with its interval for each group."""

    value: np.ndarray  # `[G]`; NaN where it is undefined
    low: np.ndarray  # `[G]`
    high: np.ndarray  # `[G]`

    def of(self, group: int) -> Interval:
        """The number of one group."""
        return Interval(*(float(ends[group]) for ends in self))


class Weighted(NamedTuple):
    """Sums `[R, N]` for each run, with their weight."""

    weight: float
    sums: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class PerExample:
    """Numbers of each example whose mean over examples is estimated."""

    mean: np.ndarray  # `[N]`, mean over pairs of runs
    # For each side with several runs that all examples share, the sums of each run, in
    # parts that add up; empty if the runs of different examples are independent.
    runs: tuple[tuple[Weighted, ...], ...] = ()

    def __add__(self, other: "PerExample") -> "PerExample":
        """The sum of two numbers from the same runs."""
        runs = zip(self.runs, other.runs, strict=True)
        return PerExample(self.mean + other.mean, tuple(a + b for a, b in runs))

    def __mul__(self, factor: float) -> "PerExample":
        """A multiple."""
        runs = tuple(
            tuple(Weighted(factor * weight, sums) for weight, sums in side)
            for side in self.runs
        )
        mean = -self.mean if factor == -1 else factor * self.mean  # keeps integers
        return PerExample(mean, runs)

    def __sub__(self, other: "PerExample") -> "PerExample":
        """The difference of two numbers from the same runs."""
        return self + other * -1

    def without(self, rows: np.ndarray) -> "PerExample":
        """The same with 0 for some examples."""
        keep = np.ones(len(self.mean), bool)
        keep[rows] = False
        runs = tuple(
            tuple(Weighted(weight, sums * keep) for weight, sums in side)
            for side in self.runs
        )
        return PerExample(self.mean * keep, runs)


class Groups:
    """Groups of examples: means, their intervals and tests for each group.

    The variance of a mean is

        V = sum_u moved_u^2,  times U / (U - 1) for clusters and means

    where `moved_u` is the deviation of the mean that is due to unit u: an example, or
    a cluster within the group. Where all examples share the runs, the variance over
    runs is added (`uncertainty`). Shares have Wilson's interval with as many examples
    as have this variance, gains in right answers Tango's, means `t sqrt(V)` to either
    side, with U - 1 degrees of freedom, or fewer where few clusters contribute most.
    Samples of a language model are independent on each example, so that V holds what
    they add. Where all examples change alike, or none does, V is that of no event in so
    many, times the span of the numbers, and the test of no change flips signs.

    Notes:
        In simulations (`benchmarks/compare_coverage.py`, 40 to 1,000 examples, 1 or 5
        runs) 95 % intervals hold the truth 93 to 97 times of 100, more often where
        most comparisons have no flip and for the excess of few or stable runs. Less
        often: 85 to 92 for shares of which less than one event is expected, 90 to 94
        with 20 clusters of which one has more than a quarter of the examples.

    References:
        [cluster] pp. 13-22 -- Liang and Zeger, Longitudinal data analysis using
        generalized linear models, Biometrika 1986.
        https://doi.org/10.1093/biomet/73.1.13
    """

    def __init__(
        self,
        group: np.ndarray,  # `[N]` below `count`; -1 is in no group
        count: int,
        clusters: np.ndarray | None = None,  # `[N]` codes
        level: float = 0.95,
        *,
        strata: np.ndarray | None = None,  # `[N]` in one group, of equal weight
    ):
        inside = group >= 0
        self.rows = slice(None) if inside.all() else np.flatnonzero(inside)
        self.count, self.level, self.clusters = count, level, clusters
        self.group = group[self.rows]
        self.size = np.bincount(self.group, minlength=count)
        self.pooled = strata is not None
        self.strata = self.group if strata is None else strata[self.rows]
        sizes = np.bincount(self.strata, minlength=1 if self.pooled else count)
        self._sizes = np.where(sizes > 0, sizes, np.nan)
        self.cell, owner = None, self.group
        if clusters is not None and count == 1 and inside.all():
            self.cell, owner = clusters, np.zeros(int(clusters.max()) + 1, np.int64)
        elif clusters is not None:
            code = self.group.astype(np.int64) * (int(clusters.max(initial=0)) + 1)
            _, first, self.cell = np.unique(
                code + clusters[self.rows], return_index=True, return_inverse=True
            )
            owner = self.group[first]
        self.owner = owner  # group of every unit
        self.found = np.bincount(owner, minlength=count)  # number of units
        # Number of independent draws, for the interval of a share without any event.
        self.units = self.found.astype(np.float64)
        if self.pooled:
            share = self.found / np.maximum(self.size, 1)
            self.units = share * len(sizes) ** 2 / np.sum(1 / self._sizes)

    def added(self, of_units: np.ndarray) -> np.ndarray:
        """Sums `[G]` over the units of each group."""
        return np.bincount(self.owner, of_units, self.count)

    def value(self, numbers: np.ndarray) -> np.ndarray:
        """Means `[G]` of `[N]` numbers."""
        sums = np.bincount(self.strata, numbers[self.rows], len(self._sizes))
        means = sums / self._sizes
        return means.mean(keepdims=True) if self.pooled else means

    def _moved(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means `[G]`, and the deviation of its group's mean due to each unit."""
        numbers = numbers[self.rows]
        means = np.bincount(self.strata, numbers, len(self._sizes)) / self._sizes
        moved = numbers - means[self.strata]
        if self.pooled:
            moved *= (self.size / self._sizes / len(means))[self.strata]
            means = means.mean(keepdims=True)
        if self.cell is not None:
            moved = np.bincount(self.cell, moved, len(self.owner))
        return means, moved / self.size[self.owner]

    def known(self, of: PerExample, *, mean: bool = False) -> Uncertainty:
        """Uncertainty of the means; with `mean`, V is estimated as in a t-test."""
        plain = self.cell is None and not self.pooled and not of.runs
        if plain and of.mean.dtype == np.int8:  # -1, 0, 1: squares follow from sums
            variance = self.value(np.abs(of.mean)) - np.square(self.value(of.mean))
            return uncertainty(variance / self._sizes)
        _, moved = self._moved(of.mean)
        clustered = self.cell is not None
        factor = self.found / np.maximum(self.found - 1, 1)
        factor = factor if clustered or mean else 1.0
        parts = []
        for side in of.runs:
            R = len(side[0].sums)
            means, noise = np.empty((self.count, R)), np.zeros(self.count)
            every = [weight * sums.mean(axis=0) for weight, sums in side]
            _, centre = self._moved(np.sum(every, axis=0))
            for r in range(R):
                run = np.sum([weight * sums[r] for weight, sums in side], axis=0)
                means[:, r], of_run = self._moved(run)
                noise += self.added(np.square(of_run - centre))
            parts.append(run_part(means, factor * noise / (R * (R - 1))))
        squares = np.square(moved)
        examples, fourth = self.added(squares), self.added(np.square(squares))
        if not mean:  # so small a variance of a share is rounding
            examples = np.where(examples > _ROUNDING, examples, 0.0)
        bearing = np.full(self.count, np.inf)
        if clustered or not parts:  # the runs of an example are a cluster
            some = (examples > 0) & (fourth > 0)
            bearing[some] = np.square(examples[some]) / fourth[some]
        clusters = np.maximum(self.found, 1) if clustered else 0
        known = uncertainty(
            factor * examples, *parts, clusters=clusters, bearing=bearing
        )
        if clustered or parts or not mean:
            return known
        freedom = self.size - 1.0
        return dataclasses.replace(known, freedom=freedom, of_clusters=freedom)

    def share(self, of: PerExample) -> Intervals:
        """Shares of the examples, with intervals."""
        value = self.value(of.mean)
        whole = np.clip(np.round(value), 0.0, 1.0)  # exactly 0 and 1
        value = np.where(np.abs(value - whole) < _NEAR, whole, value)
        known = self.known(of)
        most = value * (1 - value) / np.maximum(self.units, 1)
        quantile = known.quantile(self.level)
        return Intervals(
            value, *share_ends(value, known.widened(most), quantile, self.units)
        )

    def gain(
        self,
        gain: PerExample,
        better: PerExample,
        worse: PerExample,
        level: float | None = None,
    ) -> Intervals:
        """Gains in right answers, from the shares that get better and worse."""
        known, value = self.known(gain), self.value(gain.mean)
        gained, lost = self.value(better.mean), self.value(worse.mean)
        most = (gained + lost - np.square(value)) / np.maximum(self.units, 1)
        return Intervals(
            value,
            *difference_ends(
                gained,
                lost,
                known.widened(most),
                known.quantile(level or self.level),
                self.units,
            ),
        )

    def mean(
        self,
        of: PerExample,
        span: np.ndarray | float,
        least: float = -np.inf,
        most: np.ndarray | float = np.inf,
        level: float | None = None,
    ) -> Intervals:
        """Means of numbers that differ by at most `span`, with intervals."""
        known, value = self.known(of, mean=True), self.value(of.mean)
        quantile = known.quantile(level or self.level)
        half = quantile * np.sqrt(known.total)
        half = np.where(self.some(known, span), half, self.none(quantile) * span)
        return Intervals(
            value, np.maximum(value - half, least), np.minimum(value + half, most)
        )

    def excess(
        self, of: PerExample, equal: np.ndarray | None, least: float = 0.0
    ) -> Intervals:
        """Changes beyond those between runs of one version, with intervals.

        `equal` is each unit's part of the variance for equal versions (see
        `permuted_variance`), the least variance assumed; None if runs are paired.
        `least` is the least variance of the excess.
        """
        known, value = self.known(of, mean=True), self.value(of.mean)
        of_examples = known.example_quantile(self.level)
        quantile = known.quantile(self.level) if known.alone else of_examples
        # An example on which no run differs might be one on which all pairs across do.
        none = self.none(of_examples)
        variance = np.maximum(np.maximum(known.total, known.examples), least)
        some, bearing = variance > 0, np.full(self.count, np.inf)
        if equal is not None:
            sums, squares = self.added(equal), self.added(np.square(equal))
            some = sums > 0
            bearing = np.square(sums) / np.where(some, squares, 1.0)
            size = np.maximum(self.size, 1)
            variance = np.maximum(variance, sums / np.square(size))
        known = dataclasses.replace(known, total=variance, bearing=bearing)
        wide = quantile * np.sqrt(known.widened(np.square(none / quantile)))
        half = np.where(some, wide, none)
        return Intervals(value, value - half, value + half)

    def covariance(self, a: PerExample, b: PerExample) -> np.ndarray:
        """Covariance of two means over the examples."""
        (_, of_a), (_, of_b) = self._moved(a.mean), self._moved(b.mean)
        return self.added(of_a * of_b)

    def some(self, known: Uncertainty, span: np.ndarray | float) -> np.ndarray:
        """True for groups whose units differ by more than rounding."""
        return known.total > np.square(1e-12 * span)

    def span(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Largest difference in each group, from least and largest numbers `[N]`."""
        low, high = low[self.rows], high[self.rows]
        if self.count == 1:
            return np.array([high.max() - low.min()])
        order = np.argsort(self.group, kind="stable")
        starts = np.searchsorted(self.group[order], np.arange(self.count))
        low = np.minimum.reduceat(low[order], starts)
        high = np.maximum.reduceat(high[order], starts)
        return high - low

    def none(self, quantile: np.ndarray) -> np.ndarray:
        """Upper end of the share of an event that no example has."""
        zero = np.zeros(self.count)
        return share_ends(zero, zero, quantile, self.units)[1]

    def t_test(
        self, of: PerExample, span: np.ndarray | float, *, share: bool = False
    ) -> np.ndarray:
        """Two-sided p-values of mean 0: t-test, or sign test for equal changes."""
        known, value = self.known(of, mean=not share), self.value(of.mean)
        some = self.some(known, span)
        t = np.abs(value) / np.sqrt(np.where(some, known.total, 1.0))
        alike = np.where(value != 0, 2.0 ** (1 - self.units), 1.0)
        return np.where(some, 2 * special.stdtr(known.freedom, -t), alike)

    def sign_flip(self, net: np.ndarray) -> np.ndarray:
        """`sign_flip_exact` of whole numbers `[N]`; NaN for an empty group."""
        net = net[self.rows]
        if self.cell is not None:
            net = np.bincount(self.cell, net, len(self.owner)).astype(np.int64)
        some = np.flatnonzero(net)
        net, owner = net[some], self.owner[some]
        if np.abs(net).max(initial=0) <= 1:
            lost, gained = (
                np.bincount(owner[net == sign], minlength=self.count)
                for sign in (-1, 1)
            )
            p = mcnemar_exact(lost, gained)
        else:
            order = np.argsort(owner, kind="stable")
            ends = np.searchsorted(owner[order], np.arange(1, self.count))
            p = np.array([sign_flip_exact(of) for of in np.split(net[order], ends)])
        return np.where(self.size > 0, p, np.nan)


def all_examples(examples: int, clusters: np.ndarray | None, level: float) -> Groups:
    """All examples as one group."""
    return Groups(np.zeros(examples, np.int64), 1, clusters, level)
