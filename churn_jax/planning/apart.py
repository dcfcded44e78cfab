"""Plans in processes of their own: the TPU compiler keeps memory, locks and logs."""

import multiprocessing
import os
import signal
import tempfile
import threading
from multiprocessing.connection import Connection
from typing import Any

from churn_jax.configuration.training import MeshShape
from churn_jax.planning.chips import Slice
from churn_jax.planning.estimate import Plan

__all__ = ["CompilerDiedError", "plan_apart"]

# What the compiler's process must not look for: a TPU, or this program's GPUs.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


class CompilerDiedError(ValueError):
    """The process that compiled ended without a result."""


def _plan(config: Any, row: str, part: Slice, mesh: MeshShape) -> Plan:
    import jax

    from churn_jax.planning.planned import plan

    try:
        return plan(config, row, part, mesh)
    except jax.errors.JaxRuntimeError as error:  # it may not survive the way back
        said = " ".join(str(error).split())[:300]
        raise ValueError(f"the TPU compiler refuses {row}: {said}") from None


def _quietly(answer: Connection, path: str, *work: Any) -> None:
    """In the new process: sends a plan, or why there is none; libtpu logs to `path`."""
    # The compiler hears no signal for minutes: Ctrl-C is left to the process that
    # waits, and when that one ends, this one does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)
    os.close(log)
    try:
        found: Any = _plan(*work)
    except ValueError as error:
        found = error
    answer.send(found)
    answer.close()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def plan_apart(config: Any, row: str, part: Slice, mesh: MeshShape) -> Plan:
    """`plan` in a new process, whose messages are not shown.

    Args:
        config: a `StudyConfig` or a `StreamStudyConfig`.
        row: its name.
        part: the slice of chips.
        mesh: how its devices are used.

    Raises:
        ValueError: as `plan` does.
        CompilerDiedError: the process was ended from outside or crashed, mostly for
            memory.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_quietly, args=(theirs, log, config, row, part, mesh)
        )
        try:
            _start(process)
            theirs.close()
            found = ours.recv()
        except EOFError:
            process.join()
            raise CompilerDiedError(
                f"the compiler's process ended while it compiled {row} for "
                f"{part.name}: {_reason(process.exitcode, log)}"
            ) from None
        finally:
            ours.close()
            if process.pid is not None:
                process.kill()  # has nothing more to say, or is not waited for
                process.join()
    if isinstance(found, ValueError):
        raise found
    return found


def _start(process: Any) -> None:
    """Starts it with an environment in which the compiler looks for no device."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        process.start()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _reason(code: int | None, log: str) -> str:
    if code == -signal.SIGKILL:
        return "it was killed; it may lack memory on this machine"
    return _last_line(log)


def _last_line(path: str) -> str:
    """Of what the process had said, or that it said nothing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except OSError:
        lines = []
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:200] if said else "it said nothing"
