"""Numbers that are means of scores, and the calibration error: by the bootstrap."""

import numpy as np
from scipy import special

from churn_jax.comparison.result import Interval
from churn_jax.comparison.scanned import Scanned, ScannedSide
from churn_jax.comparison.statistics.bootstrap import bca_ends, resampled_sums
from churn_jax.comparison.statistics.estimates import Estimate, difference, ratio
from churn_jax.comparison.statistics.sums import BINS, bin_gaps, value_sums

__all__ = ["resampled"]

_MOST = {"ece": 1.0, "brier": 2.0}  # that a number can be; it is never negative


def resampled(
    scanned: Scanned,
    labels: np.ndarray | None,
    group: np.ndarray,
    groups: int,
    level: float,
    resamples: int,
    seed: int | np.random.Generator,
) -> dict[str, Interval]:
    """Surrogate churn, NLL, Brier score and ECE, by the bootstrap over examples."""
    size = np.bincount(group, minlength=groups).astype(np.float64)
    numbers: dict[str, Estimate] = {}
    columns: dict[str, np.ndarray] = {}  # [G, K] to resample; a mean has one
    if scanned.surrogate is not None:
        sums = value_sums(scanned.surrogate, group, groups)
        numbers["surrogate_churn"] = ratio(sums, size[:, None, None], np.nan)
        columns["surrogate_churn"] = sums.mean(axis=(1, 2))[:, None]
    for name in ("nll", "brier", "ece") if labels is not None else ():
        for version, side in (("old", scanned.old), ("new", scanned.new)):
            sums = _side_sums(name, side, labels, group, groups)
            if sums is None:
                continue
            key = f"{name}_{version}"
            of_runs = _calibration(sums, size) if name == "ece" else _mean(sums, size)
            axis = 2 if version == "old" or scanned.paired else 1
            numbers[key] = Estimate(
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
        name: _symmetric(estimate, level)
        if name.endswith("_change")
        else _stretched(estimate, values.get(name), level, _most(name))
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


def _mean(sums: np.ndarray, size: np.ndarray) -> Estimate:
    """Means of `[G, R]` sums; infinite ones have no influence that is a number."""
    with np.errstate(invalid="ignore"):
        value = sums.sum(axis=0) / size.sum()
        influence = (sums - value * size[:, None]) / size.sum()
    return Estimate(value, influence, float(size.sum()))


def _calibration(sums: np.ndarray, size: np.ndarray) -> Estimate:
    """`sum_m |gap_m| / N` of every run, from `[G, R, BINS]`."""
    gaps = sums.sum(axis=0)
    value = np.abs(gaps).sum(axis=-1) / size.sum()
    signed = np.einsum("grm,rm->gr", sums, np.sign(gaps))
    influence = (signed - value * size[:, None]) / size.sum()
    return Estimate(value, influence, float(size.sum()))


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


def _stretched(estimate: Estimate, resampled, level: float, most: float) -> Interval:
    """The BCa interval over examples, widened by what runs add, from 0 to `most`."""
    # The bias of the calibration error may push the whole interval below the estimate.
    # A gate on an upper end below it would be easier to meet than one on the estimate,
    # so the interval is extended to hold the estimate.
    value = estimate.value
    if resampled is None or not np.isfinite(value):
        return Interval(value, np.nan, np.nan)
    low, high = bca_ends(value, resampled, estimate.of_groups(), level)
    low, high = np.minimum(low, value), np.maximum(high, value)
    known = estimate.uncertainty()
    if known.examples > 0:
        z = special.ndtri((1 + level) / 2)
        ratio_of = np.sqrt(known.total / known.examples) * known.quantile(level) / z
        low = value - (value - low) * ratio_of
        high = value + (high - value) * ratio_of
    return Interval(value, float(np.maximum(low, 0)), float(np.minimum(high, most)))


def _most(name: str) -> float:
    return _MOST.get(name.partition("_")[0], np.inf)


def _symmetric(estimate: Estimate, level: float) -> Interval:
    """Of a paired difference: `q sqrt(V)` to either side."""
    # Differences have heavy tails but hardly a skew or a bias; where BCa corrects for
    # what it sees of these in a sample, its intervals miss more often.
    value = estimate.value
    if not np.isfinite(value):
        return Interval(value, np.nan, np.nan)
    known = estimate.uncertainty()
    half = float(known.quantile(level) * np.sqrt(known.total))
    return Interval(value, value - half, value + half)
