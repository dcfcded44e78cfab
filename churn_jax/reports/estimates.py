"""Means over runs and over pairs of runs, how far they can be trusted, and changes.

Numbers of single runs carry the standard deviation over runs and `std / sqrt(R)`.
Numbers of pairs of runs are averaged over all unordered pairs; pairs share runs, so
their standard error leaves out one run at a time. So does that of numbers of all runs
as one set, the prediction differences of the second paper. A method is compared with
the baseline run by run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from churn_compare.documents import Cell
from churn_compare.significance import holm
from churn_jax import metrics
from churn_jax.analysis.significance import (
    Difference,
    jackknife_stderr,
    paired_jackknife_test,
    paired_leave_one_out_test,
    paired_t_test,
)
from churn_jax.reports.quantities import ABSENT, QUANTITIES, p_value

if TYPE_CHECKING:
    from churn_jax.reports.summary import MethodSummary


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean with its spread; NaN where there are too few runs for it."""

    # over runs, or over all unordered pairs of runs; or the number of the set of all
    # runs
    mean: float
    # standard deviation over those runs (dividing by `R - 1`) or those pairs (dividing
    # by their number, as `summarize_pairs` does)
    std: float = np.nan
    # standard error of `mean`: `std / sqrt(R)` over runs, the leave-one-run-out
    # jackknife over pairs and of sets
    stderr: float = np.nan
    # whether `mean` is only a lower bound
    at_least: bool = dataclasses.field(default=False, repr=False)


UNKNOWN = Estimate(np.nan)


def over_runs(values: Any) -> Estimate:
    """Estimate of one number per run, `[R]`."""
    runs = len(values)
    with np.errstate(invalid="ignore"):  # a log loss may be infinite
        std = float(values.std(ddof=1)) if runs > 1 else np.nan
    return Estimate(float(values.mean()), std, float(std / np.sqrt(runs)))


def over_set(value: np.ndarray, without: np.ndarray) -> Estimate:
    """Estimate of a number of all runs; `without` is `[R]`, each run left out."""
    stderr = jackknife_stderr(without)
    return Estimate(float(value), float(stderr * np.sqrt(len(without))), stderr)


def over_pairs(matrices: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Estimates of numbers of pairs, each `[R, R]` and symmetric; NaN with one run."""
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
    found: Sequence[Mapping[str, np.ndarray]], runs: int, examples: int
) -> tuple[dict[str, Estimate], dict[str, np.ndarray]]:
    """Numbers of all runs together, and without each, from the sums of all blocks."""
    unknown = np.full(runs, np.nan)
    if runs < 2:
        return dict.fromkeys(_OF_SETS, UNKNOWN), dict.fromkeys(_OF_SETS, unknown)
    estimates, without = {}, {}
    for name in _OF_SETS:
        value = np.sum([sums[name] for sums in found], axis=0) / examples
        without[name] = value[1:] if runs > 2 else unknown
        estimates[name] = over_set(value[0], without[name])
    return estimates, without


_OF_SETS = {
    "prediction_difference": lambda z, _: metrics.prediction_difference(z),
    "prediction_difference_2": lambda z, _: metrics.prediction_difference(z, order=2),
    "relative_prediction_difference": lambda z, _: (
        metrics.relative_prediction_difference(z)
    ),
    "label_prediction_difference": metrics.label_prediction_difference,
}


@jax.jit
def _set_values(logits, labels):
    """Values of all runs, then without each run: `[R + 1]`, or `[1]` of two runs."""

    def of(logits, labels):
        return {name: metric(logits, labels) for name, metric in _OF_SETS.items()}

    whole = jax.tree.map(jnp.atleast_1d, of(logits, labels))
    if logits.shape[0] == 2:
        return whole
    parts = metrics.leave_one_model_out(of, logits, labels=labels)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), whole, parts)


SIGNIFICANT = 0.05
_UNTESTED = Difference(np.nan, np.nan, np.nan, np.nan, runs=0)
FEWEST_RUNS = 3  # a test of two runs has one degree of freedom and next to no power
ENOUGH_RUNS = 5  # to say which row is best: of fewer, a single one may decide
_LESS_MORE = ("reduces", "increases")
# Quantities that rows are compared in: in words, verbs of less and more, if in points.
COMPARED = {
    "churn": ("churn", _LESS_MORE, True),
    "accuracy": ("accuracy", ("lowers", "raises"), True),
    "prediction_difference": ("Δ₁", _LESS_MORE, False),
    "calibrated_nll": ("calibrated NLL", _LESS_MORE, False),
    "nll": ("log loss", ("lowers", "raises"), False),
}


class Change(NamedTuple):
    """A method's number minus the baseline's, and its p-value, Holm-adjusted."""

    quantity: str  # one of `COMPARED`
    difference: Difference
    p: float
    why: str = ""  # why it is not tested, a clause; empty for too few runs

    @property
    def effect(self) -> int | None:
        """Its sign, 0 where no difference is detected, None where it is not tested."""
        if self.difference.difference == np.inf:
            return 1
        if not np.isfinite(self.p) or self.difference.runs < FEWEST_RUNS:
            return None
        return int(np.sign(self.difference.difference)) if self.p < SIGNIFICANT else 0

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval by Student's t; None of too few runs, or of equal ones."""
        # Widened to match `p`, which is adjusted for several tests: 0 lies outside
        # where `p` is below 5 %, and nowhere else.
        found = self.difference
        if found.runs < FEWEST_RUNS or not found.stderr > 0:
            return None
        tests = self.p / found.p if self.p and found.p > 0 else 1.0
        tail = SIGNIFICANT / tests / 2
        half = -float(special.stdtrit(found.runs - 1, tail)) * found.stderr
        return found.difference - half, found.difference + half

    def ends(self, scale: float, digits: int, sign: str = "+") -> str:
        """`-2.50 to -1.30`, the interval times `scale`; empty without one."""
        if (found := self.interval) is None:
            return ""
        low, high = found if sign else sorted(map(abs, found))
        return f"{scale * low:{sign}.{digits}f} to {scale * high:{sign}.{digits}f}"

    @property
    def fields(self) -> dict[str, float]:
        """The four columns that a CSV has of it."""
        found, ends = self.difference, ("", "_stderr", "_p", "_p_holm")
        values = found.difference, found.stderr, found.p, self.p
        return {f"delta_{self.quantity}{end}": v for end, v in zip(ends, values)}

    @property
    def cells(self) -> tuple[Cell | str, str]:
        """`-1.83` with its interval below it, in points or as it is, and its p."""
        found, points = self.difference, COMPARED.get(self.quantity, (True,))[-1]
        if not np.isfinite(found.difference):
            return ABSENT, ABSENT
        scale, digits = (100, 2) if points else (1, 4)
        value = scale * found.difference
        below, p = self.ends(scale, digits), None if self.effect is None else self.p
        return Cell(f"{value:+.{digits}f}", below), p_value(p)

    @property
    def verdict(self) -> str:
        """One clause: `"reduces churn by 2.1 points (1.4 to 2.8; p = 0.001)"`."""
        (what, verbs, points), found = COMPARED[self.quantity], self.difference
        if self.why:
            return f"{what} is not tested, since {self.why}"
        if found.difference == np.inf:
            return f"{what} is infinite"
        if (sign := self.effect) is None:
            return f"too few runs to test {what} ({found.runs} in common)"
        text = p_value(self.p)
        said = f"p {text}" if text.startswith("<") else f"p = {text}"
        scale, unit = (100, " points") if points else (1, "")
        nearest = min(map(abs, self.interval or (0.0,)))  # not shown as -0.0
        coarse = 100 * min(found.stderr, 2 * nearest) >= 0.1
        digits = (1 if coarse else 2) if points else 4 if 2 * nearest >= 1e-4 else 6
        if sign:
            around = "; ".join(filter(None, (self.ends(scale, digits, ""), said)))
            size = f"{scale * abs(found.difference):.{digits}f}{unit}"
            return f"{verbs[sign > 0]} {what} by {size} ({around})"
        size = f"{scale * found.difference:+.{digits}f}{unit}"
        around = ", ".join(filter(None, (size, self.ends(scale, digits))))
        return f"no detectable effect on {what} ({around}; {said})"


UNTESTED = Change("churn", _UNTESTED, np.nan)


def compare_with_baseline(
    summaries: Mapping[str, MethodSummary], baseline: str
) -> dict[str, dict[str, Change]]:
    """Every method against the baseline, in each quantity of `COMPARED`."""
    if (base := summaries.get(baseline)) is None:
        return {}
    found: dict = {name: {} for name in summaries if name != baseline}
    for quantity in COMPARED:
        differences = [paired(quantity, summaries[name], base) for name in found]
        for name, one in zip(found, adjusted(quantity, differences)):
            why = untestable(quantity, summaries[name], base)
            found[name][quantity] = one._replace(why=why)
    return found


def adjusted(quantity: str, differences: Sequence[Difference]) -> list[Change]:
    """The differences with p adjusted over all that are tested."""
    p = holm([d.p if d.runs >= FEWEST_RUNS else np.nan for d in differences])
    return [Change(quantity, *one) for one in zip(differences, map(float, p))]


def paired(
    quantity: str, a: MethodSummary | None, b: MethodSummary | None
) -> Difference:
    """`a` minus `b` over the seeds that finished in both, paired by seed."""
    if a is None or b is None or untestable(quantity, a, b):
        return _UNTESTED
    ours, theirs = shared_runs(a, b)
    if not ours:
        return _UNTESTED
    if quantity in a.set_values:
        means = getattr(a, quantity).mean, getattr(b, quantity).mean
        without = a.set_values[quantity], b.set_values[quantity]
        return paired_leave_one_out_test(*means, *without)
    if quantity in a.pair_values:
        return paired_jackknife_test(
            a.pair_values[quantity][np.ix_(ours, ours)],
            b.pair_values[quantity][np.ix_(theirs, theirs)],
        )
    with np.errstate(invalid="ignore"):  # a log loss may be infinite
        values = a.run_values[quantity][ours], b.run_values[quantity][theirs]
        return paired_t_test(*values)


def untestable(quantity: str, a: MethodSummary, b: MethodSummary) -> str:
    """Why a number of `a` is not compared with that of `b`; empty where it is."""
    if quantity in a.set_values and quantity in b.set_values:
        # It is a number of the whole set.
        return "" if a.runs == b.runs else "the rows do not have the same runs"
    if quantity in a.pair_values:
        return ""
    if quantity not in a.run_values or quantity not in b.run_values:
        return "no run has it on both sides"  # one lacks validation predictions
    if quantity in ("nll", "calibrated_nll") and a.classes_known != b.classes_known:
        return "the rows do not know the same classes"
    finite = np.isfinite(b.run_values[quantity]).all()
    return "" if finite else "that of the baseline is infinite"


def with_changes(
    summaries: Mapping[str, MethodSummary], baseline: str, columns: Sequence[str]
) -> dict[str, MethodSummary]:
    """The summaries with the columns that are changes against the baseline."""
    if (base := summaries.get(baseline)) is None:
        return dict(summaries)
    changes = {name: QUANTITIES[name].of for name in columns if QUANTITIES[name].of}
    return {
        row: one.having(**{k: _change_of(one, base, of) for k, of in changes.items()})
        for row, one in summaries.items()
    }


def _change_of(summary: MethodSummary, base: MethodSummary, name: str) -> Estimate:
    """A number as a share of the baseline's, minus one; paired by run."""
    if summary is base:
        return Estimate(0.0)
    ours, theirs = shared_runs(summary, base)
    if not ours or untestable(name, summary, base):
        return UNKNOWN  # a column that failed is named in the report
    with np.errstate(divide="ignore", invalid="ignore"):
        if name in summary.set_values:
            ratio = getattr(summary, name).mean / getattr(base, name).mean
            # A run is left out of both sides at once: [jackknife] pp. 586-596.
            each = summary.set_values[name] / base.set_values[name]
            return Estimate(ratio - 1.0, np.nan, jackknife_stderr(each))
        ratios = summary.run_values[name][ours] / base.run_values[name][theirs]
        return over_runs(ratios - 1.0) if np.isfinite(ratios).all() else UNKNOWN


def shared_runs(a: MethodSummary, b: MethodSummary) -> tuple[list[int], list[int]]:
    """The places, on both sides, of the runs that finished on both."""
    shared = [run for run in a.runs if run in b.runs]
    return [a.runs.index(run) for run in shared], [b.runs.index(run) for run in shared]
