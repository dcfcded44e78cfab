"""`report.html`, tables and PNG figures of a sweep."""

from collections.abc import Sequence

from churn_jax.configuration.record import ProgramRecord
from churn_jax.escaping import escape
from churn_jax.predictions import replace_file
from churn_jax.reports.page import (
    figures_section,
    header,
    page,
    run_section,
    scrolling_table,
)
from churn_jax.reports.selection import CRITERIA
from churn_jax.reports.sweep import SPLITS, AxisResult, SweepResult, collect_sweep
from churn_jax.reports.sweep_plots import Figure, sweep_figures
from churn_jax.reports.sweep_tables import (
    UNSEEN,
    caption,
    choice_sentence,
    csv_sweep,
    markdown_sweep,
    quantities,
    remarks,
    rows,
)

__all__ = ["render_sweep", "write_sweep"]


def write_sweep(folder) -> SweepResult:
    """Writes `table.md`, `table.csv`, `report.html` and PNG figures of a sweep.

    Args:
        folder: of the sweep; it may be unfinished.

    Returns:
        The `SweepResult`; its `files` map names to the paths written.

    Raises:
        ReportError: there is no usable `sweep.json`.
        OSError: a file could not be written; an earlier one is left as it was.
    """
    result = collect_sweep(folder)
    figures = sweep_figures(result)
    texts = {
        "table.md": markdown_sweep(result),
        "table.csv": csv_sweep(result),
        "report.html": render_sweep(result, figures),
    }
    contents = {name: text.encode() for name, text in texts.items()}
    contents |= {f"{figure.name}.png": figure.png for figure in figures}
    for name, content in contents.items():
        path = result.folder / name
        with replace_file(path) as file:
            file.write(content)
        result.files[name] = path
    return result


def render_sweep(result: SweepResult, figures: Sequence[Figure]) -> str:
    """The page as text: a whole HTML document that needs nothing else.

    Args:
        result: from `collect_sweep`.
        figures: from `sweep_figures`.
    """
    programs = "; ".join(map(_program, result.record.programs))
    return page(
        result.title,
        (
            _header(result),
            _choices(result),
            figures_section((f.svg, f.title, f.caption) for f in figures),
            *(_tables(result, axis) for axis in result.axes),
            run_section(result.record, {"Programs": programs}),
        ),
    )


def _header(result: SweepResult) -> str:
    launch, name = result.record.launch, result.record.data.name
    seeds = f"{result.seeds} seeds per value"
    parts = (launch.date, name, seeds, launch.hardware)
    return header(result.title, parts, launch.command)


def _choices(result: SweepResult) -> str:
    rule = CRITERIA[result.record.criterion]
    out = ["<section><h2>Choice</h2>", f"<p>The rule: {escape(rule)}. {escape(UNSEEN)}"]
    out.append('</p><ul class="verdicts">')
    out += [f"<li>{escape(choice_sentence(result, axis))}</li>" for axis in result.axes]
    out.append("</ul>")
    out += [f'<p class="note">{escape(remark)}</p>' for remark in remarks(result)]
    return "\n".join([*out, "</section>"])


def _tables(result: SweepResult, axis: AxisResult) -> str:
    heads = [axis.field, "", *(q.heading for q in quantities(result))]
    out = [f"<section><h2>{escape(axis.title)}</h2>"]
    out.append(f'<p class="soft">{escape(caption(result))}</p>')
    for split in SPLITS:
        lines = [
            (label, mark, *cells) for mark, (label, *cells) in rows(result, axis, split)
        ]
        out.append(
            f'<h3 style="margin-top:1rem">On the {split} split</h3>'
            + scrolling_table(heads, lines)
        )
    return "\n".join([*out, "</section>"])


def _program(program: ProgramRecord) -> str:
    """What one program trained, and how long it took."""
    text = f"{program.name}: {len(program.points)} points"
    if program.seconds is not None:
        text += (
            f", {program.replicas} replicas, {program.networks} networks side by "
            f"side ({program.mapping}), {program.seconds:,.1f} s of which "
            f"{program.compile_seconds:.1f} s compiling"
        )
    return text
