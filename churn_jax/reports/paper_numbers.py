"""A paper's numbers next to those measured, for studies that name a published table.

They are shown where a study is on the paper's data set, and its settings may be others.
Doubtful cells are shown as such, with the reason, and so are numbers that the paper
does not print but that follow from those it does. Nothing here says whether a measured
number reaches a published one: a printed number is context, not a target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from churn_compare.documents import Cell, Column, Rows, Section, Table, Text
from churn_jax.configuration.network import data_stem
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.published import Published, published
from churn_jax.reports.quantities import ABSENT, Quantity

if TYPE_CHECKING:
    from churn_jax.reports.report import Report

_PRIVATE = (
    "The paper's data are private: only the direction and the rough size of an effect "
    "can be compared. "
)


def next_to_paper(
    report: Report,
    quantities: Sequence[Quantity],
    measured: Sequence[tuple[Sequence[str], str, Any, bool]],
    heading: str = "Method",
) -> tuple[Section, list[dict[str, Any]]]:
    """The section that has a paper's numbers and ours, and fields of a CSV.

    Args:
        report: report of a study, which may name a published table.
        quantities: quantities to compare, in order.
        measured: our rows: the names that each may have in the table, of which the
            first one there counts; its label; an object with an attribute for every
            quantity, or None if it has no numbers; and whether the numbers of the paper
            are those of this row.
        heading: heading of the rows.

    Returns:
        The section, and the paper's numbers for every row of `measured`. Both are empty
        if the study names no table, one of other data, or one of other quantities.
    """
    study, ours = report.study, report.study.record.data.name
    facts, found = published(study.config.published) or ({}, {})
    known = {name for row in found.values() for name in row}
    shown = [quantity for quantity in quantities if quantity.name in known]
    if not shown or facts["data"] not in ("", data_stem(ours)):
        return Section("", []), [{} for _ in measured]
    printed = {
        name: {q.name: row[q.name] for q in shown if q.name in row}
        for name, row in found.items()
    }
    numbers = [number for row in printed.values() for number in row.values()]
    spread = any(number.std is not None for number in numbers)
    left, rows, fields = dict(printed), [], []
    for names, label, of_row, same in measured:
        name = next((name for name in names if name in printed), names[-1])
        paper = left.pop(name, {}) if same else {}
        if paper or of_row is not None:
            rows.append((label, paper, of_row))
        fields.append({})
        for quantity in shown:
            number, name = paper.get(quantity.name), f"paper_{quantity.name}"
            fields[-1][name] = number and number.mean
            if spread:
                fields[-1][f"{name}_std"] = number and number.std
            for mark in ("doubtful", "derived"):
                why = number.note if number and number.mark == mark else ""
                fields[-1][f"{name}_{mark}"] = why
    labels = {info.name: info.label for info in study.methods}
    for name, paper in left.items():
        if paper and name not in study.unselected:
            label = labels.get(name) or f"{name.replace('_', ' ')} (paper only)"
            rows.append((label, paper, None))
    marked = [n for _, paper, _ in rows for n in paper.values() if n.mark]
    notes = {number.note: number.mark for number in marked}

    def cell(number: Published | None, quantity: Quantity) -> Cell | str:
        if number is None:
            return ABSENT
        std = math.nan if number.std is None else number.std
        text = quantity.write(Estimate(number.mean, std, math.nan))
        if not number.mark:
            return text
        mark = f"{number.mark} [{[*notes].index(number.note) + 1}]"
        return Cell(text, mark=mark, tone="doubt" if number.mark == "doubtful" else "")

    columns, lines = [Column(heading)], [[label] for label, _, _ in rows]
    for quantity in shown:
        sides = ("paper", "measured")
        columns += [Column(side, group=quantity.heading) for side in sides]
        for line, (_, paper, of_row) in zip(lines, rows, strict=True):
            mine = ABSENT if of_row is None else quantity.cell(of_row)
            line += [cell(paper.get(quantity.name), quantity), mine]
    runs = "over runs it does not count"
    runs = runs if facts["runs"] == "0" else f"over {facts['runs']} runs"
    sources = ", ".join(dict.fromkeys(number.source for number in numbers))
    caption = (
        f"{'' if facts['data'] else _PRIVATE}Settings may differ; see What was "
        f"run. Paper: {facts['citation']}, {sources}, {facts['title']}, "
        f"{'mean ± standard deviation ' if spread else ''}{runs}. Measured: this "
        f"study, on {ours}. Published numbers are context, not targets."
    )
    table = Table(columns, lines, caption=caption, kind="paper")
    said = [Text(f"{mark.capitalize()}: {note}.") for note, mark in notes.items()]
    blocks = [table, Rows(said, ordered=True, kind="soft")]
    return Section("Compared with the paper", blocks, detail="summary"), fields
