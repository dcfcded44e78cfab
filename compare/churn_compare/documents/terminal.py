"""A document in a terminal, or as plain text of a given width."""

import io
from typing import TYPE_CHECKING

from churn_compare.documents.blocks import (
    Block,
    Cell,
    Code,
    Column,
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
    from rich.table import Table as RichTable
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
_NAME = 12  # columns that a name has, however narrow the terminal is


def print_document(
    document: Document, console: "Console | None" = None, *, spaced: bool = False
) -> None:
    """Prints the blocks of a document; `Document.as_lines` has title and facts, too.

    Args:
        document: what to show. Columns that the terminal is too narrow for are left
            out, as are figures.
        console: where to; the standard output by default. The log of a machine has
            every line of kind `line` on a line of its own, however long it is.
        spaced: whether a blank line stands between blocks.
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
    """What `print_document` prints, without colours.

    Args:
        document: what to show.
        width: columns.
        spaced: whether a blank line stands between blocks.

    Returns:
        Lines of at most `width` characters, without trailing spaces.

    Example:
        >>> print(plain_text(Document("", blocks=[Text("a b"), Text("c")])), end="")
        a b
        c
    """
    from rich.console import Console

    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
    )
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
                if mark:
                    words = [item.text] if isinstance(item.text, str) else item.text
                    item = Text((mark, *words), item.kind)
                _print(item, console, of_machine)
        case Table():
            kinds = block.kind.split()
            if "aligned" in kinds:
                for line in _aligned(block):
                    console.print(terminal_text(line), soft_wrap=True)
            elif "compare" in kinds:
                console.print(_without_frame(block, console.width))
            else:
                console.print(_framed(block, console.width))
        case Facts():
            console.print(_facts(block))
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
        if isinstance(part, Strong):
            out.append(printable(part.text), f"bold {_STYLES.get(part.tone, '')}")
        else:
            out.append(with_ends(part))
    return out


def _columns(table: Table, width: int) -> list[tuple[int, Column]]:
    """Those that there is room for, each with its place."""
    return [(i, c) for i, c in enumerate(table.heads) if c.from_width <= width]


def _framed(table: Table, width: int) -> "RichTable":
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    title = "\n".join(map(printable, table.title.split("\n")))
    out = RichTable(
        title=RichText(title) if title else None,
        caption=_text(Text(table.caption)) if table.caption else None,
    )
    columns = _columns(table, width)
    for _, column in columns:
        heading = terminal_text(column.full_heading)
        out.add_column(heading, justify=column.align or "left")
    for row in table.cells:
        out.add_row(*(_cell(row[i]) for i, _ in columns))
    return out


def _without_frame(table: Table, width: int) -> "RenderableType":
    """A heading over a table without frames, with its caption below."""
    # Where it is narrow, words of the columns' names and the cells on the left are
    # broken; numbers, on the right, never are.
    from rich.cells import cell_len
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table as RichTable

    out = RichTable(box=None, padding=(0, 2, 0, 0), header_style="dim")
    rows = [[_cell(cell) for cell in row] for row in table.cells]
    widest = [
        max(cell_len(line) for cell in column for line in cell.plain.split("\n"))
        for column in zip(*rows, strict=True)
    ] or [0] * len(table.heads)
    columns = _columns(table, width)
    if sum(widest[i] + 2 for i, _ in columns) > width:
        columns = [(i, c) for i, c in columns if c.detail != "full"]
    for i, column in columns:
        left = column.align == "left"
        least = min(widest[i], _NAME) if left else widest[i]
        if table.caption:  # tables of many versions may be too wide otherwise
            least = None
        out.add_column(
            terminal_text(column.heading),
            justify="left" if left else "right",
            overflow="fold",
            min_width=least,
        )
    for row in rows:
        out.add_row(*(row[i] for i, _ in columns))
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


def _facts(block: Facts) -> "RichTable":
    from rich.table import Table as RichTable

    out = RichTable(show_header=False, box=None)
    for name, value in block.known.items():
        out.add_row(terminal_text(name), terminal_text(value))
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
