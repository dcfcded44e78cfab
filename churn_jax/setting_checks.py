"""Checks of single settings, with one sentence for each kind of mistake."""

from collections.abc import Collection
from typing import Any


def check_choice(what: str, value: Any, known: Collection[str]) -> None:
    """Refuses a value that is none of those known."""
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}; got {value!r}")


def check_least(what: str, value: float, least: int) -> None:
    """Refuses a number below `least`."""
    if value < least:
        raise ValueError(f"{what} must be at least {least}; got {value}")


def check_share(what: str, value: float) -> None:
    """Refuses a share that is not in `[0, 1)`."""
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{what} must be at least 0 and below 1; got {value}")
