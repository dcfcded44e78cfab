"""Plans in processes of their own: the TPU compiler keeps memory, locks and logs."""

import concurrent.futures
import multiprocessing
import os
import sys
import tempfile
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from churn_jax.planning.chips import Slice
from churn_jax.planning.estimate import Plan
from churn_jax.training.partition import MeshShape

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


def _quietly(path: str, config: Any, row: str, part: Slice, mesh: MeshShape) -> Plan:
    """`plan` with what libtpu prints in a file; in the other process."""
    import jax

    from churn_jax.planning.planned import plan

    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)
    os.close(log)
    try:
        return plan(config, row, part, mesh)
    except jax.errors.JaxRuntimeError as error:  # it may not survive the way back
        said = " ".join(str(error).split())[:300]
        raise ValueError(f"the TPU compiler refuses {row}: {said}") from None


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
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        os.environ.update(_ENVIRONMENT)
        try:
            context = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
                return pool.submit(_quietly, log, config, row, part, mesh).result()
        except BrokenProcessPool as error:
            raise CompilerDiedError(
                f"the compiler's process ended while it compiled {row} for "
                f"{part.name}; it may lack memory on this machine: {_last_line(log)}"
            ) from error
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            sys.stderr.flush()


def _last_line(path: str) -> str:
    """Of what the process had said, or that it said nothing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except OSError:
        lines = []
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:200] if said else "it said nothing"
