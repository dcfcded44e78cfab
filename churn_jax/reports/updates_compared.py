"""How much less an update breaks than one without treatment, paired by run."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from churn_compare.documents import Table
from churn_compare.significance import holm
from churn_jax.analysis.significance import (
    Difference,
    jackknife_stderr,
    paired_leave_one_out_test,
    paired_t_test,
)
from churn_jax.reports.cells import change_cell, difference_fields, p_value, rate
from churn_jax.reports.estimates import Estimate

if TYPE_CHECKING:
    from churn_jax.reports.updates import UpdateResult


_HEADS = ("Update", "NFR, points", "p", "ER new, points", "p", "Gap closed %")
_CAPTION = (
    "Difference from {base} with its 95 % interval, as wide as p asks for. NFR: a "
    "jackknife that leaves run r of all models out at a time; ER: paired by run. p: "
    "two-sided (Student's t, R - 1 degrees of freedom), Holm-adjusted over the "
    "updates. Gap closed: how far NFR is on the way from {base} to {paragon}."
)


@dataclasses.dataclass(frozen=True)
class Gain:
    """An update against the one to the study's baseline.

    Attributes:
        negative_flip_rate: difference of NFR, of own pairs where it is targeted.
        negative_flip_rate_p: its p-value, Holm-adjusted over the study's updates.
        new_error: difference of the new model's error rate.
        new_error_p: its p-value, adjusted in the same way.
        closed: share of the difference between the baseline's NFR and that of the first
            update from an ensemble to an ensemble; NaN where there is none.
    """

    negative_flip_rate: Difference
    negative_flip_rate_p: float
    new_error: Difference
    new_error_p: float
    closed: Estimate


def gains(
    results: Sequence["UpdateResult"],
    runs: Mapping[str, tuple[int, ...]],
    baseline: str,
    ensembles: Collection[str],
) -> dict[int, Gain]:
    """The gains of updates by their place in `results`.

    Empty unless one update is to `baseline` and every model has the same three runs or
    more; `runs` are their numbers. `ensembles` are the rows that deploy several
    networks.
    """
    whole = {i: r for i, r in enumerate(results) if r.examples == "all"}
    starts = [i for i, r in whole.items() if r.new == baseline]
    names = {name for r in whole.values() for name in (r.old, r.new)}
    if len(starts) != 1 or len(whole) < 2:
        return {}
    if len(runs[baseline]) < 3 or len({runs[name] for name in names}) > 1:
        return {}
    (start,) = starts
    # NFR of all runs, then without each in turn, `[R + 1]`.
    flips = {i: _left_out(r) for i, r in whole.items()}
    wrong = {i: r.flips.new_error[0] for i, r in whole.items()}
    paragon = next(
        (i for i, r in whole.items() if {r.old, r.new} <= set(ensembles)), start
    )
    others = [i for i in whole if i != start]
    changes = [
        paired_leave_one_out_test(
            flips[i][0], flips[start][0], flips[i][1:], flips[start][1:]
        )
        for i in others
    ]
    errors = [paired_t_test(wrong[i], wrong[start]) for i in others]
    adjusted = (holm([one.p for one in found]) for found in (changes, errors))
    rows = zip(others, changes, errors, *adjusted, strict=True)
    return {
        i: Gain(
            change,
            float(change_p),
            error,
            float(error_p),
            _closed(flips[start], flips[i], flips[paragon]),
        )
        for i, change, error, change_p, error_p in rows
    }


def _left_out(result: "UpdateResult") -> np.ndarray:
    flips = result.flips.negative / result.flips.examples
    used = np.eye(len(flips), dtype=bool) if result.own_pairs else np.ones_like(flips)
    kept = 1.0 - np.eye(len(flips))
    weights = [used, *(used * np.outer(one, one) for one in kept)]
    return np.array([np.average(flips, weights=weight) for weight in weights])


def _closed(base: np.ndarray, here: np.ndarray, paragon: np.ndarray) -> Estimate:
    gap = base - paragon
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (base - here) / np.where(gap > 0, gap, np.nan)
    return Estimate(float(shares[0]), np.nan, jackknife_stderr(shares[1:]))


def gains_table(results: Sequence["UpdateResult"], baseline: str) -> Table | None:
    """The gains as a table; None where nothing is compared."""
    found = [(result, result.gain) for result in results if result.gain is not None]
    if not found:
        return None
    rows = [
        (
            result.label,
            change_cell(gain.negative_flip_rate, gain.negative_flip_rate_p, 100, 2),
            p_value(gain.negative_flip_rate_p),
            change_cell(gain.new_error, gain.new_error_p, 100, 2),
            p_value(gain.new_error_p),
            rate(gain.closed),
        )
        for result, gain in found
    ]
    base = next(r.label for r in results if r.new == baseline and r.gain is None)
    paragon = next(
        (r.label for r, gain in found if gain.closed.mean == 1.0), "an ensemble's"
    )
    caption = _CAPTION.format(base=base, paragon=paragon)
    return Table(_HEADS, rows, "Against no treatment", caption)


def gain_fields(gain: Gain | None) -> dict[str, float]:
    """The columns of `updates.csv`."""
    if gain is None:
        return {}
    return {
        **difference_fields("delta_negative_flip_rate", gain.negative_flip_rate),
        "delta_negative_flip_rate_p": gain.negative_flip_rate.p,
        "delta_negative_flip_rate_p_holm": gain.negative_flip_rate_p,
        **difference_fields("delta_new_error", gain.new_error),
        "delta_new_error_p": gain.new_error.p,
        "delta_new_error_p_holm": gain.new_error_p,
        "gap_closed": gain.closed.mean,
        "gap_closed_stderr": gain.closed.stderr,
    }
