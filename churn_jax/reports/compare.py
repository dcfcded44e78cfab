"""Comparison of a method's runs with the baseline, paired by run."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from churn_compare.significance import holm
from churn_jax.analysis.significance import (
    Difference,
    jackknife_stderr,
    paired_jackknife_test,
    paired_leave_one_out_test,
    paired_t_test,
)
from churn_jax.reports.cells import SIGNIFICANT, ends, interval, p_text
from churn_jax.reports.estimates import Estimate, over_runs
from churn_jax.reports.summary import MethodSummary

UNTESTED = Difference(np.nan, np.nan, np.nan, np.nan, runs=0)
FEWEST_RUNS = 3  # with two, one degree of freedom finds nothing but accidents
ENOUGH_RUNS = 5  # to say which row is best: of fewer, a single one may decide


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A method against the baseline, paired by run.

    Attributes:
        churn: difference of mean pairwise churn, method minus baseline.
        churn_p: its p-value, Holm-adjusted over the methods of the study.
        accuracy: difference of accuracy, method minus baseline.
        accuracy_p: its p-value, Holm-adjusted over the methods of the study.
        prediction_difference: difference of Delta_1 of all runs; not tested unless both
            sides have the same runs.
        prediction_difference_p: its p-value, Holm-adjusted over the methods.
        calibrated_nll: difference of the NLL at each run's own temperature; not tested
            where a side has no validation predictions.
        calibrated_nll_p: its p-value, Holm-adjusted over the methods.
    """

    churn: Difference
    churn_p: float
    accuracy: Difference
    accuracy_p: float
    prediction_difference: Difference = UNTESTED
    prediction_difference_p: float = np.nan
    calibrated_nll: Difference = UNTESTED
    calibrated_nll_p: float = np.nan

    @property
    def churn_verdict(self) -> str:
        """One clause: `"reduces churn by 2.1 points (1.4 to 2.8; p = 0.001)"`."""
        return _verdict(self.churn, self.churn_p, "churn", ("reduces", "increases"))

    @property
    def prediction_difference_verdict(self) -> str:
        """For Delta_1: `"reduces Δ₁ by 0.0741 (0.0715 to 0.0767; p < 0.001)"`."""
        found, words = self.prediction_difference, ("reduces", "increases")
        if found.runs == 0:
            return "Δ₁ is not tested, since the rows do not have the same runs"
        return _verdict(found, self.prediction_difference_p, "Δ₁", words, points=False)

    @property
    def calibrated_nll_verdict(self) -> str:
        """The same for the calibrated NLL."""
        found, what = self.calibrated_nll, "calibrated NLL"
        if found.runs == 0:
            return f"{what} is not tested, since no run has it on both sides"
        words = ("reduces", "increases")
        return _verdict(found, self.calibrated_nll_p, what, words, points=False)

    @property
    def accuracy_verdict(self) -> str:
        """The same for accuracy: `"raises accuracy by ..."`, `"no detectable ..."`."""
        words = ("lowers", "raises")
        return _verdict(self.accuracy, self.accuracy_p, "accuracy", words)


def compare_with_baseline(
    summaries: Mapping[str, MethodSummary], baseline: str
) -> dict[str, Comparison]:
    """Every method against the baseline, with Holm's adjustment over the methods.

    Only runs that finished on both sides are paired. Delta_1 is a number of a whole set
    of runs, so it is compared only where both sets are of the same runs.

    Args:
        summaries: method name to its summary; run `r` of each shares its seeds.
        baseline: the name the others are compared with.

    Returns:
        One `Comparison` per other method; empty when the baseline is not there.

    Example:
        >>> compare_with_baseline({}, "baseline")
        {}
    """
    if baseline not in summaries:
        return {}
    base = summaries[baseline]
    others = {name: s for name, s in summaries.items() if name != baseline}
    found: dict[str, dict] = {name: {} for name in others}
    for quantity in ("churn", "accuracy", "prediction_difference", "calibrated_nll"):
        differences = [paired(quantity, summary, base) for summary in others.values()]
        adjusted = holm([difference.p for difference in differences])
        for name, difference, p in zip(others, differences, adjusted, strict=True):
            found[name] |= {quantity: difference, f"{quantity}_p": float(p)}
    return {name: Comparison(**fields) for name, fields in found.items()}


def paired(
    quantity: str,
    a: MethodSummary | None,
    b: MethodSummary | None,
) -> Difference:
    """`a` minus `b` over the seeds that finished in both, paired by seed."""
    if a is None or b is None:
        return UNTESTED
    shared = [run for run in a.runs if run in b.runs]
    ours = [a.runs.index(run) for run in shared]
    theirs = [b.runs.index(run) for run in shared]
    if not shared:
        return UNTESTED
    if quantity in a.set_values:
        if a.runs != b.runs:
            return UNTESTED
        return paired_leave_one_out_test(
            getattr(a, quantity).mean,
            getattr(b, quantity).mean,
            a.set_values[quantity],
            b.set_values[quantity],
        )
    if quantity in a.pair_values:
        return paired_jackknife_test(
            a.pair_values[quantity][np.ix_(ours, ours)],
            b.pair_values[quantity][np.ix_(theirs, theirs)],
        )
    if quantity not in a.run_values or quantity not in b.run_values:
        return UNTESTED  # without validation predictions nothing is calibrated
    return paired_t_test(a.run_values[quantity][ours], b.run_values[quantity][theirs])


def change_of(summary: MethodSummary, base: MethodSummary, name: str) -> Estimate:
    """A number as a share of the baseline's, minus one; paired by run.

    Of numbers of all runs together the standard error is the jackknife's, which leaves
    a run out of both sides at once.
    """
    if summary is base:
        return Estimate(0.0, np.nan, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        if name in summary.set_values:
            ratio = getattr(summary, name).mean / getattr(base, name).mean
            error = np.nan
            # [jackknife] pp. 586-596.
            if summary.runs == base.runs and len(summary.runs) > 2:
                each = summary.set_values[name] / base.set_values[name]
                error = jackknife_stderr(each)
            return Estimate(ratio - 1.0, np.nan, error)
        shared = [run for run in summary.runs if run in base.runs]
        if not shared:
            return Estimate(np.nan, np.nan, np.nan)
        ours, theirs = (
            of.run_values[name][[of.runs.index(run) for run in shared]]
            for of in (summary, base)
        )
        return over_runs(ours / theirs - 1.0)


def effect(difference: Difference, p: float) -> int | None:
    """Sign of a difference, 0 where none is detected, None where it is not tested."""
    if not np.isfinite(p) or difference.runs < FEWEST_RUNS:
        return None
    return int(np.sign(difference.difference)) if p < SIGNIFICANT else 0


def _verdict(
    difference: Difference, p: float, what: str, words, points: bool = True
) -> str:
    if (sign := effect(difference, p)) is None:
        return f"too few runs to test {what} ({difference.runs} in common)"
    said = p_text(p)
    scale, unit = (100, " points") if points else (1, "")
    nearest = min(map(abs, interval(difference, p) or (0.0,)))  # not shown as -0.0
    coarse = 100 * min(difference.stderr, 2 * nearest) >= 0.1
    digits = 4 if not points else 1 if coarse else 2
    if sign:
        verb, found = words[sign > 0], ends(difference, p, scale, digits, "")
        size = f"{scale * abs(difference.difference):.{digits}f}"
        return f"{verb} {what} by {size}{unit} ({found}; {said})"
    size = f"{scale * difference.difference:+.{digits}f}"
    found = ends(difference, p, scale, digits)
    return f"no detectable effect on {what} ({size}{unit}, {found}; {said})"
