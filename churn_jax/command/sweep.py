"""`churn-jax sweep PRESET METHOD.COEFFICIENT`."""

import dataclasses
import functools
import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from churn_jax.command.listing import print_list
from churn_jax.command.options import (
    OWN,
    SHORT_FORMS,
    SHORT_FORMS_HELP,
    chosen,
    read_options,
    written_out,
)
from churn_jax.command.run import Launched, run_command
from churn_jax.command.signals import check_minutes
from churn_jax.command.study_file import print_if_asked, with_file
from churn_jax.training.loggers import as_loggers
from churn_jax.training.progress import Display


def _arguments(config, folder: Path, mesh_replicas: int):
    """The options as a dataclass whose defaults are the preset's."""
    from churn_jax.configuration.training import TrainConfig
    from churn_jax.studies import DataConfig, ModelConfig

    @dataclasses.dataclass(frozen=True)
    class Training(TrainConfig):
        __doc__ = TrainConfig.__doc__
        # A mesh shards the sweep's seeds x values: the preset's replicas refuse none.
        replicas: tyro.conf.Suppress[int] = 1
        seed_numbers: tyro.conf.Suppress[tuple[int, ...]] = ()

    @dataclasses.dataclass(frozen=True)
    class Arguments(Launched):
        """Options of a sweep.

        Attributes:
            values: values of every coefficient that has none of its own, for example
                `0.1,0.3,1`; default 1/4 to 4 times the preset's.
            select: choose beta first, then alpha at the best beta, of one METHOD.
            betas: values of beta for --select; default 1/4 to 4 times the preset's.
            alphas: values of alpha for --select; the same default.
            seeds: runs per value; all values have the same seeds.
            criterion: churn, accuracy, churn-at-accuracy, prediction-difference or
                prediction-difference-at-accuracy, on the validation split.
            baseline: train the baseline too, as the value 0 where that is the baseline.
            points_per_program: at most so many values are trained together, to save
                memory; 0 trains all together.
            method: add rows of these methods with their default coefficients: names as
                in `churn_jax.methods`, or your own as `package.module:Class`.
            set: change coefficients, for example `codistill_skl_entropy.beta=0.2`.
            data: the data set.
            model: the network.
            train: how all values are trained.
        """

        values: str = ""
        select: bool = False
        betas: str = ""
        alphas: str = ""
        seeds: int = 5
        criterion: str = "churn"
        baseline: bool = True
        points_per_program: int = 0
        out: Path = folder
        method: tuple[str, ...] = ()
        set: tuple[str, ...] = ()
        data: DataConfig = config.data
        # Without this, a model's `sharing` would be a word and no options.
        model: tyro.conf.AvoidSubcommands[ModelConfig] = config.model
        train: Training = dataclasses.replace(
            Training(**vars(config.train)),
            replicas=mesh_replicas * config.train.replicas,
        )

    return Arguments


def _words(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first option, and the rest."""
    argv = list(argv)
    first = next((i for i, word in enumerate(argv) if word.startswith("-")), len(argv))
    return argv[:first], argv[first:]


def read_sweep(argv: Sequence[str]):
    """`(StudyConfig, what to sweep, options)`; defaults from the preset."""
    from churn_jax.configuration.training import TrainConfig
    from churn_jax.studies import PRESETS

    argv, file = with_file(argv, SHORT_FORMS)
    names = ", ".join(PRESETS)
    words, rest = _words(written_out(argv))
    if not words and rest[:1] in (["-h"], ["--help"]):
        words = [next(iter(PRESETS))]
    if not words:
        raise ValueError(f"sweep needs the name of a preset: {names}")
    said = "-".join(word.partition("=")[0].strip() for word in words[1:]) or "select"
    if any(word.partition("=")[0] == "--train.replicas" for word in rest):
        raise ValueError("sweep takes --seeds, the runs per value, not --replicas")
    if "--select" in rest:
        said += "-select"

    def read(config, rest):
        folder = Path("runs") / "sweeps" / f"{config.name}-{said}"
        options: Any = read_options(
            _arguments(config, folder, _mesh_replicas(rest)),
            rest,
            prog=f"churn-jax sweep {words[0]} METHOD.COEFFICIENT...",
            description=f"Trains a grid of one or more coefficients as one program and "
            f"draws it. `sweep {words[0]} codistill_ce.beta codistill_skl.beta "
            f"--values 0.1,0.3,1` draws both; `sweep {words[0]} codistill_skl_entropy "
            f"--select` picks beta, then alpha. `sweep --list` lists the presets; "
            f"{OWN} is for your own data. "
            f"{SHORT_FORMS_HELP.replace('--replicas, ', '')}",
            file=file,
        )
        return dataclasses.replace(options, train=TrainConfig(**vars(options.train)))

    config, options = chosen(words[0], rest, read)
    print_if_asked(words[0], options, config, words[1:])
    return config, words[1:], options


def _mesh_replicas(words: Sequence[str]) -> int:
    """The mesh's replica axis in the options, or 1."""
    name = "--train.mesh.replica"
    after = [b for a, b in itertools.pairwise(words) if a == name]
    after += [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return max(int(after[-1]), 1) if after and after[-1].isdecimal() else 1


class _SweepProgress(Display):
    """The programs of a sweep; accuracy is the mean over the grid."""

    def __init__(self, epochs: int, **shown: bool):
        """`shown` is given to `Display`; programs come with the plan."""
        super().__init__(**shown)
        self._epochs = epochs
        self._plan: dict[str, Any] = {}

    def take(self, plan: Sequence[Any]) -> None:
        """Adds planned programs; the two stages of a selection plan in turn."""
        self._plan |= {program.name: program for program in plan}
        networks = sum(program.networks for program in self._plan.values())
        self.expect(networks * self._epochs, f"all {len(self._plan)} programs")

    def start(self, program, finished: bool) -> None:
        """A program begins, or was finished before."""
        self.begin(
            program.name,
            program.label,
            weight=program.networks * self._epochs,
            finished_before=finished,
        )

    def update(self, progress) -> None:
        """Shows the last evaluation."""
        found = f"mean validation accuracy {100 * progress.accuracy:.2f} %"
        self.evaluated(progress, found)
        program = self._plan[progress.name]
        seeds = program.replicas // len(program.points)
        for entry in progress.stopped:
            point = program.points[entry.replica // seeds]
            self.note_stopped(point.name, "run", entry.replica % seeds, entry)


def sweep(argv: Sequence[str]) -> int:
    """Trains the grid and reports; returns the exit code."""
    if "--list" in argv:
        return print_list("sweep", argv)
    config, words, options = read_sweep(argv)
    from churn_jax.studies.grid import Axis, numbers

    check_minutes(options.minutes)
    as_loggers(options.log)
    values = numbers(options.values, "--values")
    if options.select:
        if len(words) != 1 or "." in words[0]:
            raise ValueError(
                "--select takes one method, for example codistill_skl_entropy; got "
                f"{' '.join(words) or 'none'}"
            )
        if values:
            raise ValueError("--select takes --betas and --alphas, not --values")
        config.spec(words[0])
    elif not words:
        raise ValueError(
            "sweep needs what to sweep, for example codistill_skl.beta, or a method "
            "and --select"
        )
    axes = [] if options.select else [Axis.parse(w, config, values) for w in words]

    def train(progress, **told):
        from churn_jax.studies import run_selection, run_sweep

        shared: dict[str, Any] = {
            "seeds": options.seeds,
            "baseline": options.baseline,
            "criterion": options.criterion,
            "points_per_program": options.points_per_program,
            "loggers": options.log,
            "on_plan": progress.take,
            **told,
        }
        if options.select:
            run_selection(
                config,
                words[0],
                options.out,
                betas=numbers(options.betas, "--betas"),
                alphas=numbers(options.alphas, "--alphas"),
                **shared,
            )
        else:
            run_sweep(config, axes, options.out, **shared)

    return run_command(
        options,
        shlex.join(["churn-jax", "sweep", *argv]),
        progress=functools.partial(_SweepProgress, config.train.epochs),
        train=train,
        show=_show,
    )


def _show(folder: Path, seconds: float) -> None:
    from churn_jax import reports

    result = reports.write_sweep(folder)
    reports.print_sweep(result)
    print(f"\n{seconds:.0f} s. Report: {result.files['report.html']}")
