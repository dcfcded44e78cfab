"""The numbers of a comparison as tables, for its page, a terminal and Markdown."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from churn_jax.comparison.noise import least_p
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
from churn_jax.comparison.quantities import QUANTITIES
from churn_jax.comparison.result import (
    Findings,
    Flow,
    Interval,
    Noise,
    Numbered,
    Regression,
)
from churn_jax.documents import TERMINAL, Block, Cell, Column, Only, Table

NARROW = 72  # columns of a terminal below which only changes have their interval
WIDE = 100  # columns of a terminal that shows what each quantity is
_BETTER = {"lower": "lower is better", "higher": "higher is better", "": ""}
_MARKS = {"better": "✓ better", "worse": "✗ worse"}
_FLOWS = 15  # rows of the table next to the diagram
_IN_TERMINAL = 5  # flows; the page and the record have all


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


def changes(result: Numbered) -> list[Change]:
    """Accuracy, NLL, Brier score and ECE of both versions, and the change."""
    found = []
    less = getattr(result, "lower_is_better", False)
    for name, quantity in QUANTITIES.items():
        if not quantity.is_change:
            continue
        lower = less and name == "score_change"
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
            word = "same" if nothing else judgement(name, change, lower)
        heading = quantity.heading.rpartition(",")[0]
        cell = number_cell(change, quantity.unit)
        better = _BETTER["lower" if lower else quantity.better]
        found.append(Change(heading, better, old, new, cell, word))
    return found


def changes_table(result: Numbered) -> list[Block]:
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


def changes_lines(result: Numbered) -> list[Block]:
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


def changes_markdown(result: Numbered) -> list[Block]:
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


def singles(result: Numbered) -> list[Single]:
    """Churn, flips and all other quantities of the two versions together."""
    both = {name.rpartition("_")[0] for name, q in QUANTITIES.items() if q.is_change}
    return [
        Single(q.heading, _BETTER[q.better], result[name], q.unit, q.formula)
        for name, q in QUANTITIES.items()
        if name in result.quantities
        and not q.is_change
        and name.rpartition("_")[0] not in both
    ]


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


def singles_table(result: Numbered) -> Table:
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
    sides = (noise.within_old.value, noise.within_new.value)
    least = least_p(*(1 if math.isnan(side) else 2 for side in sides))
    rows.append(('p of "nothing beyond that"', Cell(p_text(noise.p, least))))
    return Table(("Churn", ""), rows, kind="compare")


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
