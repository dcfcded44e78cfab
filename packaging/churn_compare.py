"""Writes the source of the distribution `churn-compare`: the comparison and no more.

python packaging/churn_compare.py build/churn-compare

Its modules are all of `churn_jax.comparison`, whose names are loaded when they are
first used, and those that it, the command and the pytest fixture reach by imports. They
are the modules of `churn_jax`, so their place is a folder of their own that a `.pth`
file puts at the end of the import path: no file then belongs to two distributions, and
where `churn-jax` is installed, too, its modules come first.
"""

import argparse
import ast
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STARTS = ("churn_jax.cli", "churn_jax.command.compare", "churn_jax.pytest_plugin")
COMPARISON = "churn_jax/comparison"
PLACE = "_churn_compare"  # the folder in `site-packages`
# `cli` names the other commands, which are not there.
CUT = ("churn_jax.command.launch",)
NEEDED = ("docstring-parser", "jinja2", "ml_dtypes", "numpy", "pyarrow", "rich", "tyro")


def source_files(root: Path = ROOT) -> list[Path]:
    """The files of the distribution, relative to the root of the repository."""
    found: set[str] = set()
    whole = (path.relative_to(root) for path in (root / COMPARISON).rglob("*.py"))
    todo = [*STARTS, *(".".join(path.with_suffix("").parts) for path in whole)]
    while todo:
        module = todo.pop()
        if module in found or module in CUT or (path := _file(root, module)) is None:
            continue
        found.add(module)
        todo.append(module.rpartition(".")[0] or module)  # its package comes first
        todo += _imports(path.read_text(encoding="utf-8"))
    paths = [path for module in found if (path := _file(root, module)) is not None]
    folders = {path.parent for path in paths}
    data = [
        file
        for folder in folders
        for file in [
            *folder.iterdir(),
            *folder.glob("templates/*"),
            *folder.glob("demo/*"),
        ]
        if file.is_file() and file.suffix not in (".py", ".pyc")
    ]
    return sorted(path.relative_to(root) for path in {*paths, *data})


def _file(root: Path, module: str) -> Path | None:
    path = root.joinpath(*module.split("."))
    found = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in found if file.is_file()), None)


def _imports(source: str) -> Iterator[str]:
    """Modules of `churn_jax` that a source imports, wherever it does."""
    for node in _running(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _running(child)


def project() -> str:
    """The `pyproject.toml`, with version and requirements of `churn-jax`."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        whole = tomllib.load(file)["project"]
    by_name = {
        requirement.partition(">")[0]: requirement
        for requirement in whole["dependencies"]
    }
    needed = "".join(f'  "{by_name[name]}",\n' for name in NEEDED)
    return f"""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "churn-compare"
version = "{whole["version"]}"
description = "Decide on a model update by two versions' predictions, of any framework"
readme = "README.md"
license = "{whole["license"]}"
license-files = ["LICENSE"]
requires-python = "{whole["requires-python"]}"
authors = [{{ name = "{whole["authors"][0]["name"]}" }}]
keywords = ["churn", "regression testing", "evaluation", "model update"]
dependencies = [
{needed}]

[project.scripts]
churn-compare = "churn_jax.cli:compare"

[tool.hatch.build.targets.wheel]
only-include = ["{PLACE}", "{PLACE}.pth"]
"""


def write_project(folder: Path) -> None:
    """A folder from which `python -m build` makes the sdist and the wheel."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in source_files():
        target = folder / PLACE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    (folder / f"{PLACE}.pth").write_text(f"{PLACE}\n")
    (folder / "pyproject.toml").write_text(project())
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    shutil.copyfile(Path(__file__).with_name("README.md"), folder / "README.md")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="which is written anew")
    write_project(parser.parse_args().folder)
