"""One pass over the scores of two versions, which keeps a few numbers per example."""

import concurrent.futures
import dataclasses
import itertools
import os
from typing import Any, NamedTuple

import numpy as np

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_compare.example_ids import PredictionsError, some
from churn_compare.pair import Pair, Scanned, ScannedSide, Table, class_order
from churn_compare.stored_logits import StoredLogits, sample_rows

_BLOCK_BYTES = 3 << 20  # bytes of a block of rows in one thread; fits a core's cache
_THREADS = 8
_LONG = 200  # least number of classes for which row by row is faster
_NAN, _INFINITE, _EMPTY, _NEGATIVE, _SUM, _PERCENT = range(1, 7)
_WHAT = {
    _NAN: "have NaN {kind}",
    _INFINITE: "have infinite {kind}",
    _EMPTY: "have no finite entry in their {kind}",
    _NEGATIVE: "have negative probabilities",
    _SUM: "have probabilities that do not sum to one",
    _PERCENT: "have probabilities that sum to 100 (percent? divide them by 100)",
}
_DIGITS = 6  # significant digits of float32
_NAMED = 4  # one more than a message names, so that it shows that there are more


def sum_tolerance(sample: np.ndarray, dtype: np.dtype) -> float:
    """Largest allowed difference of the sum of rounded probabilities from one."""
    # 1e-3, but bfloat16 has fewer digits, and in float16 an entry near 0 may be off by
    # 2^-25, which adds up over many classes. In decimals of a few digits each entry may
    # be off by half a unit of the last one, up to 0.5 in all.
    classes = sample.shape[1]
    tolerance = 2.0**-7 if dtype.name == "bfloat16" else 1e-3
    if dtype == np.float16:
        tolerance += classes * 2.0**-24
    return max(tolerance, min(classes * _half_unit(sample, dtype), 0.5))


def _half_unit(sample: np.ndarray, dtype: np.dtype) -> float:
    """Half a unit of the last decimal plus 1 % for float32; 0 for integers."""
    if np.can_cast(np.float32, dtype):  # 1 - 0.7 is 0.3 only in fewer digits
        dtype = np.dtype(np.float32)
    given = sample.astype(dtype)
    for digits in range(_DIGITS + 1):
        if np.array_equal(np.round(sample, digits).astype(dtype), given):
            return 0.505 * 10.0**-digits if digits else 0.0
    return 0.0


def find_faults(
    kind: str, top: np.ndarray, least: np.ndarray, total: np.ndarray, tolerance: float
) -> np.ndarray:
    """Code of the fault of each row, `[n]` uint8; 0 without a fault."""
    faults = np.zeros(len(top), np.uint8)
    if kind == "probabilities":
        off = ~(np.abs(total - 1) <= tolerance)  # NaN where every entry is 0
        faults[off] = _SUM
        faults[off & (np.abs(total - 100) <= 100 * tolerance)] = _PERCENT
        faults[least < 0] = _NEGATIVE
    faults[np.isneginf(top)] = _EMPTY
    faults[np.isposinf(top)] = _INFINITE
    faults[np.isnan(top)] = _NAN
    return faults


def check_faults(faults: list[tuple[Table, np.ndarray]], ids: np.ndarray) -> None:
    """Raises one error for all faults."""
    found = []
    for (side, codes), (code, what) in itertools.product(faults, _WHAT.items()):
        examples = np.flatnonzero(np.any(codes == code, axis=0))
        named = [str(i) for i in ids[examples[:_NAMED]]]
        if len(codes) > 1:
            runs = np.argmax(codes[:, examples] == code, axis=0)
            named = [f"{i} (run {side.runs[run]})" for i, run in zip(named, runs)]
        if named:
            found.append(
                f"{side.name}: {len(examples)} of {codes.shape[1]} examples "
                f"{what.format(kind=side.kind)}, for example ids {some(named)}"
            )
    if found:
        raise PredictionsError("; ".join(found))


# Smaller ratios are raised to e^-43, 2e-19, which does not change sums: their squares
# would be subnormal numbers, which are slow.
_LEAST_LOG_RATIO = np.float32(-43)
UNKNOWN = UNKNOWN_LOGIT / 2  # a class this far below the row's top is unknown


def _of_labels(scores, ratios, kind, top, predicted, labels):
    """Sum of the ratios, log-probability of the label, Brier score; `[n]` float64."""
    # The label is left out of the sums to avoid cancellation near certainty: brier =
    # (sum_{c != y} r_c^2 + (sum_{c != y} r_c)^2) / s^2.
    known = np.flatnonzero(labels >= 0)
    place = known, labels[known]
    own = np.zeros(len(ratios), np.float64)
    at_label = ratios[place]
    own[known] = at_label
    ratios[place] = 0
    others, squares = _sums(ratios), np.vecdot(ratios, ratios).astype(np.float64)
    ratios[place] = at_label
    total = others + own
    brier = (squares + others**2) / total**2
    log_own = np.full(len(ratios), -np.inf)
    if kind == "logits":
        log_own[known] = scores[place].astype(np.float64) - top[known]
        log_own[log_own <= UNKNOWN] = -np.inf
    else:
        log_own[known] = np.log(scores[place].astype(np.float64) / top[known])
    log_total = np.where(predicted == labels, np.log1p(others), np.log(total))
    return total, log_own - log_total, brier


def _sums(numbers: np.ndarray) -> np.ndarray:
    """Row sums, `[n]` float64; a dot product is the fastest way."""
    ones = np.ones(numbers.shape[1], numbers.dtype)
    return np.vecdot(numbers, ones).astype(np.float64)


def surrogate_churn(
    old: np.ndarray, new: np.ndarray, work: np.ndarray, rest: np.ndarray | float
) -> np.ndarray:
    """`1/2 sum_c |r_c - r'_c|` of each row, `[n]` float64."""
    np.subtract(old, new, out=work)
    np.abs(work, out=work)
    return 0.5 * (_sums(work) + rest)


Classes = slice | np.ndarray


class Part(NamedTuple):
    """`n` rows of one run in the classes that both sides know, and in the others."""

    total: np.ndarray  # `[n]` float64, sum of the ratios
    log_sum: np.ndarray  # `[n]` logarithm of the sum of the exponentials of the scores
    zeros: bool  # True if a probability may be 0, whose score is -inf
    ratios: np.ndarray  # `[n, shared]`, each probability over the row's largest one
    scores: np.ndarray  # `[n, shared]` logits or log-probabilities
    alone: np.ndarray  # `[n]` float64, sum of the ratios of the other classes


def kl_divergence(old: Part, new: Part, work: np.ndarray) -> np.ndarray:
    """`KL(old || new)` of each row in nats, `[n]`; infinite if only new is 0."""
    # sum_c p_c (z_c - z'_c) - log sum exp z + log sum exp z'
    np.subtract(new.scores, old.scores, out=work, casting="same_kind")
    if old.zeros:
        work[np.isneginf(old.scores)] = 0
    moved = np.vecdot(old.ratios, work).astype(np.float64) / old.total
    return np.maximum(new.log_sum - old.log_sum - moved, 0.0)


class SidePass:
    """The pass over one side with scores."""

    def __init__(
        self,
        side: Table,
        rows: np.ndarray | None,
        columns: np.ndarray | None,
        pair: Pair,
        order: np.ndarray | None,
    ):
        self.side, self.columns, self._rows, self._order = side, columns, rows, order
        read = rows
        if order is not None:
            read = side.rows_or_none(order if rows is None else rows[order])
        self.reader = StoredLogits.of(side.values, read)
        own = np.arange(side.classes)
        places = own if columns is None else columns
        by_name = class_order(pair.class_names or map(str, range(pair.classes)))
        ranks = by_name.argsort()[places]  # by name; None if already ascending
        self._ranks = None if np.all(ranks[:-1] < ranks[1:]) else ranks
        self._labels = labels = pair.labels
        if labels is not None:  # as classes of the side; -1 for unknown ones
            known = np.full(1 + max(int(places.max()), int(labels.max(initial=0))), -1)
            known[places] = own
            self._labels = known[labels if order is None else labels[order]]
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
        # Classes that both sides know and those that only this one knows, for pairs.
        self.split: tuple[Classes, Classes] | None = None

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

    def place(self, start: int, stop: int) -> slice | np.ndarray:
        """The examples that are read as rows `start` to `stop`."""
        rows = slice(start, stop)
        return rows if self._order is None else self._order[rows]

    def room(self, rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Memory for the scores and ratios of each run."""
        shape = rows, self.side.classes
        return [
            (np.empty(shape, self.reader.wide), np.empty(shape, np.float32))
            for _ in range(len(self.side.values))
        ]

    def read(
        self, run: int, start: int, stop: int, room: tuple[np.ndarray, np.ndarray]
    ) -> Part | None:
        """Stores a block's numbers; returns what pairs of runs need, or None."""
        # With r_c = exp(z_c - max z) (or p_c / max p) and s = sum_c r_c, the
        # probability of class c is r_c / s and the top one 1 / s.
        kept: Any = self.kept
        scores, ratios = self.reader.read(run, start, stop, room[0]), room[1]
        ratios, rows = ratios[: len(scores)], np.arange(len(scores))
        predicted = scores.argmax(axis=1)
        top = scores[rows, predicted]  # NaN if any entry is
        scores[rows, predicted] = -np.inf
        tied = np.flatnonzero(scores[rows, scores.argmax(axis=1)] == top)
        scores[rows, predicted] = top
        if (ranks := self._ranks) is not None:
            largest = scores[tied] == top[tied, None]
            predicted[tied] = np.where(largest, ranks, len(ranks)).argmin(axis=1)
        logits = self.side.kind == "logits"
        if logits:
            np.subtract(scores, top[:, None], out=ratios, casting="same_kind")
            least = scores.min() - top.max()  # of any row, or below
            if least < _LEAST_LOG_RATIO:
                np.maximum(ratios, _LEAST_LOG_RATIO, out=ratios)
            np.exp(ratios, out=ratios)
            smallest, zeros = top, least <= UNKNOWN
        else:
            np.divide(scores, top[:, None], out=ratios, casting="same_kind")
            np.maximum(ratios, np.exp(_LEAST_LOG_RATIO), out=ratios)
            smallest = scores.min(axis=1)
            zeros = smallest.min() <= 0
        place, columns = (run, self.place(start, stop)), self.columns
        if self._labels is None:
            total = _sums(ratios)
        else:
            labels = self._labels[start:stop]
            total, kept.label_log_prob[place], kept.brier[place] = _of_labels(
                scores, ratios, self.side.kind, top, predicted, labels
            )
        kept.predicted[place] = predicted if columns is None else columns[predicted]
        kept.confidence[place] = 1 / total
        of_side = self.side.kind, top, smallest, total * top, self._tolerance
        self.faults[place] = find_faults(*of_side)
        self.tied[run, start + tied] = True
        if self.split is None:
            return None
        if not logits:
            np.log(scores, out=scores)
            top = np.log(top)
        elif zeros:
            scores[scores - top[:, None] <= UNKNOWN] = -np.inf
        shared, alone = self.split
        others = ratios[:, alone].sum(axis=1, dtype=np.float64)
        of_pairs = ratios[:, shared], scores[:, shared], others
        return Part(total, top + np.log(total), bool(zeros), *of_pairs)


class PairPass:
    """The pass over pairs of runs of two sides with scores."""

    def __init__(self, old: SidePass, new: SidePass):
        (runs, examples), (new_runs, _) = old.faults.shape, new.faults.shape
        self._place = old.place
        self._surrogate = np.empty((runs, new_runs, examples), np.float32)
        self._kl = np.empty((runs, new_runs, examples), np.float32)
        old.split, new.split, self.shared = _split(old, new)
        self._lost = self.shared < old.side.classes

    def compare(
        self, old: list[Part], new: list[Part], start: int, work: np.ndarray
    ) -> None:
        """Stores the results of each pair of runs."""
        rows = self._place(start, start + len(old[0].total))
        work = work[: len(old[0].total)]
        for i, a in enumerate(old):
            for j, b in enumerate(new):
                # The last use of a new run's numbers may overwrite them.
                last = i == len(old) - 1
                self._surrogate[i, j, rows] = surrogate_churn(
                    a.ratios, b.ratios, b.ratios if last else work, a.alone + b.alone
                )
                over = last and b.scores.dtype == work.dtype
                self._kl[i, j, rows] = kl_divergence(a, b, b.scores if over else work)

    def done(self) -> tuple[np.ndarray | None, ...]:
        """Numbers of the pairs of runs, as in `Scanned`."""
        # KL is not defined if the new side has no column for a class of the old one.
        return self._surrogate, None if self._lost else self._kl


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


def scan(pair: Pair, runs_together: bool = True) -> Scanned:
    """Reads every score once and keeps what a comparison needs of each example.

    Blocks of rows are processed by a few threads. Memory does not grow with the number
    of scores, and pages of memory-mapped files are dropped after use. Arithmetic is in
    float32. Without `runs_together`, numbers of pairs of runs are left out.

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
    # Files often have the same examples in one order, which is not that of their ids.
    # Both are then read sequentially, not in random order.
    rows, order = pair.old_rows, None
    if rows is not None and np.any(rows[:-1] > rows[1:]):
        order = np.argsort(rows)
    old, new = (
        _classes(side, rows, columns, pair.ids)
        if side.kind == "classes"
        else SidePass(side, rows, columns, pair, order)
        for side, rows, columns in (
            (pair.old, pair.old_rows, pair.old_columns),
            (pair.new, pair.new_rows, pair.new_columns),
        )
    )
    sides = [side for side in (old, new) if isinstance(side, SidePass)]
    together = PairPass(*sides) if runs_together and len(sides) == 2 else None
    if sides:
        _over_blocks(pair.examples, sides, together)
        for side in sides:
            side.reader.check()  # first, since damage explains faulty scores
        check_faults([(side.side, side.faults) for side in sides], pair.ids)
    done = [side.done() if isinstance(side, SidePass) else side for side in (old, new)]
    found: Any = together.done() if together else ()
    return Scanned(done[0], done[1], *found)


def _over_blocks(
    examples: int, sides: list[SidePass], together: PairPass | None
) -> None:
    """Processes all examples in blocks of rows, with a few threads."""
    row_bytes = sum(side.row_bytes for side in sides)
    rows = max(1, min(_BLOCK_BYTES // row_bytes, examples))
    long = all(s.side.classes >= _LONG and s.reader.wide == np.float32 for s in sides)
    threads = min(_THREADS, os.cpu_count() or 1, -(-examples // rows))

    def work(first: int) -> None:
        rooms = [side.room(rows) for side in sides]
        spare = np.empty((rows, together.shared if together else 0), np.float32)
        if long:
            np.setbufsize(16)  # for this thread; else NumPy copies broadcast arrays
        with np.errstate(all="ignore"):  # faulty rows are reported at the end
            for start in range(first * rows, examples, threads * rows):
                stop = min(start + rows, examples)
                parts: list[Any] = [
                    [side.read(run, start, stop, of) for run, of in enumerate(room)]
                    for side, room in zip(sides, rooms)
                ]
                if together:
                    together.compare(*parts, start=start, work=spare)

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


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
