"""A document as Markdown, as GitHub shows it."""

import re
from collections.abc import Sequence

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
    Rows,
    Section,
    Strong,
    Table,
    Terms,
    Text,
    plain,
    visible_blocks,
)
from churn_compare.escaping import markdown_text, with_ends

_SIDES = {"left": ":--", "right": "--:", "center": ":-:"}


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
            return [_inline(text)]
        case Rows(items, ordered):
            marks = [f"{i}." if ordered else "*" for i in range(1, len(items) + 1)]
            lines = zip(marks, items, strict=True)
            return ["\n".join(f"{mark} {_inline(item.text)}" for mark, item in lines)]
        case Table():
            title = [markdown_text(block.title)] if block.title else []
            caption = [_inline(block.caption)] if block.caption else []
            sides = "|".join(_SIDES[column.align] for column in block.heads)
            rows = [list(map(_cell, row)) for row in block.cells]
            head, *rows = map(_line, [[c.full_heading for c in block.heads], *rows])
            return [*title, "\n".join([head, f"|{sides}|", *rows]), *caption]
        case Facts():
            facts = [map(markdown_text, fact) for fact in block.known.items()]
            return ["\n".join("* {}: {}".format(*fact) for fact in facts)]
        case Code(text):
            longest = max(map(len, re.findall("`+", text)), default=0)
            fence = "`" * max(3, longest + 1)
            return [f"{fence}\n{text}\n{fence}"]
        case Terms(terms):
            return [f"**{markdown_text(t.name)}**: {_inline(t.meaning)}" for t in terms]
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


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"


def _cell(cell: Cell) -> str:
    text = f"{cell.text} ({cell.below})" if cell.below else cell.text
    return f"{text} {cell.mark}" if cell.mark else text


def _inline(text: Inline) -> str:
    if isinstance(text, str):
        return markdown_text(text)
    return "".join(
        f"**{markdown_text(part.text)}**"
        if isinstance(part, Strong)
        else with_ends(part, markdown_text)
        for part in text
    )
