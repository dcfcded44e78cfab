"""Which class of the old version is which class of the new one, as a user says it."""

import collections
import csv
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from churn_jax.predictions import PredictionsError, some

__all__ = ["read_class_map"]


def read_class_map(given: Any) -> dict[str, str] | Literal["identity"] | None:
    """Reads a class map."""
    if given is None or (isinstance(given, str) and given == "identity"):
        return given
    if isinstance(given, Mapping):
        return _checked(list(given.items()), "class map")
    if not isinstance(given, str | os.PathLike):
        raise PredictionsError(
            "a class map is 'identity', a mapping or a file; got "
            f"{type(given).__name__}"
        )
    path = Path(given)
    if not path.is_file():
        hint = " (a map may also be 'identity')" if path.suffix == "" else ""
        raise PredictionsError(f"{path}: there is no such file{hint}")
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".json":
            pairs = json.loads(text, object_pairs_hook=list)
        elif path.suffix.lower() == ".csv":
            pairs = _from_csv(text)
        else:
            raise PredictionsError("a class map must be a .json or a .csv file")
        if not isinstance(pairs, list) or not all(
            isinstance(pair, tuple) and len(pair) == 2 for pair in pairs
        ):
            raise PredictionsError("a class map must be one object, old class: new")
        return _checked(pairs, "class map")
    except PredictionsError as error:
        raise PredictionsError(f"{path}: {error}") from error
    except (ValueError, RecursionError, csv.Error) as error:
        why = " ".join(str(error).split())
        raise PredictionsError(f"{path}: cannot be read, {why}") from error


def _from_csv(text: str) -> list[tuple[str, str]]:
    rows = list(csv.reader(text.splitlines()))
    if not rows or [name.strip().lower() for name in rows[0]] != ["old", "new"]:
        raise PredictionsError("a class map must have the columns old and new")
    odd = [i + 1 for i, row in enumerate(rows) if row and len(row) != 2]
    if odd:
        raise PredictionsError(f"lines {some(odd)} do not have two values")
    return [(row[0], row[1]) for row in rows[1:] if row]


def _checked(pairs: list[tuple[Any, Any]], what: str) -> dict[str, str]:
    text = [(_text(old), _text(new)) for old, new in pairs]
    if not text:
        raise PredictionsError(f"the {what} is empty")
    found = dict(text)
    if len(found) < len(text):
        twice = _twice(old for old, _ in text)
        raise PredictionsError(f"the {what} maps old classes {some(twice)} twice")
    if twice := _twice(found.values()):
        olds = [old for old, new in text if new == twice[0]]
        raise PredictionsError(
            f"the {what} maps two old classes to one new class: {' and '.join(olds)} "
            f"to {twice[0]}"
        )
    return found


def _twice(values: Iterable[str]) -> list[str]:
    counts = collections.Counter(values)
    return sorted(value for value, count in counts.items() if count > 1)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        if not (hasattr(value, "dtype") and value.dtype.kind in "iuU"):
            raise PredictionsError(f"a class map is of numbers or names; got {value!r}")
    return str(value).strip()
