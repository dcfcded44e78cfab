"""`churn-jax doctor`: what this machine is, and whether it repeats itself."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from churn_compare.documents import Column, Document, Facts, Table, Text, print_document
from churn_jax._plugins import misfits
from churn_jax.command.options import read_options


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Versions, devices and mesh; then trains one thing in several launches.

    Every launch is a process of its own that trains the same row of a preset with
    every seed fixed. Their weights are compared after each update: any difference comes
    from the machine. Exit code 0 when they agree bit by bit, 1 when they do not, 2 for
    bad input; with --perturb always 0 or 2.

    Attributes:
        preset: the preset that is trained.
        updates: updates of each launch.
        launches: number of launches that are compared.
        deterministic: ask XLA for deterministic GPU kernels. A CPU ignores it.
        perturb: flip the last bit of one weight in every launch but the first before
            its training starts, to see what one rounding error becomes.
        method: row of the preset; empty is its baseline.
        data: a TFDS name or a path to an .npz instead of the preset's data.
        data_dir: where TFDS keeps prepared sets.
        model: another network than the preset's.
        batch_size: another batch size; 0 keeps the preset's.
        out: folder of json, table and plot; default `runs/doctor/...`, named after
            what is measured.
    """

    preset: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PRESET]")] = (
        "digits"
    )
    updates: int = 100
    launches: int = 2
    deterministic: bool = False
    perturb: bool = False
    method: str = ""
    data: str = ""
    data_dir: str | None = None
    model: str = ""
    batch_size: int = 0
    out: Path | None = None

    def folder(self) -> Path:
        """Folder of the artefacts."""
        if self.out is not None:
            return self.out
        parts = [self.preset.replace(":", "-"), self.method, self.model]
        parts += [Path(self.data).stem, str(self.updates)]
        parts += ["deterministic"] * self.deterministic + ["perturbed"] * self.perturb
        return Path("runs", "doctor", "-".join(part for part in parts if part))


def doctor(argv: Sequence[str]) -> int:
    """Prints what it finds; 0 when the launches agree bit by bit, else 1."""
    parsed = read_options(Arguments, argv, command="churn-jax doctor")
    if parsed.launches < 2 or parsed.updates < 1:
        raise ValueError("doctor needs at least two launches and one update")
    from churn_jax.studies.presets import preset

    config = preset(parsed.preset)  # a wrong name is refused before JAX is loaded
    if parsed.method:
        config.spec(parsed.method)
    from rich.console import Console

    from churn_jax.studies.launches import measure, write
    from churn_jax.studies.repeatability import Launch

    launch = Launch(
        preset=parsed.preset,
        method=parsed.method,
        updates=parsed.updates,
        data=parsed.data,
        data_dir=parsed.data_dir,
        model=parsed.model,
        batch_size=parsed.batch_size,
    )
    out = parsed.folder()
    console = Console(force_jupyter=False, quiet=not sys.stdout.isatty())
    with console.status("starting") as status:
        drift = measure(
            launch,
            parsed.launches,
            perturb=parsed.perturb,
            deterministic=parsed.deterministic,
            folder=out,
            on_launch=lambda number: status.update(
                f"launch {number + 1} of {parsed.launches}: {parsed.updates:,} updates"
            ),
        )
    machine = _machine()  # only now: a TPU serves one process at a time
    paths = write(drift, out)
    print_document(doctor_document(drift, machine, paths["distance.png"]))
    return 0 if drift.repeats or drift.perturbed else 1


def doctor_document(drift, machine: Facts, plot: Path) -> Document:
    """What this machine is, how far launches are from each other, and the verdict."""
    from churn_jax.studies.launches import table

    heads = (Column("update", align="right"), "smallest", "median", "largest")
    title = "relative L2 distance of the weights, all pairs of launches"
    verdict = Text(_verdict(drift), "line")
    blocks = [machine, Table(heads, table(drift), title), verdict]
    return Document("doctor", blocks=[*blocks, Text(f"Plot: {plot}", "line")])


def _machine() -> Facts:
    """Versions and devices."""
    import jax

    from churn_jax.studies.folder import hardware, versions

    count = jax.device_count()
    return Facts(
        {
            **versions(),
            "plugin": " ".join(misfits()),
            "hardware": hardware(),
            "backend": jax.default_backend(),
            "devices": ", ".join(map(str, jax.devices())),
            "mesh": f"up to replica={count},member=1,data=1 (--mesh.*)",
            "compilation cache": str(jax.config.values["jax_compilation_cache_dir"]),
        }
    )


def _verdict(drift) -> str:
    """What was found, in sentences."""
    count, updates = len(drift.digests), drift.launch.updates
    accuracy = 100 * sum(drift.accuracy) / count
    ends = (
        f"Final churn {_percent(drift.churn)}, surrogate churn "
        f"{_percent(drift.surrogate_churn)}, accuracy {accuracy:.2f} %."
    )
    if drift.perturbed:
        return (
            f"one flipped bit: {count - 1} launches of {updates:,} updates began with "
            f"one weight changed in its last bit; compared with each other and with "
            f"the unchanged one. {ends}"
        )
    if drift.repeats:
        return (
            f"repeats itself: yes, {count} launches of {updates:,} updates gave equal "
            f"weights, bit by bit, after every update ({drift.digests[0][:12]}). {ends}"
        )
    return (
        f"repeats itself: no, {count} launches of {updates:,} updates gave "
        f"{len(set(drift.digests))} different sets of weights, apart from update "
        f"{drift.first_difference} on; hardware adds churn here. {ends}"
    )


def _percent(summary) -> str:
    if summary.num_runs < 3:  # no standard error from a single pair
        return f"{100 * summary.mean:.2f} %"
    return f"{100 * summary.mean:.2f} ± {100 * summary.stderr:.2f} %"
