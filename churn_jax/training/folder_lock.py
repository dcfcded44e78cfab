"""One launch at a time writes into a run's folder."""

import contextlib
import datetime
import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

import jax

from churn_compare.array_files import remove_abandoned
from churn_jax.training.partition import any_process

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


_NAME = ".lock"
_locked: dict[Path, os.stat_result] = {}  # this process's lock files


class FolderInUseError(ValueError):
    """Another launch writes into the folder; the message says which."""


@contextlib.contextmanager
def lock_folder(folder: Path | None) -> Iterator[None]:
    """Locks the folder of a run, by the first process of a launch; None locks nothing.

    The operating system releases the lock when the process ends, however it ends. On a
    file system without locks nothing is locked.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    if folder is None or fcntl is None or jax.process_index() != 0:
        yield
        return
    path = folder.resolve() / _NAME
    if path in _locked:
        raise FolderInUseError(f"{folder} is in use by this process already")
    with open(path, "a+") as file:
        try:
            # `lockf` would unlock once any copy of the file is closed here.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = "another process"
            with contextlib.suppress(ValueError, KeyError, TypeError):
                held = json.load(file)
                who = "process {process} on {host} since {since}".format_map(held)
            raise FolderInUseError(
                f"{folder} is in use by {who}; wait until it has finished, stop it, or "
                "use another output folder"
            ) from None
        except OSError:
            pass
        holder = {
            "host": platform.node(),
            "process": os.getpid(),
            "since": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        file.truncate(0)
        json.dump(holder, file)
        file.flush()
        remove_abandoned(folder.rglob(".*.????????.tmp"))
        _locked[path] = os.fstat(file.fileno())
        try:
            yield
        finally:
            del _locked[path]
            file.truncate(0)


def check_lock(folder: Path | None) -> None:
    """Raises `FolderInUseError` if the lock on a folder or one above it is gone.

    To be called before something is written into a folder that this process locked.
    """
    for path, held in list(_locked.items()):
        if folder is None or not Path(folder).resolve().is_relative_to(path.parent):
            continue
        if not path.exists() or not os.path.samestat(path.stat(), held):
            raise FolderInUseError(
                f"{path.parent} was removed, moved or begun anew while this process "
                "trained into it, so this process stops and writes nothing more; the "
                "same command starts again, or goes on with what is there now"
            )


def set_aside(out: Path) -> str:
    """Renames a folder that is in the way, and says so; nothing is deleted.

    All processes of a launch call it, and none goes on before it is done.
    """
    moved = ""
    if jax.process_index() == 0 and out.exists():
        stamp = time.strftime("%Y%m%d-%H%M%S")
        aside = free_name(out.with_name(f"{out.name}.{stamp}"))
        with lock_folder(out):
            out.rename(aside)
        moved = f"{out} was moved to {aside}"
    any_process(False)  # a barrier
    return moved


def free_name(path: Path) -> Path:
    """`path`, with the first free number appended if it exists already."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
