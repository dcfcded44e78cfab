"""Several processes that train one study together."""

import dataclasses

__all__ = ["Launch", "connect", "wait_for_all"]


@dataclasses.dataclass(frozen=True)
class Launch:
    """How processes find each other; one process needs none of it.

    Attributes:
        coordinator: `host:port` of process 0; `auto` where the cluster tells
            (Cloud TPU, SLURM, Open MPI).
        num_processes: how many processes take part.
        process_id: which one this is, from 0.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None


def connect(launch: Launch) -> int:
    """Joins the others where there are any; returns this process's number.

    Raises:
        ValueError: a flag is missing.
    """
    import jax

    if launch.coordinator is None:
        return 0
    if launch.coordinator == "auto":
        jax.distributed.initialize()
        return jax.process_index()
    if launch.num_processes is None or launch.process_id is None:
        raise ValueError(
            "--launch.coordinator needs --launch.num-processes and --launch.process-id"
        )
    if not 0 <= launch.process_id < launch.num_processes:
        raise ValueError(
            f"process id {launch.process_id} is not below {launch.num_processes}"
        )
    jax.distributed.initialize(
        launch.coordinator, launch.num_processes, launch.process_id
    )
    return jax.process_index()


def wait_for_all(what: str) -> None:
    """Returns when every process has come here; at once where there is only one."""
    import jax

    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(what)
