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
    begin,
    codes,
    end,
    finish,
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
    finish([launch([*STUDY, *ONLY], out)], out)
    return out


@pytest.fixture
def begun(tmp_path):
    """A folder in which two processes have finished the first row, one begun late."""
    out = tmp_path / "study"
    early, late = joined([*STUDY, "--only", "baseline", "--mesh", "replica=2"], 2)
    processes = [launch(early, out, 0)]
    try:
        time.sleep(8)
        assert processes[0].poll() is None
        processes.append(launch(late, out, 1))
        finish(processes, out)
    finally:
        end(processes)
    return out


def lose(begun, words, place, process):
    """Runs the words until `process` kills itself; the other must end soon."""
    lost = ["--launch.lost-seconds", str(LOST)]
    processes = begin([*words, *lost], begun, 2, dying=(process, place))
    processes[process].wait(120)
    began = time.monotonic()
    other = codes(processes, LOST + 20)[1 - process]
    assert time.monotonic() - began < LOST + 10
    _, errors = said(begun, 1 - process)
    if other == 2:
        sentence = errors.strip().splitlines()[-1]
        assert sentence.startswith(f"churn-jax: process {1 - process}: another process")
        assert "the same command on every host goes on" in sentence
        assert "Traceback" not in errors
    else:
        assert other == ABORTED, (other, errors[-2000:])


def test_one_that_starts_late_is_waited_for_and_one_killed_loses_nothing(begun, whole):
    """In an update, an evaluation, a checkpoint, between shards and their index."""
    first = (begun / "methods" / "baseline" / "predictions.npz").read_bytes()
    command = [*STUDY, *ONLY, "--predictions", "shards"]
    words = [*command, "--mesh", "replica=2"]
    folder = begun / "methods" / "entropy"
    for place, process in (("step", 1), ("evaluation", 1), ("checkpoint", 0)):
        lose(begun, words, place, process)
        assert not list(folder.glob("predictions*"))
    lose(begun, words, "index", 0)
    assert len(list(folder.glob("predictions-validation/logits-*.npy"))) == 2
    assert not list(folder.glob("predictions*/index.json"))
    trained = (folder / "metrics.jsonl").read_text()

    again = together(command, begun, "replica=2")
    assert "Baseline: finished before, kept" in " ".join(again[0].split())
    assert (folder / "metrics.jsonl").read_text() == trained  # from the checkpoint
    assert (begun / "methods" / "baseline" / "predictions.npz").read_bytes() == first
    found = load_predictions(folder / "predictions.npz")
    assert found.in_memory
    np.testing.assert_allclose(found.logits, logits(whole, "entropy"), atol=1e-5)


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


def test_four_processes_then_two_then_one_train_what_one_trains(tmp_path, whole):
    """A preemption notice to one of them makes all save and stop."""
    out, words = tmp_path / "study", [*BASE, "--only", "entropy", "--epochs", "60"]
    for count, epochs, index in ((4, 5, 3), (2, 20, 1)):
        mesh = f"data={count}"
        processes = begin([*words, "--mesh", mesh], out, count)
        try:
            stop_after(processes, out, "entropy", epochs, index)
            ended = codes(processes, 90)
        finally:
            end(processes)
        assert ended[index] == 143 and set(ended) <= {130, 143}, ended
        assert not (out / "methods" / "entropy" / "predictions.npz").exists()
    finish([launch(words, out)], out)
    alone = tmp_path / "alone"
    finish([launch(words, alone)], alone)
    a, b = logits(out, "entropy"), logits(alone, "entropy")
    # The sums of gradients are added in another order on other meshes.
    np.testing.assert_allclose(a, b, atol=2e-3)
    assert np.mean(a.argmax(-1) != b.argmax(-1)) <= 0.005
