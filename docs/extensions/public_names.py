"""The public names of both packages, read from source: no Sphinx, nothing imported."""

import ast
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = {"churn_jax": ROOT, "churn_compare": ROOT / "compare"}

# What the reference has, in its order. Everything else in the package is internal.
MODULES = (
    "churn_jax",
    "churn_compare",
    "churn_compare.outcomes",
    "churn_compare.testing",
    "churn_compare.store",
    *(
        f"churn_jax.{module}"
        for module in (
            "metrics",
            "divergences",
            "analysis",
            "reports",
            "reports.published",
            "losses",
            "methods",
            "perturbations",
            "studies",
            "studies.presets",
            "training",
            "configuration",
            "planning",
            "data",
            "models",
            "ensembles",
            "registry",
            "typing",
        )
    ),
)
# Packages with an `__all__` that users do not call.
INTERNAL = ("churn_jax.command", "churn_compare.documents")


@dataclass(frozen=True)
class Public:
    """A public name, where it is defined, and its other public names."""

    module: str  # `churn_jax.losses`
    name: str  # `symmetric_kl`
    path: Path  # of the file that defines it
    node: ast.stmt
    also: tuple[str, ...] = ()

    @property
    def qualified(self) -> str:
        """`churn_jax.losses.symmetric_kl`."""
        return f"{self.module}.{self.name}"

    @property
    def short(self) -> str:
        """`losses.symmetric_kl`."""
        return self.qualified.removeprefix("churn_jax.")

    @property
    def page(self) -> str:
        """Its page in the reference, from `reference/api/`."""
        # `plan` and `Plan` are two files on every disk.
        names = [name.lower() for name in exported(self.module)]
        twice = names.count(self.name.lower()) > 1 and self.name != self.name.lower()
        return f"{folder(self.module)}/{self.name}{'-' if twice else ''}"

    @property
    def file(self) -> str:
        """The file that defines it, from the repository's root."""
        return self.path.relative_to(ROOT).as_posix()


def folder(module: str) -> str:
    """The folder of a module in the reference."""
    return module.removeprefix("churn_jax.")


def module_path(module: str) -> Path:
    """The file of a module or package."""
    top, *rest = module.split(".")
    path = PLACES[top].joinpath(top, *rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """A file, parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def exported(module: str) -> list[str]:
    """The names in `__all__` without dunders, or what a module without it defines."""
    path, names, imported = module_path(module), [], []
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.If | ast.ImportFrom):
            for line in node.body if isinstance(node, ast.If) else [node]:
                own = line is not node or f"{module}." in str(node.module)
                if own and isinstance(line, ast.ImportFrom):
                    imported += [a.name for a in line.names if a.asname is None]
        elif isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            if name == "__all__":
                names = ast.literal_eval(node.value)
                return [name for name in names if not name.startswith("__")]
            if "__all__" in name:  # `churn_compare.lazy` makes it of the imports
                more = [ast.literal_eval(given) for given in node.value.args[1:]]
                names = {*imported, *itertools.chain(*more)} - {"__version__"}
                return sorted(names, key=lambda name: (not name.isupper(), name))
            names.append(name)
    if path.name == "__init__.py":
        return []
    return list(dict.fromkeys(name for name in names if not name.startswith("_")))


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in tree.body:
        yield from node.body if isinstance(node, ast.If) else [node]


def definition(path: Path, name: str) -> tuple[Path, ast.stmt]:
    """The file and the statement that define a file's name, through re-exports."""
    found = None
    for node in _statements(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            targets = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            of = node.targets if isinstance(node, ast.Assign) else [node.target]
            targets = [
                t.id for to in of for t in ast.walk(to) if isinstance(t, ast.Name)
            ]
        elif isinstance(node, ast.ImportFrom):
            targets = [alias.asname or alias.name for alias in node.names]
        else:
            continue
        if name in targets:
            found = node  # the last one: overloads come before the function
    if found is None:
        raise LookupError(f"{path} does not define {name!r}")
    if isinstance(found, ast.ImportFrom) and (found.module or "").startswith("churn_"):
        alias = next(a for a in found.names if (a.asname or a.name) == name)
        return definition(module_path(str(found.module)), alias.name)
    return path, found


@functools.cache
def public_names() -> tuple[Public, ...]:
    """Every public name once, in the order of `MODULES` and of their `__all__`."""
    homes: dict[tuple[Path, ast.stmt, str], list[tuple[str, str]]] = {}
    for module in MODULES:
        for name in exported(module):
            path, node = definition(module_path(module), name)
            own = getattr(node, "name", name)
            homes.setdefault((path, node, own), []).append((module, name))
    return tuple(
        Public(module, name, path, node, tuple(f"{m}.{n}" for m, n in others))
        for (path, node, _), ((module, name), *others) in homes.items()
    )


@functools.cache
def _by_definition() -> dict[tuple[int, str], Public]:
    """The public names by the statement that defines them."""
    return {(id(p.node), getattr(p.node, "name", p.name)): p for p in public_names()}


@functools.cache
def public_in(path: Path, name: str) -> Public | None:
    """The public name that a name means in a file."""
    try:
        _, node = definition(path, name)
    except (LookupError, FileNotFoundError):
        return None
    return _by_definition().get((id(node), getattr(node, "name", name)))


def packages() -> set[str]:
    """Every package that exports names."""
    found = {
        ".".join(init.parent.relative_to(place).parts)
        for top, place in PLACES.items()
        for init in (place / top).rglob("__init__.py")
    }
    return {module for module in found if exported(module)}
