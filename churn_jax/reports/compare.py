"""What the numbers of a method's runs say against the baseline, paired by run."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from churn_jax.analysis.significance import (
    Difference,
    holm,
    paired_jackknife_test,
    paired_t_test,
)
from churn_jax.reports.summary import MethodSummary

__all__ = ["Comparison", "compare_with_baseline"]

SIGNIFICANT = 0.05
UNTESTED = Difference(np.nan, np.nan, np.nan, np.nan, runs=0)
FEWEST_RUNS = 3  # with two, one degree of freedom finds nothing but accidents


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A method against the baseline, paired by run.

    Attributes:
        churn: difference of mean pairwise churn, method minus baseline.
        churn_p: its p-value, Holm-adjusted over the methods of the study.
        accuracy: difference of accuracy, method minus baseline.
        accuracy_p: its p-value, Holm-adjusted over the methods of the study.
    """

    churn: Difference
    churn_p: float
    accuracy: Difference
    accuracy_p: float

    @property
    def churn_verdict(self) -> str:
        """One clause, for example `"reduces churn by 2.1 ± 0.3 points (p = 0.001)"`."""
        return _verdict(self.churn, self.churn_p, "churn", ("reduces", "increases"))

    @property
    def accuracy_verdict(self) -> str:
        """The same for accuracy: `"raises accuracy by ..."`, `"no detectable ..."`."""
        words = ("lowers", "raises")
        return _verdict(self.accuracy, self.accuracy_p, "accuracy", words)


def compare_with_baseline(
    summaries: Mapping[str, MethodSummary], baseline: str
) -> dict[str, Comparison]:
    """Every method against the baseline, with Holm's adjustment over the methods.

    Only runs that finished on both sides are paired.

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
    churn, accuracy = {}, {}
    for name, summary in summaries.items():
        if name == baseline:
            continue
        shared = [r for r in summary.runs if r in base.runs]
        ours = [summary.runs.index(r) for r in shared]
        theirs = [base.runs.index(r) for r in shared]
        if not shared:
            churn[name] = accuracy[name] = UNTESTED
            continue
        churn[name] = paired_jackknife_test(
            summary.pair_values["churn"][np.ix_(ours, ours)],
            base.pair_values["churn"][np.ix_(theirs, theirs)],
        )
        accuracy[name] = paired_t_test(
            summary.run_values["accuracy"][ours], base.run_values["accuracy"][theirs]
        )
    churn_p = holm([d.p for d in churn.values()])
    accuracy_p = holm([d.p for d in accuracy.values()])
    return {
        name: Comparison(churn[name], float(c), accuracy[name], float(a))
        for name, c, a in zip(churn, churn_p, accuracy_p, strict=True)
    }


def _verdict(difference: Difference, p: float, what: str, words) -> str:
    if not np.isfinite(p) or difference.runs < FEWEST_RUNS:
        return f"too few runs to test {what} ({difference.runs} in common)"
    said = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    digits = 1 if 100 * difference.stderr >= 0.1 else 2
    error = f"{100 * difference.stderr:.{digits}f}"
    if p < SIGNIFICANT:
        verb = words[difference.difference > 0]
        size = f"{100 * abs(difference.difference):.{digits}f}"
        return f"{verb} {what} by {size} ± {error} points ({said})"
    size = f"{100 * difference.difference:+.{digits}f}"
    return f"no detectable effect on {what} ({size} ± {error} points, {said})"
