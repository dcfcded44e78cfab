"""Tables of a page that a reader can sort; without a script they are plain tables."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Literal

from churn_jax.escaping import escape

# Makes a button of every column head. Numbers are compared by `data-value`, words as a
# reader would (v2 before v10); an empty `data-value` is no number and stays at the end.
SCRIPT = """
(() => {
  const words = new Intl.Collator(undefined, {numeric: true}).compare;
  const key = (cell) => {
    const value = cell.dataset.value;
    if (value === undefined) return cell.textContent;
    return value === "" ? null : Number(value);
  };
  const order = (a, b) => (typeof a === "number" ? a - b : words(a, b));
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const other = {ascending: "descending", descending: "ascending"};
        const next = other[head.getAttribute("aria-sort")] || head.dataset.first;
        for (const each of heads) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          return sign * order(a, b);
        });
        for (const [, row] of rows) body.append(row);
      });
    });
  }
})();
"""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    html: str  # what it shows, escaped already
    # what it is sorted by; None sorts by the text, NaN comes last
    value: float | None = None


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a table."""

    heading: str  # not yet escaped
    # the order that the first click gives
    first: Literal["ascending", "descending"] = "descending"
    words: bool = False  # whether its cells are text and not numbers


def word(text: str) -> Cell:
    """A cell of text, not yet escaped."""
    return Cell(escape(text))


def number(text: str, value: float, below: str = "") -> Cell:
    """A cell of a number."""
    small = f"<small>{escape(below)}</small>" if below else ""
    return Cell(escape(text) + small, value)


def sortable_table(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]], caption: str = ""
) -> str:
    """A table that scrolls sideways and, with `SCRIPT` in the page, can be sorted."""
    heads = "".join(
        f'<th scope="col" data-first="{column.first}"'
        f"{_kind(column)}>{escape(column.heading)}</th>"
        for column in columns
    )
    lines = []
    for first, *others in rows:
        cells = "".join(
            f"<td{_value(cell)}{_kind(column)}>{cell.html}</td>"
            for column, cell in zip(columns[1:], others, strict=True)
        )
        lines.append(
            f'<tr><th scope="row"{_value(first)}>{first.html}</th>{cells}</tr>'
        )
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table class="compare sortable">{said}'
        f"<thead><tr>{heads}</tr></thead>\n"
        "<tbody>\n" + "\n".join(lines) + "\n</tbody></table></div>"
    )


def _kind(column: Column) -> str:
    return ' class="text"' if column.words else ""


def _value(cell: Cell) -> str:
    """The attribute that the script sorts by."""
    value = cell.value
    if value is None:
        return ""
    if math.isnan(value):
        return ' data-value=""'
    if math.isinf(value):
        return f' data-value="{"-" if value < 0 else ""}Infinity"'
    return f' data-value="{value:.12g}"'
