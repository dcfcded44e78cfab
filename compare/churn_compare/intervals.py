"""Every number of a comparison with its confidence interval, and its test."""

import dataclasses

import numpy as np
from scipy import special

from churn_compare.estimates import Groups
from churn_compare.pair import Scanned, ScannedSide
from churn_compare.quantities import QUANTITIES
from churn_compare.result import Clusters, Interval, McNemar, Precision
from churn_compare.sums import (
    BINS,
    Partition,
    bca_ends,
    bin_gaps,
    chance_sums,
    outcome_sums,
    partition,
    resampled_sums,
    value_sums,
)
from churn_compare.uncertainty import (
    Statistic,
    Uncertainty,
    detectable_share,
    difference,
    difference_ends,
    ratio,
    relative,
    share_ends,
)

_NONE = Interval(np.nan, np.nan, np.nan)


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
            to groups.

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
    drawn = {"level": level, "resamples": resamples, "seed": seed}
    return estimates(scanned, labels, clusters=clusters, **drawn)[0]


def estimates(
    scanned: Scanned,
    labels: np.ndarray | None,
    *,
    clusters: np.ndarray | None,
    level: float,
    resamples: int,
    seed: int,
) -> tuple[dict[str, Interval], Precision | None]:
    """`intervals`, and what can be said about the accuracy; None without labels."""
    runs = len(scanned.old.predicted) * len(scanned.new.predicted)
    grouping, drawing = np.random.default_rng(seed).spawn(2)
    examples = scanned.old.predicted.shape[1]
    parts = partition(examples, runs, grouping, clusters)
    found, precision = counted(scanned, labels, parts, level)
    found |= resampled(scanned, labels, parts, level, resamples, drawing)
    return {name: found[name] for name in QUANTITIES if name in found}, precision


def mcnemar_test(
    scanned: Scanned, labels: np.ndarray | None, clusters: np.ndarray | None = None
) -> McNemar | None:
    """Are both versions equally accurate? The exact test of every pair of runs.

    Args:
        scanned: both versions.
        labels: `[N]` classes of the pair, or None.
        clusters: `[N]` as in `intervals`; p is then that of `sign_flip_exact` on the
            clusters' positive less negative flips.

    Returns:
        Mean counts and the median p over pairs of runs; None without labels. The median
        is that of a typical pair, not a test of all runs together.

    Example:
        >>> from churn_compare.pair import ScannedSide
        >>> old = ScannedSide(np.zeros((1, 7), int))
        >>> new = ScannedSide(np.array([[1, 0, 0, 0, 0, 0, 0]]))
        >>> mcnemar_test(Scanned(old, new), np.array([0, 1, 1, 1, 1, 1, 1]))
        McNemar(negative_flips=1.0, positive_flips=0.0, p=1.0, pairs=1)

    References:
        [mcnemar] pp. 153-157 -- McNemar, Note on the sampling error of the difference
        between correlated proportions or percentages, Psychometrika 1947.
        https://doi.org/10.1007/BF02295996
    """
    if labels is None:
        return None
    whole = Groups(np.zeros(len(labels), np.int64), 1, clusters)
    lost, gained, p = 0, 0, []
    for _, before, after in scanned.pairs():
        net = (after == labels).astype(np.int8) - (before == labels)
        lost += np.count_nonzero(net < 0)
        gained += np.count_nonzero(net > 0)
        p.append(whole.sign_flip(net))
    lost, gained = float(lost / len(p)), float(gained / len(p))
    return McNemar(lost, gained, float(np.median(p)), len(p))


def cluster_effect(
    scanned: Scanned,
    labels: np.ndarray | None,
    column: str,
    *,
    clusters: np.ndarray | None,
    level: float = 0.95,
    seed: int = 0,
) -> Clusters | None:
    """How many clusters there are and how much wider they make an interval."""
    if clusters is None:
        return None
    examples = scanned.old.predicted.shape[1]
    runs = len(scanned.old.predicted) * len(scanned.new.predicted)

    def known(parts: Partition) -> Uncertainty:
        flips = outcome_sums(scanned, labels, parts.group, parts.groups)
        of = flips.changed if labels is None else flips.positive - flips.negative
        found = ratio(of, flips.examples[:, None, None], np.nan)
        return found.uncertainty(parts.clusters)

    clustered = known(partition(examples, runs, seed, clusters))
    alone = known(partition(examples, runs, seed))
    some = alone.examples > 0
    effect = float(clustered.examples / alone.examples) if some else np.nan
    wider = np.sqrt(clustered.total / alone.total) if some else np.nan
    wider *= clustered.quantile(level) / alone.quantile(level)
    sizes = np.bincount(clusters)
    return Clusters(len(sizes), int(sizes.max()), effect, float(wider), column)


def counted(
    scanned: Scanned, labels: np.ndarray | None, parts: Partition, level: float
) -> tuple[dict[str, Interval], Precision | None]:
    """Shares, the accuracy gain and kappa; how well the gain is known."""
    flips = outcome_sums(scanned, labels, parts.group, parts.groups)
    size, changed = flips.examples[:, None, None], flips.changed
    found = {"churn": _share(ratio(changed, size, np.nan), level, parts)}
    chance = chance_sums(scanned, parts.group, parts.groups)
    beyond_chance = ratio(changed, size - chance, np.nan)  # 1 - kappa
    most = float(size.sum() / max(np.mean(np.sum(size - chance, axis=0)), 1e-9))
    examples = float(size.sum())
    lost = _part(beyond_chance, level, parts, most=most, examples=examples)
    found["kappa"] = Interval(1 - lost.value, 1 - lost.high, 1 - lost.low)
    if labels is None:
        return found, None
    negative, positive, both = flips.negative, flips.positive, flips.both
    right, now = both + negative, both + positive
    wrong = size - now
    of_old = ratio(right[:, :, :1], size, np.nan)
    of_new = ratio(now if scanned.paired else now[:, :1, :], size, np.nan)
    gained, lost = ratio(positive, size, np.nan), ratio(negative, size, np.nan)
    most = float(size.sum() / max(right.sum(axis=0).mean(), 1.0))
    shares = {
        "accuracy_old": of_old,
        "accuracy_new": of_new,
        "negative_flip_rate": lost,
        "positive_flip_rate": gained,
    }
    found |= {name: _share(share, level, parts) for name, share in shares.items()}
    ratios = {
        "backward_trust_compatibility": ratio(both, right, 1.0),
        "backward_error_compatibility": ratio(wrong - negative, wrong, 1.0),
        "good_churn": ratio(positive, changed, np.nan),
        "bad_churn": ratio(negative, changed, np.nan),
        "neutral_churn": ratio(flips.neutral, changed, np.nan),
    }
    found |= {name: _part(part, level, parts) for name, part in ratios.items()}
    found["relative_negative_flip_rate"] = _part(
        relative(negative, right, wrong, size), level, parts, most=most
    )
    known = difference(of_old, of_new).uncertainty(parts.clusters)
    units = parts.units(gained.examples)

    def gain(at: float) -> Interval:
        value = of_new.value - of_old.value
        low, high = difference_ends(
            np.array(gained.value),
            np.array(lost.value),
            known.widened((gained.value + lost.value - value**2) / units),
            known.quantile(at),
            np.array(units),
        )
        return Interval(value, float(low), float(high))

    found["accuracy_gain"] = gain(level)
    within = gain(2 * level - 1) if level > 0.5 else _NONE
    least = detectable_share(known, known.quantile(level), gained.examples, units)
    return found, Precision(within, least)


def _share(estimate: Statistic, level: float, parts: Partition) -> Interval:
    """Interval of a share of all examples."""
    known = estimate.uncertainty(parts.clusters)
    units = parts.units(estimate.examples)
    return _ends(estimate.value, known, level, 1.0, units)


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
    return _ends(estimate.value, known, level, most, examples)


def _ends(
    value: float, known: Uncertainty, level: float, most: float, examples: float
) -> Interval:
    if not examples or np.isnan(value):
        return Interval(value, np.nan, np.nan)
    share = min(max(value / most, 0.0), 1.0)
    low, high = share_ends(
        np.array(value / most),
        known.widened(share * (1 - share) * most**2 / examples) / most**2,
        known.quantile(level),
        np.array(examples),
    )
    return Interval(value, float(low) * most, float(high) * most)


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
