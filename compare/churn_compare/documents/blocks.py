"""The blocks of a report, as plain data that any writer can show."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

# Levels of detail of a document; each level includes the one before it.
Detail = Literal["verdict", "summary", "full"]


@dataclasses.dataclass(frozen=True)
class Strong:
    """Emphasised words of a text."""

    text: str
    tone: str = ""  # "good" or "bad" for a colour


Inline = str | Sequence[str | Strong]  # text with emphasised words


def plain(text: Inline) -> str:
    """The words of a text without emphasis."""
    if isinstance(text, str):
        return text
    return "".join(part.text if isinstance(part, Strong) else part for part in text)


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: Inline
    # Words separated by spaces: "soft" (a caption), "note" (an important remark),
    # "lead", "best" and "outcome" (larger), "good", "bad", "mixed" and "even" (colours
    # of findings). Other words are classes of the page.
    kind: str = ""


@dataclasses.dataclass(frozen=True)
class Rows:
    """A list of texts, one per line, each coloured by its `kind`."""

    items: Sequence[Text]
    ordered: bool = False  # numbered, from 1
    # Class of the page; "verdicts" has coloured bars before the lines, "list" bullets.
    kind: str = "verdicts"


def bullets(texts: Sequence[Inline]) -> Rows:
    """A list of texts."""
    return Rows([Text(text) for text in texts])


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table with more than plain text."""

    text: str
    below: str = ""  # a second line in small print, for example an interval
    mark: str = ""  # words on a last line, for example "doubtful [1]"
    tone: str = ""  # "better", "worse" or "doubt", for the mark or else the text
    link: str = ""  # id of the section of this document to link to
    shade: float = math.nan  # darkness of the background, from 0 to 1; NaN for none

    @property
    def tint(self) -> int | None:
        """Percentage of the colour behind the text; None without a shade."""
        return None if math.isnan(self.shade) else round(70 * self.shade)


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table; the first one has the headings of the rows."""

    heading: str
    # For words, numbers and marks; by default the first column is on the left.
    align: Literal["left", "right", "center", ""] = ""
    # Shared heading of adjacent columns; columns without one come first.
    group: str = ""
    from_width: int = 0  # least width of a terminal that shows it
    detail: Detail = "verdict"  # least level that shows it

    @property
    def full_heading(self) -> str:
        """The heading with that of the group before it."""
        return f"{self.group}, {self.heading}" if self.group else self.heading


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading."""

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell | str]]
    title: str = ""
    caption: Inline = ""  # description of its numbers
    # Class of the page: "main", "plain", "words", "paper", "compare". With "compare" it
    # has no frame in a terminal; with "main" a phone hides the second and the third
    # column unless it is also "whole".
    kind: str = "plain"
    brief: int = 0  # number of rows below full detail; 0 for all

    @property
    def heads(self) -> tuple[Column, ...]:
        """All columns as `Column`, each with its alignment."""
        columns = (Column(c) if isinstance(c, str) else c for c in self.columns)
        return tuple(
            dataclasses.replace(c, align=c.align or ("right" if i else "left"))
            for i, c in enumerate(columns)
        )

    @property
    def cells(self) -> tuple[tuple[Cell, ...], ...]:
        """All rows as `Cell`."""
        return tuple(
            tuple(Cell(cell) if isinstance(cell, str) else cell for cell in row)
            for row in self.rows
        )

    def at(self, detail: Detail) -> "Table":
        """The table with the columns and rows of a level of detail."""
        kept = [i for i, c in enumerate(self.heads) if _shows(c.detail, detail)]
        full = detail == "full"  # only then are there sections to link to
        rows = self.cells[: None if full else self.brief or None]
        cells = [[dataclasses.replace(c, link=c.link * full) for c in r] for r in rows]
        return dataclasses.replace(
            self,
            columns=[self.columns[i] for i in kept],
            rows=[[row[i] for i in kept] for row in cells],
        )

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """Headings of groups with their numbers of columns; empty without groups."""
        names = [column.group for column in self.heads]
        groups = itertools.groupby(names) if any(names) else ()
        return tuple((name, len(list(columns))) for name, columns in groups)


@dataclasses.dataclass(frozen=True)
class Facts:
    """Names and values, one pair per line; empty values are left out."""

    facts: Mapping[str, str]

    @property
    def known(self) -> dict[str, str]:
        """The names with a value."""
        return {name: value for name, value in self.facts.items() if value}


@dataclasses.dataclass(frozen=True)
class Figure:
    """A drawing; without one it is not shown."""

    # Text of an SVG, from `plotting`, or a function that draws it for a page.
    svg: str | Callable[[], str] = ""
    title: str = ""
    caption: Inline = ""
    png: bytes = b""  # a PNG for a separate file
    name: str = ""  # name of that file, without extension

    def draw(self) -> "Figure":
        """The figure with its SVG as text."""
        svg = self.svg() if callable(self.svg) else self.svg
        return dataclasses.replace(self, svg=svg)


@dataclasses.dataclass(frozen=True)
class Code:
    """Preformatted text, for example a command or a configuration."""

    text: str


@dataclasses.dataclass(frozen=True)
class Term:
    """An entry of a glossary."""

    name: str
    meaning: str


@dataclasses.dataclass(frozen=True)
class Terms:
    """A glossary."""

    terms: Sequence[Term]


@dataclasses.dataclass(frozen=True)
class Section:
    """Blocks under a heading, which may be empty."""

    title: str
    blocks: "Sequence[Block]"
    id: str = ""  # target of a `Cell.link`
    kind: str = ""  # class of the page
    detail: Detail = "verdict"  # least level that shows it


@dataclasses.dataclass(frozen=True)
class Grid:
    """Blocks next to each other if there is room, otherwise in one column."""

    blocks: "Sequence[Block]"
    kind: str = ""  # another class of the page, such as "first"


@dataclasses.dataclass(frozen=True)
class Card:
    """Blocks with a small title, in a grid."""

    title: str
    blocks: "Sequence[Block]"


@dataclasses.dataclass(frozen=True)
class Fold:
    """Blocks that are shown when the reader opens them."""

    summary: Inline
    blocks: "Sequence[Block]"
    open: bool = False  # True if they are open at first
    heading: bool = False  # True if its summary is the heading of a section


def visible_blocks(
    blocks: Sequence["Block"], *, figures: bool | None, detail: Detail = "full"
) -> list["Block"]:
    """Blocks with content at a level of detail; only the full one has folds.

    Figures are drawn if `figures` is True, left out if False and kept if None.
    """
    found: list[Block] = []
    for block in blocks:
        match block:
            case Section() if not _shows(block.detail, detail):
                pass
            case Fold() if detail != "full":
                pass
            case Section() | Grid() | Card() | Fold():
                inside = visible_blocks(block.blocks, figures=figures, detail=detail)
                if inside:
                    found.append(dataclasses.replace(block, blocks=inside))
            case Figure() if figures is not None:
                if figures and (drawn := block.draw()).svg:
                    found.append(drawn)
            case Table():
                found.append(block.at(detail))
            case Text() if not plain(block.text):
                pass
            case Facts() if not block.known:
                pass
            case Rows([]) | Terms([]):
                pass
            case _:
                found.append(block)
    return found


Block = (
    Text | Rows | Table | Facts | Figure | Code | Terms | Section | Grid | Card | Fold
)


@dataclasses.dataclass(frozen=True)
class Records:
    """Rows of numbers at full precision, for a CSV file.

    Missing fields, None, NaN and infinity are empty in the file.
    """

    fields: Sequence[str]
    rows: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    facts: Sequence[str] = ()  # line under the title; empty facts are left out
    blocks: Sequence[Block] = ()
    command: str = ""  # command that made the report, shown under the facts
    data: Any = None  # numbers for programs: `Records` or any JSON-ready value

    def at(self, detail: Detail) -> "Document":
        """The document at a level of detail; only the full one has folds."""
        blocks = visible_blocks(self.blocks, figures=None, detail=detail)
        return dataclasses.replace(self, blocks=blocks)

    def as_lines(self, detail: Detail = "verdict") -> "Document":
        """The document for a terminal, with title, facts and headings as lines."""
        title = Text(self.title.replace("→", "->"), "best")
        facts = Text("; ".join(filter(None, self.facts)), "soft")
        shown = visible_blocks(self.blocks, figures=False, detail=detail)
        return Document(self.title, blocks=[title, facts, *_with_headings(shown)])


def _with_headings(blocks: Sequence[Block]) -> list[Block]:
    found: list[Block] = []
    for block in blocks:
        if not isinstance(block, Section):
            found.append(block)
            continue
        title = [Text(block.title, "best")] * bool(block.title)
        found += [Text("\n")] * bool(found or title) + title
        found += _with_headings(block.blocks)
    return found


def _shows(from_level: Detail, detail: Detail) -> bool:
    levels = get_args(Detail)
    return levels.index(from_level) <= levels.index(detail)
