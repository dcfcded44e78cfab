"""What differs between two folders of kept texts and arrays."""

import difflib
import re
from pathlib import Path

import numpy as np

_NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def report(before: Path, now: Path, areas: list[str], *, lines: int) -> int:
    """Prints every difference; 1 if there is one."""
    found = 0
    for area in areas:
        if not (before / area).is_dir():
            print(f"{area}: not in {before}")
            found += 1
            continue
        kept, said = _files(before / area), _files(now / area)
        for name in sorted(kept | said):
            if name not in said or name not in kept:
                where = "only before" if name in kept else "only now"
                print(f"{area}/{name}: {where}")
                found += 1
            elif sentence := _difference(
                before / area / name, now / area / name, lines
            ):
                print(f"{area}/{name}: {sentence}")
                found += 1
        print(f"{area}: {len(said)} files compared")
    print(f"{found} differences" + (f"; what is said now: {now}" if found else ""))
    return 1 if found else 0


def _files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def _difference(before: Path, now: Path, lines: int) -> str:
    if before.suffix == ".npz":
        return _of_arrays(before, now)
    old, new = before.read_text(), now.read_text()
    if before.suffix == ".words" and old.split() == new.split():
        return ""
    if old == new:
        return ""
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    shown = list(diff)[2:]
    more = f"\n    ... {len(shown) - lines} lines more" if len(shown) > lines else ""
    text = "".join(f"\n    {line[:240]}" for line in shown[:lines]) + more
    return f"{_how_much(old, new)}{text}"


def _how_much(old: str, new: str) -> str:
    """Whether only numbers differ, and by how much at most."""
    a, b = _NUMBER.findall(old), _NUMBER.findall(new)
    if len(a) != len(b) or _NUMBER.sub("", old) != _NUMBER.sub("", new):
        return "differs"
    gaps = [abs(float(x) - float(y)) / max(1.0, abs(float(x))) for x, y in zip(a, b)]
    return f"differs in numbers, by {max(gaps):.1e} at most"


def _of_arrays(before: Path, now: Path) -> str:
    with np.load(before) as old, np.load(now) as new:
        if set(old) != set(new):
            return f"other arrays: {sorted(set(old) ^ set(new))}"
        out = []
        for name in old:
            a, b = old[name], new[name]
            if a.dtype != b.dtype or a.shape != b.shape:
                out.append(f"{name}: {a.dtype} {a.shape} became {b.dtype} {b.shape}")
            elif a.tobytes() != b.tobytes():
                numbers = a.dtype.kind in "fiub"
                gap = np.nanmax(np.abs(a.astype(float) - b)) if numbers else np.nan
                out.append(f"{name}: differs by {gap:.1e} at most")
    return "; ".join(out)
