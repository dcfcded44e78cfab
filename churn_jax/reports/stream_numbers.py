"""What one row of a stream study measured, and how it differs from the baseline.

Log loss, rank loss and calibration are numbers of single runs; a prediction difference
is one number of all runs together, with its value without each run in turn for the
jackknife. Replica `r` of every row has the same seeds, so rows are compared run by run.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from churn_compare.significance import holm
from churn_jax.analysis.significance import (
    Difference,
    jackknife_stderr,
    paired_leave_one_out_test,
    paired_t_test,
)
from churn_jax.reports.estimates import Estimate, over_runs

LOSSES = ("log_loss", "rank_loss", "calibration")
"""Numbers of single runs; rank loss is one minus the area under the ROC curve."""

DIFFERENCES = ("relative_pd", "pd_1", "pd_2", "label_pd", "hamming")
"""Numbers of all runs together: Delta^r_1, Delta_1, Delta_2, Delta^L, Delta^H."""

UNTESTED = Difference(np.nan, np.nan, np.nan, np.nan, runs=0)


@dataclasses.dataclass(frozen=True)
class StreamNumbers:
    """Scores of one row over one part of a stream."""

    runs: tuple[int, ...]  # numbers of the replicas that finished, ascending
    # name in `LOSSES` to `[A]`, one number per finished replica
    per_run: Mapping[str, np.ndarray]
    # name in `DIFFERENCES` to the value over all finished replicas
    whole: Mapping[str, float]
    # the same names to `[A]` values that leave one of them out
    without: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls, totals: Mapping[str, Any], stopped: tuple[int, ...] = ()
    ) -> "StreamNumbers":
        """From the totals that progressive validation leaves."""
        losses = {name: _vector(totals, name) for name in ("log_loss", "calibration")}
        losses["rank_loss"] = 1.0 - _vector(totals, "auc")
        without = {name: _vector(totals, f"{name}_loo") for name in DIFFERENCES}
        sizes = {name: len(v) for name, v in (losses | without).items()}
        if len(set(sizes.values())) != 1:
            told = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise ValueError(
                f"every number must have one entry per replica; got {told}"
            )
        replicas = len(losses["log_loss"])
        runs = [r for r in range(replicas) if r not in stopped]
        return cls(
            runs=tuple(runs),
            per_run={name: losses[name][runs] for name in LOSSES},
            whole={name: _scalar(totals, name) for name in DIFFERENCES},
            without={name: without[name][runs] for name in DIFFERENCES},
        )

    def estimate(self, name: str) -> Estimate:
        """Mean over runs with its spread, or the value over all runs."""
        # Of a prediction difference there is no spread over runs: `std` is NaN and
        # `stderr` the jackknife's.
        if name in LOSSES:
            values = self.per_run[name]
            return (
                over_runs(values) if len(values) else Estimate(np.nan, np.nan, np.nan)
            )
        stderr = np.nan
        if len(self.runs) > 2:
            stderr = jackknife_stderr(self.without[name])
        return Estimate(self.whole[name], np.nan, stderr)


def _vector(totals: Mapping[str, Any], name: str) -> np.ndarray:
    if name not in totals:
        raise ValueError(f"the totals lack {name}")
    values = [np.nan if v is None else v for v in np.ravel(totals[name]).tolist()]
    return np.asarray(values, np.float64)


def _scalar(totals: Mapping[str, Any], name: str) -> float:
    values = _vector(totals, name)
    if len(values) != 1:
        raise ValueError(f"{name} must be one number; got {len(values)}")
    return float(values[0])


@dataclasses.dataclass(frozen=True)
class Change:
    """A number of a row against the baseline's."""

    absolute: Difference  # row minus baseline
    relative: Difference  # the same as a share of the baseline's

    @property
    def p(self) -> float:
        """Two-sided, of the ratio, whose interval is shown; it has more power too."""
        # Of the absolute change where the baseline's number is 0.
        found = self.relative if np.isfinite(self.relative.p) else self.absolute
        return found.p


@dataclasses.dataclass(frozen=True)
class StreamChange:
    """A row against the baseline, run by run."""

    # names of `LOSSES` and `DIFFERENCES` to their `Change`
    changes: Mapping[str, Change]
    p_holm: float  # of the relative prediction difference, Holm-adjusted over the rows


def paired_change(row: np.ndarray, baseline: np.ndarray) -> Change:
    """Of a number of single runs: mean of the runs' own differences and ratios."""
    # `d = 1/R sum_r (a_r - b_r)` and `1/R sum_r (a_r / b_r - 1)`, each with standard
    # error `std / sqrt(R)`.
    if not len(row):
        return Change(UNTESTED, UNTESTED)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = row / baseline
    return Change(
        paired_t_test(row, baseline), paired_t_test(ratios, np.ones_like(ratios))
    )


def jackknife_change(
    value: float, without: np.ndarray, base_value: float, base_without: np.ndarray
) -> Change:
    """Of a number of all runs together; run `r` is left out of both sides at once."""
    # [jackknife] pp. 586-596.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.float64(value) / np.float64(base_value))
        ratios = without / base_without
    return Change(
        paired_leave_one_out_test(value, base_value, without, base_without),
        paired_leave_one_out_test(ratio, 1.0, ratios, np.ones_like(ratios)),
    )


def compare_streams(
    numbers: Mapping[str, StreamNumbers], baseline: str
) -> dict[str, StreamChange]:
    """Every row against the baseline; empty when the baseline is not there."""
    if baseline not in numbers:
        return {}
    base = numbers[baseline]
    found = {
        name: _changes(row, base) for name, row in numbers.items() if name != baseline
    }
    adjusted = holm([changes["relative_pd"].p for changes in found.values()])
    return {
        name: StreamChange(changes, float(p))
        for (name, changes), p in zip(found.items(), adjusted, strict=True)
    }


def _changes(row: StreamNumbers, base: StreamNumbers) -> dict[str, Change]:
    shared = [r for r in row.runs if r in base.runs]
    ours = [row.runs.index(r) for r in shared]
    theirs = [base.runs.index(r) for r in shared]
    changes = {
        name: paired_change(row.per_run[name][ours], base.per_run[name][theirs])
        for name in LOSSES
    }
    same = row.runs == base.runs
    for name in DIFFERENCES:
        # With no run left out there is a change, but no error of it.
        keep = slice(None) if same else slice(0)
        changes[name] = jackknife_change(
            row.whole[name],
            row.without[name][keep],
            base.whole[name],
            base.without[name][keep],
        )
    return changes
