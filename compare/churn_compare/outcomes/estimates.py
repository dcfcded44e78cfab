"""Every number of a measure with its confidence interval."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy import special

from churn_compare.noise import permuted_variance
from churn_compare.outcomes.values import Measure
from churn_compare.pooling import mean_of_shares, units_of
from churn_compare.result import Interval
from churn_compare.significance import sign_flip_exact
from churn_compare.sums import partition
from churn_compare.uncertainty import (
    Statistic,
    Uncertainty,
    detectable,
    detectable_share,
    difference_ends,
    share_ends,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Estimates:
    """What is known of a measure.

    Attributes:
        quantities: name to number and interval, in the order of `QUANTITIES`.
        p: of "no change on average", two-sided, over examples or clusters: the exact
            sign-flip test of right answers (`sign_flip_exact`; McNemar's, with one run
            a side and no clusters), a t-test of other numbers; NaN where nothing is
            judged.
        detectable: the smallest change of the mean that these examples detect in 80 %
            of cases at this level; NaN in those cases and where all scores are equal.
        within: interval of the change at level `2 level - 1`, for two one-sided tests.
    """

    quantities: Mapping[str, Interval]
    p: float = np.nan
    detectable: float = np.nan
    within: Interval | None = None


def estimate(
    measure: Measure,
    clusters: np.ndarray | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Estimates:
    """All numbers of a measure.

    A number is the mean over examples and over pairs of an old and a new run. Its
    variance is that over examples, or over clusters of them:

        V = G / (G - 1) sum_g u_g^2

    with `u_g` what examples of group g add to the deviation of the mean from itself.
    Runs are taken as they are: the samples of a language model are independent on each
    example, so that V holds what they add. Shares have Wilson's interval with as many
    examples as have the variance V, gains in right answers Tango's, as in `intervals`;
    means `t sqrt(V)` to either side, with quantiles of Student's distribution with
    G - 1 degrees of freedom, or fewer where few clusters contribute most. The excess
    over the churn of identical runs has no smaller V than it has where both versions
    are equal, by permuting the runs of every example or cluster. Where all examples
    change alike, or none does, V is that of no event in so many, times the span of the
    numbers, and the test of no change flips the signs of examples or clusters.

    Args:
        measure: of `N` examples.
        clusters: `[N]` codes below their number, or None.
        level: of the intervals.
        seed: of assigning more than 4096 examples to groups.

    Notes:
        In simulations (`benchmarks/compare_coverage.py`, 40 to 1,000 examples, 1 or 5
        runs) 95 % intervals hold the truth 93 to 97 times of 100, more often where
        most comparisons have no flip and for the excess of few or stable runs. Less
        often: 85 to 92 for shares of which less than one event is expected, 90 to 94
        with 20 clusters of which one has more than a quarter of the examples.

    Example:
        >>> old, new = np.array([[1.0, 1, 0, 0]]), np.array([[1.0, 0, 0, 1]])
        >>> found = estimate(Measure("correct", "correct", old, new)).quantities
        >>> found["negative_flip_rate"].value, found["accuracy_gain"].value
        (0.25, 0.0)

    References:
        [cluster] pp. 13-22 -- Liang and Zeger, Longitudinal data analysis using
        generalized linear models, Biometrika 1986.
        https://doi.org/10.1093/biomet/73.1.13
    """
    sums = Sums(measure, clusters, level, seed)
    changed = sums.of_pairs(_changed)
    changed_name = "churn" if measure.decided else "share_changed"
    found = {changed_name: sums.share(changed)}
    if measure.kind not in ("correct", "answer"):
        far = sums.of_pairs(lambda m, a, b: m.distance(a, b))
        most = np.inf if measure.things is None else sums.span
        found["mean_distance"] = sums.mean(far, 0.0, most)
    if measure.kind == "answer" and measure.shown is not None:
        found["share_reworded"] = sums.share(_reworded(sums, measure.shown))
    found |= _stability(sums, measure)
    found |= _noise(sums, measure, changed)
    if not measure.judged:
        return Estimates(found)
    worse = sums.of_pairs(_worse)
    better = sums.of_pairs(lambda m, a, b: _worse(m, b, a))
    old, new = (
        sums.of_side(side, measure.worth) for side in (measure.old, measure.new)
    )
    gain = new - old
    known, share = sums.known_mean(gain), sums.known(gain)
    value = float(gain.sum())
    flips = better.sum() + worse.sum()
    sign = measure.sign
    ends = {}
    for at in (level, 2 * level - 1):
        if measure.decided:
            low, high = difference_ends(
                np.array(better.sum()),
                np.array(worse.sum()),
                share.widened((flips - value**2) / sums.units),
                share.example_quantile(at),
                np.array(sums.units),
            )
        else:
            half = sums.half(known, at)
            low, high = value - half, value + half
        ends[at] = _turned(Interval(value, float(low), float(high)), sign)
    if measure.decided:
        found["accuracy_old"], found["accuracy_new"] = sums.share(old), sums.share(new)
        found["accuracy_gain"] = ends[level]
        found["negative_flip_rate"] = sums.share(worse)
        found["positive_flip_rate"] = sums.share(better)
    else:
        stem = "error" if measure.kind == "value" else "score"
        found[f"{stem}_old"] = sums.mean(sign * old)
        found[f"{stem}_new"] = sums.mean(sign * new)
        found[f"{stem}_change"] = ends[level]
        found["share_worse"] = sums.share(worse)
        found["share_better"] = sums.share(better)
    within = ends[2 * level - 1]
    if measure.decided:
        quantile = share.example_quantile(level)
        least = detectable_share(share, quantile, sums.examples, sums.units)
        return Estimates(found, _sign_flip(measure, clusters), least, within)
    quantile, variance = known.example_quantile(level), known.total
    if not sums.some(known):  # of as many changes as none leaves open
        variance = sums.none(quantile) / sums.units * sums.span**2
    least = detectable(variance, quantile) or np.nan
    most = np.inf if measure.things is None else sums.span
    return Estimates(found, sums.p(value, known), min(least, most), within)


def _sign_flip(measure: Measure, clusters: np.ndarray | None) -> float:
    """Exact p of "no change of right answers": McNemar's with one run a side."""
    old, new = (
        np.sum([measure.worth(run) for run in runs], axis=0)
        for runs in (measure.old, measure.new)
    )
    net = len(measure.old) * new - len(measure.new) * old
    if clusters is not None:
        net = np.bincount(clusters, net)
    return sign_flip_exact(np.rint(net))


def equal_weights(
    measure: Measure,
    group: np.ndarray,
    clusters: np.ndarray | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Interval, float]:
    """The mean over groups of their changes, each with the same weight, and its p.

    Args:
        measure: a judged one.
        group: `[N]` codes of the groups, each with examples.
        clusters: as in `estimate`.
        level: of the interval.
        seed: as in `estimate`.
    """
    sums = Sums(measure, clusters, level, seed)
    gain = np.mean([measure.worth(run) for run in measure.new], axis=0)
    gain = gain - np.mean([measure.worth(run) for run in measure.old], axis=0)
    size = np.bincount(group)
    means = np.bincount(group, gain) / size
    weight = measure.examples / (len(size) * size[group])
    moved = sums.grouped(weight * (gain - means[group]))
    value = float(means.mean())
    if measure.decided:
        lost = float(weight @ falls(measure)) / measure.examples
        units = sums.parts.units(units_of(size))
        return mean_of_shares(value + lost, lost, sums.known(moved), units, level)
    known = sums.known_mean(moved)
    half = sums.half(known, level)
    interval = Interval(value, value - half, value + half)
    return _turned(interval, measure.sign), sums.p(value, known)


def falls(measure: Measure) -> np.ndarray:
    """How often each example is worth less than before, `[N]`, of pairs of runs."""
    pairs = itertools.product(measure.old, measure.new)
    return np.mean([_worse(measure, a, b) for a, b in pairs], axis=0)


def share_worse(
    measure: Measure,
    clusters: np.ndarray | None,
    without: np.ndarray,
    *,
    level: float,
    seed: int,
) -> Interval:
    """The share of examples that get worse, if those of `without` `[N]` did not."""
    sums = Sums(measure, clusters, level, seed)
    return sums.share(sums.of_pairs(lambda m, a, b: _worse(m, a, b) & ~without))


def _changed(measure: Measure, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return measure.beyond(measure.distance(a, b), a, b)


def _worse(measure: Measure, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Whether outcomes are worth less than before by more than the tolerance."""
    fall = measure.worth(before) - measure.worth(after)
    return measure.beyond(fall, before, after)


def _turned(interval: Interval, sign: float) -> Interval:
    if sign > 0:
        return interval
    return Interval(-interval.value, -interval.high, -interval.low)


class Sums:
    """Means over examples and pairs of runs, by group of examples; their intervals."""

    def __init__(self, measure: Measure, clusters, level: float, seed: int):
        self.measure, self.level = measure, level
        self.examples = measure.examples
        self.parts = partition(self.examples, 1, seed, clusters)
        self.clusters = clusters
        self.size = self.grouped(np.ones(self.examples))
        # What a share of no event says is known from as many independent draws.
        self.units = self.parts.units(self.examples)
        self.span = 2.0 if measure.kind == "ranking" else 1.0  # of what may change
        if measure.things is None and not measure.decided:
            both = measure.old, measure.new
            self.span = float(max(map(np.max, both)) - min(map(np.min, both)))

    def grouped(self, values: np.ndarray) -> np.ndarray:
        """What every group adds to the mean of `[N]` values, `[G]`."""
        group, groups, _ = self.parts
        return np.bincount(group, values, groups) / self.examples

    def of_pairs(self, number: Callable) -> np.ndarray:
        """What every group adds to the mean over pairs of runs, `[G]`."""
        old, new = self.measure.old, self.measure.new
        sums = np.zeros(self.parts.groups)
        for a, b in itertools.product(old, new):
            sums += self.grouped(number(self.measure, a, b))
        return sums / (len(old) * len(new))

    def of_side(self, runs: np.ndarray, number: Callable) -> np.ndarray:
        """The same for the mean over the runs of one side."""
        return np.mean([self.grouped(number(run)) for run in runs], axis=0)

    def known(self, parts: np.ndarray) -> Uncertainty:
        """How well the sum of the parts, a share, is known."""
        influence = (parts - parts.sum() * self.size)[:, None, None]
        found = Statistic(np.full((1, 1), parts.sum()), influence, self.examples)
        # Several runs of an example are a cluster of it, and few may differ.
        squares = np.square(influence)
        bearing = squares.sum() ** 2 / max(np.square(squares).sum(), 1e-300)
        known = found.uncertainty(self.parts.clusters)
        return dataclasses.replace(known, bearing=bearing)

    def known_mean(self, parts: np.ndarray) -> Uncertainty:
        """The same of a mean, whose variance is estimated as in a t-test."""
        known, groups = self.known(parts), self.parts.groups
        if self.parts.clusters:
            return known
        total = known.total * groups / max(groups - 1, 1)
        return dataclasses.replace(known, total=total, of_clusters=self.examples - 1.0)

    def share(self, parts: np.ndarray) -> Interval:
        """The interval of a share of the examples."""
        value = round(float(np.clip(parts.sum(), 0.0, 1.0)), 12)  # exactly 0 and 1
        known = self.known(parts)
        low, high = share_ends(
            np.array(value),
            known.widened(value * (1 - value) / self.units),
            known.example_quantile(self.level),
            np.array(self.units),
        )
        return Interval(value, float(low), float(high))

    def some(self, known: Uncertainty) -> bool:
        """Whether groups differ in what they add, by more than rounding."""
        return float(known.total) > (1e-12 * self.span) ** 2

    def p(self, value: float, known: Uncertainty) -> float:
        """Two-sided p of a mean of 0: a t-test, or signs where all change alike."""
        if self.some(known):
            t = abs(value) / np.sqrt(known.total)
            return float(2 * special.stdtr(known.of_clusters, -t))
        return 2.0 ** (1 - self.units) if value else 1.0

    def half(self, known: Uncertainty, level: float) -> float:
        """Half the interval of a mean."""
        quantile = known.example_quantile(level)
        if self.some(known):
            return float(quantile * np.sqrt(known.total))
        return self.none(quantile) * self.span

    def none(self, quantile: np.ndarray) -> float:
        """Upper end of the share of an event that no example shows."""
        zero = np.zeros(())
        return float(share_ends(zero, zero, quantile, np.array(self.units))[1])

    def mean(
        self, parts: np.ndarray, least: float = -np.inf, most: float = np.inf
    ) -> Interval:
        """The interval of a mean."""
        known, value = self.known_mean(parts), float(parts.sum())
        half = self.half(known, self.level)
        return Interval(value, max(value - half, least), min(value + half, most))

    def excess(self, changed: np.ndarray, within: Sequence[np.ndarray]) -> Interval:
        """The interval of what pairs across change beyond those within a side."""
        parts = changed - np.mean(within, axis=0)
        known, value = self.known_mean(parts), float(parts.sum())
        quantile = known.example_quantile(self.level)
        runs = np.concatenate([self.measure.old, self.measure.new])

        def differ(r: int, s: int) -> np.ndarray:
            return _changed(self.measure, runs[r], runs[s])

        equal = permuted_variance(
            differ, len(runs), len(self.measure.old), self.examples, self.clusters
        )
        # An example on which no run differs might be one on which all pairs across do.
        half = most = self.none(quantile)
        if equal.any():
            known = dataclasses.replace(
                known,
                total=np.maximum(known.total, equal.sum() / self.examples**2),
                bearing=equal.sum() ** 2 / np.square(equal).sum(),
            )
            half = float(quantile * np.sqrt(known.widened((most / quantile) ** 2)))
        return Interval(value, value - half, value + half)


def runs_agree(runs: np.ndarray, measure: Measure) -> np.ndarray:
    """Whether all runs of an example agree, `[N]`."""
    return ~np.logical_or.reduce([_changed(measure, runs[0], run) for run in runs[1:]])


def _reworded(sums: Sums, shown: Mapping[str, np.ndarray]) -> np.ndarray:
    """Texts that are not the same letter by letter."""
    pairs = list(itertools.product(shown["old"], shown["new"]))
    return np.mean([sums.grouped((a != b).astype(float)) for a, b in pairs], axis=0)


def _stability(sums: Sums, measure: Measure) -> dict[str, Interval]:
    """The share of examples on which all runs of a side agree (TARa@N)."""
    return {
        f"stability_{side}": sums.share(sums.grouped(runs_agree(runs, measure)))
        for side, runs in (("old", measure.old), ("new", measure.new))
        if len(runs) > 1
    }


def _noise(sums: Sums, measure: Measure, changed) -> dict[str, Interval]:
    """What runs of one version change, and what the update changes beyond that."""
    found, within = {}, []
    for side, runs in (("old", measure.old), ("new", measure.new)):
        pairs = [
            sums.grouped(_changed(measure, a, b))
            for a, b in itertools.combinations(runs, 2)
        ]
        if pairs:
            within.append(sum(pairs) / len(pairs))
            found[f"within_{side}"] = sums.share(within[-1])
    if within:
        found["excess_churn"] = sums.excess(changed, within)
    return found
