"""Classes and slices of a comparison as tables, for its page and a terminal."""

import math
from collections.abc import Sequence

from churn_compare.documents import Block, Cell, Column, Fold, Strong, Table, Text
from churn_compare.number_text import NOTHING, Unit, count_text, p_text
from churn_compare.quantities import QUANTITIES
from churn_compare.result import Group, Measured
from churn_compare.tables import number_cell

_FINDINGS = {"better": "✓ better", "worse": "✗ worse", "": NOTHING}
_OPEN, _ROWS = 30, 1000  # groups that the page shows openly, and at all
_BRIEF = 5  # groups below full detail


def group_title(grouping: str) -> str:
    """The heading of the classes, or of the values of a column of the slices."""
    return "classes" if grouping == "class" else f"slices by {grouping}"


def group_blocks(
    found: Measured, grouping: str, groups: Sequence[Group]
) -> list[Block]:
    """One grouping on the page: the most changed groups, and all of them folded."""

    def by_evidence(group: Group) -> tuple[float, ...]:
        if not found.groups_judged:  # the most changed first; the maximum is 0 for NaN
            return (-max(0.0, group[found.changed].value),)
        p, raw = (2.0 if math.isnan(x) else x for x in (group.adjusted_p, group.p))
        change = group[found.change].value
        return p, raw, 0.0 if math.isnan(change) else -abs(change)

    ordered = sorted(groups, key=by_evidence)
    total = count_text(len(ordered))
    said: list[str | Strong] = [f"{total} groups, the most changed first."]
    if found.groups_judged:
        words = [found.finding(group) for group in ordered]
        worse, better = (
            Strong(f"{count_text(words.count(word))} {word}")
            for word in ("worse", "better")
        )
        rest = (
            f" (Holm-adjusted p below {1 - found.level:.3g}). The least likely to be "
            "chance come first."
        )
        said = [f"Of {total}: ", worse, " and ", better, rest]
    most = _OPEN if len(ordered) > 1.5 * _OPEN else len(ordered)
    first = "Class of the label" if grouping == "class" else grouping
    blocks: list[Block] = [
        Text(said, "soft"),
        _group_table(found, first, ordered[:most]),
    ]
    if most < len(ordered):
        which = f"All {total}"
        if len(ordered) > _ROWS:
            which = f"The first {count_text(_ROWS)} of {total}; --json writes all"
        whole = _group_table(found, first, ordered[:_ROWS])
        blocks.append(Fold(which, [whole]))
    return blocks


def _group_table(found: Measured, first: str, groups: Sequence[Group]) -> Table:
    columns = [Column(first, "left", first="ascending")]
    changed = "Churn" if found.changed == "churn" else "Changed"
    if not found.groups_judged:
        columns += [Column("Examples"), Column(changed)]
        rows: list[tuple] = [
            (
                group.name,
                Cell(count_text(group.examples), group.examples),
                _sorted_cell(group, found.changed),
            )
            for group in groups
        ]
        return Table(columns, rows, kind="compare", sortable=True, brief=_BRIEF)
    change = QUANTITIES[found.change]
    mean = change.heading.removesuffix(", change")
    flips = (
        ("Negative flips", "Positive flips") if found.decided else ("Worse", "Better")
    )
    beyond = ["excess_nfr"] if "excess_nfr" in found.quantities else []
    columns += [
        Column("Finding", "left", detail="full"),
        Column(
            "Change, points" if change.unit == "points" else "Change", first="ascending"
        ),
        Column("Examples"),
        Column(f"{mean}, old", detail="full"),
        Column(f"{mean}, new", detail="full"),
        Column(changed),
        Column(flips[0]),
        Column(flips[1], detail="full"),
        *(Column("Beyond retraining", detail="full") for _ in beyond),
        Column("p", first="ascending", detail="full"),
        Column("Adjusted p", first="ascending"),
    ]
    rows = []
    for group in groups:
        finding = found.finding(group)
        numbers = [f"{found.mean}_old", f"{found.mean}_new"]
        numbers += [found.changed, found.worse, found.better, *beyond]
        rows.append(
            (
                group.name,
                Cell(_FINDINGS[finding], tone=finding),
                _sorted_cell(group, found.change),
                Cell(count_text(group.examples), group.examples),
                *(_sorted_cell(group, name) for name in numbers),
                *(Cell(p_text(p), p) for p in (group.p, group.adjusted_p)),
            )
        )
    return Table(columns, rows, kind="compare", sortable=True, brief=_BRIEF)


def _sorted_cell(group: Group, name: str) -> Cell:
    unit: Unit = QUANTITIES[name].unit
    cell = number_cell(group[name], unit)
    text = cell.text.removesuffix(" points")
    return Cell(text, group[name].value, cell.below)
