"""Means over runs and over pairs of runs, with how far they can be trusted.

Numbers of single runs carry the standard deviation over runs and `std / sqrt(R)`.
Numbers of pairs of runs are averaged over all unordered pairs; pairs share runs, so
their standard error leaves out one run at a time.
"""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

from churn_jax import metrics
from churn_jax.analysis.significance import jackknife_stderr

__all__ = ["Estimate", "over_pairs", "over_runs", "relative_difference"]

BLOCK_NUMBERS = 2**24  # logits held at once for one block of examples


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean with its spread; NaN where there are too few runs for it.

    Attributes:
        mean: over runs, or over all unordered pairs of runs.
        std: standard deviation over those runs (dividing by `R - 1`) or those pairs
            (dividing by their number, as `summarize_pairs` does).
        stderr: standard error of `mean`: `std / sqrt(R)` over runs, the
            leave-one-run-out jackknife over pairs.
    """

    mean: float
    std: float
    stderr: float


def over_runs(values: np.ndarray) -> Estimate:
    """Of one number per run, `[R]`.

    Example:
        >>> over_runs(np.array([1.0, 2.0, 3.0]))
        Estimate(mean=2.0, std=1.0, stderr=0.5773502691896258)
    """
    runs = len(values)
    std = float(values.std(ddof=1)) if runs > 1 else np.nan
    return Estimate(float(values.mean()), std, float(std / np.sqrt(runs)))


def over_pairs(matrices: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Of numbers of pairs of runs, each `[R, R]` and symmetric; NaN with one run."""
    stack = np.stack(list(matrices.values())).astype(np.float32)
    if stack.shape[1] < 2:
        return dict.fromkeys(matrices, Estimate(np.nan, np.nan, np.nan))
    summary = jax.device_get(_summarize_each(stack))
    std = summary.std if stack.shape[1] > 2 else [np.nan] * len(stack)  # one pair
    numbers = zip(summary.mean, std, summary.stderr, strict=True)
    return {
        name: Estimate(*map(float, number))
        for name, number in zip(matrices, numbers, strict=True)
    }


@jax.jit
def _summarize_each(stack):
    return jax.vmap(metrics.summarize_pairs)(stack)


def relative_difference(logits: np.ndarray) -> Estimate:
    """`Delta^r` of all runs together; its jackknife leaves one run out of the set.

    Args:
        logits: `[R, N, C]`.
    """
    runs = len(logits)
    if runs < 2:
        return Estimate(np.nan, np.nan, np.nan)
    value = _relative_of(logits)
    if runs < 3:
        return Estimate(value, np.nan, np.nan)
    without = [_relative_of(np.delete(logits, r, axis=0)) for r in range(runs)]
    stderr = jackknife_stderr(np.array(without))
    return Estimate(value, stderr * np.sqrt(runs), stderr)


_relative = jax.jit(metrics.relative_prediction_difference)


def _relative_of(logits) -> float:
    """`Delta^r` over blocks of examples, so that large sets fit; it is a mean."""
    runs, examples, num_classes = logits.shape
    size = max(1, BLOCK_NUMBERS // (runs * num_classes))
    total = 0.0
    for start in range(0, examples, size):
        block = logits[:, start : start + size]
        total += float(_relative(block)) * block.shape[1]
    return total / examples
