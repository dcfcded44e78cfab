"""Classes and slices of a comparison as tables, for its page and a terminal."""

import math
from collections.abc import Sequence

from churn_compare.documents import Block, Cell, Column, Fold, Strong, Table
from churn_compare.documents import Text as Paragraph
from churn_compare.number_text import (
    NOTHING,
    Unit,
    count_text,
    p_text,
    range_text,
    share_text,
    value_text,
)
from churn_compare.result import Group, Interval

_FINDINGS = {"better": "✓ better", "worse": "✗ worse", "": NOTHING}
_OPEN, _ROWS = 30, 1000  # groups that the page shows openly, and at all
_BRIEF = 5  # groups below full detail


def group_title(grouping: str) -> str:
    """The heading of the classes, or of the values of a column of the slices."""
    return "Classes" if grouping == "class" else f"Slices by {grouping}"


def group_blocks(
    grouping: str, groups: Sequence[Group], level: float, labelled: bool
) -> list[Block]:
    """One grouping on the page: the most changed groups, and all of them folded."""
    first = "Class of the label" if grouping == "class" else grouping
    # The maximum is 0 for NaN.
    churn = lambda group: -max(0.0, group["churn"].value)  # noqa: E731
    ordered = sorted(groups, key=_by_evidence if labelled else churn)
    total = count_text(len(ordered))
    said: list[str | Strong] = [f"{total} groups, the most changed first."]
    if labelled:
        found = [_finding(group, level) for group in ordered]
        worse, better = (
            Strong(f"{count_text(found.count(word))} {word}")
            for word in ("worse", "better")
        )
        said = [
            f"Of {total}: ",
            worse,
            " and ",
            better,
            f" (Holm-adjusted p below {1 - level:.3g}). The least likely to be chance "
            "come first.",
        ]
    most = _OPEN if len(ordered) > 1.5 * _OPEN else len(ordered)
    blocks: list[Block] = [
        Paragraph(said, "soft"),
        _group_table(first, ordered[:most], level, labelled),
    ]
    if most < len(ordered):
        which = f"All {total}"
        if len(ordered) > _ROWS:
            which = f"The first {count_text(_ROWS)} of {total}; --json writes all"
        whole = _group_table(first, ordered[:_ROWS], level, labelled)
        blocks.append(Fold(which, [whole]))
    return blocks


def _by_evidence(group: Group) -> tuple[float, float, float]:
    """The least likely to be chance first, then the largest changes."""
    p, raw = (2.0 if math.isnan(x) else x for x in (group.adjusted_p, group.p))
    gain = group["accuracy_gain"].value
    return p, raw, 0.0 if math.isnan(gain) else -abs(gain)


def _finding(group: Group, level: float) -> str:
    """Whether the group became worse or better, as far as that is significant."""
    if not group.adjusted_p < 1 - level:
        return ""
    return "worse" if group["accuracy_gain"].value < 0 else "better"


def _group_table(
    first: str, groups: Sequence[Group], level: float, labelled: bool
) -> Table:
    columns = [Column(first, "left", first="ascending")]
    if labelled:
        columns += [
            Column("Finding", "left", detail="full"),
            Column("Change, points", first="ascending"),
            Column("Examples"),
            Column("Accuracy, old", detail="full"),
            Column("Accuracy, new", detail="full"),
            Column("Churn"),
            Column("Negative flips"),
            Column("Positive flips", detail="full"),
            Column("p", first="ascending", detail="full"),
            Column("Adjusted p", first="ascending"),
        ]
    else:
        columns += [Column("Examples"), Column("Churn")]
    rows: list[tuple] = []
    for group in groups:
        examples = Cell(count_text(group.examples), group.examples)
        if not labelled:
            rows.append((group.name, examples, _sorted_cell(group["churn"], "share")))
            continue
        finding = _finding(group, level)
        old, new = (
            Cell(share_text(x), x)
            for x in (group["accuracy_old"].value, group["accuracy_new"].value)
        )
        rates = (
            group["churn"],
            group["negative_flip_rate"],
            group["positive_flip_rate"],
        )
        rows.append(
            (
                group.name,
                Cell(_FINDINGS[finding], tone=finding),
                _sorted_cell(group["accuracy_gain"], "points"),
                examples,
                old,
                new,
                *(_sorted_cell(rate, "share") for rate in rates),
                *(Cell(p_text(p), p) for p in (group.p, group.adjusted_p)),
            )
        )
    return Table(columns, rows, kind="compare", sortable=True, brief=_BRIEF)


def _sorted_cell(interval: Interval, unit: Unit) -> Cell:
    text = value_text(interval, unit).removesuffix(" points")
    return Cell(text, interval.value, range_text(interval, unit))
