"""Ids of examples as users write them, and the index of a data frame."""

from typing import Any, NamedTuple

import numpy as np

from churn_compare.example_ids import PredictionsError, check_unique, some
from churn_compare.reading.class_values import (
    check_lengths,
    decoded,
    refuse_missing,
)
from churn_compare.reading.spelling import arrow_compute, stripped

_MUST = "ids must be integers or strings"
_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"  # the usual way to write an integer of 64 bits


def as_ids(values: Any) -> np.ndarray:
    """Ids as int64, or as strings if they do not all fit."""
    # An id is what it is written as: 7 and "7" are equal, "007" is another.
    import pyarrow as pa

    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = np.asarray(values)
        if values.ndim != 1:
            raise PredictionsError(f"ids must have shape [N]; got {values.shape}")
        if values.dtype.kind in "iu" and np.can_cast(values.dtype, np.int64):
            return values.astype(np.int64)
        if values.dtype.kind == "S":
            values = decoded(values, "ids")
        what = values.dtype if values.dtype.kind != "O" else "objects of several types"
        try:
            values = pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise PredictionsError(f"{_MUST}; they are {what}") from error
    return _from_arrow(values)


def _from_arrow(column: Any) -> np.ndarray:
    import pyarrow as pa

    pc = arrow_compute()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (text or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise PredictionsError(f"{_MUST}; they are {kind}")
    missing = np.asarray(column.is_null())
    if text:
        missing = missing | np.asarray(pc.fill_null(pc.equal(column, ""), True))
    refuse_missing(missing, "ids")
    if not text:
        numbers = column.to_numpy()
        if numbers.dtype == np.uint64 and numbers.max(initial=0) > 2**63 - 1:
            return numbers.astype(str)
        return numbers.astype(np.int64)
    check_lengths(pc.max(pc.utf8_length(column)).as_py() or 0, "ids")
    if pc.any(pc.match_substring(column, "\0")).as_py():
        raise PredictionsError("ids hold the character with number 0")  # NumPy drops it
    if not pc.all(pc.string_is_ascii(column)).as_py():
        column = pc.utf8_normalize(column, form="NFC")
    if pc.all(pc.match_substring_regex(column, _NUMBER)).as_py():
        return column.cast(pa.int64()).to_numpy()
    return np.asarray(column.to_numpy(zero_copy_only=False), "U")


def ids_without_space(ids: np.ndarray | None) -> np.ndarray | None:
    """Ids without outer space."""
    if ids is None or ids.dtype.kind != "U":
        return ids
    return check_unique(as_ids(np.array([stripped(text) for text in ids.tolist()])))


def index_ids(index: Any) -> np.ndarray | None:
    """Ids of examples from the index of a data frame."""
    if index is None:
        return None
    import pyarrow as pa

    try:
        if not isinstance(index, pa.Array | pa.ChunkedArray):
            index = pa.array(np.asarray(index), from_pandas=True)
        if pa.types.is_floating(index.type) or pa.types.is_temporal(index.type):
            index = index.cast(pa.string())
        return check_unique(as_ids(index))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


class Runs(NamedTuple):
    """The rows of a file that has several of each id."""

    rows: np.ndarray  # `[R, N]`
    ids: np.ndarray  # `[N]` in ascending order
    names: np.ndarray  # `[R]` of the runs; empty where no column names them

    def check_same(self, values: np.ndarray, what: str) -> None:
        """Refuses rows of one id that are of different examples."""
        values = values[self.rows]
        if (differ := (values != values[0]).any(axis=0)).any():
            raise PredictionsError(
                f"rows of the same id differ in {what}, for example of id "
                f"{some(self.ids[differ])}: only runs of one example may share an id; "
                "make ids that tell the examples apart"
            )


def split_runs(ids: np.ndarray, names: Any = None) -> Runs:
    """Divides rows into runs by a column of names, else by their order."""
    distinct, place, count = np.unique(ids, return_inverse=True, return_counts=True)
    if count.min() != count.max():
        few, many = distinct[count.argmin()], distinct[count.argmax()]
        raise PredictionsError(
            f"every example must have as many rows as runs; {few} has {count.min()}, "
            f"{many} has {count.max()}"
        )
    keys, known = [place], np.arange(0)
    if names is not None:
        known, run = np.unique(as_ids(names), return_inverse=True)
        keys = [run, place]
        if np.unique(np.stack(keys), axis=1).shape[1] != len(ids):
            raise PredictionsError("an example has two rows of one run")
    order = np.lexsort(keys)  # stable: without a column, in the order of the file
    return Runs(order.reshape(-1, count[0]).T, distinct, known)


def counts_rows(ids: np.ndarray) -> bool:
    """True if ids count the rows from 0 or 1, like the index of a new data frame."""
    first = ids[0] if len(ids) and ids.dtype.kind == "i" else -1
    return first in (0, 1) and np.array_equal(ids, np.arange(first, first + len(ids)))
