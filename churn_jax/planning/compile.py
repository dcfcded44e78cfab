"""A preset's row compiled for a mesh of a slice.

`plan_apart` compiles in a process of its own: the TPU compiler keeps memory, locks and
logs.
"""

import dataclasses
import math
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import MeshShape
from churn_jax.models.layers import compiling_for
from churn_jax.planning.chips import Slice, devices_of
from churn_jax.planning.datasets import row_sizes
from churn_jax.planning.estimate import Plan, estimate
from churn_jax.planning.rules import check_study
from churn_jax.planning.steps import study_step, without_weights
from churn_jax.planning.streams import check_stream, stream_step
from churn_jax.studies.cost import example_flops
from churn_jax.training.examples import example_of


def default_row(config: Any) -> str:
    """The row with the most networks, its own and those of its teachers.

    Of several the last one, which in our presets is the method that a study is about.

    Args:
        config: a `StudyConfig` or a `StreamStudyConfig`.
    """

    def networks(spec: Any) -> int:
        count = spec.method.members
        for name in spec.dependencies:
            count += config.spec(name).method.members
        return count

    most = max(map(networks, config.methods))
    return [spec.name for spec in config.methods if networks(spec) == most][-1]


def mesh_name(mesh: MeshShape) -> str:
    """A mesh as `--mesh` takes it.

    Example:
        >>> mesh_name(MeshShape(2, 1, 8))
        'replica=2,member=1,data=8'
    """
    return f"replica={mesh.replica},member={mesh.member},data={mesh.data}"


def default_mesh(config: Any, part: Slice) -> MeshShape:
    """All devices: as many along `replica` as divide the replicas, the rest on `data`.

    Args:
        config: a `StudyConfig` or a `StreamStudyConfig`.
        part: the slice.

    Example:
        >>> from churn_jax.studies import preset
        >>> default_mesh(preset("digits"), Slice.parse("v5e:2x2"))  # ten replicas
        MeshShape(replica=2, member=1, data=2)
    """
    replica = math.gcd(config.train.replicas, part.devices)
    return MeshShape(replica, 1, part.devices // replica)


def check_mesh(mesh: MeshShape, part: Slice) -> None:
    """Refuses a mesh of more devices than a slice has.

    Args:
        mesh: devices along every axis.
        part: the slice.

    Raises:
        ValueError: there are fewer.
    """
    if mesh.size > part.devices:
        raise ValueError(
            f"mesh {mesh_name(mesh)} needs {mesh.size} devices; {part.name} has "
            f"{part.devices}"
        )


def plan(
    config: Any,
    row: str,
    part: Slice,
    mesh: MeshShape | None = None,
    *,
    devices: Sequence[Any] | None = None,
) -> Plan:
    """Compiles one row's training step for a slice and reads what the compiler says.

    Args:
        config: a `StudyConfig` or a `StreamStudyConfig`.
        row: its name.
        part: the slice of chips.
        mesh: how its devices are used; None is the study's.
        devices: others than the slice's, for tests.

    Raises:
        ValueError: no such row or slice, or the mesh does not fit.
        NoCompilerError: libtpu is not installed.
    """
    if mesh is not None:
        train = dataclasses.replace(config.train, mesh=mesh)
        config = dataclasses.replace(config, train=train)
    check_mesh(config.train.mesh, part)
    found = devices_of(part) if devices is None else devices
    with compiling_for(found[0].platform):
        if isinstance(config, StudyConfig):
            step = study_step(config, row, found)
            useful = useful_flops(without_weights(config), row)
            return estimate(step, part, check_study, preset=config.name, useful=useful)
        step = stream_step(config, row, found)
        return estimate(step, part, check_stream, preset=config.name)


def useful_flops(config: StudyConfig, row: str) -> float:
    """Operations of an update of all replicas, as `example_flops` counts them."""
    spec = config.spec(row)
    sizes, train = row_sizes(config.data, spec), spec.config(config.train)
    example = example_of(sizes.shape, tokens=sizes.tokens)
    each = example_flops(config, spec, example, sizes.classes)
    return train.replicas * train.batch_size * each


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

    try:
        return plan(config, row, part, mesh)
    except jax.errors.JaxRuntimeError as error:  # it may not survive pickling
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
    """`plan` in a process of its own, whose messages are not shown.

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
                process.kill()  # it has answered, or its answer is not waited for
                process.join()
    if isinstance(found, ValueError):
        raise found
    return found


def _start(process: Any) -> None:
    """Starts a process in whose environment the compiler looks for no device."""
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
    """Why the process ended: it was killed, or the last line that it printed."""
    if code == -signal.SIGKILL:
        return "it was killed; it may lack memory on this machine"
    try:
        text = Path(log).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    said = [line.strip() for line in text.split("\n") if line.strip()]
    return said[-1][:200] if said else "it said nothing"
