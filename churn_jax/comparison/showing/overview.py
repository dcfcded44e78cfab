"""The numbers of a comparison as rows of tables, already put into words."""

from typing import NamedTuple

from churn_jax.comparison.result import (
    QUANTITIES,
    CompareResult,
    Group,
    Interval,
    Version,
)
from churn_jax.comparison.showing.wording import (
    NOTHING,
    Unit,
    count_text,
    has_range,
    judgement,
    range_text,
    value_text,
)
from churn_jax.escaping import printable


class Cell(NamedTuple):
    """A number and its interval as text; "" where there is no interval."""

    value: str
    ends: str = ""


class ChangedRow(NamedTuple):
    """A quantity that each version has."""

    heading: str
    old: Cell
    new: Cell
    change: Cell
    word: str


class SingleRow(NamedTuple):
    """A quantity of the two versions together."""

    heading: str
    number: Cell
    formula: str


def about(result: CompareResult) -> str:
    """What was compared, in one sentence."""
    old, new = _version(result.old), _version(result.new)
    start = f"{_count(result.examples, 'example')}; "
    return start + (f"both: {old}" if old == new else f"old: {old}; new: {new}")


def _version(version: Version) -> str:
    runs, classes = _count(version.runs, "run"), _count(version.classes, "class", "es")
    return f"{version.kind}, {runs}, {classes}"


def _count(count: int, word: str, plural: str = "s") -> str:
    return f"{count_text(count)} {word}{'' if count == 1 else plural}"


def changed_rows(result: CompareResult) -> list[ChangedRow]:
    """Accuracy, NLL, Brier score and ECE: of both versions, and the change."""
    found = []
    for name, quantity in QUANTITIES.items():
        if quantity.unit not in ("points", "change"):
            continue
        stem = name.rpartition("_")[0]
        old, new = (_cell(result, f"{stem}_{version}") for version in ("old", "new"))
        if old.value == new.value == NOTHING:
            continue
        word = _word(name, result[name]) if name in result.quantities else ""
        heading = quantity.heading.rpartition(",")[0]
        found.append(ChangedRow(heading, old, new, _cell(result, name), word))
    return found


def _word(name: str, change: Interval) -> str:
    if not has_range(change):
        return ""
    nothing = change.low == change.high == 0
    return "same" if nothing else judgement(name, change)


def single_rows(result: CompareResult) -> list[SingleRow]:
    """Churn, flips and whatever else is one number of the pair."""
    changed = {
        f"{name.rpartition('_')[0]}_{version}"
        for name, quantity in QUANTITIES.items()
        if quantity.unit in ("points", "change")
        for version in ("old", "new", "gain", "change")
    }
    return [
        SingleRow(quantity.heading, _cell(result, name), quantity.formula)
        for name, quantity in QUANTITIES.items()
        if name in result.quantities and name not in changed
    ]


def noise_rows(result: CompareResult) -> list[SingleRow]:
    """What retraining alone changes, and what the update changes beyond that."""
    noise = result.noise
    if noise is None:
        return []
    rows = [
        ("Churn within old", noise.within_old, "between two runs of the old version"),
        ("Churn within new", noise.within_new, "between two runs of the new version"),
        ("Expected churn", noise.expected, "what retraining alone explains"),
    ]
    found = [
        SingleRow(heading, _as_cell(interval, "share"), formula)
        for heading, interval, formula in rows
        if interval.value == interval.value
    ]
    excess = _as_cell(noise.excess, "points")
    return [*found, SingleRow("Excess churn", excess, "churn minus expected churn")]


def worst_groups(result: CompareResult) -> dict[str, list[Group]]:
    """Groups by grouping, those first that the update makes worst."""
    found: dict[str, list[Group]] = {}
    for group in result.groups:
        found.setdefault(group.grouping, []).append(group)
    for groups in found.values():
        groups.sort(key=_badness)
    return found


def _badness(group: Group) -> tuple[float, float]:
    if group.accuracy_old != group.accuracy_old:
        return 0.0, -group.churn.value
    falls = group.accuracy_gain.value < 0
    return group.adjusted_p if falls else 2.0, -group.negative_flip_rate.value


def _cell(result: CompareResult, name: str) -> Cell:
    if name not in result.quantities:
        return Cell(NOTHING)
    return _as_cell(result[name], QUANTITIES[name].unit)


def _as_cell(interval: Interval, unit: Unit) -> Cell:
    return Cell(value_text(interval, unit), range_text(interval, unit))


def title(result: CompareResult) -> str:
    """`old.npz -> new.npz`."""
    return f"{printable(result.old.name)} -> {printable(result.new.name)}"
