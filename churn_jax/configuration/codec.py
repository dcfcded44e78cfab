"""Configurations and records as JSON values, back again, and their differences.

One pair of functions serves every file that a study leaves: `to_json` writes all fields
of a dataclass, `from_json` reads them by their types. Nothing is left out, so a file
keeps its meaning when a default changes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePath
from typing import Any, TypeVar, cast

import numpy as np

from churn_compare.suggestions import did_you_mean
from churn_jax.methods.base import METHODS, Method

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """A configuration or a record as JSON values.

    Methods name their class, your own as `package.module:Class`; arrays become lists.
    Float32 numbers become the shortest decimal numbers that stand for them.

    Args:
        value: a dataclass of such values.

    Example:
        >>> from churn_jax.methods import MinimumEntropy
        >>> found = to_json(MinimumEntropy(alpha=0.5))
        >>> found["class"], found["alpha"]
        ('MinimumEntropy', 0.5)
    """
    if hasattr(value, "__array__"):  # of NumPy or JAX, which may not be loaded
        array = np.asarray(value)
        if array.dtype == np.float32:
            array = array.astype(str).astype(float)
        return array.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = isinstance(value, Method)
        kind = {"class": METHODS.record_name(type(value))} if named else {}
        return kind | {
            field.name: to_json(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(part) for key, part in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, tuple | list):
        return [to_json(part) for part in value]
    return value


def from_json(kind: type[T], value: Any, path: str = "") -> T:
    """The configuration or the record whose JSON values these are.

    Args:
        kind: the dataclass, or the type of one setting.
        value: from `to_json`; fields that are absent have their defaults.
        path: what messages call the value.

    Raises:
        ValueError: a setting is unknown, or a value cannot be; the message names it by
            its path.

    Example:
        >>> from churn_jax.studies import StudyConfig, preset
        >>> from_json(StudyConfig, to_json(preset("digits"))) == preset("digits")
        True
    """
    return _read(kind, value, path)


def _read(kind: Any, value: Any, path: str, replicas: bool = False) -> Any:
    """The value of a type; `replicas` allows one float per replica, as a method has."""
    origin, arms = typing.get_origin(kind), typing.get_args(kind)
    where = path.lstrip(".") or "it"

    def check(holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"{where} must be {what}; got {value!r}")

    if origin in (types.UnionType, typing.Union):
        return _read(_arm(arms, value), value, path, replicas)
    if isinstance(kind, type) and issubclass(kind, Method):
        check(isinstance(value, dict), "an object")
        try:
            kind = METHODS.find(str(value.get("class")))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        value, replicas = {k: v for k, v in value.items() if k != "class"}, True
    if dataclasses.is_dataclass(kind):
        check(isinstance(value, dict), "an object")
        hints = _hints(kind)
        for name in value:
            if name not in hints:
                hint = did_you_mean(name, hints)
                raise ValueError(f"{where} has no setting {name!r}{hint}")
        for field in dataclasses.fields(kind):
            needed = field.default is field.default_factory is dataclasses.MISSING
            if needed and field.name not in value:
                raise ValueError(f"{where} lacks {field.name!r}")
        parts = ((n, hints[n], v) for n, v in value.items())
        return kind(**{n: _read(h, v, f"{path}.{n}", replicas) for n, h, v in parts})
    if origin is tuple:
        check(isinstance(value, list), "a list")
        if arms[1:] == (Ellipsis,):
            arms = (arms[0],) * len(value)
        check(len(arms) == len(value), f"{len(arms)} values")
        return tuple(
            _read(arm, part, path + _place(part, i), replicas)
            for i, (arm, part) in enumerate(zip(arms, value, strict=True))
        )
    if origin is not None and issubclass(origin, Mapping):
        check(isinstance(value, dict), "an object")
        return {k: _read(arms[1], v, f"{path}.{k}") for k, v in value.items()}
    if kind is float and isinstance(value, list) and replicas:
        return np.asarray(value, np.float32)
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return kind(_read(str, value, path))
    if kind in _WORDS:
        plain = isinstance(value, (int, float) if kind is float else kind)
        mixed = isinstance(value, bool) and kind is not bool
        check(plain and not mixed, _WORDS[kind])
    return tuple(value) if isinstance(value, list) else value


_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def _arm(arms: tuple[Any, ...], value: Any) -> Any:
    """The member of a union that fits the JSON value."""
    if value is None:
        fits = [arm for arm in arms if arm is type(None)]
    elif isinstance(value, dict):
        fits = [arm for arm in arms if dataclasses.is_dataclass(arm)]
    elif isinstance(value, list):
        fits = [arm for arm in arms if typing.get_origin(arm) is tuple]
    else:
        plain = [arm for arm in arms if arm in _WORDS and arm is not type(None)]
        fits = [arm for arm in plain if type(value) is arm] or plain
    return (fits or arms)[0]


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def replaced(config: T, changes: Iterable[tuple[str, Any]], above: str = "") -> T:
    """The dataclass with other values of the fields at dotted paths.

    Args:
        config: a dataclass of values and dataclasses.
        changes: pairs of path and value, which are checked together.
        above: path of the dataclass, for messages.

    Raises:
        ValueError: there is no such field, or the configuration refuses the value.
    """
    known: Any = [field.name for field in dataclasses.fields(cast(Any, config))]
    values: dict[str, Any] = {}
    inside: dict[str, list[tuple[str, Any]]] = {}
    for path, value in changes:
        field, _, rest = path.partition(".")
        if field not in known:
            where = above.rstrip(".") or "the training"
            raise ValueError(
                f"{where} has no setting {field!r} (train={above}{path}); known: "
                f"{', '.join(known)}{did_you_mean(field, known)}"
            )
        old = getattr(config, field)
        if rest and not dataclasses.is_dataclass(old):
            raise ValueError(f"{above}{field} has no settings; got {above}{path}")
        if rest:
            inside.setdefault(field, []).append((rest, value))
            continue
        whole = isinstance(value, dict) and dataclasses.is_dataclass(old)
        if whole and len(value) == len(_hints(type(old))):
            value = from_json(type(old), value)  # of a record, which has all settings
        if dataclasses.is_dataclass(old) and not isinstance(value, type(old)):
            first = f"{above}{field}.{dataclasses.fields(old)[0].name}"
            raise ValueError(
                f"{above}{field} must be a {type(old).__name__}, or name one of its "
                f"settings ({first}); got {value!r}"
            )
        values[field] = value
    for field, pairs in inside.items():
        old = values.get(field, getattr(config, field))
        values[field] = replaced(old, pairs, f"{above}{field}.")
    return dataclasses.replace(cast(Any, config), **values) if values else config


def with_texts(config: T, changes: Iterable[tuple[str, str]]) -> T:
    """`replaced` with values that are written as texts: `3`, `1,2`, `None`, `sgd`."""

    def value(path: str, text: str) -> Any:
        *above, name = path.split(".")
        try:
            owner = functools.reduce(getattr, above, config)
            kind = _hints(type(owner))[name]
        except (AttributeError, KeyError, TypeError):
            return text  # of an unknown setting, which is refused
        words = json.dumps(text.split(","))
        for written in (text.replace("None", "null"), f"[{text}]", words):
            with contextlib.suppress(ValueError):
                return _read(kind, json.loads(written), path)
        return _read(kind, text, path)

    return replaced(config, [(path, value(path, text)) for path, text in changes])


FREE = frozenset(
    (
        # Where and how fast a study runs.
        *("mesh", "mapping", "steps_per_call", "eval_batch_size"),
        *("checkpoint_every_seconds", "data_dir", "manual_dir", "threads", "workers"),
        # How a study is shown, and how its predictions are kept.
        *("title", "label", "equation", "published", "columns", "updates", "notes"),
        "evaluation",
    )
)
"""Settings that do not change results: they may differ between two launches."""

_SHOWN = 3  # differences, or numbers of a list, named in a message
_LONGEST = 45  # characters of a value in a message
_ABSENT = object()


def without(value: Any, names: Collection[str] = FREE) -> Any:
    """JSON values without the settings of these names, but for those of a method."""
    if isinstance(value, dict) and "class" not in value:
        if isinstance(train := value.get("train"), list):  # a row's paths and values
            train = [pair for pair in train if pair[0].partition(".")[0] not in names]
            value = {**value, "train": train}
        return {k: without(v, names) for k, v in value.items() if k not in names}
    return [without(v, names) for v in value] if isinstance(value, list) else value


def differences(
    there: Any, here: Any, path: str = "", form: str = "{}: {} there, {} here"
) -> list[str]:
    """The differences of two JSON values, as `path: value there, value here`.

    Parts of lists that have a name are called by it. Methods of two classes differ in
    the class alone, long lists of numbers as a whole.

    Args:
        there: value that was found.
        here: value that it is compared with.
        path: path of both so far.
        form: how a difference is written.

    Example:
        >>> differences({"epochs": 1, "only": ["a"]}, {"epochs": 2, "only": ["a"]})
        ['epochs: 1 there, 2 here']
    """
    whole = [form.format(path, _text(there), _text(here))]
    if isinstance(there, dict) and isinstance(here, dict):
        if there.get("class") != here.get("class"):
            return whole
        names = dict.fromkeys((*there, *here))
        of = [(f".{k}", there.get(k, _ABSENT), here.get(k, _ABSENT)) for k in names]
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        of = [(_place(a, i), a, b) for i, (a, b) in enumerate(zip(there, here))]
    else:
        same = there == here and isinstance(there, bool) == isinstance(here, bool)
        return [] if same else whole
    found = [
        d for n, a, b in of for d in differences(a, b, f"{path}{n}".lstrip("."), form)
    ]
    nested = any(isinstance(a, dict | list) for a in there)
    short = isinstance(there, list) and not nested and len(found) > _SHOWN
    return whole if short and _text(there) != _text(here) else found


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
    if isinstance(value, list) and len(value) > _SHOWN:
        numbers = (f"{v:.4g}" if isinstance(v, float) else v for v in value[:_SHOWN])
        return f"[{', '.join(map(_text, numbers))}, ... {len(value)} values]"
    if isinstance(value, dict):
        value = value.get("class") or value.get("name") or value
    text = str(value) if value != "" else "''"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
