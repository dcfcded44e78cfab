"""Page and files of `churn-jax displacement`; tables are in `displacement_tables`."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from churn_jax.escaping import escape, markdown_text, terminal_text
from churn_jax.predictions import replace_file
from churn_jax.reports import displacement_plots as plots
from churn_jax.reports.artefacts import read_study
from churn_jax.reports.displacement_example import (
    plane_figure,
    two_classes,
    two_features,
)
from churn_jax.reports.displacement_features import FeatureSpace, compare_features
from churn_jax.reports.displacement_norms import DisplacementOptions, Norms
from churn_jax.reports.displacement_numbers import (
    Comparison,
    compare_rows,
    read_networks,
    updates_of_mixture,
)
from churn_jax.reports.displacement_tables import DisplacementReport, tables, texts
from churn_jax.reports.page import (
    figures_section,
    header,
    page,
    run_section,
    scrolling_table,
)

__all__ = [
    "displacement_report",
    "parts_of",
    "print_displacement",
    "write_displacement",
]


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
    space: FeatureSpace | None = None,
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
        space: features of the two rows; None leaves them out.
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
    features = None
    if space is not None:
        features = compare_features(space, networks, old, new, options)
    report = DisplacementReport(
        study=study,
        options=options,
        comparisons=found,
        mixture=mixture,
        mixed=tuple(networks[row].label for row in heterogeneous),
        features=features,
        classes=len(networks[old].classes),
        examples=len(networks[old].labels),
        pictures=(),
    )
    if not draw:
        return report
    pictures = [plots.errors_and_flips(report.updates)]
    for letter, other, comparison in zip("ab", others, found, strict=False):
        pictures.append(
            plane_figure(
                two_classes(networks[old], other),
                name=f"figure3{letter}",
                label=comparison.label,
                draws=options.draws,
                seed=options.seed,
            )
        )
        pictures.append(plots.flip_ranks(comparison, f"figure4{letter}"))
        pictures.append(plots.norm_histograms(comparison.norms, f"figure5{letter}"))
        pictures.append(plots.top_shares(comparison, f"top-classes-{letter}"))
    if space is not None and len(space.kernel) == 2:
        pictures.append(
            plane_figure(
                two_features(space, networks, old, new),
                name="figure11",
                label=found[-1].label,
                draws=options.draws,
                seed=options.seed,
            )
        )
    for letter, norms in zip("ab", features.norms if features else (), strict=False):
        name = f"figure12{letter}"
        pictures.append(plots.norm_histograms(norms, name, "features"))
    return dataclasses.replace(report, pictures=tuple(pictures))


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
    record, launch = report.study.record, report.study.record.launch
    runs = f"{report.study.replicas} runs per method"
    parts = (launch.date, record.data.name, runs, launch.hardware)
    numbers = ["<section><h2>Numbers</h2>"]
    numbers += [f'<p class="note">{escape(text)}</p>' for text in report.remarks]
    numbers += [f'<p class="soft">{escape(text)}</p>' for text in texts(report)]
    for caption, (heads, rows) in tables(report).items():
        numbers.append(f"<h3>{escape(caption)}</h3>")
        numbers.append(scrolling_table(heads, rows, "plain"))
    return page(
        _title(report),
        (
            header(_title(report), parts, command),
            "\n".join([*numbers, "</section>"]),
            figures_section((p.svg, p.title, p.caption) for p in report.pictures),
            run_section(record, {"Runs per method": report.study.replicas}),
        ),
    )


def _markdown(report: DisplacementReport) -> str:
    lines = [f"# {markdown_text(_title(report))}", ""]
    lines += [f"{markdown_text(text)}\n" for text in (*report.remarks, *texts(report))]
    for caption, (heads, rows) in tables(report).items():
        lines += ["", markdown_text(caption), ""]
        lines.append("| " + " | ".join(heads) + " |")
        lines.append("|:--|" + "--:|" * (len(heads) - 1))
        lines += ["| " + " | ".join(map(markdown_text, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


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
        "features": None
        if report.features is None
        else {
            "reference": report.features.reference,
            "norms": [_norms(norms) for norms in report.features.norms],
            "agreement": {
                label: found._asdict()
                for label, found in report.features.agreement.items()
            },
        },
    }


def _norms(norms: Norms) -> dict:
    return {
        "label": norms.label,
        "networks": list(norms.networks),
        "fits": [_plain(fit) for fit in norms.fits],
    }


def _comparison(found: Comparison) -> dict:
    return {
        **_norms(found.norms),
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
        console.print(terminal_text(remark, style="yellow"))
    for caption, (heads, rows) in tables(report).items():
        shown = RichTable(title=terminal_text(caption))
        for i, head in enumerate(heads):
            shown.add_column(head, justify="right" if i else "left")
        for cells in rows:
            shown.add_row(*map(terminal_text, cells))
        console.print(shown)
