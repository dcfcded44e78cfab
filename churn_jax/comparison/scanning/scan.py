"""One pass over the scores of two versions: a few numbers per example are kept."""

import concurrent.futures
import os
import threading

import numpy as np

from churn_jax.comparison.pair import Pair
from churn_jax.comparison.scanned import Scanned, ScannedSide
from churn_jax.comparison.scanning.file_order import in_file_order, in_order_of
from churn_jax.comparison.scanning.score_faults import check_faults
from churn_jax.comparison.scanning.side_by_side import SideBySide
from churn_jax.comparison.scanning.side_pass import SidePass
from churn_jax.comparison.side import Side
from churn_jax.predictions import PredictionsError, some

__all__ = ["scan"]

_BLOCK_BYTES = 3 << 20  # of one thread: stays near a core, and is worth the calls
_THREADS = 8
_LONG = 200  # classes from which on broadcasting row by row is faster


def scan(pair: Pair) -> Scanned:
    """Reads every score once and keeps what a comparison needs of each example.

    Blocks of rows go through a few threads. Memory does not grow with the number of
    scores, and memory-mapped files are let go behind the pass. Arithmetic is float32.

    Args:
        pair: two joined versions; predicted classes are only looked up.

    Returns:
        `Scanned`.

    Raises:
        PredictionsError: scores are NaN or infinite, rows have no finite entry,
            probabilities are negative or do not sum to one, or a predicted class does
            not exist; says how many examples and which.

    Example:
        >>> sides = (
        ...     Side(name, "logits", np.array([[[2.0, 0.0], [top, 1.0]]]))
        ...     for name, top in (("old", 3.0), ("new", 0.0))
        ... )
        >>> scan(Pair(*sides, np.arange(2), 2)).new.predicted
        array([[0, 1]], dtype=int32)
    """
    pair, place = in_file_order(pair)
    old, new = (
        _classes(side, rows, columns, pair.ids)
        if side.kind == "classes"
        else SidePass(side, rows, columns, pair.labels, pair.examples)
        for side, rows, columns in (
            (pair.old, pair.old_rows, pair.old_columns),
            (pair.new, pair.new_rows, pair.new_columns),
        )
    )
    sides = [side for side in (old, new) if isinstance(side, SidePass)]
    together = SideBySide(*sides) if len(sides) == 2 else None
    if sides:
        _over_blocks(pair.examples, sides, together)
        check_faults([(side.side, side.faults) for side in sides], pair.ids)
    scanned = Scanned(
        old.kept if isinstance(old, SidePass) else old,
        new.kept if isinstance(new, SidePass) else new,
        together.surrogate if together else None,
        together.displacement if together else None,
        together.own_displacement if together else None,
    )
    return scanned if place is None else in_order_of(scanned, place)


def _over_blocks(
    examples: int, sides: list[SidePass], together: SideBySide | None
) -> None:
    """Runs through all examples in blocks of rows, on a few threads."""
    row_bytes = sum(side.row_bytes for side in sides)
    rows = max(1, min(_BLOCK_BYTES // row_bytes, examples))
    long = all(s.side.classes >= _LONG and s.reader.dtype == np.float32 for s in sides)
    starts, lock = iter(range(0, examples, rows)), threading.Lock()

    def next_start() -> int | None:
        with lock:
            return next(starts, None)

    def work() -> None:
        rooms = [side.room(rows) for side in sides]
        spare = np.empty((rows, together.shared if together else 0), np.float32)
        if long:
            np.setbufsize(16)  # of this thread: NumPy else copies what is broadcast
        with np.errstate(all="ignore"):  # faulty rows are told of at the end
            while (start := next_start()) is not None:
                stop = min(start + rows, examples)
                blocks = [s.blocks(start, stop, r) for s, r in zip(sides, rooms)]
                if together:
                    together.compare(blocks[0], blocks[1], start, spare)

    threads = min(_THREADS, os.cpu_count() or 1, -(-examples // rows))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()


def _classes(side: Side, rows, columns, ids: np.ndarray) -> ScannedSide:
    """A side of predicted classes, as classes of the pair."""
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
