"""A queue of changed examples to label, in random order."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.array_files import replace_file, write_file
from churn_compare.comparison import read_either
from churn_compare.documents import Records, csv_text
from churn_compare.example_ids import PredictionsError
from churn_compare.groups import coded
from churn_compare.labelling import (
    BETTER,
    STRATUM,
    answers_of,
    check_preferable,
    key_of,
)
from churn_compare.reading.columns import INPUT
from churn_compare.reading.labels import DRAWN_FROM, as_text

_INPUTS = (*INPUT, "text", "sentence", "content")


def _shown(column: Any, name: str) -> list[str]:
    """Inputs as text; lists and objects, such as chats, as JSON."""
    try:
        return as_text(column, name).to_pylist()
    except PredictionsError:
        values = column.to_pylist() if hasattr(column, "to_pylist") else column
        write = json.JSONEncoder(ensure_ascii=False, default=np.ndarray.tolist).encode
        return [*map(write, values)]


@dataclasses.dataclass(frozen=True)
class Queue:
    """Examples to label."""

    rows: tuple[dict[str, str], ...]  # columns to texts, in the order in which to label
    key: dict[str, str]  # id to which version is A, where answers are called A and B
    changed: int  # number of examples that change
    examples: int  # number of all joined examples
    notes: tuple[str, ...] = ()  # sentences about what was read and joined

    def save(self, path: str | os.PathLike) -> list[Path]:
        """Writes the queue as CSV and, if there is one, its key beside it."""
        path, beside = Path(path), key_of(Path(path))
        with replace_file(path) as file:
            file.write(csv_text(Records(list(self.rows[0]), self.rows)).encode())
            beside.unlink(missing_ok=True)  # it belongs to the earlier queue
        key = [{"id": n, "A": first} for n, first in self.key.items()]
        text = csv_text(Records(["id", "A"], key))
        return [path, *([write_file(beside, text)] if key else [])]


def label_queue(
    old: Any,
    new: Any,
    *,
    budget: int | None = None,
    by: str | None = None,
    blind: bool = False,
    seed: int = 0,
    **reading: Any,
) -> Queue:
    """Examples that an update changes, drawn at random, for people or judges to label.

    The labels of these alone give NFR, PFR and gain: fill the column `label` (the right
    class) or `better` (which answer is: old, new, neither or both; A or B where they
    are shown so), of any part of the queue from its start on, and give the file to
    `compare` as `labels`.

    Args:
        old: predictions of the version in use, as in `compare`.
        new: predictions of the version that is to replace it.
        budget: number of examples to draw; None for all that change.
        by: column of strata, from which equally many examples are drawn if there are
            enough.
        blind: whether the two answers are called A and B, in random order.
        seed: seed of the order.
        **reading: arguments of `compare` or `compare_outcomes` about reading.

    Raises:
        PredictionsError: if predictions cannot be read or joined, or nothing changes.

    Example:
        >>> queue = label_queue({"prediction": ["a", "b"]}, {"prediction": ["a", "c"]})
        >>> [(row["id"], row["old"], row["new"]) for row in queue.rows]
        [('1', 'b', 'c')]
    """
    pair, numbers = read_either(old, new, by=[by] if by else None, **reading)
    changed, inputs = numbers.changed.mean > 0, {}
    rows = np.arange(len(changed)) if pair.old_rows is None else pair.old_rows
    if pair.measures:
        check_preferable(numbers)
        if pair.old.inputs is not None:
            inputs["input"] = _shown(pair.old.inputs.take(rows), "input")
    else:
        others = pair.old.others() if pair.old.values.shape[0] == 1 else {}
        inputs = {
            name: np.array(_shown(column, name))[rows]
            for name, column in others.items()
            if name.strip().lower() in _INPUTS
        }
    rng = np.random.default_rng(seed)
    rows = rng.permutation(np.flatnonzero(changed))
    if not len(rows):
        raise PredictionsError("no prediction changes, so there is nothing to label")
    budget = len(rows) if budget is None else min(budget, len(rows))
    alone = [""], np.zeros(len(changed), int)
    names, strata = coded(pair.slices[by]) if by else alone
    sizes = np.bincount(strata[rows], minlength=len(names))
    if budget < np.count_nonzero(sizes):
        each = f" of each {by}" if by else ""
        raise PredictionsError(f"a budget of {budget} is less than one example{each}")
    # The place of each in its stratum, so that all strata have as many of the first.
    order, place = np.argsort(strata[rows], kind="stable"), np.empty(len(rows), int)
    place[order] = np.concatenate([np.arange(size) for size in sizes])
    rows = rows[np.argsort(place, kind="stable")][:budget]
    out, key = [], {}
    texts = answers_of(pair, numbers, rows)
    swaps = rng.random(len(rows)) < 0.5
    for row, swapped, old, new in zip(rows.tolist(), swaps, *texts, strict=True):
        name = str(pair.ids[row])
        line = {"id": name}
        line |= {column: str(of[row]) for column, of in inputs.items()}
        sides = {"old": old, "new": new}
        if blind:
            first, second = ("new", "old") if swapped else ("old", "new")
            key[name] = first
            sides = {"A": sides[first], "B": sides[second]}
        line |= sides | {"label": "", BETTER: "", STRATUM: names[strata[row]]}
        line |= {DRAWN_FROM: str(sizes[strata[row]])}
        out.append(line)
    notes = (*pair.old.notes, *pair.new.notes, *pair.notes)
    return Queue(tuple(out), key, int(changed.sum()), len(changed), notes)
