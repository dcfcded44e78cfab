"""Rows of a study by name, and their coefficients by path."""

import dataclasses
import difflib
from typing import Any, TypeVar

__all__ = ["named", "with_coefficient"]

Study = TypeVar("Study")


def named(rows: tuple, name: str, what: str) -> Any:
    """The row called `name`.

    Args:
        rows: each has a `name`.
        name: the one wanted.
        what: a row is called in the message, `method` or `row`.

    Raises:
        ValueError: there is none; the message has the closest names.
    """
    for row in rows:
        if row.name == name:
            return row
    names = [row.name for row in rows]
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.4)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise ValueError(f"unknown {what} {name!r}; known: {', '.join(names)}{hint}")


def with_coefficient(study: Study, path: str, value: float) -> Study:
    """The study with another value of `row.coefficient`, e.g. `codistill_skl.beta`.

    Args:
        study: a dataclass with `methods`, rows that have a `method`, and `spec(name)`.
        path: name of the row, a dot, field of its method.
        value: of the coefficient.

    Raises:
        ValueError: no such row, or it has no such coefficient.
    """
    config: Any = study
    name, _, field = path.partition(".")
    spec = config.spec(name)
    known = [
        f.name
        for f in dataclasses.fields(spec.method)
        if f.metadata.get("pytree_node", True)
        and not dataclasses.is_dataclass(getattr(spec.method, f.name))
    ]
    if field not in known:
        raise ValueError(
            f"{name} has no coefficient {field!r}; it has: {', '.join(known) or 'none'}"
        )
    changes: dict[str, Any] = {field: float(value)}
    changed = dataclasses.replace(
        spec, method=dataclasses.replace(spec.method, **changes)
    )
    methods = tuple(changed if s is spec else s for s in config.methods)
    return dataclasses.replace(config, methods=methods)
