"""What a comparison of versions says: its sentences, and the cells of its tables."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from churn_jax.comparison.result import (
    QUANTITIES,
    CompareResult,
    Interval,
    VersionsResult,
)
from churn_jax.comparison.showing.overview import title
from churn_jax.comparison.showing.verdict import sentences
from churn_jax.comparison.showing.wording import (
    NOTHING,
    count_text,
    level_text,
    p_text,
    range_text,
    share_text,
    value_text,
    with_range,
)
from churn_jax.escaping import printable

_IN_STEPS = {  # columns of the table of updates
    "churn": "Churn",
    "negative_flip_rate": "NFR",
    "positive_flip_rate": "PFR",
    "accuracy_gain": "Accuracy change, points",
}
_FLIPS = (
    "NFR: right before, wrong now. PFR: wrong before, right now. p: exact McNemar "
    "test of equal accuracy."
)
_MANY, _SHORT = 8, 10  # versions, and characters of a name, that there is room for
_FEW = 0.05  # of all flips; where fewer cancel, they accumulate


class VersionsTable(NamedTuple):
    """`title`, `heads`, `rows` of cells, and a `caption`, all plain text."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def short_labels(result: VersionsResult) -> tuple[str, ...]:
    """What figures and narrow tables call the versions."""
    # Names, or numbers from 1 where names would take the room.
    names = tuple(map(printable, result.names))
    if len(names) <= _MANY and max(map(len, names)) <= _SHORT:
        return names
    return tuple(str(i + 1) for i in range(len(names)))


def versions_sentences(result: VersionsResult) -> tuple[str, ...]:
    """The finding in plain words."""
    if len(result.steps) == 1:
        return sentences(result.whole)
    out = []
    if result.labelled:
        out.append(_accuracy(result))
    out.append(_changes(result))
    out.append(_added(result, "churn", "Changes", "change more than once"))
    if result.labelled:
        flips, back = "Negative flips", "also change for the better on the way"
        out.append(_added(result, "negative_flip_rate", flips, back))
    again = np.diag(result.churn)
    again = again[np.isfinite(again)]
    if len(again):
        low, high = share_text(again.min()), share_text(again.max())
        size = low if low == high else f"{low} to {high}"
        out.append(
            f"Two runs of one version predict differently for {size} of the examples: "
            "so much changes by training again alone."
        )
    return tuple(out)


def _accuracy(result: VersionsResult) -> str:
    """Of the first and the last version."""
    whole, gain = result.whole, result.whole["accuracy_gain"]
    first, last = printable(result.names[0]), printable(result.names[-1])
    old, new = (
        value_text(Interval(whole[name].value, gain.low, gain.high), "share")
        for name in ("accuracy_old", "accuracy_new")
    )
    return (
        f"Accuracy goes from {old} ({first}) to {new} ({last}), "
        f"{with_range(gain, 'points', result.level)}."
    )


def _changes(result: VersionsResult) -> str:
    """The updates that change least and most."""
    ordered = sorted(result.steps, key=lambda step: step["churn"].value)
    least, most = (
        f"{with_range(step['churn'], 'share')} in {title(step)}"
        for step in (ordered[0], ordered[-1])
    )
    return (
        f"Of {count_text(len(ordered))} updates the smallest changes {least}, the "
        f"largest {most}."
    )


def _added(result: VersionsResult, name: str, what: str, back: str) -> str:
    """Whether what the updates change is there in the end."""
    added, there = result.step_sum(name), result.whole[name].value
    start = (
        f"{what} of the single updates add up to {share_text(added)} of the examples; "
        f"from the first version to the last they are {share_text(there)}"
    )
    gone = added - there  # never below 0: every path of runs flips at least so often
    if added <= 0 or gone < _FEW * added:
        return f"{start}: they accumulate."
    return f"{start}. {share_text(gone / added)} cancel out, in examples that {back}."


def version_table(
    result: VersionsResult, labels: Sequence[str] | None = None
) -> VersionsTable:
    """One row per version: runs, classes, accuracy, and what training again changes."""
    names = tuple(map(printable, result.names))
    if labels is not None and tuple(labels) == names:
        labels = None
    heads = ["Version"] if labels is None else ["", "Version"]
    heads += ["Runs", "Classes"]
    heads += ["Accuracy"] if result.labelled else []
    heads += ["Churn of retraining"] if _several(result) else []
    rows = []
    for i, version in enumerate(result.versions):
        cells = [] if labels is None else [labels[i]]
        counts = version.runs, version.classes
        cells += [names[i], *map(count_text, counts)]
        if result.labelled:
            cells.append(_cell(result.accuracy[i], "accuracy_new"))
        if _several(result):
            cells.append(share_text(result.churn[i, i]))
        rows.append(tuple(cells))
    caption = _interval_note(result) if result.labelled else ""
    return VersionsTable("Versions", tuple(heads), tuple(rows), caption)


def step_table(
    result: VersionsResult, labels: Sequence[str] | None = None
) -> VersionsTable:
    """One row per update, then the last version against the first, then the sum."""
    labels = tuple(map(printable, result.names)) if labels is None else labels
    names = [name for name in _IN_STEPS if name in result.whole.quantities]
    heads = ["Update", *(_IN_STEPS[name] for name in names)]
    heads += ["p"] if result.labelled else []
    rows = [
        (f"{labels[i]} -> {labels[i + 1]}", *_step_cells(step, names))
        for i, step in enumerate(result.steps)
    ]
    caption = _interval_note(result) + (f" {_FLIPS}" if result.labelled else "")
    if len(result.steps) > 1:
        whole = f"{labels[0]} -> {labels[-1]}"
        rows.append((whole, *_step_cells(result.whole, names)))
        sums = [
            _cell(Interval(result.step_sum(name), np.nan, np.nan), name)
            for name in names
        ]
        rows.append(("Sum", *sums, *([""] if result.labelled else [])))
        caption += " The row before the last compares the last version with the first."
    return VersionsTable("Updates", tuple(heads), tuple(rows), caption)


def _step_cells(step: CompareResult, names: Sequence[str]) -> tuple[str, ...]:
    cells = [_cell(step[name], name) for name in names]
    if step.labelled:
        cells.append(NOTHING if step.mcnemar is None else p_text(step.mcnemar.p))
    return tuple(cells)


def matrix_tables(
    result: VersionsResult, labels: Sequence[str] | None = None
) -> tuple[VersionsTable, ...]:
    """Churn and, with labels, NFR and relative NFR of every two versions."""
    # None for two versions: the table of updates has their numbers.
    if len(result.names) == 2:
        return ()
    labels = tuple(map(printable, result.names)) if labels is None else labels
    several = _several(result)
    over = "mean over pairs of runs" if several else "one run each"
    again = " On the diagonal: two runs of one version." if several else ""
    found = [
        (
            "Churn %",
            100 * result.churn,
            2,
            "Share of examples whose predicted class differs",
        )
    ]
    if result.negative_flip_rate is not None:
        found.append(
            (
                "Negative flips (NFR) %",
                100 * result.negative_flip_rate,
                2,
                "Share of examples that the row's version has right and the column's "
                "has wrong",
            )
        )
    if result.relative_negative_flip_rate is not None:
        formula = QUANTITIES["relative_negative_flip_rate"].formula
        found.append(("Relative NFR", result.relative_negative_flip_rate, 3, formula))
    return tuple(
        VersionsTable(
            heading,
            ("Old, new", *labels),
            _matrix_rows(labels, values, digits),
            f"{what}; {over}.{again}",
        )
        for heading, values, digits, what in found
    )


def gate_lines(result: VersionsResult) -> tuple[tuple[bool, str], ...]:
    """Whether each gate of each update holds, and its line."""
    return tuple(
        (outcome.passed, f"{printable(outcome.line)} [{title(step)}]")
        for step in result.steps
        for outcome in step.gates
    )


def versions_gate_sentence(result: VersionsResult) -> str:
    """How many gates hold, of all updates together; "" without gates."""
    passed = [outcome.passed for step in result.steps for outcome in step.gates]
    failed = len(passed) - sum(passed)
    if not passed:
        return ""
    if not failed:
        return "PASSED: every gate holds in every update."
    hold = "does not hold" if failed == 1 else "do not hold"
    return f"FAILED: {failed} of {len(passed)} gates, of all updates together, {hold}."


def _several(result: VersionsResult) -> bool:
    return any(version.runs > 1 for version in result.versions)


def _matrix_rows(
    labels: Sequence[str], values: np.ndarray, digits: int
) -> tuple[tuple[str, ...], ...]:
    cells = [
        [f"{v:.{digits}f}" if np.isfinite(v) else NOTHING for v in row]
        for row in values
    ]
    return tuple((label, *row) for label, row in zip(labels, cells, strict=True))


def _cell(interval: Interval, name: str) -> str:
    unit = QUANTITIES[name].unit
    ends = range_text(interval, unit).removesuffix(" %")  # the number has it
    value = value_text(interval, unit).removesuffix(" points")  # the column has it
    return f"{value}\n{ends}" if ends else value


def _interval_note(result: VersionsResult) -> str:
    return f"Below each number its {level_text(result.level)} interval."
