"""How gates are written, in a file, on the command line and in a test."""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from churn_jax.comparison.gates.conditions import (
    ALL_SLICES,
    CLASSES,
    EXCESS,
    Gate,
    GateError,
    closest,
)
from churn_jax.comparison.quantities import QUANTITIES

__all__ = ["SHORT", "bound_and_quantity", "gates_by_name", "limit_of"]

_GROUPINGS = {"slice": ALL_SLICES, "class": CLASSES}

SHORT = {
    "nfr": "negative_flip_rate",
    "pfr": "positive_flip_rate",
    "relative_nfr": "relative_negative_flip_rate",
    "btc": "backward_trust_compatibility",
    "bec": "backward_error_compatibility",
}


def bound_and_quantity(key: str) -> tuple[Literal["max", "min"], str]:
    """What `max-nfr` stands for."""
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
    """A limit as a number; `2%` is 0.02."""
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


def gates_by_name(
    limits: Mapping[str, Any],
    *,
    on: Literal["estimate", "bound"] = "estimate",
    min_examples: int = 1,
) -> tuple[Gate, ...]:
    """Gates of options."""
    found = []
    for name, given in limits.items():
        if given is None:
            continue
        plain = name.lstrip("-").replace("-", "_")
        parts = re.fullmatch(r"(max|min)_(?:(slice|class)_)?(\w+)", plain)
        bound, quantity = bound_and_quantity(
            f"{parts[1]}_{parts[3]}" if parts else name
        )
        limit = limit_of(given, name)
        grouping = _GROUPINGS.get(parts[2], "") if parts else ""
        try:
            gate = Gate(quantity, limit, bound, on, grouping, min_examples=min_examples)
        except GateError as error:
            raise GateError(f"{name}: {error}") from None
        found.append(gate)
    return tuple(found)
