"""A document in a terminal, or as plain text of a given width."""

import io
from typing import TYPE_CHECKING

from churn_compare.documents.blocks import (
    Block,
    Cell,
    Code,
    Document,
    Facts,
    Rows,
    Strong,
    Table,
    Terms,
    Text,
    visible_blocks,
)
from churn_compare.escaping import printable, terminal_text, with_ends

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text as RichText

_STYLES = {
    "note": "yellow",
    "soft": "dim",
    "best": "bold",
    "outcome": "bold",
    "good": "green",
    "bad": "red",
    "mixed": "yellow",
    "better": "green",
    "worse": "red",
}
_NAME = 12  # least width of a name, in any terminal


def print_document(
    document: Document, console: "Console | None" = None, *, spaced: bool = False
) -> None:
    """Prints the blocks of a document; `Document.as_lines` adds title and facts.

    Figures are left out, as are columns that do not fit. If the output is not a
    terminal, every text of kind "line" is on one line of any length.
    """
    from rich.console import Console

    class Printing(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # Rich would exit with 1, a failed gate's code

    of_machine = console is None and not Console().is_terminal
    console = console or Printing()
    for i, block in enumerate(visible_blocks(document.blocks, figures=False)):
        if spaced and i:
            console.print()
        _print(block, console, of_machine)


def plain_text(document: Document, width: int = 80, *, spaced: bool = False) -> str:
    """The text that `print_document` prints, without colours and trailing spaces."""
    from rich.console import Console

    file, plain = io.StringIO(), {"force_terminal": False, "force_jupyter": False}
    console = Console(file=file, width=width, color_system=None, **plain)
    print_document(document, console, spaced=spaced)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _print(block: Block, console: "Console", of_machine: bool) -> None:
    match block:
        case Text():
            unbroken = of_machine and "line" in block.kind.split()
            console.print(_text(block), soft_wrap=unbroken)
        case Rows(items, ordered, kind):
            for i, item in enumerate(items, 1):
                mark = f"{i}. " if ordered else "- " if kind == "list" else ""
                words = [item.text] if isinstance(item.text, str) else item.text
                item = Text((mark, *words), item.kind) if mark else item
                _print(item, console, of_machine)
        case Table(kind="aligned"):
            for line in _aligned(block):
                console.print(terminal_text(line), soft_wrap=True)
        case Table():
            console.print(_table(block, console.width))
        case Facts():
            from rich.table import Table as RichTable

            out = RichTable(show_header=False, box=None)
            for name, value in block.known.items():
                out.add_row(terminal_text(name), terminal_text(value))
            console.print(out)
        case Code(text):
            for line in text.split("\n"):
                _print(Text((line,), "line"), console, True)
        case Terms(terms):
            for term in terms:
                _print(Text((Strong(term.name), ": ", term.meaning)), console, False)
    for inner in getattr(block, "blocks", ()):
        _print(inner, console, of_machine)


def _text(block: Text) -> "RichText":
    style = " ".join(_STYLES[word] for word in block.kind.split() if word in _STYLES)
    if isinstance(block.text, str):
        return terminal_text(block.text, style)
    out = terminal_text("", style)
    for part in block.text:
        strong = isinstance(part, Strong)
        tone = f"bold {_STYLES.get(part.tone, '')}" if strong else ""
        out.append(printable(part.text) if strong else with_ends(part), tone)
    return out


def _table(table: Table, width: int) -> "RenderableType":
    """A table with frames, or with title and caption on separate lines."""
    # In a narrow table without frames, headings and the cells on the left are wrapped;
    # numbers, on the right, never are.
    from rich.cells import cell_len
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    framed = "compare" not in table.kind.split()
    columns = [(i, c) for i, c in enumerate(table.heads) if c.from_width <= width]
    rows = [[_cell(cell) for cell in row] for row in table.cells]
    widest = [
        max(cell_len(line) for cell in column for line in cell.plain.split("\n"))
        for column in zip(*rows, strict=True)
    ] or [0] * len(table.heads)
    out = RichTable()
    if not framed:
        out = RichTable(box=None, padding=(0, 2, 0, 0), header_style="dim")
        if sum(widest[i] + 2 for i, _ in columns) > width:
            columns = [(i, c) for i, c in columns if c.detail != "full"]
    for i, column in columns:
        least = min(widest[i], _NAME) if column.align == "left" else widest[i]
        # Otherwise tables of many versions may be too wide.
        least = None if framed or table.caption else least
        out.add_column(
            terminal_text(column.full_heading),
            justify=column.align or "left",
            overflow="ellipsis" if framed else "fold",
            min_width=least,
        )
    for row in rows:
        out.add_row(*(row[i] for i, _ in columns))
    if framed:
        title = "\n".join(map(printable, table.title.split("\n")))
        out.title = RichText(title) if title else None
        out.caption = _text(Text(table.caption)) if table.caption else None
        return out
    heading = terminal_text(table.title, "bold")
    if not table.caption:
        return Padding(Group(heading, out), (1, 0, 0, 0)) if table.title else out
    out.title, out.title_justify, out.title_style = heading, "left", ""
    above = [""] if table.title else []
    return Group(*above, out, _text(Text(table.caption, "soft")))


def _cell(cell: Cell) -> "RichText":
    """The text, with an interval on a second line."""
    tone = _STYLES.get(cell.tone, "")
    out = terminal_text(cell.text, "" if cell.mark else tone)
    if cell.mark:
        out.append(f" {printable(cell.mark)}", tone)
    if cell.below:
        out.append("\n").append(printable(cell.below), "dim")
    return out


def _aligned(table: Table) -> list[str]:
    """Lines of a Markdown table whose columns are aligned, for a terminal to show."""
    rows = [[c.heading for c in table.heads]]
    rows += [[cell.text for cell in row] for row in table.cells]
    columns = []
    for head, texts in zip(table.heads, zip(*rows, strict=True), strict=True):
        width, right = max(map(len, texts)), head.align == "right"
        rule = "-" * (width - 1) + ":" if right else "-" * width
        first, *rest = (t.rjust(width) if right else t.ljust(width) for t in texts)
        columns.append([first, rule, *rest])
    return [f"| {' | '.join(line)} |" for line in zip(*columns, strict=True)]
