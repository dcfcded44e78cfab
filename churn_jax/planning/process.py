"""A plan in a process of its own: the TPU compiler keeps memory, locks and logs."""

import multiprocessing
import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

import jax

from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import MeshShape
from churn_jax.planning.chips import Slice
from churn_jax.planning.compile import Plan, plan

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


def plan_apart(config: StudyConfig, row: str, part: Slice, mesh: MeshShape) -> Plan:
    """`plan` in a process of its own, whose messages are not shown.

    Args:
        config: the study.
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
        log = Path(folder) / "log"
        ours, theirs = context.Pipe(duplex=False)
        work = (theirs, log, config, row, part, mesh)
        process = context.Process(target=_answer, args=work)
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
                process.kill()  # it has answered, or its answer is not waited for
                process.join()
    if isinstance(found, ValueError):
        raise found
    return found


def _answer(answer: Any, log: Path, config, row: str, part: Slice, mesh) -> None:
    """In the new process: sends a plan, or why there is none; libtpu logs to `log`."""
    # The compiler hears no signal for minutes: Ctrl-C is left to the process that
    # waits, and when that one ends, this one does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
    try:
        found: Any = plan(config, row, part, mesh)
    except ValueError as error:
        found = error
    except jax.errors.JaxRuntimeError as error:  # it may not survive pickling
        said = " ".join(str(error).split())[:300]
        found = ValueError(f"the TPU compiler refuses {row}: {said}")
    answer.send(found)
    answer.close()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _start(process: Any) -> None:
    """Starts a process in whose environment the compiler looks for no device."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        process.start()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _reason(code: int | None, log: Path) -> str:
    """Why the process ended: it was killed, or the last line that it printed."""
    if code == -signal.SIGKILL:
        return "it was killed; it may lack memory on this machine"
    text = log.read_text("utf-8", errors="replace") if log.exists() else ""
    said = [line.strip() for line in text.split("\n") if line.strip()]
    return said[-1][:200] if said else "it said nothing"
