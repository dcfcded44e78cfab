"""Gates of a repository, in a TOML file."""

import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from churn_compare.gates import (
    ALL_SLICES,
    CLASSES,
    ON,
    Gate,
    GateError,
    bound_and_quantity,
    closest,
    gates_by_name,
    limit_of,
)
from churn_compare.reading.spelling import twice
from churn_compare.result import Waiver

Gating = Sequence[Gate] | Mapping[str, Any] | str | os.PathLike

_WAIVE = "waive"
_WAIVER = ("id", "reason", "until")
_SETTINGS = ("on", "min-examples")
_DEPTHS = {"slices": 3, "classes": 2}  # a table per column and value, or per class
_TABLES = tuple(_DEPTHS)


def as_gates(given: Gating) -> tuple[Gate, ...]:
    """Gates in any form in which a user may give them."""
    if isinstance(given, str | os.PathLike):
        return read_gates(given)
    if isinstance(given, Mapping):
        return gates_by_name(given)
    for gate in (found := tuple(given)):
        if not isinstance(gate, Gate):
            raise GateError(f"not a gate: {gate!r}; write Gate('churn', 0.05)")
    return found


def waivers_of(given: Gating) -> tuple[Waiver, ...]:
    """The waivers that come with the gates, if these are a file."""
    return read_waivers(given) if isinstance(given, str | os.PathLike) else ()


def read_gates(path: str | os.PathLike) -> tuple[Gate, ...]:
    '''Reads the conditions of a TOML file.

    A key is `max-` or `min-` and a quantity's name, with hyphens, or short: nfr, pfr,
    relative-nfr, btc, bec. Its value is a limit, `0.02` or `"2%"`, or a table with
    `limit` and, for this gate alone, `on` and `min-examples`. What stands before the
    first table is about all examples together; `[classes]` about each class,
    `[classes."7"]` about one; `[slices]` about each value of every column of the
    slices, `[slices.region]` of that column, `[slices.region."north"]` about one. What
    is about less takes the place of what is about more. `on = "bound"` and
    `min-examples = 30` hold for the table they stand in and those below it.

    Args:
        path: of the file.

    Returns:
        The gates, in the order of the file.

    Raises:
        GateError: the file cannot be read or an entry makes no sense; the message
            begins with the path and names the entry.

    Example:
        >>> import tempfile
        >>> text = """
        ... max-churn = "5%"
        ... max-nfr = {limit = 0.01, on = "bound"}
        ... [slices.region]
        ... max-nfr = 0.02
        ... """
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "gates.toml"
        ...     _ = path.write_text(text)
        ...     for gate in read_gates(path):
        ...         print(gate.text)
        churn at most 5 %
        upper end of negative flip rate at most 1 %
        negative flip rate at most 2 % in each region
    '''
    table = _table(Path(path))
    table.pop(_WAIVE, None)
    try:
        gates = tuple(_gates(table, {}))
    except GateError as error:
        raise GateError(f"{path}: {error}") from None
    if not gates:
        raise GateError(f"{path}: there is no gate in it, such as max-churn = 0.05")
    return gates


def read_waivers(path: str | os.PathLike) -> tuple[Waiver, ...]:
    """The `[[waive]]` tables of a gate file.

    Args:
        path: of the file.

    Raises:
        GateError: the file cannot be read, or a waiver lacks its id, reason or date or
            is there twice.
    """
    table = _table(Path(path)).get(_WAIVE, [])
    try:
        if not isinstance(table, list):
            raise GateError(f"{_WAIVE} must be written [[{_WAIVE}]]")
        found = tuple(
            _waiver(given, f"waiver {number}") for number, given in enumerate(table, 1)
        )
        if again := twice(waiver.id for waiver in found):
            raise GateError(f"the id {again[0]!r} is waived twice")
    except GateError as error:
        raise GateError(f"{path}: {error}") from None
    return found


def _waiver(given: Any, place: str) -> Waiver:
    """A `[[waive]]` of a gate file."""
    if not isinstance(given, Mapping):
        raise GateError(f"{place} must be a table with {', '.join(_WAIVER)}")
    for key in given:
        if key not in _WAIVER:
            hint = closest(key, _WAIVER) or f"known are {', '.join(_WAIVER)}"
            raise GateError(f"{place}: unknown key {key!r}; {hint}")
    if lacking := [key for key in _WAIVER if not str(given.get(key, "")).strip()]:
        raise GateError(f"{place}: a waiver needs {' and '.join(lacking)}")
    until = given["until"]
    try:
        if not isinstance(until, datetime.date):
            until = datetime.date.fromisoformat(str(until))
    except ValueError:
        raise GateError(
            f"{place}: until must be a date such as 2026-12-31; got {until!r}"
        ) from None
    if isinstance(until, datetime.datetime):
        until = until.date()
    return Waiver(str(given["id"]), str(given["reason"]).strip(), until.isoformat())


def _table(path: Path) -> dict[str, Any]:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise GateError(f"{path}: the gate file {what}")
    try:
        import tomllib

        return tomllib.loads(path.read_bytes().decode())
    except ValueError as error:  # of TOML or of UTF-8
        raise GateError(f"{path}: not a TOML file, {error}") from None


def _gates(
    table: Mapping[str, Any], above: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[Gate]:
    """Gates of the table at `path` and of the tables in it."""
    settings = _settings(table, above, ".".join(path))
    for key, value in table.items():
        place = ".".join((*path, key))
        inside = key in _TABLES if not path else len(path) < _DEPTHS[path[0]]
        if inside and (not path or _is_table(key, value)):
            if not isinstance(value, Mapping):
                raise GateError(f"{key} must be a table, [{key}]; got {value!r}")
            found = tuple(_gates(value, settings, (*path, key)))
            if not found:
                raise GateError(f"{place}: there is no gate in this table")
            yield from found
        elif key not in _SETTINGS:
            yield _gate(key, value, settings, path)


def _about(path: tuple[str, ...]) -> tuple[str, str]:
    """The grouping and the group that the gates of a table are about."""
    names = path[1:]
    if path[:1] == ("classes",):
        names = (CLASSES, *names)
    elif path == ("slices",):
        names = (ALL_SLICES,)
    grouping, group, *_ = (*names, "", "")
    return grouping, group


def _is_table(key: str, value: Any) -> bool:
    """Whether it is a table of gates, and not one gate with its settings."""
    if not isinstance(value, Mapping) or "limit" in value:
        return False
    try:
        bound_and_quantity(key)
    except GateError:
        return True
    return False  # a gate that lacks its limit


def _settings(
    table: Mapping[str, Any], above: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Fields of a `Gate` that hold in this table and below."""
    found = dict(above)
    for key in _SETTINGS:
        if key in table and not isinstance(table[key], Mapping):
            value, place = table[key], f"{where}.{key}" if where else key
            if key == "on" and value not in ON:
                known = " or ".join(f'"{name}"' for name in ON)
                raise GateError(f"{place} must be {known}; got {value!r}")
            if key != "on" and (type(value) is not int or value < 1):
                raise GateError(f"{place} must be a count of at least 1; got {value!r}")
            found[key.replace("-", "_")] = value
    return found


def _gate(
    key: str, value: Any, settings: Mapping[str, Any], path: tuple[str, ...]
) -> Gate:
    place = ".".join((*path, key))
    if not path and _is_table(key, value):
        hint = closest(key, _TABLES) or f"tables are {', '.join(_TABLES)}"
        raise GateError(f"unknown table {key!r}; {hint}")
    limit = value
    if isinstance(value, Mapping):
        settings = _settings(value, settings, place)
        for name in value:
            if name not in ("limit", *_SETTINGS):
                known = ("limit", *_SETTINGS)
                hint = closest(name, known) or f"known are {', '.join(known)}"
                raise GateError(f"{place}: unknown key {name!r}; {hint}")
        if "limit" not in value:
            raise GateError(f"{place}: a gate needs a limit")
        limit = value["limit"]
    try:
        bound, quantity = bound_and_quantity(key)
        grouping, group = _about(path)
        limit = limit_of(limit, "the limit", quantity)
        return Gate(quantity, limit, bound, grouping=grouping, group=group, **settings)
    except GateError as error:
        raise GateError(f"{place}: {error}") from None
