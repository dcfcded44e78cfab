"""Numbers as the cells of a table show them, and as a CSV has them."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from scipy import special

if TYPE_CHECKING:
    from churn_jax.analysis.significance import Difference
    from churn_jax.reports.estimates import Estimate

SIGNIFICANT = 0.05
ABSENT = "–"


def plus_minus(mean: float, spread: float, digits: int, sign: str = "") -> str:
    """`0.213 ± 0.004`; the spread is left out, and a dash shown, where it is NaN."""
    if not math.isfinite(mean):
        return ABSENT
    text = f"{mean:{sign}.{digits}f}"
    return f"{text} ± {spread:.{digits}f}" if math.isfinite(spread) else text


@dataclasses.dataclass(frozen=True)
class Form:
    """How an estimate is written, as a function of the `Estimate`."""

    scale: float = 1.0  # 100 for per cent
    digits: int = 3
    error: bool = False  # `±` is the standard error, not the standard deviation
    sign: str = ""  # "+" for changes

    def __call__(self, estimate: Estimate) -> str:
        """`5.72 ± 0.18`; a dash where nothing was measured."""
        spread = estimate.stderr if self.error else estimate.std
        scaled = self.scale * estimate.mean, self.scale * spread
        return plus_minus(*scaled, self.digits, self.sign)


number = Form()
percent = Form(100.0, 2)
rate = Form(100.0, 2, error=True)
signed_rate = Form(100.0, 2, error=True, sign="+")
mean_error = Form(error=True)
of_set = Form(digits=4, error=True)  # a set of runs has no spread of its own


def equivalent(estimate: Estimate) -> str:
    """`2.74 ± 0.12` networks; `≥ 4.00` where the largest ensemble is no better."""
    # Without a spread where all runs are at one end of the scale.
    spread = estimate.std if estimate.std > 0 else math.nan
    text = plus_minus(estimate.mean, spread, 2)
    return f"≥ {text}" if estimate.at_least and math.isfinite(estimate.mean) else text


def millions(estimate: Estimate) -> str:
    """`0.46 M`; `2.4 k` below a tenth of a million."""
    if not math.isfinite(estimate.mean):
        return ABSENT
    if estimate.mean < 1e5:
        return f"{estimate.mean / 1e3:.1f} k"
    return f"{estimate.mean / 1e6:.2f} M"


def share(value: float) -> str:
    """`5.72`, times 100."""
    return plus_minus(100 * value, math.nan, 2)


def times(value: float | None) -> str:
    """`2×`, relative to one network of the baseline."""
    return ABSENT if value is None else f"{value:.3g}×"


def interval(
    difference: Difference, p: float | None = None
) -> tuple[float, float] | None:
    """The 95 % interval of a difference by Student's t; None where it has no error."""
    # It is as wide as `p`, adjusted for several tests, asks for: 0 lies outside where
    # `p` is below 5 %, and nowhere else.
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


def p_value(p: float | None) -> str:
    """`0.021`, `< 0.001`."""
    if p is None or not math.isfinite(p):
        return ABSENT
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def estimate_fields(name: str, estimate: Estimate) -> dict[str, float]:
    """The three columns that a CSV has of an estimate."""
    return {
        name: estimate.mean,
        f"{name}_std": estimate.std,
        f"{name}_stderr": estimate.stderr,
    }


def difference_fields(name: str, found: Difference, p: float) -> dict[str, float]:
    """The four columns that a CSV has of a difference; `p` is Holm-adjusted."""
    return {
        f"delta_{name}": found.difference,
        f"delta_{name}_stderr": found.stderr,
        f"delta_{name}_p": found.p,
        f"delta_{name}_p_holm": p,
    }
