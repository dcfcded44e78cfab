"""`churn-jax doctor`: what this machine is, and whether it repeats itself."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from churn_compare.documents import Document, Facts, Text, print_document
from churn_jax.command.listing import print_list
from churn_jax.command.options import AllOfStudy, Study, read_options, study_of


@dataclasses.dataclass(frozen=True)
class Used(Study):
    """Versions, devices and mesh; then trains one thing in several launches.

    Every launch is a process of its own that trains the same row of a preset (default:
    `digits`) with every seed fixed. Their weights are compared after each update: any
    difference comes from the machine. Exit code 0 when they agree bit by bit, 1 when
    they do not, 2 for bad input.

    Attributes:
        updates: updates of each launch.
        launches: number of launches that are compared.
        deterministic: ask XLA for deterministic GPU kernels. A CPU ignores it.
        row: row of the preset; empty is its baseline.
        out: folder of the JSON file; default `runs/doctor/NAME-UPDATES`, with
            --row `runs/doctor/NAME-ROW-UPDATES`.
    """

    updates: int = 100
    launches: int = 2
    deterministic: bool = False
    row: str = ""
    out: Path | None = None


@dataclasses.dataclass(frozen=True)
class Arguments(AllOfStudy, Used):
    """Versions, devices and mesh; then trains one thing in several launches."""


def doctor(argv: Sequence[str]) -> int:
    """Prints what it finds; 0 when the launches agree bit by bit, else 1."""
    options = read_options(Arguments, argv, command="churn-jax doctor", used=Used)
    if options.list:
        return print_list(options)
    options = dataclasses.replace(options, preset=options.preset or "digits")
    if options.launches < 2 or options.updates < 1:
        raise ValueError("doctor needs at least two launches and one update")
    config = study_of(options, "doctor")  # refused before JAX is loaded
    config.spec(options.row or config.baseline)
    from rich.console import Console

    from churn_jax.studies.repeatability import Launch, measure, write

    launch = Launch(config, options.row, options.updates)
    console = Console(force_jupyter=False, quiet=not sys.stdout.isatty())
    with console.status("starting") as status:
        found = measure(
            launch,
            options.launches,
            deterministic=options.deterministic,
            on_launch=lambda number: status.update(
                f"launch {number + 1} of {options.launches}: {options.updates:,} "
                "updates"
            ),
        )
    machine = _machine()  # only now: a TPU serves one process at a time
    words = filter(None, (config.name, options.row, str(options.updates)))
    folder = Path("runs", "doctor", "-".join(words))
    path = write(found, launch, options.out or folder)
    said = [_verdict(found, options.updates), f"Written: {path}"]
    blocks = [machine, *(Text(sentence, "line") for sentence in said)]
    print_document(Document("doctor", blocks=blocks))
    return 0 if found.repeats else 1


def _machine() -> Facts:
    """Versions and devices."""
    import jax

    from churn_jax.studies.folder import hardware, versions

    count = jax.device_count()
    return Facts(
        {
            **versions(),
            "hardware": hardware(),
            "backend": jax.default_backend(),
            "devices": ", ".join(map(str, jax.devices())),
            "mesh": f"up to replica={count},member=1,data=1 (--mesh)",
            "compilation cache": str(jax.config.values["jax_compilation_cache_dir"]),
        }
    )


def _verdict(found: Any, updates: int) -> str:
    """The findings, in sentences."""
    count = len(found.digests)
    ends = (
        f"Final churn {_percent(found.churn)}, surrogate churn "
        f"{_percent(found.surrogate_churn)}, accuracy "
        f"{100 * sum(found.accuracy) / count:.2f} %."
    )
    if found.repeats:
        return (
            f"repeats itself: yes, {count} launches of {updates:,} updates gave equal "
            f"weights, bit by bit, after every update ({found.digests[0][:12]}). {ends}"
        )
    return (
        f"repeats itself: no, {count} launches of {updates:,} updates gave "
        f"{len(set(found.digests))} different sets of weights, apart from update "
        f"{found.first_difference} on, in the end by {found.distance:.2g} of their "
        f"norm; hardware adds churn here. {ends}"
    )


def _percent(summary: Any) -> str:
    if summary.num_runs < 3:  # no standard error from a single pair
        return f"{100 * summary.mean:.2f} %"
    return f"{100 * summary.mean:.2f} ± {100 * summary.stderr:.2f} %"
