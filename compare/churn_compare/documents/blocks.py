"""What a report says, as plain data that any writer can show."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

Detail = Literal["verdict", "summary", "full"]
"""How much of a document is shown; each level has all that the one before it has."""

_LEVELS = {"verdict": 0, "summary": 1, "full": 2}


@dataclasses.dataclass(frozen=True)
class Strong:
    """Words of a text that stand out.

    Attributes:
        text: the words.
        tone: `"good"` or `"bad"` colours them; empty does not.
    """

    text: str
    tone: str = ""


Inline = str | Sequence[str | Strong]
"""Text in which words may stand out."""


def plain(text: Inline) -> str:
    """The words of a text without emphasis.

    Example:
        >>> plain((Strong("ERM"), ": no effect."))
        'ERM: no effect.'
    """
    if isinstance(text, str):
        return text
    return "".join(part.text if isinstance(part, Strong) else part for part in text)


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes:
        text: the words; some may be `Strong`.
        kind: any of `"soft"` (a caption), `"note"` (a remark that must be seen),
            `"lead"`, `"best"` and `"outcome"` (larger), `"good"`, `"bad"`, `"mixed"`,
            `"even"` (how a finding is coloured), separated by spaces. A word that a
            writer does not know is a class of the page.
    """

    text: Inline
    kind: str = ""


@dataclasses.dataclass(frozen=True)
class Rows:
    """A list of texts.

    Attributes:
        items: one per line; the `kind` of an item colours its line.
        ordered: whether they are numbered, from 1.
        kind: class of the page; `"verdicts"` has a coloured bar before each line,
            `"list"` a mark, in a terminal, too.
    """

    items: Sequence[Text]
    ordered: bool = False
    kind: str = "verdicts"


def bullets(texts: Sequence[Inline], kind: str = "verdicts") -> Rows:
    """A list of texts that are all alike.

    Args:
        texts: one per line.
        kind: class of the page.
    """
    return Rows([Text(text) for text in texts], kind=kind)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table, where a plain string does not suffice.

    Attributes:
        text: what it shows.
        value: what a reader sorts it by; None sorts by the text, NaN comes last.
        below: a second line in small print, for example an interval.
        mark: a last word of its own line, for example `"doubtful [1]"`.
        tone: class of the mark, `"better"`, `"worse"` or `"doubt"`; of the text
            where there is no mark.
        link: id of the section of this document that it leads to.
        shade: how dark its background is, from 0 to 1; NaN has none.
    """

    text: str
    value: float | None = None
    below: str = ""
    mark: str = ""
    tone: str = ""
    link: str = ""
    shade: float = math.nan

    @property
    def tint(self) -> int | None:
        """Per cent of the colour behind it; None without a shade."""
        return None if math.isnan(self.shade) else round(70 * self.shade)

    @property
    def sorted_by(self) -> str | None:
        """The value as the page's script reads it; None where there is none."""
        if self.value is None:
            return None
        if math.isnan(self.value):
            return ""
        return f"{self.value:.12g}".replace("inf", "Infinity")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        heading: above it.
        align: `"left"` for words, `"right"` for numbers, `"center"` for marks. The
            first column holds the heads of the rows and is on the left by default.
        group: heading that columns next to each other share; columns without one
            come first.
        from_width: columns of a terminal from which it is shown.
        first: the order that the first click of a reader gives.
        detail: level of detail from which it is shown.
    """

    heading: str
    align: Literal["left", "right", "center", ""] = ""
    group: str = ""
    from_width: int = 0
    first: Literal["ascending", "descending"] = "descending"
    detail: Detail = "verdict"

    @property
    def full_heading(self) -> str:
        """The heading after that of the group."""
        return f"{self.group}, {self.heading}" if self.group else self.heading


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: their heads, as `Column` or as text.
        rows: cells, as `Cell` or as text; the first is the head of its row.
        title: above it.
        caption: what its numbers are.
        kind: class of the page: `"main"`, `"plain"`, `"words"`, `"paper"`,
            `"compare"`; one with `compare` has no frame in a terminal, and of one with
            `main` a phone hides the second and the third column unless it is `whole`.
        sortable: whether a reader of the page can sort it.
        brief: number of rows below full detail; 0 is all.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell | str]]
    title: str = ""
    caption: Inline = ""
    kind: str = "plain"
    sortable: bool = False
    brief: int = 0

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
    """Names and values, one per line; those without a value are left out.

    Attributes:
        facts: name to value.
    """

    facts: Mapping[str, str]

    @property
    def known(self) -> dict[str, str]:
        """Those with a value."""
        return {name: value for name, value in self.facts.items() if value}


@dataclasses.dataclass(frozen=True)
class Figure:
    """A drawing or an image. One without either is not shown.

    Attributes:
        svg: text of an SVG, from `plotting`, or a function that draws it when a page is
            written.
        title: above it.
        caption: below it.
        image: bytes of a PNG instead of `svg` on the page.
        png: bytes of a PNG for a file of its own.
        name: of that file, without ending.
        words: what an image shows, for those who cannot see it.
        wide: whether it has a line of a grid to itself.
    """

    svg: str | Callable[[], str] = ""
    title: str = ""
    caption: Inline = ""
    image: bytes = b""
    png: bytes = b""
    name: str = ""
    words: str = ""
    wide: bool = False

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
    """An entry of a glossary.

    Attributes:
        name: the term.
        meaning: a sentence.
        formula: above the meaning.
        source: where it is defined.
    """

    name: str
    meaning: str
    formula: str = ""
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Terms:
    """A glossary."""

    terms: Sequence[Term]


@dataclasses.dataclass(frozen=True)
class Section:
    """Blocks under a heading; one without any is not shown.

    Attributes:
        title: the heading; may be empty.
        blocks: what it holds.
        id: what a `Cell.link` leads to.
        kind: class of the page.
        detail: level of detail from which it is shown.
    """

    title: str
    blocks: "Sequence[Block]"
    id: str = ""
    kind: str = ""
    detail: Detail = "verdict"


@dataclasses.dataclass(frozen=True)
class Grid:
    """Blocks next to each other where there is room; all of them in one column if not.

    Attributes:
        blocks: what it holds.
        kind: another class of the page, as `"inputs"` for small images.
    """

    blocks: "Sequence[Block]"
    kind: str = ""


@dataclasses.dataclass(frozen=True)
class Card:
    """Blocks on a card with a title.

    Attributes:
        title: above them; may be empty.
        blocks: what it holds.
        kind: class of the page instead of `"card"`.
    """

    title: str
    blocks: "Sequence[Block]"
    kind: str = "card"


@dataclasses.dataclass(frozen=True)
class Fold:
    """Blocks behind a line that opens them.

    Attributes:
        summary: the line.
        blocks: what it holds.
        open: whether it is open at first.
        heading: whether the line is the heading of a section.
    """

    summary: Inline
    blocks: "Sequence[Block]"
    open: bool = False
    heading: bool = False


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
"""A part of a document: text, a table, a figure, or a group of parts."""


@dataclasses.dataclass(frozen=True)
class Records:
    """Numbers for programs at full precision: the lines of a CSV.

    Attributes:
        fields: names of the columns.
        rows: field to value; an absent field, None, NaN and infinity are empty.
    """

    fields: Sequence[str]
    rows: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Document:
    """A report.

    Attributes:
        title: its heading.
        facts: what it is about, in a line under the title; empty ones are left out.
        blocks: what it says.
        command: what made it, under the facts of the page.
        data: the same numbers for programs: `Records` or anything that JSON takes.
    """

    title: str
    facts: Sequence[str] = ()
    blocks: Sequence[Block] = ()
    command: str = ""
    data: Any = None

    def at(self, detail: Detail) -> "Document":
        """The document at a level of detail; folds are at the full one alone.

        Args:
            detail: the level.
        """
        return dataclasses.replace(self, blocks=_at(self.blocks, detail))

    def as_lines(self, detail: Detail = "verdict") -> "Document":
        """For a terminal: title, facts and headings are lines between the blocks.

        Args:
            detail: the level.
        """
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
        if isinstance(block, Table):
            found.append(block.at(detail))
        elif isinstance(block, Section) and not _shows(block.detail, detail):
            continue
        elif isinstance(block, Fold) and detail != "full":
            continue
        elif isinstance(block, Section | Grid | Card | Fold):
            found.append(dataclasses.replace(block, blocks=_at(block.blocks, detail)))
        else:
            found.append(block)
    return found
