"""`examples/own_study.py` from outside the checkout: killed, resumed, on a mesh."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "own_study.py"
FLAG = " --xla_force_host_platform_device_count=8"

pytestmark = pytest.mark.slow


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
