"""Numbers as the cells of a table show them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy import special

from churn_compare.documents import Cell

if TYPE_CHECKING:
    from churn_jax.analysis.significance import Difference
    from churn_jax.reports.estimates import Estimate

SIGNIFICANT = 0.05


ABSENT = "–"


def percent(estimate: Estimate) -> str:
    """`5.72 ± 0.18`, both times 100."""
    return _plus_minus(100 * estimate.mean, 100 * estimate.std, 2)


def rate(estimate: Estimate) -> str:
    """`2.11 ± 0.05`, both times 100: the mean and its standard error."""
    return _plus_minus(100 * estimate.mean, 100 * estimate.stderr, 2)


def signed_rate(estimate: Estimate) -> str:
    """`-12.10 ± 0.05`, both times 100: a change and its standard error."""
    text = rate(estimate)
    return text if text == ABSENT or text.startswith("-") else f"+{text}"


def number(estimate: Estimate) -> str:
    """`0.213 ± 0.004`."""
    return _plus_minus(estimate.mean, estimate.std, 3)


def mean_error(estimate: Estimate) -> str:
    """`0.213 ± 0.004`, the standard error of the mean."""
    return with_error(estimate, 3)


def of_set(estimate: Estimate) -> str:
    """`0.0777 ± 0.0012`, the standard error: a set of runs has no spread of its own."""
    return with_error(estimate, 4)


def with_error(estimate: Estimate, digits: int) -> str:
    """`0.078 ± 0.001`: the mean and its standard error."""
    return _plus_minus(estimate.mean, estimate.stderr, digits)


def equivalent(estimate: Estimate) -> str:
    """`2.74 ± 0.12` networks; `≥ 4.00` where the largest ensemble is no better."""
    # Without a spread where all runs are at one end of the scale.
    spread = estimate.std if estimate.std > 0 else math.nan
    text = _plus_minus(estimate.mean, spread, 2)
    return f"≥ {text}" if estimate.at_least and math.isfinite(estimate.mean) else text


def millions(estimate: Estimate) -> str:
    """`0.46 M`; `2.4 k` below a tenth of a million."""
    if not math.isfinite(estimate.mean):
        return ABSENT
    if estimate.mean < 1e5:
        return f"{estimate.mean / 1e3:.1f} k"
    return f"{estimate.mean / 1e6:.2f} M"


def _plus_minus(mean: float, spread: float, digits: int) -> str:
    if not math.isfinite(mean):
        return ABSENT
    if not math.isfinite(spread):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {spread:.{digits}f}"


def share(value: float) -> str:
    """`5.72`, times 100."""
    return f"{100 * value:.2f}" if math.isfinite(value) else ABSENT


def signed(difference: Difference | None, scale: float, digits: int) -> str:
    """`-1.83 ± 0.21`, the mean and its standard error, both times `scale`."""
    if difference is None or not math.isfinite(difference.difference):
        return ABSENT
    mean = f"{scale * difference.difference:+.{digits}f}"
    if not math.isfinite(difference.stderr):
        return mean
    return f"{mean} ± {scale * difference.stderr:.{digits}f}"


def interval(
    difference: Difference, p: float | None = None
) -> tuple[float, float] | None:
    """The 95 % interval of a difference by Student's t; None where it has no error.

    It is as wide as `p`, adjusted for several tests, asks for: 0 lies outside where `p`
    is below 5 %, and nowhere else.
    """
    if difference.runs < 2 or not math.isfinite(difference.stderr):
        return None
    tests = p / difference.p if p and difference.p > 0 else 1.0
    tail = SIGNIFICANT / tests / 2
    half = -float(special.stdtrit(difference.runs - 1, tail)) * difference.stderr
    return difference.difference - half, difference.difference + half


def ends(
    difference: Difference, p: float | None, scale: float, digits: int, sign: str = "+"
) -> str:
    """`-2.50 to -1.30`, the ends of `interval` times `scale`; empty without one."""
    found = interval(difference, p)
    if found is None:
        return ""
    low, high = found if sign else sorted(map(abs, found))
    return f"{scale * low:{sign}.{digits}f} to {scale * high:{sign}.{digits}f}"


def change_cell(
    difference: Difference | None, p: float | None, scale: float, digits: int
) -> Cell | str:
    """`-1.83` with its interval below it, both times `scale`."""
    if difference is None or not math.isfinite(difference.difference):
        return ABSENT
    value = scale * difference.difference
    tested = p is not None and math.isfinite(p)
    below = ends(difference, p, scale, digits) if tested else ""
    return Cell(f"{value:+.{digits}f}", value, below)


def p_value(p: float | None) -> str:
    """`0.021`, `< 0.001`."""
    if p is None or not math.isfinite(p):
        return ABSENT
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_text(p: float) -> str:
    """`p = 0.021`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def estimate_fields(name: str, estimate: Estimate) -> dict[str, float]:
    """The three columns that a CSV has of an estimate."""
    return {
        name: estimate.mean,
        f"{name}_std": estimate.std,
        f"{name}_stderr": estimate.stderr,
    }


def difference_fields(name: str, difference: Difference) -> dict[str, float]:
    """The two columns that a CSV has of a difference."""
    return {name: difference.difference, f"{name}_stderr": difference.stderr}


def times(value: float | None) -> str:
    """`2×`, relative to one network of the baseline."""
    return ABSENT if value is None else f"{value:.3g}×"
