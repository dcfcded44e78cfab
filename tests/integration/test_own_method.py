"""`examples/own_method.py` adds a method, a network, a column and a study."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from churn_jax.configuration import from_json, to_json
from churn_jax.studies import StudyConfig, preset
from churn_jax.studies.folder import importable

EXAMPLES = Path(__file__).parents[2] / "examples"
STUDY = "own_method:squeezed_digits"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("own_method")


def test_the_study_is_recorded_by_names_that_are_imported(example):
    config = importable(preset(f"{STUDY}:tiny"))
    assert from_json(StudyConfig, to_json(config)) == config
    assert config.columns[-1] == "own_method:margin"
    assert config.spec("squeezed").method == example.Squeezed()
    (group,) = config.spec("squeezed").groups(config.model, 10)
    assert group.network.name == "own_method:Net"


def test_the_column_is_the_difference_of_the_two_highest_logits(example):
    logits = np.array([[1.0, 4.0, 2.0], [0.0, -1.0, -4.0]], np.float32)
    assert example.margin.measure(logits, None) == 1.5


@pytest.fixture
def finished(tmp_path):
    """What the command prints, which must end well."""
    path = os.pathsep.join([str(EXAMPLES), *sys.path])
    environment = dict(os.environ, PYTHONPATH=path)

    def run(*words):
        words = [sys.executable, "-m", "churn_jax", *map(str, words)]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.mark.slow
def test_trained_kept_swept_and_reported(finished, tmp_path):
    words = ["study", f"{STUDY}:tiny", "--out", "run"]
    assert "Margin" in finished(*words)
    again = finished(*words)
    assert "Squeezed logits" in again and "finished before, kept" in again
    assert "Margin" in finished("report", "run")
    axis = "squeezed.strength=0,0.1"
    finished("sweep", f"{STUDY}:tiny", axis, "--seeds", 2, "--out", "sweep")
    assert "| Margin |" in (tmp_path / "sweep" / "table.md").read_text()


@pytest.mark.slow
def test_the_method_and_the_network_join_a_preset_on_the_command_line(finished):
    words = ["--method", "own_method:Squeezed", "--model", "own_method:Net"]
    words += ["--only", "squeezed", "--epochs", 1, "--set", "squeezed.strength=0.1"]
    assert "Squeezed" in finished("study", "digits:tiny", *words)
