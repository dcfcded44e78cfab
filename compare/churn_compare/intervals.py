"""Every number of a comparison with its confidence interval, and its test."""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
from scipy import special

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
from churn_compare.flip_counts import count_flips_by_group
from churn_compare.pair import Scanned, ScannedSide
from churn_compare.quantities import in_order
from churn_compare.result import Interval
from churn_compare.sums import (
    BINS,
    Partition,
    bca_ends,
    bin_gaps,
    chance_sums,
    partition,
    resampled_sums,
    value_sums,
)
from churn_compare.uncertainty import (
    Statistic,
    difference,
    ratio,
    relative,
    share_ends,
)


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


def ratios(
    scanned: Scanned, labels: np.ndarray | None, parts: Partition, level: float
) -> dict[str, Interval]:
    """Kappa and shares of a part of the examples, which varies."""
    sides = scanned.old.predicted, scanned.new.predicted
    flips = count_flips_by_group(
        *sides, labels, parts.group, parts.groups, paired=scanned.paired
    )
    size, changed = flips.examples[:, None, None], flips.changed
    chance = chance_sums(scanned, parts.group, parts.groups)
    beyond_chance = ratio(changed, size - chance, np.nan)  # 1 - kappa
    most = float(size.sum() / max(np.mean(np.sum(size - chance, axis=0)), 1e-9))
    examples = float(size.sum())
    lost = _part(beyond_chance, level, parts, most=most, examples=examples)
    found = {"kappa": Interval(1 - lost.value, 1 - lost.high, 1 - lost.low)}
    if labels is None:
        return found
    negative, positive, both = flips.negative, flips.positive, flips.both
    right, wrong = both + negative, size - both - positive
    most = float(size.sum() / max(right.sum(axis=0).mean(), 1.0))
    parts_of = {
        "backward_trust_compatibility": ratio(both, right, 1.0),
        "backward_error_compatibility": ratio(wrong - negative, wrong, 1.0),
        "good_churn": ratio(positive, changed, np.nan),
        "bad_churn": ratio(negative, changed, np.nan),
        "neutral_churn": ratio(flips.neutral, changed, np.nan),
    }
    found |= {name: _part(part, level, parts) for name, part in parts_of.items()}
    found["relative_negative_flip_rate"] = _part(
        relative(negative, right, wrong, size), level, parts, most=most
    )
    return found


def _part(
    estimate: Statistic,
    level: float,
    parts: Partition,
    *,
    most: float = 1.0,
    examples: float | None = None,
) -> Interval:
    """The interval of a number from 0 to `most` whose denominator varies."""
    # Means over many runs vary less than binomial shares. How much less is not well
    # known where the denominator holds few examples, which costs degrees of freedom.
    examples = parts.units(estimate.examples if examples is None else examples)
    known, share = estimate.uncertainty(parts.clusters), estimate.value / most
    binomial = share * (1 - share) * most**2 / max(examples, 1.0)
    several = estimate.influence[0].size > 1 and not known.alone
    if several and binomial > 0 and known.total > 0:
        less = max(1 - known.examples / binomial, 0.0)
        unsure = estimate.tail() * less * np.square(known.examples / known.total) / 2
        freedom = 1 / np.maximum(1 / known.freedom + unsure, 1e-12)
        known = dataclasses.replace(known, freedom=np.asarray(freedom))
    if not examples or np.isnan(estimate.value):
        return Interval(estimate.value, np.nan, np.nan)
    share = min(max(share, 0.0), 1.0)
    low, high = share_ends(
        np.array(estimate.value / most),
        known.widened(share * (1 - share) * most**2 / examples) / most**2,
        known.quantile(level),
        np.array(examples),
    )
    return Interval(estimate.value, float(low) * most, float(high) * most)


_MOST = {"ece": 1.0, "brier": 2.0}  # that a number can be; it is never negative


def resampled(
    scanned: Scanned,
    labels: np.ndarray | None,
    parts: Partition,
    level: float,
    resamples: int,
    seed: int | np.random.Generator,
) -> dict[str, Interval]:
    """Surrogate churn, NLL, Brier score and ECE, by the bootstrap over examples."""
    group, groups, clusters = parts
    size = np.bincount(group, minlength=groups).astype(np.float64)
    numbers: dict[str, Statistic] = {}
    columns: dict[str, np.ndarray] = {}  # [G, K] to resample; a mean has one
    for name, values in (
        ("surrogate_churn", scanned.surrogate),
        ("kl_divergence", scanned.kl),
    ):
        if values is not None:
            sums = value_sums(values, group, groups)
            numbers[name] = ratio(sums, size[:, None, None], np.nan)
            columns[name] = sums.mean(axis=(1, 2))[:, None]
    for name in ("nll", "brier", "ece") if labels is not None else ():
        for version, side in (("old", scanned.old), ("new", scanned.new)):
            sums = _side_sums(name, side, labels, group, groups)
            if sums is None:
                continue
            key = f"{name}_{version}"
            of_runs = _calibration(sums, size) if name == "ece" else _mean(sums, size)
            axis = 2 if version == "old" or scanned.paired else 1
            numbers[key] = Statistic(
                np.expand_dims(of_runs.matrix, axis - 1),
                np.expand_dims(of_runs.influence, axis),
                of_runs.examples,
            )
            columns[key] = sums.reshape(groups, -1)
            if name != "ece":
                columns[key] = columns[key].mean(axis=1, keepdims=True)
    values = _resample(columns, size, resamples, seed)
    for name in ("nll", "brier", "ece"):
        old, new = f"{name}_old", f"{name}_new"
        if old in numbers and new in numbers:
            numbers[f"{name}_change"] = difference(numbers[old], numbers[new])
    return {
        name: _symmetric(estimate, level, clusters)
        if name.endswith("_change")
        else _stretched(
            estimate,
            values.get(name),
            level,
            _MOST.get(name.partition("_")[0], np.inf),
            clusters,
        )
        for name, estimate in numbers.items()
    }


def _side_sums(name: str, side: ScannedSide, labels, group, groups):
    """`[G, R]` sums, `[G, R, BINS]` of the calibration error; None without scores."""
    if name == "ece":
        known = side.confidence is not None
        return bin_gaps(side, labels, group, groups) if known else None
    if name == "brier":
        return None if side.brier is None else value_sums(side.brier, group, groups)
    if side.label_log_prob is None:
        return None
    return -value_sums(side.label_log_prob, group, groups)


def _mean(sums: np.ndarray, size: np.ndarray) -> Statistic:
    """Means of `[G, R]` sums; infinite ones have no finite influence."""
    with np.errstate(invalid="ignore"):
        value = sums.sum(axis=0) / size.sum()
        influence = (sums - value * size[:, None]) / size.sum()
    return Statistic(value, influence, float(size.sum()))


def _calibration(sums: np.ndarray, size: np.ndarray) -> Statistic:
    """`sum_m |gap_m| / N` of every run, from `[G, R, BINS]`."""
    gaps = sums.sum(axis=0)
    value = np.abs(gaps).sum(axis=-1) / size.sum()
    signed = np.einsum("grm,rm->gr", sums, np.sign(gaps))
    influence = (signed - value * size[:, None]) / size.sum()
    return Statistic(value, influence, float(size.sum()))


def _resample(columns, size, resamples, seed) -> dict[str, np.ndarray]:
    """Resampled values `[resamples]` of everything finite."""
    columns = {k: v for k, v in columns.items() if np.all(np.isfinite(v))}
    if not columns:
        return {}
    ends = np.cumsum([1, *(v.shape[1] for v in columns.values())])
    table = np.concatenate([size[:, None], *columns.values()], axis=1)
    blocks: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    for drawn in resampled_sums(table, resamples, seed):
        for name, first, last in zip(columns, ends[:-1], ends[1:], strict=True):
            part = (
                np.abs(drawn[:, first:last]) if "ece" in name else drawn[:, first:last]
            )
            runs = part.shape[1] // BINS if "ece" in name else 1
            blocks[name].append(part.sum(axis=1) / (runs * drawn[:, 0]))
    return {name: np.concatenate(parts) for name, parts in blocks.items()}


def _stretched(
    estimate: Statistic, resampled, level: float, most: float, clusters: int
) -> Interval:
    """The BCa interval over examples, widened by what runs add, from 0 to `most`."""
    # The bias of the calibration error may push the whole interval below the estimate.
    # A gate on an upper end below it would be easier to meet than one on the estimate,
    # so the interval is extended to hold the estimate.
    value = estimate.value
    if resampled is None or not np.isfinite(value):
        return Interval(value, np.nan, np.nan)
    low, high = bca_ends(value, resampled, estimate.of_groups(), level)
    low, high = np.minimum(low, value), np.maximum(high, value)
    known = estimate.uncertainty(clusters)
    drawn = np.sum(np.square(estimate.of_groups()))
    if drawn > 0:
        z = special.ndtri((1 + level) / 2)
        ratio_of = np.sqrt(known.total / drawn) * known.quantile(level) / z
        low = value - (value - low) * ratio_of
        high = value + (high - value) * ratio_of
    return Interval(value, float(np.maximum(low, 0)), float(np.minimum(high, most)))


def _symmetric(estimate: Statistic, level: float, clusters: int) -> Interval:
    """The interval of a paired difference: `q sqrt(V)` on either side."""
    # Differences have heavy tails but hardly a skew or a bias; where BCa corrects for
    # what it sees of these in a sample, its intervals miss more often.
    value = estimate.value
    if not np.isfinite(value):
        return Interval(value, np.nan, np.nan)
    known = estimate.uncertainty(clusters)
    half = float(known.quantile(level) * np.sqrt(known.total))
    return Interval(value, value - half, value + half)
