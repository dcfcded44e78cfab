"""Checks of single settings, with one sentence for each kind of mistake."""

import dataclasses
import math
import numbers
from collections.abc import Collection
from typing import Any


def check_choice(what: str, value: Any, known: Collection[str]) -> None:
    """Refuses a value not in `known`; the message does not list the empty string."""
    if value not in known:
        names = ", ".join(filter(None, known))
        raise ValueError(f"{what} must be one of {names}; got {value!r}")


def check_least(what: str, value: float, least: int) -> None:
    """Refuses a number below `least`, and one that is not finite."""
    if not least <= value < math.inf:
        finite = " and finite" if value == math.inf else ""
        raise ValueError(f"{what} must be at least {least}{finite}; got {value}")


def check_share(what: str, value: float) -> None:
    """Refuses a share that is not in `[0, 1)`."""
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{what} must be at least 0 and below 1; got {value}")


def check_minutes(what: str, minutes: float | None) -> None:
    """Refuses a time limit that is not a positive number; None means no limit."""
    number = isinstance(minutes, numbers.Real) and not isinstance(minutes, bool)
    if minutes is not None and not (number and 0 < minutes < math.inf):
        raise ValueError(f"{what} must be a positive number; got {minutes!r}")


def check_none(who: str, *mistakes: tuple[Any, str]) -> None:
    """Raises the sentence of the first mistake whose condition is true."""
    for wrong, sentence in mistakes:
        if wrong:
            raise ValueError(f"{who}: {sentence}" if who else sentence)


def check_settings(settings: Any, where: str = "", **limits: Any) -> None:
    """Refuses a setting beyond its limit: the known values, the least one, or `share`.

    Example:
        >>> from types import SimpleNamespace
        >>> check_settings(SimpleNamespace(epochs=0), epochs=1)
        Traceback (most recent call last):
        ValueError: epochs must be at least 1; got 0
    """
    for name, limit in limits.items():
        what, value = f"{where}{name}", getattr(settings, name)
        if limit == "share":
            check_share(what, value)
        elif isinstance(limit, int):
            check_least(what, value, limit)
        else:
            check_choice(what, value, limit)


def setting(default: Any, of: Any) -> Any:
    """A field with its limit, which `check_fields` knows: see `check_settings`."""
    return dataclasses.field(default=default, metadata={"of": of})


def check_fields(settings: Any, where: str = "") -> None:
    """Refuses values beyond the limits of a dataclass's fields."""
    known = {f.name: f.metadata.get("of") for f in dataclasses.fields(settings)}
    limits = {name: of for name, of in known.items() if of is not None}
    check_settings(settings, where, **limits)
