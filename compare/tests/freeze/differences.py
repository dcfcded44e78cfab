"""What differs between kept texts and those of now; numbers may by 1e-6 of their size."""

import collections
import difflib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_NUMBER = re.compile(
    r"(?:(?<![\w.])[-+])?(?:\d+(?:,\d{3})+|\d+\.?\d*(?:[eE][-+]?\d+)?)"
)
_SECTION = re.compile(r"^=== (.*)$", re.MULTILINE)
_RELATIVE, _ABSOLUTE = 1e-6, 1e-14
_WIDTH = 200
_SHAPES = 40  # that a summary lists


def report(
    kept: Mapping[str, Path],
    said: Mapping[str, str],
    *,
    lines: int,
    ignore: str = "",
    summary: bool = False,
) -> int:
    """Prints the comparisons that differ; returns how many do."""
    found = 0
    shapes: collections.Counter[str] = collections.Counter()
    examples: dict[str, str] = {}
    for name in sorted(kept.keys() | said.keys()):
        if name not in said:
            why = ["only before"]
        elif name not in kept:
            why = ["only now"]
        else:
            old = kept[name].read_text(encoding="utf-8")
            why = [] if old == said[name] else differing(old, said[name])
        if ignore:
            why = [line for line in why if not re.search(ignore, line)]
        if not why:
            continue
        found += 1
        for shape in {re.sub(r"\d+(?:\.\d+)?", "#", line) for line in why}:
            shapes[shape] += 1
            examples.setdefault(shape, name)
        if not summary:
            shown = "".join(f"\n    {line[:_WIDTH]}" for line in why[:lines])
            more = f"\n    ... {len(why) - lines} more" if len(why) > lines else ""
            print(f"{name}{shown}{more}")
    if summary:
        for shape, count in shapes.most_common(_SHAPES):
            print(f"{count:5} {shape[:_WIDTH]}  ({examples[shape]})")
        print(f"{len(shapes)} kinds of lines")
    return found


def sections(text: str) -> dict[str, str]:
    """The parts of a kept text by what they are."""
    _, *parts = _SECTION.split(text)
    found: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        while name in found:
            name += "'"
        found[name] = body.strip("\n")
    return found


def differing(old: str, new: str) -> list[str]:
    """Lines that differ, `-` before and `+` now, with the part that they are in."""
    before, now = sections(old), sections(new)
    found = []
    for name in dict.fromkeys((*before, *now)):
        if name not in now or name not in before:
            found.append(f"{'-' if name in before else '+'} [{name}]")
        elif before[name] != now[name]:
            a, b = before[name].split("\n"), now[name].split("\n")
            json = a[0] == b[0] == "{json}"
            of = _of_values(a, b) if json else _of_lines(a, b)
            found += [f"{line[0]} [{name}]{line[1:]}" for line in of]
    return found


def _of_values(before: list[str], now: list[str]) -> Iterator[str]:
    """JSON, a value with its path in each line."""
    a, b = (dict(line.partition(" = ")[::2] for line in of) for of in (before, now))
    for path in dict.fromkeys((*a, *b)):
        if path not in b:
            yield f"- {path} = {a[path]}"
        elif path not in a:
            yield f"+ {path} = {b[path]}"
        elif not same(a[path], b[path]):
            yield from shorter(f"{path} = {a[path]}", f"{path} = {b[path]}")


def _of_lines(before: list[str], now: list[str]) -> Iterator[str]:
    if len(before) == len(now):
        blocks = [("replace", 0, len(before), 0, len(now))]
    else:
        matched = difflib.SequenceMatcher(None, before, now, autojunk=False)
        blocks = matched.get_opcodes()
    for kind, a, b, c, d in blocks:
        if kind == "equal":
            continue
        if b - a == d - c:
            for x, y in zip(before[a:b], now[c:d], strict=True):
                yield from () if same(x, y) else shorter(x, y)
        else:
            yield from (f"- {line}" for line in before[a:b])
            yield from (f"+ {line}" for line in now[c:d])


def shorter(a: str, b: str) -> tuple[str, str]:
    """Two long lines from shortly before the first difference on."""
    if max(len(a), len(b)) <= _WIDTH - 20:
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
