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
    OWN,
    AllOfFolder,
    AllOfStudy,
    Folder,
    Study,
    flat,
    print_if_asked,
    read_options,
    study_of,
)
from churn_jax.command.run import run_command
from churn_jax.command.signals import check_minutes
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
        dry_run: only say what training would cost; the data are opened.
        yes: train a study of your own data although it takes more than two hours.
        predictions: how predictions are kept: `file`, `shards`, or `auto`.
    """

    dry_run: bool = False
    yes: bool = False
    predictions: str = ""


def read_study(argv: Sequence[str]) -> tuple[Any, Arguments]:
    """`(StudyConfig, options)` from the command line."""
    options = read_options(Arguments, argv, command="churn-jax study", used=Used)
    if options.list:
        return None, options
    config = study_of(options, "study")
    check_minutes(options.minutes)
    as_loggers(options.log)
    print_if_asked(options, config)
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
        return print_list("study", options)
    config.select(options.only)  # an unknown row is refused before JAX is loaded
    if options.dry_run:
        return _costs(config, options.only)

    def train(**told):
        from churn_jax.studies import run_study

        if options.preset == OWN:
            _check_hours(config, options, told["on_note"])
        out: Any = options.out
        run_study(config, out, only=options.only, loggers=options.log, **told)

    return run_command(
        options,
        shlex.join(["churn-jax", "study", *argv]),
        train=train,
        show=_show,
    )


# Up to so many seconds a study of one's own data is trained without a question.
_LONG = 7200.0
# A machine that would take so long for fewer operations is not worth a question.
_FEW_OPERATIONS = 1e13


def _check_hours(config: Any, options: Any, say: Any) -> None:
    """Says how long a study will take; refuses a long one."""
    import jax

    from churn_jax.studies.cost import seconds_per_operation, study_costs

    began = (options.out / "study.json").exists()
    if began or options.minutes is not None or jax.process_count() > 1:
        return
    try:
        total = sum(row.flops for row in study_costs(config, options.only))
        if total < _FEW_OPERATIONS:
            return
        say("timing a few updates, to say how long the study will take")
        rate = seconds_per_operation(config, options.only)
    except ValueError:  # a device that counts nothing; mistakes are found again
        return
    if rate is None:
        return
    hours = f"{rate * total / 3600:,.2g} hours"
    if rate * total >= 36_000:
        hours = f"{rate * total / 3600:,.0f} hours"
    say(f"all rows take about {hours} on this machine")
    if rate * total > _LONG and not options.yes:
        raise ValueError(
            f"this study takes about {hours} on this machine, so it is not started "
            "without --yes; use fewer --epochs, --replicas or rows (--only), or a "
            "smaller --model; --minutes trains for a limited time"
        )


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


def _show(out: Path, seconds: float):
    from churn_jax import reports

    written = reports.write(out)
    reports.print_report(written)
    print(f"\n{seconds:.0f} s. Report: {out / 'report.html'}")
    return written


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
    began = time.perf_counter()
    written = _show(parsed.folder, time.perf_counter() - began)
    damaged = [
        f"the report lacks {missing.info.label}: {missing.reason}"
        for missing in written.missing
        if missing.damaged
    ]
    damaged += [said for said, damaged in written.unreadable.items() if damaged]
    for said in damaged:
        print(f"churn-jax: {printable(said)}", file=sys.stderr)
    return 2 if damaged else 0
