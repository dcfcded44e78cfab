"""Writers of a document: an HTML page, Markdown, a terminal, CSV and JSON.

A page is one file for screens, phones and paper. It loads and runs nothing, which its
Content-Security-Policy makes the browser enforce. All text is escaped by Jinja2, unless
a template marks it `safe`, as for drawings, or a value is `Markup`.
"""

import csv
import dataclasses
import functools
import io
import json
import math
import numbers
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from churn_compare import escaping
from churn_compare.documents.blocks import (
    Block,
    Card,
    Cell,
    Code,
    Document,
    Facts,
    Fold,
    Grid,
    Inline,
    Records,
    Rows,
    Section,
    Strong,
    Table,
    Terms,
    Text,
    plain,
    visible_blocks,
)
from churn_compare.escaping import markdown_text, printable, terminal_text, with_ends

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from rich.console import Console, RenderableType
    from rich.text import Text as RichText

_SIDES = {"left": ":--", "right": "--:", "center": ":-:"}
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


def html_page(document: Document) -> str:
    """A document as a whole HTML page."""
    blocks = visible_blocks(document.blocks, figures=True)
    return _render(
        "page",
        blocks,
        title=document.title,
        facts=[fact for fact in document.facts if fact],
        command=document.command,
    )


def html_fragment(blocks: Sequence[Block]) -> str:
    """Blocks as a `div` for a notebook, with a style that affects nothing else."""
    return _render("fragment", visible_blocks(blocks, figures=True))


def _render(name: str, blocks: Sequence[Block], **values: Any) -> str:
    template = _templates().get_template(f"{name}.html.j2")
    return template.render(blocks=blocks, style=_file(f"{name}.css"), **values)


def _file(name: str) -> str:
    folder = resources.files("churn_compare.documents") / "templates"
    return (folder / name).read_text(encoding="utf-8")


@functools.cache
def _templates() -> "Environment":
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_cleaned,
    )
    found.filters |= {"inline": _markup, "kind": lambda block: type(block).__name__}
    return found


def _cleaned(value: Any) -> Any:
    """Text without control characters, yet to be escaped by Jinja2."""
    from markupsafe import Markup

    if isinstance(value, str) and not isinstance(value, Markup):
        return escaping.without_controls(value, keep="\n\t")
    return value


def _markup(text: Inline) -> "Markup":
    """Escaped text with emphasis, without line breaks before percent signs."""
    from markupsafe import Markup, escape

    out = Markup("")
    for part in (text,) if isinstance(text, str | Strong) else text:
        words = part.text if isinstance(part, Strong) else part
        lines = _cleaned(words).replace(" %", "\u00a0%").split("\n")
        shown = Markup("<br>").join(map(escape, lines))
        if isinstance(part, Strong):
            tone = Markup(' class="{}"').format(part.tone) if part.tone else ""
            shown = Markup("<strong{}>{}</strong>").format(tone, shown)
        out += shown
    return out


def markdown(document: Document, level: int = 1) -> str:
    """A document without figures; names in it are not markup and mention nobody.

    Sections are one level below the title.
    """
    facts = Text("; ".join(filter(None, document.facts)))
    shown = visible_blocks([facts, *document.blocks], figures=False)
    whole = Section(document.title, shown)
    return "\n\n".join(_block(whole, level)) + "\n"


def _parts(blocks: Sequence[Block], level: int) -> list[str]:
    """Texts that are separated by blank lines."""
    return [part for block in blocks for part in _block(block, level)]


def _block(block: Block, level: int) -> list[str]:
    match block:
        case Text(text):
            return [_marked(text)]
        case Rows(items, ordered):
            marks = [f"{i}." if ordered else "*" for i in range(1, len(items) + 1)]
            lines = zip(marks, items, strict=True)
            return ["\n".join(f"{mark} {_marked(item.text)}" for mark, item in lines)]
        case Table():
            title = [markdown_text(block.title)] if block.title else []
            caption = [_marked(block.caption)] if block.caption else []
            sides = "|".join(_SIDES[column.align] for column in block.heads)
            rows = [[c.full_heading for c in block.heads]]
            rows += [list(map(_cell_text, row)) for row in block.cells]
            lines = [f"| {' | '.join(map(markdown_text, row))} |" for row in rows]
            return [*title, "\n".join([lines[0], f"|{sides}|", *lines[1:]]), *caption]
        case Facts():
            facts = [map(markdown_text, fact) for fact in block.known.items()]
            return ["\n".join("* {}: {}".format(*fact) for fact in facts)]
        case Code(text):
            longest = max(map(len, re.findall("`+", text)), default=0)
            fence = "`" * max(3, longest + 1)
            return [f"{fence}\n{text}\n{fence}"]
        case Terms(terms):
            return [f"**{markdown_text(t.name)}**: {_marked(t.meaning)}" for t in terms]
        case Section(title, blocks) | Card(title, blocks):
            name, marks = markdown_text(title), "#" * level
            heading = f"{marks} {name}" if isinstance(block, Section) else f"**{name}**"
            return [heading] * bool(title) + _parts(blocks, level + 1)
        case Grid(blocks):
            return _parts(blocks, level)
        case Fold(summary, blocks):
            opened = f"<details><summary>{markdown_text(plain(summary))}</summary>"
            return [opened, *_parts(blocks, level), "</details>"]
    return []  # a figure


def _cell_text(cell: Cell) -> str:
    text = f"{cell.text} ({cell.below})" if cell.below else cell.text
    return f"{text} {cell.mark}" if cell.mark else text


def _marked(text: Inline) -> str:
    if isinstance(text, str):
        return markdown_text(text)
    return "".join(
        f"**{markdown_text(part.text)}**"
        if isinstance(part, Strong)
        else with_ends(part, markdown_text)
        for part in text
    )


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
        case Fold(summary):
            _print(Text(summary, "soft"), console, of_machine)
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
    heads = enumerate(table.heads)
    least = [min(widest[i], _NAME if c.align == "left" else width) for i, c in heads]
    # Tables of many classes or versions may be too wide.
    wide = table.caption or sum(least[i] + 2 for i, _ in columns) > width
    for i, column in columns:
        out.add_column(
            terminal_text(column.full_heading),
            justify=column.align or "left",
            overflow="ellipsis" if framed else "fold",
            min_width=None if framed or wide else least[i],
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


def csv_text(records: Records) -> str:
    """A header line and one line per row; names are not escaped."""
    out = io.StringIO()
    writer = csv.DictWriter(out, records.fields, lineterminator="\n")
    writer.writeheader()
    for row in records.rows:
        fields = {}
        for name, value in row.items():
            whole = isinstance(value, numbers.Integral)
            if isinstance(value, numbers.Real) and not whole:  # also of NumPy
                value = repr(float(value)) if math.isfinite(value) else ""
            fields[name] = value
        writer.writerow(fields)
    return out.getvalue()


def json_text(value: Any) -> str:
    """Text of a JSON file with a value that `plain_values` accepts."""
    found = plain_values(value)
    return json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def plain_values(value: Any) -> Any:
    """A value with JSON types only.

    Dataclasses become mappings, sequences and arrays become lists, and numbers that are
    not finite become None.

    Example:
        >>> plain_values({"a": (math.nan, 1), 2: "b"})
        {'a': [None, 1], '2': 'b'}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "tolist"):  # NumPy
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table_files(document: Document) -> dict[str, str]:
    """Names and texts of the files of a report whose data are `Records`."""
    return {
        "table.md": markdown(document.at("summary")),
        "table.csv": csv_text(document.data),
        "report.html": html_page(document),
    }


def write_files(folder, contents: Mapping[str, str | bytes]) -> dict[str, Path]:
    """Writes files, each whole or not at all; returns their paths by name."""
    from churn_compare.array_files import write_file

    return {n: write_file(Path(folder) / n, text) for n, text in contents.items()}
