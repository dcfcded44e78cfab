"""What a checkpoint must have been trained as, and what differs when it was not."""

import ast
import dataclasses
import json
import sys
from typing import Any

import numpy as np

from churn_jax.methods.base import at_rest
from churn_jax.training.run import Run, Trained
from churn_jax.training.tutors import Tutors, tutors_of

__all__ = ["described", "difference", "identity_of"]

# Where and how fast training runs; its results do not depend on them.
_FREE = (
    "mesh",
    "mapping",
    "steps_per_call",
    "eval_batch_size",
    "checkpoint_every_seconds",
)
_SHOWN = 3  # settings named in a message, and values of an array
_LONGEST = 40  # characters of one value in a message
_ABSENT = ast.Name("nothing")


def identity_of(
    run: Run,
    fingerprint: str,
    teacher: Trained | Tutors | None,
    start: Trained | None = None,
) -> str:
    """What a checkpoint must have been trained as, to be continued by `run`.

    Args:
        run: what is trained.
        fingerprint: of the data.
        teacher: what it learns from; its own identity is part of the student's.
        start: whose weights it starts from.

    Returns:
        JSON text; equal texts mean equal training.
    """
    config = {
        field.name: _settings(getattr(run.config, field.name))
        for field in dataclasses.fields(run.config)
        if field.name not in _FREE
    }
    taught_by = None
    if (tutors := tutors_of(teacher)) is not None:
        taught_by = tutors.identity()
    with np.printoptions(threshold=sys.maxsize):  # every coefficient of a large grid
        flat: dict[str, Any] = {
            "data": fingerprint,
            "method": described(run.method),
            "networks": repr([(g.network.name, g.size) for g in run.groups]),
            "teacher": taught_by,
            "stream": run.stream,
        }
        if start is not None:
            flat["start"] = {"name": start.run.name, **json.loads(start.identity)}
        if run.keep:
            flat["keep"] = repr(run.keep)
        for key, value in config.items():
            nested = value if isinstance(value, dict) else {"": value}
            for name, part in nested.items():
                flat[f"{key}.{name}".rstrip(".")] = repr(part)
    return json.dumps(flat, sort_keys=True)


def _settings(value: Any) -> Any:
    """A record's settings by name, those that say nothing left out; or the value."""
    if not dataclasses.is_dataclass(value):
        return value
    return {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if not at_rest(value, field)
    }


def described(record: Any) -> str:
    """The `repr` of a method or another dataclass without settings that say nothing."""
    shown = ", ".join(f"{name}={v!r}" for name, v in _settings(record).items())
    return f"{type(record).__qualname__}({shown})"


def difference(theirs: str, ours: str) -> str:
    """The settings in which two identities differ, as one short clause.

    Args:
        theirs: from `identity_of`, of what was found.
        ours: likewise, of what is trained now.

    Returns:
        Up to three settings by their dotted names, and how many more there are.

    Example:
        >>> a = '{"epochs": "2", "method": "Pair(beta=array([0.1, 0.2]), steps=3)"}'
        >>> b = '{"epochs": "2", "method": "Pair(beta=0.5, steps=3)"}'
        >>> difference(a, b)
        'method.beta: [0.1, 0.2] there, 0.5 here'
    """
    try:
        a, b = _fields(json.loads(theirs)), _fields(json.loads(ours))
    except json.JSONDecodeError:
        return "unknown settings"
    names = [
        name
        for name in {**a, **b}
        if ast.unparse(a.get(name, _ABSENT)) != ast.unparse(b.get(name, _ABSENT))
    ]
    # Fields of another kind of method or teacher are not compared one by one.
    whole = tuple(f"{name}." for name in names)
    names = [name for name in names if not name.startswith(whole)]
    shown = [
        _clause(name, a.get(name, _ABSENT), b.get(name, _ABSENT))
        for name in names[:_SHOWN]
    ]
    if len(names) > _SHOWN:
        shown.append(f"and {len(names) - _SHOWN} more")
    return "; ".join(shown) or "unknown settings"


def _fields(settings: dict[str, Any], prefix: str = "") -> dict[str, ast.expr]:
    """Every setting by its dotted name, also those inside a method or a teacher."""
    found: dict[str, ast.expr] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found[name] = ast.Name(value.get("name", "another"))
            found |= _fields(value, f"{name}.")
            continue
        try:
            node = ast.parse(str(value), mode="eval").body
        except SyntaxError:
            node = ast.Name(str(value))
        found |= _inside(name, node)
    return found


def _inside(name: str, node: ast.expr) -> dict[str, ast.expr]:
    """A record's kind and its fields; anything else is one setting."""
    if not isinstance(node, ast.Call) or node.args or not node.keywords:
        return {name: node}
    found = {name: node.func}
    for keyword in node.keywords:
        found |= _inside(f"{name}.{keyword.arg}", keyword.value)
    return found


def _clause(name: str, theirs: ast.expr, ours: ast.expr) -> str:
    """One setting that differs; of long arrays the first value that does."""
    a, b = _short(theirs), _short(ours)
    if a == b:
        pairs = zip(_values(theirs) or (), _values(ours) or ())
        for i, (there, here) in enumerate(pairs):
            if ast.unparse(there) != ast.unparse(here):
                return _clause(f"{name}[{i}]", there, here)
    return f"{name}: {a} there, {b} here"


def _values(node: ast.expr) -> list[ast.expr] | None:
    """What an array, a list or a tuple holds."""
    if isinstance(node, ast.Call) and node.args:
        return _values(node.args[0])
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else None


def _short(node: ast.expr) -> str:
    values = _values(node)
    if values is None:
        text = ast.unparse(node)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    shown = ", ".join(map(_short, values[:_SHOWN]))
    count = len(values)
    return f"[{shown}]" if count <= _SHOWN else f"[{shown}, ... {count} values]"
