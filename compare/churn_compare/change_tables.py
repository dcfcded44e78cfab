"""Tables of examples whose outcome changed, and their texts word by word."""

import difflib
from collections.abc import Sequence

from churn_compare.documents import Block, Cell, Column, Fold, Rows, Strong, Table, Text
from churn_compare.number_text import count_text
from churn_compare.result import Change, MeasureFindings

_BRIEF, _LISTED = 10, 50  # examples below full detail, and unfolded on the page
_WORDS = 40  # words of a text in a table; characters that need no more than a table
_CHARACTERS = 4000  # characters of a text that are compared word by word


def change_blocks(measure: MeasureFindings) -> list[Block]:
    """The largest falls, or changes if no outcome is better, worst first."""
    if not measure.changes:
        return [Text("There is none.")]
    total = count_text(measure.changes_total)
    said = f"{len(measure.changes)} of {total}, worst first."
    blocks: list[Block] = [Text(said, "soft"), _table(measure, measure.changes)]
    longest = max(len(text) for c in measure.changes for text in (c.old, c.new))
    if measure.kind != "answer" or longest <= _WORDS:
        return blocks
    texts = [_side_by_side(change) for change in measure.changes]
    blocks += [Fold("Word by word", texts[:_LISTED], open=True)]
    if texts[_LISTED:]:
        blocks.append(Fold(f"{len(texts) - _LISTED} more", texts[_LISTED:]))
    return blocks


def _side_by_side(change: Change) -> Rows:
    """Both texts, with emphasis on the words that only one of them has."""
    old, new = (text[:_CHARACTERS].split() for text in (change.old, change.new))
    matched = difflib.SequenceMatcher(None, old, new, autojunk=False)
    before: list[str | Strong] = []
    after: list[str | Strong] = []
    for kind, a, b, c, d in matched.get_opcodes():
        sides = ((before, old[a:b], "bad"), (after, new[c:d], "good"))
        for parts, words, tone in sides:
            text = " ".join(words)
            if text:
                parts += [" ", text if kind == "equal" else Strong(text, tone)]
    rows: list[Text] = [Text((Strong(change.id),))]
    if change.target:
        rows.append(Text(f"Target: {change.target}", "soft"))
    rows += [Text(["Old:", *before]), Text(["New:", *after])]
    return Rows(rows, kind="list")


def _table(measure: MeasureFindings, shown: Sequence[Change]) -> Table:
    floor = "runs_differ" in measure.quantities
    sides = ("One run", "Another") if floor else ("Old", "New")
    heads = [Column(head, "left") for head in ("Example", *sides)]
    goal = any(change.target for change in shown)
    heads += [Column("Target", "left")] if goal else []
    if floor:
        heads.append(Column("Pairs that differ"))
    elif not measure.decided:
        heads.append(Column(measure.turn.title() if measure.judged else "Distance"))
    rows = []
    for change in shown:
        row: list[Cell | str] = [change.id, _short(change.old), _short(change.new)]
        row += [_short(change.target)] if goal else []
        row += [] if measure.decided else [Cell(f"{change.fall:.4g}", change.fall)]
        rows.append(row)
    return Table(heads, rows, kind="compare", brief=_BRIEF)


def _short(text: str) -> str:
    words = text.split()
    cut = " ".join(words[:_WORDS])[: 8 * _WORDS]
    return f"{cut} ..." if len(cut) < len(" ".join(words)) else cut
