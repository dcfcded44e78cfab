"""The numbers of a comparison as tables, for its page, a terminal and Markdown."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from churn_compare.display import CompareResult
from churn_compare.documents import Block, Cell, Column, Table
from churn_compare.figures import shades
from churn_compare.number_text import (
    NOTHING,
    Unit,
    count_text,
    has_range,
    judgement,
    level_text,
    range_text,
    share_text,
    value_text,
)
from churn_compare.quantities import QUANTITIES
from churn_compare.result import (
    Curve,
    Flow,
    Interval,
    Measured,
    Regression,
)

_WIDE = 100  # columns of a terminal that shows what each quantity is
_BRIEF = 10  # regressions below full detail
_BETTER = {"lower": "lower is better", "higher": "higher is better", "": ""}
_MARKS = {"better": "✓ better", "worse": "✗ worse"}
_CLASSES = 12  # of a heat map, the last of which may stand for all others
_NOTHING = 1e-9  # examples; a mean over pairs of runs leaves rounding errors


def number_cell(interval: Interval | None, unit: Unit) -> Cell:
    """A number with its interval below it; a dash if there is none."""
    if interval is None:
        return Cell(NOTHING)
    return Cell(value_text(interval, unit), below=range_text(interval, unit))


def changes_table(result: Measured) -> list[Block]:
    """Accuracy, NLL, Brier score and ECE of both versions, and their changes."""
    rows = []
    for name, quantity in QUANTITIES.items():
        stem = name.rpartition("_")[0]
        sides = [f"{stem}_{side}" for side in ("old", "new")]
        if not quantity.is_change or not {*sides, name} & {*result.quantities}:
            continue
        lower = name == "score_change" and result.lower_is_better
        change = result.quantities.get(name)
        cell = number_cell(change, quantity.unit)
        if change is not None and has_range(change):
            same = change.low == change.high == 0
            word = "" if same else judgement(name, change, lower)
            mark = _MARKS.get(word, "not detectable")
            cell = dataclasses.replace(
                cell, mark=mark, tone=word if word in _MARKS else "soft"
            )
        better = _BETTER["lower" if lower else quantity.better]
        heading = Cell(quantity.heading.rpartition(",")[0], below=better)
        each = [
            number_cell(result.quantities.get(s), QUANTITIES[s].unit) for s in sides
        ]
        rows.append((heading, *each, cell))
    caption = f"Below each number: its {level_text(result.level)} interval."
    heads = ("Both versions", "Old", "New", "Change")
    return [Table(heads, rows, "", caption, "compare versions")] if rows else []


def singles_table(result: Measured) -> Table:
    """Churn, flips and the other numbers of the two versions together."""
    both = {name.rpartition("_")[0] for name, q in QUANTITIES.items() if q.is_change}
    rows: list[tuple] = []
    for name, q in QUANTITIES.items():
        of_both = q.is_change or name.rpartition("_")[0] in both
        if name in result.quantities and not of_both:
            interval = result[name]
            nothing = "undefined" if math.isnan(interval.value) else NOTHING
            heading = Cell(q.heading, below=_BETTER[q.better])
            ends = range_text(interval, q.unit) or nothing
            rows.append((heading, value_text(interval, q.unit), ends, q.formula))
    what = Column("What it is", "left", from_width=_WIDE)
    heads = ("", "Value", f"{level_text(result.level)} interval", what)
    return Table(heads, rows, kind="compare numbers")


def regressions_table(result: CompareResult, shown: Sequence[Regression]) -> Table:
    """Examples that were right and are wrong now, worst first."""
    scored = "classes" not in (result.old.kind, result.new.kind)
    runs = result.run_pairs > 1
    columns = [
        Column(heading, "left", first="ascending")
        for heading in ("Example", "Label", "Predicted before", "Predicted now")
    ]
    if scored:
        columns += [
            Column("Fall of the label's probability", detail="full"),
            Column("Displacement", detail="full"),
        ]
    columns += [Column("Of pairs of runs", detail="full")] if runs else []
    rows = []
    for found in shown:
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
    return Table(columns, rows, kind="compare", sortable=True, brief=_BRIEF)


def flow_map(flow: Flow) -> Table:
    """Changed predictions from class (rows) to class (columns), the darker the more."""
    labelled = bool(flow.negative) and not math.isnan(flow.negative[0])
    counts = (flow.examples, flow.negative)[: 1 + labelled]
    sizes: dict[str, float] = {}
    for old, new, count in zip(flow.old, flow.new, flow.examples, strict=True):
        for name in (old, new):
            sizes[name] = sizes.get(name, 0.0) + count
    names = sorted(sizes, key=lambda name: (-sizes[name], name))
    if (rest := len(names) - _CLASSES + 1) > 1:
        names = [*names[: _CLASSES - 1], f"{count_text(rest)} others"]
    place = {name: i for i, name in enumerate(names)}
    last = len(names) - 1
    sums = np.zeros((len(counts), len(names), len(names)))
    for before, now, *numbers in zip(flow.old, flow.new, *counts, strict=True):
        sums[:, place.get(before, last), place.get(now, last)] += numbers
    shade = shades(sums[0])

    def cell(i: int, j: int) -> Cell:
        if sums[0, i, j] < _NOTHING:
            return Cell("")
        worse = sums[1, i, j] if len(counts) > 1 else 0.0
        below = f"{mean_count(worse)} worse" if worse >= _NOTHING else ""
        text = mean_count(sums[0, i, j])
        return Cell(text, sums[0, i, j], below, shade=shade[i, j])

    each = range(len(names))
    rows = [(name, *(cell(i, j) for j in each)) for i, name in enumerate(names)]
    return Table([Column("Before, now", "left"), *names], rows, kind="compare")


def mean_count(examples: float) -> str:
    """Number of examples; a mean over pairs of runs may have a fraction."""
    return count_text(round(examples) if examples >= 10 else round(examples, 1))


def reliability_table(old: Curve, new: Curve) -> Table:
    """Confidence and accuracy of both versions in the bins that have examples."""
    heads = ["Confidence"]
    for name in ("old", "new"):
        heads += [f"{head}, {name}" for head in ("Examples", "Mean", "Accuracy")]
    edges = np.linspace(0, 1, len(old.examples) + 1)
    rows = []
    for i in np.flatnonzero(old.examples + new.examples):
        row = [f"{edges[i]:.2f} to {edges[i + 1]:.2f}"]
        for curve in (old, new):
            numbers = (curve.confidence[i], curve.accuracy[i])
            row += [count_text(curve.examples[i]), *map(share_text, numbers)]
        rows.append(row)
    return Table(heads, rows, title="Reliability", kind="compare")
