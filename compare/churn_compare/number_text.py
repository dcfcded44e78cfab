"""Numbers of a comparison as text, with the digits that their intervals support."""

import math
from collections.abc import Sequence
from typing import Literal

from churn_compare.quantities import QUANTITIES
from churn_compare.result import ROUNDING, Interval

Unit = Literal["share", "points", "number", "change"]
NOTHING = "–"  # in place of a number that does not exist

_LIMITS = (0.01, 0.05, 0.1)  # of p-values

_SCALE = {"share": 100.0, "points": 100.0, "number": 1.0, "change": 1.0}
_ENDING = {"share": " %", "points": " points"}


def value_text(interval: Interval, unit: Unit) -> str:
    """The number with its unit, without its interval."""
    # Digits go down to the first one of a sixth of the interval's width, and up to two
    # further if a share, or an end of a change, would otherwise be shown as zero.
    text = _number(interval.value, unit, _decimals(interval, unit))
    return text + _ENDING.get(unit, "") if math.isfinite(interval.value) else text


def range_text(interval: Interval, unit: Unit) -> str:
    """The interval without the number."""
    if not has_range(interval):
        return ""
    decimals = _decimals(interval, unit)
    ends = (_number(end, unit, decimals) for end in (interval.low, interval.high))
    return " to ".join(ends) + (" %" if unit == "share" else "")


def with_range(interval: Interval, unit: Unit, level: float | None = None) -> str:
    """The number and its interval."""
    ends = range_text(interval, unit)
    if not ends:
        return value_text(interval, unit)
    said = "" if level is None else f"{level_text(level)} interval "
    return f"{value_text(interval, unit)} ({said}{ends})"


def share_text(share: float) -> str:
    """A share that has no interval, as a percentage."""
    return NOTHING if math.isnan(share) else f"{100 * share:.1f} %"


def level_text(level: float) -> str:
    """The level of an interval as a percentage."""
    return f"{100 * level:.6g} %"


def p_text(p: float, least: float = 0.0) -> str:
    """A p-value with two digits; below 0.001 or `least`, only the bound.

    A limit such as 0.05 is shown of no other number.
    """
    if math.isnan(p):
        return NOTHING
    if p < 0.001 or p <= least:
        return f"< {max(least, 0.001):g}"
    digits, limits = 2, [of for of in _LIMITS if abs(p - of) < 0.001]
    while float(f"{p:.{digits}g}") in limits and digits < 9:
        digits += 1
    return "1" if p >= 0.995 else f"{p:.{digits}g}"


def equals_text(p: float, least: float = 0.0) -> str:
    """A p-value with its name: `p = 0.02` or `p < 0.001`."""
    text = p_text(p, least)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def size_text(size: float, unit: Unit) -> str:
    """A change without its sign and interval, to two digits."""
    if unit != "points":
        return f"{size:.2g}"
    decimals = 0 if size >= 0.1 else 1 if size >= 0.01 else 2
    while decimals < 9 and not round(100 * size, decimals):
        decimals += 1
    return f"{100 * size:.{decimals}f} points"


def count_text(count: float) -> str:
    """Number of examples as text; a mean over pairs of runs has a decimal."""
    if math.isnan(count):
        return NOTHING
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"


def counted(count: int, word: str) -> str:
    """A number of things, with the word for one of them."""
    return f"{count_text(count)} {word}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """The first `most` names and the number of others."""
    left = len(names) - most
    more = f" and {count_text(left)} more" if left > 0 else ""
    return ", ".join(names[:most]) + more


def remark(note: str) -> str:
    """A note as it is printed, with "Note: " unless it is a warning."""
    return note if note.startswith("Warning: ") else f"Note: {note}"


def judgement(
    name: str, interval: Interval, lower: bool = False
) -> Literal["better", "worse", "unclear"]:
    """Direction of a change; with `lower`, lower is better for every quantity."""
    if not has_range(interval) or interval.low <= 0 <= interval.high:
        return "unclear"
    higher = QUANTITIES[name].better == "higher" and not lower
    return "better" if (interval.low > 0) == higher else "worse"


def has_range(interval: Interval) -> bool:
    """True if there is an interval."""
    return math.isfinite(interval.low) and math.isfinite(interval.high)


def _decimals(interval: Interval, unit: Unit) -> int:
    """Number of decimals that the interval supports."""
    scale, (usual, most) = _SCALE[unit], (2, 4) if unit in _ENDING else (4, 6)
    sixth = scale * (interval.high - interval.low) / 6
    if not has_range(interval) or sixth <= 0:
        return usual
    start = min(max(-math.floor(math.log10(sixth) + ROUNDING), 0), most)
    seen = [interval.value]
    if unit in ("points", "change"):  # their ends show whether zero is within
        seen = [interval.low, interval.high]
    for decimals in range(start, min(start + 2, most) + 1):
        if all(round(scale * end, decimals) for end in seen if end):
            return decimals
    return start


def _number(value: float, unit: Unit, decimals: int) -> str:
    if math.isnan(value):
        return NOTHING
    sign = "+" if unit in ("points", "change") else ""
    text = f"{_SCALE[unit] * value:{sign}.{decimals}f}"
    zero = not text.strip("+-0.")  # -0.00 and +0.00 are 0.00
    if zero and value and decimals == 6:
        return f"{value:{sign}.3g}"
    return text.lstrip("+-") if zero else text
