"""Two and four processes joined on the loopback train what one process trains."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from churn_compare.store import load_predictions, read_shards
from churn_jax.data import load
from tests.integration import processes
from tests.integration.processes import finish, free_port, launch, together
from tests.integration.writing import trained

METHODS = ("codistill_skl", "ensemble", "distillation")
# `ensemble` is trained as the teacher of `distillation`.
STUDY = "study digits:tiny --epochs 1 --only codistill_skl distillation".split()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The study by one process on one device."""
    out = tmp_path_factory.mktemp("alone") / "study"
    processes.alone(STUDY, out)
    return out


def table(out) -> dict[str, dict[str, str]]:
    with open(out / "table.csv", newline="") as lines:
        return {row["method"]: row for row in csv.DictReader(lines)}


def assert_same_study(ours, theirs):
    for name in METHODS:
        a, b = (
            load_predictions(o / "methods" / name / "predictions.npz")
            for o in (ours, theirs)
        )
        assert np.array_equal(a.ids, b.ids) and np.array_equal(a.labels, b.labels)
        assert a.logits.shape == (2, len(a.ids), 10)
        np.testing.assert_allclose(a.logits, b.logits, atol=1e-5)
        assert np.array_equal(a.logits.argmax(-1), b.logits.argmax(-1))
    rows, others = table(ours), table(theirs)
    assert set(METHODS) <= rows.keys() <= others.keys()
    for name in METHODS:
        row, other = rows[name], others[name]
        assert row["accuracy"] and row["churn"]
        for key in ("accuracy", "churn", "churn_correct", "nfr"):
            assert row[key] == other[key]
        for key, value in row.items():
            if "seconds" in key:
                continue
            if value == other[key]:
                continue
            # Other quantities follow the logits, which agree to 1e-5.
            assert float(value) == pytest.approx(float(other[key]), rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_two_processes_give_the_table_of_one(alone, no_charts, tmp_path):
    out, mesh = tmp_path / "study", "data=2"
    words = [*STUDY, "--predictions", "shards"]
    first, second = together(words, out, mesh)
    assert_same_study(out, alone)

    # Only process 0 speaks (the transport says on its own whom it is connected to).
    assert "validation accuracy" in first and "Report:" in first
    spoken = [x for x in second.splitlines() if x and not x.startswith("[Gloo]")]
    assert spoken == []
    metrics = (out / "methods" / "codistill_skl" / "metrics.jsonl").read_text()
    assert len(metrics.splitlines()) == 1
    assert not list(out.rglob("*.tmp*"))

    # Each writes about half of the examples.
    for name in METHODS:
        folder = out / "methods" / name
        assert not list(folder.glob("predictions*.npz"))
        for part in ("predictions", "predictions-validation"):
            held = [p.shape[1] for p in read_shards(folder / part).logits.parts]
            assert len(held) == 2 and min(held) > 0.4 * sum(held)

    # The same command again restores instead of training, by both.
    def shards():
        return {path: path.read_bytes() for path in out.glob("methods/*/*/*.npy")}

    before = shards()
    again, _ = together(words, out, mesh)
    assert again.count("finished before, kept") == len(METHODS)
    assert shards() == before != {}

    # Another number of processes reads them, and a file takes their place.
    (folder / "predictions" / "index.json").unlink()
    processes.alone([*words[:-1], "file"], out)
    assert_same_study(out, alone)
    assert not list(folder.glob("predictions*/*"))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed")
def test_open_mpi_tells_who_takes_part(tmp_path):
    """Without any flag."""
    out = tmp_path / "study"
    words = [*STUDY[:-2], "codistill_skl", "--mesh", "replica=2", "--out", str(out)]
    python = [sys.executable, "-m", "churn_jax.cli", *words]
    done = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *python],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count(" s. Report:") == 1
    record = json.loads((out / "study.json").read_text())
    assert len(record["launch"]["devices"]) == 2


PROGRAM = (str(Path(__file__).with_name("writing.py")),)


@pytest.mark.slow
def test_two_processes_write_a_shard_each_and_fail_together(tmp_path):
    out, port = tmp_path / "written", str(free_port())
    words = [[port, str(i)] for i in range(2)]
    said = finish([launch(w, out, i, PROGRAM, 2) for i, w in enumerate(words)], out)
    found = read_shards(out / "shards")
    test = load("digits", validation=50, train_size=64).test
    rows = np.argsort(found.ids)
    np.testing.assert_array_equal(found.ids[rows], np.sort(test.ids))
    order = np.argsort(np.argsort(test.ids))
    np.testing.assert_array_equal(found.labels[rows][order], test.labels)
    whole = np.load(out / "whole.npy")
    # Examples are read by one process each, and train what one process trains.
    alone = trained(stream=False)[0].predict(test.images)
    np.testing.assert_allclose(whole, alone, atol=1e-5)
    for run in range(2):
        np.testing.assert_array_equal(found.logits[run, rows][order], whole[run])
    stored = load_predictions(out / "shards")  # in the order of the split
    assert stored.in_memory
    np.testing.assert_array_equal(stored.ids, test.ids)
    np.testing.assert_array_equal(stored.logits, whole)
    held = [part.shape[1] for part in found.logits.parts]
    assert len(held) == 2 and min(held) > 0.4 * sum(held)
    assert found.meta == {"a": 1}
    assert "another process could not write its shard" in said[0]
    assert "No space left on device" in said[1]
    assert not (out / "failed" / "index.json").exists()
