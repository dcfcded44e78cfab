"""Differences of two configurations, and settings that change no result."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

FREE = frozenset(
    (
        # Where and how fast a study runs.
        *("mesh", "mapping", "steps_per_call", "eval_batch_size"),
        *("checkpoint_every_seconds", "data_dir", "manual_dir", "threads", "workers"),
        # How it is shown, and how its predictions are kept.
        *("title", "label", "equation", "published", "columns", "updates", "notes"),
        "evaluation",
    )
)
"""Settings that do not change results: they may differ between two launches."""

_SHOWN = 3  # differences named in a message
_LONGEST = 45  # characters of a value in a message
_ABSENT = object()


def without(value: Any, names: Collection[str] = FREE) -> Any:
    """JSON values without the settings called so, at any depth."""
    if isinstance(value, dict):
        return {k: without(v, names) for k, v in value.items() if k not in names}
    return [without(v, names) for v in value] if isinstance(value, list) else value


def differences(there: Any, here: Any, path: str = "") -> list[str]:
    """The differences of two JSON values, as `path: value there, value here`.

    Parts of lists that have a name are called by it. Methods of two classes differ in
    the class alone, long lists of numbers as a whole.

    Args:
        there: value that was found.
        here: value that it is compared with.
        path: path of both so far.

    Example:
        >>> differences({"epochs": 1, "only": ["a"]}, {"epochs": 2, "only": ["a"]})
        ['epochs: 1 there, 2 here']
    """
    whole = [f"{path}: {_text(there)} there, {_text(here)} here"]
    if isinstance(there, dict) and isinstance(here, dict):
        if there.get("class") != here.get("class"):
            return whole
        keys = dict.fromkeys((*there, *here))
        return [
            line
            for key in keys
            for line in differences(
                there.get(key, _ABSENT),
                here.get(key, _ABSENT),
                f"{path}.{key}".lstrip("."),
            )
        ]
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        found = [
            line
            for i, (a, b) in enumerate(zip(there, here, strict=True))
            for line in differences(a, b, f"{path}{_place(a, i)}")
        ]
        plain = not any(isinstance(value, dict | list) for value in there)
        short = plain and len(found) > _SHOWN and _text(there) != _text(here)
        return whole if short else found
    same = there == here and isinstance(there, bool) == isinstance(here, bool)
    return [] if same else whole


def in_words(found: list[str]) -> str:
    """The first differences as one clause, with how many more there are."""
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return "; ".join([*found[:_SHOWN], *more])


def _place(value: Any, number: int) -> str:
    named = isinstance(value, dict) and "name" in value
    return f".{value['name']}" if named else f"[{number}]"


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, dict):
        named = value.get("class") or value.get("name")
        text = str(named or value)
    elif isinstance(value, list) and len(value) > _SHOWN:
        numbers = (f"{v:.4g}" if isinstance(v, float) else _text(v) for v in value)
        first = ", ".join(itertools.islice(numbers, _SHOWN))
        return f"[{first}, ... {len(value)} values]"
    else:
        text = str(value) if value != "" else "''"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
