"""How far logits move between networks and between ensembles of a finished study.

    python -m experiments.elodi.displacement runs/elodi-displacement --old A --new B

Reads the predictions of a study whose rows have many replicas, forms ensembles of them,
and compares the norm of the logits' displacement with what normal logits would give;
writes tables and figures.
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
from churn_jax.studies.finished import FinishedStudy
from experiments.elodi import displacement_report as report
from experiments.elodi.displacement_features import feature_space
from experiments.elodi.displacement_numbers import DisplacementOptions

PROGRAM = "python -m experiments.elodi.displacement"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(DisplacementOptions):
    """Options of the analysis.

    Attributes:
        folder: folder of a finished study, `runs/<study>`.
        old: row of the old networks, or predictions of any framework, `FILE.npz`.
        new: row of the new networks; default the old row.
        heterogeneous: rows whose networks form mixed ensembles.
        features: compare features too: the row whose last layer classifies the
            features of both rows, which were trained with `BackwardCompatible` against
            it.
        out: folder of page and figures; default `displacement` in the study's.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    old: str
    new: str = ""
    heterogeneous: tuple[str, ...] = ()
    features: str = ""
    out: Path | None = None


def displacement(argv: Sequence[str]) -> int:
    """Computes, writes the page and prints the tables."""
    asked = read_options(Arguments, argv, prog=PROGRAM, description=__doc__)
    names = [field.name for field in dataclasses.fields(DisplacementOptions)]
    options = DisplacementOptions(**{name: getattr(asked, name) for name in names})
    new, space = asked.new or asked.old, None
    if asked.features:
        study = FinishedStudy(asked.folder)
        space = feature_space(study, asked.features, (asked.old, new))
    found = report.displacement_report(
        asked.folder,
        asked.old,
        new,
        options,
        heterogeneous=asked.heterogeneous,
        space=space,
        on_part=lambda part: print(f"{part}: done"),
    )
    out = asked.out or asked.folder / "displacement"
    command = f"{PROGRAM} {shlex.join(argv)}"
    written = report.write_displacement(found, out, command=command)
    print_document(report.displacement_document(found).as_lines())
    print(f"\nPage: {written}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code, 2 for bad input."""
    words, verbose = words_of(argv, "displacement")
    return run(lambda: displacement(words), "displacement", verbose)


if __name__ == "__main__":
    sys.exit(main())
