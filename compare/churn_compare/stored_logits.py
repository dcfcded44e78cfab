"""Logits in arrays or memory-mapped files, read by blocks of rows."""

import math
import mmap
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Mapped pages count as memory of this process until they are dropped.
_MAPPED_BYTES = 32 << 20
_PAGES_BYTES = 2 << 20  # bytes the system may map when one byte is read
_SAMPLE = 512
_CHOSEN = 64  # scattered rows that are read before pages are dropped


class StoredLogits:
    """Logits `[R, N, C]`, concatenated from `[R, n, C]` arrays, memory-mapped or not.

    `logits[run, picked]` is `[n, C]` of a run, where `picked` is a slice or integers;
    `logits[run]` is the whole run, and `logits[[0, 2]]` are those runs, not yet read.
    Numbers are float32, or float64 if float32 would round them; `np.asarray` reads all.
    `check` returns once the files are known to be as they were written, or raises. All
    methods that return numbers wait for it, except `read`.
    """

    ndim = 3

    def __init__(
        self,
        parts: Sequence[np.ndarray],
        runs: Sequence[int] | np.ndarray | None = None,
        order: np.ndarray | None = None,
        check: Callable[[], None] = lambda: None,
    ):
        self.parts, self.check, self._order = tuple(parts), check, order
        # Plain arrays, since operations on memory-mapped ones have an overhead.
        self._arrays = tuple(np.asarray(part) for part in parts)
        first = self._arrays[0]
        self._runs = np.arange(len(first)) if runs is None else np.asarray(runs)
        self._starts = np.cumsum([0, *(a.shape[1] for a in self._arrays)])
        examples = int(self._starts[-1]) if order is None else len(order)
        self.shape = (len(self._runs), examples, first.shape[2])
        self.size, self.dtype = math.prod(self.shape), first.dtype
        self.nbytes = self.size * self.dtype.itemsize
        exact = np.can_cast(self.dtype, np.float32)
        self.wide = np.dtype(np.float32 if exact else np.float64)
        self._mappings = [m for m in map(_mapped_file, self.parts) if m is not None]
        # With several runs, a read touches only one of them.
        row_bytes = self.shape[2] * self.dtype.itemsize
        self._row_bytes = row_bytes if order is None else row_bytes + _PAGES_BYTES
        self._touched, self._lock = 0, threading.Lock()

    @classmethod
    def of(
        cls, values: "np.ndarray | StoredLogits", order: np.ndarray | None = None
    ) -> "StoredLogits":
        """`StoredLogits` of either kind of logits, with the examples in `order`."""
        if not isinstance(values, StoredLogits):
            return cls([values], order=order)
        own = values._order
        order = own if order is None else order if own is None else own[order]
        return cls(values.parts, values._runs, order, values.check)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        run, rows = key if isinstance(key, tuple) else (key, slice(None))
        chosen = self._runs[run]
        if np.ndim(chosen):
            if isinstance(key, tuple):
                raise IndexError("rows are read of one run at a time")
            return StoredLogits(self.parts, chosen, self._order, self.check)
        self.check()
        return self._rows(chosen, rows).astype(self.wide, copy=False)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        whole = np.stack([self[run] for run in range(len(self))])
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def read(self, run: int, start: int, stop: int, out: np.ndarray) -> np.ndarray:
        """Writes rows of a run to `out` in little memory; does not wait for `check`."""
        out = out[: stop - start]
        step = _CHOSEN if self._mappings and self._order is not None else stop - start
        for first in range(start, stop, max(step, 1)):
            last = min(first + step, stop)
            rows = self._rows(self._runs[run], slice(first, last))
            np.copyto(out[first - start : last - start], rows, casting="same_kind")
            with self._lock:
                self._touched += (last - first) * self._row_bytes
                if full := self._touched >= _MAPPED_BYTES:
                    self._touched = 0
            if full:
                self.give_back()
        return out

    def give_back(self) -> None:
        """Drops mapped pages; they are read again when needed."""
        for mapping in self._mappings:
            mapping.madvise(mmap.MADV_DONTNEED)

    def _rows(self, run: int, rows: Any) -> np.ndarray:
        """Rows as they are stored; a view if they are consecutive in one part."""
        if self._order is not None:
            picked = self._order[rows]
        elif isinstance(rows, slice):
            picked = np.arange(*rows.indices(self.shape[1]))
        else:
            picked = np.arange(self.shape[1])[rows]
        if np.ndim(picked) > 1:
            raise IndexError("rows are picked by a slice or by [n] integers")
        every = np.atleast_1d(picked)
        parts = np.zeros_like(every)
        if len(self._arrays) > 1:
            parts = np.searchsorted(self._starts, every, "right") - 1

        def of_part(i: int, chosen: np.ndarray) -> np.ndarray:
            own: Any = chosen - self._starts[i]
            if len(own) and np.all(np.diff(own) == 1):
                own = slice(own[0], own[-1] + 1)
            return self._arrays[i][run, own]

        first = parts[0] if len(parts) else 0
        if np.all(parts == first):
            out = of_part(first, every)
        else:
            out = np.empty((len(every), self.shape[2]), self.dtype)
            for i in np.unique(parts):
                out[parts == i] = of_part(i, every[parts == i])
        return out if np.ndim(picked) else out[0]


def sampled(examples: int) -> np.ndarray:
    """Indices of the rows that `sample_rows` reads."""
    places = np.linspace(0, examples - 1, min(examples, _SAMPLE))
    return np.unique(places.astype(int))


def sample_rows(values: np.ndarray | StoredLogits) -> np.ndarray:
    """Up to 512 rows of the first run, evenly spaced, not waiting for `check`."""
    rows = sampled(values.shape[1])
    logits = StoredLogits.of(values, rows)  # drops mapped pages
    room = np.empty((len(rows), values.shape[2]), logits.wide)
    with np.errstate(invalid="ignore"):  # damaged numbers, which the scan refuses
        return logits.read(0, 0, len(rows), room).astype(np.float64)


def _mapped_file(base: Any) -> mmap.mmap | None:
    """The mapped file of an array; None if its pages must not be dropped."""
    file = False
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            file = base.mode in ("r", "r+", "w+")  # "c" holds its own changes
        base = base.base
    droppable = file and isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED")
    return base if droppable else None
