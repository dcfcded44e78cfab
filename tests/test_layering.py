"""Who may import whom inside the package, read from the source."""

import ast
from pathlib import Path

import pytest

import churn_jax

PACKAGE = Path(churn_jax.__file__).resolve().parent

# Each part of the package and the parts directly below it. A part may import whatever
# can be reached downwards. All may import
# `churn_compare`, which imports none of them.
BELOW = {
    "typing": (),
    "_jax": (),
    "_checks": ("typing",),
    "setting_checks": (),
    "divergences": ("typing", "_checks"),
    "equations": ("losses", "metrics", "perturbations", "methods", "analysis"),
    "registry": (),
    "lazy": (),
    "losses": ("lazy", "setting_checks", "divergences"),
    "metrics": ("lazy", "divergences"),
    "perturbations": ("lazy", "divergences"),
    "models": ("_jax", "lazy", "typing", "_checks", "setting_checks", "registry"),
    "ensembles": ("lazy", "typing", "_checks", "setting_checks", "_jax", "divergences"),
    "data": ("lazy", "typing", "_checks", "setting_checks", "registry"),
    "methods": ("lazy", "registry", "losses", "perturbations", "ensembles"),
    # studies as data: what the trainer is told, and what the reports read
    "configuration": ("methods", "ensembles", "models", "data"),
    "training": ("configuration", "methods", "ensembles", "metrics", "models", "data"),
    "analysis": ("lazy", "setting_checks", "metrics", "perturbations"),
    "reports": ("configuration", "lazy", "registry", "metrics", "analysis"),
    "studies": ("configuration", "registry", "training", "reports", "analysis"),
    "planning": ("studies", "training", "models", "data", "ensembles"),
    "command": ("studies", "planning", "equations"),  # the parts of the command line
    "cli": ("command",),
    "__main__": ("cli",),
    "__init__": ("reports", "studies", "lazy"),
}

# Heavy libraries and the only places that may import them, even lazily.
HEAVY = {
    "tensorflow": ("data/tfds_source.py",),
    "tensorflow_datasets": ("data/",),
    "grain": ("data/",),
    "orbax": ("training/checkpoint.py",),
    "safetensors": ("models/public_weights.py",),
    "tensorboardX": ("training/loggers.py",),
    "clu": (),
    "mlflow": (),
    "wandb": (),
    "tyro": ("cli.py", "command/"),
}

# Files that read and order data are NumPy only, so that loader processes stay light.
JAX_FREE = ("data/", "registry.py", "setting_checks.py", "equations.py")
EXCEPT = ("data/augment.py",)


def reachable(part):
    found, todo = set(), [part]
    while todo:
        for below in BELOW[todo.pop()]:
            if below not in found:
                found.add(below)
                todo.append(below)
    return found


def imported_modules(source, module):
    """Absolute names of the modules that a source text imports, wherever it does."""
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            # `from churn_jax import losses` imports churn_jax.losses.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(path, source):
    """Forbidden imports of one file; `path` is relative to the package."""
    parts = Path(path).with_suffix("").parts
    part = parts[0]
    if part not in BELOW:
        return [f"{path}: add {part!r} to the table in {Path(__file__).name}"]
    found = []
    for name in imported_modules(source, ".".join(["churn_jax", *parts])):
        top, *rest = name.split(".")
        if top == "churn_jax" and rest:
            target = rest[0]
            if target in BELOW and target != part and target not in reachable(part):
                found.append(f"{path} imports churn_jax.{target}")
        elif top in HEAVY and not path.startswith(HEAVY[top]):
            found.append(f"{path} imports {top}")
        elif (
            top in ("jax", "flax", "optax")
            and path.startswith(JAX_FREE)
            and path not in EXCEPT
        ):
            found.append(f"{path} imports {top}")
    return found


def test_files_import_only_what_is_below_them():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        found += violations(name, path.read_text(encoding="utf-8"))
    assert found == []


def test_only_packages_have_a_list_of_public_names():
    files = [
        *PACKAGE.rglob("*.py"),
        *PACKAGE.parent.glob("compare/churn_compare/**/*.py"),
    ]
    # `churn_compare.store` is imported by users and is one file.
    modules = [path for path in files if path.name not in ("__init__.py", "store.py")]
    assert [path for path in modules if "__all__ =" in path.read_text("utf-8")] == []


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("losses/a.py", "from churn_jax.metrics import churn", "churn_jax.metrics"),
        ("losses/a.py", "import churn_jax.metrics.churn", "churn_jax.metrics"),
        ("losses/a.py", "from churn_jax import training", "churn_jax.training"),
        ("losses/a.py", "def f():\n    from ..metrics import churn", "metrics"),
        ("data/splits.py", "import jax.numpy as jnp", "jax"),
        ("data/pipeline.py", "import tensorflow as tf", "tensorflow"),
        ("elsewhere/a.py", "", "add 'elsewhere' to the table"),
        ("losses/a.py", "from churn_jax import divergences", ""),
        ("losses/a.py", "from . import b\nfrom .c import d", ""),
        ("cli.py", "from churn_jax.studies import study\nimport tyro", ""),
        ("training/a.py", "from churn_jax import __version__, models", ""),
        ("data/augment.py", "import jax", ""),
    ],
)
def test_a_forbidden_import_is_found_and_an_allowed_one_is_not(path, source, found):
    wrong = violations(path, source)
    assert len(wrong) == bool(found) and all(found in line for line in wrong)


def test_the_table_has_no_cycles():
    assert [part for part in BELOW if part in reachable(part)] == []
