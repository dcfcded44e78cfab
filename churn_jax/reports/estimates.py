"""Means over runs and over pairs of runs, with how far they can be trusted.

Numbers of single runs carry the standard deviation over runs and `std / sqrt(R)`.
Numbers of pairs of runs are averaged over all unordered pairs; pairs share runs, so
their standard error leaves out one run at a time. So does that of numbers of all runs
as one set, the prediction differences of the second paper.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from churn_jax import metrics
from churn_jax.analysis.significance import jackknife_stderr


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean with its spread; NaN where there are too few runs for it.

    Attributes:
        mean: over runs, or over all unordered pairs of runs; or the number of the set
            of all runs.
        std: standard deviation over those runs (dividing by `R - 1`) or those pairs
            (dividing by their number, as `summarize_pairs` does).
        stderr: standard error of `mean`: `std / sqrt(R)` over runs, the
            leave-one-run-out jackknife over pairs and of sets.
        at_least: whether `mean` is only a lower bound.
    """

    mean: float
    std: float
    stderr: float
    at_least: bool = dataclasses.field(default=False, repr=False)


UNKNOWN = Estimate(np.nan, np.nan, np.nan)


def over_runs(values: Any) -> Estimate:
    """Of one number per run, `[R]`."""
    runs = len(values)
    std = float(values.std(ddof=1)) if runs > 1 else np.nan
    return Estimate(float(values.mean()), std, float(std / np.sqrt(runs)))


def over_set(value: np.ndarray, without: np.ndarray) -> Estimate:
    """Estimate of a number of all runs; `without` is `[R]`, each run left out."""
    stderr = jackknife_stderr(without)
    return Estimate(float(value), float(stderr * np.sqrt(len(without))), stderr)


def over_pairs(matrices: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Of numbers of pairs of runs, each `[R, R]` and symmetric; NaN with one run."""
    stack = np.stack(list(matrices.values())).astype(np.float32)
    if stack.shape[1] < 2:
        return dict.fromkeys(matrices, UNKNOWN)
    summary = jax.device_get(_summarize_each(stack))
    std = summary.std if stack.shape[1] > 2 else [np.nan] * len(stack)  # one pair
    return by_name(matrices, summary.mean, std, summary.stderr)


_summarize_each = jax.jit(jax.vmap(metrics.summarize_pairs))


def by_name(names: Iterable[str], *numbers: Iterable[float]) -> dict[str, Estimate]:
    """Estimates of means, deviations and standard errors in the order of the names."""
    found = zip(names, *numbers, strict=True)
    return {n: Estimate(float(m), float(s), float(e)) for n, m, s, e in found}


def set_sums(logits: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The sums of one block of examples in the numbers of sets of runs."""
    values = jax.device_get(_set_values(logits, labels.astype(np.int32)))
    # Means, so they add up over blocks.
    return {k: v.astype(np.float64) * logits.shape[1] for k, v in values.items()}


def of_set_sums(
    found: Iterable[Mapping[str, np.ndarray]], runs: int, examples: int
) -> tuple[dict[str, Estimate], dict[str, np.ndarray]]:
    """Numbers of all runs together, and without each, from the sums of all blocks."""
    unknown = np.full(runs, np.nan)
    if runs < 2:
        return dict.fromkeys(_OF_SETS, UNKNOWN), dict.fromkeys(_OF_SETS, unknown)
    totals = dict.fromkeys(_OF_SETS, 0.0)
    for sums in found:
        totals = {name: total + sums[name] for name, total in totals.items()}
    values = {name: np.asarray(total) / examples for name, total in totals.items()}
    estimates, without = {}, {}
    for name, value in values.items():
        without[name] = value[1:] if runs > 2 else unknown
        estimates[name] = over_set(value[0], without[name])
    return estimates, without


_OF_SETS = {
    "prediction_difference": lambda logits, _: metrics.prediction_difference(logits),
    "prediction_difference_2": lambda logits, _: metrics.prediction_difference(
        logits, order=2
    ),
    "relative_prediction_difference": lambda logits, _: (
        metrics.relative_prediction_difference(logits)
    ),
    "label_prediction_difference": metrics.label_prediction_difference,
}


@jax.jit
def _set_values(logits, labels):
    """Of all runs, then without each in turn: `[R + 1]`, or `[1]` of two runs."""

    def of(logits, labels):
        return {name: metric(logits, labels) for name, metric in _OF_SETS.items()}

    whole = jax.tree.map(jnp.atleast_1d, of(logits, labels))
    if logits.shape[0] == 2:
        return whole
    parts = metrics.leave_one_model_out(of, logits, labels=labels)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), whole, parts)
