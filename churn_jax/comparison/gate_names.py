"""How gates are written, in a file, on the command line and in a test."""

import math
from typing import Any, Literal

from churn_jax.comparison.gates import EXCESS, GateError, closest
from churn_jax.comparison.quantities import QUANTITIES

__all__ = ["SHORT", "bound_and_quantity", "limit_of"]

SHORT = {
    "nfr": "negative_flip_rate",
    "pfr": "positive_flip_rate",
    "relative_nfr": "relative_negative_flip_rate",
    "btc": "backward_trust_compatibility",
    "bec": "backward_error_compatibility",
}


def bound_and_quantity(key: str) -> tuple[Literal["max", "min"], str]:
    """What `max-nfr` stands for.

    Args:
        key: `max-` or `min-` and the name of a quantity, or a short one of `SHORT`;
            hyphens and underscores mean the same.

    Returns:
        "max" or "min", and the quantity.

    Raises:
        GateError: there is no such key; says which is closest.

    Example:
        >>> bound_and_quantity("max-nfr")
        ('max', 'negative_flip_rate')
    """
    known = {
        f"{bound}-{name}".replace("_", "-")
        for bound in ("max", "min")
        for name in (*SHORT, *QUANTITIES, EXCESS)
    }
    plain = key.replace("_", "-")
    if plain not in known:
        hint = closest(plain, sorted(known)) or "keys begin with max- or min-"
        raise GateError(f"unknown key {key!r}; {hint}")
    name = plain[4:].replace("-", "_")
    return ("max" if plain.startswith("max") else "min"), SHORT.get(name, name)


def limit_of(given: Any, what: str) -> float:
    """A limit as a number; `2%` is 0.02.

    Args:
        given: a number, or a text of one, with or without a percent sign.
        what: where it stands, for the message.

    Raises:
        GateError: it is no number.

    Example:
        >>> limit_of("2%", "max-churn"), limit_of("-0.5 %", "x"), limit_of(0.02, "x")
        (0.02, -0.005, 0.02)
    """
    percent = False
    value = math.nan
    try:
        if isinstance(given, int | float) and not isinstance(given, bool):
            value = float(given)
        elif isinstance(given, str):
            percent = given.rstrip().endswith("%")
            value = float(given.rstrip().removesuffix("%"))
    except (ValueError, OverflowError):
        pass
    if math.isfinite(value):
        return value / 100 if percent else value
    raise GateError(f"{what} must be a number such as 0.02 or 2%; got {given!r}")
