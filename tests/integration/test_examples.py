"""The examples: a method, network and column; a study that is killed and goes on."""

import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from churn_jax.cli import main
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
def finished(example, tmp_path, monkeypatch, capsys):
    """What the command prints, which must end well."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capsys.readouterr()
        assert main([str(word) for word in words]) == 0
        return capsys.readouterr().out

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


def predictions(folder):
    files = sorted(folder.glob("run/*/methods/*/predictions.npz"))
    return {str(f.relative_to(folder)): np.load(f)["logits"] for f in files}


@pytest.mark.slow
def test_a_killed_script_goes_on_bit_by_bit(example, tmp_path, monkeypatch, capsys):
    """The row in which it was killed is the one that is trained without a break."""
    monkeypatch.chdir(tmp_path)
    row = tmp_path / "run" / "Linen" / "methods" / "beta=0.1"
    flags = os.environ.get("XLA_FLAGS", "") + FLAG
    ours = {"PYTHONPATH": os.pathsep.join(sys.path), "XLA_FLAGS": flags}
    words = [sys.executable, str(SCRIPT), "run", "2,2,2"]
    killed = subprocess.Popen(words, env=os.environ | ours)
    while not list(row.glob("checkpoints/*")):
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    assert killed.wait() == -9
    before, found = predictions(tmp_path), []
    for _ in range(2):  # once more by this process, under the script's name
        importlib.import_module(SCRIPT.stem).main("run", "2,2,2")
        assert "finished before, kept" in capsys.readouterr().out
        found.append(predictions(tmp_path))
        shutil.rmtree(row)
    assert "Margin" in (tmp_path / "run" / "NNX" / "report.html").read_text()
    resumed, undisturbed = found
    assert len(before) < len(resumed) == len(undisturbed) == 8
    for name, logits in undisturbed.items():
        np.testing.assert_array_equal(logits, resumed[name])
        assert logits.shape == (4, 897, 10)
