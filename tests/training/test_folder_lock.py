"""A folder is written by one launch; the lock of a killed process is taken over."""

import subprocess
import sys

import pytest

from churn_jax.cli import main
from churn_jax.methods import ERM
from churn_jax.training.folder_lock import FolderInUseError, lock_folder
from churn_jax.training.loop import train
from tests.training import tiny

# Does what `lock_folder` does without the seconds that an import of JAX takes.
_HOLDER = """
import fcntl, json, sys
file = open(sys.argv[1] + "/.lock", "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
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
        with lock_folder(tmp_path / "other"):
            pass
    with lock_folder(tmp_path / "new"):
        pass


def test_training_into_a_folder_in_use_is_refused(holder, tmp_path):
    with pytest.raises(FolderInUseError, match="process 4711 on box"):
        train(tiny.make_run(ERM()), tiny.dataset(), directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize("fresh", [[], ["--fresh"]])
def test_study_in_a_folder_in_use_is_one_sentence(holder, tmp_path, capsys, fresh):
    assert main(["study", "digits:tiny", *fresh, "--out", str(tmp_path)]) == 2
    assert "is in use by process 4711 on box" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
