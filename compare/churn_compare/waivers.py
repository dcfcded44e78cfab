"""Regressions that a repository accepts until a date."""

import datetime
from collections.abc import Sequence

import numpy as np

from churn_compare.estimates import Groups, Numbers, PerExample
from churn_compare.example_ids import rows_of
from churn_compare.number_text import count_text, listed
from churn_compare.result import Waived, Waiver

_NAMED = 5  # ids that a note names


def waive(
    numbers: Numbers, waivers: Sequence[Waiver], ids: np.ndarray, every: Groups
) -> tuple[Waived | None, PerExample | None, tuple[str, ...]]:
    """What is waived, what gets worse without it, notes about waivers of no use."""
    if not waivers:
        return None, None, ()
    flips = numbers.worse.mean
    rows, used, notes = waived_rows(waivers, ids, flips)
    without = numbers.worse.without(rows)
    counts = float(flips[rows].sum()), float(flips.sum())
    return Waived(used, *counts, every.share(without).of(0)), without, notes


def waived_rows(
    waivers: Sequence[Waiver], ids: np.ndarray, flips: np.ndarray
) -> tuple[np.ndarray, tuple[Waiver, ...], tuple[str, ...]]:
    """Rows of waived flips, by which waivers, and notes about the other waivers."""
    today = datetime.date.today().isoformat()
    expired = [w.id for w in waivers if w.until < today]
    valid = {w.id: w for w in waivers if w.until >= today}
    ids = ids.astype(str)
    rows = rows_of(np.array(list(valid), ids.dtype.type), ids)
    unknown = [w for w, row in zip(valid, rows, strict=True) if row < 0]
    found = {w: row for w, row in zip(valid, rows, strict=True) if row >= 0}
    needless = [w for w, row in found.items() if not flips[row]]
    used = {w: row for w, row in found.items() if flips[row]}
    notes = tuple(
        f"{_counted(len(some))} {what}: {listed(some, _NAMED)}."
        for some, what in (
            (expired, "past its date and without effect"),
            (unknown, "about an id that is not compared"),
            (needless, "about an example that is no negative flip"),
        )
        if some
    )
    return np.array([*used.values()], np.int64), tuple(valid[w] for w in used), notes


def _counted(count: int) -> str:
    return "A waiver is" if count == 1 else f"{count_text(count)} waivers are each"
