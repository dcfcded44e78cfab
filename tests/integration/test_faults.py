"""Full disks and runs that blow up: earlier results stay, the others go on."""

import errno
import gc
import json
import resource
import shutil
import subprocess

import numpy as np
import orbax.checkpoint as ocp
import pytest

from churn_compare import array_files
from churn_jax.cli import main
from churn_jax.training import loggers
from tests.studies.test_study import logits

# A save that Orbax gives up leaves tasks that nobody awaited.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
]

_STUDY = """study digits:tiny --set model.features=8 --train-size 64
    --validation 20 --batch-size 32""".split()


def run(out, *methods, options=()):
    return main([*_STUDY, "--only", *methods, *options, "--out", str(out)])


@pytest.fixture
def collected():
    """Such leftovers are collected here, not in somebody else's test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study when there is room."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run(out, "baseline", "entropy") == 0
    return out


@pytest.fixture
def with_baseline(tmp_path, whole):
    """A folder in which the baseline is finished."""
    out = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(out / "methods" / "entropy")
    return out


def results(out):
    """What the finished methods left."""
    return {
        p.relative_to(out): p.read_bytes()
        for p in (out / "methods").rglob("*")
        if p.is_file() and "tensorboard" not in p.parts
    }


def one_sentence(capsys):
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert len(err.splitlines()) == 1, err
    assert err.startswith("churn-jax: no space left on the disk")
    assert "what was finished before is kept" in err
    return err


def refuse_file(name):
    """Patches the writing of one file; the disk is full when it is replaced."""

    def patch(monkeypatch):
        replace = array_files.os.replace

        def full(source, target):
            if str(target).endswith(name):
                raise OSError(errno.ENOSPC, "No space left on device", str(target))
            return replace(source, target)

        monkeypatch.setattr(array_files.os, "replace", full)

    return patch


def _no_space(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


# In the order in which a launch comes to them.
_PLACES = {
    "study.json": refuse_file("study.json"),
    "metrics.jsonl": refuse_file("metrics.jsonl"),
    "events": lambda m: m.setattr(loggers.TensorBoardLogger, "log", _no_space),
    "checkpoint": lambda m: m.setattr(ocp.CheckpointManager, "save", _no_space),
    "predictions.npz": refuse_file("predictions.npz"),
    "report.html": refuse_file("report.html"),
    "table.md": refuse_file("table.md"),
}


def test_a_disk_full_at_one_place_after_another_loses_nothing(
    capsys, monkeypatch, no_charts, with_baseline, whole
):
    """Each launch goes on where the one before it ended."""
    before = results(with_baseline)
    for place, refuse in _PLACES.items():
        with monkeypatch.context() as patch:
            refuse(patch)
            capsys.readouterr()
            assert run(with_baseline, "baseline", "entropy") == 2, place
        one_sentence(capsys)
        assert before.items() <= results(with_baseline).items(), place
        assert not list(with_baseline.rglob("*.tmp"))
        json.loads((with_baseline / "study.json").read_text())
    assert run(with_baseline, "baseline", "entropy") == 0
    for name in ("baseline", "entropy"):
        np.testing.assert_array_equal(logits(with_baseline, name), logits(whole, name))
    assert "Entropy" in (with_baseline / "report.html").read_text()


def test_a_limit_on_the_size_of_files(capsys, no_charts, with_baseline, whole):
    """As on a disk with a quota: a write past the limit fails in the middle."""
    size = 2000
    before = results(with_baseline)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    capsys.readouterr()
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        code = run(with_baseline, "baseline", "entropy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 2
    one_sentence(capsys)
    assert before.items() <= results(with_baseline).items()
    assert run(with_baseline, "baseline", "entropy") == 0
    found, expected = (logits(out, "entropy") for out in (with_baseline, whole))
    np.testing.assert_array_equal(found, expected)


def test_a_replica_that_blows_up_is_reported_and_the_others_are_as_without_it(
    capsys, tmp_path
):
    sound = ["--set", "train.optimizer.learning_rate=0.05,0.05,0.05"]
    broken = ["--set", "train.optimizer.learning_rate=0.05,1e30,0.05"]
    three = ["--replicas", "3"]
    assert run(tmp_path / "sound", "baseline", options=[*three, *sound]) == 0
    capsys.readouterr()
    assert run(tmp_path / "broken", "baseline", options=[*three, *broken]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "baseline: replica 1 stopped at update" in said
    assert "the others go on" in said
    a, b = (logits(tmp_path / name) for name in ("sound", "broken"))
    np.testing.assert_array_equal(a[[0, 2]], b[[0, 2]])
    record = json.loads((tmp_path / "broken" / "study.json").read_text())
    (stopped,) = record["methods"][0]["stopped"]
    assert stopped["replica"] == 1 and stopped["step"] >= 0
    assert stopped["term"] in ("cross_entropy", "loss", "gradient")
    sentence = f"run 1 stopped at step {stopped['step']}"
    for name in ("report.html", "table.md"):
        text = (tmp_path / "broken" / name).read_text()
        assert sentence in text, name
        assert "over the other 2 of 3 runs" in text, name
    metrics = (tmp_path / "broken/methods/baseline/metrics.jsonl").read_text()
    last = json.loads(metrics.splitlines()[-1])
    assert last["validation"]["accuracy"][1] is None
    assert None not in (last["validation"]["accuracy"][i] for i in (0, 2))


@pytest.fixture
def small_disk(tmp_path):
    """A disk of four MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not permitted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True, capture_output=True)


def test_a_disk_that_fills_up_wherever_it_happens(capsys, no_charts, small_disk, whole):
    """Less and less room, so that every kind of file is the first to fail once."""
    out = small_disk / "run"
    assert run(out, "baseline") == 0
    finished = results(out)
    failures = 0
    for room in (0, 8, 24, 48, 80, 120, 160, 200, 260, 340):
        shutil.rmtree(out / "methods" / "entropy", ignore_errors=True)
        free = shutil.disk_usage(small_disk).free // 1024 - room
        with (small_disk / "filler").open("wb") as filler:
            filler.write(bytes(max(free, 0) * 1024))
        capsys.readouterr()
        code = run(out, "baseline", "entropy")
        if code == 2:
            failures += 1
            one_sentence(capsys)
        else:
            assert code == 0
        assert finished.items() <= results(out).items()
        (small_disk / "filler").unlink()
    assert failures >= 6
    assert run(out, "baseline", "entropy") == 0
    np.testing.assert_array_equal(logits(out, "entropy"), logits(whole, "entropy"))
