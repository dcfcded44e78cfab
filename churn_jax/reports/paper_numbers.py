"""A paper's numbers next to those measured, for studies that name a published table.

They are shown where a study is on the paper's data set; the caption says in what else
it differs: network, length, number of examples. Doubtful cells are shown as such, with
the reason, and so are numbers that the paper does not print but that follow from those
it does. Nothing here says whether a measured
number reaches a published one: a printed number is context, not a target.
"""

import dataclasses
import math
from collections.abc import Sequence

from churn_compare.documents import (
    Cell,
    Column,
    Rows,
    Section,
    Table,
    Text,
)
from churn_jax.configuration.names import data_stem, network_words
from churn_jax.configuration.record import RowRecord
from churn_jax.reports.artefacts import Study
from churn_jax.reports.cells import ABSENT
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.factors import training
from churn_jax.reports.published import Published, PublishedTable, published
from churn_jax.reports.quantities import QUANTITIES, Quantity
from churn_jax.reports.report import Report


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """One row: what is printed and what was measured."""

    name: str  # of the method
    label: str  # for people
    paper: dict[str, Published]  # metric to what is printed; may be empty
    # metric to what was measured; empty for a row that only the paper has
    measured: dict[str, Estimate]


@dataclasses.dataclass(frozen=True)
class PaperNumbers:
    """The comparison."""

    # every quantity that the paper prints and that is measured
    metrics: tuple[Quantity, ...]
    rows: tuple[PaperRow, ...]  # those of the study, then those that only the paper has
    # why cells are doubtful, or what they are derived from, each once; cells refer to
    # them from 1
    notes: tuple[str, ...]
    caption: str  # what is compared with what

    def paper_cell(self, row: PaperRow, metric: str) -> str:
        """`5.72 ± 0.18`, with `doubtful [1]` or `derived [1]` behind it."""
        number = row.paper.get(metric)
        if number is None:
            return ABSENT
        std = math.nan if number.std is None else number.std
        text = self._write(metric, Estimate(number.mean, std, math.nan))
        if number.mark:
            text += f" {number.mark} [{self.notes.index(number.note) + 1}]"
        return text

    @property
    def explained(self) -> tuple[str, ...]:
        """The notes as sentences, each with the word of the cells it belongs to."""
        marks = {
            number.note: number.mark.capitalize()
            for row in self.rows
            for number in row.paper.values()
        }
        return tuple(f"{marks[note]}: {note}." for note in self.notes)

    def measured_cell(self, row: PaperRow, metric: str) -> str:
        """`5.80 ± 0.21`, or a dash."""
        if metric not in row.measured:
            return ABSENT
        return self._write(metric, row.measured[metric])

    def _write(self, metric: str, estimate: Estimate) -> str:
        found = next((q for q in self.metrics if q.name == metric), None)
        return (found or QUANTITIES[metric]).write(estimate)


def paper_numbers(report: Report) -> PaperNumbers | None:
    """The published numbers of a study's rows next to the measured ones."""
    if (found := published_table(report.study)) is None:
        return None
    printed = {metric for row in found.rows.values() for metric in row}
    # Not every name: the `temperature` of a table's coefficients is another one.
    metrics = tuple(q for q in report.quantities if q.name in printed)
    if not metrics:
        return None  # a table about updates: `updates_report.paper_updates`
    rows = [
        PaperRow(
            name=row.info.name,
            label=row.info.label,
            paper=dict(found.rows.get(row.info.name, {})),
            measured={q.name: getattr(row.summary, q.name) for q in metrics},
        )
        for row in report.rows
    ]
    infos = [row.info for row in report.rows if row.info.name in found.rows]
    caption = paper_caption(report.study, found, metrics, infos)
    return assemble(report.study, found, metrics, rows, caption)


def published_table(study: Study) -> PublishedTable | None:
    """The table that a study names, if its data are the study's or are private."""
    found = published(study.config.published)
    if found is None:
        return None  # `Report.remarks` says so
    own = data_stem(study.record.data.name)
    return found if found.data in ("", own) else None


def _departures(study: Study, found: PublishedTable, infos: Sequence[RowRecord]) -> str:
    """In what the measured rows differ from the paper's, as a sentence."""
    data, model = study.record.data, study.config.model
    networks = {network_words(info.spec.model or model) for info in infos}
    names = ", ".join(sorted(networks - {*found.networks}))
    said = []
    if names and found.networks:
        said.append(f"{names} instead of {' and '.join(found.networks)}")
    lengths = {training(study, info).epochs for info in infos}
    sizes = {info.spec.train_size or data.train for info in infos}
    for ours, theirs, what in (
        (lengths, found.epochs, "epochs"),
        (sizes, found.train, "training examples"),
        ({data.test}, found.test, "test examples"),
    ):
        others = sorted(n for n in ours if isinstance(n, int) and n != theirs)
        if theirs and others:
            numbers = " or ".join(f"{n:,}" for n in others)
            said.append(f"{numbers} {what} instead of {theirs:,}")
    return f"Not the paper's setting: {'; '.join(said)}. " if said else ""


def assemble(
    study: Study,
    found: PublishedTable,
    metrics: tuple[Quantity, ...],
    rows: Sequence[PaperRow],
    caption: str,
) -> PaperNumbers:
    """Measured rows, then those that only the paper has, with the notes of both."""
    measured = {row.name for row in rows}
    planned = {info.name: info.label for info in study.methods}
    rows = [*rows]
    rows += [
        PaperRow(name, planned.get(name) or _unplanned(name), dict(paper), {})
        for name, paper in found.rows.items()
        if name not in {*measured, *study.unselected}
        and any(q.name in paper for q in metrics)
    ]
    notes = dict.fromkeys(
        row.paper[q.name].note
        for row in rows
        for q in metrics
        if q.name in row.paper and row.paper[q.name].mark
    )
    return PaperNumbers(metrics, tuple(rows), tuple(notes), caption)


def paper_caption(
    study: Study,
    found: PublishedTable,
    metrics: tuple[Quantity, ...],
    infos: Sequence[RowRecord],
) -> str:
    """What is compared with what, and in what the settings of `infos` differ."""
    ours = study.record.data.name
    spread = any(n.std is not None for row in found.rows.values() for n in row.values())
    runs = f"over {found.runs} runs" if found.runs else "over runs it does not count"
    private = "The paper's data are private: only the direction and the rough size of "
    private = "" if found.data else f"{private}an effect can be compared. "
    return (
        f"{private}{_departures(study, found, infos)}"
        f"Paper: {found.citation}, {_where(found, metrics)}, {found.title}, "
        f"{'mean ± standard deviation ' if spread else ''}{runs}. "
        f"Measured: this study{f', on {ours}' if ours else ''}. Published numbers are "
        "context, not targets."
    )


def _unplanned(name: str) -> str:
    return f"{name.replace('_', ' ')} (paper only)"


def _where(found: PublishedTable, metrics: tuple[Quantity, ...]) -> str:
    shown = {quantity.name for quantity in metrics}
    sources = {
        number.source: None
        for row in found.rows.values()
        for metric, number in row.items()
        if metric in shown
    }
    return ", ".join(sources)


def paper_section(
    found: PaperNumbers | None,
    first: str = "Method",
    sides: Sequence[str] = ("paper", "measured"),
) -> Section:
    """The section for any comparison; `first` heads the column of the rows."""
    if found is None:
        return Section("", [])
    columns = [Column(first)]
    for metric in found.metrics:
        columns += [Column(side, group=metric.heading) for side in sides]
    rows = []
    for row in found.rows:
        cells: list[Cell | str] = [row.label]
        for metric in found.metrics:
            text, bracket, note = found.paper_cell(row, metric.name).partition(" [")
            number, _, word = text.rpartition(" ")
            tone = "doubt" if word == "doubtful" else ""
            mark = f"{word}{bracket}{note}"
            cells.append(Cell(number, mark=mark, tone=tone) if bracket else text)
            cells.append(found.measured_cell(row, metric.name))
        rows.append(cells)
    notes = Rows([Text(note) for note in found.explained], ordered=True, kind="soft")
    table = Table(columns, rows, caption=found.caption, kind="paper")
    return Section("Compared with the paper", [table, notes], detail="summary")
