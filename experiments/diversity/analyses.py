"""How much the members of a finished study's ensembles differ, and where.

    python -m experiments.diversity.analyses runs/dm-digits --section teachers students

Sections: teachers, students, jacobians and matching; ood with --ood, corruptions with
--corruptions. The same command goes on where it was stopped.
"""

import dataclasses
import datetime
import itertools
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from churn_compare.array_files import write_file
from churn_compare.command_line import run, words_of
from churn_compare.documents import Records, csv_text, print_document
from churn_compare.option_list import read_options
from churn_jax import analysis
from churn_jax.data import is_tokens
from churn_jax.studies import DataConfig
from churn_jax.studies.finished import FinishedStudy
from churn_jax.studies.folder import hardware, read_study
from experiments.diversity.jacobian_sections import jacobian_parts, matching_parts
from experiments.diversity.record import SECTIONS, SectionRecord
from experiments.diversity.report import collect_diversity, write_diversity
from experiments.diversity.report_numbers import (
    corruptions_of,
    estimate,
    foreign_of,
    rocs_of,
    similarities_of,
    spreads_of,
)
from experiments.diversity.robustness import corruption_parts, ood_parts
from experiments.diversity.spread import student_parts, teacher_parts
from experiments.diversity.study import AnalysedStudy, DiversityOptions, Part

_PARTS: Mapping[str, Callable[[AnalysedStudy], list[Part]]] = {
    "teachers": teacher_parts,
    "students": student_parts,
    "jacobians": jacobian_parts,
    "matching": matching_parts,
    "ood": ood_parts,
    "corruptions": corruption_parts,
}
# Sections that move pixels or differentiate in them.
_OF_PIXELS = ("teachers", "jacobians", "matching", "corruptions")
# What the numbers of a section depend on, apart from its rows.
_SETTINGS = {
    "teachers": ("examples", "bins", "seed", "temperature"),
    "students": ("examples", "bins", "temperature"),
    "jacobians": ("jacobian_examples",),
    "matching": ("batch", "draws", "seed"),
    "ood": ("examples", "ood"),
    "corruptions": ("examples",),
}
_NOTHING = {
    "teachers": "no row that has finished teaches another with several networks",
    "students": "no row that has finished has several members",
    "jacobians": "no row that has finished has as many members as its teacher",
    "matching": "no row that has finished is distilled one to one on clean images",
}


def run_diversity(
    out: Path,
    sections: tuple[str, ...],
    options: DiversityOptions = DiversityOptions(),
    *,
    data: DataConfig | None = None,
    on_note: Callable[[str], None] = lambda note: None,
    on_part: Callable[[str], None] = lambda key: None,
) -> Path:
    """Computes sections of `SECTIONS`; parts that are there are kept.

    The paper's counts of examples and draws are lost in our copy of its text; those of
    `DiversityOptions` are ours. Directions follow every network in turn, a block of
    examples each, where training draws one network per batch. `on_note` is called with
    sentences for the user, `on_part` with the key of every part that was computed.
    """
    for section in sections:
        if section not in SECTIONS:
            raise ValueError(
                f"there is no section {section!r}; known: {', '.join(SECTIONS)}"
            )
    if "ood" in sections and not options.ood:
        raise ValueError("the section ood needs --ood, the name of another data set")
    analysed = AnalysedStudy(FinishedStudy(out, data), options)
    tokens = is_tokens(analysed.dataset.test.images)
    asked = dataclasses.asdict(options)
    for section in (s for s in SECTIONS if s in sections):
        if tokens and section in _OF_PIXELS:
            on_note(f"{section}: it needs pixels, and token ids have none")
            continue
        settings = {name: asked[name] for name in _SETTINGS[section]}
        if settings.get("temperature") == 1.0:  # as in records without that setting
            del settings["temperature"]
        record = SectionRecord(out, section, settings)
        if record.replaced:
            on_note(f"{record.path} has other settings and is computed again")
        parts = _PARTS[section](analysed)
        if not parts:
            on_note(f"{section}: {_NOTHING.get(section, 'nothing to compute')}")
            continue
        left = [part for part in parts if not record.has(part.key, part.stamp)]
        on_note(f"{section}: {len(parts)} parts, {len(parts) - len(left)} were there")
        for part in left:
            value, array = part.compute()
            now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            facts = {"date": now, "hardware": hardware()}
            record.put(part.key, part.stamp, value, array, facts)
            on_part(part.key)
    return out


def teacher_rows(run: Path) -> list[dict]:
    """One row per kind of images."""
    record = SectionRecord(run, "teachers", None)
    tau = record.settings.get("temperature", 1.0)
    found = []
    for kinds in spreads_of(record).values():
        clean = kinds["clean"]
        for kind, spread in kinds.items():
            same = np.isin(clean.runs, spread.runs)
            row = {
                "label": kind,
                "temperature": tau,
                **_over_runs("kl", spread.mean_kl),
            }
            found.append(
                row | _over_runs("times", spread.mean_kl / clean.mean_kl[same])
            )
    return found


def student_rows(run: Path) -> list[dict]:
    """One row per method that has any of these numbers, also against the baseline."""
    config = read_study(run).config
    values: dict[str, dict[str, np.ndarray]] = {}  # by row and name, one per run

    def put(row: str, name: str, numbers) -> None:
        values.setdefault(row, {})[name] = np.asarray(numbers, np.float64)

    cosines = similarities_of(SectionRecord(run, "jacobians", None))
    for row, runs in cosines.items():
        put(row, "cosine", [found.mean() for found in runs.values()])
    for row, curves in rocs_of(cosines, config.baseline).items():
        put(row, "auc", [curve.auc for curve in curves])
    for row, parts in SectionRecord(run, "matching", None).of_rows().items():
        gaussian, ods = (
            np.array([part[kind]["signal_to_noise"] for part in parts.values()])
            for kind in ("gaussian", "ods")
        )
        put(row, "snr_gaussian", gaussian)
        put(row, "snr_ods", ods)
        put(row, "snr_times", ods / gaussian)
    for row, found in foreign_of(SectionRecord(run, "ood", None)).items():
        for name in ("entropy_in", "entropy_out", "auroc_entropy"):
            put(row, name, getattr(found, name))
    summaries, _ = corruptions_of(SectionRecord(run, "corruptions", None))
    for row, found in summaries.items():
        for name in ("accuracy", "nll", "ece"):
            put(row, f"corrupted_{name}", found.mean(name))
    base = values.get(config.baseline, {})
    rows = []
    for name in values:
        row = {"label": config.spec(name).label}
        for what, numbers in values[name].items():
            row |= _over_runs(what, numbers)
            if what in base and name != config.baseline:
                test = analysis.paired_t_test(numbers, base[what])
                row |= {f"delta_{what}": test.difference}
                row |= {f"delta_{what}_stderr": test.stderr, f"delta_{what}_p": test.p}
        rows.append(row)
    return rows


def _over_runs(name: str, values) -> dict[str, float]:
    found = estimate(values)
    return {name: found.mean, f"{name}_std": found.std, f"{name}_stderr": found.stderr}


def write_numbers(run: Path, out: Path) -> None:
    """Writes `OUT-teachers.csv` and `OUT-students.csv`, which the README quotes."""
    for name, rows in (
        ("teachers", teacher_rows(run)),
        ("students", student_rows(run)),
    ):
        if rows:
            fields = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
            write_file(Path(f"{out}-{name}.csv"), csv_text(Records(fields, rows)))


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
            csv: beginning of the names of CSV files with the numbers that are quoted:
                the KL by kind of images, in nats and as times that on clean training
                images, and Jacobians, foreign and corrupted images by row, also paired
                against the baseline.
            data: where the study's data are now.
        """

        folder: Annotated[
            tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")
        ] = Path()
        section: tuple[str, ...] = ()
        corruptions: bool = False
        csv: Path | None = None
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
    if asked.csv is not None:
        write_numbers(asked.folder, asked.csv)
    print_document(collect_diversity(asked.folder).as_lines())
    print(f"\nReport: {written}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code, 2 for bad input."""
    words, verbose = words_of(argv, "analyses")
    return run(lambda: analyse(words), "analyses", verbose)


if __name__ == "__main__":
    sys.exit(main())
