"""Fields of methods, and the decorator that makes a class of them a pytree.

Presets are made without JAX, so classes wait to be registered until it is loaded.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from churn_jax.lazy import jax

_RANGES = {
    "finite": (-np.inf, np.inf),
    "at least 0": (0.0, np.inf),
    "above 0": (np.finfo(np.float32).tiny, np.inf),  # 1e-300 is 0 in float32
    "from 0 to 1": (0.0, 1.0),
}


def coefficient(default: float, within: str = "finite") -> Any:
    """A sweepable field: a number, or an array with one entry per replica.

    `within` is its range: `finite`, `at least 0`, `above 0` or `from 0 to 1`.
    """
    return dataclasses.field(default=default, metadata={"within": within})


def share(default: float) -> Any:
    """A sweepable field from 0 to 1; the labels' loss has what is left of 1."""
    return coefficient(default, "from 0 to 1")


def static(default: Any, of: Any = None) -> Any:
    """A structural field: part of the program, not of the data.

    `of`: the allowed values, the smallest value, or `"share"`; see `check_settings`.
    """
    metadata = {"pytree_node": False, "of": of}
    return dataclasses.field(default=default, metadata=metadata)


T = TypeVar("T")
_UNREGISTERED: list[type] = []  # classes made before JAX was loaded


@dataclass_transform()
def pytree(cls: type[T]) -> type[T]:
    """A decorator like `flax.struct.dataclass`: a frozen dataclass that is a pytree.

    Fields of `coefficient` and `share` are leaves, those of `static` are structure.
    """
    made = dataclasses.dataclass(frozen=True)(cls)
    made.replace = dataclasses.replace  # pyrefly: ignore[missing-attribute]
    _UNREGISTERED.append(made)
    if "jax" in sys.modules:
        register()
    return made


def register() -> None:
    """Makes pytrees of the classes that were made before JAX was loaded."""
    while _UNREGISTERED:
        _register(_UNREGISTERED.pop())


def _register(cls: Any) -> None:
    # Not by `register_dataclass`: two classes whose fields have the same names and
    # static values then have equal structures (jaxlib 0.10 compares all but the class).
    # Hashes differ, so one call in some hundred of a compiled function is answered by
    # what was compiled for the other class.
    leaves, meta = [], []
    for field in dataclasses.fields(cls):
        leaf = field.metadata.get("pytree_node", True)
        (leaves if leaf else meta).append(field.name)

    def flatten(value):
        keyed = [(jax.tree_util.GetAttrKey(n), getattr(value, n)) for n in leaves]
        return keyed, tuple(getattr(value, name) for name in meta)

    def unflatten(static, values):
        return cls(**dict(zip(leaves, values)), **dict(zip(meta, static)))

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)


def check_whole(name: str, value: Any) -> None:
    """Refuses a value that is not a whole number."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number; got {value!r}")


def check_coefficients(method: Any, kinds: Any = (int, float)) -> None:
    """Refuses coefficients of these types that are not finite or not in their range."""
    for field in dataclasses.fields(method):
        value, within = getattr(method, field.name), field.metadata.get("within")
        if within is None or isinstance(value, bool) or not isinstance(value, kinds):
            continue
        low, high = _RANGES[within]
        if not np.all((low <= value) & (value <= high) & np.isfinite(value)):
            raise ValueError(f"{field.name} must be {within}; got {value}")
