"""Numbers as the cells of a table show them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from churn_jax.reports.estimates import Estimate


__all__ = ["equivalent", "millions", "number", "of_set", "percent", "rate", "times"]


def percent(estimate: Estimate) -> str:
    """`5.72 ± 0.18`, both times 100."""
    return _plus_minus(100 * estimate.mean, 100 * estimate.std, 2)


def rate(estimate: Estimate) -> str:
    """`2.11 ± 0.05`, both times 100: the mean and its standard error."""
    return _plus_minus(100 * estimate.mean, 100 * estimate.stderr, 2)


def number(estimate: Estimate) -> str:
    """`0.213 ± 0.004`."""
    return _plus_minus(estimate.mean, estimate.std, 3)


def of_set(estimate: Estimate) -> str:
    """`0.0777 ± 0.0012`, the standard error: a set of runs has no spread of its own."""
    return _plus_minus(estimate.mean, estimate.stderr, 4)


def equivalent(estimate: Estimate) -> str:
    """`2.74 ± 0.12` networks; `≥ 4.00` where the largest ensemble is no better.

    Without a spread where all runs are at one end of the scale.
    """
    spread = estimate.std if estimate.std > 0 else math.nan
    text = _plus_minus(estimate.mean, spread, 2)
    return f"≥ {text}" if estimate.at_least and math.isfinite(estimate.mean) else text


def millions(estimate: Estimate) -> str:
    """`0.46 M`; `2.4 k` below a tenth of a million."""
    if not math.isfinite(estimate.mean):
        return "–"
    if estimate.mean < 1e5:
        return f"{estimate.mean / 1e3:.1f} k"
    return f"{estimate.mean / 1e6:.2f} M"


def _plus_minus(mean: float, spread: float, digits: int) -> str:
    if not math.isfinite(mean):
        return "–"
    if not math.isfinite(spread):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {spread:.{digits}f}"


def times(value: float | None) -> str:
    """`2×`, relative to one network of the baseline."""
    return "–" if value is None else f"{value:.3g}×"
