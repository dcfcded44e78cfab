"""Page, Markdown and terminal tables of `churn-jax diversity`."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from churn_jax.escaping import escape, markdown_text, terminal_text
from churn_jax.predictions import replace_file
from churn_jax.reports.artefacts import ReportError, Study, read_study
from churn_jax.reports.diversity_record import FOLDER, SECTIONS, SectionRecord
from churn_jax.reports.diversity_sections import BUILDERS, Section
from churn_jax.reports.page import (
    header,
    page,
    run_section,
    scrolling_table,
)

__all__ = ["collect_diversity", "print_diversity", "write_diversity"]


def collect_diversity(run_dir, *, draw: bool = True) -> tuple[Study, list[Section]]:
    """The study and the sections that have been computed so far.

    Args:
        run_dir: the folder of the study.
        draw: whether to draw figures.

    Raises:
        ReportError: there is no usable `study.json` or nothing was computed.
        ValueError: a section's file cannot be read.
    """
    study = read_study(run_dir)
    sections = []
    for name in SECTIONS:
        record = SectionRecord(run_dir, name, None)
        if record.parts:
            sections.append(BUILDERS[name](study, record, draw))
    if not sections:
        raise ReportError(
            f"{Path(run_dir) / FOLDER} has no results; churn-jax diversity {run_dir} "
            "computes them"
        )
    return study, sections


def write_diversity(run_dir, *, command: str = "") -> Path:
    """Writes `diversity/diversity.md` and `diversity/diversity.html`.

    Args:
        run_dir: the folder of the study.
        command: shown on the page.

    Returns:
        The path of the page.

    Raises:
        ReportError: as in `collect_diversity`.
        OSError: a file could not be written; an earlier one is left as it was.
    """
    study, sections = collect_diversity(run_dir)
    folder = Path(run_dir) / FOLDER
    texts = {
        "diversity.md": _markdown(study, sections),
        "diversity.html": _page(study, sections, command),
    }
    for name, text in texts.items():
        with replace_file(folder / name) as file:
            file.write(text.encode())
    return folder / "diversity.html"


def _title(study: Study) -> str:
    return f"{study.title}: members, Jacobians and foreign images"


def _page(study: Study, sections: Sequence[Section], command: str) -> str:
    record, launch = study.record, study.record.launch
    runs = f"{study.replicas} runs per method"
    parts = (launch.date, record.data.name, runs, launch.hardware)
    return page(
        _title(study),
        (
            header(_title(study), parts, command),
            *map(_html, sections),
            run_section(record, {"Runs per method": study.replicas}),
        ),
    )


def _html(section: Section) -> str:
    out = [f"<section><h2>{escape(section.title)}</h2>"]
    out += [f'<p class="soft">{escape(text)}</p>' for text in section.text]
    for caption, table in section.tables.items():
        out.append(f"<h3>{escape(caption)}</h3>")
        out.append(scrolling_table(table.heads, table.rows, "plain"))
    shown = [figure for figure in section.figures if figure[0]]
    if shown:
        out.append('<div class="grid" style="margin-top:1rem">')
        # The last of three has a line to itself.
        lone = ' style="grid-column:1/-1"'
        out += [
            f"<figure{lone if i == 2 else ''}><h3>{escape(title)}</h3>{svg}"
            f"<figcaption>{escape(caption)}</figcaption></figure>"
            for i, (svg, title, caption) in enumerate(shown)
        ]
        out.append("</div>")
    return "\n".join([*out, "</section>"])


def _markdown(study: Study, sections: Sequence[Section]) -> str:
    lines = [f"# {markdown_text(_title(study))}"]
    for section in sections:
        lines += ["", f"## {markdown_text(section.title)}", ""]
        lines.append(" ".join(map(markdown_text, section.text)))
        for caption, table in section.tables.items():
            lines += ["", markdown_text(caption), ""]
            lines.append("| " + " | ".join(map(markdown_text, table.heads)) + " |")
            lines.append("|:--|" + "--:|" * (len(table.heads) - 1))
            for row in table.rows:
                lines.append("| " + " | ".join(map(markdown_text, row)) + " |")
    return "\n".join(lines) + "\n"


def print_diversity(run_dir, console: Console | None = None) -> None:
    """The tables in the terminal.

    Args:
        run_dir: the folder of the study.
        console: where to; the standard output by default.
    """
    console = console or Console()
    _, sections = collect_diversity(run_dir, draw=False)
    for section in sections:
        for caption, table in section.tables.items():
            shown = RichTable(
                title=terminal_text(section.title), caption=terminal_text(caption)
            )
            for i, head in enumerate(table.heads):
                shown.add_column(head, justify="right" if i else "left")
            for cells in table.rows:
                shown.add_row(*map(terminal_text, cells))
            console.print(shown)
