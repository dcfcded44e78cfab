"""Several arrays `[R, n, C]`, memory-mapped or not, read as one `[R, N, C]`."""

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["ShardedRows", "mapped_file"]


class ShardedRows:
    """Arrays one after the other along their second axis; nothing is copied.

    `rows[run, picked]` is `[n, C]` of a run, where `picked` is a slice or integers;
    `rows[run]` is the whole run and `rows[[0, 2]]` are those runs, not yet read.

    Args:
        parts: `[R, n, C]` arrays of one type, with the same R and C.
        runs: which of their runs there are, in which order; None for all.

    Attributes:
        parts: as given.
        shape: `(R, N, C)`.
        dtype: of the parts.

    Example:
        >>> rows = ShardedRows([np.zeros((1, 2, 3)), np.ones((1, 4, 3))])
        >>> rows.shape, rows[0, [5, 0]].tolist()
        ((1, 6, 3), [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    """

    ndim = 3

    def __init__(self, parts: Sequence[np.ndarray], runs: Sequence[int] | None = None):
        self.parts = tuple(parts)
        # As plain arrays: every operation on a memory-mapped one costs extra.
        self._arrays = tuple(np.asarray(part) for part in parts)
        first = self._arrays[0]
        self._runs = np.arange(len(first)) if runs is None else np.asarray(runs)
        self._starts = np.cumsum([0, *(a.shape[1] for a in self._arrays)])
        self.shape = (len(self._runs), int(self._starts[-1]), first.shape[2])
        self.dtype = first.dtype

    @property
    def size(self) -> int:
        """Number of values."""
        runs, rows, classes = self.shape
        return runs * rows * classes

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        run, rows = key if isinstance(key, tuple) else (key, slice(None))
        chosen = self._runs[run]
        if np.ndim(chosen):
            if isinstance(key, tuple):
                raise IndexError("rows are read of one run at a time")
            return ShardedRows(self.parts, chosen)
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.shape[1])
            if step == 1:
                return self._between(chosen, start, max(start, stop))
            rows = np.arange(start, stop, step)
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        if rows.ndim > 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise IndexError("rows are picked by a slice or by [n] integers")
        picked = self._picked(chosen, np.atleast_1d(rows).astype(np.int64))
        return picked if rows.ndim else picked[0]

    def give_back(self) -> None:
        """Drops mapped pages, which count as memory of this process until then.

        They are read again when needed.
        """
        for part in self.parts:
            if (file := mapped_file(part)) is not None:
                file.madvise(mmap.MADV_DONTNEED)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """All of it, in memory."""
        whole = np.stack([self[run] for run in range(len(self))])
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _between(self, run: int, start: int, stop: int) -> np.ndarray:
        """Rows from `start` to before `stop`; a view where one part has them all."""
        first = int(np.searchsorted(self._starts, start, "right")) - 1
        last = int(np.searchsorted(self._starts, stop, "left")) - 1
        last = max(first, last)
        pieces = [
            self._arrays[i][
                run, max(start - self._starts[i], 0) : max(stop - self._starts[i], 0)
            ]
            for i in range(first, min(last + 1, len(self._arrays)))
        ]
        if not pieces:
            return np.empty((0, self.shape[2]), self.dtype)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _picked(self, run: int, rows: np.ndarray) -> np.ndarray:
        total = self.shape[1]
        if rows.size and (rows.min() < -total or rows.max() >= total):
            raise IndexError(f"rows must lie in 0..{total - 1}")
        rows = np.where(rows < 0, rows + total, rows)
        parts = np.searchsorted(self._starts, rows, "right") - 1
        used = np.unique(parts)
        if len(used) == 1 and (np.diff(rows) == 1).all():
            return self._between(run, int(rows[0]), int(rows[-1]) + 1)  # no copy
        if len(used) == 1:
            return self._arrays[used[0]][run][rows - self._starts[used[0]]]
        out = np.empty((len(rows), self.shape[2]), self.dtype)
        for i in used:
            here = np.flatnonzero(parts == i)
            out[here] = self._arrays[i][run][rows[here] - self._starts[i]]
        return out


def mapped_file(values: np.ndarray) -> mmap.mmap | None:
    """The file behind an array; None where its pages must not be dropped."""
    base, file = values, False
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            file = base.mode in ("r", "r+", "w+")  # "c" holds changes of its own
        base = base.base
    droppable = file and isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED")
    return base if droppable else None
