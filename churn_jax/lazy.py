"""Modules that are imported when they are first used.

Configurations, methods and presets are read by every command, for its help too, so
their files must not load JAX: they take it from here. The names of a package that are
loaded on demand go through `load_on_use`.
"""

import ast
import importlib
import sys
import types
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pkgutil import iter_modules
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


def _imported_for_types(source: str) -> dict[str, str]:
    """The modules of the names that a package imports `if TYPE_CHECKING`."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    lines = [line for block in blocks for line in block.body]
    return {
        alias.name: line.module or ""
        for line in lines
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


def load_on_use(
    package: str, names: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's `__getattr__`, `__dir__` and `__all__`; files are imported on use.

    Public are the names that the package imports `if TYPE_CHECKING`, each of which
    imports its file when it is first used, and `names`, which are there already.
    """
    module: Any = sys.modules[package]
    module.__class__ = _Module
    homes = _imported_for_types(module.__loader__.get_source(package))
    public = sorted({*homes, *names}, key=lambda name: (not name.isupper(), name))

    def find(name: str) -> Any:
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
            setattr(module, name, value)
            return value
        known: list[str] = []
        if not name.startswith("_"):  # Python and its tools look for these
            # `from package import file` asks for the attribute first.
            if find_spec(f"{package}.{name}"):
                return importlib.import_module(f".{name}", package)
            known = [*public, *(m.name for m in iter_modules(module.__path__))]
        from churn_compare.suggestions import did_you_mean

        hint = did_you_mean(name, known, cutoff=0.7)
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    return find, lambda: sorted({*vars(module), *public}), public
