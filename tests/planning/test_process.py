"""A plan's own process: its end is told, and it ends with the one that waits."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from churn_jax.configuration.training import MeshShape
from churn_jax.planning import Slice
from churn_jax.planning.process import CompilerDiedError, _reason, plan_apart
from tests.environment import as_users_have_it

SLICE = Slice.parse("v5e:1x1")


class Dying:
    """A study in place of one that the compiler has no memory for."""

    @property
    def train(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Refused:
    """A study that does not fit."""

    @property
    def train(self):
        raise ValueError("10 replicas do not fit")


class Waiting:
    """A study that takes minutes; says which process compiles it."""

    def __init__(self, path):
        self.path = path

    @property
    def train(self):
        self.path.with_suffix(".new").write_text(str(os.getpid()))
        self.path.with_suffix(".new").rename(self.path)
        time.sleep(100)


def compiler(path):
    """The number of the process that compiles, once it does."""
    last = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < last
        time.sleep(0.05)
    return int(path.read_text())


def gone(number, seconds=10):
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2]
        except OSError:
            return True
        if state.split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_compiler_that_was_killed_is_said():
    before = dict(os.environ)
    with pytest.raises(CompilerDiedError, match="v5e:1x1: it was killed; it may lack"):
        plan_apart(Dying(), "baseline", SLICE, MeshShape())
    assert dict(os.environ) == before


def test_a_compiler_that_crashed_is_said_by_its_last_line(tmp_path):
    log = tmp_path / "log"
    assert _reason(1, log) == "it said nothing"
    log.write_text("first\n  F0000 out of memory \n\n")
    assert _reason(1, log) == "F0000 out of memory"


@pytest.mark.slow
def test_what_does_not_fit_is_said_as_without_another_process():
    with pytest.raises(ValueError, match=r"^10 replicas do not fit$"):
        plan_apart(Refused(), "baseline", SLICE, MeshShape())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux tells")
def test_ctrl_c_ends_the_compiler_at_once(tmp_path):
    path, found = tmp_path / "pid", []

    def interrupt():
        found.append(compiler(path))
        found.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    # As a command has it; workers of pytest-xdist are deaf to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            plan_apart(Waiting(path), "baseline", SLICE, MeshShape())
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - found[1] < 10
    assert gone(found[0])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux tells")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_compiler_does_not_outlive_the_command(tmp_path, number):
    path = tmp_path / "pid"
    text = (
        "from pathlib import Path; from tests.planning.test_process import *; "
        f"plan_apart(Waiting(Path({str(path)!r})), 'baseline', SLICE, MeshShape())"
    )
    with subprocess.Popen([sys.executable, "-c", text], env=as_users_have_it()) as one:
        try:
            process = compiler(path)
        finally:
            one.send_signal(number)
    assert gone(process)
