"""`churn-jax plan PRESET --topology v5e:4x4`: what a study takes on a TPU slice."""

import dataclasses
import json
import math
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from churn_compare.array_files import write_file
from churn_compare.documents import Block, Document, Table, Text, bullets, plain_text
from churn_jax.command.listing import print_list
from churn_jax.command.options import AllOfStudy, Study, read_options, study_of

if TYPE_CHECKING:
    from churn_jax.planning import Plan


@dataclasses.dataclass(frozen=True)
class Used(Study):
    """Compiles the training step of a preset for TPU chips that need not be there.

    Says whether it fits, what moves between chips and how many cycles a step takes.
    Needs the TPU compiler (libtpu) and no network, data or device. Without --mesh as
    many devices as divide the replicas lie along replica, the others along data. Exit
    code 1: it does not fit, or something moves between replicas.

    Attributes:
        replicas: runs of every row.
        topology: chips, `v4:2x2x1`, `v5e:4x4`, `v5p:2x2x1`, `v6e:4x4` or larger.
        row: row of the study; default the one with the most networks.
    """

    replicas: int | None = None
    topology: str = "v5e:4x4"
    row: str = ""


@dataclasses.dataclass(frozen=True)
class Arguments(AllOfStudy, Used):
    """Compiles the training step of a preset for TPU chips that need not be there.

    Attributes:
        json: write everything as JSON to this file.
        quiet: show no progress.
    """

    json: Path | None = None
    quiet: bool = False


def read_plan(argv: Sequence[str]) -> tuple[Any, Arguments, bool]:
    """`(study, options, whether a mesh is named)` from the command line."""
    options = read_options(Arguments, argv, command="churn-jax plan", used=Used)
    if options.list:
        return None, options, False
    config = study_of(options, "plan")
    return config, options, bool(options.mesh) or config.train.mesh.size > 1


def plan(argv: Sequence[str]) -> int:
    """Prints the plan; 0 where it fits and replicas are apart, else 1."""
    config, options, meshed = read_plan(argv)
    if options.list:
        return print_list(options)
    if options.row:
        config.spec(options.row)
    if config.train.one_pass:
        raise ValueError(
            f"{config.name} passes over its examples once; only studies that are "
            "trained in epochs can be planned"
        )
    import jax

    from churn_jax import planning
    from churn_jax.planning.compile import check_compiler, default_mesh, default_row

    jax.config.update("jax_platforms", "cpu")  # a GPU that is here is left to others
    part, path = planning.Slice.parse(options.topology), options.json
    if path is not None:  # refused now, and not after minutes of compiling
        if path.name in ("", "-") or path.is_dir():
            raise ValueError(f"--json needs the name of a file; got {path}")
        if not path.parent.is_dir():
            raise ValueError(f"--json {path}: there is no folder {path.parent}")
    row = options.row or default_row(config)
    mesh = config.train.mesh if meshed else default_mesh(config, part)
    check_compiler()
    if not options.quiet:
        print(f"{row} for {part.name}: compiling takes minutes", file=sys.stderr)
    # The main thread runs no handler while XLA compiles, so Ctrl-C ends the process.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        found = planning.plan(config, row, part, mesh)
    finally:
        signal.signal(signal.SIGINT, before)
    print(plan_text(found))
    if path is not None:
        write_file(path, json.dumps(found.to_json(), indent=1) + "\n")
        print(f"written: {path}", file=sys.stderr)
    return 0 if found.fits and found.apart else 1


def plan_text(plan: "Plan") -> str:
    """Everything about one mesh, as Markdown; long lines stay whole."""
    versions = ", ".join(f"{name} {text}" for name, text in plan.versions.items())
    mesh = ",".join(f"{axis}={count}" for axis, count in plan.mesh.items())
    about = [
        f"{plan.preset}, row {plan.row}: {plan.network}; {plan.replicas} replicas, "
        f"batch {plan.batch_size}",
        f"{plan.topology}, {math.prod(plan.mesh.values())} devices, mesh {mesh}; "
        f"{versions}, compiled in {plan.compile_seconds:.0f} s",
    ]
    if plan.calls > 1:
        about.append(
            f"replicas take turns on a device, {plan.at_a_time} at a time; all turns "
            "count"
        )
    rows = [(name, _size(count)) for name, count in plan.memory.items() if count]
    verdict = f"Does not fit: {plan.refusal}."
    if not plan.refusal:
        rows.append(("together", _size(plan.used)))
        verdict = (
            f"{'Fits' if plan.fits else 'Does not fit'}: {_size(plan.used)} of "
            f"{_size(plan.hbm)} per device ({plan.used / plan.hbm:.0%})."
        )
    memory = Table(("one device holds", "bytes"), rows, kind="aligned")
    blocks: list[Block] = [bullets(about), Text(verdict), memory]
    if not plan.refusal:
        cycles = "Cycles: not known, since the compiler gives no estimate."
        if plan.cycles:
            least = "at least " if plan.unknown else ""
            cycles = (
                "Cycles of one device per update, by the compiler's estimate (no TPU "
                f"ran it): {least}{plan.cycles:,.0f}, {1e3 * plan.seconds:,.3g} ms."
            )
        blocks += [Text(cycles), *_moved(plan)]
    document = Document(f"{plan.preset} on {plan.topology}", blocks=blocks)
    return plain_text(document, width=100_000, spaced=True).rstrip("\n")


def _size(count: float) -> str:
    """Bytes in the unit that suits."""
    for unit, power, digits in (("GiB", 30, 2), ("MiB", 20, 1), ("KiB", 10, 1)):
        if count >= 2**power and (power > 10 or count >= 2**14):
            return f"{count / 2**power:.{digits}f} {unit}"
    return f"{int(count):,} B"


def _moved(plan: "Plan") -> list[Block]:
    """The bytes moved between devices, per update."""
    if not plan.communication:
        return [Text("Nothing moves between devices.")]
    heads = ("axis", "collective", "count per update", "bytes", "largest")
    rows = [
        (c.axes, c.kind, f"{c.count:,.4g}", f"{c.bytes:,.0f}", f"{c.largest:,}")
        for c in plan.communication
    ]
    said = "Nothing moves" if plan.apart else "NO: something moves"
    return [Text(f"{said} between replicas."), Table(heads, rows, kind="aligned")]
