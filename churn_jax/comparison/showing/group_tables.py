"""Tables of classes and slices for the page."""

import math
from collections.abc import Sequence

from churn_jax.comparison.result import Group, Interval
from churn_jax.comparison.showing.sorting import (
    Cell,
    Column,
    number,
    sortable_table,
    word,
)
from churn_jax.comparison.showing.wording import (
    Unit,
    count_text,
    has_range,
    p_text,
    range_text,
    share_text,
    value_text,
)
from churn_jax.escaping import escape

MOST_OPEN = 30  # groups; of more, those are shown and all of them folded
MOST = 1000  # rows of a page for each grouping


def groups_section(groups: Sequence[Group], *, level: float, labelled: bool) -> str:
    """One table per grouping; the largest changes of many groups come first."""
    by_grouping: dict[str, list[Group]] = {}
    for group in groups:
        by_grouping.setdefault(group.grouping, []).append(group)
    parts = []
    for grouping, members in by_grouping.items():
        is_class = grouping == "class"
        heading = "Classes" if is_class else f"Slices by {grouping}"
        parts.append(f"<section><h2>{escape(heading)}</h2>")
        first = "Class of the label" if is_class else grouping
        ordered = sorted(members, key=_by_evidence if labelled else _by_churn)
        parts.append(_said(ordered, level, labelled))
        most = MOST_OPEN if len(ordered) > 1.5 * MOST_OPEN else len(ordered)
        parts.append(_table(first, ordered[:most], level, labelled))
        if most < len(ordered):
            total = count_text(len(ordered))
            which = f"All {total}"
            if len(ordered) > MOST:
                which = f"The first {count_text(MOST)} of {total}; --json writes all"
            parts.append(
                f"<details><summary>{which}</summary>"
                + _table(first, ordered[:MOST], level, labelled)
                + "</details>"
            )
        parts.append("</section>")
    return "\n".join(parts)


def _by_evidence(group: Group) -> tuple[float, float, float]:
    """The least likely to be chance first, then the largest changes."""
    p = group.adjusted_p if group.adjusted_p == group.adjusted_p else 2.0
    raw = group.p if group.p == group.p else 2.0
    gain = group.accuracy_gain.value
    return p, raw, -abs(gain) if gain == gain else 0.0


def _by_churn(group: Group) -> float:
    churn = group.churn.value
    return -churn if churn == churn else 0.0


def _said(ordered: Sequence[Group], level: float, labelled: bool) -> str:
    """What stands above a table."""
    total = count_text(len(ordered))
    if not labelled:
        return f'<p class="soft">{total} groups, the most changed first.</p>'
    found = [_finding(group, level) for group in ordered]
    words = " and ".join(
        f"<strong>{count_text(found.count(word))} {word}</strong>"
        for word in ("worse", "better")
    )
    return (
        f'<p class="soft">Of {total}: {words} (Holm-adjusted p below '
        f"{1 - level:.3g}). The least likely to be chance come first.</p>"
    )


def _finding(group: Group, level: float) -> str:
    """Whether the group became worse or better, as far as that is significant."""
    if not group.adjusted_p < 1 - level:
        return ""
    return "worse" if group.accuracy_gain.value < 0 else "better"


def _table(first: str, groups: Sequence[Group], level: float, labelled: bool) -> str:
    columns = [Column(first, "ascending", words=True)]
    if labelled:
        columns += [
            Column("Finding", words=True),
            Column("Change, points", "ascending"),
            Column("Examples"),
            Column("Accuracy, old"),
            Column("Accuracy, new"),
            Column("Churn"),
            Column("Negative flips"),
            Column("Positive flips"),
            Column("p", "ascending"),
            Column("Adjusted p", "ascending"),
        ]
    else:
        columns += [Column("Examples"), Column("Churn")]
    shown = [g.accuracy_gain if labelled else g.churn for g in groups]
    widest = _widest(shown)
    rows = []
    for group, interval in zip(groups, shown, strict=True):
        bar = _bar(interval, widest, centred=labelled)
        examples = number(count_text(group.examples), group.examples)
        if labelled:
            row = [
                word(group.name),
                _word(_finding(group, level)),
                _interval(group.accuracy_gain, "points", bar),
                examples,
                number(share_text(group.accuracy_old), group.accuracy_old),
                number(share_text(group.accuracy_new), group.accuracy_new),
                _interval(group.churn, "share"),
                _interval(group.negative_flip_rate, "share"),
                _interval(group.positive_flip_rate, "share"),
                number(p_text(group.p), group.p),
                number(p_text(group.adjusted_p), group.adjusted_p),
            ]
        else:
            churn = _interval(group.churn, "share", bar)
            row = [word(group.name), examples, churn]
        rows.append(row)
    return sortable_table(columns, rows)


def _interval(interval: Interval, unit: Unit, bar: str = "") -> Cell:
    cell = number(
        value_text(interval, unit).removesuffix(" points"),
        interval.value,
        range_text(interval, unit),
    )
    return Cell(cell.html + bar, cell.value)


def _word(finding: str) -> Cell:
    mark = {"worse": "✗ ", "better": "✓ "}.get(finding, "")
    return Cell(f'<span class="{finding}">{mark}{finding}</span>' if finding else "–")


def _widest(intervals: Sequence[Interval]) -> float:
    """The end of the bars' axis: few bars are longer, and those are cut."""
    ends = sorted(
        max(abs(end) for end in (i.low, i.high, i.value) if math.isfinite(end))
        for i in intervals
        if math.isfinite(i.value)
    )
    return ends[int(0.95 * (len(ends) - 1))] if ends else 0.0


def _bar(interval: Interval, widest: float, *, centred: bool) -> str:
    """A tiny picture of an interval; the thin line is zero."""
    if not math.isfinite(interval.value) or not widest:
        return ""

    def place(value: float) -> float:
        share = max(-1.0, min(1.0, value / widest))
        return 50 + 48 * share if centred else 2 + 96 * max(share, 0.0)

    zero, middle = place(0.0), place(interval.value)
    ends = ""
    if has_range(interval):
        ends = f"M{place(interval.low):.0f} 5H{place(interval.high):.0f}"
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" '
        'aria-hidden="true" fill="none" stroke="currentColor">'
        f'<path d="M{zero:.0f} 0V10" stroke-width="1" opacity=".5"/>'
        f'<path d="{ends}M{middle:.0f} 1V9" stroke-width="2"/></svg>'
    )
