"""Folders that are moved aside, and what is said when a command stops early."""

import shlex
import time
from pathlib import Path

from churn_jax.command.stopping import NOT_FINISHED, Stopping
from churn_jax.escaping import printable

__all__ = ["continuation", "set_aside", "tell_how_to_go_on"]


def set_aside(out: Path) -> None:
    """Renames a folder that is in the way; nothing is deleted."""
    if not out.exists():
        return
    from churn_jax.training.checkpoint import free_name
    from churn_jax.training.folder_lock import lock_folder

    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = free_name(out.with_name(f"{out.name}.{stamp}"))
    with lock_folder(out):
        out.rename(aside)
    print(f"{out} was moved to {aside}")


def continuation(command: str) -> str:
    """The same command, without the flag that would start again."""
    return shlex.join(w for w in shlex.split(command) if w != "--fresh")


def tell_how_to_go_on(error: BaseException, asked: Stopping, command: str) -> None:
    """Prints what stopped the training, and the command that goes on."""
    said = str(error) or "stopped at once; the last checkpoint is kept"
    if asked.exit_code == NOT_FINISHED:
        said = f"{said}, as --minutes {asked.minutes:g} are over"
    print(f"\n{printable(said)}. To go on: {continuation(command)}")
