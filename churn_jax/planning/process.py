"""A plan in a process of its own: the TPU compiler keeps memory, locks and logs."""

import multiprocessing
import os
import signal
import threading
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

    Raises:
        ValueError: as `plan` does.
        CompilerDiedError: the process was ended from outside or crashed, mostly for
            memory.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    work = (theirs, config, row, part, mesh)
    process: Any = context.Process(target=_answer, args=work)
    before = dict(os.environ)
    try:
        os.environ.update(_ENVIRONMENT)
        try:
            process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        theirs.close()
        found = ours.recv()
    except EOFError:
        process.join()
        killed = process.exitcode == -signal.SIGKILL
        raise CompilerDiedError(
            f"the compiler's process ended while it compiled {row} for {part.name}: "
            + (
                "it was killed; it may lack memory on this machine"
                if killed
                else f"exit code {process.exitcode}"
            )
        ) from None
    finally:
        ours.close()
        if process.pid is not None:
            process.kill()  # it has answered, or its answer is not waited for
            process.join()
    if isinstance(found, ValueError):
        raise found
    return found


def _answer(answer: Any, *arguments: Any) -> None:
    """In the new process: sends a plan, or why there is none."""
    # The compiler hears no signal for minutes: Ctrl-C is left to the process that
    # waits, and when that one ends, this one does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libtpu logs there
    try:
        found: Any = plan(*arguments)
    except ValueError as error:
        found = error
    except jax.errors.JaxRuntimeError as error:  # it may not survive pickling
        said = " ".join(str(error).split())[:300]
        found = ValueError(f"the TPU compiler refuses {arguments[1]}: {said}")
    answer.send(found)
    answer.close()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
