"""`churn-jax displacement RUN`: how far logits move between networks and ensembles."""

import dataclasses
import itertools
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from churn_compare.documents import print_document
from churn_jax.command.options import read_options

DESCRIPTION = (
    "Reads the predictions of a finished study whose rows have many replicas, forms "
    "ensembles of them, and compares the norm of the logits' displacement with what "
    "normal logits would give; writes tables and figures."
)


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Options of the analysis.

    Attributes:
        folder: folder of a finished study, `runs/<study>`.
        old: row of the old networks, or predictions of any framework, `FILE.npz`.
        new: row of the new networks; default the old row.
        heterogeneous: rows, with commas, whose networks form mixed ensembles.
        features: compare features too: the row whose last layer classifies the
            features of both rows, which were trained with `BackwardCompatible` against
            it.
        images: test images, evenly spaced, whose norms are tested.
        sizes: members of ensembles, with commas, increasing.
        draws: number of pairs of ensembles.
        resamples: sets of normal networks drawn for a p-value.
        seed: seed of all draws.
        out: folder of page and figures; default `displacement` in the study's.
        quiet: show no progress, only warnings and the tables.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    old: str
    new: str = ""
    heterogeneous: str = ""
    features: str = ""
    images: int = 8
    sizes: str = "1,2,4,8"
    draws: int = 10_000
    resamples: int = 200
    seed: int = 0
    out: Path | None = None
    quiet: bool = False


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ValueError(
            f"--sizes must be whole numbers with commas, such as 1,2,4; got {text!r}"
        ) from None


def _feature_space(folder: Path, reference: str, old: str, new: str):
    from churn_jax.studies.diversity.networks import feature_space
    from churn_jax.studies.finished import FinishedStudy

    return feature_space(FinishedStudy(folder), reference, (old, new))


def displacement(argv: Sequence[str]) -> int:
    """Computes, writes the page and prints the tables; returns the exit code."""
    arguments = read_options(
        Arguments, argv, prog="churn-jax displacement", description=DESCRIPTION
    )
    from churn_jax.reports import displacement as report
    from churn_jax.reports.displacement_numbers import DisplacementOptions
    from churn_jax.training.progress import Display, Work

    options = DisplacementOptions(
        images=arguments.images,
        sizes=_sizes(arguments.sizes),
        draws=arguments.draws,
        resamples=arguments.resamples,
        seed=arguments.seed,
    )
    began = time.perf_counter()
    new = arguments.new or arguments.old
    space = None
    if arguments.features:
        space = _feature_space(arguments.folder, arguments.features, arguments.old, new)
    with Display(quiet=arguments.quiet) as shown:
        total = report.parts_of(options, same=new == arguments.old)
        shown.work(Work("displacement", "reading", 0, total, "parts"))
        parts = itertools.count(1)
        found = report.displacement_report(
            arguments.folder,
            arguments.old,
            new,
            options,
            heterogeneous=[row for row in arguments.heterogeneous.split(",") if row],
            space=space,
            on_part=lambda part: shown.work(
                Work("displacement", part, next(parts), total, "parts")
            ),
        )
    out = arguments.out or arguments.folder / "displacement"
    command = shlex.join(["churn-jax", "displacement", *argv])
    written = report.write_displacement(found, out, command=command)
    print_document(report.displacement_document(found))
    print(f"\n{time.perf_counter() - began:.0f} s. Page: {written}")
    return 0
