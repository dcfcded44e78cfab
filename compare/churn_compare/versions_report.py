"""A folder of versions as a document: the page, a terminal and a notebook."""

import functools
from collections.abc import Sequence

import numpy as np

from churn_compare.display import CompareResult, VersionsResult
from churn_compare.documents import (
    Block,
    Cell,
    Column,
    Document,
    Fold,
    Section,
    Table,
    Text,
)
from churn_compare.figures import shades
from churn_compare.flip_counts import VersionMatrices
from churn_compare.number_text import (
    NOTHING,
    count_text,
    level_text,
    p_text,
    remark,
    share_text,
    value_text,
    with_range,
)
from churn_compare.quantities import QUANTITIES
from churn_compare.report import verdict, what_was_run
from churn_compare.result import Interval
from churn_compare.tables import (
    changes_table,
    flow_map,
    number_cell,
    regressions_table,
    singles_table,
)
from churn_compare.verdict import sentences

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
_REGRESSIONS = 20  # of each update
_WHOLE = "first-to-last"


def document(result: VersionsResult, command: str = "") -> Document:
    """The report of a folder of versions."""
    examples = f"{count_text(result.examples)} examples"
    examples += "" if result.labelled else " without labels"
    labels = short_labels(result)
    steps = [(step, f"update-{i + 1}") for i, step in enumerate(result.steps)]
    steps += [(result.whole, _WHOLE)] if len(steps) > 1 else []
    facts = {
        "Versions": ", ".join(f"{v.name} ({v.kind})" for v in result.versions),
        "Compared": f"{count_text(result.examples)} examples that all versions have",
    }
    gates = [(g, f" [{title_of(s)}]") for s in result.steps for g in s.gates]
    read = {line for step in result.steps for line in step.read}
    notes = [note if note in read else remark(note) for note in result.notes]
    said = versions_sentences(result)
    blocks = [
        *verdict(result, said, notes, gates, versions_gate_sentence(result)),
        Section("Versions", [version_table(result, labels)]),
        Section("Updates", [step_table(result, [link for _, link in steps])]),
        Section(
            "Every version against every other",
            matrix_tables(result, labels) if len(steps) > 1 else [],
            detail="summary",
        ),
        *(
            Section(title_of(step), _update(step), link, detail="full")
            for step, link in steps
        ),
        what_was_run(facts, result.level),
    ]
    title = f"{result.names[0]} → {result.names[-1]}"
    counts = [f"{count_text(len(result.names))} versions; {examples}"]
    return Document(title, counts, blocks, command)


def title_of(step: CompareResult) -> str:
    """`v1 → v2`."""
    return f"{step.old.name} → {step.new.name}"


def _update(step: CompareResult) -> list[Block]:
    """One update; its classes and slices are only on a page of its own."""
    blocks: list[Block] = [
        *map(Text, sentences(step)),
        *changes_table(step),
        singles_table(step),
        Fold("Where changed predictions go", [flow_map(step.flow)]),
    ]
    if shown := step.regressions[:_REGRESSIONS]:
        total = count_text(step.regressions_total)
        summary = f"Largest regressions, {count_text(len(shown))} of {total}"
        blocks.append(Fold(summary, [regressions_table(step, shown)]))
    return blocks


def short_labels(result: VersionsResult) -> tuple[str, ...]:
    """Short names of the versions for figures and narrow tables."""
    # Names, or numbers from 1 where names would take the room.
    names = result.names
    if len(names) <= _MANY and max(map(len, names)) <= _SHORT:
        return names
    return tuple(str(i + 1) for i in range(len(names)))


def versions_sentences(result: VersionsResult) -> tuple[str, ...]:
    """The finding in plain words; of two versions what `compare` says."""
    if len(result.steps) == 1:
        return sentences(result.whole)
    out = [_accuracy(result)] if result.labelled else []
    out.append(_changes(result))
    out.append(_added(result, "churn", "Changes", "change more than once"))
    if result.labelled:
        flips, back = "Negative flips", "also change for the better on the way"
        out.append(_added(result, "negative_flip_rate", flips, back))
    out.append(
        f"Some version gives {share_text(result.ambiguity)} of the examples another "
        f"class than {result.names[-1]} does (ambiguity), a single one at most "
        f"{share_text(result.discrepancy)} (discrepancy)."
    )
    if again := [churn for churn in np.diag(result.churn) if np.isfinite(churn)]:
        low, high = share_text(min(again)), share_text(max(again))
        size = low if low == high else f"{low} to {high}"
        out.append(
            f"Two runs of one version predict differently for {size} of the examples: "
            "so much changes by training again alone."
        )
    return tuple(out)


def _accuracy(result: VersionsResult) -> str:
    """Accuracy of the first and the last version."""
    whole, gain = result.whole, result.whole["accuracy_gain"]
    old, new = (
        value_text(Interval(whole[name].value, gain.low, gain.high), "share")
        for name in ("accuracy_old", "accuracy_new")
    )
    return (
        f"Accuracy goes from {old} ({result.names[0]}) to {new} ({result.names[-1]}), "
        f"{with_range(gain, 'points', result.level)}."
    )


def _changes(result: VersionsResult) -> str:
    """The updates that change least and most."""
    ordered = sorted(result.steps, key=lambda step: step["churn"].value)
    least, most = (
        f"{with_range(step['churn'], 'share')} in {title_of(step)}"
        for step in (ordered[0], ordered[-1])
    )
    return (
        f"Of {count_text(len(ordered))} updates the smallest changes {least}, the "
        f"largest {most}."
    )


def _added(result: VersionsResult, name: str, what: str, back: str) -> str:
    """Whether the changes of the updates accumulate or cancel."""
    added, there = result.step_sum(name), result.whole[name].value
    start = (
        f"{what} of the single updates add up to {share_text(added)} of the examples; "
        f"from the first version to the last they are {share_text(there)}"
    )
    gone = added - there  # never below 0: every path of runs flips at least so often
    if added <= 0 or gone < _FEW * added:
        return f"{start}: they accumulate."
    return f"{start}. {share_text(gone / added)} cancel out, in examples that {back}."


def versions_gate_sentence(result: VersionsResult) -> str:
    """How many gates hold, of all updates together; "" without gates."""
    states = [gate.state for gate in result.gates]
    if not states:
        return ""
    if result.state == "pass":
        return "PASSED: every gate holds in every update."
    count = states.count(result.state)
    what = {"fail": ("does not hold", "do not hold")}.get(
        result.state, ("is inconclusive", "are inconclusive")
    )[count > 1]
    word = {"fail": "FAILED"}.get(result.state, "INCONCLUSIVE")
    return f"{word}: {count} of {len(states)} gates, of all updates together, {what}."


def version_table(result: VersionsResult, labels: Sequence[str]) -> Table:
    """One row per version: runs, classes, accuracy, churn of retraining."""
    numbered = tuple(labels) != result.names  # then names have a column of their own
    heads = [*([""] if numbered else []), Column("Version", "left"), "Runs", "Classes"]
    heads += ["Accuracy"] if result.labelled else []
    heads += ["Churn of retraining"] if _several(result) else []
    rows = []
    for i, version in enumerate(result.versions):
        row: list[Cell | str] = [labels[i]] if numbered else []
        row += [version.name, count_text(version.runs), count_text(version.classes)]
        if result.labelled:
            row.append(_cell(result.accuracy[i], "accuracy_new"))
        if _several(result):
            row.append(share_text(result.churn[i, i]))
        rows.append(row)
    caption = _interval_note(result) if result.labelled else ""
    return Table(heads, rows, "", caption, "compare history")


def step_table(result: VersionsResult, links: Sequence[str]) -> Table:
    """One row per update, then the last version against the first, then the sum."""
    names = [name for name in _IN_STEPS if name in result.whole.quantities]
    heads = ["Update", *(_IN_STEPS[name] for name in names)]
    heads += ["p"] if result.labelled else []
    caption = _interval_note(result) + (f" {_FLIPS}" if result.labelled else "")
    several = len(result.steps) > 1
    rows = []
    for step, link in zip((*result.steps, *[result.whole] * several), links):
        row = [Cell(title_of(step), link=link)]
        row += [_cell(step[name], name) for name in names]
        if step.labelled:
            row.append(Cell(p_text(step.p)))
        rows.append(row)
    if several:
        nan = float("nan")
        sums = [_cell(Interval(result.step_sum(n), nan, nan), n) for n in names]
        rows.append([Cell("Sum"), *sums, *([Cell("")] if result.labelled else [])])
        caption += " The row before the last compares the last version with the first."
    return Table(heads, rows, "", caption, "compare history")


def matrix_tables(
    result: VersionsResult | VersionMatrices, labels: Sequence[str]
) -> list[Table]:
    """Churn and, with labels, NFR and relative NFR of every two versions."""
    several = np.isfinite(np.diag(result.churn)).any()
    over = "mean over pairs of runs" if several else "one run each"
    again = " On the diagonal: two runs of one version." if several else ""
    differs = "Share of examples whose predicted class differs"
    found = [("Churn %", 100 * result.churn, 2, differs)]
    if result.negative_flip_rate is not None:
        what = (
            "Share of examples that the row's version has right and the column's has "
            "wrong"
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
    """A number of every old version (rows) and new one (columns), shaded by size."""
    rows = [
        (name, *map(functools.partial(_shaded, digits), row, dark))
        for name, row, dark in zip(labels, values, shades(values), strict=True)
    ]
    return Table(("Old, new", *labels), rows, title, caption, "compare history")


def _shaded(digits: int, value: float, shade: float) -> Cell:
    text = f"{value:.{digits}f}" if np.isfinite(value) else NOTHING
    return Cell(text, shade=shade)


def _several(result: VersionsResult) -> bool:
    return any(version.runs > 1 for version in result.versions)


def _cell(interval: Interval, name: str) -> Cell:
    """A number without units that the heading has."""
    cell = number_cell(interval, QUANTITIES[name].unit)
    return Cell(cell.text.removesuffix(" points"), below=cell.below.removesuffix(" %"))


def _interval_note(result: VersionsResult) -> str:
    return f"Below each number its {level_text(result.level)} interval."
