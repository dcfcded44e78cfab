"""`churn-jax study PRESET` and `churn-jax report FOLDER`."""

import dataclasses
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from churn_compare.escaping import printable
from churn_jax.command.listing import print_list
from churn_jax.command.options import (
    AllOfFolder,
    AllOfStudy,
    Folder,
    Study,
    flat,
    read_options,
    study_of,
)
from churn_jax.command.run import run_command, show_report
from churn_jax.setting_checks import check_minutes
from churn_jax.training.loggers import as_loggers


@dataclasses.dataclass(frozen=True)
class Used(Folder, Study):
    """Trains the rows of a preset with several seeds and reports.

    Attributes:
        replicas: runs of every row.
        only: train these rows (and their teachers) only, and those of `--method`.
    """

    replicas: int | None = None
    only: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Arguments(AllOfFolder, AllOfStudy, Used):
    """Trains the rows of a preset with several seeds and reports.

    Attributes:
        dry_run: print what training would cost, and stop; the data are read.
        predictions: how predictions are kept: `file`, `shards`, or `auto`.
    """

    dry_run: bool = False
    predictions: str = ""


def read_study(argv: Sequence[str]) -> tuple[Any, Arguments]:
    """`(StudyConfig, options)` from the command line."""
    options = read_options(Arguments, argv, command="churn-jax study", used=Used)
    if options.list:
        return None, options
    config = study_of(options, "study")
    check_minutes("--minutes", options.minutes)
    as_loggers(options.log)
    only = options.only
    if only and options.method:  # a row that is named by --method is asked for
        added = [row.name for row in config.methods[-len(flat(options.method)) :]]
        only = tuple(dict.fromkeys([*only, *added]))
    out = options.out or Path("runs") / config.name
    return config, dataclasses.replace(options, only=only, out=out)


def study(argv: Sequence[str]) -> int:
    """Trains and reports; returns the exit code."""
    config, options = read_study(argv)
    if options.list:
        return print_list(options)
    config.select(options.only)  # an unknown row is refused before JAX is loaded
    if options.dry_run:
        return _costs(config, options.only)

    def train(**told):
        from churn_jax.studies import run_study

        out: Any = options.out
        run_study(config, out, only=options.only, loggers=options.log, **told)

    return run_command(options, shlex.join(["churn-jax", "study", *argv]), train)


def _costs(config, only: tuple[str, ...]) -> int:
    """Prints what training each row would take."""
    from churn_jax.studies.cost import study_costs

    print("\n".join([config.title, *config.notes, ""]))
    rows = study_costs(config, only)
    width = max(len(row.name) for row in rows)
    print(f"{'row':{width}}  replicas  networks    updates  examples seen      FLOPs")
    for row in rows:
        print(
            f"{row.name:{width}}  {row.replicas:8}  {row.networks:8}  {row.updates:9,}"
            f"  {row.examples:13,}  {row.flops:9.2e}"
        )
    total = sum(row.flops for row in rows)
    print(f"{'all':{width}}  {total:.2e} FLOPs: passes of students and teachers")
    return 0


@dataclasses.dataclass(frozen=True)
class Report:
    """Writes the tables and the report of a study's folder again.

    Attributes:
        folder: folder of a study, `runs/<study>`.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]


def report(argv: Sequence[str]) -> int:
    """Writes a finished study's report again; 2 if a row's file is damaged."""
    parsed = read_options(Report, argv, command="churn-jax report")
    written = show_report(parsed.folder, time.perf_counter())
    damaged = [
        f"the report lacks {missing.info.label}: {missing.reason}"
        for missing in written.missing
        if missing.damaged
    ]
    damaged += [said for said, damaged in written.unreadable.items() if damaged]
    for said in damaged:
        print(f"churn-jax: {printable(said)}", file=sys.stderr)
    return 2 if damaged else 0
