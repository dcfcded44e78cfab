"""Contributions of every example to a number, and the numbers with intervals."""

import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np
from scipy import special

from churn_compare.estimates import Groups, Intervals, PerExample, Weighted, share_ends
from churn_compare.measures import Measure
from churn_compare.pair import Scanned
from churn_compare.quantities import in_order
from churn_compare.result import NONE, ROUNDING, Interval
from churn_compare.sums import partition, ratios, resampled

_POWER = 0.8  # of the detectable change

Differ = Callable[[int, int], np.ndarray]
Span = np.ndarray | float  # of each group


class Numbers:
    """Contributions of every example to the changes from the old version to the new."""

    all_labelled = True  # False if only examples that change have labels

    def __init__(self, of: Measure, *, shared: bool = False, paired: bool = False):
        self.of, self.shared, self.paired = of, shared, paired
        self.judged, self.decided, self.sign = of.judged, of.decided, of.sign
        # Names of the change of the mean, and of the shares that get worse and better.
        mean = "error_change" if of.kind == "value" else "score_change"
        self.names = (mean, "share_worse", "share_better")
        if of.decided:
            self.names = "accuracy_gain", "negative_flip_rate", "positive_flip_rate"
        # Largest possible change of the mean.
        self.most = 2.0 if of.kind == "ranking" else 1.0
        if of.things is None and not of.named and of.kind != "correct":
            self.most = np.inf
        self.rows = [*of.old, *of.new]
        A, R = len(of.old), len(self.rows)
        self.runs = A, R - A
        self.shape = (A, 1) if paired else (A, R - A)
        differ = self.differ if of.named else functools.cache(self.differ)
        self.changed = self._over_pairs(differ)
        # Units' contributions to the variance of the excess, unless in clusters.
        N = of.examples
        self._alone = functools.cache(lambda apart: permuted_variance(apart, R, A, N))
        self.stable: dict[str, PerExample] = {}  # on which all runs of a side agree
        for side, first, last in (("old", 0, A), ("new", A, R)):
            if last - first > 1 and not shared:
                pairs = itertools.combinations(range(first, last), 2)
                apart = [differ(*pair) for pair in pairs]  # a tolerance adds up
                self.stable[side] = PerExample(~np.logical_or.reduce(apart))
        # How often two runs of a side differ, and what is beyond that.
        self.within: Mapping[str, PerExample] = {}
        if R > 2:
            found = between_runs(differ, A, R, self.changed)
            self.within, self.expected, self.beyond = found
        # The worth of both, and how often it rises and falls.
        if not self.judged:
            return
        worth = of.right if self.decided else of.worth
        self.worth = [worth(run) for run in self.rows]
        self.old, self.new = self._mean(0, A), self._mean(A, R)
        self.worse = self._over_pairs(self.falls)
        self.better = self._over_pairs(lambda r, s: self.falls(s, r))
        whole = shared or self.decided
        self.gain = self.better - self.worse if whole else self.new - self.old
        # Negative flips of retraining, and what both kinds of flips are beyond it.
        self.expected_flips: PerExample | None = None
        if R > 2 and self.decided and not paired:
            flips = self.worse + self.better
            found = between_runs(self._differ_in_worth, A, R, flips)
            self.expected_flips, self.beyond_flips = found[1] * 0.5, found[2]

    def differ(self, r: int, s: int) -> np.ndarray:
        """Where two runs differ, `[N]`; the new version's follow those of the old."""
        return self.of.differ(self.rows[r], self.rows[s])

    def _differ_in_worth(self, r: int, s: int) -> np.ndarray:
        return self.worth[r] != self.worth[s]

    def falls(self, r: int, s: int) -> np.ndarray:
        """Where run s is worth less than run r."""
        if self.decided:
            return self.worth[r] > self.worth[s]
        fall = self.worth[r] - self.worth[s]
        return self.of.beyond(fall, self.rows[r], self.rows[s])

    def pairs(self) -> list[tuple[tuple[int, int], int, int]]:
        """The places and the numbers of an old and a new run, of every pair."""
        A, (rows, columns) = self.runs[0], self.shape
        both = itertools.product(range(rows), range(columns))
        return [((a, b), a, A + (a if self.paired else b)) for a, b in both]

    def _over_pairs(self, event: Differ) -> PerExample:
        """How often something happens from an old to a new run."""
        pairs, shape = self.pairs(), self.shape
        sums = np.zeros(self.of.examples, np.int32)
        sides = [side for side in (0, 1) if self.shared and shape[side] > 1]
        of_runs = [np.zeros((shape[side], len(sums)), np.int16) for side in sides]
        for at, r, s in pairs:
            happens = event(r, s)
            sums += happens
            for side, runs in zip(sides, of_runs, strict=True):
                runs[at[side]] += happens
        mean = sums / len(pairs) if len(pairs) > 1 else sums.astype(np.int8)
        parts = [(Weighted(len(runs) / len(pairs), runs),) for runs in of_runs]
        return PerExample(mean, tuple(parts))

    def _mean(self, first: int, last: int) -> PerExample:
        """The values of a side's runs."""
        worth = self.worth[first:last]
        if self.decided:
            worth = [of.view(np.int8) for of in worth]
        mean = np.mean(worth, axis=0) if last - first > 1 else worth[0]
        several = self.shared and last - first > 1
        return PerExample(mean, ((Weighted(1.0, np.stack(worth)),),) if several else ())

    def span(self, groups: Groups) -> Span:
        """Largest possible change of one example's number in each group."""
        if np.isfinite(self.most):
            return self.most
        return groups.span(np.min(self.rows, axis=0), np.max(self.rows, axis=0))

    def _reach(self, groups: Groups, span: Span | None = None) -> np.ndarray:
        """How far an example's change may lie from the mean change of its group."""
        span = self.span(groups) if span is None else span
        return span + np.abs(groups.value(self.gain.mean))

    def permuted(self, differ: Differ, groups: Groups) -> np.ndarray | None:
        """Contributions of units to the variance of the excess of equal versions."""
        if self.paired:
            return None
        if groups.cell is None:
            return self._alone(differ)[groups.rows]
        return permuted_variance(
            lambda r, s: differ(r, s)[groups.rows],
            *(sum(self.runs), self.runs[0], len(groups.group), groups.cell),
        )

    @functools.cached_property
    def distance(self) -> PerExample:
        """How far an old and a new outcome are apart."""
        sums = np.zeros(self.of.examples)
        for _, r, s in self.pairs():
            sums += self.of.distance(self.rows[r], self.rows[s])
        return PerExample(sums / len(self.pairs()))

    def beyond_runs(self, groups: Groups) -> dict[str, Intervals]:
        """Changes between runs of one version, and the excess of the two versions."""
        found = {f"within_{side}": groups.share(of) for side, of in self.within.items()}
        if found:
            equal = self.permuted(self.differ, groups)
            excess = groups.excess(self.beyond, equal)
            if not self.shared:  # effects of networks cancel in the excess
                excess = groups.wider(excess, self.changed, self.expected)
            found["excess_churn"] = excess
        if self.judged and self.expected_flips is not None:
            found["expected_nfr"] = groups.share(self.expected_flips)
            equal = self.permuted(self._differ_in_worth, groups)
            beyond = groups.excess(self.beyond_flips, equal)
            # Half of the flips of both kinds beyond retraining, less and plus the gain.
            known, gain = groups.known(self.gain), groups.value(self.gain.mean)
            squares = np.square(beyond.high - beyond.value)
            squares += np.square(known.quantile(groups.level)) * known.total
            both = groups.covariance(self.beyond_flips, self.gain)
            both *= np.square(known.example_quantile(groups.level))
            both_flips = ("excess_nfr", -1, self.worse), ("excess_pfr", 1, self.better)
            for name, sign, flips in both_flips:
                value = (beyond.value + sign * gain) / 2
                half = np.sqrt(np.maximum(squares + 2 * sign * both, 0.0)) / 2
                ends = Intervals(value, value - half, value + half)
                found[name] = groups.wider(ends, flips, self.expected_flips)
        return found

    def intervals(self, groups: Groups) -> dict[str, Intervals]:
        """All numbers of every group."""
        of = self.of
        churn = self.shared or self.decided
        found = {"churn" if churn else "share_changed": groups.share(self.changed)}
        if of.kind not in ("correct", "answer", "class"):
            of_span = self.span(groups), 0.0, self.most
            found["mean_distance"] = groups.mean(self.distance, *of_span)
        if of.kind == "answer" and of.shown is not None:
            sides = itertools.product(of.shown["old"], of.shown["new"])
            reworded = np.mean([a != b for a, b in sides], axis=0)
            found["share_reworded"] = groups.share(PerExample(reworded))
        for side, stable in self.stable.items():
            found[f"stability_{side}"] = groups.share(stable)
        found |= self.beyond_runs(groups)
        if not self.judged:
            return found
        stem = self.names[0].rpartition("_")[0]
        for side, worth in (("old", self.old), ("new", self.new)):
            if not self.decided:
                shown = PerExample(self.sign * worth.mean)
                most = 1.0 if np.isfinite(self.most) else np.inf  # sets, rankings
                ends = 1.0 - self.most, most
                found[f"{stem}_{side}"] = groups.mean(shown, self.span(groups), *ends)
            elif self.all_labelled:
                found[f"{stem}_{side}"] = groups.share(worth)
        flips = groups.share(self.worse), groups.share(self.better)
        return found | dict(zip(self.names, (self.change(groups), *flips)))

    def of_all(self, every: Groups) -> dict[str, Interval]:
        """All numbers of all examples."""
        return {name: of.of(0) for name, of in self.intervals(every).items()}

    def change(
        self, groups: Groups, level: float | None = None, span: Span | None = None
    ) -> Intervals:
        """The change of the mean."""
        if self.decided:
            return groups.gain(self.gain, self.better, self.worse, level)
        found = groups.mean(self.gain, self._reach(groups, span), level=level)
        if self.sign > 0:
            return found
        return Intervals(-found.value, -found.high, -found.low)

    def equivalence(self, groups: Groups) -> Interval:
        """Interval of the change of all examples for two one-sided tests."""
        level = 2 * groups.level - 1
        return self.change(groups, level).of(0) if level > 0 else NONE

    def p(self, groups: Groups) -> np.ndarray:
        """p-values of "no change on average"; NaN if nothing is judged."""
        if not self.judged:
            return np.full(groups.count, np.nan)
        if not self.decided:
            return groups.t_test(self.gain, self.span(groups))
        net = np.rint(len(self.pairs()) * self.gain.mean).astype(np.int64)
        p = groups.sign_flip(net)
        if self.shared and len(self.pairs()) > 1:  # runs are a sample, too
            p = np.maximum(p, groups.score_test(self.gain, self.better, self.worse))
        return p

    def detectable(self, groups: Groups) -> float:
        """Smallest change of the mean whose interval excludes zero in 80 % of cases."""
        known = groups.known(self.gain, mean=not self.decided)
        quantile = known.quantile(groups.level)
        if self.decided:
            # The variance is at least that of flips that may be there if none is seen.
            count = groups.size[0] if known.total > 0 else groups.units
            zero = np.zeros(1)
            hidden = share_ends(zero, zero, quantile, count)[1] / count
            variance = np.maximum(known.total, hidden)
        else:
            if groups.units[0] < 2:
                return np.nan
            reach = self._reach(groups)
            hidden = groups.none(quantile) / groups.units * np.square(reach)
            # Of as many changes as none leaves open.
            variance = np.where(groups.some(known, reach), known.total, hidden)
        errors = quantile + special.ndtri(_POWER)
        if not self.decided and quantile[0] < 1e4:  # noncentral t, which is slow above
            errors = special.nctdtrinc(known.freedom, 1 - _POWER, quantile)
        found = errors * np.sqrt(variance)
        return min(found.item() or np.nan, self.most)


def class_numbers(scanned: Scanned, labels: np.ndarray | None) -> Numbers:
    """Contributions of examples to churn and, with labels, to accuracy and flips."""
    sides = scanned.old.predicted, scanned.new.predicted
    of = Measure("prediction", "class", *sides, target=labels)
    return Numbers(of, shared=True, paired=scanned.paired)


def between_runs(
    differ: Differ, A: int, R: int, across: PerExample
) -> tuple[dict[str, PerExample], PerExample, PerExample]:
    """How often runs of a side differ, the mean of the sides, and what is beyond it."""
    # A run's effect on a mean over pairs within its side is twice that of its row. The
    # row leaves the run out, so that differences between rows are too small by (S - 2)
    # / (S - 1), which is mended for churn within a side. Two runs have one row: the
    # effect on the churn against the other side takes its place. In the excess over
    # both sides the effects cancel, and it is left as it is.
    sides = {"old": range(A), "new": range(A, R)}
    inside: dict[str, np.ndarray] = {}
    for side, of in sides.items():
        if len(of) > 1:
            counts = np.zeros((len(of), len(across.mean)), np.int16)
            for r, s in itertools.combinations(range(len(of)), 2):
                apart = differ(of[r], of[s])
                counts[r] += apart
                counts[s] += apart
            inside[side] = counts
    of_across = dict(zip(inside, across.runs))
    twice, within = {}, {}  # effects on churn within the side, and that churn
    for side, counts in inside.items():
        others = len(counts) - 2
        rows = (Weighted(2 / others if others else 0.0, counts),)
        if not others and side in of_across:
            rows = tuple(Weighted(2 * w, sums) for w, sums in of_across[side])
        twice[side] = rows
    for side, counts in inside.items():
        pairs = len(counts) * (len(counts) - 1)
        mean = counts.sum(axis=0, dtype=np.int32) / pairs
        others = {name: (Weighted(0.0, of),) for name, of in inside.items()}
        runs = tuple((others | {side: twice[side]}).values()) if across.runs else ()
        within[side] = PerExample(mean, runs)
    first, *second = within.values()
    expected = (first + second[0]) * 0.5 if second else first
    runs = []
    for side, counts in inside.items() if across.runs else ():
        own = tuple(Weighted(-w, sums) for w, sums in twice[side])
        if second:
            own = (Weighted(-1 / (len(counts) - 1), counts),)
        runs.append((*of_across.get(side, ()), *own))
    beyond = PerExample(across.mean - expected.mean, tuple(runs))
    return within, expected, beyond


def permuted_variance(
    differ: Differ, R: int, A: int, N: int, clusters: np.ndarray | None = None
) -> np.ndarray:
    """Variance of each example's or cluster's excess if its runs are permuted."""
    B = R - A
    units = N if clusters is None else int(clusters.max()) + 1
    kind = np.int32 if clusters is None else np.int64
    disagreeing = np.zeros((R, units), kind)  # predictions, with each run
    of_pairs = np.zeros(units, np.int64)  # squares of each pair's
    for r, s in itertools.combinations(range(R), 2):
        apart = differ(r, s)
        if clusters is not None:
            apart = np.bincount(clusters[apart], minlength=units)
        disagreeing[r] += apart
        disagreeing[s] += apart
        of_pairs += np.square(apart, dtype=np.int64)
    if min(A, B) == 1:
        return disagreeing.var(axis=0) * (R / ((R - 1) * (R - 2))) ** 2
    # What the mean and an effect of each run leave of the pairs' squares.
    total = disagreeing.sum(axis=0)
    squares = np.square(disagreeing).sum(axis=0, dtype=np.int64)
    left = of_pairs - (squares - np.square(total) / (2 * (R - 1))) / (R - 2)
    left[left < ROUNDING] = 0.0
    return left / (R * (R - 3) / 2) * spread(A, B)


def spread(A: int, B: int) -> float:
    """Variance of the excess if the churn of each pair has variance 1."""
    return 1 / (A * B) + 1 / (2 * A * (A - 1)) + 1 / (2 * B * (B - 1))


def class_estimates(
    scanned: Scanned,
    numbers: Numbers,
    every: Groups,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Interval]:
    """All numbers that predicted classes allow, with intervals, in their order."""
    labels = numbers.of.target if numbers.all_labelled else None
    # The seed is also that of assigning many examples or clusters to groups.
    grouping, drawing = np.random.default_rng(seed).spawn(2)
    runs = int(np.prod(scanned.shape))
    parts = partition(scanned.old.predicted.shape[1], runs, grouping, every.clusters)
    found = numbers.of_all(every)
    found |= ratios(scanned, labels, parts, every.level)
    found |= resampled(scanned, labels, parts, every.level, resamples, drawing)
    return in_order(found)
