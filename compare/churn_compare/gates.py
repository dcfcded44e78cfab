"""Conditions on an update, given by name or in a TOML file."""

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from churn_compare.example_ids import canonical, twice, value_texts
from churn_compare.groups import coded
from churn_compare.number_text import Unit, listed, value_text
from churn_compare.pair import Pair
from churn_compare.quantities import QUANTITIES
from churn_compare.reading import arrow
from churn_compare.result import ROUNDING, Interval, Waiver
from churn_compare.suggestions import did_you_mean

EQUIVALENT = "equivalent"  # `Measured.within`
On = Literal["estimate", "bound", "interval"]
ON: tuple[On, ...] = ("estimate", "bound", "interval")
ALL_SLICES = "*"
CLASSES = "class"

EXCESS = "excess_churn"  # `Noise.excess`
OF_CHANGED = ("negative_flip_rate", "positive_flip_rate", "accuracy_gain")
OF_RUNS = tuple(n for n in QUANTITIES if n.startswith(("within", "excess", "expected")))

# Quantities that classes and slices have.
GROUP_QUANTITIES = (
    *(name for name, of in QUANTITIES.items() if of.outcomes),
    *("accuracy_old", "accuracy_new", "accuracy_gain"),
    *("churn", "negative_flip_rate", "positive_flip_rate"),
    *OF_RUNS,
)

SHORT = {
    "nfr": "negative_flip_rate",
    "pfr": "positive_flip_rate",
    "relative_nfr": "relative_negative_flip_rate",
    "btc": "backward_trust_compatibility",
    "bec": "backward_error_compatibility",
}


class GateError(ValueError):
    """A condition that is invalid or that these predictions cannot answer."""


@dataclasses.dataclass(frozen=True)
class Gate:
    """One condition: a quantity is at most, or at least, a limit.

    Attributes:
        quantity: name in `QUANTITIES`; or "equivalent", if two one-sided tests are to
            show that accuracy changes by less than the limit.
        limit: the limit, as a fraction for shares: 0.02 for 2 %.
        bound: "max" for at most the limit, "min" for at least the limit.
        on: number compared with the limit: "estimate"; "bound", the end of its
            confidence interval nearer to failing (the upper one for "max"); or
            "interval", the whole interval: the gate passes if all of it keeps the
            limit, fails if none does and is inconclusive otherwise.
        grouping: "" for all examples together; "class" for each class; a column of the
            slices for each of its values; "*" for each value of every column.
        group: one class or value of `grouping`; "" for each of them.
        min_examples: least number of examples of a group that is judged, unless the
            group is named.

    A gate on a named group replaces the one on the same quantity and bound for each
    group, and a gate on a column replaces the one on every column.

    Raises:
        GateError: if there is no such quantity, or an attribute is invalid.

    Example:
        >>> Gate("negative_flip_rate", 0.01, on="bound").text
        'upper end of negative flip rate at most 1 %'
        >>> Gate("accuracy_gain", -0.005, "min", grouping="region").text
        'accuracy gain at least -0.5 points in each region'
    """

    quantity: str
    limit: float
    bound: Literal["max", "min"] = "max"
    on: On = "estimate"
    grouping: str = ""
    group: str = ""
    min_examples: int = 1

    def __post_init__(self):
        known = GROUP_QUANTITIES if self.grouping else (*QUANTITIES, EQUIVALENT)
        if self.quantity not in known:
            where = " of classes and slices" if self.grouping else ""
            hint = closest(self.quantity, known) or f"known are {', '.join(known)}"
            raise GateError(f"no quantity {self.quantity!r}{where} for a gate; {hint}")
        limit = f"the limit of {self.quantity}"
        if isinstance(self.limit, np.integer | np.floating):
            object.__setattr__(self, "limit", float(str(self.limit)))  # 0.05 of float32
        if isinstance(self.limit, bool) or not isinstance(self.limit, int | float):
            raise GateError(f"{limit} must be a number")
        if not math.isfinite(self.limit):
            raise GateError(f"{limit} must be finite")
        least = {"share": 0, "points": -1}.get(self.unit)
        if self.quantity == EQUIVALENT:
            least = 0
            if self.bound != "max" or self.limit == 0:
                raise GateError("equivalent takes a margin above 0, such as 0.01")
        if least is not None:
            check_share(self.limit, limit, least)
        for name, allowed in (("bound", ("max", "min")), ("on", ON)):
            if getattr(self, name) not in allowed:
                known = " or ".join(map(repr, allowed))
                raise GateError(f"{name} must be {known}; got {getattr(self, name)!r}")
        if self.group and self.grouping in ("", ALL_SLICES):
            raise GateError(
                f"the group {self.group!r} needs its grouping, a column of the slices "
                'or "class"'
            )
        if self.group and self.grouping != CLASSES:  # in the spelling of the slices
            (group,) = value_texts(arrow.array([self.group])).to_pylist()
            object.__setattr__(self, "group", group)
        if self.min_examples < 1:
            raise GateError(f"min_examples must be at least 1; got {self.min_examples}")

    @property
    def unit(self) -> Unit:
        """Unit of the number, as in `Quantity.unit`."""
        return _unit(self.quantity)

    @property
    def text(self) -> str:
        """The condition as a part of a sentence."""
        if self.quantity == EQUIVALENT:
            return f"accuracy shown to change by less than {margin_text(self.limit)}"
        end = {"max": "upper end of ", "min": "lower end of "}[self.bound]
        start = {"estimate": "", "bound": end, "interval": "interval of "}[self.on]
        most = {"max": "at most", "min": "at least"}[self.bound]
        each = "slice" if self.grouping == ALL_SLICES else self.grouping
        where = f" in each {each}" if each else ""
        where = f" in {self.grouping} {self.group}" if self.group else where
        what = start + self.quantity.replace("_", " ")
        return f"{what} {most} {limit_text(self.limit, self.unit)}{where}"


def combined(
    gates: Sequence[Gate],
    over: Iterable[Gate],
    kept: Sequence[str] = ("on", "min_examples"),
) -> tuple[Gate, ...]:
    """All gates; those of `over` replace others, whose fields `kept` they take."""

    def about(gate: Gate) -> tuple[str, ...]:
        return gate.quantity, gate.bound, gate.grouping, gate.group

    # Two gates of `gates` on the same quantity are both kept: each must hold.
    replaced, found = {about(gate): gate for gate in gates}, {}
    for gate in over:
        before = replaced.get(about(gate), gate)
        fields = {name: getattr(before, name) for name in kept}
        found[about(gate)] = dataclasses.replace(gate, **fields)
    others = (gate for gate in gates if about(gate) not in found)
    return (*others, *found.values())


def check_gates(gates: Sequence[Gate], pair: Pair) -> None:
    """Raises for gates that the predictions cannot answer, before the scan."""
    for gate in gates:
        if reason := next(filter(None, _obstacles(gate, pair)), ""):
            raise GateError(f"the gate {gate.text!r} cannot be judged: {reason}")


def _obstacles(gate: Gate, pair: Pair) -> Iterator[str | bool]:
    """Reasons why the predictions cannot answer the gate; false values are none."""
    if gate.quantity in OF_RUNS and max(len(pair.old.runs), len(pair.new.runs)) < 2:
        yield "noise is measured between runs, and both versions have one run"
    if not pair.measures:
        yield from _obstacles_of_classes(gate, pair)
    if gate.grouping and CLASSES in pair.slices:
        yield 'a column of the slices is called "class", like the groups by label'
    if gate.grouping == ALL_SLICES:
        yield "" if pair.slices else "there are no slices; --by or --slices gives some"
    elif gate.grouping == CLASSES:
        there = [] if pair.labels is None else np.unique(pair.labels).tolist()
        names = [*map(pair.class_name, there)]
        yield _no_such(gate.group, names, "class with examples")
    elif gate.grouping:
        yield _no_such(gate.grouping, list(pair.slices), "column of the slices")
        values, _ = coded(pair.slices[gate.grouping])
        yield _no_such(gate.group, values, f"value of {gate.grouping}")


def _obstacles_of_classes(gate: Gate, pair: Pair) -> Iterator[str | bool]:
    unlabelled, of_class = "there are no labels", gate.grouping == CLASSES
    if gate.quantity == EQUIVALENT:
        yield pair.labels is None and not pair.partial and unlabelled
        return
    quantity = QUANTITIES[gate.quantity]
    of_changed = gate.quantity in OF_CHANGED or quantity.name.endswith("_nfr")
    if quantity.outcomes:
        yield "it is for outcomes, and these are predicted classes"
    if pair.partial and quantity.labels and not of_changed:
        yield "only examples that change have labels"
    needed = quantity.labels and not (pair.partial and of_changed)
    yield (needed or of_class) and pair.labels is None and unlabelled
    for name, side in (("old", pair.old), ("new", pair.new)):
        if quantity.scores in ("both", name) and side.kind == "classes":
            yield f"{side.name} has predicted classes only, without probabilities"


def _no_such(name: str, known: Sequence[str], what: str) -> str:
    if not name or name in known:
        return ""
    hint = closest(name, known) or f"there are {listed(known, 5) or 'none'}"
    return f"there is no {what} {name!r}; {hint}"


def closest(name: str, known: Iterable[str]) -> str:
    """Suggests the most similar of the `known` names; "" if none is similar."""
    return did_you_mean(name, list(known), count=1, cutoff=0.6).removeprefix("; ")


def limit_text(limit: float, unit: Unit) -> str:
    """The limit as text, not rounded."""
    sign = "+" if unit in ("points", "change") and limit else ""
    if unit in ("share", "points"):
        return f"{100 * limit:{sign}.10g} {'%' if unit == 'share' else 'points'}"
    return f"{limit:{sign}.10g}"


def exactly(interval: Interval, number: float, limit: float, unit: Unit) -> str:
    """The number in full if it looks like a limit that it is not."""
    shown = {
        value_text(dataclasses.replace(interval, value=of), unit)
        for of in (number, limit)
    }
    if len(shown) > 1 or not abs(number - limit) > ROUNDING:
        return ""
    return f", exactly {limit_text(number, unit)}"


def past_margin(within: Interval, margin: float, unit: Unit = "points") -> str:
    """The larger end of an interval in full if it looks like the margin."""
    end = max(within.low, within.high, key=abs)
    return exactly(within, end, math.copysign(margin, end), unit)


def margin_text(margin: float) -> str:
    """A margin of accuracy in points."""
    points = f"{100 * margin:.10g}"
    return f"{points} {'point' if points == '1' else 'points'}"


def _unit(quantity: str) -> Unit:
    return "points" if quantity == EQUIVALENT else QUANTITIES[quantity].unit


def limit_of(given: Any, what: str, quantity: str = "") -> float:
    """A limit as a number; `2%` is 0.02, and 1 is refused for a share."""
    text, value = str(given).rstrip(), math.nan
    percent = text.endswith("%")
    with contextlib.suppress(ValueError):
        if text.isascii() and "_" not in text:
            value = float(text.removesuffix("%"))
    of_share = quantity and _unit(quantity) in ("share", "points")
    if of_share and not percent and abs(value) == 1:
        n = f"{value:g}"
        raise GateError(f"{what} {n} may mean {n} % or {n}00 %; write {n}% or {n}00%")
    if percent and quantity and not of_share:
        raise GateError(f"{what} is not a share; write it as a number, without %")
    if math.isfinite(value):
        return value / 100 if percent else value
    raise GateError(f"{what} must be a number such as 0.02 or 2%; got {given!r}")


def check_share(value: float, what: str, least: int = 0) -> None:
    """Raises for a number that is not a share, or not a change of one."""
    if not least <= value <= 1:
        got = f'got {value:g}; write 0.05 or "5%" for 5 %'
        raise GateError(f"{what} must lie between {least} and 1, {got}")


def margin_of(
    given: float | str | None, gates: Sequence[Gate], pair: Pair
) -> float | None:
    """The given margin of equivalence, or that of a gate."""
    if given is None:
        found = [gate.limit for gate in gates if gate.quantity == EQUIVALENT]
        return min(found, default=None)
    margin = limit_of(given, EQUIVALENT, EQUIVALENT)
    Gate(EQUIVALENT, margin)  # checks it
    if pair.labels is None and not pair.partial:
        raise GateError("equivalent is about accuracy, and there are no labels")
    return margin


def bound_and_quantity(key: str) -> tuple[Literal["max", "min"], str]:
    """Bound and quantity of a key such as `max-nfr`."""
    if key == EQUIVALENT:
        return "max", EQUIVALENT
    names = [name.replace("_", "-") for name in (*SHORT, *QUANTITIES)]
    known = [f"{bound}-{name}" for bound in ("max", "min") for name in names]
    if (plain := key.replace("_", "-")) not in known:
        hint = closest(plain, sorted(known)) or "keys begin with max- or min-"
        hint = hint.replace("-", "_") if "_" in key else hint
        raise GateError(f"unknown key {key!r}; {hint}")
    name = plain[4:].replace("-", "_")
    return ("max" if plain.startswith("max") else "min"), SHORT.get(name, name)


def gates_by_name(
    limits: Mapping[str, Any], *, on: On = "estimate", min_examples: int = 1
) -> tuple[Gate, ...]:
    """Gates from options or keyword arguments."""
    found = []
    for name, given in limits.items():
        if isinstance(given, Mapping):
            raise GateError(
                f"{name} is a table; in Python name a limit, such as max_nfr or "
                "max_class_nfr, or give a list of Gate"
            )
        key, grouping = name.lstrip("-").replace("-", "_"), ""
        if parts := re.fullmatch(r"(max_|min_)(slice|class)_(\w+)", key):
            grouping = {"slice": ALL_SLICES, "class": CLASSES}[parts[2]]
            key = parts[1] + parts[3]
        bound, quantity = bound_and_quantity(key)
        limit = limit_of(given, name, quantity)
        settings = {"grouping": grouping, "min_examples": min_examples}
        with errors_in(name):
            found.append(Gate(quantity, limit, bound, on, **settings))
    return tuple(found)


Gating = Sequence[Gate] | Gate | None | Mapping[str, Any] | str | os.PathLike

WAIVE = "waive"
_WAIVER = ("id", "reason", "until")
_SETTINGS: dict[str, Sequence] = {"on": ON, "min-examples": range(1, 2**63)}
_DEPTHS = {"slices": 3, "classes": 2}  # a table per column and value, or per class


def as_gates(given: Gating, more: bool = False) -> tuple[Gate, ...]:
    """Gates from a file (if there are `more`, it may only waive) or of a sequence."""
    if isinstance(given, str | os.PathLike):
        waives = more and [*read_toml(Path(given))] == [WAIVE]
        return () if waives else read_gates(given)
    if isinstance(given, Mapping):
        return gates_by_name(given)
    given = (given,) if isinstance(given, Gate) else given or ()
    for gate in (found := tuple(given)):
        if not isinstance(gate, Gate):
            raise GateError(f"not a gate: {gate!r}; write Gate('churn', 0.05)")
    return found


def waivers_of(
    gates: Gating, given: Sequence[Waiver] | None = ()
) -> tuple[Waiver, ...]:
    """The given waivers and those in the gate file, if gates are given as a file."""
    of_file = read_waivers(gates) if isinstance(gates, str | os.PathLike) else ()
    for waiver in given or ():
        if not isinstance(waiver, Waiver):
            raise GateError(
                f"not a waiver: {waiver!r}; write Waiver(id, reason, until)"
            )
    return (*(given or ()), *of_file)


def read_gates(path: str | os.PathLike) -> tuple[Gate, ...]:
    '''Reads the conditions of a TOML file, in its order.

    A key is `max-` or `min-` and the name of a quantity with hyphens, or one of nfr,
    pfr, relative-nfr, btc and bec. Its value is a limit, `0.02` or `"2%"`, or a table
    with `limit` and, for this gate only, `on` and `min-examples`. Keys before the first
    table apply to all examples together; `[classes]` applies to each class,
    `[classes."7"]` to one; `[slices]` to each value of every column of the slices,
    `[slices.region]` to each value of that column, `[slices.region."north"]` to one.
    Among the tables, a gate on fewer examples replaces one on more of the same quantity
    and bound; those at the top are always judged. `on = "bound"` and
    `min-examples = 30` apply to their table and to those below it.

    Raises:
        GateError: if the file cannot be read or an entry is invalid; the message
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
    table = read_toml(Path(path))
    table.pop(WAIVE, None)
    with errors_in(path):
        return gates_of(table)


def read_waivers(path: str | os.PathLike) -> tuple[Waiver, ...]:
    """The `[[waive]]` tables of a gate file.

    Raises:
        GateError: if the file cannot be read, or a waiver is repeated or lacks its id,
            reason or date.
    """
    table = read_toml(Path(path))
    with errors_in(path):
        return waivers_in(table.get(WAIVE, []))


def waivers_in(given: Any) -> tuple[Waiver, ...]:
    """The waivers in tables of a TOML file."""
    found = []
    if not isinstance(given, list):
        raise GateError(f"{WAIVE} must be written [[{WAIVE}]]")
    for number, of in enumerate(given, 1):
        with errors_in(f"waiver {number}"):
            found.append(_waiver(of))
    if again := twice(canonical(waiver.id) for waiver in found):
        raise GateError(f"the id {again[0]!r} is waived twice")
    return tuple(found)


@contextlib.contextmanager
def errors_in(place: str | os.PathLike) -> Iterator[None]:
    """Context manager that puts a place before the message of a `GateError`."""
    try:
        yield
    except GateError as error:
        raise GateError(f"{place}: {error}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise GateError(f"{path}: {what}")
    try:
        import tomllib

        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except ValueError as error:  # invalid TOML or UTF-8
        raise GateError(f"{path}: not a TOML file, {error}") from None


def check_keys(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuses keys of a table that are not known."""
    for key in given:
        if key not in known:
            hint = closest(key, known) or f"keys are {', '.join(known)}"
            raise GateError(f"unknown key {key!r}; {hint}")


def _waiver(given: Any) -> Waiver:
    if not isinstance(given, Mapping):
        raise GateError(f"it must be a table with {', '.join(_WAIVER)}")
    check_keys(given, _WAIVER)
    if lacking := [key for key in _WAIVER if not str(given.get(key, "")).strip()]:
        raise GateError(f"a waiver needs {' and '.join(lacking)}")
    try:
        return Waiver(given["id"], str(given["reason"]).strip(), given["until"])
    except ValueError as error:
        raise GateError(str(error)) from None


def gates_of(
    table: Mapping[str, Any],
    above: Mapping[str, Any] | None = None,
    path: tuple[str, ...] = (),
) -> tuple[Gate, ...]:
    """The gates in the table at `path` of a gate file, and in the tables in it."""
    found: list[Gate] = []
    settings = _settings(table, above or {}, path)
    for key, value in table.items():
        place, is_table = ".".join((*path, key)), _is_table(key, value)
        if key in _DEPTHS if not path else is_table and len(path) < _DEPTHS[path[0]]:
            if not isinstance(value, Mapping):
                raise GateError(f"{key} must be a table, [{key}]; got {value!r}")
            found += gates_of(value, settings, (*path, key))
        elif is_table and not path:
            hint = closest(key, [*_DEPTHS]) or f"tables are {', '.join(_DEPTHS)}"
            raise GateError(f"unknown table {key!r}; {hint}")
        elif is_table or key not in _SETTINGS:
            with errors_in(place):
                found.append(_gate(key, value, settings, path))
    if not found:
        where = ".".join(path) or "it"
        raise GateError(f"there is no gate in {where}, such as max-churn = 0.05")
    return tuple(found)


def _is_table(key: str, value: Any) -> bool:
    """True if the value is a table of gates, not one gate with its settings."""
    if not isinstance(value, Mapping) or "limit" in value:
        return False
    try:
        bound_and_quantity(key)
    except GateError:
        return True
    return False  # a gate that lacks its limit


def _settings(
    table: Mapping[str, Any], above: Mapping[str, Any], path: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Fields of `Gate` that apply to this table and those below it."""
    found = dict(above)
    for key, allowed in _SETTINGS.items():
        value = table.get(key, {})
        if isinstance(value, Mapping):  # not given, or a table of this name
            continue
        if type(value) is not type(allowed[0]) or value not in allowed:
            on = " or ".join(f'"{name}"' for name in ON)
            known = on if key == "on" else "a count of at least 1"
            raise GateError(f"{'.'.join((*path, key))} must be {known}; got {value!r}")
        found[key.replace("-", "_")] = value
    return found


def _gate(
    key: str, limit: Any, settings: Mapping[str, Any], path: tuple[str, ...]
) -> Gate:
    if isinstance(limit, Mapping):
        settings = _settings(limit, settings)
        check_keys(limit, ("limit", *_SETTINGS))
        if "limit" not in limit:
            raise GateError("a gate needs a limit")
        limit = limit["limit"]
    names = (CLASSES, *path[1:]) if path[:1] == ("classes",) else path[1:]
    grouping, group, *_ = (*(names or (ALL_SLICES,) * bool(path)), "", "")
    bound, quantity = bound_and_quantity(key)
    limit = limit_of(limit, "the limit", quantity)
    return Gate(quantity, limit, bound, grouping=grouping, group=group, **settings)
