"""`churn-jax diversity RUN`: the third paper's analyses on a finished study."""

import dataclasses
import functools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from churn_compare.documents import print_document
from churn_jax.command.options import SHORT_FORMS, read_options, written_out
from churn_jax.command.run import Launched, run_command
from churn_jax.command.signals import check_minutes
from churn_jax.training.progress import Display, Work

DESCRIPTION = (
    "Measures how much the members of a finished study's ensembles differ, and whether "
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
            folder: folder of a finished study, `runs/<study>`.
            section: compute these sections only.
            rows: use these rows only; default all that have finished.
            examples: number of examples of each split, evenly spaced.
            jacobian_examples: test images whose Jacobians are compared.
            draws: perturbations drawn for each signal-to-noise ratio.
            batch: examples whose gradients that ratio compares.
            bins: number of confidence bins.
            temperature: temperature of the softmax before the KL of teachers and of
                students; 4 is what a loss with tau = 4 sees.
            ood: another data set, whose test images count as foreign.
            corruptions: corrupt the test images too.
            types: which corruptions; default all.
            severities: which severities, 1 to 5; default all.
            seed: seed of noise and guides.
            minutes: stop after this many minutes, with exit code 3 if something is
                left to do; the same command goes on.
            quiet: show no progress, only warnings and the report.
            data: where the study's data are now.
        """

        folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
        section: tuple[str, ...] = ()
        rows: tuple[str, ...] = ()
        examples: int = default.examples
        jacobian_examples: int = default.jacobian_examples
        draws: int = default.draws
        batch: int = default.batch
        bins: int = default.bins
        temperature: float = default.temperature
        ood: str = default.ood
        corruptions: bool = False
        types: tuple[str, ...] = ()
        severities: tuple[int, ...] = ()
        seed: int = default.seed
        minutes: float | None = None
        quiet: bool = False
        data: DataConfig = config.data

    return Arguments


def _parse(argv: Sequence[str]):
    """The options, whose defaults for the data are those of the study's record."""
    from churn_jax.studies import StudyConfig, preset

    argv = list(argv)
    config: StudyConfig = preset("digits")
    folders = [word for word in argv[:1] if not word.startswith("-")]
    if not folders and not {"-h", "--help"} & set(argv):
        raise ValueError("diversity needs the folder of a finished study first")
    if folders:
        from churn_jax.studies.folder import read_study

        config = read_study(Path(folders[0])).config
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


class _Sections(Display):
    """Progress of the parts of each section."""

    def __init__(self, **shown: bool):
        super().__init__(**shown)
        self._at = Work("", "", 0)

    def start(self, work: tuple[str, int, int], finished: bool) -> None:
        """A section begins."""
        section, parts, done = work
        self._at = Work(section, "computing", done, parts, "parts")
        self.begin(section, finished_before=finished)

    def update(self, progress: Any) -> None:
        """Shows that the part with the key `progress` is done."""
        at = self._at
        self._at = dataclasses.replace(at, done=at.done + 1)
        self.work(self._at)
        self.found(at.name, f"last part: {progress}")
        if self._at.done == at.total:
            self.say(f"{at.name}: {at.total} parts")


def diversity(argv: Sequence[str]) -> int:
    """Computes, writes the page and prints the tables; returns the exit code."""
    options = _parse(argv)
    sections = _sections(options)

    def compute(progress, *, command, on_start, on_progress, on_work, on_note, stop):
        del progress, command
        from churn_jax.studies.diversity import DiversityOptions, run_diversity

        def start(section: str, parts: int, done: int) -> None:
            on_start((section, parts, done), done == parts)
            if done < parts:
                on_work(Work(section, "computing", done, parts, "parts"))

        names = [field.name for field in dataclasses.fields(DiversityOptions)]
        run_diversity(
            options.folder,
            sections,
            DiversityOptions(**{name: getattr(options, name) for name in names}),
            data=options.data,
            on_start=start,
            on_part=on_progress,
            on_note=on_note,
            stop=stop,
        )

    command = shlex.join(["churn-jax", "diversity", *argv])
    return run_command(
        # A finished study is never put aside.
        Launched(out=options.folder, minutes=options.minutes, quiet=options.quiet),
        command,
        progress=_Sections,
        train=compute,
        show=functools.partial(_show, command),
    )


def _show(command: str, folder: Path, seconds: float) -> None:
    from churn_jax.reports.diversity import collect_diversity, write_diversity

    written = write_diversity(folder, command=command)
    print_document(collect_diversity(folder))
    print(f"\n{seconds:.0f} s. Page: {written}")
