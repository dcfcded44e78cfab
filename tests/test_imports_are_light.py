"""Importing the functions on arrays loads no trainer, no TensorFlow and no plotting."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "tensorflow",
    "tensorflow_datasets",
    "orbax",
    "matplotlib",
    "grain",
    "tyro",
    "rich",
    "tensorboardX",
    "churn_jax.training",
    "churn_jax.studies",
    "churn_jax.reports",
    "churn_jax.data",
)


def loaded_by(statement):
    """Names of `HEAVY` that are loaded after `statement` in a fresh interpreter."""
    code = (
        f"import json, sys\n{statement}\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_losses_are_light():
    assert loaded_by("import churn_jax.losses") == []


def test_losses_and_metrics_are_light():
    # Metric states are flax.struct dataclasses, and flax itself loads rich.
    of_flax = [m for m in loaded_by("import flax.struct") if m == "rich"]
    assert loaded_by("import churn_jax.losses, churn_jax.metrics") == of_flax


def test_the_package_itself_does_not_even_load_jax():
    assert loaded_by("import churn_jax\nassert 'jax' not in sys.modules") == []


@pytest.mark.parametrize("name", ["rich", "matplotlib"])
def test_the_probe_sees_what_is_loaded(name):
    assert loaded_by(f"import {name}") == [name]


def test_comparing_arrays_does_not_load_pyarrow():
    compared = "import churn_jax\nchurn_jax.compare([0, 1], [0, 1], labels=[0, 1])\n"
    loaded_by(f"{compared}assert 'pyarrow' not in sys.modules")
