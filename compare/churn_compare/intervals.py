"""Every number of a comparison with its confidence interval, and its test."""

import functools
from collections.abc import Iterator

import numpy as np

from churn_compare.between_runs import (
    between_runs,
    permuted_variance,
)
from churn_compare.estimates import (
    Groups,
    Numbers,
    PerExample,
    Weighted,
    all_examples,
)
from churn_compare.pair import Scanned, ScannedSide
from churn_compare.quantities import in_order
from churn_compare.result import Interval
from churn_compare.sums import partition, ratios, resampled


def intervals(
    scanned: Scanned,
    labels: np.ndarray | None,
    *,
    clusters: np.ndarray | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Interval]:
    """All numbers that these predictions allow, each with a confidence interval.

    A number is the mean over all pairs of an old and a new run. Its variance is

        V = V_examples + C_old + C_new

    where V_examples is the variance over examples of what each contributes to that mean
    and C is the spread between the runs of a side, less what their noise on the
    examples explains of it (`uncertainty`). A side with one run is taken as it is.
    Quantiles are Student's with Satterthwaite's degrees of freedom, normal ones with
    one run a side. The ends:

    * of shares and of numbers made of them: Wilson's, with as many examples as have the
      variance V; the interval of no event in N examples does not end at 0;
    * of the accuracy gain: Tango's score interval, stretched to V in the same way;
    * of changes of NLL, Brier score and ECE: `q sqrt(V)` to either side;
    * of these themselves and of surrogate churn: the bootstrap's BCa interval over
      examples, stretched by `q sqrt(V) / (z sqrt(V_examples))` and drawn to hold the
      number, which its bias may keep out where it is the ECE.

    With clusters, V_examples is G / (G - 1) times the sum over the G clusters of the
    squares of what each contributes. It has G - 1 degrees of freedom, or fewer where
    few clusters contribute most of it. The bootstrap draws clusters. Wilson's interval
    of no event has as many examples as there are clusters, and where one or two have
    all events, the variance is drawn towards that (`Uncertainty.widened`).

    Args:
        scanned: both versions after the pass.
        labels: `[N]` classes of the pair, or None.
        clusters: `[N]` from 0 to G - 1: examples of one document, user or conversation;
            None where examples are independent.
        level: of the intervals.
        resamples: of the bootstrap.
        seed: of the bootstrap, and of assigning more than 4096 examples (or clusters)
            to groups in ratios and in numbers of scores.

    Returns:
        Name to `Interval`, in the order of `QUANTITIES`. Ends are NaN where a number is
        undefined or infinite.

    Notes:
        In simulations (`benchmarks/compare_coverage.py`) 95 % intervals hold the truth
        93 to 97 times of 100 with one run a side, from 200 examples and from 1 % of
        flips on, and mostly so with 2 to 10 runs. The exceptions are ratios of few
        examples, with two or three runs a side (up to 99), and two runs that differ by
        more than the examples explain (about 92). Where runs differ by far more than
        that, up to ten runs do not show how skewed churn is between them, and 88 to 96
        of 100 hold; `Noise.of_runs` and the verdict show it. Means of heavy-tailed
        scores need more: with 200 examples of which 4 differ, 90 for surrogate churn.
        The calibration error of few examples is too large, and so are its intervals.

    Example:
        >>> from churn_compare.pair import ScannedSide
        >>> old = ScannedSide(np.array([[0, 1, 1, 0]]))
        >>> new = ScannedSide(np.array([[0, 1, 0, 0]]))
        >>> found = intervals(Scanned(old, new), None)
        >>> list(found), found["churn"].value
        (['churn', 'kappa'], 0.25)
        >>> round(found["churn"].low, 3), round(found["churn"].high, 3)  # 1 of 4
        (0.046, 0.699)

    References:
        [bootstrap] Eqs. 2.3, 6.6 -- Efron, Better Bootstrap Confidence Intervals, JASA
        1987. https://doi.org/10.1080/01621459.1987.10478410
        [wilson] p. 209 -- Wilson, Probable Inference, the Law of Succession, and
        Statistical Inference, JASA 1927. https://doi.org/10.1080/01621459.1927.10502953
        [tango] Eq. 11 -- Tango, Equivalence test and confidence interval for the
        difference in proportions for the paired-sample design, Statistics in Medicine
        1998. https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8%3C891::AID-SIM780%3E3.0.CO;2-B
        [satterthwaite] p. 111 -- Satterthwaite, An Approximate Distribution of
        Estimates of Variance Components, Biometrics Bulletin 1946.
        https://doi.org/10.2307/3002019
    """
    every = all_examples(scanned.old.predicted.shape[1], clusters, level)
    numbers = ClassNumbers(scanned, labels)
    return estimates(numbers, every, resamples=resamples, seed=seed)


def estimates(
    numbers: "ClassNumbers", every: Groups, *, resamples: int, seed: int
) -> dict[str, Interval]:
    """`intervals`, of what every example adds."""
    scanned = numbers.scanned
    labels = numbers.labels if numbers.all_labelled else None
    grouping, drawing = np.random.default_rng(seed).spawn(2)
    runs = int(np.prod(scanned.shape))
    parts = partition(scanned.old.predicted.shape[1], runs, grouping, every.clusters)
    found = {name: of.of(0) for name, of in numbers.intervals(every).items()}
    found |= ratios(scanned, labels, parts, every.level)
    found |= resampled(scanned, labels, parts, every.level, resamples, drawing)
    return in_order(found)


class ClassNumbers(Numbers):
    """What every example adds to churn and, with labels, to accuracy and flips."""

    def __init__(self, scanned: Scanned, labels: np.ndarray | None):
        self.scanned, self.labels = scanned, labels
        self.judged = labels is not None
        self.runs = np.concatenate([scanned.old.predicted, scanned.new.predicted])
        self.A = len(scanned.old.predicted)
        shape, N = scanned.shape, self.runs.shape[1]
        sums = np.zeros((3 if self.judged else 1, N), np.int32)
        of_runs = [np.zeros((len(sums), R, N), np.int16) for R in shape if R > 1]
        sides = [side for side, R in enumerate(shape) if R > 1]
        for at, before, after in scanned.pairs():
            values = [before != after]
            if self.judged:
                was, now = before == labels, after == labels
                values += [was & ~now, now & ~was]
            for k, value in enumerate(values):
                sums[k] += value
                for side, runs in zip(sides, of_runs, strict=True):
                    runs[k, at[side]] += value
        pairs = int(np.prod(shape))
        found = [
            PerExample(
                of / pairs if pairs > 1 else of.astype(np.int8),
                tuple((Weighted(runs.shape[1] / pairs, runs[k]),) for runs in of_runs),
            )
            for k, of in enumerate(sums)
        ]
        self.changed = found[0]
        if self.judged:
            self.worse, self.better = found[1:]
            self.gain = self.better - self.worse
            self.old, self.new = map(self._right, (scanned.old, scanned.new))
        if len(self.runs) > 2:
            self._between()

    def _between(self) -> None:
        """What runs of one version change."""
        runs, A, R = self.runs, self.A, len(self.runs)
        found = between_runs(lambda r, s: runs[r] != runs[s], A, R, self.changed)
        self.within, self.expected, self.beyond = found
        if not self.judged or self.scanned.paired:
            return
        right = runs == self.labels
        flips = self.worse + self.better
        found = between_runs(lambda r, s: right[r] != right[s], A, R, flips)
        self.expected_flips = found.expected * 0.5
        self.beyond_flips = found.beyond

    @functools.cached_property
    def _equal(self) -> np.ndarray:
        return self._permuted(self.runs, None)

    def _permuted(self, runs: np.ndarray, clusters: np.ndarray | None) -> np.ndarray:
        R, N = runs.shape
        return permuted_variance(
            lambda r, s: runs[r] != runs[s], R, self.A, N, clusters
        )

    def equal(self, groups: Groups) -> np.ndarray | None:
        """What units add to the variance of the excess if both versions are equal."""
        if self.scanned.paired:
            return None
        if groups.cell is None:
            return self._equal[groups.rows]
        return self._permuted(self.runs[:, groups.rows], groups.cell)

    def equal_flips(self, groups: Groups) -> np.ndarray | None:
        """The same of the excess of negative and positive flips together."""
        assert self.labels is not None
        right = self.runs[:, groups.rows] == self.labels[groups.rows]
        return self._permuted(right, groups.cell)

    def _right(self, side: ScannedSide) -> PerExample:
        right = side.predicted == self.labels
        runs = ((Weighted(1.0, right.view(np.int8)),),) if len(right) > 1 else ()
        mean = right.mean(axis=0) if runs else right[0].view(np.int8)
        return PerExample(mean, runs)

    def nets(self) -> Iterator[np.ndarray]:
        """Of every pair of runs."""
        for _, before, after in self.scanned.pairs():
            yield (after == self.labels).astype(np.int8) - (before == self.labels)
