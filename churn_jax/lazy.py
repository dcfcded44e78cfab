"""Modules that are imported when they are first used.

Configurations, methods and presets are read by every command, for its help too, so
their files must not load JAX: they take it from here. The names of a package that are
loaded on demand go through `load_on_use`.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    import optax

__all__ = ["jax", "jnp", "lazy", "load_on_use", "optax"]


class _Lazy:
    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def lazy(name: str) -> Any:
    """A stand-in for the module `name`, which is imported when an attribute is read.

    Example:
        >>> colours = lazy("colorsys")
        >>> colours.rgb_to_hsv(0.0, 0.0, 0.5)
        (0.6666666666666666, 1.0, 0.5)
    """
    return _Lazy(name)


if not TYPE_CHECKING:
    jax, jnp, optax = lazy("jax"), lazy("jax.numpy"), lazy("optax")


def load_on_use(
    package: str, names: Sequence[str], files: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`; a name's file is imported on first use.

    Args:
        package: its `__name__`.
        names: its `__all__`.
        files: of the package, searched in this order for the name in their `__all__`;
            one of another package is named relative to this one (`.other.file`).
    """

    def find(name: str) -> Any:
        if name in names:
            for file in files:
                found = importlib.import_module(f".{file}", package)
                if name in found.__all__:
                    value = getattr(found, name)
                    setattr(sys.modules[package], name, value)
                    return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted({*vars(sys.modules[package]), *names})
