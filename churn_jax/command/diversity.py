"""`churn-jax diversity RUN`: the third paper's analyses on a finished study."""

import dataclasses
import functools
import shlex
from collections.abc import Sequence
from pathlib import Path

import tyro
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from churn_jax.command.configured import SHORT_FORMS, written_out
from churn_jax.command.launch import Launch
from churn_jax.command.options import read_options
from churn_jax.command.progress import Notes
from churn_jax.command.running import run_command
from churn_jax.command.stopping import check_minutes

__all__ = ["diversity"]

DESCRIPTION = (
    "Asks a finished study's networks how much members of ensembles differ and whether "
    "students move as their teachers do. Sections: teachers, students, jacobians and "
    "matching; ood with --ood, corruptions with --corruptions. The same command goes "
    "on where it was stopped."
)


def _arguments(config):
    """The options as a dataclass; `config` says where the data were."""
    from churn_jax.studies import DataConfig
    from churn_jax.studies.diversity import DiversityOptions

    default = DiversityOptions()

    @dataclasses.dataclass(frozen=True)
    class Arguments:
        """Options of the analyses.

        Attributes:
            folder: of a finished study, `runs/<study>`.
            section: compute these only.
            rows: of these rows only; default all that have finished.
            examples: of each split or set, evenly spaced.
            jacobian_examples: test images whose Jacobians are compared.
            draws: of a perturbation for a signal-to-noise ratio.
            batch: examples whose gradient that is of.
            bins: of confidence.
            ood: another data set, whose test images are foreign.
            corruptions: corrupt the test images too.
            types: kinds of corruption; default all.
            severities: of corruptions, 1 to 5; default all.
            seed: of noise and guides.
            minutes: stop after so many, with exit code 3 where something is left; the
                same command goes on.
            data: where the study's data are now.
        """

        folder: tyro.conf.Positional[Path]
        section: tuple[str, ...] = ()
        rows: tuple[str, ...] = ()
        examples: int = default.examples
        jacobian_examples: int = default.jacobian_examples
        draws: int = default.draws
        batch: int = default.batch
        bins: int = default.bins
        ood: str = default.ood
        corruptions: bool = False
        types: tuple[str, ...] = ()
        severities: tuple[int, ...] = ()
        seed: int = default.seed
        minutes: float | None = None
        data: DataConfig = config.data

    return Arguments


@dataclasses.dataclass(frozen=True)
class _Launched:
    """What `run_command` reads; a finished study is never put aside."""

    out: Path
    minutes: float | None
    fresh: bool = False
    launch: Launch = Launch()


def _parse(argv: Sequence[str]):
    """The options, whose defaults for the data are those of the study's record."""
    from churn_jax.studies import StudyConfig, preset
    from churn_jax.studies.recorded import read_config

    argv = list(argv)
    config: StudyConfig = preset("digits")
    folders = [word for word in argv[:1] if not word.startswith("-")]
    if not folders and not {"-h", "--help"} & set(argv):
        raise ValueError("diversity needs the folder of a finished study first")
    if folders:
        config = read_config(Path(folders[0]))
    short = {k: v for k, v in SHORT_FORMS.items() if v.startswith("--data.")}
    options = read_options(
        _arguments(config),
        written_out(argv, short),
        prog="churn-jax diversity",
        description=DESCRIPTION,
    )
    check_minutes(options.minutes)
    return options


def _sections(options) -> tuple[str, ...]:
    if options.section:
        return options.section
    more = [("ood", bool(options.ood)), ("corruptions", options.corruptions)]
    asked = [name for name, wanted in more if wanted]
    return ("teachers", "students", "jacobians", "matching", *asked)


class _Bars(Notes):
    """A bar per section; a log file gets a line at its end."""

    def __init__(self, *, quiet: bool):
        super().__init__(quiet=quiet)
        self.bars = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("parts"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            disable=not (self.console.is_terminal and not quiet),
        )
        self.task: TaskID | None = None
        self.section, self.parts, self.done = "", 0, 0

    def __enter__(self):
        self.bars.__enter__()
        return self

    def __exit__(self, *error):
        self.bars.__exit__(*error)

    def start(self, work: tuple[str, int, int], finished: bool) -> None:
        """A section begins."""
        self.section, self.parts, self.done = work
        status = "computed before" if finished else "restoring, compiling"
        self.task = self.bars.add_task(
            self.section, total=self.parts, completed=self.done, status=status
        )
        if finished:
            self.console.print(f"{self.section}: computed before, kept")

    def update(self, key: str) -> None:
        """A part is done."""
        self.done += 1
        if self.task is not None:
            self.bars.update(self.task, completed=self.done, status=key)
        if self.done == self.parts:
            self.console.print(f"{self.section}: {self.parts} parts")


def diversity(argv: Sequence[str]) -> int:
    """Computes, writes the page and prints the tables; returns the exit code."""
    options = _parse(argv)
    sections = _sections(options)

    def compute(progress, *, command, on_start, on_progress, on_note, stop):
        del progress, command
        from churn_jax.studies.diversity import DiversityOptions, run_diversity

        names = [field.name for field in dataclasses.fields(DiversityOptions)]
        run_diversity(
            options.folder,
            sections,
            DiversityOptions(**{name: getattr(options, name) for name in names}),
            data=options.data,
            on_start=lambda section, parts, done: on_start(
                (section, parts, done), done == parts
            ),
            on_part=on_progress,
            on_note=on_note,
            stop=stop,
        )

    command = shlex.join(["churn-jax", "diversity", *argv])
    return run_command(
        _Launched(options.folder, options.minutes),
        command,
        progress=_Bars,
        train=compute,
        show=functools.partial(_show, command),
    )


def _show(command: str, folder: Path, seconds: float) -> None:
    from churn_jax.reports import diversity as report

    written = report.write_diversity(folder, command=command)
    report.print_diversity(folder)
    print(f"\n{seconds:.0f} s. Page: {written}")
