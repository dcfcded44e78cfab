"""Tables of numbers, groups and versions, for a page, a terminal and Markdown."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from churn_compare.display import CompareResult, VersionsResult
from churn_compare.documents import Block, Cell, Column, Fold, Strong, Table, Text
from churn_compare.flip_counts import VersionMatrices
from churn_compare.gates import OF_CHANGED
from churn_compare.number_text import (
    NOTHING,
    count_text,
    counted,
    has_range,
    judgement,
    level_text,
    p_text,
    range_text,
    share_text,
    value_text,
)
from churn_compare.quantities import QUANTITIES
from churn_compare.result import (
    ROUNDING,
    Curve,
    Flow,
    Group,
    Interval,
    Measured,
    MeasureFindings,
    Regression,
)

_WIDE = 100  # least width of a terminal that shows the formulas
_LISTED, LISTED = 50, 2000  # regressions and changes on the page, unfolded and in all
_BRIEF = 10  # regressions and changes below full detail
_WORDS = 40  # words of a text in a table
_BETTER = {"lower": "lower is better", "higher": "higher is better", "": ""}
_MARKS = {"better": "✓ better", "worse": "✗ worse"}
_CLASSES = 12  # classes of a heat map; the last one may stand for all others
_OPEN, _ROWS = 30, 1000  # groups on the page, unfolded and in all
_BRIEF_GROUPS = 5  # groups below full detail
_IN_STEPS = {  # columns of the table of updates
    "churn": "Churn",
    "negative_flip_rate": "NFR",
    "positive_flip_rate": "PFR",
    "accuracy_gain": "Accuracy change, points",
}
_FLIPS = (
    " NFR: right before, wrong now. PFR: wrong before, right now. p: {} test of equal "
    "accuracy."
)


def number_cell(interval: Interval | None, name: str) -> Cell:
    """A quantity with its interval below it; a dash if there is none."""
    if interval is None:
        return Cell(NOTHING)
    unit = QUANTITIES[name].unit
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
        cell = number_cell(change, name)
        if change is not None and has_range(change):
            same = change.low == change.high == 0
            word = "" if same else judgement(name, change, lower)
            mark = _MARKS.get(word, "not detectable")
            tone = word if word in _MARKS else "soft"
            cell = dataclasses.replace(cell, mark=mark, tone=tone)
        better = _BETTER["lower" if lower else quantity.better]
        heading = Cell(quantity.heading.rpartition(",")[0], below=better)
        each = [number_cell(result.quantities.get(side), side) for side in sides]
        rows.append((heading, *each, cell))
    caption = _interval_note(result)
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
    scored = result.scored
    runs = result.run_pairs > 1
    heads = ("Example", "Label", "Predicted before", "Predicted now")
    more = ["Fall of the label's probability"] * scored
    more += ["Of pairs of runs"] * runs
    columns = [Column(heading, "left") for heading in heads]
    columns += [Column(heading, detail="full") for heading in more]
    rows = []
    for found in shown:
        row: list[Cell | str] = [found.id, found.label]
        sides = (found.old, found.old_confidence), (found.new, found.new_confidence)
        for name, confidence in sides:
            known = "" if math.isnan(confidence) else share_text(confidence)
            row.append(Cell(name, below=known))
        if scored:
            drop = found.label_drop
            row.append(NOTHING if math.isnan(drop) else f"{drop:.3g}")
        if runs:
            row.append(share_text(found.share))
        rows.append(row)
    return Table(columns, rows, kind="compare", brief=_BRIEF)


def change_blocks(measure: MeasureFindings) -> list[Block]:
    """The largest falls, or changes if no outcome is better or worse."""
    if not measure.changes:
        return [Text("There is none.")]
    floor = "runs_differ" in measure.quantities
    order = "worst" if measure.judged or floor else "largest"
    said = f"{count_text(measure.changes_total)} in all, {order} first."
    sides = ("One run", "Another") if floor else ("Old", "New")
    heads = [Column(head, "left") for head in ("Example", *sides)]
    goal = any(change.target for change in measure.changes)
    heads += [Column("Target", "left")] if goal else []
    if floor:
        heads.append(Column("Pairs that differ"))
    elif not measure.decided:
        heads.append(Column(measure.turn.title() if measure.judged else "Distance"))
    rows = []
    for change in measure.changes:
        row: list[Cell | str] = [change.id, _short(change.old), _short(change.new)]
        row += [_short(change.target)] if goal else []
        row += [] if measure.decided else [f"{change.fall:.4g}"]
        rows.append(row)
    table = Table(heads, rows, kind="compare", brief=_BRIEF)
    return [Text(said, "soft"), *folded(table)]


def folded(table: Table) -> list[Block]:
    """The first rows of a list, and the others folded."""
    first, others = (
        dataclasses.replace(table, rows=table.rows[part])
        for part in (slice(_LISTED), slice(_LISTED, LISTED))
    )
    more = Fold(f"{count_text(len(others.rows))} more", [others])
    return [first, *([more] if others.rows else [])]


def _short(text: str) -> str:
    words = text.split()
    cut = " ".join(words[:_WORDS])[: 8 * _WORDS]
    return f"{cut} ..." if len(cut) < len(" ".join(words)) else cut


def flow_map(flow: Flow) -> Table:
    """Heat map of changed predictions, from class (rows) to class (columns)."""
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
    sums = np.zeros((2, len(names), len(names)))
    for before, now, *numbers in zip(flow.old, flow.new, *counts, strict=True):
        where = place.get(before, last), place.get(now, last)
        sums[: len(counts), *where] += numbers

    def cell(examples: float, worse: float, shade: float) -> Cell:
        if examples < ROUNDING:
            return Cell("")
        below = f"{mean_count(worse)} worse" if worse >= ROUNDING else ""
        return Cell(mean_count(examples), below, shade=shade)

    numbers = zip(names, *sums, _shades(sums[0]), strict=True)
    rows = [(name, *map(cell, *of)) for name, *of in numbers]
    return Table([Column("Old, new", "left"), *names], rows, kind="compare")


def mean_count(examples: float) -> str:
    """Number of examples as text; a mean over pairs of runs may have a decimal."""
    return count_text(round(examples) if examples >= 10 else round(examples, 1))


def reliability_table(old: Curve, new: Curve) -> Table:
    """Confidence and accuracy of both versions in each bin with examples."""
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


def group_blocks(
    found: Measured, grouping: str, groups: Sequence[Group]
) -> list[Block]:
    """Blocks of one grouping: the most changed groups, and the others folded."""

    def by_evidence(group: Group) -> tuple[float, ...]:
        if not found.groups_judged:  # most changed first; the maximum is 0 for NaN
            return (-max(0.0, group[found.changed].value),)
        p, raw = (2.0 if math.isnan(x) else x for x in (group.adjusted_p, group.p))
        change = group[found.change].value
        return p, raw, 0.0 if math.isnan(change) else -abs(change)

    ordered = sorted(groups, key=by_evidence)
    total = count_text(len(ordered))
    flips = "" if found.sampled is None else "; flips are of these examples"
    said: list[str | Strong] = [
        f"{counted(len(ordered), 'group')}, the most changed first{flips}."
    ]
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
    table = _group_table(found, first, ordered[:most])
    blocks: list[Block] = [Text(said, "soft"), table]
    if most < len(ordered):
        others = ordered[most:_ROWS]
        which = f"{count_text(len(others))} more"
        which += f" of {total}; --json writes all" * (len(ordered) > _ROWS)
        blocks.append(Fold(which, [_group_table(found, first, others)]))
    return blocks


def _group_table(found: Measured, first: str, groups: Sequence[Group]) -> Table:
    changed = Column("Churn" if found.changed == "churn" else "Changed")
    numbers = {found.changed: changed}  # columns by name of the quantity
    columns = [Column(first, "left"), Column("Examples")]
    judged = found.groups_judged
    if judged:
        change = QUANTITIES[found.change]
        points = "Change, points" if change.unit == "points" else "Change"
        mean = change.heading.removesuffix(", change")
        flips = ("Negative flips", "Positive flips")
        worse, better = flips if found.decided else ("Worse", "Better")
        finding = Column("Finding", "left", detail="full")
        columns[1:1] = finding, Column(points)
        numbers = {
            f"{found.mean}_old": Column(f"{mean}, old", detail="full"),
            f"{found.mean}_new": Column(f"{mean}, new", detail="full"),
            found.changed: changed,
            found.worse: Column(worse),
            found.better: Column(better, detail="full"),
        }
        if "excess_nfr" in found.quantities:
            numbers["excess_nfr"] = Column("Beyond retraining", detail="full")
    if sampled := found.sampled is not None:
        heads = Column("Negative flips"), Column("Positive flips", detail="full")
        of_flips = (*heads, Column("Change, points"))
        numbers |= dict(zip(OF_CHANGED, of_flips, strict=True))
        columns.append(Column("Labelled"))
    columns += numbers.values()
    if judged:
        columns += [Column("p", detail="full"), Column("Adjusted p")]
    rows = []
    for group in groups:
        row: list[Cell | str] = [group.name]
        if judged:
            word = found.finding(group)
            row.append(Cell(_MARKS.get(word, NOTHING), tone=word))
            row.append(_group_cell(group, found.change))
        row.append(count_text(group.examples))
        if sampled and (of := group.sampled) is not None:
            row.append(f"{of.labelled} of {of.changed}")
            both = {**group.quantities, **of.these}
            group = dataclasses.replace(group, quantities=both)
        row += [_group_cell(group, name) for name in numbers]
        if judged:
            row += [p_text(p) for p in (group.p, group.adjusted_p)]
        rows.append(row)
    return Table(columns, rows, kind="compare", brief=_BRIEF_GROUPS)


def _group_cell(group: Group, name: str) -> Cell:
    cell = number_cell(group[name], name)
    return Cell(cell.text.removesuffix(" points"), cell.below)


def version_table(result: VersionsResult, labels: Sequence[str]) -> Table:
    """One row per version: runs, classes, accuracy, churn of retraining."""
    numbered = tuple(labels) != result.names  # then names have a column of their own
    several = any(version.runs > 1 for version in result.versions)
    heads = [*[""] * numbered, Column("Version", "left"), "Runs", "Classes"]
    heads += ["Accuracy"] * result.labelled + ["Churn of retraining"] * several
    rows = []
    for i, version in enumerate(result.versions):
        row: list[Cell | str] = [labels[i]] if numbered else []
        row += [version.name, count_text(version.runs), count_text(version.classes)]
        if result.labelled:
            row.append(_plain_cell(result.accuracy[i], "accuracy_new"))
        if several:
            row.append(share_text(result.churn[i, i]))
        rows.append(row)
    caption = _interval_note(result) if result.labelled else ""
    return Table(heads, rows, "", caption, "compare history")


def step_table(result: VersionsResult, links: Sequence[str]) -> Table:
    """One row per update, then the last version against the first and the sum."""
    names = [name for name in _IN_STEPS if name in result.whole.quantities]
    heads = ["Update", *(_IN_STEPS[name] for name in names), *["p"] * result.labelled]
    caption = _interval_note(result)
    caption += _FLIPS.format(result.whole.test) * result.labelled
    several = len(result.steps) > 1
    rows = []
    for step, link in zip((*result.steps, *[result.whole] * several), links):
        row = [Cell(step.title, link=link)]
        row += [_plain_cell(step[name], name) for name in names]
        if step.labelled:
            row.append(Cell(p_text(step.p)))
        rows.append(row)
    if several:
        nan = float("nan")
        sums = [Interval(result.step_sum(name), nan, nan) for name in names]
        row = [Cell("Sum"), *map(_plain_cell, sums, names)]
        rows.append([*row, *[Cell("")] * result.labelled])
        caption += " The row before the last compares the last version with the first."
    return Table(heads, rows, "", caption, "compare history")


def matrix_tables(
    result: VersionsResult | VersionMatrices,
    labels: Sequence[str],
    paired: bool = False,  # True if some updates are compared run by run
) -> list[Table]:
    """Churn and, with labels, NFR and relative NFR of every two versions."""
    several = np.isfinite(np.diag(result.churn)).any()
    over = "mean over pairs of runs" if several else "one run each"
    over += " of the same name, where all updates between are compared so" * paired
    again = " On the diagonal: two runs of one version." if several else ""
    differs = "Share of examples whose predicted class differs"
    found = [("Churn %", 100 * result.churn, 2, differs)]
    if result.negative_flip_rate is not None:
        what = (
            "Share of examples that are right in the row's version and wrong in the "
            "column's"
        )
        flips = 100 * result.negative_flip_rate
        found.append(("Negative flips (NFR) %", flips, 2, what))
    if result.relative_negative_flip_rate is not None:
        formula = QUANTITIES["relative_negative_flip_rate"].formula
        found.append(("Relative NFR", result.relative_negative_flip_rate, 3, formula))
    return [
        heat_map(labels, values, title, f"{what}; {over}.{again}", digits)
        for title, values, digits, what in found
    ]


def heat_map(
    labels: Sequence[str], values: np.ndarray, title: str, caption: str, digits: int
) -> Table:
    """Heat map of a number for every old (rows) and new version (columns)."""

    def cell(value: float, shade: float) -> Cell:
        text = f"{value:.{digits}f}" if np.isfinite(value) else NOTHING
        return Cell(text, shade=shade)

    numbers = zip(labels, values, _shades(values), strict=True)
    rows = [(name, *map(cell, *of)) for name, *of in numbers]
    return Table(("Old, new", *labels), rows, title, caption, "compare history")


def _shades(values: np.ndarray) -> np.ndarray:
    """Shade of each number's cell, from 0 to 1; NaN for undefined numbers."""
    known = values[np.isfinite(values)]
    most = float(known.max()) if known.size else 0.0
    return values / most if most > 0 else np.where(np.isfinite(values), 0.0, math.nan)


def _plain_cell(interval: Interval, name: str) -> Cell:
    """A number without its unit, which the heading has."""
    cell = number_cell(interval, name)
    return Cell(cell.text.removesuffix(" points"), below=cell.below.removesuffix(" %"))


def _interval_note(result: Measured | VersionsResult) -> str:
    return f"Below each number: its {level_text(result.level)} interval."
