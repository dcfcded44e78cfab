"""Several processes that train one study together.

Processes are found by the cluster (`Launch.coordinator` None or `auto`) or by flags.
All must be given the same study; anything else is refused before it is trained.
"""

import contextlib
import dataclasses
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from churn_compare.escaping import printable

_METADATA = (
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/"
    "worker-network-endpoints"
)
# What collectives and the coordinator say when a process has gone.
_LOST = ("Gloo", "NCCL", "heartbeat", "UNAVAILABLE", "Connection", "Socket closed")
_CHIPS = ("/dev/accel0", "/dev/vfio/0")


@dataclasses.dataclass(frozen=True)
class Launch:
    """How processes find each other; one process needs none of it.

    Attributes:
        coordinator: `host:port` of process 0. Without it SLURM, Open MPI and Cloud TPU
            say who takes part; `auto` insists on that, `none` trains alone.
        num_processes: how many processes take part.
        process_id: which one this is, from 0.
        start_seconds: how long to wait for the others to start.
        lost_seconds: after how long without a sign a process counts as lost; the others
            end then.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    start_seconds: int = 300
    lost_seconds: int = 60


def cluster_of() -> str | None:
    """Which cluster started this process with others: a name, or None if alone."""
    found = os.environ
    in_step = "SLURM_STEP_NODELIST" in found and "SLURM_PROCID" in found
    if in_step and _number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") > 1:
        return "SLURM"
    if _number("OMPI_COMM_WORLD_SIZE") > 1:
        return "Open MPI"
    hosts = found.get("TPU_PROCESS_ADDRESSES") or found.get("TPU_WORKER_HOSTNAMES", "")
    slices = _number("MEGASCALE_NUM_SLICES")  # of one host each, maybe
    return "Cloud TPU" if slices > 1 or "," in hosts or _several_tpu_hosts() else None


def _number(*names: str) -> int:
    text = next((os.environ[name] for name in names if name in os.environ), "")
    return int(text) if text.isdigit() else 0


def has_tpu() -> bool:
    """True if this machine has TPU chips."""
    return any(Path(chip).exists() for chip in _CHIPS)


def _several_tpu_hosts() -> bool:
    """True if this machine has TPU chips and its metadata names several hosts."""
    if "TPU_SKIP_MDS_QUERY" in os.environ or not has_tpu():
        return False
    import urllib.request

    request = urllib.request.Request(_METADATA, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=2) as answer:
            return b"," in answer.read()
    except OSError:
        return False


def connect(launch: Launch) -> int:
    """Joins the others where there are any; returns this process's number."""
    import jax

    arguments = _arguments(launch, cluster_of)
    if arguments is None:
        use_all_cores()
        return 0
    try:
        jax.distributed.initialize(
            **arguments,
            initialization_timeout=launch.start_seconds,
            heartbeat_timeout_seconds=launch.lost_seconds,
            shutdown_timeout_seconds=launch.lost_seconds,
        )
    except (RuntimeError, ValueError) as error:
        raise ValueError(_why(error, launch)) from error
    return jax.process_index()


_PATIENCE = "xla_cpu_collective_call_terminate_timeout_seconds"


def use_all_cores() -> None:
    """Makes a device of every CPU core, unless their number is set already."""
    import jax

    known: Any = jax.config
    flags = os.environ.get("XLA_FLAGS", "")
    # Where others use the cores too, one may come minutes late to where they meet; XLA
    # ends the process after 40 s. Older versions do not know the flag.
    if jax.__version_info__ >= (0, 9) and _PATIENCE not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{_PATIENCE}=600".strip()
    if "host_platform_device_count" in flags or known.jax_num_cpu_devices > 0:
        return
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    with contextlib.suppress(RuntimeError):  # this process has used its devices already
        jax.config.update("jax_num_cpu_devices", cores)


def _arguments(launch: Launch, detect) -> dict | None:
    """Arguments of `jax.distributed.initialize`; None if this process is alone."""
    if min(launch.start_seconds, launch.lost_seconds) < 1:
        raise ValueError(
            "--launch.start-seconds and --launch.lost-seconds must be at least 1"
        )
    count, number = launch.num_processes, launch.process_id
    if launch.coordinator in (None, "none"):
        if count is not None or number is not None:
            raise ValueError(
                "--launch.num-processes and --launch.process-id need "
                "--launch.coordinator, host:port of process 0"
            )
        return None if launch.coordinator or detect() is None else {}
    if launch.coordinator == "auto":
        return {}
    if count is None or number is None:
        raise ValueError(
            "--launch.coordinator needs --launch.num-processes and --launch.process-id"
        )
    if not 0 <= number < count:
        raise ValueError(
            "--launch.process-id must be from 0 to --launch.num-processes less one; "
            f"got {number} of {count}"
        )
    host, _, port = launch.coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(
            "--launch.coordinator must be host:port of process 0, with a port from 1 "
            f"to 65535; got {launch.coordinator!r}"
        )
    return {
        "coordinator_address": launch.coordinator,
        "num_processes": count,
        "process_id": number,
        # A cluster is not asked how many devices each process has.
        "cluster_detection_method": "deactivate",
    }


def _why(error: Exception, launch: Launch) -> str:
    text = " ".join(str(error).split())
    if "DEADLINE_EXCEEDED" in text or "timed out" in text.lower():
        return (
            f"not all processes started within {launch.start_seconds} s (set "
            "--launch.start-seconds); start the same command on every host"
        )
    if "coordinator_address should be defined" in text:
        return (
            "no cluster tells who takes part; give --launch.coordinator, "
            "--launch.num-processes and --launch.process-id"
        )
    return f"the processes cannot be joined: {text[:300]}"


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Lets an error of one of several processes end it at once, with a sentence."""
    # A process that left in the usual way would wait for the others, which wait for it.
    # They notice a closed connection, or nothing for `Launch.lost_seconds`.
    import jax

    try:
        yield
    except Exception as error:
        if jax.process_count() == 1:
            raise
        if logging.getLogger("churn_jax").isEnabledFor(logging.DEBUG):
            traceback.print_exc()
        said = str(error)
        lost = any(word in said for word in _LOST)
        if lost:
            said = (
                f"another process was lost ({said[:160]}); what was finished before is "
                "kept, and the same command on every host goes on"
            )
        said = f"churn-jax: process {jax.process_index()}: {printable(said)}"
        print(said, file=sys.stderr)
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(2)
