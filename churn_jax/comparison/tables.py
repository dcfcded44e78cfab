"""The numbers of a comparison as tables, for its page, a terminal and Markdown."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from churn_jax.comparison.number_text import (
    NOTHING,
    Unit,
    count_text,
    has_range,
    judgement,
    level_text,
    p_text,
    range_text,
    share_text,
    value_text,
)
from churn_jax.comparison.result import (
    QUANTITIES,
    Findings,
    Flow,
    Group,
    Interval,
    Noise,
    Regression,
)
from churn_jax.documents import TERMINAL, Block, Cell, Column, Fold, Only, Strong, Table
from churn_jax.documents import Text as Paragraph
from churn_jax.documents.plotting import element

NARROW = 72  # columns of a terminal below which only changes have their interval
WIDE = 100  # columns of a terminal that shows what each quantity is
_BETTER = {"lower": "lower is better", "higher": "higher is better", "": ""}
_MARKS = {"better": "✓ better", "worse": "✗ worse"}
_FINDINGS = {"better": "✓ better", "worse": "✗ worse", "": NOTHING}
_OPEN, _ROWS = 30, 1000  # groups that the page shows openly, and at all
_FLOWS = 15  # rows of the table next to the diagram
_IN_TERMINAL = 5  # groups and flows; the page and the record have all


def number_cell(interval: Interval | None, unit: Unit) -> Cell:
    """A number with its interval below it; a dash if there is none."""
    if interval is None:
        return Cell(NOTHING)
    return Cell(value_text(interval, unit), below=range_text(interval, unit))


class Change(NamedTuple):
    """A quantity that each version has, and its change."""

    heading: str
    better: str
    old: Cell
    new: Cell
    change: Cell
    word: str  # "better", "worse", "unclear", "same"; "" where there is no interval


def changes(result: Findings) -> list[Change]:
    """Accuracy, NLL, Brier score and ECE of both versions, and the change."""
    found = []
    for name, quantity in QUANTITIES.items():
        if quantity.unit not in ("points", "change"):
            continue
        stem = name.rpartition("_")[0]
        of_sides = [f"{stem}_{side}" for side in ("old", "new")]
        if not {*of_sides} & {*result.quantities}:
            continue
        old, new = (
            number_cell(result.quantities.get(side), QUANTITIES[side].unit)
            for side in of_sides
        )
        change = result.quantities.get(name)
        word = ""
        if change is not None and has_range(change):
            nothing = change.low == change.high == 0
            word = "same" if nothing else judgement(name, change)
        heading = quantity.heading.rpartition(",")[0]
        cell = number_cell(change, quantity.unit)
        better = _BETTER[quantity.better]
        found.append(Change(heading, better, old, new, cell, word))
    return found


def changes_table(result: Findings) -> list[Block]:
    """`changes` for the page."""
    rows = []
    for row in changes(result):
        mark = _MARKS.get(row.word, "not detectable" if row.word else "")
        tone = row.word if row.word in _MARKS else mark and "soft"
        change = dataclasses.replace(row.change, mark=mark, tone=tone)
        rows.append((Cell(row.heading, below=row.better), row.old, row.new, change))
    caption = f"Below each number: its {level_text(result.level)} interval."
    heads = ("Both versions", "Old", "New", "Change")
    return [Table(heads, rows, "", caption, "compare versions")] if rows else []


def changes_lines(result: Findings) -> list[Block]:
    """`changes` for a terminal; a narrow one has the interval of the change alone."""
    interval = f"{level_text(result.level)} interval"
    rows = [
        (row.heading, row.old, row.new, row.change, Cell(row.word, tone=row.word))
        for row in changes(result)
    ]
    if not rows:
        return []
    heads = ("", "Old", "New", "Change", "")
    whole = Table(heads, rows, f"Both versions, with {interval}s", kind="compare")
    short = dataclasses.replace(
        whole,
        rows=[(name, Cell(a.text), Cell(b.text), *rest) for name, a, b, *rest in rows],
        title=f"Both versions, with {interval} of the change",
    )
    return [
        Only((TERMINAL,), [whole], from_width=NARROW),
        Only((TERMINAL,), [short], below_width=NARROW),
    ]


def changes_markdown(result: Findings) -> list[Block]:
    """`changes` for Markdown."""
    rows = [(row.heading, *row[2:]) for row in changes(result)]
    heads = ("", "Old", "New", "Change", Column("", "left"))
    return [Table(heads, rows)] if rows else []


class Single(NamedTuple):
    """A quantity of the two versions together."""

    heading: str
    better: str
    interval: Interval
    unit: Unit
    formula: str


def singles(result: Findings) -> list[Single]:
    """Churn, flips and all other quantities of the two versions together."""
    both = {name.rpartition("_")[0] for name, q in QUANTITIES.items() if _is_change(q)}
    return [
        Single(q.heading, _BETTER[q.better], result[name], q.unit, q.formula)
        for name, q in QUANTITIES.items()
        if name in result.quantities
        and not _is_change(q)
        and name.rpartition("_")[0] not in both
    ]


def _is_change(quantity) -> bool:
    return quantity.unit in ("points", "change")


def noise_singles(noise: Noise | None) -> list[Single]:
    """What retraining alone changes, and what the update changes beyond that."""
    if noise is None:
        return []
    rows = (
        ("Churn within old", noise.within_old, "between two runs of the old version"),
        ("Churn within new", noise.within_new, "between two runs of the new version"),
        ("Expected churn", noise.expected, "what retraining alone explains"),
    )
    found = [
        Single(heading, "", interval, "share", formula)
        for heading, interval, formula in rows
        if not math.isnan(interval.value)
    ]
    beyond = "churn minus expected churn"
    return [*found, Single("Excess churn", "", noise.excess, "points", beyond)]


def singles_table(result: Findings) -> Table:
    """`singles` for the page."""
    rows = [
        (
            Cell(row.heading, below=row.better),
            value_text(row.interval, row.unit),
            range_text(row.interval, row.unit)
            or ("undefined" if math.isnan(row.interval.value) else NOTHING),
            row.formula,
        )
        for row in singles(result)
    ]
    interval = f"{level_text(result.level)} interval"
    heads = ("The update", "Value", interval, Column("What it is", "left"))
    return Table(heads, rows, kind="compare numbers")


def singles_lines(
    rows: Sequence[Single], level: float, title: str = "", what: str = ""
) -> list[Block]:
    """`singles` for a terminal, and for Markdown with a heading for the last column."""
    interval = f"{level_text(level)} interval"
    heads = ("", "Value", interval, Column(what, "left", from_width=WIDE))
    cells = [
        (
            row.heading,
            value_text(row.interval, row.unit),
            range_text(row.interval, row.unit),
            row.formula,
        )
        for row in rows
    ]
    return [Table(heads, cells, title, kind="compare")] if cells else []


def noise_table(noise: Noise) -> Table:
    """Churn between runs of one version, and what the update adds."""
    rows = [
        (heading, number_cell(interval, unit))
        for heading, interval, unit in (
            ("Between runs of the old version", noise.within_old, "share"),
            ("Between runs of the new version", noise.within_new, "share"),
            ("Expected from retraining alone", noise.expected, "share"),
            ("The update, beyond that", noise.excess, "points"),
        )
        if not math.isnan(interval.value)
    ]
    rows.append(('p of "nothing beyond that"', Cell(p_text(noise.p))))
    return Table(("Churn", ""), rows, kind="compare")


def groupings(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups by grouping."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.grouping, []).append(group)
    return found


def worst_groups(result: Findings) -> list[Block]:
    """The groups that the update makes worst, for a terminal."""
    interval = f"{level_text(result.level)} interval"
    found: list[Block] = []
    for grouping, groups in groupings(result.groups).items():
        shown = sorted(groups, key=_badness)[:_IN_TERMINAL]
        what = "Classes" if grouping == "class" else f"Slices by {grouping}"
        order = "worst first" if result.labelled else "most churn first"
        some = f" of {count_text(len(groups))}" if len(shown) < len(groups) else ""
        heads = ["", "Examples", "Churn"]
        heads += ["NFR", "Accuracy change"] if result.labelled else []
        heads += [interval, *(["Adjusted p"] if result.labelled else [])]
        rows = []
        for group in shown:
            row = [
                group.name,
                count_text(group.examples),
                share_text(group.churn.value),
            ]
            if result.labelled:
                gain = group.accuracy_gain
                row.append(share_text(group.negative_flip_rate.value))
                row += [value_text(gain, "points"), range_text(gain, "points")]
                row.append(p_text(group.adjusted_p))
            else:
                row.append(range_text(group.churn, "share"))
            rows.append(row)
        title = f"{what}, {order}: {len(shown)}{some}"
        found.append(Table(heads, rows, title, kind="compare"))
    return found


def _badness(group: Group) -> tuple[float, float]:
    """Falling accuracy by adjusted p, then negative flips; without labels churn."""
    if math.isnan(group.accuracy_old):
        return 0.0, -group.churn.value
    falls = group.accuracy_gain.value < 0
    return group.adjusted_p if falls else 2.0, -group.negative_flip_rate.value


def group_blocks(
    grouping: str, groups: Sequence[Group], level: float, labelled: bool
) -> list[Block]:
    """One grouping on the page: the most changed groups, and all of them folded."""
    first = "Class of the label" if grouping == "class" else grouping
    ordered = sorted(groups, key=_by_evidence if labelled else _by_churn)
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
    gain = group.accuracy_gain.value
    return p, raw, 0.0 if math.isnan(gain) else -abs(gain)


def _by_churn(group: Group) -> float:
    churn = group.churn.value
    return 0.0 if math.isnan(churn) else -churn


def _finding(group: Group, level: float) -> str:
    """Whether the group became worse or better, as far as that is significant."""
    if not group.adjusted_p < 1 - level:
        return ""
    return "worse" if group.accuracy_gain.value < 0 else "better"


def _group_table(
    first: str, groups: Sequence[Group], level: float, labelled: bool
) -> Table:
    columns = [Column(first, "left", first="ascending")]
    if labelled:
        columns += [
            Column("Finding", "left"),
            Column("Change, points", first="ascending"),
            *map(Column, ("Examples", "Accuracy, old", "Accuracy, new", "Churn")),
            *map(Column, ("Negative flips", "Positive flips")),
            Column("p", first="ascending"),
            Column("Adjusted p", first="ascending"),
        ]
    else:
        columns += [Column("Examples"), Column("Churn")]
    drawn = [g.accuracy_gain if labelled else g.churn for g in groups]
    widest = _widest(drawn)
    rows: list[tuple] = []
    for group, interval in zip(groups, drawn, strict=True):
        bar = _bar(interval, widest, centred=labelled)
        examples = Cell(count_text(group.examples), group.examples)
        if not labelled:
            rows.append((group.name, examples, _sorted_cell(group.churn, "share", bar)))
            continue
        finding = _finding(group, level)
        old, new = (
            Cell(share_text(x), x) for x in (group.accuracy_old, group.accuracy_new)
        )
        rates = (group.churn, group.negative_flip_rate, group.positive_flip_rate)
        rows.append(
            (
                group.name,
                Cell(_FINDINGS[finding], tone=finding),
                _sorted_cell(group.accuracy_gain, "points", bar),
                examples,
                old,
                new,
                *(_sorted_cell(rate, "share") for rate in rates),
                *(Cell(p_text(p), p) for p in (group.p, group.adjusted_p)),
            )
        )
    return Table(columns, rows, kind="compare", sortable=True)


def _sorted_cell(interval: Interval, unit: Unit, bar: str = "") -> Cell:
    text = value_text(interval, unit).removesuffix(" points")
    return Cell(text, interval.value, range_text(interval, unit), drawing=bar)


def _widest(intervals: Sequence[Interval]) -> float:
    """The end of the axis of the bars; the few longer bars are cut."""
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

    ends = ""
    if has_range(interval):
        ends = f"M{place(interval.low):.0f} 5H{place(interval.high):.0f}"
    value = f"{ends}M{place(interval.value):.0f} 1V9"
    return element(
        "svg",
        element("path", d=f"M{place(0.0):.0f} 0V10", stroke_width=1, opacity=".5"),
        element("path", d=value, stroke_width=2),
        class_="bar",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
        fill="none",
        stroke="currentColor",
    )


def regressions_table(
    regressions: Sequence[Regression], *, scored: bool, runs: bool
) -> Table:
    """Examples that were right and are wrong now, worst first, for the page."""
    columns = [
        Column(heading, "left", first="ascending")
        for heading in ("Example", "Label", "Predicted before", "Predicted now")
    ]
    if scored:
        columns += [Column("Fall of the label's probability"), Column("Displacement")]
    columns += [Column("Of pairs of runs")] if runs else []
    rows = []
    for found in regressions:
        row: list[Cell | str] = [found.id, found.label]
        for name, confidence in (
            (found.old, found.old_confidence),
            (found.new, found.new_confidence),
        ):
            known = "" if math.isnan(confidence) else share_text(confidence)
            row.append(Cell(name, below=known))
        if scored:
            moved = found.label_drop, found.displacement
            row += [Cell(NOTHING if math.isnan(x) else f"{x:.3g}", x) for x in moved]
        if runs:
            row.append(Cell(share_text(found.share), found.share))
        rows.append(row)
    return Table(columns, rows, kind="compare", sortable=True)


def regressions_lines(result: Findings, most: int = 10) -> list[Block]:
    """The worst regressions, for a terminal."""
    shown = result.regressions[:most]
    if not shown:
        return []
    scored = not math.isnan(shown[0].label_drop)
    runs = max(result.old.runs, result.new.runs) > 1
    total = count_text(result.regressions_total)
    title = f"Largest regressions: {len(shown)} of {total}"
    if scored:
        title += "; p: the label's probability, move: of the logits"
    # In one run the old version predicts the label, or it would not be a regression.
    words = ["Example", "Label", "Old", "New"] if runs else ["Example", "Old", "New"]
    heads: list[Column | str] = [Column(heading, "left") for heading in words]
    heads += ["Fall of p", "Move"] if scored else []
    heads += ["Pairs"] if runs else []
    rows = []
    for found in shown:
        row = [found.id, *([found.label] if runs else [])]
        row.append(_predicted(found.old, found.old_confidence))
        row.append(_predicted(found.new, found.new_confidence))
        if scored:
            row += [f"{found.label_drop:.2f}", f"{found.displacement:.2f}"]
        row += [f"{100 * found.share:.0f} %"] if runs else []
        rows.append(row)
    return [Table(heads, rows, title, kind="compare")]


def _predicted(name: str, confidence: float) -> str:
    return name if math.isnan(confidence) else f"{name} ({confidence:.2f})"


def flow_table(flow: Flow) -> Table:
    """The largest flows, for the page."""
    counts = _flow_counts(flow)
    whole = all(float(count).is_integer() for column in counts for count in column)
    heads = [Column("From", "left", first="ascending")]
    heads += [Column("To", "left", first="ascending"), Column("Examples")]
    if len(counts) > 1:
        heads += [Column("Right before, wrong now"), Column("Wrong before, right now")]
    ways = list(zip(flow.old, flow.new, *counts, strict=True))
    rows = [
        (old, new, *(Cell(f"{c:,.0f}" if whole else f"{c:,.1f}", c) for c in row))
        for old, new, *row in ways[:_FLOWS]
    ]
    caption = f"The {_FLOWS} largest." if len(rows) < len(ways) else ""
    return Table(heads, rows, caption=caption, kind="compare", sortable=True)


def flow_lines(flow: Flow) -> list[Block]:
    """The largest flows, for a terminal."""
    counts = _flow_counts(flow)
    ways = list(zip(flow.old, flow.new, *counts, strict=True))
    shown = ways[:_IN_TERMINAL]
    some = f" of {count_text(len(ways))}" if len(shown) < len(ways) else ""
    heads = ["Old", Column("New", "left"), "Examples"]
    heads += ["Now wrong", "Now right"] if len(counts) > 1 else []
    rows = [(old, new, *map(count_text, row)) for old, new, *row in shown]
    title = f"Most frequent changes: {len(shown)}{some}"
    return [Table(heads, rows, title, kind="compare")] if rows else []


def _flow_counts(flow: Flow) -> tuple[tuple[float, ...], ...]:
    labelled = bool(flow.negative) and not math.isnan(flow.negative[0])
    return (flow.examples, flow.negative, flow.positive)[: 3 if labelled else 1]
