"""What differs between kept texts and those of now; numbers may by 1e-6 of their size."""

import difflib
import math
import re
from collections.abc import Mapping
from pathlib import Path

_NUMBER = re.compile(r"\d+(?:,\d{3})+|\d+\.?\d*(?:[eE][-+]?\d+)?")
_RELATIVE, _ABSOLUTE = 1e-6, 1e-14
_WIDTH = 200


def report(kept: Mapping[str, Path], said: Mapping[str, str], *, lines: int) -> int:
    """Prints the comparisons that differ; returns how many do."""
    found = 0
    for name in sorted(kept.keys() | said.keys()):
        if name not in said:
            why = ["only before"]
        elif name not in kept:
            why = ["only now"]
        else:
            old = kept[name].read_text(encoding="utf-8")
            why = [] if old == said[name] else differing(old, said[name])
        if why:
            found += 1
            shown = "".join(f"\n    {line[:_WIDTH]}" for line in why[:lines])
            more = f"\n    ... {len(why) - lines} more" if len(why) > lines else ""
            print(f"{name}{shown}{more}")
    return found


def differing(old: str, new: str) -> list[str]:
    """Lines that differ, `-` before and `+` now."""
    before, now = old.split("\n"), new.split("\n")
    if len(before) == len(now):
        pairs = zip(before, now, strict=True)
        return [line for a, b in pairs if not same(a, b) for line in shorter(a, b)]
    diff = difflib.unified_diff(before, now, lineterm="", n=0)
    return [x for x in list(diff)[2:] if not x.startswith("@@")]


def shorter(a: str, b: str) -> tuple[str, str]:
    """Two long lines from shortly before the first difference on."""
    if max(len(a), len(b)) <= _WIDTH:
        return f"- {a}", f"+ {b}"
    pairs = enumerate(zip(a, b))
    first = next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
    start = max(first - 60, 0)
    return f"- ...{a[start:]}", f"+ ...{b[start:]}"


def same(a: str, b: str) -> bool:
    """Whether two lines are equal but for the rounding of numbers."""
    if a == b:
        return True
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    return all(
        x == y or _near(x, y)
        for x, y in zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    )


def _near(a: str, b: str) -> bool:
    if not any(mark in text for text in (a, b) for mark in ".eE"):
        return False  # whole numbers
    x, y = (float(text.replace(",", "")) for text in (a, b))
    return math.isclose(x, y, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
