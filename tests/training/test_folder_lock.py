"""A folder is written by one launch; the lock of a killed process is taken over."""

import fcntl
import os
import shutil
import subprocess
import sys

import pytest

from churn_jax.methods import ERM
from churn_jax.training import train
from churn_jax.training.folder_lock import FolderInUseError, check_lock, lock_folder
from tests.training import tiny

# Does what `lock_folder` does without the seconds that an import of JAX takes.
_HOLDER = """
import fcntl, json, sys
file = open(sys.argv[1] + "/.lock", "a+")
fcntl.flock(file, fcntl.LOCK_EX)
json.dump({"host": "box", "process": 4711, "since": "2026-11-22T10:00:00+00:00"}, file)
file.flush()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has locked `tmp_path`."""
    words = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as process:
        assert process.stdout.readline() == b"locked\n"
        yield process
        process.kill()


def test_second_process_says_who_has_the_folder_until_that_is_killed(holder, tmp_path):
    for _ in range(2):  # a refusal must not release or overwrite the other's lock
        with pytest.raises(FolderInUseError, match="process 4711 on box since 2026"):
            with lock_folder(tmp_path):
                raise AssertionError("both have the folder")
    holder.kill()
    holder.wait()
    with lock_folder(tmp_path):
        pass


def test_one_process_does_not_lock_a_folder_twice(tmp_path):
    with lock_folder(tmp_path / "new"):
        with pytest.raises(FolderInUseError, match="by this process already"):
            with lock_folder(tmp_path / "new"):
                pass
        shutil.copytree(tmp_path / "new", tmp_path / "copy")  # does not unlock it
        with open(tmp_path / "new" / ".lock") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with lock_folder(tmp_path / "other"):
            pass
    with lock_folder(tmp_path / "new"):
        pass


def test_what_a_killed_write_left_anywhere_in_a_folder_is_removed(tmp_path):
    name = tmp_path / "methods" / "row" / ".predictions.npz.0123abcd.tmp"
    name.parent.mkdir(parents=True)
    others = [name.with_name("a.tmp"), name.with_name(".notes.tmp")]
    for path in (name, *others):
        path.touch()
        os.utime(path, (0, 0))
    with lock_folder(tmp_path):
        assert not name.exists() and all(path.exists() for path in others)


def remove(folder):
    shutil.rmtree(folder)


def move(folder):
    folder.rename(folder.with_name("elsewhere"))


def begin_anew(folder):
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / ".lock").touch()


@pytest.mark.parametrize("lose", [remove, move, begin_anew])
def test_a_training_whose_folder_is_gone_ends_and_writes_nothing_more(tmp_path, lose):
    folder, run = tmp_path / "study", tiny.make_run(ERM(), network=tiny.LINEAR)
    left = []

    def gone(progress):
        lose(folder)
        left.extend(sorted(tmp_path.rglob("*")))

    # The lock may be that of a study around the row.
    with lock_folder(folder):
        with pytest.raises(FolderInUseError, match="study was removed, moved or begun"):
            train(run, tiny.dataset(), directory=folder / "row", on_progress=gone)
    assert sorted(tmp_path.rglob("*")) == left
    with lock_folder(tmp_path / "other"):  # which is none of its business
        check_lock(tmp_path / "other")


def test_nothing_is_trained_into_a_folder_in_use(holder, tmp_path, refused):
    with pytest.raises(FolderInUseError, match="process 4711 on box"):
        run = tiny.make_run(ERM(), network=tiny.LINEAR)
        train(run, tiny.dataset(), directory=tmp_path)
    for fresh in ([], ["--fresh"]):
        words = ["study", "digits:tiny", *fresh, "--out", tmp_path]
        refused(words, "is in use by process 4711 on box")
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
