"""One pass over the scores of two versions, which keeps a few numbers per example."""

import concurrent.futures
import dataclasses
import os
import threading
from typing import Any

import numpy as np

from churn_compare.example_ids import some
from churn_compare.pair import Pair, Scanned, ScannedSide, Table, class_order
from churn_compare.scanning.score_block import (
    Block,
    Classes,
    Part,
    check_faults,
    kl_divergence,
    read_scores,
    sum_tolerance,
    surrogate_churn,
)
from churn_compare.store import PredictionsError, StoredLogits, sample_rows

_BLOCK_BYTES = 3 << 20  # bytes of a thread: fits the cache of a core
_THREADS = 8
_LONG = 200  # least number of classes for which row by row is faster


Room = list[tuple[np.ndarray, np.ndarray]]


class SidePass:
    """The pass over one side with scores."""

    def __init__(
        self,
        side: Table,
        rows: np.ndarray | None,
        columns: np.ndarray | None,
        pair: Pair,
    ):
        self.side, self.columns, self._rows = side, columns, rows
        self.reader = StoredLogits.of(side.values, rows)
        own = np.arange(side.classes)
        places = own if columns is None else columns
        order = class_order(pair.class_names or map(str, range(pair.classes)))
        ranks = order.argsort()[places]  # by name; None if already ascending
        self._ranks = None if np.all(ranks[:-1] < ranks[1:]) else ranks
        self._labels = labels = pair.labels
        if labels is not None:  # as classes of the side; -1 for unknown ones
            known = np.full(1 + max(int(places.max()), int(labels.max(initial=0))), -1)
            known[places] = own
            self._labels = known[labels]
        self._tolerance = 0.0
        if side.kind == "probabilities":
            sample = sample_rows(side.values)
            self._tolerance = sum_tolerance(sample, side.values.dtype)
        shape = len(side.values), pair.examples
        self.faults = np.zeros(shape, np.uint8)
        self.tied = np.zeros(shape, bool)
        numbers: Any = (
            np.empty(shape, np.float32) for _ in range(1 if labels is None else 3)
        )
        self.kept = ScannedSide(np.empty(shape, np.int32), *numbers)

    def done(self) -> ScannedSide:
        """Numbers of the side; decisions replace the most probable classes."""
        decided = self.side.decisions
        if decided is None:
            return dataclasses.replace(self.kept, ties=int(self.tied.sum()))
        decided = decided if self._rows is None else decided[:, self._rows]
        decided = decided if self.columns is None else self.columns[decided]
        return dataclasses.replace(
            self.kept,
            predicted=decided.astype(np.int32),
            most_probable=self.kept.predicted,
        )

    @property
    def row_bytes(self) -> int:
        """Memory of one row of every run."""
        number = self.reader.wide.itemsize + 4
        return len(self.side.values) * self.side.classes * number

    def room(self, rows: int) -> Room:
        """Memory for the scores and ratios of each run."""
        shape = rows, self.side.classes
        return [
            (np.empty(shape, self.reader.wide), np.empty(shape, np.float32))
            for _ in range(len(self.side.values))
        ]

    def blocks(self, start: int, stop: int, room: Room) -> list[Block]:
        """Reads rows `start` to `stop` of each run and stores their results."""
        kept, columns, found = self.kept, self.columns, []
        labels = None if self._labels is None else self._labels[start:stop]
        for run, (scores, ratios) in enumerate(room):
            block = read_scores(
                self.reader.read(run, start, stop, scores),
                ratios[: stop - start],
                self.side.kind,
                labels,
                self._tolerance,
                self._ranks,
            )
            place, predicted = (run, slice(start, stop)), block.predicted
            kept.predicted[place] = predicted if columns is None else columns[predicted]
            of_scores: Any = (
                (kept.confidence, 1 / block.total),
                (kept.label_log_prob, block.label_log_prob),
                (kept.brier, block.brier),
            )
            for into, values in of_scores:
                if into is not None:
                    into[place] = values
            self.faults[place] = block.faults
            self.tied[run, start + block.tied] = True
            found.append(block)
        return found


class PairPass:
    """The pass over pairs of runs of two sides with scores."""

    def __init__(self, old: SidePass, new: SidePass):
        (runs, examples), (new_runs, _) = old.faults.shape, new.faults.shape
        self._surrogate = np.empty((runs, new_runs, examples), np.float32)
        self._kl = np.empty((runs, new_runs, examples), np.float32)
        self._kinds = old.side.kind, new.side.kind
        self._old, self._new, self.shared = _split(old, new)
        self._lost = self.shared < old.side.classes

    def compare(
        self, old: list[Block], new: list[Block], start: int, work: np.ndarray
    ) -> None:
        """Stores the results of each pair of runs."""
        rows = slice(start, start + len(old[0].top))
        work = work[: len(old[0].top)]
        before = [Part(block, *self._old, self._kinds[0]) for block in old]
        after = [Part(block, *self._new, self._kinds[1]) for block in new]
        for i, a in enumerate(before):
            for j, b in enumerate(after):
                # The last use of a new run's numbers may overwrite them.
                last = i == len(before) - 1
                self._surrogate[i, j, rows] = surrogate_churn(
                    a.ratios, b.ratios, b.ratios if last else work, a.alone + b.alone
                )
                over = last and b.scores.dtype == work.dtype
                self._kl[i, j, rows] = kl_divergence(a, b, b.scores if over else work)

    def done(self) -> tuple[np.ndarray | None, ...]:
        """Numbers of the pairs of runs, as in `Scanned`."""
        # KL is infinite if the new side does not know a class of the old one.
        kl = None if self._lost or np.isnan(self._kl).any() else self._kl
        return self._surrogate, kl


def _split(
    old: SidePass, new: SidePass
) -> tuple[tuple[Classes, Classes], tuple[Classes, Classes], int]:
    """Classes that both sides know and those that only one knows, by side."""
    counts = old.side.classes, new.side.classes
    columns = [
        np.arange(count) if side.columns is None else side.columns
        for side, count in zip((old, new), counts)
    ]
    both = min(counts)
    if np.array_equal(columns[0][:both], columns[1][:both]):
        first = slice(both), slice(both, None)  # views; indexing by arrays copies
        return first, first, both
    _, *shared = np.intersect1d(*columns, assume_unique=True, return_indices=True)
    split = [
        (mine, np.setdiff1d(np.arange(count), mine))
        for mine, count in zip(shared, counts)
    ]
    return split[0], split[1], len(shared[0])


def in_file_order(pair: Pair) -> tuple[Pair, np.ndarray | None]:
    """The pair with its examples in the order of the old side's rows."""
    # Files often have the same examples in one order, which is not that of their ids.
    # Both are then read sequentially, not in random order.
    rows = pair.old_rows
    if rows is None or np.all(rows[:-1] < rows[1:]):
        return pair, None
    order = np.argsort(rows)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return dataclasses.replace(pair, slices={}, clusters=None).at(order), place


def in_order_of(scanned: Scanned, place: np.ndarray) -> Scanned:
    """Undoes the order of `in_file_order`."""

    def moved(of):
        found = {k: v for k, v in vars(of).items() if isinstance(v, np.ndarray)}
        return dataclasses.replace(of, **{k: v[..., place] for k, v in found.items()})

    sides = {"old": moved(scanned.old), "new": moved(scanned.new)}
    return dataclasses.replace(moved(scanned), **sides)


def scan(pair: Pair) -> Scanned:
    """Reads every score once and keeps what a comparison needs of each example.

    Blocks of rows are processed by a few threads. Memory does not grow with the number
    of scores, and pages of memory-mapped files are dropped after use. Arithmetic is in
    float32.

    Raises:
        PredictionsError: if scores are NaN, infinite or invalid probabilities.

    Example:
        >>> sides = (
        ...     Table(name, "logits", np.array([[[2.0, 0.0], [top, 1.0]]]))
        ...     for name, top in (("old", 3.0), ("new", 0.0))
        ... )
        >>> scan(Pair(*sides, np.arange(2), 2)).new.predicted
        array([[0, 1]], dtype=int32)
    """
    pair, place = in_file_order(pair)
    old, new = (
        _classes(side, rows, columns, pair.ids)
        if side.kind == "classes"
        else SidePass(side, rows, columns, pair)
        for side, rows, columns in (
            (pair.old, pair.old_rows, pair.old_columns),
            (pair.new, pair.new_rows, pair.new_columns),
        )
    )
    sides = [side for side in (old, new) if isinstance(side, SidePass)]
    together = PairPass(*sides) if len(sides) == 2 else None
    if sides:
        _over_blocks(pair.examples, sides, together)
        for side in sides:
            side.reader.check()  # first, since damage explains faulty scores
        check_faults([(side.side, side.faults) for side in sides], pair.ids)
    done = [side.done() if isinstance(side, SidePass) else side for side in (old, new)]
    found: Any = together.done() if together else ()
    scanned = Scanned(done[0], done[1], *found)
    return scanned if place is None else in_order_of(scanned, place)


def _over_blocks(
    examples: int, sides: list[SidePass], together: PairPass | None
) -> None:
    """Processes all examples in blocks of rows, with a few threads."""
    row_bytes = sum(side.row_bytes for side in sides)
    rows = max(1, min(_BLOCK_BYTES // row_bytes, examples))
    long = all(s.side.classes >= _LONG and s.reader.wide == np.float32 for s in sides)
    starts, lock = iter(range(0, examples, rows)), threading.Lock()

    def next_start() -> int | None:
        with lock:
            return next(starts, None)

    def work() -> None:
        rooms = [side.room(rows) for side in sides]
        spare = np.empty((rows, together.shared if together else 0), np.float32)
        if long:
            np.setbufsize(16)  # for this thread; else NumPy copies broadcast arrays
        with np.errstate(all="ignore"):  # faulty rows are reported at the end
            while (start := next_start()) is not None:
                stop = min(start + rows, examples)
                blocks = [s.blocks(start, stop, r) for s, r in zip(sides, rooms)]
                if together:
                    together.compare(blocks[0], blocks[1], start, spare)

    threads = min(_THREADS, os.cpu_count() or 1, -(-examples // rows))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()


def _classes(side: Table, rows, columns, ids: np.ndarray) -> ScannedSide:
    """Predicted classes, numbered as in the pair."""
    predicted = np.asarray(side.values)
    if rows is not None:
        predicted = predicted[:, rows]
    known = side.classes if columns is None else len(columns)
    wrong = np.flatnonzero(((predicted < 0) | (predicted >= known)).any(axis=0))
    if len(wrong):
        raise PredictionsError(
            f"{side.name}: {len(wrong)} of {predicted.shape[1]} examples have "
            f"predicted classes that are not from 0 to {known - 1}, for example ids "
            f"{some(ids[wrong])}"
        )
    predicted = predicted if columns is None else columns[predicted]
    return ScannedSide(predicted.astype(np.int32))
