"""The examples: a method, network and column; a study that is killed and goes on."""

import importlib
import os
import subprocess
import sys
import time
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
    assert example.squeezed_digits.__annotations__["return"] is StudyConfig  # --list


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


SCRIPT = Path(__file__).parents[2] / "examples" / "own_study.py"
FLAG = " --xla_force_host_platform_device_count=8"


@pytest.fixture
def script(tmp_path):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    environment["XLA_FLAGS"] = environment.get("XLA_FLAGS", "") + FLAG

    def start(*words):
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def predictions(folder):
    files = sorted(folder.glob("*/methods/*/predictions.npz"))
    return {str(f.relative_to(folder)): np.load(f)["logits"] for f in files}


@pytest.mark.slow
def test_a_killed_script_goes_on_bit_by_bit(script, tmp_path):
    mesh = "2,2,2"
    whole = script("whole", mesh)
    assert (said := whole.communicate()[0]) and whole.returncode == 0, said
    killed = script("cut", mesh)
    row = "beta=0.1"
    while not list(tmp_path.glob(f"cut/Linen/methods/{row}/checkpoints/*")):
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -9
    before = predictions(tmp_path / "cut")
    again = script("cut", mesh)
    assert (said := again.communicate()[0]) and again.returncode == 0, said
    assert (
        "finished before, kept" in said
        and "Margin" in (tmp_path / "cut" / "NNX" / "report.html").read_text()
    )
    expected, found = predictions(tmp_path / "whole"), predictions(tmp_path / "cut")
    assert len(before) < len(found) == len(expected) == 8
    for name, logits in expected.items():
        np.testing.assert_array_equal(logits, found[name])
        assert logits.shape == (4, 897, 10)
