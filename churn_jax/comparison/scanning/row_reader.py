"""Blocks of rows of one version's scores, memory-mapped or not, in bounded memory."""

import mmap
import threading

import numpy as np

from churn_jax.comparison.scanning.half_precision import widen
from churn_jax.prediction_shards import ShardedRows
from churn_jax.prediction_shards.rows import mapped_file

__all__ = ["RowReader", "sample_rows"]

# Mapped pages count as memory of this process until they are given back.
_MAPPED_BYTES = 32 << 20
_PAGES_BYTES = 2 << 20  # what the system may map when one byte is read
_SAMPLE = 512
_CHOSEN = 64  # rows here and there that are read before pages are given back


class RowReader:
    """Reads blocks of rows as numbers that can be computed with."""

    def __init__(self, values: np.ndarray | ShardedRows, rows: np.ndarray | None):
        sharded = isinstance(values, ShardedRows)
        # As a plain array: every operation on a memory-mapped one costs extra.
        self._values, self._rows = values if sharded else np.asarray(values), rows
        exact = np.can_cast(values.dtype, np.float32)
        self.dtype = np.dtype(np.float32 if exact else np.float64)
        self._half = values.dtype == np.float16 or (
            values.dtype.name == "bfloat16" and values.dtype.isnative
        )
        found = map(mapped_file, values.parts if sharded else (values,))
        self._mappings = [mapping for mapping in found if mapping is not None]
        # With several runs a read touches one of them only.
        row_bytes = values.shape[2] * values.dtype.itemsize
        self._row_bytes = row_bytes if rows is None else row_bytes + _PAGES_BYTES
        self._touched = 0
        self._lock = threading.Lock()

    def read(self, run: int, start: int, stop: int, out: np.ndarray) -> np.ndarray:
        """Rows `start` to `stop` of a run."""
        out = out[: stop - start]
        step = _CHOSEN if self._mappings and self._rows is not None else stop - start
        for first in range(start, stop, max(step, 1)):
            last = min(first + step, stop)
            self._convert(run, first, last, out[first - start : last - start])
            self._give_back(last - first)
        return out

    def _convert(self, run: int, start: int, stop: int, out: np.ndarray) -> None:
        rows = slice(start, stop) if self._rows is None else self._rows[start:stop]
        block = self._values[run, rows]
        if self._half:
            widen(block, out)
        else:
            np.copyto(out, block, casting="same_kind")

    def _give_back(self, rows: int) -> None:
        """Drops the mapped pages now and then; they are read again when needed."""
        if not self._mappings:
            return
        with self._lock:
            self._touched += rows * self._row_bytes
            if self._touched < _MAPPED_BYTES:
                return
            self._touched = 0
        for mapping in self._mappings:
            mapping.madvise(mmap.MADV_DONTNEED)


def sample_rows(values: np.ndarray | ShardedRows) -> np.ndarray:
    """Some hundred rows of the first run, evenly spaced."""
    count = values.shape[1]
    rows = np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(int))
    reader = RowReader(values, rows)  # gives mapped pages back
    room = np.empty((len(rows), values.shape[2]), reader.dtype)
    with np.errstate(invalid="ignore"):  # damaged numbers, which the pass refuses
        return reader.read(0, 0, len(rows), room).astype(np.float64)
