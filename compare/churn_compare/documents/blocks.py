"""The blocks of a report, as plain data that any writer can show."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

# How much of a document is shown; each level has all that the one before it has.
Detail = Literal["verdict", "summary", "full"]
_LEVELS = {"verdict": 0, "summary": 1, "full": 2}


@dataclasses.dataclass(frozen=True)
class Strong:
    """Words of a text that stand out."""

    text: str
    tone: str = ""  # "good" or "bad" colours them


Inline = str | Sequence[str | Strong]  # text in which words may stand out


def plain(text: Inline) -> str:
    """The words of a text without emphasis."""
    if isinstance(text, str):
        return text
    return "".join(part.text if isinstance(part, Strong) else part for part in text)


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: Inline
    # Any of "soft" (a caption), "note" (a remark that must be seen), "lead", "best" and
    # "outcome" (larger), "good", "bad", "mixed", "even" (how a finding is coloured),
    # with spaces between. A word that a writer does not know is a class of the page.
    kind: str = ""


@dataclasses.dataclass(frozen=True)
class Rows:
    """A list of texts, one per line; the `kind` of an item colours its line."""

    items: Sequence[Text]
    ordered: bool = False  # numbered, from 1
    # Class of the page; "verdicts" has a coloured bar before each line, "list" a mark.
    kind: str = "verdicts"


def bullets(texts: Sequence[Inline], kind: str = "verdicts") -> Rows:
    """A list of texts that are all alike."""
    return Rows([Text(text) for text in texts], kind=kind)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table, where a plain string does not suffice."""

    text: str
    value: float | None = None  # to sort by; None is the text, NaN comes last
    below: str = ""  # a second line in small print, for example an interval
    mark: str = ""  # a last word of its own line, for example "doubtful [1]"
    tone: str = ""  # "better", "worse" or "doubt", of the mark or else of the text
    link: str = ""  # id of the section of this document that it leads to
    shade: float = math.nan  # how dark its background is, from 0 to 1; NaN has none

    @property
    def tint(self) -> int | None:
        """Per cent of the colour behind it; None without a shade."""
        return None if math.isnan(self.shade) else round(70 * self.shade)

    @property
    def sorted_by(self) -> str | None:
        """The value as the page's script reads it; None where there is none."""
        if self.value is None or math.isnan(self.value):
            return None if self.value is None else ""
        return f"{self.value:.12g}".replace("inf", "Infinity")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table; the first one holds the heads of the rows."""

    heading: str
    # For words, numbers and marks; by default the first is on the left.
    align: Literal["left", "right", "center", ""] = ""
    # Heading that columns next to each other share; those without one come first.
    group: str = ""
    from_width: int = 0  # columns of a terminal from which it is shown
    # The order that the first click of a reader gives.
    first: Literal["ascending", "descending"] = "descending"
    detail: Detail = "verdict"  # from which it is shown

    @property
    def full_heading(self) -> str:
        """The heading after that of the group."""
        return f"{self.group}, {self.heading}" if self.group else self.heading


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its head."""

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell | str]]
    title: str = ""
    caption: Inline = ""  # what its numbers are
    # Class of the page: "main", "plain", "words", "paper", "compare"; one with
    # "compare" has no frame in a terminal, and of one with "main" a phone hides the
    # second and the third column unless it is "whole".
    kind: str = "plain"
    sortable: bool = False  # by a reader of the page
    brief: int = 0  # rows below full detail; 0 is all

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
        """The columns and rows of a level of detail."""
        kept = [i for i, c in enumerate(self.heads) if _shows(c.detail, detail)]
        full = detail == "full"  # which has the sections that links lead to
        rows = self.cells[: None if full else self.brief or None]
        cells = [[dataclasses.replace(c, link=c.link * full) for c in r] for r in rows]
        return dataclasses.replace(
            self,
            columns=[self.columns[i] for i in kept],
            rows=[[row[i] for i in kept] for row in cells],
        )

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """Headings of groups, each with how many columns it has; empty without."""
        groups = itertools.groupby(column.group for column in self.heads)
        found = tuple((name, len(list(columns))) for name, columns in groups)
        return found if any(name for name, _ in found) else ()


@dataclasses.dataclass(frozen=True)
class Facts:
    """Names and values, one per line; those without a value are left out."""

    facts: Mapping[str, str]

    @property
    def known(self) -> dict[str, str]:
        """Those with a value."""
        return {name: value for name, value in self.facts.items() if value}


@dataclasses.dataclass(frozen=True)
class Figure:
    """A drawing or an image; one without either is not shown."""

    # Text of an SVG, from `plotting`, or what draws it when a page is written.
    svg: str | Callable[[], str] = ""
    title: str = ""
    caption: Inline = ""
    image: bytes = b""  # a PNG instead of `svg` on the page
    png: bytes = b""  # a PNG for a file of its own
    name: str = ""  # of that file, without ending
    words: str = ""  # what an image shows, for those who cannot see it
    wide: bool = False  # has a line of a grid to itself

    def draw(self) -> "Figure":
        """The same with its SVG as text."""
        svg = self.svg() if callable(self.svg) else self.svg
        return dataclasses.replace(self, svg=svg)


@dataclasses.dataclass(frozen=True)
class Code:
    """Text that keeps its lines, for example a command or a configuration."""

    text: str


@dataclasses.dataclass(frozen=True)
class Term:
    """An entry of a glossary."""

    name: str
    meaning: str
    formula: str = ""
    source: str = ""  # where it is defined


@dataclasses.dataclass(frozen=True)
class Terms:
    """A glossary."""

    terms: Sequence[Term]


@dataclasses.dataclass(frozen=True)
class Section:
    """Blocks under a heading, which may be empty."""

    title: str
    blocks: "Sequence[Block]"
    id: str = ""  # what a `Cell.link` leads to
    kind: str = ""  # class of the page
    detail: Detail = "verdict"  # from which it is shown


@dataclasses.dataclass(frozen=True)
class Grid:
    """Blocks next to each other where there is room; all of them in one column if not.

    `kind` is another class of the page, as "inputs" for small images.
    """

    blocks: "Sequence[Block]"
    kind: str = ""


@dataclasses.dataclass(frozen=True)
class Card:
    """Blocks on a card with a title, which may be empty."""

    title: str
    blocks: "Sequence[Block]"
    kind: str = "card"  # class of the page


@dataclasses.dataclass(frozen=True)
class Fold:
    """Blocks behind a line that opens them."""

    summary: Inline
    blocks: "Sequence[Block]"
    open: bool = False  # at first
    heading: bool = False  # whether the line is the heading of a section


def visible_blocks(blocks: Sequence["Block"], *, figures: bool) -> list["Block"]:
    """The blocks that have content; figures are drawn, or left out."""
    found: list[Block] = []
    for block in blocks:
        match block:
            case Section() | Grid() | Card() | Fold():
                if inside := visible_blocks(block.blocks, figures=figures):
                    found.append(dataclasses.replace(block, blocks=inside))
            case Figure():
                if figures and ((drawn := block.draw()).svg or drawn.image):
                    found.append(drawn)
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
    """Numbers for programs at full precision: the lines of a CSV.

    In a row, an absent field, None, NaN and infinity are empty.
    """

    fields: Sequence[str]
    rows: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    facts: Sequence[str] = ()  # a line under the title; empty ones are left out
    blocks: Sequence[Block] = ()
    command: str = ""  # what made it, under the facts of the page
    data: Any = None  # numbers for programs: `Records` or anything that JSON takes

    def at(self, detail: Detail) -> "Document":
        """The document at a level of detail; folds are at the full one alone."""
        return dataclasses.replace(self, blocks=_at(self.blocks, detail))

    def as_lines(self, detail: Detail = "verdict") -> "Document":
        """For a terminal: title, facts and headings are lines between the blocks."""
        title = Text(self.title.replace("→", "->"), "best")
        facts = Text("; ".join(filter(None, self.facts)), "soft")
        shown = visible_blocks(self.at(detail).blocks, figures=False)
        return Document(self.title, blocks=[title, facts, *_with_headings(shown)])


def _with_headings(blocks: Sequence[Block]) -> list[Block]:
    found: list[Block] = []
    for block in blocks:
        if not isinstance(block, Section):
            found.append(block)
        elif inside := _with_headings(block.blocks):
            title = [Text(block.title, "best")] if block.title else []
            found += [*([Text("\n")] if found or title else []), *title, *inside]
    return found


def _shows(from_level: Detail, detail: Detail) -> bool:
    return _LEVELS[from_level] <= _LEVELS[detail]


def _at(blocks: Sequence[Block], detail: Detail) -> list[Block]:
    found: list[Block] = []
    for block in blocks:
        match block:
            case Table():
                found.append(block.at(detail))
            case Fold() if detail != "full":
                pass
            case Section() if not _shows(block.detail, detail):
                pass
            case Section() | Grid() | Card() | Fold():
                inside = _at(block.blocks, detail)
                found.append(dataclasses.replace(block, blocks=inside))
            case _:
                found.append(block)
    return found
