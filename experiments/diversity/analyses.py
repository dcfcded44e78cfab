"""How much the members of a finished study's ensembles differ, and where.

    python -m experiments.diversity.analyses runs/dm-digits --section teachers students

Sections: teachers, students, jacobians and matching, which are the default; ood, with
--ood, and corruptions. Tables and figures are in `diversity/` of the study's folder.
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from churn_compare.command_line import run, words_of
from churn_compare.documents import (
    Document,
    Records,
    Table,
    csv_text,
    print_document,
    write_files,
)
from churn_compare.option_list import read_options
from churn_jax import analysis
from churn_jax.data import is_tokens
from churn_jax.reports.estimates import over_runs
from churn_jax.reports.quantities import estimate_fields, plus_minus
from churn_jax.studies.study import FinishedStudy
from experiments.diversity import report_figures as plots
from experiments.diversity.jacobians import similarity_roc
from experiments.diversity.sections import (
    SHARES,
    Spread,
    corruptions,
    foreign,
    matching,
    similarities,
    students,
    teachers,
)
from experiments.diversity.study import AnalysedStudy, DiversityOptions

PROGRAM = "python -m experiments.diversity.analyses"
SECTIONS: Mapping[str, Callable[[AnalysedStudy], dict[str, Any]]] = {
    "teachers": teachers,
    "students": students,
    "jacobians": similarities,
    "matching": matching,
    "ood": foreign,
    "corruptions": corruptions,
}
# Sections that move pixels or differentiate in them.
OF_PIXELS = ("teachers", "jacobians", "matching", "corruptions")
NOTHING = {
    "teachers": "no row that has finished teaches another with several networks",
    "students": "no row that has finished has several members",
    "jacobians": "no row that has finished has as many members as its teacher",
    "matching": "no row that has finished is distilled one to one on clean images",
}


def teacher_rows(found: Mapping[str, Mapping[str, Spread]], tau: float) -> list[dict]:
    """One row per ensemble of teachers and kind of images."""
    return [
        {"label": kind, "temperature": tau}
        | _over_runs("kl", spread.mean_kl)
        | _over_runs("times", spread.mean_kl / kinds["clean"].mean_kl)
        for kinds in found.values()
        for kind, spread in kinds.items()
    ]


def student_rows(
    found: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str], baseline: str
) -> list[dict]:
    """One row per method that has any of these numbers, also against the baseline."""
    values: dict[str, dict[str, np.ndarray]] = {}  # by row and name, `[R]`

    def put(row: str, **numbers) -> None:
        values.setdefault(row, {}).update(numbers)

    cosines = found.get("jacobians", {})
    for row, cosine in cosines.items():
        put(row, cosine=cosine.mean(axis=(1, 2)))
    for row, curves in _rocs(cosines, baseline).items():
        put(row, auc=np.array([curve.auc for curve in curves]))
    for row, ratio in found.get("matching", {}).items():
        times = ratio["ods"] / ratio["gaussian"]
        put(row, snr_gaussian=ratio["gaussian"], snr_ods=ratio["ods"], snr_times=times)
    for row, numbers in found.get("ood", {}).items():
        put(row, entropy_in=numbers.inside.mean(axis=-1))
        put(row, entropy_out=numbers.outside.mean(axis=-1))
        put(row, auroc_entropy=numbers.auroc)
    for row, summary in found.get("corruptions", {}).items():
        names = ("accuracy", "nll", "ece")
        put(row, **{f"corrupted_{name}": summary.mean(name) for name in names})
    for row, spread in found.get("students", {}).items():
        put(row, kl=spread.mean_kl)
    base = values.get(baseline, {})
    rows = []
    for name in values:
        line: dict[str, Any] = {"label": labels[name]}
        for what, numbers in values[name].items():
            line |= _over_runs(what, numbers)
            if what in base and name != baseline:
                test = analysis.paired_t_test(numbers, base[what])
                line |= {f"delta_{what}": test.difference}
                line |= {f"delta_{what}_stderr": test.stderr, f"delta_{what}_p": test.p}
        rows.append(line)
    return rows


def _over_runs(name: str, values: np.ndarray) -> dict[str, float]:
    return estimate_fields(name, over_runs(np.asarray(values, np.float64)))


def _rocs(cosines: Mapping[str, np.ndarray], scratch: str) -> dict[str, list]:
    """By row, a curve per run against the same run of the row from scratch."""
    if scratch not in cosines:
        return {}
    return {
        row: [
            similarity_roc(one.ravel(), other.ravel())
            for one, other in zip(found, cosines[scratch], strict=True)
        ]
        for row, found in cosines.items()
        if row != scratch
    }


def figures(
    section: str, found: Mapping[str, Any], labels: Mapping[str, str], scratch: str
) -> dict[str, str]:
    """SVG texts by the name of the file."""
    named = {labels.get(row, row): value for row, value in found.items()}
    if section == "students":
        return _of_spreads(section, "test images", named)
    if section == "teachers":
        drawn = {}
        for row, kinds in found.items():
            drawn |= _of_spreads(row, labels.get(row, row), kinds)
        return drawn
    if section == "jacobians":
        cuts = {
            label: np.percentile(of, SHARES, axis=(1, 2)).T
            for label, of in named.items()
        }
        what = "Cosine of the Jacobians of teacher and student"
        drawn = {"jacobians": plots.boxes(cuts, what, what, log=False)}
        rocs = {labels[row]: curves for row, curves in _rocs(found, scratch).items()}
        if rocs:
            drawn["jacobian_rocs"] = plots.roc_curves(rocs, labels[scratch])
        return drawn
    if section == "matching":
        drawn = plots.ratios(named, "Signal-to-noise ratio of the gradient")
    elif section == "ood":
        drawn = plots.entropy_histograms(named, "foreign images")
    else:
        drawn = plots.corruption_boxes(named)
    return {section: drawn}


def _of_spreads(name: str, what: str, spreads: Mapping[str, Spread]) -> dict[str, str]:
    cuts = {label: spread.box for label, spread in spreads.items()}
    axis, about = "Pairwise KL, nats, log scale", f"Pairwise KL, {what}"
    return {
        f"{name}_kl": plots.boxes(cuts, axis, about, log=True),
        f"{name}_kl_by_confidence": plots.diversity_by_confidence(spreads, what),
    }


def run_diversity(
    study: FinishedStudy,
    sections: Sequence[str],
    options: DiversityOptions = DiversityOptions(),
    on_note: Callable[[str], None] = print,
) -> dict[str, list[dict]]:
    """Computes sections and writes tables and figures; returns the tables by name.

    Files are written after every section: what was computed is kept if a later one
    fails. `on_note` is called with sentences for the user.
    """
    for section in sections:
        if section not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise ValueError(f"there is no section {section!r}; known: {known}")
    if "ood" in sections and not options.ood:
        raise ValueError("the section ood needs --ood, the name of another data set")
    analysed = AnalysedStudy(study, options)
    tokens = is_tokens(analysed.dataset.test.images)
    out, baseline = study.out / "diversity", study.config.baseline
    labels = {spec.name: spec.label for spec in study.config.methods}
    found: dict[str, dict[str, Any]] = {}
    tables: dict[str, list[dict]] = {}
    for section in (s for s in SECTIONS if s in sections):
        if tokens and section in OF_PIXELS:
            on_note(f"{section}: it needs pixels, and token ids have none")
            continue
        found[section] = SECTIONS[section](analysed)
        if not found[section]:
            on_note(f"{section}: {NOTHING.get(section, 'nothing to compute')}")
            continue
        tables = {
            "teachers": teacher_rows(found.get("teachers", {}), options.temperature),
            "students": student_rows(found, labels, baseline),
        }
        drawn = figures(section, found[section], labels, baseline)
        files = {f"{name}.svg": text for name, text in drawn.items()}
        for name, rows in tables.items():
            if rows:
                fields = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
                files[f"{name}.csv"] = csv_text(Records(fields, rows))
        write_files(out, files)
    return tables


# Columns of the printed tables: the title, whose rows they are, the columns.
PRINTED = (
    ("Teachers", "teachers", ("kl", "times")),
    ("Members", "students", ("kl",)),
    ("Jacobians", "students", ("cosine", "auc", "snr_gaussian", "snr_ods")),
    ("Foreign images", "students", ("entropy_in", "entropy_out", "auroc_entropy")),
    (
        "Corrupted images",
        "students",
        ("corrupted_accuracy", "corrupted_nll", "corrupted_ece"),
    ),
)


def _shown(title: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]):
    """Means ± standard deviations over runs, of rows that have any."""
    heads = [name for name in names if any(name in row for row in rows)]

    def cell(row: Mapping[str, Any], name: str) -> str:
        return plus_minus(row[name], row[f"{name}_std"], 4) if name in row else "–"

    lines = [
        (row["label"], *(cell(row, name) for name in heads))
        for row in rows
        if any(name in row for name in heads)
    ]
    return Table((title, *heads), lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(DiversityOptions):
    """Options of the analyses.

    Attributes:
        folder: folder of a finished study, `runs/<study>`.
        section: sections to compute.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    section: tuple[str, ...] = ("teachers", "students", "jacobians", "matching")


def analyse(argv: Sequence[str]) -> int:
    """Computes, writes the files and prints the tables."""
    asked = read_options(Arguments, argv, prog=PROGRAM, description=__doc__)
    study = FinishedStudy(asked.folder)
    tables = run_diversity(study, asked.section, asked)
    shown = [_shown(title, of, tables.get(rows, ())) for title, rows, of in PRINTED]
    blocks = [table for table in shown if table.rows]
    print_document(Document(study.config.title, blocks=blocks))
    print(f"\nFigures: {study.out / 'diversity'}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code, 2 for bad input."""
    words, verbose = words_of(argv, "analyses")
    return run(lambda: analyse(words), "analyses", verbose)


if __name__ == "__main__":
    sys.exit(main())
