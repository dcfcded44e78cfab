"""`churn-jax doctor`: what this machine is, and whether it repeats itself."""

import dataclasses
import subprocess
import sys
from collections.abc import Sequence

from churn_jax.command.options import read_options

__all__ = ["doctor"]


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Versions, devices and mesh; trains a small network in two launches.

    Attributes:
        steps: updates of each launch.
        launches: how many launches must agree bit by bit.
    """

    steps: int = 100
    launches: int = 2


def doctor(argv: Sequence[str]) -> int:
    """Prints what it finds; exit code 0 whatever that is."""
    parsed = read_options(Arguments, argv, prog="churn-jax doctor")
    if parsed.launches < 2 or parsed.steps < 1:
        raise ValueError("doctor needs at least two launches and one step")
    import jax
    from rich.console import Console
    from rich.table import Table

    from churn_jax.studies.study import hardware, versions

    table = Table(show_header=False, box=None)
    for name, version in versions().items():
        table.add_row(name, version)
    table.add_row("hardware", hardware())
    table.add_row("backend", jax.default_backend())
    table.add_row("devices", ", ".join(map(str, jax.devices())))
    count = jax.device_count()
    table.add_row("mesh", f"up to replica={count},member=1,data=1 (--train.mesh.*)")
    table.add_row(
        "compilation cache", str(jax.config.read("jax_compilation_cache_dir"))
    )
    digests = [_launch(parsed.steps) for _ in range(parsed.launches)]
    same = len(set(digests)) == 1
    table.add_row(
        "repeats itself",
        f"yes: {parsed.launches} launches of {parsed.steps} updates gave equal "
        f"weights, bit by bit ({digests[0][:12]})"
        if same
        else f"no: {parsed.launches} launches of {parsed.steps} updates gave "
        f"{len(set(digests))} different sets of weights; hardware adds churn here",
    )
    Console().print(table)
    return 0


def _launch(steps: int) -> str:
    """The digest of the weights after a training run in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "churn_jax.studies.repeatability", str(steps)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        last = result.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ValueError(f"the training launch of doctor failed: {last[0]}")
    return result.stdout.strip().splitlines()[-1]
