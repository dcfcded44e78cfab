"""Page, tables and files of `churn-jax displacement`."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from churn_jax.analysis import UpdatesBySize
from churn_jax.predictions import replace_file
from churn_jax.reports import displacement_plots as plots
from churn_jax.reports.artefacts import StudyInfo, read_study
from churn_jax.reports.displacement_example import two_class_figure, two_classes
from churn_jax.reports.displacement_numbers import (
    FEWEST_NETWORKS,
    Comparison,
    DisplacementOptions,
    compare_rows,
    read_networks,
    updates_of_mixture,
)
from churn_jax.reports.page import (
    figures_section,
    header,
    mapping,
    page,
    run_section,
    scrolling_table,
)

__all__ = [
    "DisplacementReport",
    "displacement_report",
    "parts_of",
    "print_displacement",
    "write_displacement",
]

FIT_HEADS = (
    "Members",
    "Mean norm",
    "Simulated",
    "KS distance",
    "If normal",
    "p",
    "Images with p ≤ 0.05",
)
RATE_HEADS = ("Members", "ER old %", "ER new %", "NFR %", "Relative NFR %")
CLEAR = 0.05
MIXTURE = "Heterogeneous"


@dataclasses.dataclass(frozen=True, eq=False)
class DisplacementReport:
    """Everything that is printed, drawn and written.

    Attributes:
        study: whose predictions they are.
        options: what was computed.
        comparisons: of the old row with itself, and with the new one.
        mixture: updates between heterogeneous ensembles; None if not asked for.
        mixed: labels of their rows.
        classes: how many of the classes all rows know.
        examples: how many were compared.
        pictures: figures; empty if none were drawn.
    """

    study: StudyInfo
    options: DisplacementOptions
    comparisons: tuple[Comparison, ...]
    mixture: UpdatesBySize | None
    mixed: tuple[str, ...]
    classes: int
    examples: int
    pictures: tuple[plots.Picture, ...]

    @property
    def updates(self) -> dict[str, UpdatesBySize]:
        """Label to error and flip rates, the mixture last."""
        found = {c.label: c.updates for c in self.comparisons}
        return found if self.mixture is None else found | {MIXTURE: self.mixture}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know before the numbers."""
        fewest = min(min(c.networks) for c in self.comparisons)
        if fewest >= FEWEST_NETWORKS:
            return ()
        return (
            f"{fewest} networks of a kind are few: a test on fewer than "
            f"{FEWEST_NETWORKS} finds only coarse departures from normal logits.",
        )


def parts_of(options: DisplacementOptions, *, same: bool) -> int:
    """How often `on_part` is called; `same` if old and new are one row."""
    return (1 + len(options.sizes)) * (1 if same else 2)


def displacement_report(
    run_dir,
    old: str,
    new: str,
    options: DisplacementOptions,
    *,
    heterogeneous: Sequence[str] = (),
    draw: bool = True,
    on_part: Callable[[str], None] = lambda part: None,
) -> DisplacementReport:
    """Compares the networks of two rows.

    Args:
        run_dir: the folder of a study.
        old: a row, or the path of predictions of any framework.
        new: another, or the same for one kind of network alone.
        options: what to compute.
        heterogeneous: rows whose networks form mixed ensembles; none leaves them out.
        draw: whether to draw figures.
        on_part: told of every part that is done.

    Raises:
        ReportError: there is no usable study or row, or it has too few networks.
        PredictionsError: predictions cannot be read or compared.
    """
    study = read_study(run_dir)
    networks = read_networks(study, list(dict.fromkeys([old, new, *heterogeneous])))
    others = [None] if old == new else [None, networks[new]]
    mixture = None
    if heterogeneous:  # before the long part, which a wrong row would spoil
        mixture = updates_of_mixture([networks[r] for r in heterogeneous], options)
    found = tuple(compare_rows(networks[old], x, options, on_part) for x in others)
    report = DisplacementReport(
        study=study,
        options=options,
        comparisons=found,
        mixture=mixture,
        mixed=tuple(networks[row].label for row in heterogeneous),
        classes=len(networks[old].classes),
        examples=len(networks[old].labels),
        pictures=(),
    )
    if not draw:
        return report
    pictures = [plots.errors_and_flips(report.updates)]
    for letter, other, comparison in zip("ab", others, found, strict=False):
        pictures.append(
            two_class_figure(
                two_classes(networks[old], other),
                name=f"figure3{letter}",
                label=comparison.label,
                draws=options.draws,
                seed=options.seed,
            )
        )
        pictures.append(plots.flip_ranks(comparison, f"figure4{letter}"))
        pictures.append(plots.norm_histograms(comparison, f"figure5{letter}"))
        pictures.append(plots.top_shares(comparison, f"top-classes-{letter}"))
    return dataclasses.replace(report, pictures=tuple(pictures))


def _tables(report: DisplacementReport) -> dict[str, tuple[tuple, list[tuple]]]:
    """Caption to heads and rows."""
    out: dict[str, tuple[tuple, list[tuple]]] = {}
    for found in report.comparisons:
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
        count = " and ".join(map(str, found.networks))
        out[f"Norm of the displacement, {found.label}, {count} networks"] = (
            FIT_HEADS,
            rows,
        )
    for label, updates in report.updates.items():
        mixed = f" of {', '.join(report.mixed)}" if label == MIXTURE else ""
        out[f"Updates, {label}{mixed}"] = (RATE_HEADS, _rates(updates))
    return out


def _rates(updates: UpdatesBySize) -> list[tuple]:
    kinds = (
        updates.old_error,
        updates.new_error,
        updates.negative_flip_rate,
        updates.relative_negative_flip_rate,
    )
    return [
        (str(size), *(_mean_and_spread(100 * kind[s]) for kind in kinds))
        for s, size in enumerate(updates.sizes)
    ]


def _mean_and_spread(values) -> str:
    values = values[np.isfinite(values)]
    return f"{values.mean():.2f} ± {values.std():.2f}" if values.size else "–"


def _text(report: DisplacementReport) -> tuple[str, ...]:
    options, images = report.options, len(report.comparisons[0].fits[0].p)
    return (
        f"{report.examples:,} test examples, {report.classes} classes; norms on "
        f"{images} evenly spaced images, {options.draws:,} pairs of random ensembles "
        "that share no network, and as many simulated normal displacements whose mean "
        "and covariance come from all single networks.",
        "KS distance: largest difference between the two distributions of the norm, "
        "mean over the images. If normal: its mean where the same procedure is applied "
        f"to as many normal networks, {options.resamples:,} sets of them; p: the share "
        "of those sets with at least such a distance. The networks are the sample, not "
        "the draws. Updates: mean and standard deviation over "
        f"{report.comparisons[0].updates.old_error.shape[1]:,} random updates.",
    )


def write_displacement(report: DisplacementReport, out, *, command: str = "") -> Path:
    """Writes the page, its text as Markdown, the numbers as JSON, and all figures.

    Args:
        report: with its pictures.
        out: the folder; it is made.
        command: shown on the page.

    Returns:
        The path of the page.

    Raises:
        OSError: a file could not be written; an earlier one is left as it was.
    """
    out = Path(out)
    files = {
        "displacement.html": _page(report, command).encode(),
        "displacement.md": _markdown(report).encode(),
        "displacement.json": json.dumps(_numbers(report), indent=1).encode(),
    }
    for picture in report.pictures:
        plain = picture.svg.replace("currentColor", "#1c1e21")
        files[f"{picture.name}.svg"] = plain.encode()
        files[f"{picture.name}.png"] = picture.png
    for name, content in files.items():
        with replace_file(out / name) as file:
            file.write(content)
    return out / "displacement.html"


def _title(report: DisplacementReport) -> str:
    return f"{report.study.title}: how far logits move"


def _page(report: DisplacementReport, command: str) -> str:
    facts = report.study.facts
    runs = f"{facts['replicas']} runs per method" if "replicas" in facts else None
    name = mapping(facts.get("data")).get("name")
    parts = (facts.get("date"), name, runs, facts.get("hardware"))
    numbers = ["<section><h2>Numbers</h2>"]
    numbers += [f'<p class="note">{escape(text)}</p>' for text in report.remarks]
    numbers += [f'<p class="soft">{escape(text)}</p>' for text in _text(report)]
    for caption, (heads, rows) in _tables(report).items():
        numbers.append(f"<h3>{escape(caption)}</h3>")
        numbers.append(scrolling_table(heads, rows, "plain"))
    return page(
        _title(report),
        (
            header(_title(report), parts, command),
            "\n".join([*numbers, "</section>"]),
            figures_section((p.svg, p.title, p.caption) for p in report.pictures),
            run_section(facts, {"Runs per method": facts.get("replicas")}),
        ),
    )


def _markdown(report: DisplacementReport) -> str:
    lines = [f"# {_escaped(_title(report))}", ""]
    lines += [f"{_escaped(text)}\n" for text in (*report.remarks, *_text(report))]
    for caption, (heads, rows) in _tables(report).items():
        lines += ["", _escaped(caption), ""]
        lines.append("| " + " | ".join(heads) + " |")
        lines.append("|:--|" + "--:|" * (len(heads) - 1))
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    for character in "\\|<*_`[~":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())


def _numbers(report: DisplacementReport) -> dict:
    """All numbers of the tables and figures but the norms themselves."""
    return {
        "options": dataclasses.asdict(report.options),
        "examples": report.examples,
        "classes": report.classes,
        "comparisons": [_comparison(found) for found in report.comparisons],
        "heterogeneous": None
        if report.mixture is None
        else {"rows": list(report.mixed), "updates": _plain(report.mixture)},
    }


def _comparison(found: Comparison) -> dict:
    return {
        "label": found.label,
        "networks": list(found.networks),
        "fits": [_plain(fit) for fit in found.fits],
        "updates": _plain(found.updates),
        "flip_ranks": {str(m): counts.tolist() for m, counts in found.ranks.items()},
        "top_classes": {
            "top": found.top.top.tolist(),
            "shares": {str(m): x.tolist() for m, x in found.top.shares.items()},
        },
    }


def _plain(record) -> Mapping:
    """A dataclass of numbers and arrays as JSON takes it."""
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return {
        k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in fields.items()
    }


def print_displacement(
    report: DisplacementReport, console: Console | None = None
) -> None:
    """The tables in the terminal.

    Args:
        report: from `displacement_report`.
        console: where to; the standard output by default.
    """
    console = console or Console()
    for remark in report.remarks:
        console.print(Text(remark, style="yellow"))
    for caption, (heads, rows) in _tables(report).items():
        shown = RichTable(title=Text(caption))
        for i, head in enumerate(heads):
            shown.add_column(head, justify="right" if i else "left")
        for cells in rows:
            shown.add_row(*map(Text, cells))
        console.print(shown)
