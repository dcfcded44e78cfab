"""Names that a user may have meant."""

import difflib
from collections.abc import Iterable, Sequence


def did_you_mean(
    name: str, known: Iterable[str], count: int = 2, cutoff: float = 0.4
) -> str:
    """`; did you mean resnet20?`, or "" if no known name is similar."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lower, n=count, cutoff=cutoff)
    return f"; did you mean {one_of([lower[c] for c in close])}?" if close else ""


def one_of(names: Sequence[str]) -> str:
    """`a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
