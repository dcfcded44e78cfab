"""Packages whose public names are imported when they are first used."""

import ast
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any


def _public(package: str, source: str) -> dict[str, str]:
    """The names that a package imports from its files or for types, and from where."""
    found = {}
    for node in ast.parse(source).body:
        typed = isinstance(node, ast.If)
        for line in node.body if typed else [node]:
            own = typed or f"{package}." in str(getattr(line, "module", ""))
            if own and isinstance(line, ast.ImportFrom):
                found |= {a.asname or a.name: str(line.module) for a in line.names}
    return {name: home for name, home in found.items() if not name.startswith("_")}


def load_on_use(
    package: str, names: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's `__getattr__`, `__dir__` and `__all__`; files are imported on use.

    Public are `names` and what the package's `__init__.py` imports from its files. The
    file of a name that it imports `if TYPE_CHECKING` is loaded when the name is used.
    Among `names` may be `__version__`, that of the distribution.
    """
    module: Any = sys.modules[package]
    homes = _public(package, module.__loader__.get_source(package))
    public = sorted({*homes, *names}, key=lambda name: (not name.isupper(), name))

    def find(name: str) -> Any:
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
            setattr(module, name, value)
            return value
        if name == "__version__" and name in names:
            from importlib.metadata import PackageNotFoundError, version

            try:
                return version(package.replace("_", "-"))
            except PackageNotFoundError:
                return "0.0.0"  # a source tree that was never installed
        known: list[str] = []
        if not name.startswith("_"):  # Python and its tools look for these
            # `from package import file` asks for the attribute first.
            if find_spec(f"{package}.{name}"):
                return importlib.import_module(f".{name}", package)
            known = [*public, *(m.name for m in iter_modules(module.__path__))]
        from churn_compare.suggestions import did_you_mean

        hint = did_you_mean(name, known, cutoff=0.7)
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    def listed() -> list[str]:
        packages = (part.name for part in iter_modules(module.__path__) if part.ispkg)
        return sorted({*vars(module), *public, *packages})

    return find, listed, public
