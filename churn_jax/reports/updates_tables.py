"""The tables of model updates: rates, every model against every other, the paper's."""

import dataclasses
import math

import numpy as np
from rich.table import Table

from churn_jax.escaping import terminal_text
from churn_jax.reports.beside import (
    Beside,
    BesideRow,
    assemble,
    published_table,
)
from churn_jax.reports.report import Report
from churn_jax.reports.updates import RATES, UpdateResult, Updates

__all__ = [
    "FlipTable",
    "beside_updates",
    "flip_tables",
    "sentences",
    "terminal_table",
    "update_rows",
]

ARROW = "->"  # between the two rows of an update that a published table names
SECOND = ("negative_flip_rate", "relative_negative_flip_rate")

CAPTION = (
    "Mean ± standard error. Over all pairs of an old and a new run, by a jackknife "
    "that leaves out one old run, and one new run, at a time."
)
TARGETED = (
    "Own pairs: new run r was trained against old run r, so the first numbers of a "
    "targeted update are over these pairs alone; the last columns are over all pairs."
)
KNOWN = (
    "Known: on the examples whose class the old model knows. On all examples an old "
    "model is wrong wherever it does not know the class."
)


def update_rows(
    updates: Updates, narrow: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and cells of the table of rates.

    Args:
        updates: from `collect_updates`.
        narrow: only what a narrow terminal has room for.

    Returns:
        Heads, then one tuple per update and set of examples.
    """
    shown = [q for q in RATES if q.narrow or not narrow]
    second = [q for q in RATES if q.name in SECOND and not narrow]
    if not any(result.second for result in updates.results):
        second = []
    known = any(result.examples == "known" for result in updates.results)
    heads = ["Update", "Pairs", *(["Examples"] if known else [])]
    heads += [q.heading for q in shown]
    heads += [f"{q.heading}, all pairs" for q in second]
    rows = []
    for result in updates.results:
        pairs = f"{result.first.pairs}{' own' if result.own_pairs else ''}"
        cells = [result.label, pairs]
        if known:
            cells.append(f"{result.num_examples:,} {result.examples}")
        cells += [q.write(getattr(result.first, q.name)) for q in shown]
        cells += [
            q.write(getattr(result.second, q.name)) if result.second else "–"
            for q in second
        ]
        rows.append(tuple(cells))
    return tuple(heads), rows


def sentences(updates: Updates) -> tuple[str, ...]:
    """What the numbers of `update_rows` are."""
    out = [CAPTION]
    if any(result.second for result in updates.results):
        out.append(TARGETED)
    if any(result.examples == "known" for result in updates.results):
        out.append(KNOWN)
    return tuple(out)


@dataclasses.dataclass(frozen=True)
class FlipTable:
    """Mean NFR of every model that is in an update against every other.

    Attributes:
        heads: old models are in rows, new ones in columns.
        rows: cells, the label first.
        caption: on which examples.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def flip_tables(updates: Updates) -> tuple[FlipTable, ...]:
    """On all examples and, where class sets differ, on known ones."""
    caption = (
        "NFR % of every model (columns) in place of every other (rows), mean over all "
        "pairs of runs; on the diagonal, over different runs of one model"
    )
    heads = ("Old, new", *updates.labels)
    out = []
    if len(updates.flips):
        lines = [*zip(updates.labels, updates.flips, strict=True)]
        out.append(FlipTable(heads, _cells(lines), f"{caption}."))
    if updates.known_flips is not None:
        known = zip(updates.labels, updates.known_flips, updates.flips, strict=True)
        lines = [
            (label, row)
            for label, row, whole in known
            if not np.array_equal(row, whole, equal_nan=True)
        ]
        text = "The same on the examples whose class the old model knows, where it "
        out.append(FlipTable(heads, _cells(lines), f"{text}does not know all of them."))
    return tuple(out)


def _cells(lines) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (label, *(f"{100 * v:.2f}" if math.isfinite(v) else "–" for v in row))
        for label, row in lines
    )


def terminal_table(updates: Updates, wide: bool) -> Table:
    """The rates for a terminal_text, with the updates that are left out below."""
    heads, rows = update_rows(updates, narrow=not wide)
    lines = (*sentences(updates), *updates.remarks)
    found = Table(title="Updates", caption=terminal_text(" ".join(lines)))
    for i, head in enumerate(heads):
        found.add_column(head, justify="right" if i else "left")
    for cells in rows:
        found.add_row(*map(terminal_text, cells))
    return found


def beside_updates(report: Report) -> Beside | None:
    """A paper's update rates beside those measured.

    A published row is that of an update when it is named `old->new`, or like the new
    row alone.

    Args:
        report: from `collect`.

    Returns:
        None without updates, or when the study names no published table of them that
        is of its data set.
    """
    updates, found = report.updates, published_table(report.study)
    if updates is None or found is None:
        return None
    printed = {metric for row in found.rows.values() for metric in row}
    metrics = tuple(q for q in RATES if q.name in printed and q.name != "churn")
    if not metrics:
        return None
    # The paper's old error rates leave out classes that the old model does not know.
    known = {(r.old, r.new) for r in updates.results if r.examples == "known"}
    rows, used, versions = [], set(), set()
    for result in updates.results:
        name, label = _published_name(result, found.rows), result.label
        if result.examples == "known":
            label = f"{label} (known classes)"
        paper = {}
        if name not in used and (
            result.examples == "known" or (result.old, result.new) not in known
        ):
            paper = dict(found.rows.get(name, {}))
            used.add(name)
            if paper:
                versions |= {result.old, result.new}
        measured = {q.name: getattr(result.first, q.name) for q in metrics}
        rows.append(BesideRow(name, label, paper, measured))
    infos = [row.info for row in report.rows if row.info.name in versions]
    return assemble(report, found, metrics, rows, infos)


def _published_name(result: UpdateResult, rows) -> str:
    pair = f"{result.old}{ARROW}{result.new}"
    return pair if pair in rows else result.new
