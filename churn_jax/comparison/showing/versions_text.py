"""A comparison of versions as it is printed in a terminal."""

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from churn_jax.comparison.result import VersionsResult
from churn_jax.comparison.showing.overview import title
from churn_jax.comparison.showing.versions_tables import (
    VersionsTable,
    gate_lines,
    matrix_tables,
    short_labels,
    step_table,
    version_table,
    versions_gate_sentence,
    versions_sentences,
)
from churn_jax.comparison.showing.wording import count_text, remark
from churn_jax.escaping import printable

_WIDTH = 80
_CELL = 7  # characters that a column of a matrix may need, with its margin
_MATRICES = 2  # churn and NFR; the page and the record have relative NFR, too
_TOO_WIDE = "too wide for this terminal; the page and the JSON have it."


def print_versions(result: VersionsResult, console: Console | None = None) -> None:
    """Sentences, tables, gates and notes."""
    of_machine = console is None and not Console().is_terminal
    console = console or Console()
    console.print(Text(title(result.whole), style="bold"))
    counts = (
        f"{count_text(len(result.names))} versions",
        f"{count_text(result.examples)} examples",
    )
    console.print(Text("; ".join(counts), style="dim"))
    console.print()
    for sentence in versions_sentences(result):
        console.print(Text(sentence))
    for note in result.notes:
        console.print(Text(printable(remark(note)), style="yellow"))
    labels = short_labels(result)
    _print_table(console, version_table(result, labels))
    _print_table(console, step_table(result, labels))
    for found in matrix_tables(result, labels)[:_MATRICES]:
        if _CELL * len(found.heads) <= console.width:
            _print_table(console, found)
        else:
            console.print()
            console.print(Text(f"{found.title}: {_TOO_WIDE}"))
    lines = gate_lines(result)
    if lines:
        console.print()
        for passed, line in lines:
            text = Text(line, style="green" if passed else "bold red")
            console.print(text, soft_wrap=of_machine)
        style = "bold green" if result.passed else "bold red"
        console.print(Text(versions_gate_sentence(result), style=style))


def plain_versions(result: VersionsResult, width: int = _WIDTH) -> str:
    """The same as text without colours."""
    out = io.StringIO()
    print_versions(result, Console(file=out, width=width, color_system=None))
    lines = (line.rstrip() for line in out.getvalue().splitlines())
    return "\n".join(lines).rstrip()


def _print_table(console: Console, found: VersionsTable) -> None:
    table = Table(
        title=Text(found.title),
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    for i, head in enumerate(found.heads):
        justify = "left" if not i or head == "Version" else "right"
        table.add_column(Text(head), justify=justify, overflow="fold")
    for cells in found.rows:
        table.add_row(*map(_two_lines, cells))
    console.print()
    console.print(table)
    if found.caption:
        console.print(Text(found.caption, style="dim"))


def _two_lines(cell: str) -> Text:
    value, _, ends = cell.partition("\n")
    return Text.assemble(value, "\n", (ends, "dim")) if ends else Text(value)
