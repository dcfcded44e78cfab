"""`churn-jax study PRESET` and `churn-jax report FOLDER`."""

import dataclasses
import functools
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from churn_compare.escaping import printable
from churn_jax.command.listing import print_list
from churn_jax.command.options import (
    OWN,
    SHORT_FORMS,
    SHORT_FORMS_HELP,
    chosen,
    preset_first,
    read_options,
    written_out,
)
from churn_jax.command.run import Launched, run_command
from churn_jax.command.signals import check_minutes
from churn_jax.command.study_file import print_if_asked, with_file
from churn_jax.studies.progress import StudyDisplay
from churn_jax.training.loggers import as_loggers


def _arguments(config):
    """The options as a dataclass whose defaults are the preset's."""
    from churn_jax.configuration.training import TrainConfig
    from churn_jax.studies import DataConfig, EvaluationConfig, ModelConfig

    @dataclasses.dataclass(frozen=True)
    class Arguments(Launched):
        """Options of a study.

        Attributes:
            only: train these rows (and their teachers) only, and those of `--method`.
            method: add rows of these methods with their default coefficients: names as
                in `churn_jax.methods`, or your own as `package.module:Class`.
            set: change coefficients, for example `codistill_skl.beta=0.2`.
            dry_run: only say what training would cost; the data are opened.
            yes: train a study of your own data although it takes more than two hours.
            data: the data set.
            model: the network.
            train: how all methods are trained.
            evaluation: how predictions are kept.
        """

        out: Path = Path("runs") / config.name
        only: tuple[str, ...] = ()
        method: tuple[str, ...] = ()
        set: tuple[str, ...] = ()
        dry_run: bool = False
        yes: bool = False
        data: DataConfig = config.data
        # Without this, a model's `sharing` would be a word and no options.
        model: tyro.conf.AvoidSubcommands[ModelConfig] = config.model
        train: TrainConfig = config.train
        evaluation: EvaluationConfig = config.evaluation

    return Arguments


def _parse(argv: Sequence[str]):
    """`(StudyConfig, options)` from the command line, defaults from the preset."""
    from churn_jax.studies import PRESETS

    own = f", or {OWN} for your own data (study --list says more)"
    argv, file = with_file(argv, SHORT_FORMS)
    name, words = preset_first("study", argv, tuple(PRESETS), own)

    def read(config, rest):
        return read_options(
            _arguments(config),
            rest,
            prog=f"churn-jax study {name}",
            description=f"{config.title}. `study --list` lists the presets, `study "
            f"{name} --list` the methods of this one; `study {OWN} --data FILE` "
            f"chooses a recipe for your own data. {SHORT_FORMS_HELP}",
            file=file,
        )

    config, options = chosen(name, written_out(words), read)
    check_minutes(options.minutes)
    as_loggers(options.log)
    config = dataclasses.replace(config, evaluation=options.evaluation)
    print_if_asked(name, options, config)
    if options.only and options.method:  # a row that is named by --method is asked for
        added = [row.name for row in config.methods[-len(options.method) :]]
        only = tuple(dict.fromkeys([*options.only, *added]))
        options = dataclasses.replace(options, only=only)
    return config, options


def study(argv: Sequence[str]) -> int:
    """Trains and reports; returns the exit code."""
    if "--list" in argv:
        return print_list("study", argv)
    config, options = _parse(argv)
    config.select(options.only)  # an unknown row is refused before JAX is loaded
    if options.dry_run:
        return _costs(config, options.only)

    def train(progress, **told):
        from churn_jax.studies import run_study

        if config.name.startswith(f"{OWN}-"):
            _check_hours(argv, config, options, told["on_note"])
        run_study(config, options.out, only=options.only, loggers=options.log, **told)

    return run_command(
        options,
        shlex.join(["churn-jax", "study", *argv]),
        progress=functools.partial(StudyDisplay, config, options.only),
        train=train,
        show=_show,
    )


# Up to so many seconds a study of one's own data is trained without a question.
_LONG = 7200.0
# A machine that would take so long for fewer operations is not worth a question.
_FEW_OPERATIONS = 1e13


def _check_hours(argv: Sequence[str], config, options, say) -> None:
    """Says how long a study will take; refuses a long one, with shorter commands."""
    import jax

    from churn_jax.studies.cost import seconds_per_operation, study_costs

    began = (options.out / "study.json").exists()
    if began or options.minutes is not None or jax.process_count() > 1:
        return

    def operations(config, only) -> float:
        return sum(row.flops for row in study_costs(config, only))

    try:
        if (total := operations(config, options.only)) < _FEW_OPERATIONS:
            return
        say("timing a few updates, to say how long the study will take")
        rate = seconds_per_operation(config, options.only)
    except ValueError:  # a device that counts nothing; mistakes are found again
        return
    if rate is None:
        return
    seconds = rate * total
    say(f"all rows take about {_duration(seconds)} on this machine")
    if options.yes or seconds <= _LONG:
        return
    shorter = []
    fewer = [] if options.only else ["--only", config.baseline, "codistill_skl"]
    for words in (["--model", "lenet5"], [], [*fewer, "--replicas", "3"]):
        try:  # the words may not fit the data or the rows
            other, chosen = _parse([*argv, *words, "--epochs", "1"])
            own = rate
            if other.model != config.model:
                own = seconds_per_operation(other, chosen.only) or rate
            epoch = own * operations(other, chosen.only)
        except ValueError:
            continue
        if other.model == config.model and "--model" in words:
            continue
        epochs = min(_LONG / epoch, config.train.epochs, 10)
        if epochs < 1:
            continue
        command = shlex.join(["churn-jax", "study", *argv, *words])
        command += f" --epochs {int(epochs)}"
        shorter.append(f"`{command}` takes about {_duration(int(epochs) * epoch)}")
    less = "; ".join(shorter) or "use fewer --epochs, --replicas or rows (--only)"
    raise ValueError(
        f"this study takes about {_duration(seconds)} on this machine, so it is not "
        f"started without --yes; shorter: {less}; --minutes trains for a limited time"
    )


def _duration(seconds: float) -> str:
    """`25 minutes`, `3.5 hours`, `534 hours`."""
    if seconds < 90 * 60:
        minutes = max(round(seconds / 60), 1)
        return f"{minutes} minute{'s' if minutes > 1 else ''}"
    hours = seconds / 3600
    return f"{hours:.2g} hours" if hours < 10 else f"{hours:,.0f} hours"


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


def report(argv: Sequence[str]) -> int:
    """Writes a finished study's report again; 2 if a row's file is damaged."""

    @dataclasses.dataclass(frozen=True)
    class Arguments:
        """Writes the tables and the report of a study's folder again.

        Attributes:
            folder: folder of a study or a stream, `runs/<study>`.
        """

        folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]

    parsed = read_options(Arguments, argv, prog="churn-jax report")
    began = time.perf_counter()
    from churn_jax import reports
    from churn_jax.command import stream

    show = stream.show if reports.is_stream(parsed.folder) else _show
    written = show(parsed.folder, time.perf_counter() - began)
    damaged = [
        f"the report lacks {missing.info.label}: {missing.reason}"
        for missing in written.missing
        if missing.damaged
    ]
    damaged += getattr(written, "losses", ())  # of a study
    for said in damaged:
        print(f"churn-jax: {printable(said)}", file=sys.stderr)
    return 2 if damaged else 0
