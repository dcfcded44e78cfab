"""Benchmarks run, each in a small form."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SMALL = {
    "ceiling.py": "--models resnet20",
    "compare_coverage.py": "--trials 2 --tables labels deciding precision strong",
    "evaluation_at_size.py": "--sizes 300 --classes 20 --batch 128",
    "pairwise.py": "--runs 3 --examples 40 --classes 5 --repeats 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SMALL)
def test_a_benchmark_runs(script):
    command = [sys.executable, str(FOLDER / script), *SMALL[script].split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "| --: |" in done.stdout
