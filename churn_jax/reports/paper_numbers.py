"""A paper's numbers next to those measured, for studies that name a published table.

They are shown where a study is on the paper's data set; the caption says in what else
it differs: network, length, number of examples. Doubtful cells are shown as such, with
the reason, and so are numbers that the paper does not print but that follow from those
it does. Nothing here says whether a measured number reaches a published one: a printed
number is context, not a target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from churn_compare.documents import Cell, Column, Rows, Section, Table, Text
from churn_jax.configuration.network import data_stem, network_words
from churn_jax.configuration.record import RowRecord
from churn_jax.reports.artefacts import Study
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.published import Published, PublishedTable, published
from churn_jax.reports.quantities import ABSENT, Quantity

if TYPE_CHECKING:
    from churn_jax.reports.report import Report


class PaperRow(NamedTuple):
    """One row: what is printed and what was measured, by metric; either may lack."""

    name: str  # of the method
    label: str  # for people
    paper: Mapping[str, Published]
    measured: Mapping[str, Estimate]


class PaperNumbers(NamedTuple):
    """The comparison."""

    # every quantity that the paper prints and that is measured
    metrics: tuple[Quantity, ...]
    rows: tuple[PaperRow, ...]  # those of the study, then those that only the paper has
    # Why cells are doubtful, or what they are derived from, with the word of those
    # cells; a cell refers to them from 1.
    notes: Mapping[str, str]
    caption: str  # what is compared with what

    def paper_cell(self, row: PaperRow, metric: Quantity) -> Cell | str:
        """`5.72 ± 0.18`, marked `doubtful [1]` or `derived [1]`; or a dash."""
        number = row.paper.get(metric.name)
        if number is None:
            return ABSENT
        std = math.nan if number.std is None else number.std
        text = metric.write(Estimate(number.mean, std, math.nan))
        if not number.mark:
            return text
        mark = f"{number.mark} [{[*self.notes].index(number.note) + 1}]"
        return Cell(text, mark=mark, tone="doubt" if number.mark == "doubtful" else "")

    def measured_cell(self, row: PaperRow, metric: Quantity) -> str:
        """`5.80 ± 0.21`, or a dash."""
        found = row.measured.get(metric.name)
        return ABSENT if found is None else metric.write(found)


class Measured(NamedTuple):
    """A row as it was measured."""

    names: tuple[str, ...]  # that it may have in a table; the first one there counts
    label: str  # for people
    numbers: Any  # an attribute for every quantity
    models: tuple[str, ...]  # rows of the study that it is of
    printed: bool = True  # False if the paper's numbers are those of another row


def paper_numbers(report: Report) -> PaperNumbers | None:
    """The published numbers of a study's rows next to the measured ones."""
    measured = [
        Measured((row.info.name,), row.label, row.summary, (row.info.name,))
        for row in report.rows
    ]
    # Not every name: the `temperature` of a table's coefficients is another one.
    return next_to_paper(report, report.quantities, measured)


def next_to_paper(
    report: Report, quantities: Sequence[Quantity], measured: Sequence[Measured]
) -> PaperNumbers | None:
    """Measured rows, then the paper's; the caption says how those of both differ.

    None if the study names no table, one of other data, or one of other quantities.
    """
    study, found = report.study, published(report.study.config.published)
    if found is None:
        return None  # `Report.remarks` says so
    ours = study.record.data.name
    numbers = [(metric, n) for row in found.rows.values() for metric, n in row.items()]
    metrics = tuple(q for q in quantities if q.name in dict(numbers))
    if found.data not in ("", data_stem(ours)) or not metrics:
        return None
    rows, used, models = [], set(), set()
    for one in measured:
        name = next((n for n in one.names if n in found.rows), one.names[-1])
        paper: Mapping[str, Published] = {}
        if one.printed and name not in used:
            paper = found.rows.get(name, {})
            used.add(name)
            models |= {*one.models} if paper else set()
        measures = {q.name: getattr(one.numbers, q.name) for q in metrics}
        rows.append(PaperRow(name, one.label, paper, measures))
    planned = {info.name: info.label for info in study.methods}
    known = {*(row.name for row in rows), *study.unselected}
    only = []
    for name, paper in found.rows.items():
        if name not in known and any(q.name in paper for q in metrics):
            label = planned.get(name) or f"{name.replace('_', ' ')} (paper only)"
            only.append(PaperRow(name, label, paper, {}))
    cells = [row.paper.get(q.name) for row in (*rows, *only) for q in metrics]
    notes = {cell.note: cell.mark for cell in cells if cell and cell.mark}
    spread = any(n.std is not None for _, n in numbers)
    shown = {quantity.name for quantity in metrics}
    where = dict.fromkeys(n.source for metric, n in numbers if metric in shown)
    runs = f"over {found.runs} runs" if found.runs else "over runs it does not count"
    private = (
        "The paper's data are private: only the direction and the rough size of an "
        "effect can be compared. "
    )
    infos = [row.info for row in report.rows if row.info.name in models]
    caption = (
        f"{'' if found.data else private}{_departures(study, found, infos)}"
        f"Paper: {found.citation}, {', '.join(where)}, {found.title}, "
        f"{'mean ± standard deviation ' if spread else ''}{runs}. "
        f"Measured: this study{f', on {ours}' if ours else ''}. Published numbers are "
        "context, not targets."
    )
    return PaperNumbers(metrics, (*rows, *only), notes, caption)


def _departures(study: Study, found: PublishedTable, infos: Sequence[RowRecord]) -> str:
    """In what the measured rows differ from the paper's, as a sentence."""
    data, model = study.record.data, study.config.model
    networks = {network_words(info.spec.model or model) for info in infos}
    said = []
    names = ", ".join(sorted(networks - {*found.networks}))
    if names and found.networks:
        said.append(f"{names} instead of {' and '.join(found.networks)}")
    epochs = {info.spec.config(study.config.train).epochs for info in infos}
    sizes = {info.spec.train_size or data.train for info in infos}
    for ours, theirs, what in (
        (epochs, found.epochs, "epochs"),
        (sizes, found.train, "training examples"),
        ({data.test}, found.test, "test examples"),
    ):
        others = sorted(n for n in ours if isinstance(n, int) and n != theirs)
        if theirs and others:
            numbers = " or ".join(f"{n:,}" for n in others)
            said.append(f"{numbers} {what} instead of {theirs:,}")
    return f"Not the paper's setting: {'; '.join(said)}. " if said else ""


def paper_section(found: PaperNumbers | None, first: str = "Method") -> Section:
    """The section for any comparison; `first` heads the column of the rows."""
    if found is None:
        return Section("", [])
    columns, rows = [Column(first)], [[row.label] for row in found.rows]
    for metric in found.metrics:
        heads = (Column(side, group=metric.heading) for side in ("paper", "measured"))
        columns += heads
        for cells, row in zip(rows, found.rows, strict=True):
            cells += [found.paper_cell(row, metric), found.measured_cell(row, metric)]
    said = [Text(f"{mark.capitalize()}: {note}.") for note, mark in found.notes.items()]
    table = Table(columns, rows, caption=found.caption, kind="paper")
    notes = Rows(said, ordered=True, kind="soft")
    return Section("Compared with the paper", [table, notes], detail="summary")
