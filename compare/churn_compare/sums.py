"""Sums over groups of examples, of which every number is a function; the bootstrap."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from churn_compare.pair import Scanned, ScannedSide

BINS = 15  # of the calibration error, as in `metrics.expected_calibration_error`
_GROUPS = 4096
_NUMBERS = 2**20  # groups times pairs of runs, for one kind of sum


class Partition(NamedTuple):
    """Groups of examples that are resampled together."""

    group: np.ndarray  # `[N]` below `groups`
    groups: int
    clusters: int = 0  # that the groups consist of; 0 for independent examples

    def units(self, examples: float) -> float:
        """Independent units that so many examples are; fewer with clusters."""
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
    # More than 4096 of them are assigned at random, so that the variance over groups
    # is in expectation that over examples, with the error that 4095 degrees of freedom
    # leave: about 1 % of an interval's width.
    groups = min(_GROUPS, max(512, _NUMBERS // pairs))
    units = examples if clusters is None else int(clusters.max(initial=-1)) + 1
    if units <= groups:
        group, groups = np.arange(units), units
    else:
        group = np.random.default_rng(seed).permutation(units) % groups
    if clusters is None:
        return Partition(group, groups)
    return Partition(group[clusters], groups, units)


def chance_sums(scanned: Scanned, group: np.ndarray, groups: int) -> np.ndarray:
    """Agreement by chance for Cohen's kappa, linear in the examples."""
    # With f and g the frequencies of the classes that either version predicts, chance
    # agreement is e = sum_c f(c) g(c). An example predicted as c and d contributes g(c)
    # + f(d) - e, its derivative with respect to the example's weight; these add up to N
    # e.
    old, new = scanned.old.predicted, scanned.new.predicted
    classes = int(max(old.max(initial=0), new.max(initial=0))) + 1
    examples = old.shape[1]
    sizes = np.bincount(group, minlength=groups)
    out = np.empty((groups, *scanned.shape))
    for (a, b), before, after in scanned.pairs():
        of_old, of_new = (
            np.bincount(run, minlength=classes) / examples for run in (before, after)
        )
        agreement = of_new[before] + of_old[after]
        chance = of_old @ of_new
        out[:, a, b] = np.bincount(group, agreement, groups) - chance * sizes
    return out


def value_sums(values: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """Sums `[G, ...]` float64 over groups of values `[..., N]`."""
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


def bin_gaps(
    side: ScannedSide, labels: np.ndarray, group: np.ndarray, groups: int
) -> np.ndarray:
    """Right predictions minus confidence, summed in each bin of the confidence."""
    assert side.confidence is not None
    out = np.empty((groups, len(side.predicted), BINS))
    for r, confidence in enumerate(side.confidence):
        member = bins_of(confidence)
        gap = (side.of_scores[r] == labels) - confidence.astype(np.float64)
        sums = np.bincount(group * BINS + member, gap, groups * BINS)
        out[:, r] = sums.reshape(groups, BINS)
    return out


_BLOCK = 2**20  # weights at a time: 8 MiB


def resampled_sums(
    sums: np.ndarray, resamples: int, seed: int | np.random.Generator
) -> Iterator[np.ndarray]:
    """Sums over as many groups as there are, drawn with replacement."""
    groups = len(sums)
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // groups)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = rng.integers(groups, size=(rows, groups))
        drawn += groups * np.arange(rows)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=rows * groups)
        yield weights.reshape(rows, groups).astype(np.float64) @ sums


def bca_ends(
    value: float, resampled: np.ndarray, influence: np.ndarray, level: float
) -> tuple[float, float]:
    """Bias-corrected and accelerated ends of a bootstrap interval."""
    # Efron (JASA 1987), Eqs. 2.3 and 6.6: quantiles of the resampled values at Phi(z0 +
    # (z0 + z) / (1 - a (z0 + z))), with z0 = Phi^-1(share of them below the estimate)
    # and a = sum u^3 / (6 (sum u^2)^1.5).
    if not (np.isfinite(value) and np.all(np.isfinite(resampled))):
        return np.nan, np.nan
    count = len(resampled)
    close = 1e-12 * max(1.0, abs(value))  # equal but for the order of a sum
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
