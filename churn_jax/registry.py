"""Methods, networks, optimisers, data, presets, columns: built-in or user-defined.

Each kind has one `Registry`: `METHODS` and `PENALTIES` in `churn_jax.methods`, `MODELS`
in `churn_jax.models`, `DATASETS` in `churn_jax.data`, `OPTIMIZERS` and `LOGGERS` in
`churn_jax.training`, `PRESETS` in `churn_jax.studies`, `QUANTITIES` in
`churn_jax.reports`. Whatever takes such a name also takes `package.module:name` and
`FILE.py:name`, so code in a file of its own needs no registration. Records and
checkpoints name it that way. An object that cannot be imported, such as one made in a
notebook, has a name of its own in this process (`Registry.name`).

`register` adds a short name, as long as the module is imported. The command line
imports the modules that installed packages list under the entry point `churn_jax`:

    [project.entry-points.churn_jax]
    mine = "mypackage.churn"
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from churn_compare.suggestions import did_you_mean

_T = TypeVar("_T")
_GROUP = "churn_jax"
_entry_points_imported = False


class Registry(Mapping[str, Any]):
    """The values of one kind by name: the built-in ones, then the registered ones.

    `kind` is the word for a value in messages; `accepts(value)` tests one. Built-in
    values may be dotted names, which are imported on first use.

    Example:
        >>> shapes = Registry("shape", {"square": lambda side: side**2})
        >>> @shapes.register("circle")
        ... def circle(radius):
        ...     return 3.14 * radius**2
        >>> list(shapes), shapes["circle"](1), shapes.find("math:sqrt")(9)
        (['square', 'circle'], 3.14, 3.0)
    """

    def __init__(
        self,
        kind: str,
        built_in: Mapping[str, Any],
        accepts: Callable[[Any], bool] = callable,
    ):
        self.kind = kind
        self._built_in = built_in
        self._registered: dict[str, Any] = {}
        self._held: dict[str, Any] = {}
        self._accepts = accepts
        self._a = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"  # in sentences

    def register(self, name: str) -> Callable[[_T], _T]:
        """A decorator that makes a value known by a short name.

        Registering a name again, as a notebook's cell does, replaces the value.
        """
        if name in self._built_in or is_own(name) or not name:
            wrong = "it has : or @" if name else "it is empty"
            reason = "it is taken" if name in self._built_in else wrong
            raise ValueError(f"{self._a} cannot be called {name!r}: {reason}")

        def add(value: _T) -> _T:
            self._check(value)
            self._registered[name] = value
            return value

        return add

    def name(self, value: Any, content: Callable[[], str]) -> str:
        """The name under which `find` finds a Python object in this process.

        It is the built-in name or `package.module:name`, else one like `Net@1a2b3c4d`
        of the class and the `content`, a text that says what the value is: equal texts
        are equal names, in other processes too. An error that `content` raises stands
        for the text; what the value is used for will explain it better.
        """
        self._check(value)
        try:
            dotted = self.record_name(value)
            if self.find(dotted) is value:
                return dotted
        except (AttributeError, TypeError, ValueError):  # only of this process
            pass
        label = getattr(value, "__name__", type(value).__name__)
        if not label.isidentifier() or isinstance(value, tuple):
            label = self.kind.replace(" ", "_")  # a lambda, or a pair of functions
        try:
            text = content()
        except Exception as error:  # whatever a user's own code raises
            text = repr(error)
        name = f"{label}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        self._held[name] = value
        return name

    def _check(self, value: Any) -> None:
        if not self._accepts(value):
            raise TypeError(f"{value!r} cannot be registered as {self._a}")

    def find(self, name: str) -> Any:
        """The value of a short name, of `package.module:name` or of `FILE.py:name`."""
        if name in self._built_in:
            value = self._built_in[name]
            return _imported(value) if isinstance(value, str) else value
        if "@" in name and ".py:" not in name:
            if name in self._held:
                return self._held[name]
            raise ValueError(
                f"{name} was given as a Python object, which only the process that "
                "made it has: run the script or notebook that did"
            )
        if ":" in name:
            value = _imported(name)
            if not self._accepts(value):
                raise ValueError(f"{name} is not {self._a}")
            return value
        if name not in self._registered:
            _import_entry_points()
        if name in self._registered:
            return self._registered[name]
        raise ValueError(
            f"unknown {self.kind} {name!r}; known: {', '.join(self)}"
            f"{did_you_mean(name, self)}"
        )

    def record_name(self, value: Any) -> str:
        """The name under which a value, or a name of one, is found in other processes.

        It is the built-in name, else `package.module:name`; an unknown name is
        returned as it is.
        """
        if isinstance(value, str):
            name = value
            if name in self._built_in or is_own(name):
                return name
            _import_entry_points()
            if name not in self._registered:
                return name
            value = self._registered[name]
            if not hasattr(getattr(value, "__wrapped__", value), "__qualname__"):
                return name  # an instance, which only its decorator names
        for name, ours in self._built_in.items():
            if ours is value:
                return name
        dotted = dotted_name(value)
        last = dotted[dotted.index(":") :]
        for name, ours in self._built_in.items():
            if isinstance(ours, str) and ours.endswith(last) and self[name] is value:
                return name
        return dotted

    def __getitem__(self, name: str) -> Any:
        try:
            return self.find(name)
        except ValueError as error:
            raise KeyError(name) from error

    def __contains__(self, name: object) -> bool:
        if name in self._built_in or name in self._registered:
            return True
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        _import_entry_points()
        return iter((*self._built_in, *self._registered))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def is_own(name: str) -> bool:
    """True for a user's own name: `package.module:name`, or an object's (with `@`)."""
    return ":" in name or "@" in name


def dotted_name(value: Any) -> str:
    """`package.module:name` of a class, a function or what wraps a function.

    A module that was run as a script has the name under which it can be imported. A
    value of a private module is named by its package where that exports it, as
    `optax:lion`.
    """
    value = getattr(value, "__wrapped__", value)
    if not hasattr(value, "__qualname__"):
        raise TypeError(f"{value!r} has no name; give a function or a class, or a name")
    module, name = value.__module__, value.__qualname__
    package = module.partition("._")[0]
    if package != module and getattr(sys.modules[package], name, None) is value:
        module = package
    return f"{_script_name() if module == '__main__' else module}:{name}"


def _imported(name: str) -> Any:
    """The value of a dotted name."""
    module, _, path = name.partition(":")
    try:
        # A script's classes are those of the running process, not of a second import.
        found: Any = sys.modules["__main__"]
        if module.endswith(".py"):
            found = module_of_file(module)
        elif module != _script_name():
            found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}); correct the module"
        if isinstance(error, (ImportError, ValueError)):
            why = f"{error}); install its package, run the command in its folder, or "
            why += "put that on PYTHONPATH"
        raise ValueError(
            f"{name}: {module or 'no module'} cannot be imported ({why}"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            inside = "; define it at the top level of the module" if "<" in path else ""
            hint = inside or did_you_mean(part, vars(found))
            raise ValueError(f"{name}: module {module} has no {path}{hint}")
        found = getattr(found, part)
    return found


def module_of_file(file: str) -> ModuleType:
    """The module of a Python file, with the name that it has in the current folder."""
    path, folder = Path(os.path.abspath(file)), Path.cwd()
    if not path.is_file():
        raise ValueError(f"there is no file {file} here")
    if "." in path.stem:
        raise ValueError(f"{file} cannot be imported; rename it without the dot")
    if not path.is_relative_to(folder) or "." in str(path.parent.relative_to(folder)):
        folder = path.parent  # Python cannot import a name with a dot
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    name = ".".join(path.relative_to(folder).with_suffix("").parts)
    found = importlib.import_module(name)
    there = getattr(found, "__file__", None)  # a built-in module has none
    if not (there and path.samefile(there)):
        raise ValueError(f"{name} is the module {there or name}; rename the file")
    return found


def _script_name() -> str:
    """Under which name the script that runs can be imported."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return spec.name
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


def _import_entry_points() -> None:
    """Imports what installed packages list, so that their decorators run."""
    global _entry_points_imported
    if _entry_points_imported:
        return
    _entry_points_imported = True
    from importlib import metadata

    for entry in metadata.entry_points(group=_GROUP):
        try:
            entry.load()
        # One broken package must not keep all commands from running.
        except (Exception, SystemExit) as error:
            warnings.warn(
                f"{entry.value} could not be imported, so what it registers for "
                f"churn_jax is missing ({type(error).__name__}: {error})",
                stacklevel=2,
            )
