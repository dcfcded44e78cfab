"""How much the members of a finished study's ensembles differ, and where.

    python -m experiments.diversity.analyses runs/dm-digits --section teachers students

Sections: teachers, students, jacobians and matching; ood with --ood, corruptions with
--corruptions. The same command goes on where it was stopped.
"""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from churn_compare.command_line import run, words_of
from churn_compare.documents import print_document
from churn_compare.option_list import read_options
from churn_jax.studies import DataConfig
from churn_jax.studies.folder import read_study
from experiments.diversity.report import collect_diversity, write_diversity
from experiments.diversity.run import run_diversity
from experiments.diversity.study import DiversityOptions

PROGRAM = "python -m experiments.diversity.analyses"


def _arguments(default: DataConfig) -> type:
    """The options as a dataclass; `default` says where the study's data were."""

    @dataclasses.dataclass(frozen=True)
    class Arguments(DiversityOptions):
        """Options of the analyses.

        Attributes:
            folder: folder of a finished study, `runs/<study>`.
            section: compute these sections only.
            corruptions: corrupt the test images too.
            data: where the study's data are now.
        """

        folder: Annotated[
            tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")
        ] = Path()
        section: tuple[str, ...] = ()
        corruptions: bool = False
        data: DataConfig = default

    return Arguments


def analyse(argv: Sequence[str]) -> int:
    """Computes, writes the page and prints the tables."""
    folders = [word for word in argv[:1] if not word.startswith("-")]
    if not folders and not {"-h", "--help"} & set(argv):
        raise ValueError("the folder of a finished study comes first")
    data = read_study(Path(folders[0])).config.data if folders else DataConfig()
    asked = read_options(_arguments(data), argv, prog=PROGRAM, description=__doc__)
    sections = asked.section
    if not sections:
        more = {"ood": asked.ood, "corruptions": asked.corruptions}
        sections = ("teachers", "students", "jacobians", "matching")
        sections += tuple(name for name, wanted in more.items() if wanted)
    names = [field.name for field in dataclasses.fields(DiversityOptions)]
    run_diversity(
        asked.folder,
        sections,
        DiversityOptions(**{name: getattr(asked, name) for name in names}),
        data=asked.data,
        on_note=print,
    )
    command = f"{PROGRAM} {shlex.join(argv)}"
    written = write_diversity(asked.folder, command=command)
    print_document(collect_diversity(asked.folder).as_lines())
    print(f"\nReport: {written}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code, 2 for bad input."""
    words, verbose = words_of(argv, "analyses")
    return run(lambda: analyse(words), "analyses", verbose)


if __name__ == "__main__":
    sys.exit(main())
