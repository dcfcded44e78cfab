"""Ids of examples, and the join of two sets of ids."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from churn_compare.array_files import ArrayFileError

_EXAMPLES = 3  # offending ids named in a message


class PredictionsError(ValueError):
    """Raised for predictions that cannot be used; the message is one sentence."""


@contextlib.contextmanager
def errors_of(what: Any) -> Iterator[None]:
    """Context manager that puts a path or another name before an error's message."""
    try:
        yield
    except (PredictionsError, ArrayFileError) as error:
        raise PredictionsError(f"{what}: {error}") from error


class Matched(NamedTuple):
    """The ids that two sides share, and their rows."""

    ids: np.ndarray  # [N] in ascending order
    rows_a: np.ndarray  # [N] rows of the first side
    rows_b: np.ndarray  # [N] rows of the second
    only_a: np.ndarray  # ids that only the first side has
    only_b: np.ndarray  # ids that only the second has


def as_ids(ids: Any) -> np.ndarray:
    """Ids as an array `[N]` of integers or strings."""
    ids = np.asarray(ids)
    if ids.ndim != 1:
        raise PredictionsError(f"ids must have shape [N]; got {ids.shape}")
    if ids.dtype.kind == "O" and all(isinstance(i, str | bytes) for i in ids):
        ids = np.asarray([i.decode() if isinstance(i, bytes) else i for i in ids], "U")
    if ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    if ids.dtype.kind not in "iuU":
        raise PredictionsError(f"ids must be integers or strings; got {ids.dtype}")
    return ids


def as_labels(labels: Any) -> np.ndarray:
    """Labels as an array `[N]` of int64."""
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise PredictionsError(f"labels must have shape [N]; got {labels.shape}")
    if labels.dtype.kind not in "iu":
        raise PredictionsError(f"labels must be integers; got {labels.dtype}")
    if labels.size and labels.min() < 0:
        raise PredictionsError(
            f"labels must be at least 0; {int(np.sum(labels < 0))} are negative"
        )
    return labels.astype(np.int64)


def match_ids(ids_a: np.ndarray, ids_b: np.ndarray) -> Matched:
    """Rows of each side that belong to the same example."""
    if ids_a.dtype.kind != ids_b.dtype.kind:  # NumPy would compare them as floats
        ids_a, ids_b = ids_a.astype(str), ids_b.astype(str)
    order_a, order_b = _order(ids_a), _order(ids_b)
    ids_a, ids_b = ids_a[order_a], ids_b[order_b]
    if np.array_equal(ids_a, ids_b):
        return Matched(ids_a, order_a, order_b, ids_a[:0], ids_b[:0])
    place = np.searchsorted(ids_b, ids_a)
    found = place < len(ids_b)
    found[found] = ids_b[place[found]] == ids_a[found]
    lacking = np.ones(len(ids_b), bool)
    lacking[place[found]] = False
    return Matched(
        ids_a[found],
        order_a[found],
        order_b[place[found]],
        ids_a[~found],
        ids_b[lacking],
    )


def rows_of(wanted: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Row in `ids` of each id in `wanted`, or -1."""
    found = match_ids(wanted, ids)
    rows = np.full(len(wanted), -1)
    rows[found.rows_a] = found.rows_b
    return rows


def in_order(ids: np.ndarray) -> bool:
    """True if ids are strictly ascending, and so unique."""
    return bool(np.all(ids[:-1] < ids[1:]))


def repeated(ids: np.ndarray) -> np.ndarray:
    """The distinct ids that occur more than once."""
    if in_order(ids):
        return ids[:0]
    ids = np.sort(ids)
    return np.unique(ids[1:][ids[1:] == ids[:-1]])


def check_unique(ids: np.ndarray) -> np.ndarray:
    """The given ids; raises if an id occurs twice."""
    if (again := repeated(ids)).size:
        raise PredictionsError(
            f"ids must be unique; {again.size} of {ids.size} occur more than once, for "
            f"example {some(again)}"
        )
    return ids


def some(values: Any) -> str:
    """The first few values as text, for a message."""
    shown = ", ".join(str(v) for v in values[:_EXAMPLES])
    return shown + (", ..." if len(values) > _EXAMPLES else "")


def _order(ids: np.ndarray) -> np.ndarray:
    return np.arange(len(ids)) if in_order(ids) else np.argsort(ids, kind="stable")
