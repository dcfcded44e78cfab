"""Who may import whom inside the package, read from the source."""

import ast
import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import churn_jax

PACKAGE = Path(churn_jax.__file__).resolve().parent

# Each part of the package and the parts directly below it. A part may import whatever
# can be reached downwards. `predictions` is the NumPy-only file format of predictions.
BELOW = {
    "typing": (),
    "_jax": (),
    "_plugins": (),
    "_checks": ("typing",),
    "setting_checks": (),
    "divergences": ("typing", "_checks"),
    "checksums": (),
    "array_files": ("checksums",),
    "example_ids": ("array_files",),
    "distributions": (),
    "flip_counts": (),
    "predictions": ("array_files", "example_ids"),
    "prediction_shards": ("predictions",),  # the same in many files
    "equations": (),
    "class_sets": (),
    "escaping": (),
    "documents": ("escaping", "array_files"),
    "registry": (),
    "other_names": ("equations", "registry"),
    "lazy": ("other_names",),  # when a name is not found
    "losses": ("lazy", "setting_checks", "divergences", "class_sets"),
    "metrics": ("lazy", "divergences", "class_sets"),
    "perturbations": ("lazy", "divergences"),
    "models": ("_jax", "lazy", "typing", "_checks", "setting_checks", "registry"),
    # log_probs of averaged members
    "ensembles": (
        "lazy",
        "typing",
        "_checks",
        "setting_checks",
        "_jax",
        "class_sets",
        "divergences",
    ),
    "data": (
        "lazy",
        "typing",
        "_checks",
        "setting_checks",
        "array_files",
        "registry",  # its hints
    ),  # augmentation runs in the jitted step, see JAX_FREE
    "methods": ("lazy", "registry", "losses", "perturbations", "ensembles"),
    # studies as data: what the trainer is told, and what the reports read
    "configuration": (
        "methods",
        "ensembles",
        "models",
        "data",
        "predictions",
        "prediction_shards",
    ),
    "training": (
        "configuration",
        "escaping",
        "methods",
        "ensembles",
        "metrics",
        "models",
        "data",
        "flip_counts",
        "predictions",
        "prediction_shards",
    ),
    "analysis": (
        "lazy",
        "distributions",
        "setting_checks",
        "metrics",
        "predictions",
        "perturbations",  # of Jacobians
    ),
    # tests of significance
    "reports": (
        "configuration",
        "lazy",
        "registry",
        "metrics",
        "flip_counts",
        "predictions",
        "prediction_shards",
        "analysis",
        "comparison",
        "documents",
        "escaping",
    ),
    "comparison": (
        "documents",
        "analysis",
        "distributions",
        "flip_counts",
        "registry",
        "predictions",
        "prediction_shards",
        "class_sets",
    ),
    "testing": ("comparison",),
    "pytest_plugin": ("testing",),
    "studies": (
        "configuration",
        "registry",
        "training",
        "reports",
        "analysis",
        "methods",
        "models",
        "data",
        "predictions",
        "prediction_shards",
    ),
    "planning": ("studies", "training", "models", "data", "ensembles"),
    "command": (
        "studies",
        "planning",
        "comparison",
        "equations",
        "_plugins",
    ),  # the parts of the command line
    "cli": ("command",),
    "__main__": ("cli",),
    # three lazily
    "__init__": ("comparison", "reports", "studies", "lazy", "_plugins"),
}

# Heavy libraries and the only places that may import them, even lazily.
HEAVY = {
    "tensorflow": ("data/tfds_source.py",),
    "tensorflow_datasets": ("data/",),
    "grain": ("data/",),
    "orbax": ("training/checkpoint.py",),
    "safetensors": ("models/pretrained.py",),
    "tensorboardX": ("training/loggers.py",),
    "clu": (),
    "mlflow": (),
    "wandb": (),
    "tyro": ("cli.py", "command/"),
}

# Files that read and order data are NumPy only, so that loader processes stay light.
JAX_FREE = (
    "data/",
    "registry.py",
    "other_names.py",
    "setting_checks.py",
    "array_files.py",
    "example_ids.py",
    "distributions.py",
    "flip_counts.py",
    "predictions.py",
    "prediction_shards/",
    "equations.py",
    "escaping.py",
    "documents/",
)
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


@pytest.mark.parametrize(
    ("path", "source", "target"),
    [
        ("losses/a.py", "from churn_jax.metrics import churn", "churn_jax.metrics"),
        ("metrics/a.py", "import churn_jax.losses.l1", "churn_jax.losses"),
        ("losses/a.py", "from churn_jax import training", "churn_jax.training"),
        ("losses/a.py", "def f():\n    from ..metrics import churn", "metrics"),
        ("methods/a.py", "from churn_jax.training.loop import run", "training"),
        ("models/a.py", "from churn_jax import ensembles", "ensembles"),
        ("data/a.py", "from churn_jax.models import zoo", "models"),
        ("analysis/a.py", "from churn_jax.reports import x", "reports"),
        ("data/splits.py", "import jax.numpy as jnp", "jax"),
        ("typing.py", "from churn_jax import _checks", "_checks"),
        ("studies/a.py", "from churn_jax.command import study", "command"),
        ("__init__.py", "from churn_jax import planning", "planning"),
        ("data/pipeline.py", "import tensorflow as tf", "tensorflow"),
        ("training/loop.py", "import orbax.checkpoint as ocp", "orbax"),
        ("elsewhere/a.py", "", "add 'elsewhere' to the table"),
    ],
)
def test_a_forbidden_import_is_found(path, source, target):
    found = violations(path, source)
    assert len(found) == 1
    assert found[0].endswith(target) or target in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("losses/a.py", "from churn_jax import divergences"),
        ("losses/a.py", "from churn_jax._checks import check_logits"),
        ("losses/a.py", "from . import b\nfrom .c import d"),
        ("methods/a.py", "from churn_jax.divergences import log_probs"),
        ("cli.py", "from churn_jax.studies import study\nimport tyro"),
        ("training/a.py", "from churn_jax import __version__, predictions"),
        ("data/tfds_source.py", "import tensorflow as tf"),
        ("data/augment.py", "import jax"),
        ("training/checkpoint.py", "import orbax.checkpoint"),
    ],
)
def test_an_allowed_import_is_not_reported(path, source):
    assert violations(path, source) == []


# Third-party packages that files of `churn-compare` import only where a user asks for
# what is in `churn-jax`, or brings objects of the package.
OPTIONAL = {
    "churn_jax/lazy.py": {"jax", "optax"},
    "churn_jax/documents/plotting.py": {"matplotlib"},
    "churn_jax/pytest_plugin.py": {"pytest"},
}


def test_churn_compare_has_what_it_imports_and_nothing_that_needs_jax():
    path = PACKAGE.parent / "packaging" / "churn_compare.py"
    if not path.is_file():
        pytest.skip("no source tree")
    made = runpy.run_path(str(path))
    files = [file.as_posix() for file in made["source_files"]()]
    assert "churn_jax/comparison/compare.py" in files
    assert "churn_jax/documents/templates/page.css" in files
    assert "churn_jax/comparison/demo/neural_network.npz" in files
    has = {name.replace("-", "_") for name in made["NEEDED"]} | {"markupsafe"}
    has |= set(sys.stdlib_module_names) | {"churn_jax"}
    for file in files:
        if not file.endswith(".py"):
            continue
        source = (PACKAGE.parent / file).read_text(encoding="utf-8")
        names = imported_modules(source, file[:-3].replace("/", "."))
        lacking = {name.partition(".")[0] for name in names} - has
        assert lacking <= OPTIONAL.get(file, set()), file
    project = tomllib.loads(made["project"]())["project"]
    assert len(project["dependencies"]) == len(made["NEEDED"])


@pytest.mark.slow
def test_churn_compare_reads_every_kind_of_input_without_jax(tmp_path):
    packaging = PACKAGE.parent / "packaging"
    if not packaging.is_dir():
        pytest.skip("no source tree")
    made = runpy.run_path(str(packaging / "churn_compare.py"))
    made["write_project"](tmp_path / "light")
    code = f"""
import runpy, sys
sys.modules.update(dict.fromkeys(("jax", "jaxlib", "flax", "optax", "orbax")))
sys.argv.append("--pytest")
runpy.run_path({str(packaging / "trials.py")!r}, run_name="__main__")
import churn_jax
assert "light" in churn_jax.__file__
"""
    paths = {"PYTHONPATH": str(tmp_path / "light" / made["PLACE"])}
    command = [sys.executable, "-P", "-c", code]
    subprocess.run(command, cwd=tmp_path, check=True, env=os.environ | paths)


def test_the_table_has_no_cycles():
    assert [part for part in BELOW if part in reachable(part)] == []
