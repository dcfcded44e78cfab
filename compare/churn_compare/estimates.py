"""Means of per-example numbers in groups of examples, with intervals and tests."""

import dataclasses
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from churn_compare.result import Interval
from churn_compare.significance import mcnemar_exact, sign_flip_exact

_ROUNDING, _NEAR = 1e-24, 1e-12
_MOST = 1e6  # largest quantile, with hardly any degrees of freedom
_HALVINGS = 50  # bisections of an interval of length 1, to 1e-15
Given = np.ndarray | float


@dataclasses.dataclass(frozen=True, eq=False)
class Uncertainty:
    """Variance and degrees of freedom of numbers, as arrays of any shape."""

    examples: np.ndarray  # variance due to the examples, given the runs
    total: np.ndarray  # variance due to examples and runs
    # degrees of freedom of `total`: `of_clusters` with one run of each version; if only
    # one version has several runs, those of the variance due to runs
    freedom: np.ndarray
    alone: bool = False  # True if only one version has several runs
    # degrees of freedom of `examples`: infinite, or below the number of clusters
    of_clusters: np.ndarray | float = np.inf
    bearing: np.ndarray | float = np.inf  # effective number of clusters

    def of_runs(self) -> np.ndarray:
        """Share of the variance that is due to runs."""
        some = self.total > 0
        examples = np.where(some, self.examples / np.where(some, self.total, 1.0), 1.0)
        return np.maximum(1.0 - examples, 0.0)

    def quantile(self, level: Given) -> np.ndarray:
        """Two-sided quantile: 1.96 for 0.95, one run a side and no clusters."""
        # Satterthwaite's approximation is poor for one degree of freedom (two runs on
        # one side), so if only one side has runs, half-widths are added as squares:
        # q^2 V = z^2 V_examples + t^2 C, with C the variance due to runs.
        upper = (1.0 + level) / 2.0
        student = _student(self.freedom, upper)
        if not self.alone:
            return student
        of_runs, few = self.of_runs(), self.example_quantile(level)
        return np.sqrt(np.square(few) * (1.0 - of_runs) + np.square(student) * of_runs)

    def widened(self, most: np.ndarray | float) -> np.ndarray:
        """`total`, moved towards `most` if few clusters have events."""
        # If one cluster has all events, their number hardly tells how similar examples
        # of a cluster are; without any event only `most` is known, the variance if the
        # examples of each cluster are equal. Chosen by simulation: half of the way, on
        # a logarithmic scale, for one cluster, a quarter for two.
        share = 0.5 ** np.asarray(self.bearing)
        some = self.total > 0
        total = np.where(some, self.total, 1.0)
        up = np.maximum(most / total, 1.0) ** share
        return np.where(some, total * up, 0.0)

    def p(self, t: np.ndarray) -> np.ndarray:
        """Two-sided p-value of a number `t` standard errors from 0: see `quantile`."""
        if not self.alone:
            return 2 * special.stdtr(self.freedom, -t)
        low, high = np.zeros(t.shape), np.where(t == t, 1.0, np.nan)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            inside = t < self.quantile(1 - middle)
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return high

    def example_quantile(self, level: Given) -> np.ndarray:
        """Two-sided quantile with runs treated as fixed; larger with few clusters."""
        return _student(self.of_clusters, (1.0 + level) / 2.0)


def _student(freedom: Given, upper: Given) -> np.ndarray:
    """Quantile of Student's t; very large with one cluster."""
    freedom = np.asarray(freedom)
    few = special.stdtrit(np.maximum(freedom, 1.0), upper)
    return np.where(freedom < 1, _MOST, few)


def run_part(of_runs: np.ndarray, noise: np.ndarray) -> tuple:
    """Variance of the mean over runs, its noise, and its degrees of freedom."""
    # S = sum_r (m_r - m)^2 / (R (R - 1)); `noise` is its expectation if runs differ
    # only by noise.
    R = of_runs.shape[-1]
    centred = of_runs - of_runs.mean(axis=-1, keepdims=True)
    return np.sum(np.square(centred), axis=-1) / (R * (R - 1)), noise, R - 1


def uncertainty(
    examples: np.ndarray,
    *parts: tuple,
    clusters: Given = 0,
    bearing: Given = np.inf,
) -> Uncertainty:
    """Uncertainty due to examples and runs, by Satterthwaite's approximation."""
    # If each of G clusters moves the number by u, the variance over examples, sum u^2,
    # has a squared relative error of sum u^4 / (sum u^2)^2 - 1 / G, twice one over
    # degrees of freedom: G for normal u, fewer for unequal clusters, at most G - 1.
    # The variance between runs includes their noise on the examples, as the variance
    # over examples does; it is counted once: V = V_examples + sum_k (S_k - noise_k), at
    # least V_examples - noise / 2 (with V_examples as the least value, intervals of two
    # runs a side that differ only by noise would cover the truth 98 % of the time),
    # and 1 / df = sum_k (S_k / V)^2 / df_k (Satterthwaite 1946).
    examples = np.asarray(examples, np.float64)
    count = np.asarray(clusters, np.float64)
    tail = np.maximum(1.0 / np.asarray(bearing) - 1.0 / np.maximum(count, 1.0), 0.0)
    freedom = np.minimum(count - 1.0, 2.0 / np.maximum(tail, 1e-9))
    of_clusters = np.where(count > 0, freedom, np.inf)
    noise = sum((part[1] for part in parts), np.zeros(examples.shape))
    total = examples - noise + sum(part[0] for part in parts)
    total = np.maximum(total, examples - np.minimum(noise, examples) / 2)
    if len(parts) == 1:
        freedom = np.full(total.shape, float(parts[0][2]))
        return Uncertainty(examples, total, freedom, True, of_clusters, bearing)
    spread = sum((np.square(S) / df for S, _, df in parts), np.zeros(total.shape))
    spread = spread + np.square(examples) / np.maximum(of_clusters, 0.5)
    some = spread > 0
    freedom = np.square(total) / np.where(some, spread, 1.0)
    freedom = np.where(some, freedom, of_clusters)
    fewest = min((df for _, _, df in parts), default=np.inf)
    # V may be less than its parts
    freedom = np.maximum(freedom, np.minimum(fewest, of_clusters))
    return Uncertainty(examples, total, freedom, False, of_clusters, bearing)


def left_out(own: np.ndarray, clusters: Given) -> np.ndarray:
    """Factors of clusters' residuals, whose squares then add up to a variance."""
    # A cluster with the share h of a ratio's denominator draws the ratio to itself, so
    # that its residual is too small by 1 - h. What the ratio changes if the cluster is
    # left out is not: the jackknife has V = (G - 1) / G sum (m_u / (1 - h_u))^2, which
    # is G / (G - 1) sum m_u^2 for equal clusters.
    rest = np.where(own < 1 - _NEAR, 1 - own, 1.0)
    return np.sqrt(1 - 1 / np.maximum(clusters, 1)) / rest


def share_ends(
    share: Given, variance: Given, quantile: Given, examples: Given
) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval with the number of examples that fits the variance."""
    # With n = p (1 - p) / V, the examples of a binomial share of this variance, the
    # ends are the solutions P of (p - P)^2 = q^2 P (1 - P) / n (Wilson 1927). If p is 0
    # or 1, or V is not positive, n is `examples`.
    share = np.clip(np.asarray(share, np.float64), 0.0, 1.0)
    binomial = share * (1.0 - share)
    usable = (binomial > 0) & (variance > 0)
    counted = np.where(usable, binomial / np.where(usable, variance, 1.0), examples)
    square = np.square(np.minimum(quantile, _MOST)) / np.maximum(counted, 1e-12)
    centre = (share + square / 2) / (1 + square)
    half = np.sqrt(square * binomial + np.square(square) / 4) / (1 + square)
    low = np.where(share == 0, 0.0, np.clip(centre - half, 0.0, share))
    high = np.where(share == 1, 1.0, np.clip(centre + half, share, 1.0))
    missing = np.isnan(share)
    return np.where(missing, np.nan, low), np.where(missing, np.nan, high)


def difference_ends(
    gained: Given, lost: Given, variance: Given, quantile: Given, examples: Given
) -> tuple[np.ndarray, np.ndarray]:
    """Tango's score interval of `gained - lost`, stretched to the given variance."""
    # The ends are the solutions D of (g - l - D)^2 = q^2 s v(D) (Tango 1998, Eq. 11);
    # v(D) is the variance of the difference of two paired shares where the difference
    # is D and all else is most likely, and s = V / v(g - l) is 1 for one run a
    # side.
    given = (gained, lost, variance, quantile, examples)
    gained, lost, variance, quantile, examples = np.broadcast_arrays(
        *(np.asarray(x, np.float64) for x in given)
    )
    found = gained - lost
    count = np.maximum(examples, 1e-12)
    plain = (gained + lost - np.square(found)) / count
    usable = (plain > 0) & (variance > 0)
    stretch = np.where(usable, variance / np.where(usable, plain, 1.0), 1.0)

    def score_variance(difference):
        """`v(D)`, in which the most likely share lost solves a quadratic equation."""
        rest = 1.0 - difference
        linear = difference * (2.0 - found) - gained - lost
        constant = 8.0 * lost * difference * rest
        root = np.sqrt(np.maximum(np.square(linear) + constant, 0.0))
        least = np.maximum(-difference, 0.0)
        share = np.maximum((root - linear) / 4.0, least)
        return np.maximum(2.0 * share + difference * rest, 0.0) / count

    limit = np.square(np.minimum(quantile, _MOST)) * stretch
    inside, outside = np.stack([found, found]), np.ones((2, *found.shape))
    outside[0] = -1.0
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        fits = np.square(found - middle) <= limit * score_variance(middle)
        inside = np.where(fits, middle, inside)
        outside = np.where(fits, outside, middle)
    low, high = np.where(np.isnan(found), np.nan, inside)
    return low, high


def hidden(
    away: np.ndarray, plain: np.ndarray, units: np.ndarray, quantile: Given
) -> float:
    """Squared half-width that groups with few events add to that of their sum.

    Args:
        away: `[G]` distance of the end of each group's own interval.
        plain: `[G]` half-width by its variance, which is 0 without an event.
        units: `[G]` number of its units.
        quantile: two-sided quantile of the intervals.
    """
    # If groups of n_g units have rates p_g, none has an event with probability
    # exp(-sum n_g p_g), so that at most about q^2 units hide at once: those of one
    # group, the one that adds most, and of further ones only if it has fewer units.
    more = np.maximum(np.square(away) - np.square(plain), 0.0)
    order = np.argsort(-more)
    before = np.cumsum(units[order]) - units[order]
    return float(more[order][before < np.square(quantile)].sum())


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
        """A multiple; an integer factor keeps integers integers."""
        runs = (tuple(Weighted(factor * w, sums) for w, sums in of) for of in self.runs)
        return PerExample(factor * self.mean, tuple(runs))

    def __sub__(self, other: "PerExample") -> "PerExample":
        """The difference of two numbers from the same runs."""
        return self + other * -1

    def without(self, rows: np.ndarray) -> "PerExample":
        """The same with 0 for some examples."""
        keep = np.ones(len(self.mean), bool)
        keep[rows] = False
        runs = (tuple(Weighted(w, sums * keep) for w, sums in of) for of in self.runs)
        return PerExample(self.mean * keep, tuple(runs))


class Groups:
    """Groups of examples: means, their intervals and tests for each group."""

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
        if self.cell is not None and self.pooled:  # of rows, else of units
            code = self.cell * len(sizes) + self.strata
            _, first, part = np.unique(code, return_index=True, return_inverse=True)
            clusters_of = np.bincount(self.strata[first], minlength=len(sizes))
            own = np.bincount(part)[part] / self._sizes[self.strata]
            self._left_out = left_out(own, clusters_of[self.strata])
        elif self.cell is not None:
            own = np.bincount(self.cell, minlength=len(owner)) / self._sizes[owner]
            self._left_out = left_out(own, self.found[owner])
        # Effective number of units, for the interval of a share without any event.
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
        """Means `[G]`, and each unit's contribution to its group's mean."""
        numbers = numbers[self.rows]
        means = np.bincount(self.strata, numbers, len(self._sizes)) / self._sizes
        moved = numbers - means[self.strata]
        if self.pooled:
            moved *= (self.size / self._sizes / len(means))[self.strata]
            means = means.mean(keepdims=True)
        if self.cell is not None:
            moved = moved * self._left_out if self.pooled else moved
            moved = np.bincount(self.cell, moved, len(self.owner))
            moved = moved if self.pooled else moved * self._left_out
        return means, moved / self.size[self.owner]

    def known(self, of: PerExample, *, mean: bool = False) -> Uncertainty:
        """Uncertainty of the means; with `mean`, V has the factor of a t-test."""
        plain = self.cell is None and not self.pooled and not of.runs
        if plain and of.mean.dtype == np.int8:  # -1, 0, 1: squares follow from sums
            variance = self.value(np.abs(of.mean)) - np.square(self.value(of.mean))
            return uncertainty(variance / self._sizes)
        _, moved = self._moved(of.mean)
        clustered, factor = self.cell is not None, 1.0
        if mean and not clustered:
            factor = self.found / np.maximum(self.found - 1, 1)
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
        examples = factor * examples
        known = uncertainty(examples, *parts, clusters=clusters, bearing=bearing)
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
        spread = known.widened(most), known.quantile(self.level), self.units
        return Intervals(value, *share_ends(value, *spread))

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
        spread = known.widened(most), known.quantile(level or self.level), self.units
        return Intervals(value, *difference_ends(gained, lost, *spread))

    def score_test(self, gain: PerExample, *flips_of: PerExample) -> np.ndarray:
        """Two-sided p-values of no gain, below 1 - level where `gain` leaves out 0."""
        known, value = self.known(gain), self.value(gain.mean)
        flips = self.value(np.sum([of.mean for of in flips_of], axis=0))
        units = np.maximum(self.units, 1)
        rest = flips - np.square(value)
        variance, usable = known.widened(rest / units), (rest > 0) & (known.total > 0)
        score = variance * flips / np.where(usable, rest, 1.0)  # if the gain were 0
        score = np.where(usable, score, np.maximum(flips, 1 / units) / units)
        return known.p(np.abs(value) / np.sqrt(score))

    def mean(
        self,
        of: PerExample,
        span: Given,
        least: float = -np.inf,
        most: Given = np.inf,
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
        """Changes beyond those between runs of one version, with intervals."""
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

    def wider(self, ends: Intervals, a: PerExample, b: PerExample) -> Intervals:
        """The ends of a - b, no nearer than what the ends of both shares give."""
        # The variance hardly has a change that one example shows; Wilson's ends do
        # (Newcombe, Statistics in Medicine 17, pp. 2635-2650, 1998).
        product = self.known(a).examples * self.known(b).examples
        alike = self.covariance(a, b) / np.sqrt(np.where(product > 0, product, 1.0))
        (x, *of_x), (y, *of_y), found = self.share(a), self.share(b), [*ends[1:]]
        for side, sign, furthest in ((0, -1, np.minimum), (1, 1, np.maximum)):
            p, q = np.abs(of_x[side] - x), np.abs(of_y[1 - side] - y)
            away = np.sqrt(np.maximum(p * p + q * q - 2 * alike * p * q, 0.0))
            found[side] = furthest(found[side], ends.value + sign * away)
        return Intervals(ends.value, *found)

    def some(self, known: Uncertainty, span: Given) -> np.ndarray:
        """True for groups whose units differ by more than rounding."""
        return known.total > np.square(1e-12 * span)

    def span(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Largest difference in each group, from least and largest numbers `[N]`."""
        least, most = np.full(self.count, np.inf), np.full(self.count, -np.inf)
        np.minimum.at(least, self.group, low[self.rows])
        np.maximum.at(most, self.group, high[self.rows])
        return most - least

    def none(self, quantile: np.ndarray) -> np.ndarray:
        """Upper confidence limit of the share of an event that no example has."""
        zero = np.zeros(self.count)
        return share_ends(zero, zero, quantile, self.units)[1]

    def t_test(
        self, of: PerExample, span: Given, *, share: bool = False, added: float = 0.0
    ) -> np.ndarray:
        """Two-sided p-values of mean 0: t-test, or sign test for equal changes."""
        known, value = self.known(of, mean=not share), self.value(of.mean)
        some = self.some(known, span)
        t = np.abs(value) / np.sqrt(np.where(some, known.total + added, 1.0))
        alike = np.where(value != 0, 2.0 ** (1 - self.units), 1.0)
        return np.where(some, known.p(t), alike)

    def sign_flip(self, net: np.ndarray) -> np.ndarray:
        """`sign_flip_exact` of whole numbers `[N]`; NaN for an empty group."""
        net = net[self.rows]
        if self.cell is not None:
            net = np.bincount(self.cell, net, len(self.owner)).astype(np.int64)
        some = np.flatnonzero(net)
        net, owner = net[some], self.owner[some]
        if np.abs(net).max(initial=0) <= 1:
            sides = owner[net < 0], owner[net > 0]  # lost and gained
            p = mcnemar_exact(*(np.bincount(of, minlength=self.count) for of in sides))
        else:
            order = np.argsort(owner, kind="stable")
            ends = np.searchsorted(owner[order], np.arange(1, self.count))
            p = np.array([sign_flip_exact(of) for of in np.split(net[order], ends)])
        return np.where(self.size > 0, p, np.nan)


def all_examples(examples: int, clusters: np.ndarray | None, level: float) -> Groups:
    """All examples as one group."""
    return Groups(np.zeros(examples, np.int64), 1, clusters, level)


def check_options(
    *,
    level: float = 0.95,
    low: float = 0,
    tolerance: float = 0.0,
    regressions: int = 0,
    resamples: int = 100,
    seed: int = 0,
    top: int | None = None,
    equivalent: Any = None,
    pool: Any = None,
) -> None:
    """Refuses numbers that are out of range, and options of other names."""
    if not isinstance(level, Real) or not low < level < 1:
        raise ValueError(f"level must lie between {low} and 1; got {level!r}")
    if not tolerance >= 0:
        raise ValueError("tolerance must be at least 0")
    counts = {"regressions": (regressions, 0), "resamples": (resamples, 100)}
    counts |= {"seed": (seed, 0), "top": (1 if top is None else top, 1)}
    for name, (number, least) in counts.items():
        if not isinstance(number, Integral):
            raise ValueError(f"{name} must be an integer; got {number!r}")
        if number < least:
            raise ValueError(f"{name} must be at least {least}; got {number}")
