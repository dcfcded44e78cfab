"""Modules that are imported when they are first used.

Configurations, methods and presets are read by every command, for its help too, so
their files must not load JAX: they take it from here. The names of a package that are
loaded on demand go through `load_on_use`.
"""

import importlib
import sys
import types
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    import optax


class _Lazy:
    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def lazy(name: str) -> Any:
    """A stand-in for the module `name`, which is imported when an attribute is read."""
    return _Lazy(name)


if not TYPE_CHECKING:
    jax, jnp, optax = lazy("jax"), lazy("jax.numpy"), lazy("optax")


class _Module(types.ModuleType):
    """A package whose public functions come before files of the same names."""

    # Python sets a file as an attribute of its package, whoever imports it.
    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, types.ModuleType) and name in vars(self).get(
            "__all__", ()
        ):
            value = getattr(value, name, value)
        super().__setattr__(name, value)

    # cloudpickle knows modules by their exact class.
    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)


def load_on_use(
    package: str, names: Sequence[str], files: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`; a name's file is imported on first use.

    Names are those of `__all__`. Files are searched in their order; one of another
    package is named relative to this one (`.other.file`), one of `churn_compare` in
    full. They are empty if the package has imported everything.
    """
    sys.modules[package].__class__ = _Module

    def find(name: str) -> Any:
        if name in names:
            for file in files:
                home = file if file.startswith("churn_compare.") else f".{file}"
                found = importlib.import_module(home, package)
                if name in vars(found):
                    value = getattr(found, name)
                    setattr(sys.modules[package], name, value)
                    return value
        # `from package import file` asks for the attribute first.
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return importlib.import_module(f".{name}", package)
        from churn_compare.suggestions import did_you_mean

        private = name.startswith("_")  # Python and its tools look for these
        known = () if private else (*names, *(f for f in files if f.isidentifier()))
        hint = did_you_mean(name, known, cutoff=0.7)
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    return find, lambda: sorted({*vars(sys.modules[package]), *names})
