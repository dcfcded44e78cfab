"""Blocks of rows of one version's scores, memory-mapped or not, in bounded memory."""

import mmap
import threading

import numpy as np

from churn_compare.prediction_shards import ShardedRows
from churn_compare.prediction_shards.rows import mapped_file

_EXPONENT = 0x7C00  # of infinities and NaN in float16
_SIGN = 0x8000
_SIGN_AND_VALUE = np.uint32(0x8FFFFFFF).view(np.int32)
_REBIAS = np.float32(2.0**112)  # float32 counts exponents from 127, float16 from 15
_LEAST = np.float32(2.0**-14)  # normal number in float16


def widen(numbers: np.ndarray, out: np.ndarray) -> None:
    """Writes float16 or bfloat16 as float32, each number exactly."""
    # NumPy converts float16 one number at a time; here the bits move with a few
    # operations on whole arrays.
    bits = numbers.view(np.uint16)
    if numbers.dtype != np.float16:
        _from_bfloat16(bits, out)
    elif bits.max(initial=0) < _EXPONENT:
        _from_nonnegative(bits, out)
    elif _is_finite(bits):
        _from_finite(bits, out)
    else:
        np.copyto(out, numbers)


def _is_finite(bits: np.ndarray) -> bool:
    """Whether all float16 numbers are finite."""
    above = bits.view(np.int16).max() < _EXPONENT
    return bool(above and bits.max() < _SIGN + _EXPONENT)


def _from_bfloat16(bits: np.ndarray, out: np.ndarray) -> None:
    """Moves the bits to the upper half of float32."""
    wide = out.view(np.uint32)
    np.copyto(wide, bits)
    np.left_shift(wide, np.uint32(16), out=wide)


def _from_finite(bits: np.ndarray, out: np.ndarray) -> None:
    """Moves exponent, digits and sign, and rescales the exponent."""
    wide = out.view(np.int32)
    np.copyto(wide, bits.view(np.int16))  # repeats the sign, which the mask removes
    np.left_shift(wide, np.int32(13), out=wide)
    np.bitwise_and(wide, _SIGN_AND_VALUE, out=wide)
    np.multiply(out, _REBIAS, out=out)


def _from_nonnegative(bits: np.ndarray, out: np.ndarray) -> None:
    """Avoids subnormal numbers on the way, which processors are slow with."""
    # With the exponent's zero added as an integer, f, a subnormal number is too large:
    # it should be 2 f - 2^-14, which is less than f for those and for no others.
    wide = out.view(np.int32)
    np.copyto(wide, bits)
    np.left_shift(wide, np.int32(13), out=wide)
    np.add(wide, np.int32(112 << 23), out=wide)
    subnormal = np.add(out, out)
    np.subtract(subnormal, _LEAST, out=subnormal)
    np.minimum(out, subnormal, out=out)


# Mapped pages count as memory of this process until they are given back.
_MAPPED_BYTES = 32 << 20
_PAGES_BYTES = 2 << 20  # what the system may map when one byte is read
_SAMPLE = 512
_CHOSEN = 64  # rows here and there that are read before pages are given back


class RowReader:
    """Reads blocks of rows as float32 or float64."""

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
        """Drops mapped pages now and then; they are read again when needed."""
        if not self._mappings:
            return
        with self._lock:
            self._touched += rows * self._row_bytes
            if self._touched < _MAPPED_BYTES:
                return
            self._touched = 0
        for mapping in self._mappings:
            mapping.madvise(mmap.MADV_DONTNEED)


def sampled(examples: int) -> np.ndarray:
    """The rows that `sample_rows` reads."""
    places = np.linspace(0, examples - 1, min(examples, _SAMPLE))
    return np.unique(places.astype(int))


def sample_rows(values: np.ndarray | ShardedRows) -> np.ndarray:
    """Some hundred rows of the first run, evenly spaced."""
    rows = sampled(values.shape[1])
    reader = RowReader(values, rows)  # gives mapped pages back
    room = np.empty((len(rows), values.shape[2]), reader.dtype)
    with np.errstate(invalid="ignore"):  # damaged numbers, which the pass refuses
        return reader.read(0, 0, len(rows), room).astype(np.float64)
