"""`churn-jax sweep PRESET METHOD.COEFFICIENT`."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from churn_jax.command.listing import print_list
from churn_jax.command.options import (
    AllOfFolder,
    AllOfStudy,
    Folder,
    Study,
    assignments,
    read_options,
    study_of,
)
from churn_jax.command.run import run_command
from churn_jax.setting_checks import check_minutes
from churn_jax.training.loggers import as_loggers


@dataclasses.dataclass(frozen=True)
class Used(Folder, Study):
    """Trains a grid of one or more coefficients as one program and draws it.

    `sweep digits codistill_ce.beta codistill_skl.beta --values 0.1,0.3,1` draws both.

    Attributes:
        axes: coefficients, `codistill_skl.beta` or `codistill_skl.beta=0.1,0.3`, or
            `optimizer.learning_rate`.
        values: values of every coefficient that has none of its own, for example
            `0.1,0.3,1`; default 1/4 to 4 times the preset's.
        seeds: runs per value; all values have the same seeds.
    """

    axes: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="METHOD.COEFFICIENT"),
    ] = ()
    values: str = ""
    seeds: int = 5


@dataclasses.dataclass(frozen=True)
class Arguments(AllOfFolder, AllOfStudy, Used):
    """Trains a grid of one or more coefficients as one program and draws it.

    Attributes:
        criterion: churn, accuracy, churn-at-accuracy, prediction-difference or
            prediction-difference-at-accuracy, on the validation split.
        baseline: train the baseline too, as the value 0 where that is the baseline.
        points_per_program: at most so many values are trained together, to save
            memory; 0 trains all together.
    """

    criterion: str = "churn"
    baseline: bool = True
    points_per_program: int = 0


def read_sweep(argv: Sequence[str]) -> tuple[Any, Arguments]:
    """`(StudyConfig, options)` from the command line."""
    options = read_options(Arguments, argv, command="churn-jax sweep", used=Used)
    if options.list:
        return None, options
    config = study_of(options, "sweep")
    swept = [word.partition("=")[0].strip() for word in options.axes]
    if not swept:
        raise ValueError("sweep needs what to sweep, for example codistill_skl.beta")
    folder = Path("runs") / "sweeps" / f"{config.name}-{'-'.join(swept)}"
    return config, dataclasses.replace(options, out=options.out or folder)


def sweep(argv: Sequence[str]) -> int:
    """Trains the grid and reports; returns the exit code."""
    config, options = read_sweep(argv)
    if options.list:
        return print_list(options)
    from churn_jax.studies.grid import Axis, numbers

    check_minutes("--minutes", options.minutes)
    as_loggers(options.log)
    if "train.replicas" in dict(assignments(options)[0]):
        raise ValueError("the runs per value of a sweep are --seeds")
    values = numbers(options.values, "--values")
    if values and all("=" in word for word in options.axes):
        raise ValueError("--values is for an axis without values; each has its own")
    axes = [Axis.parse(word, config, values) for word in options.axes]
    given, rows = dict(assignments(options)[1]), [axis.method for axis in axes]
    for word, axis in zip(options.axes, axes, strict=True):
        # A grid without values is around what is given; points of another one have it.
        valued = values or "=" in word
        if valued and axis.path in given and rows.count(axis.method) == 1:
            both = f"{axis.path} is swept, and --set gives it, too"
            raise ValueError(f"{both}; leave one out")
    assert options.out is not None

    def train(**told):
        from churn_jax.studies import run_sweep

        run_sweep(
            config,
            axes,
            options.out,
            seeds=options.seeds,
            baseline=options.baseline,
            criterion=options.criterion,
            points_per_program=options.points_per_program,
            loggers=options.log,
            **told,
        )

    return run_command(options, shlex.join(["churn-jax", "sweep", *argv]), train)
