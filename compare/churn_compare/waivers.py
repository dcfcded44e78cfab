"""Regressions that a repository accepts until a date."""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from churn_compare.example_ids import rows_of
from churn_compare.gates import GateError, closest
from churn_compare.groups import class_groups, slice_groups
from churn_compare.intervals import counted
from churn_compare.number_text import count_text, listed
from churn_compare.pair import Pair, Scanned
from churn_compare.result import Group, Interval, Waived, Waiver
from churn_compare.sums import partition

_KEYS = ("id", "reason", "until")
_NFR = "negative_flip_rate"
_NAMED = 5  # ids that a note names


def waiver_of(given: Any, place: str) -> Waiver:
    """A `[[waive]]` of a gate file."""
    if not isinstance(given, Mapping):
        raise GateError(f"{place} must be a table with {', '.join(_KEYS)}")
    for key in given:
        if key not in _KEYS:
            hint = closest(key, _KEYS) or f"known are {', '.join(_KEYS)}"
            raise GateError(f"{place}: unknown key {key!r}; {hint}")
    if lacking := [key for key in _KEYS if not str(given.get(key, "")).strip()]:
        raise GateError(f"{place}: a waiver needs {' and '.join(lacking)}")
    until = given["until"]
    try:
        if not isinstance(until, datetime.date):
            until = datetime.date.fromisoformat(str(until))
    except ValueError:
        raise GateError(
            f"{place}: until must be a date such as 2026-12-31; got {until!r}"
        ) from None
    if isinstance(until, datetime.datetime):
        until = until.date()
    return Waiver(str(given["id"]), str(given["reason"]).strip(), until.isoformat())


def waive(
    pair: Pair,
    scanned: Scanned,
    waivers: Sequence[Waiver],
    groups: tuple[Group, ...],
    *,
    level: float,
    seed: int,
) -> tuple[Waived | None, tuple[Group, ...], tuple[str, ...]]:
    """What is waived, the groups without it, and notes about waivers of no use."""
    if not waivers:
        return None, groups, ()
    if pair.labels is None:
        raise GateError("waivers are about negative flips, and there are no labels")
    flips = np.zeros(pair.examples)
    for _, old, new in scanned.pairs():
        flips += (old == pair.labels) & (new != pair.labels)
    flips /= np.prod(scanned.shape)
    chosen, used, notes = waived_rows(waivers, pair.ids, flips)
    right = _right(scanned, pair.labels, chosen)
    drawn = {"level": level}
    plain = class_groups(pair, right, **drawn) + slice_groups(pair, right, **drawn)
    groups = tuple(
        dataclasses.replace(group, negative_flip_rate=other.negative_flip_rate)
        for group, other in zip(groups, plain, strict=True)
    )
    waived = Waived(
        waivers=used,
        flips=float(flips[chosen].sum()),
        all_flips=float(flips.sum()),
        rate=_rate(pair, right, level, seed),
    )
    return waived, groups, notes


def waived_rows(
    waivers: Sequence[Waiver], ids: np.ndarray, flips: np.ndarray
) -> tuple[np.ndarray, tuple[Waiver, ...], tuple[str, ...]]:
    """Rows of the flips that are waived, by which waivers, and notes about the others.

    Args:
        waivers: also those past their date.
        ids: `[N]` of the examples.
        flips: `[N]`, above 0 for an example that a waiver can be about.
    """
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


def _right(scanned: Scanned, labels: np.ndarray, rows: np.ndarray) -> Scanned:
    """As if the new version had been right on some examples."""
    predicted = scanned.new.predicted.copy()
    predicted[:, rows] = labels[rows]
    new = dataclasses.replace(scanned.new, predicted=predicted)
    return dataclasses.replace(scanned, new=new)


def _rate(pair: Pair, scanned: Scanned, level: float, seed: int) -> Interval:
    runs = int(np.prod(scanned.shape))
    grouping, _ = np.random.default_rng(seed).spawn(2)
    parts = partition(pair.examples, runs, grouping, pair.clusters)
    return counted(scanned, pair.labels, parts, level)[0][_NFR]
