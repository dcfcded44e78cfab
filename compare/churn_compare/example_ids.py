"""Ids of examples as users write them, their runs, and the join of two sets."""

import collections
import contextlib
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from churn_compare.array_files import ArrayFileError
from churn_compare.reading import arrow

_EXAMPLES = 3  # offending ids named in a message
_MUST = "must be integers or strings; they are"
_LONGEST = 10_000
# Space and characters of no width, which never count around ids and names of classes.
_OUTER = "".join(filter(str.isspace, map(chr, range(0x3001))))
_OUTER += "\u200b\u200c\u200d\u2060\ufeff"
# Values that one tool writes otherwise than another: 1.0, True, a date with a time.
_SPELLINGS = (
    (r"^(0|-?[1-9][0-9]*)\.0+$", r"\1"),
    (r"^T(rue|RUE)$", "true"),
    (r"^F(alse|ALSE)$", "false"),
    (r"^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d*[1-9])?\.?0*$", r"\1 \2\3"),
    (r"^(\d{4}-\d\d-\d\d) 00:00:00$", r"\1"),
)
_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"  # the usual way to write an integer of 64 bits


class PredictionsError(ValueError):
    """Raised for predictions that cannot be used; the message is one sentence."""


@contextlib.contextmanager
def errors_of(what: Any) -> Iterator[None]:
    """Context manager that puts a path or another name before an error's message."""
    try:
        yield
    except (PredictionsError, ArrayFileError) as error:
        why = str(error).removeprefix(f"{what}: ")  # it may begin with it already
        raise PredictionsError(f"{what}: {why}") from error


def some(values: Any) -> str:
    """The first few values as text, for a message."""
    shown = ", ".join(str(v) for v in values[:_EXAMPLES])
    return shown + (", ..." if len(values) > _EXAMPLES else "")


def twice(texts: Iterable[str]) -> list[str]:
    """The texts that occur more than once, each once."""
    return [text for text, count in collections.Counter(texts).items() if count > 1]


def names_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """Several names; a single text is one of them."""
    return (given,) if isinstance(given, str) else tuple(given)


def check_choice(name: str, given: Any, allowed: Iterable[str]) -> None:
    """Refuses a setting that is not one of a few words."""
    if given not in (allowed := [*allowed]):
        raise PredictionsError(
            f"{name} must be one of {', '.join(allowed)}; got {given!r}"
        )


def check_count(what: str, count: int, examples: int) -> None:
    """Refuses what is of another number of examples than the predictions."""
    if count != examples:
        raise PredictionsError(
            f"{what} are of {count:,} examples, the predictions of {examples:,}"
        )


def decoded(values: np.ndarray, what: str) -> np.ndarray:
    """Bytes as strings."""
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise PredictionsError(f"{what} are bytes that are not in UTF-8") from error


def trimmed(texts: Any) -> Any:
    """An Arrow array of texts without outer space."""
    return arrow.utf8_trim(texts, characters=_OUTER)


def canonical(text: str) -> str:
    """A name or an id as it is compared: composed and without outer space."""
    text = text.strip(_OUTER)
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def value_texts(texts: Any) -> Any:
    """An Arrow array of values by which examples are grouped, each in one spelling."""
    encoded = arrow.one(texts).dictionary_encode()
    values = arrow.utf8_normalize(trimmed(encoded.dictionary), form="NFC")
    for pattern, spelling in _SPELLINGS:
        values = arrow.replace_substring_regex(values, pattern, spelling)
    return values.take(encoded.indices)


def check_lengths(texts: Any, what: str) -> None:
    """Refuses names that are too long: NumPy gives all the width of the longest."""
    longest = arrow.max(arrow.utf8_length(texts)).as_py() or 0
    if longest > _LONGEST:
        raise PredictionsError(
            f"{what} must be names of at most {_LONGEST:,} characters; one has "
            f"{longest:,}"
        )


def refuse_missing(missing: np.ndarray, what: str, hint: str = "") -> None:
    """Refuses examples without a value."""
    if count := int(missing.sum()):
        raise PredictionsError(
            f"{what} are missing for {count} of {missing.size} examples, for example "
            f"rows {some(np.flatnonzero(missing))} (the first is 0){hint}"
        )


def numpy_array(values: Any) -> np.ndarray:
    """The values as an array, in which NaN among texts does not become a text."""
    found = np.asarray(values)
    if found.dtype.kind in "US" and isinstance(values, list | tuple):
        objects = np.asarray(values, object)
        return objects if (objects != objects).any() else found
    return found


def _vector(values: Any, what: str) -> np.ndarray:
    values = numpy_array(values)
    if values.ndim != 1:
        raise PredictionsError(f"{what} must have shape [N]; got {values.shape}")
    return values


def as_labels(labels: Any) -> np.ndarray:
    """Labels as an array `[N]` of int64."""
    labels = _vector(labels, "labels")
    if labels.dtype.kind not in "iu":
        raise PredictionsError(f"labels must be integers; got {labels.dtype}")
    if labels.size and labels.min() < 0:
        raise PredictionsError(
            f"labels must be at least 0; {int(np.sum(labels < 0))} are negative"
        )
    return labels.astype(np.int64)


def as_ids(column: Any, what: str = "ids") -> np.ndarray:
    """Ids as int64, or as strings if some are not 64-bit integers."""
    # An id is what it is written as: 7 and "7 " are equal, "007" is another.
    if not hasattr(column, "null_count"):
        values = _vector(column, what)
        if values.dtype.kind in "iu" and np.can_cast(values.dtype, np.int64):
            return values.astype(np.int64)
        if values.dtype.kind == "S":
            values = decoded(values, what)
        kind = values.dtype if values.dtype.kind != "O" else "objects of several types"
        try:
            column = arrow.array(values, from_pandas=True)
        except (arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise PredictionsError(f"{what} {_MUST} {kind}") from error
    column = arrow.plain(column)
    types, of = arrow.types, column.type
    whole = types.is_decimal(of) and of.scale == 0  # an integer of a database
    if whole or types.is_date(of) or types.is_timestamp(of):
        texts = column.cast(arrow.string())  # as tables of text hold them
        column = arrow.replace_substring_regex(texts, r"\.0+$", "")
        if arrow.all(arrow.ends_with(column, midnight := " 00:00:00")).as_py():
            column = arrow.replace_substring(column, midnight, "")  # as pandas does
    text, kind = arrow.is_text(column.type), column.type
    if not (text or arrow.types.is_integer(kind) or arrow.types.is_null(kind)):
        raise PredictionsError(f"{what} {_MUST} {kind}")
    missing = np.asarray(column.is_null())
    if text:
        column = trimmed(column)
        missing = missing | np.asarray(arrow.fill_null(arrow.equal(column, ""), True))
    refuse_missing(missing, what)
    if not text:
        numbers = column.to_numpy()
        if numbers.dtype == np.uint64 and numbers.max(initial=0) > 2**63 - 1:
            return numbers.astype(str)
        return numbers.astype(np.int64)
    check_lengths(column, what)
    if arrow.any(arrow.match_substring(column, "\0")).as_py():  # NumPy drops it
        raise PredictionsError(f"{what} hold the character with number 0")
    if not arrow.all(arrow.string_is_ascii(column)).as_py():
        column = arrow.utf8_normalize(column, form="NFC")
    if arrow.all(arrow.match_substring_regex(column, _NUMBER)).as_py():
        return column.cast(arrow.int64()).to_numpy()
    return np.asarray(column.to_numpy(zero_copy_only=False), "U")


def counts_rows(ids: np.ndarray) -> bool:
    """True if ids count the rows from 0 or 1, like the index of a new data frame."""
    first = ids[0] if len(ids) and ids.dtype.kind == "i" else -1
    return first in (0, 1) and np.array_equal(ids, np.arange(first, first + len(ids)))


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
            f"{many} has {count.max()}; finish the last run, or leave its rows out"
        )
    keys, known = [place], np.arange(0)
    if names is not None:
        known, run = np.unique(as_ids(names, "runs"), return_inverse=True)
        keys = [run, place]
        if np.unique(np.stack(keys), axis=1).shape[1] != len(ids):
            raise PredictionsError("an example has two rows of one run")
    order = np.lexsort(keys)  # stable: without a column, in the order of the file
    return Runs(order.reshape(-1, count[0]).T, distinct, known)


class Matched(NamedTuple):
    """The ids that two sides share, in ascending order, and their rows."""

    ids: np.ndarray
    rows_a: np.ndarray
    rows_b: np.ndarray
    only_a: np.ndarray  # ids that only the first side has
    only_b: np.ndarray


def match_ids(ids_a: np.ndarray, ids_b: np.ndarray) -> Matched:
    """Rows of each side that belong to the same example."""
    if ids_a.dtype.kind != ids_b.dtype.kind:  # NumPy would compare them as floats
        ids_a, ids_b = ids_a.astype(str), ids_b.astype(str)
    order_a, order_b = (
        np.arange(len(ids)) if _in_order(ids) else np.argsort(ids, kind="stable")
        for ids in (ids_a, ids_b)
    )
    ids_a, ids_b = ids_a[order_a], ids_b[order_b]
    if np.array_equal(ids_a, ids_b):
        return Matched(ids_a, order_a, order_b, ids_a[:0], ids_b[:0])
    place = np.searchsorted(ids_b, ids_a)
    found = place < len(ids_b)
    found[found] = ids_b[place[found]] == ids_a[found]
    rows, lacking = order_b[place[found]], np.ones(len(ids_b), bool)
    lacking[place[found]] = False
    return Matched(ids_a[found], order_a[found], rows, ids_a[~found], ids_b[lacking])


def rows_of(wanted: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Row in `ids` of each id in `wanted`, or -1."""
    found = match_ids(wanted, ids)
    rows = np.full(len(wanted), -1)
    rows[found.rows_a] = found.rows_b
    return rows


def _in_order(ids: np.ndarray) -> bool:
    """True if ids are strictly ascending, and so unique."""
    return bool(np.all(ids[:-1] < ids[1:]))


def repeated(ids: np.ndarray) -> np.ndarray:
    """The distinct ids that occur more than once."""
    if _in_order(ids):
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
