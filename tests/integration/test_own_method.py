"""`examples/own_method.py` adds a method, a network, a column and a study."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from churn_jax.configuration.codec import from_json, to_json
from churn_jax.configuration.study import StudyConfig
from churn_jax.studies import preset
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
def command(tmp_path):
    path = os.pathsep.join([str(EXAMPLES), *sys.path])
    environment = dict(os.environ, PYTHONPATH=path)

    def start(*words):
        words = [sys.executable, "-m", "churn_jax", *map(str, words)]
        return subprocess.Popen(
            words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )

    return start


def finished(process):
    out = process.communicate()[0]
    assert process.returncode == 0, out
    return out


@pytest.mark.slow
def test_trained_killed_resumed_swept_and_reported(command, tmp_path):
    words = ["study", f"{STUDY}:tiny", "--epochs", 20]
    words += ["--set", "train.checkpoint_every_seconds=0"]
    whole = command(*words, "--out", "whole")
    assert "Margin" in finished(whole)
    killed = command(*words, "--out", "killed")
    history = tmp_path / "killed" / "methods" / "squeezed" / "metrics.jsonl"
    while not history.exists() and killed.poll() is None:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not history.with_name("predictions.npz").exists()
    assert "Squeezed logits" in finished(command(*words, "--out", "killed"))
    name = Path("methods", "squeezed", "predictions.npz")
    found = [np.load(tmp_path / folder / name) for folder in ("whole", "killed")]
    assert np.array_equal(*(file["logits"] for file in found))
    assert "Margin" in finished(command("report", "killed"))
    axis = "squeezed.strength=0,0.1"
    finished(command("sweep", f"{STUDY}:tiny", axis, "--seeds", 2, "--out", "sweep"))
    assert "| Margin |" in (tmp_path / "sweep" / "table.md").read_text()


@pytest.mark.slow
def test_the_method_and_the_network_join_a_preset_on_the_command_line(command):
    words = ["--method", "own_method:Squeezed", "--model", "own_method:Net"]
    words += ["--only", "squeezed", "--epochs", 1, "--set", "squeezed.strength=0.1"]
    assert "Squeezed" in finished(command("study", "digits:tiny", *words))
