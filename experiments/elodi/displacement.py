"""How far logits move between networks and between ensembles of a finished study.

    python -m experiments.elodi.displacement runs/elodi-displacement --old A --new B

Reads the predictions of a study whose rows have many replicas, forms ensembles of them,
and compares the norm of the logits' displacement with what normal logits would give;
writes tables and figures.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from churn_compare.command_line import run, words_of
from churn_compare.documents import (
    Document,
    Figure,
    Table,
    Text,
    markdown,
    plain_values,
    print_document,
    write_files,
)
from churn_compare.option_list import read_options
from churn_jax.analysis import UpdatesBySize
from churn_jax.reports.artefacts import Study, read_study
from churn_jax.studies.study import FinishedStudy
from experiments.elodi import displacement_figures as figures
from experiments.elodi.displacement_numbers import (
    FEWEST_NETWORKS,
    Comparison,
    DisplacementOptions,
    FeatureComparison,
    FeatureSpace,
    Norms,
    compare_features,
    compare_rows,
    feature_space,
    read_networks,
    updates_of_mixture,
)

PROGRAM = "python -m experiments.elodi.displacement"
FIT_HEADS = (
    "Members",
    "Mean norm",
    "Simulated",
    "KS distance",
    "If normal",
    "p",
    "Images with p ≤ 0.05",
)
AGREEMENT_HEADS = ("Row", "Same class as mean logits %", "Relative distance")
RATE_HEADS = ("Members", "ER old %", "ER new %", "NFR %", "Relative NFR %")
CLEAR = 0.05
MIXTURE = "Heterogeneous"


@dataclasses.dataclass(frozen=True, eq=False)
class DisplacementReport:
    """Everything that is printed, drawn and written."""

    study: Study  # whose predictions they are
    options: DisplacementOptions  # what was computed
    # of the old row with itself, and with the new one
    comparisons: tuple[Comparison, ...]
    # updates between heterogeneous ensembles; None if not asked for
    mixture: UpdatesBySize | None
    mixed: tuple[str, ...]  # labels of their rows
    features: FeatureComparison | None  # None if not asked for
    classes: int  # how many of the classes all rows know
    examples: int  # how many were compared

    @property
    def updates(self) -> dict[str, UpdatesBySize]:
        """Label to error and flip rates, the mixture last."""
        found = {c.label: c.updates for c in self.comparisons}
        return found if self.mixture is None else found | {MIXTURE: self.mixture}


def displacement_report(
    run_dir,
    old: str,
    new: str,
    options: DisplacementOptions,
    *,
    heterogeneous: Sequence[str] = (),
    space: FeatureSpace | None = None,
    on_part: Callable[[str], None] = lambda part: None,
) -> DisplacementReport:
    """Compares the networks of two rows; `on_part` is called after every part."""
    study = read_study(run_dir)
    networks = read_networks(study, list(dict.fromkeys([old, new, *heterogeneous])))
    others = [None] if old == new else [None, networks[new]]
    mixture = features = None
    if heterogeneous:  # before the long part, which a wrong row would spoil
        mixture = updates_of_mixture([networks[r] for r in heterogeneous], options)
    if space is not None:
        rows = list(dict.fromkeys([old, new]))
        features = compare_features(space, networks, rows, options, on_part)
    found = tuple(compare_rows(networks[old], x, options, on_part) for x in others)
    return DisplacementReport(
        study=study,
        options=options,
        comparisons=found,
        mixture=mixture,
        mixed=tuple(networks[row].label for row in heterogeneous),
        features=features,
        classes=len(networks[old].classes),
        examples=len(networks[old].labels),
    )


def figures_of(report: DisplacementReport) -> Iterator[Figure]:
    """The paper's Figures 2 to 5 and 8 to 12, and one of Eq. 5."""
    draws = report.options.draws, report.options.seed
    yield figures.errors_and_flips(report.updates)
    for letter, found in zip("ab", report.comparisons, strict=False):
        yield figures.plane_figure(found.plane, found.label, f"figure3{letter}", *draws)
        yield figures.flip_ranks(found, f"figure4{letter}")
        yield figures.norm_histograms(found, f"figure5{letter}")
        yield figures.top_shares(found, f"top-classes-{letter}")
    if (features := report.features) is not None:
        label = features.norms[-1].label
        if features.plane is not None:
            yield figures.plane_figure(features.plane, label, "figure11", *draws)
        for letter, norms in zip("ab", features.norms, strict=False):
            yield figures.norm_histograms(norms, f"figure12{letter}")


def displacement_document(report: DisplacementReport) -> Document:
    """Remarks, what the numbers are, and tables."""
    blocks: list = []
    fewest = min(min(c.networks) for c in report.comparisons)
    if fewest < FEWEST_NETWORKS:
        remark = (
            f"{fewest} networks of a kind are few: a test on fewer than "
            f"{FEWEST_NETWORKS} finds only coarse departures from normal logits."
        )
        blocks.append(Text(remark, "note"))
    features = report.features
    if features is not None and not features.space.one_reference:
        remark = (
            f"{features.space.reference} has replicas that differ, so the features of "
            "other rows live in several spaces; fix its seeds."
        )
        blocks.append(Text(remark, "note"))
    options, images = report.options, len(report.comparisons[0].fits[0].p)
    about = (
        f"{report.examples:,} test examples, {report.classes} classes; norms on "
        f"{images} evenly spaced images, {options.draws:,} pairs of random ensembles "
        "that share no network, and as many simulated normal displacements whose mean "
        "and covariance come from all single networks. KS distance: largest difference "
        "between the two distributions, mean over the images. If normal: its mean over "
        f"{options.resamples:,} sets of as many normal networks; p: the share of those "
        "sets with at least such a distance. Updates: mean and standard deviation over "
        f"{report.comparisons[0].updates.old_error.shape[1]:,} random updates."
    )
    blocks.append(Text(about))
    blocks += [_fits(found) for found in report.comparisons]
    if features is not None:
        blocks += [_fits(norms) for norms in features.norms]
        title = f"Mean features under the last layer of {features.space.reference}"
        rows = [
            (label, f"{100 * x.agreement:.2f}", f"{x.relative_distance:.3f}")
            for label, x in features.agreement.items()
        ]
        blocks.append(Table(AGREEMENT_HEADS, rows, title))
    for label, updates in report.updates.items():
        mixed = f" of {', '.join(report.mixed)}" if label == MIXTURE else ""
        blocks.append(Table(RATE_HEADS, _rates(updates), f"Updates, {label}{mixed}"))
    title = f"{report.study.config.title}: how far logits move"
    return Document(title, blocks=blocks)


def _fits(found: Norms) -> Table:
    rows = [
        (
            str(fit.size),
            f"{fit.observed.mean():.4g}",
            f"{fit.simulated.mean():.4g}",
            f"{fit.mean_distance:.3f}",
            f"{fit.expected_distance:.3f}",
            f"{fit.mean_p:.3f}",
            f"{np.sum(fit.p <= CLEAR)} of {len(fit.p)}",
        )
        for fit in found.fits
    ]
    networks = " and ".join(map(str, found.networks))
    title = f"How far {found.what} move, {found.label}, {networks} networks"
    return Table(FIT_HEADS, rows, title)


def _rates(updates: UpdatesBySize) -> list[tuple]:
    def cell(values) -> str:
        values = 100 * values[np.isfinite(values)]
        return f"{values.mean():.2f} ± {values.std():.2f}" if values.size else "–"

    kinds = (
        updates.old_error,
        updates.new_error,
        updates.negative_flip_rate,
        updates.relative_negative_flip_rate,
    )
    return [
        (str(size), *(cell(kind[s]) for kind in kinds))
        for s, size in enumerate(updates.sizes)
    ]


def write_displacement(
    report: DisplacementReport, pictures: Iterable[Figure], out
) -> Path:
    """Writes the tables as Markdown, all numbers as JSON, and the figures."""
    files: dict[str, str | bytes] = {
        "displacement.md": markdown(displacement_document(report)),
        "displacement.json": json.dumps(plain_values(_record(report)), indent=1),
    }
    for picture in pictures:
        svg = str(picture.svg).replace("currentColor", "#1c1e21")
        files |= {f"{picture.name}.svg": svg, f"{picture.name}.png": picture.png}
    return write_files(out, files)["displacement.md"]


def _record(report: DisplacementReport) -> dict:
    """All numbers of the tables and figures but the norms themselves."""
    features = report.features

    def fits(found: Norms) -> dict:
        return {name: getattr(found, name) for name in ("label", "networks", "fits")}

    return {
        "options": report.options,
        "examples": report.examples,
        "classes": report.classes,
        "comparisons": [
            {
                **fits(found),
                "updates": found.updates,
                "flip_ranks": found.ranks,
                "top_classes": {"top": found.top, "shares": found.shares},
            }
            for found in report.comparisons
        ],
        "heterogeneous": report.mixture
        and {"rows": report.mixed, "updates": report.mixture},
        "features": features
        and {
            "reference": features.space.reference,
            "norms": [fits(norms) for norms in features.norms],
            "agreement": features.agreement,
        },
    }


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
        out: folder of tables and figures; default `displacement` in the study's.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    old: str
    new: str = ""
    heterogeneous: tuple[str, ...] = ()
    features: str = ""
    out: Path | None = None


def displacement(argv: Sequence[str]) -> int:
    """Computes, writes tables and figures, and prints the tables."""
    asked = read_options(Arguments, argv, prog=PROGRAM, description=__doc__)
    names = [field.name for field in dataclasses.fields(DisplacementOptions)]
    options = DisplacementOptions(**{name: getattr(asked, name) for name in names})
    new, space = asked.new or asked.old, None
    if asked.features:
        study = FinishedStudy(asked.folder)
        space = feature_space(study, asked.features, (asked.old, new))
    found = displacement_report(
        asked.folder,
        asked.old,
        new,
        options,
        heterogeneous=asked.heterogeneous,
        space=space,
        on_part=lambda part: print(f"{part}: done"),
    )
    out = asked.out or asked.folder / "displacement"
    written = write_displacement(found, figures_of(found), out)
    print_document(displacement_document(found).as_lines())
    print(f"\nTables and figures: {written.parent}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code, 2 for bad input."""
    words, verbose = words_of(argv, "displacement")
    return run(lambda: displacement(words), "displacement", verbose)


if __name__ == "__main__":
    sys.exit(main())
