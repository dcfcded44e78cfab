"""Sections of a report of logits: every row compared with the baseline.

Such a report has no training to tell of. What it says instead is what `compare` says of
two versions, also where each row is one run.
"""

import dataclasses
from collections.abc import Sequence

from churn_compare.documents import Facts, Fold, Section, Strong, Term, Text
from churn_compare.flip_counts import version_matrices
from churn_compare.number_text import judgement
from churn_compare.report import made, sections, terms
from churn_compare.tables import matrix_tables
from churn_compare.verdict import sentences
from churn_jax.reports.report import Report, Row

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
    counts = [
        (one.examples, one.num_classes, len(one.runs) + len(one.stopped))
        for one in (row.summary for row in report.rows)
    ]
    found = []
    for word, numbers in zip(("example", "class", "run"), zip(*counts)):
        ends = dict.fromkeys((min(numbers), max(numbers)))
        plural = "es" if word == "class" else "s"
        text = f"{' to '.join(f'{n:,}' for n in ends)} {word}"
        text += plural if max(numbers) > 1 else ""
        found.append(f"{text} per row" if word == "run" else text)
    return tuple(found)


def logits_verdict(report: Report, row: Row) -> str:
    """Changes from the baseline to a row, then the tests of several runs."""
    if (step := report.comparisons.get(row.label)) is None:
        return ""
    # The intervals are of other examples and runs, the tests of other runs alone.
    tested = f"Over runs, on these examples: {row.clause}."
    return " ".join([*sentences(step)[:_FIRST], *[tested][: row.gain is not None]])


def logits_verdicts(report: Report) -> list[Text]:
    """Changes from the baseline to every other row."""
    found = []
    for row in report.rows:
        if (step := report.comparisons.get(row.label)) is not None:
            tone = _TONES[judgement("accuracy_gain", step["accuracy_gain"])]
            said = f": {logits_verdict(report, row)}"
            found.append(Text((Strong(row.label), said), tone))
    return found


def version_sections(report: Report) -> list[Section]:
    """Every update in full, and every row against every other; none of a study."""
    steps, found = report.comparisons, []
    for step in steps.values():
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
    if len(steps) < 2:  # the update has their numbers
        return found
    classes = [row.summary.curves.classes for row in report.rows]
    matrices = version_matrices(classes, report.labels)
    every = matrix_tables(matrices, [row.label for row in report.rows])
    return [Section("Every row against every other", every, detail="full"), *found]


def logits_section(report: Report) -> Section:
    """The versions that were compared."""
    facts = {
        row.info.label: f"{len(row.summary.runs)} runs, {row.summary.num_classes:,} "
        "classes"
        for row in report.rows
    }
    level = next((step.level for step in report.comparisons.values()), 0.95)
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
    for step in report.comparisons.values():
        for term in terms([step]):
            if term.name not in names:
                names.add(term.name)
                kept.append(term)
    return kept
