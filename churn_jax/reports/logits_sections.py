"""What the report of mere logits has: every row compared with the baseline.

Such a report has no training to tell of. What it says instead is what `compare` says of
two versions, also where each row is one run.
"""

import dataclasses
from collections.abc import Sequence

from churn_compare.display import CompareResult
from churn_compare.documents import (
    Cell,
    Facts,
    Fold,
    Records,
    Section,
    Strong,
    Term,
    Text,
)
from churn_compare.number_text import judgement
from churn_compare.report import made, sections, terms
from churn_compare.tables import matrix_tables, number_cell
from churn_compare.verdict import sentences
from churn_jax.reports.cells import ABSENT
from churn_jax.reports.report import Report, Row

# Quantities of a comparison that table and CSV have, with the heading and the field.
_UPDATES = {
    "churn": ("Churn", "churn_to_baseline"),
    "negative_flip_rate": ("NFR", "negative_flips_to_baseline"),
}
UPDATE_FIELDS = tuple(
    f"{field}{end}" for _, field in _UPDATES.values() for end in ("", "_low", "_high")
)
_FIRST = 3  # sentences of a comparison: churn, flips and accuracy
_TONES = {"better": "good", "worse": "bad", "unclear": "even"}
_UNKNOWN = ("DEE", "KL of members, churn of members", "± of an update")
_PAIRED = (
    "Pairs share runs, so standard errors leave one run out at a time. Run r of a row "
    "is compared with run r of the baseline. p is two-sided (Student's t, R − 1 "
    "degrees of freedom) and Holm-adjusted over the rows; below 0.05 is an effect."
)


def logits_facts(report: Report) -> tuple[str, ...]:
    """How many examples, classes and runs."""
    summaries = [row.summary for row in report.rows]
    counts = [
        (one.examples, one.num_classes, len(one.runs) + len(one.stopped))
        for one in summaries
    ]
    words = ("example", "class", "run")
    return tuple(_counted(word, sorted(set(n))) for word, n in zip(words, zip(*counts)))


def _counted(word: str, counts: Sequence[int]) -> str:
    number = " to ".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))
    plural = "es" if word == "class" else "s"
    each = " per row" if word == "run" else ""
    return f"{number} {word}{'' if counts[-1] == 1 else plural}{each}"


def _updates(report: Report) -> dict[str, CompareResult]:
    """Name of the row to its comparison with the baseline."""
    steps = () if report.versions is None else report.versions.steps
    return {step.new.name: step for step in steps}


def logits_verdicts(report: Report) -> list[Text]:
    """What changes from the baseline to every other row."""
    updates = _updates(report)
    return [
        Text(
            (Strong(row.info.label), f": {_said(row, updates[row.info.label])}"),
            _TONES[
                judgement("accuracy_gain", updates[row.info.label]["accuracy_gain"])
            ],
        )
        for row in report.rows
        if row.info.label in updates
    ]


def _said(row: Row, step: CompareResult) -> str:
    """What changes, then what is tested of several runs."""
    # The intervals are of other examples and runs, the tests of other runs alone.
    tested = (
        [f"Over runs, on these examples: {row.clause}."] if row.gain is not None else []
    )
    return " ".join([*sentences(step)[:_FIRST], *tested])


def update_columns(report: Report) -> dict[str, list[Cell]]:
    """Columns of the table; none of a study."""
    updates = _updates(report)
    if not updates:
        return {}
    return {
        f"{heading} vs. {report.baseline_label}": [
            number_cell(updates[row.info.label][name], "share")
            if row.info.label in updates
            else Cell(ABSENT)
            for row in report.rows
        ]
        for name, (heading, _) in _UPDATES.items()
    }


def version_sections(report: Report) -> list[Section]:
    """Every update in full, and every row against every other; none of a study."""
    if report.versions is None:
        return []
    steps = report.versions.steps
    found = []
    for step in steps:
        # Of the only update the verdict at the top has the first sentences.
        said = sentences(step)[_FIRST if len(steps) == 1 else 0 :]
        blocks = [
            *map(Text, said),
            Text("\n".join(step.notes), "note remark"),
            *(
                Fold(part.title, part.blocks, open=True, heading=True)
                for part in sections("", step)
            ),
        ]
        title = f"{step.old.name} → {step.new.name}"
        if len(steps) == 1:
            found.append(Section(title, blocks, detail="full"))
        else:
            found.append(Section("", [Fold(title, blocks, heading=True)]))
    several = len(steps) > 1  # else the update has their numbers
    every = matrix_tables(report.versions, report.versions.names) if several else []
    return [Section("Every row against every other", every, detail="full"), *found]


def logits_section(report: Report) -> Section:
    """What was compared, and with what."""
    facts = {
        row.info.label: f"{len(row.summary.runs)} runs, {row.summary.num_classes:,} "
        "classes"
        for row in report.rows
    }
    level = 0.95 if report.versions is None else report.versions.level
    shown = Facts(facts | made(level, "Software"))
    return Section("What was compared", [shown], detail="full")


def logits_glossary(report: Report, entries: Sequence[Term]) -> list[Term]:
    """The entries that concern logits, and those of a comparison."""
    kept = [
        dataclasses.replace(term, meaning=_PAIRED) if term.name == "± and p" else term
        for term in entries
        if term.name not in _UNKNOWN
    ]
    names = {name.strip() for term in kept for name in term.name.split(",")}
    for step in _updates(report).values():
        for term in terms([step]):
            if term.name not in names:
                names.add(term.name)
                kept.append(term)
    return kept


def logits_records(report: Report, records: Records) -> Records:
    """The CSV with what compares the rows, without what only studies know."""
    updates = _updates(report)
    rows = []
    for row, own in zip(map(dict, records.rows), report.rows, strict=True):
        if (step := updates.get(own.info.label)) is not None:
            row["verdict"] = _said(own, step)
            for name, (_, field) in _UPDATES.items():
                found = step[name]
                row |= {field: found.value, f"{field}_low": found.low}
                row |= {f"{field}_high": found.high}
        rows.append(row)
    fields = [
        field
        for field in (*records.fields, *UPDATE_FIELDS)
        if field != "status" and any(_known(row.get(field)) for row in rows)
    ]
    return Records(fields, [{f: r[f] for f in fields if f in r} for r in rows])


def _known(value: object) -> bool:
    return value not in (None, "") and value == value  # NaN is not itself
