"""What several processes do when one of them is lost, late, or given other work.

Each row of the fault list in `experiments/launch/README.md` is a test here. Nobody
waits longer than `--launch.lost-seconds` for a lost process, nothing finished is lost,
and the same command goes on to what an undisturbed one gives.
"""

import time

import numpy as np
import pytest

from churn_compare.store import load_predictions
from tests.integration.processes import (
    TIMEOUT,
    alone,
    begin,
    codes,
    end,
    free_port,
    joined,
    launch,
    said,
    stop_after,
    together,
)
from tests.studies.test_study import logits

pytestmark = pytest.mark.slow

BASE = """study digits:tiny --set model.features=8 --train-size 64 --validation
    20 --batch-size 32 --set train.checkpoint_every_seconds=0""".split()
STUDY = [*BASE, "--epochs", "6"]
ONLY = ["--only", "baseline", "entropy"]
LOST = 10  # seconds
ABORTED = -6  # by the coordination service, which prints its own lines


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study by one process, undisturbed."""
    out = tmp_path_factory.mktemp("whole") / "study"
    alone([*STUDY, *ONLY], out)
    return out


def lose(out, words, place, process, late=0):
    """Runs the words until `process` kills itself; the other must end soon."""
    words = [*words, "--mesh", "replica=2", "--launch.lost-seconds", str(LOST)]
    processes = begin(words, out, 2, (process, place), late)
    assert processes[process].wait(TIMEOUT) == -9
    began = time.monotonic()
    other = codes(processes, LOST + 20)[1 - process]
    assert time.monotonic() - began < LOST + 10
    _, errors = said(out, 1 - process)
    if other == 2:
        start = f"churn-jax: process {1 - process}: another process"
        (sentence,) = [x for x in errors.splitlines() if x.startswith(start)]
        assert "the same command on every host goes on" in sentence
        assert "Traceback" not in errors
    else:
        assert other == ABORTED, (other, errors[-2000:])


def test_one_that_starts_late_is_waited_for_and_one_killed_loses_nothing(
    tmp_path, whole
):
    """In an update, an evaluation, a checkpoint, between shards and their index."""
    out, command = tmp_path / "study", [*STUDY, *ONLY]
    folder, kept = (out / "methods" / name for name in ("entropy", "baseline"))
    lose(out, command, "step", 1, late=5)
    first = (kept / "predictions.npz").read_bytes()
    command += ["--predictions", "shards"]
    for place, process in (("evaluation", 1), ("checkpoint", 0), ("index", 0)):
        assert not list(folder.glob("predictions*"))
        lose(out, command, place, process)
    assert len(list(folder.glob("predictions-validation/logits-*.npy"))) == 2
    assert not list(folder.glob("predictions*/index.json"))
    trained = (folder / "metrics.jsonl").read_text()
    again = together(command, out, "replica=2")
    assert "Baseline: finished before, kept" in " ".join(again[0].split())
    assert (folder / "metrics.jsonl").read_text() == trained  # from the checkpoint
    assert (kept / "predictions.npz").read_bytes() == first
    found = load_predictions(folder / "predictions.npz")
    assert found.in_memory
    np.testing.assert_allclose(found.logits, logits(whole, "entropy"), atol=1e-5)
    np.testing.assert_allclose(logits(out), logits(whole), atol=1e-5)


def test_one_that_never_starts_is_not_waited_for_longer_than_said(tmp_path):
    out = tmp_path / "study"
    words = [*STUDY, "--launch.start-seconds", "3"]
    began = time.monotonic()
    (code,) = codes([launch(joined(words, 2, free_port())[0], out, 0)], 60)
    assert code in (2, ABORTED)
    assert time.monotonic() - began < 45  # most of it imports
    assert not (out / "study.json").exists()


def test_one_with_another_configuration_is_refused_before_training(tmp_path):
    out = tmp_path / "study"
    ours = joined([*STUDY, *ONLY, "--mesh", "replica=2"], 2)
    ours[1] += ["--set", "entropy.alpha=0.5"]
    assert codes([launch(w, out, i) for i, w in enumerate(ours)]) == [2, 2]
    for i in range(2):
        errors = said(out, i)[1]
        assert "process 1 was started for other work than process 0" in errors
        assert "entropy.method.alpha" in errors and "0.5 here" in errors
    assert not (out / "methods").exists()


def test_a_folder_that_not_all_see_is_refused(tmp_path):
    ours = joined([*STUDY, *ONLY, "--mesh", "replica=2"], 2)
    outs = [tmp_path / "a", tmp_path / "b"]
    processes = [launch(w, out, i) for i, (w, out) in enumerate(zip(ours, outs))]
    assert codes(processes) == [2, 2]
    assert "process 1 does not see what process 0 writes" in said(outs[0], 0)[1]


def test_four_processes_then_two_then_one_train_what_one_trains(tmp_path, no_charts):
    """A preemption notice to one of them makes all save and stop."""
    out, words = tmp_path / "study", [*BASE, "--only", "entropy", "--epochs", "40"]
    for count, epochs, index in ((4, 3, 3), (2, 9, 1)):
        mesh = f"data={count}"
        processes = begin([*words, "--mesh", mesh], out, count)
        try:
            stop_after(processes, out, "entropy", epochs, index)
            ended = codes(processes, 90)
        finally:
            end(processes)
        assert ended[index] == 143 and set(ended) <= {130, 143}, ended
        assert not (out / "methods" / "entropy" / "predictions.npz").exists()
    words = [word.replace("every_seconds=0", "every_seconds=60") for word in words]
    folders = out, tmp_path / "alone"
    for folder in folders:
        alone(words, folder)
    a, b = (logits(folder, "entropy") for folder in folders)
    # The sums of gradients are added in another order on other meshes.
    np.testing.assert_allclose(a, b, atol=2e-3)
    assert np.mean(a.argmax(-1) != b.argmax(-1)) <= 0.005
