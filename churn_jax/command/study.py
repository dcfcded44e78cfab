"""`churn-jax study PRESET` and `churn-jax report FOLDER`."""

import dataclasses
import math
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

import tyro

from churn_jax.command.launch import Launch, connect, wait_for_all
from churn_jax.command.options import read_options
from churn_jax.command.progress import StudyProgress
from churn_jax.command.stopping import NOT_FINISHED, check_minutes, stopping

__all__ = ["report", "study"]


# Short forms of the options that are used most.
_SHORT = {
    "--data": "--data.name",
    "--data-dir": "--data.data-dir",
    "--manual-dir": "--data.manual-dir",
    "--model": "--model.name",
    "--replicas": "--train.replicas",
    "--epochs": "--train.epochs",
    "--batch-size": "--train.batch-size",
    "--mapping": "--train.mapping",
    "--seed": "--train.seeds.base",
}


def _expanded(argv: Sequence[str]) -> list[str]:
    """Short options written out, `--mesh replica=4,data=2` as one option per axis."""
    words: list[str] = []
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--mesh":
            from churn_jax.training.partition import MeshShape

            shape = MeshShape.parse(value if equals else next(rest, ""))
            for axis, size in dataclasses.asdict(shape).items():
                words += [f"--train.mesh.{axis}", str(size)]
        else:
            words.append(_SHORT.get(name, name) + equals + value)
    return words


def _arguments(config):
    """The options as a dataclass whose defaults are the preset's."""
    from churn_jax.studies import DataConfig, ModelConfig
    from churn_jax.training.config import TrainConfig

    @dataclasses.dataclass(frozen=True)
    class Arguments:
        """Options of a study.

        Attributes:
            out: folder of the artefacts. The same folder goes on where it was left.
            fresh: move what is in the folder aside and start again.
            only: train these methods (and their teachers) only.
            set: change coefficients, for example `codistill_skl.beta=0.2`.
            minutes: save and stop after so many, with exit code 3 where something is
                left to do; the same command goes on.
            launch: several processes.
            data: which examples.
            model: which network.
            train: how all methods are trained.
        """

        out: Path = Path("runs") / config.name
        fresh: bool = False
        only: tuple[str, ...] = ()
        set: tuple[str, ...] = ()
        minutes: float | None = None
        launch: Launch = Launch()
        data: DataConfig = config.data
        model: ModelConfig = config.model
        train: TrainConfig = config.train

    return Arguments


def _parse(argv: Sequence[str]):
    """`(StudyConfig, options)` from the command line, defaults from the preset."""
    from churn_jax.studies import PRESETS, preset

    argv, names = list(argv), ", ".join(PRESETS)
    if argv and argv[0] in ("-h", "--help"):
        argv = [next(iter(PRESETS)), *argv]
    if not argv or argv[0].startswith("-"):
        raise ValueError(f"study needs the name of a preset: {names}")
    config = preset(argv[0])
    options = read_options(
        _arguments(config),
        _expanded(argv[1:]),
        prog=f"churn-jax study {argv[0]}",
        description=f"{config.title}. Presets: {names}. Short forms: "
        f"{', '.join(_SHORT)}, --mesh replica=4,member=2,data=1.",
    )
    check_minutes(options.minutes)
    model = options.model
    if model.name != config.model.name and model.features == config.model.features:
        model = dataclasses.replace(model, features=())  # they were the other net's
    config = dataclasses.replace(
        config, data=options.data, model=model, train=options.train
    )
    for assignment in options.set:
        path, equals, value = assignment.partition("=")
        if not equals:
            raise ValueError(
                f"--set takes method.coefficient=value; got {assignment!r}"
            )
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"--set {path} takes a finite number; got {value!r}")
        config = config.with_coefficient(path.strip(), number)
    return config, options


def _set_aside(out: Path) -> None:
    """Renames a folder that is in the way; nothing is deleted."""
    if not out.exists():
        return
    from churn_jax.training.checkpoint import free_name

    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = free_name(out.with_name(f"{out.name}.{stamp}"))
    out.rename(aside)
    print(f"{out} was moved to {aside}")


def study(argv: Sequence[str]) -> int:
    """Trains and reports; returns the exit code."""
    config, options = _parse(argv)
    process = connect(options.launch)
    from churn_jax.studies import run_study
    from churn_jax.training.run import Interrupted

    out = options.out
    if options.fresh:
        if process == 0:
            _set_aside(out)
        wait_for_all("the old folder is aside")
    command = shlex.join(["churn-jax", "study", *argv])
    began = time.perf_counter()
    with stopping(options.minutes) as asked:
        try:
            with StudyProgress(config, options.only, quiet=process != 0) as progress:

                def start(spec, finished: bool) -> None:
                    progress.start(spec, finished)
                    if not finished:
                        asked.begin()

                run_study(
                    config,
                    out,
                    only=options.only,
                    command=command,
                    on_start=start,
                    on_progress=progress.update,
                    on_note=progress.note,
                    stop=asked.event,
                )
        except (Interrupted, KeyboardInterrupt) as error:
            if process == 0:
                said = str(error) or "stopped at once; the last checkpoint is kept"
                if asked.exit_code == NOT_FINISHED:
                    said = f"{said}, as --minutes {options.minutes:g} are over"
                print(f"\n{said}. To go on: {_continuation(command)}")
            return asked.exit_code
    if process == 0:
        _show(out, time.perf_counter() - began)
    return 0


def _continuation(command: str) -> str:
    """The same command, without the flag that would start again."""
    return shlex.join(w for w in shlex.split(command) if w != "--fresh")


def _show(out: Path, seconds: float) -> None:
    from churn_jax import reports

    written = reports.write(out)
    reports.print_report(written)
    print(f"\n{seconds:.0f} s. Report: {out / 'report.html'}")


def report(argv: Sequence[str]) -> int:
    """Writes `table.md`, `table.csv` and `report.html` of a finished study again."""

    @dataclasses.dataclass(frozen=True)
    class Arguments:
        """Writes the tables and the report of a study's folder again.

        Attributes:
            folder: `runs/<study>`.
        """

        folder: tyro.conf.Positional[Path]

    parsed = read_options(Arguments, argv, prog="churn-jax report")
    began = time.perf_counter()
    _show(parsed.folder, time.perf_counter() - began)
    return 0
