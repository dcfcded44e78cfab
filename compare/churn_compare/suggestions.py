"""Names that a user may have meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(
    name: str, known: Iterable[str], count: int = 2, cutoff: float = 0.4
) -> str:
    """`; did you mean resnet20?`, or "" if no known name is similar."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lower, n=count, cutoff=cutoff)
    *first, last = [lower[c] for c in close] or [""]
    names = " or ".join(filter(None, [", ".join(first), last]))
    return f"; did you mean {names}?" if names else ""
