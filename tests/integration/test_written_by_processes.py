"""Two processes train on one stream and write what their own devices predict."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from churn_compare.store import load_predictions, read_shards
from churn_jax.data import load
from tests.integration.processes import free_port
from tests.integration.writing import trained

PROGRAM = Path(__file__).with_name("writing.py")


@pytest.mark.slow
def test_two_processes_write_a_shard_each_and_fail_together(tmp_path):
    port = str(free_port())
    ours = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), port, str(i), str(tmp_path)],
            env=os.environ | ours,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    try:
        said = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0], said
    found = read_shards(tmp_path / "shards")
    test = load("digits", validation=50, train_size=64).test
    rows = np.argsort(found.ids)
    np.testing.assert_array_equal(found.ids[rows], np.sort(test.ids))
    order = np.argsort(np.argsort(test.ids))
    np.testing.assert_array_equal(found.labels[rows][order], test.labels)
    whole = np.load(tmp_path / "whole.npy")
    # Examples are read by one process each, and train what one process trains.
    alone = trained(stream=False)[0].predict(test.images)
    np.testing.assert_allclose(whole, alone, atol=1e-5)
    for run in range(2):
        np.testing.assert_array_equal(found.logits[run, rows][order], whole[run])
    stored = load_predictions(tmp_path / "shards")  # in the order of the split
    assert stored.in_memory
    np.testing.assert_array_equal(stored.ids, test.ids)
    np.testing.assert_array_equal(stored.logits, whole)
    held = [part.shape[1] for part in found.logits.parts]
    assert len(held) == 2 and min(held) > 0.4 * sum(held)
    assert found.meta == {"a": 1}
    assert "another process could not write its shard" in said[0][0]
    assert "No space left on device" in said[1][0]
    assert not (tmp_path / "failed" / "index.json").exists()
