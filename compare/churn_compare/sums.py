"""Numbers that are functions of sums over examples, and the bootstrap."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from churn_compare.estimates import (
    Uncertainty,
    left_out,
    run_part,
    share_ends,
    uncertainty,
)
from churn_compare.pair import Scanned
from churn_compare.result import Interval

BINS = 15  # bins of the calibration error, as in `metrics.expected_calibration_error`
_GROUPS = 4096
_NUMBERS = 2**20  # most groups times pairs of runs, for one kind of sum
_BLOCK = 2**20  # weights at a time: 8 MiB
_NEAR = 1e-12  # so small a share of a number is rounding
_MOST = {"ece": 1.0, "brier": 2.0}  # largest possible numbers; the least is 0


class Partition(NamedTuple):
    """Groups of examples that are resampled together."""

    group: np.ndarray  # `[N]` below `groups`
    groups: int
    clusters: int = 0  # number of clusters; 0 for independent examples

    def units(self, examples: float) -> float:
        """Number of independent units in `examples`; fewer with clusters."""
        if not self.clusters:
            return examples
        return examples * self.clusters / max(len(self.group), 1)


def partition(
    examples: int,
    pairs: int,
    seed: int | np.random.Generator,
    clusters: np.ndarray | None = None,
) -> Partition:
    """Divides the examples, or their clusters, into groups."""
    # More than 4096 of them (fewer with over 256 pairs of runs) are assigned to groups
    # at random. The variance over groups estimates that over examples; with 4095
    # degrees of freedom its error is about 1 % of an interval's width.
    units = examples if clusters is None else int(clusters.max(initial=-1)) + 1
    groups, group = min(_GROUPS, max(512, _NUMBERS // pairs), units), np.arange(units)
    if units > groups:
        group = np.random.default_rng(seed).permutation(units) % groups
    if clusters is None:
        return Partition(group, groups)
    return Partition(group[clusters], groups, units)


@dataclasses.dataclass(frozen=True, eq=False)
class Statistic:
    """A number for every pair of runs, with its influence function."""

    # `[R_old, R_new]`, with size 1 for a version whose runs do not matter, or `[R, 1]`
    # if runs are paired; NaN where it is undefined
    matrix: np.ndarray
    # `[G, R_old, R_new]` first-order effect of each group of examples; sums to 0 over
    # the groups
    influence: np.ndarray
    examples: float  # number of examples in the denominator, mean over pairs

    @property
    def value(self) -> float:
        """Mean over pairs of runs; NaN if it is undefined for all pairs."""
        known = self.matrix[~np.isnan(self.matrix)]
        return float(known.mean()) if known.size else np.nan

    def of_groups(self) -> np.ndarray:
        """Effect of each group on the mean over pairs, `[G]`."""
        return self.influence.mean(axis=(1, 2))

    @property
    def bearing(self) -> float:
        """Effective number of groups that move the number; infinite if none does."""
        squares = np.square(self.of_groups())
        fourth = np.square(squares).sum()
        return squares.sum() ** 2 / fourth if fourth > 0 else np.inf

    def uncertainty(self, clusters: int = 0, *, mean: bool = False) -> Uncertainty:
        """Uncertainty of the mean over pairs; `clusters` as in `Partition`.

        With `mean`, quantiles of independent examples are those of a t-test.
        """
        of_groups = self.of_groups()
        examples = np.sum(np.square(of_groups))
        known = np.where(np.isnan(self.matrix), self.value, self.matrix)
        parts = []
        for other in (1, 0):
            if (R := known.shape[1 - other]) > 1:  # runs of the side that is kept
                of_runs = self.influence.mean(axis=1 + other) - of_groups[:, None]
                noise = np.sum(np.square(of_runs)) / (R * (R - 1))
                parts.append(run_part(known.mean(axis=other), noise))
        bearing = self.bearing if clusters else np.inf
        units = clusters or len(of_groups) * mean
        return uncertainty(examples, *parts, clusters=units, bearing=bearing)


def ratio(
    above: np.ndarray, below: np.ndarray, empty: float, clusters: int = 0
) -> Statistic:
    """`sum_g above / sum_g below` for every pair of runs."""
    total, of = above.sum(axis=0), np.broadcast_to(below, above.shape).sum(axis=0)
    some = of > 0
    safe = np.where(some, of, 1.0)
    value = total / safe
    influence = np.where(some, (above - value * below) / safe, 0.0)
    if clusters:
        influence *= left_out(below / safe, len(above))
    return _of_defined(np.where(some, value, empty), influence, of)


def _of_defined(
    value: np.ndarray, influence: np.ndarray, examples: np.ndarray
) -> Statistic:
    """A number whose undefined pairs have the mean influence of the others."""
    known = ~np.isnan(value)
    if not known.any():
        return Statistic(value, influence, 0.0)
    mean = influence[:, known].mean(axis=1)
    influence = np.where(known, influence, mean[:, None, None])
    return Statistic(value, influence, float(examples[known].mean()))


def relative(flips: Statistic, old: Statistic, new: Statistic) -> Statistic:
    """`flips / (old new)` of three shares of all examples; NaN if one is 0."""
    some = (old.matrix > 0) & (new.matrix > 0)
    a, b = (np.where(some, of.matrix, 1.0) for of in (old, new))
    value = np.where(some, flips.matrix / (a * b), np.nan)
    of_rest = np.where(some, value, 0.0) * (old.influence / a + new.influence / b)
    influence = np.where(some, flips.influence / (a * b) - of_rest, 0.0)
    return _of_defined(value, influence, new.matrix * new.examples)


def difference(old: Statistic, new: Statistic) -> Statistic:
    """New minus old for every pair of runs."""
    # If a run's number is infinite, so is the difference of the means over runs; it is
    # NaN if both means are infinite.
    if np.all(np.isfinite(old.matrix)) and np.all(np.isfinite(new.matrix)):
        influence = new.influence - old.influence
        return Statistic(new.matrix - old.matrix, influence, new.examples)
    with np.errstate(invalid="ignore"):
        value = np.full((1, 1), np.subtract(new.value, old.value))
    return Statistic(value, np.full((1, 1, 1), np.nan), new.examples)


def _flip_sums(
    scanned: Scanned, labels: np.ndarray | None, group: np.ndarray, groups: int
) -> np.ndarray:
    """`[K, G, R_old, R_new]`: changed, chance agreement; negative, positive, both."""
    # Chance is for Cohen's kappa, linear in the examples. With f and g the frequencies
    # of the classes that either version predicts, chance agreement is e = sum_c f(c)
    # g(c). An example predicted as c and d contributes g(c) + f(d) - e, its derivative
    # with respect to the example's weight; these add up to N e.
    sides = scanned.old.predicted, scanned.new.predicted
    classes = int(max(side.max(initial=0) for side in sides)) + 1
    out = np.empty((2 if labels is None else 5, groups, *scanned.shape))
    for (a, b), *both in scanned.pairs():
        before, after = both
        of_old, of_new = (np.bincount(run, minlength=classes) for run in both)
        of_old, of_new = of_old / len(group), of_new / len(group)
        chance = of_new[before] + of_old[after] - of_old @ of_new
        events = [before != after]
        if labels is not None:
            was, now = before == labels, after == labels
            events += [was & ~now, now & ~was, was & now]
        sums = [np.bincount(group[event], minlength=groups) for event in events]
        sums.insert(1, np.bincount(group, chance, groups))
        out[..., a, b] = sums
    return out


def ratios(
    scanned: Scanned, labels: np.ndarray | None, parts: Partition, level: float
) -> dict[str, Interval]:
    """Cohen's kappa and shares of a random number of examples, with intervals."""
    size = np.bincount(parts.group, minlength=parts.groups)[:, None, None]
    of_flips = _flip_sums(scanned, labels, parts.group, parts.groups)
    changed, chance = of_flips[:2]
    over = functools.partial(ratio, clusters=parts.clusters)
    beyond_chance = over(changed, size - chance, np.nan)  # 1 - kappa
    most = float(size.sum() / max(np.mean(np.sum(size - chance, axis=0)), 1e-9))
    examples = float(size.sum())
    lost = _part(beyond_chance, level, parts, most=most, examples=examples)
    found = {"kappa": Interval(1 - lost.value, 1 - lost.high, 1 - lost.low)}
    if labels is None:
        return found
    negative, positive, both = of_flips[2:]
    right, wrong = both + negative, size - both - positive
    most = float(size.sum() / max(right.sum(axis=0).mean(), 1.0))
    parts_of = {
        "backward_trust_compatibility": over(both, right, 1.0),
        "backward_error_compatibility": over(wrong - negative, wrong, 1.0),
        "good_churn": over(positive, changed, np.nan),
        "bad_churn": over(negative, changed, np.nan),
        "neutral_churn": over(changed - negative - positive, changed, np.nan),
    }
    found |= {name: _part(part, level, parts) for name, part in parts_of.items()}
    shares = (over(of, size, np.nan) for of in (negative, right, wrong))
    flips = relative(*shares)
    found["relative_negative_flip_rate"] = _part(flips, level, parts, most=most)
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
    # A mean over runs varies less than a binomial share; to estimate how much less from
    # few examples costs degrees of freedom.
    examples = parts.units(estimate.examples if examples is None else examples)
    known, share = estimate.uncertainty(parts.clusters), estimate.value / most
    binomial = share * (1 - share) * most**2 / max(examples, 1.0)
    several = estimate.influence[0].size > 1 and not known.alone
    if several and binomial > 0 and known.total > 0:
        less = max(1 - known.examples / binomial, 0.0)
        tail = max(1 / estimate.bearing - 1 / len(estimate.influence), 0.0)
        unsure = tail * less * np.square(known.examples / known.total) / 2
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


def resampled(
    scanned: Scanned,
    labels: np.ndarray | None,
    parts: Partition,
    level: float,
    resamples: int,
    seed: int | np.random.Generator,
) -> dict[str, Interval]:
    """Surrogate churn, KL, NLL, Brier score, ECE and changes, with intervals."""
    size = np.bincount(parts.group, minlength=parts.groups).astype(np.float64)
    numbers: dict[str, Statistic] = {}
    columns: dict[str, np.ndarray] = {}  # [G, K] to resample; a mean has one
    of_rest = left_out(size / size.sum(), max(parts.groups, 2))
    for name, sums in _score_sums(scanned, labels, parts.group, parts.groups):
        total, binned = sums.sum(axis=0), sums.shape[-1] > 1
        sign = np.sign(total) if binned else 1.0
        with np.errstate(invalid="ignore"):  # infinite means have no finite influence
            value = (sign * total).sum(axis=-1) / size.sum()
            moved = (sign * sums).sum(axis=-1) - value * size[:, None, None]
            moved *= of_rest[:, None, None]
        numbers[name] = Statistic(value, moved / size.sum(), float(size.sum()))
        finite = np.all(np.isfinite(sums))
        if finite:
            flat = sums.reshape(parts.groups, -1)
            columns[name] = flat if binned else flat.mean(axis=1, keepdims=True)
    drawn = _resample(columns, size, resamples, seed)
    for name in ("nll", "brier", "ece"):
        old, new = f"{name}_old", f"{name}_new"
        if old in numbers and new in numbers:
            numbers[f"{name}_change"] = difference(numbers[old], numbers[new])
    return {
        name: _ends(name, estimate, drawn.get(name), level, parts.clusters, of_rest)
        for name, estimate in numbers.items()
    }


def _score_sums(
    scanned: Scanned, labels: np.ndarray | None, group: np.ndarray, groups: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Names and sums `[G, R_old, R_new, 1]`; for ECE, `[G, R_old, R_new, BINS]`."""
    of_pairs = {"surrogate_churn": scanned.surrogate, "kl_divergence": scanned.kl}
    for name, values in of_pairs.items():
        if values is not None:
            yield name, value_sums(values, group, groups)[..., None]
    sides = {"old": scanned.old, "new": scanned.new}
    for version, side in sides.items() if labels is not None else ():
        axis = 2 if version == "old" or scanned.paired else 1
        of_side = {"nll": side.label_log_prob, "brier": side.brier}
        for name, values in of_side.items():
            if values is not None:
                sums = value_sums(values, group, groups)[..., None]
                sums = -sums if name == "nll" else sums
                yield f"{name}_{version}", np.expand_dims(sums, axis)
        if side.confidence is None:
            continue
        # Right predictions minus confidence, in each bin of the confidence.
        gaps = np.empty((groups, len(side.predicted), BINS))
        for r, confidence in enumerate(side.confidence):
            place = group * BINS + bins_of(confidence)
            gap = (side.of_scores[r] == labels) - confidence.astype(np.float64)
            sums = np.bincount(place, gap, groups * BINS)
            gaps[:, r] = sums.reshape(groups, BINS)
        yield f"ece_{version}", np.expand_dims(gaps, axis)


def value_sums(values: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """Sums `[G, ...]` float64 of values `[..., N]` over groups."""
    lead = values.shape[:-1]
    rows = values.reshape(-1, values.shape[-1])
    out = np.empty((groups, len(rows)))
    for r, row in enumerate(rows):
        out[:, r] = np.bincount(group, row, groups)
    return out.reshape(groups, *lead)


def bins_of(confidence: np.ndarray) -> np.ndarray:
    """The bin `((m - 1)/15, m/15]` of each top probability, from 0."""
    edges = (np.arange(1, BINS) / BINS).astype(np.float32)
    return np.searchsorted(edges, confidence.astype(np.float32, copy=False))


def _resample(columns, size, resamples, seed) -> dict[str, np.ndarray]:
    """Values `[resamples]` of each column, from groups drawn with replacement."""
    if not columns:
        return {}
    ends = np.cumsum([1, *(v.shape[1] for v in columns.values())])
    table = np.concatenate([size[:, None], *columns.values()], axis=1)
    found: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    groups, rng = len(table), np.random.default_rng(seed)
    block = max(1, _BLOCK // groups)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = rng.integers(groups, size=(rows, groups))
        drawn += groups * np.arange(rows)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=rows * groups)
        sums = weights.reshape(rows, groups).astype(np.float64) @ table
        for name, first, last in zip(columns, ends[:-1], ends[1:], strict=True):
            part, runs = sums[:, first:last], 1
            if "ece" in name:
                part, runs = np.abs(part), part.shape[1] // BINS
            found[name].append(part.sum(axis=1) / (runs * sums[:, 0]))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def bca_ends(
    value: float, resampled: np.ndarray, influence: np.ndarray, level: float
) -> tuple[float, float]:
    """Bias-corrected and accelerated ends of a bootstrap interval."""
    # Efron (JASA 1987), Eqs. 2.3 and 6.6: quantiles of the resampled values at Phi(z0 +
    # (z0 + z) / (1 - a (z0 + z))), with z0 = Phi^-1(share of them below the estimate)
    # and a = sum u^3 / (6 (sum u^2)^1.5).
    count = len(resampled)
    close = 1e-12 * max(1.0, abs(value))  # equal up to the order of summation
    below = np.mean(resampled < value - close)
    ties = np.mean(np.abs(resampled - value) <= close)
    share = np.clip(below + ties / 2, 0.5 / count, 1 - 0.5 / count)
    z0 = special.ndtri(share)
    square = np.sum(np.square(influence))
    cube = np.sum(influence**3)
    acceleration = cube / (6 * square**1.5) if square > 0 else 0.0
    z = special.ndtri((1 + level) / 2) * np.array([-1.0, 1.0])
    at = special.ndtr(z0 + (z0 + z) / (1 - acceleration * (z0 + z)))
    low, high = np.quantile(resampled, at)
    return float(low), float(high)


def _ends(
    name: str,
    estimate: Statistic,
    drawn: np.ndarray | None,
    level: float,
    clusters: int,
    of_rest: np.ndarray,
) -> Interval:
    """BCa interval over examples, widened by runs; symmetric for changes."""
    value, change = estimate.value, name.endswith("_change")
    if not np.isfinite(value) or (drawn is None and not change):
        return Interval(value, np.nan, np.nan)
    known = estimate.uncertainty(clusters, mean=True)
    error = np.sqrt(known.total)
    if np.sqrt(known.examples) <= _NEAR * abs(value):
        # Examples that are all alike do not show how far others may lie; numbers that
        # do not change on any example are those of the same model.
        same = value == error == 0 and not name.endswith(("_old", "_new"))
        return Interval(value, *([value] * 2 if same else [np.nan] * 2))
    half = float(known.quantile(level) * error)
    if drawn is None:
        # Differences have heavy tails but hardly any skew or bias; BCa intervals, which
        # correct for the sample's skew and bias, miss more often.
        return Interval(value, value - half, value + half)
    # The bias of the calibration error may push the whole interval below the estimate.
    # A gate on an upper end below it would be easier to meet than one on the estimate,
    # so the interval is extended to hold the estimate.
    of_groups = estimate.of_groups() / of_rest  # the bootstrap leaves nothing out
    low, high = bca_ends(value, drawn, of_groups, level)
    below, above = max(value - low, 0.0), max(high - value, 0.0)
    if (of_examples := np.sum(np.square(of_groups))) > 0:
        stretch = half / (special.ndtri((1 + level) / 2) * np.sqrt(of_examples))
        below, above = below * stretch, above * stretch
    most = _MOST.get(name.partition("_")[0], np.inf)
    low, high = max(value - below, 0.0), min(value + above, most)
    return Interval(value, float(low), float(high))
