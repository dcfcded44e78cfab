"""A resumed training is the uninterrupted one, bit by bit (on CPU)."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from churn_jax.configuration.training import OptimizerConfig
from churn_jax.data import Augmentation
from churn_jax.methods import ERM, Codistillation, OneToOneDistillation
from churn_jax.training import Interrupted, loop, train
from tests.training import tiny
from tests.training.digits import digits, digits_run
from tests.training.tiny import read_metrics


def make_run(method, *, name="m", **options):
    settings = {"epochs": 3, "batch_size": 2, "weights": "best"}
    settings["optimizer"] = OptimizerConfig(learning_rate=0.02, schedule="cosine")
    settings["augmentation"] = Augmentation(shift=1)
    return digits_run(method, name=name, **settings | options)


class StopAfter:
    """An event that is set from the n-th time on that the loop looks at it."""

    def __init__(self, looks):
        self.looks = looks

    def is_set(self):
        self.looks -= 1
        return self.looks < 0


def trained(run, folder, **options):
    """The training, and its folder."""
    return train(run, digits(), directory=folder, **options), folder


def with_interruptions(run, folder, looks, **options):
    """`trained` with a stop after every `looks` looks, and the updates between."""
    stops = []
    while True:
        try:
            return trained(run, folder, stop=StopAfter(looks), **options), stops
        except Interrupted as error:
            stops.append(int(str(error).split(" after ")[1].split()[0]))
            assert stops == sorted(set(stops)), "no progress between interruptions"


def lines(directory):
    return [
        {k: v for k, v in line.items() if k != "seconds"}
        for line in read_metrics(directory)
    ]


def assert_same_training(one, other):
    (whole, whole_folder), (resumed, resumed_folder) = one, other
    assert whole.stopped == resumed.stopped
    for name in ("last", "best", "params"):
        assert tiny.bitwise_equal(getattr(whole, name), getattr(resumed, name)), name
    images = digits().test.images
    assert tiny.bitwise_equal(whole.predict(images), resumed.predict(images))
    assert lines(whole_folder) == lines(resumed_folder) != []


PAIR = Codistillation(beta=0.5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three epochs of 64 updates without an interruption."""
    return trained(make_run(PAIR), tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("updates", "looks"), [(64, 1), (16, 5)])
def test_stopped_between_two_blocks(tmp_path, blocks_of, whole, updates, looks):
    """A block of 64 updates is an epoch: the loop looks after its evaluation."""
    blocks_of(updates)
    resumed, stops = with_interruptions(make_run(PAIR), tmp_path, looks)
    assert stops and any(done % 64 for done in stops) == (updates == 16), stops
    assert_same_training(whole, resumed)


def test_an_epochs_end_is_evaluated_before_the_interruption(tmp_path, blocks_of):
    blocks_of(64)
    with pytest.raises(Interrupted, match="m stopped after 64 of 192 updates"):
        trained(make_run(PAIR), tmp_path, stop=StopAfter(0))
    assert [line["epoch"] for line in lines(tmp_path)] == [1]


@pytest.mark.slow
def test_a_stop_after_the_last_update_is_too_late_to_stop_anything(tmp_path, blocks_of):
    blocks_of(64)
    found, _ = trained(make_run(ERM(), epochs=1), tmp_path, stop=StopAfter(0))
    assert int(found.last.step[0]) == 64
    assert [line["epoch"] for line in lines(tmp_path)] == [1]


@pytest.mark.slow
def test_a_student_resumes_with_its_restored_teacher(tmp_path, blocks_of):
    blocks_of(32)
    method = OneToOneDistillation(members=2, perturbation="ods")
    ensemble = make_run(ERM(members=2, deploy="mean_probs"), name="teacher", epochs=1)
    student = make_run(method, name="student", stream=1, steps_per_call=32, epochs=2)
    teacher, _ = trained(ensemble, tmp_path / "teacher")
    whole = trained(student, tmp_path / "whole", teacher=teacher)
    restored, _ = trained(ensemble, tmp_path / "teacher")
    resumed, stops = with_interruptions(
        student, tmp_path / "resumed", 0, teacher=restored
    )
    assert stops == [32, 64, 96]
    assert_same_training(whole, resumed)


@pytest.mark.slow
def test_one_state_per_replica_resumes_too(tmp_path, blocks_of):
    """The mapping `loop` keeps the replicas apart between checkpoints."""
    blocks_of(2)
    run = make_run(PAIR, mapping="loop", batch_size=32, epochs=2, steps_per_call=2)
    whole = trained(run, tmp_path / "whole")
    assert whole[0].program.mapping == "loop"
    resumed, stops = with_interruptions(run, tmp_path / "resumed", 0)
    assert any(done % 4 for done in stops), stops
    assert_same_training(whole, resumed)


# Dies inside Orbax's save: arrays are written, the rename has not happened; or the
# rename has not even been reached because the arrays are still being written.
_KILLED = """
    import os, signal, sys
    from pathlib import Path
    from orbax.checkpoint._src.path import atomicity
    from tests.integration.test_resume import killed_run

    def die(original):
        async def patched(self, *args, **kwargs):
            if "128" in str(self._final_path):
                os.kill(os.getpid(), signal.SIGKILL)
            return await original(self, *args, **kwargs)
        return patched

    name = sys.argv[2]
    kind = atomicity.AtomicRenameTemporaryPath
    setattr(kind, name, die(getattr(kind, name)))
    killed_run(Path(sys.argv[1]))
"""


def killed_run(directory):
    """Three epochs of 64 updates with a checkpoint after each."""
    run = make_run(PAIR, checkpoint_every_seconds=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_FIRST_BLOCK", 64)
        patch.setattr(loop, "_next_block", lambda done, seconds: 64)
        return trained(run, directory)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["create", "finalize"])
def test_killed_in_the_middle_of_a_checkpoint_write(tmp_path, where, whole):
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_KILLED), str(tmp_path / "m"), where],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = sorted(p.name for p in (tmp_path / "m" / "checkpoints").iterdir())
    assert "64" in left and "128" not in left
    assert len(left) == (2 if where == "finalize" else 1), left
    assert [line["epoch"] for line in lines(tmp_path / "m")] == [1, 2]
    resumed = killed_run(tmp_path / "m")
    assert resumed[0].notes == ()
    assert_same_training(whole, resumed)


@pytest.mark.slow
def test_a_truncated_checkpoint_is_named_and_the_one_before_used(tmp_path, whole):
    killed_run(tmp_path)
    newest = tmp_path / "checkpoints" / "192"
    os.truncate(newest / "meta" / "metadata", 3)
    said = []
    run = make_run(PAIR, checkpoint_every_seconds=0.0)
    resumed = trained(run, tmp_path, on_note=said.append)
    (sentence,) = said
    assert str(newest) in sentence
    assert "going on from the checkpoint before, update 128" in sentence
    assert_same_training(whole, resumed)
