"""Arrow columns as rows of embedding tables, standardised numbers and 0/1 labels.

There is no loop over examples: every column of a block is dictionary-encoded, and only
its different words are looked at one by one. Rows and held-out examples are the same on
every machine; Python's own `hash` of text differs from process to process.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from churn_jax.data.splits import DataError, first_line
from churn_jax.data.tables.schema import Categorical, Numeric, TableSchema
from churn_jax.data.tables.sources import Block

pc: Any = pyarrow.compute  # whose functions are made when it is imported


_CACHED = 2**15  # words per field: some 4 MB


def stable_hash(field: str, word: str) -> int:
    """64 bits of BLAKE2b of a field's name and a word."""
    # The name is hashed too, so that two fields do not have the same collisions.
    text = f"{field}\0{word}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def mix(numbers: np.ndarray) -> np.ndarray:
    """`[N]` integers to random-looking uint64, one to one (SplitMix64's finalizer)."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def share_of(hashes: np.ndarray, share: float) -> np.ndarray:
    """Bool `[N]`: which of uniform 64-bit hashes fall into the lowest `share`."""
    return hashes < np.uint64(min(int(share * 2.0**64), 2**64 - 1))


class WordRows:
    """Maps words of a categorical field to rows of its table, as they arrive."""

    # Only the hashes of the words seen last are kept, so memory does not grow with the
    # stream.

    def __init__(self, field: Categorical, missing: Sequence[str]):
        self._field, self._missing = field, frozenset(missing)
        self._known: dict[str | None, int] = {}
        self._vocabulary = {w: i + 1 for i, w in enumerate(field.vocabulary)}

    def rows(self, words: Sequence[str | None]) -> np.ndarray:
        """`[N]` int32, the row of every word; a missing word has its own, or row 0."""
        known = self._known
        found = [known.get(word, -1) for word in words]
        for i, row in enumerate(found):
            if row < 0:
                if len(known) >= _CACHED:
                    known.clear()
                found[i] = known[words[i]] = self._row(words[i])
        return np.array(found, np.int32)

    def _row(self, word: str | None) -> int:
        if word is None or (bare := word.strip()) in self._missing:
            return 0 if self._vocabulary else self._hashed("")
        if self._vocabulary:
            return self._vocabulary.get(bare, 0)
        return self._hashed(bare)

    def _hashed(self, word: str) -> int:
        return stable_hash(self._field.name, word) % self._field.buckets


_SHOWN = 5  # other labels named in a message
_CACHED_GROUPS = 2**16
_LARGEST = float(np.finfo(np.float32).max)


class Chunk(NamedTuple):
    """Consecutive examples."""

    ids: np.ndarray  # [N, F] int32, rows within each field's own table
    numeric: np.ndarray  # [N, D] float32
    labels: np.ndarray  # [N] int32, 0 or 1
    keys: np.ndarray  # [N] int64, the examples' ids

    def take(self, rows) -> "Chunk":
        """Some of the examples: a mask `[N]`, or a slice."""
        return Chunk(*(array[rows] for array in self))


def words_of(block: Block, column: str) -> tuple[list[str | None], np.ndarray]:
    """A column's different words, None for a missing one last, and each row's place."""
    # 1, 1.0 and "1" are the same word.
    array = block.columns[column]
    kind = array.type
    try:
        if not pa.types.is_dictionary(kind):
            array = array.dictionary_encode()
        words = array.dictionary.cast(pa.string()).to_pylist()
    except pa.ArrowException as error:
        raise DataError(
            f"{block.where}: column {column!r} holds {kind} that cannot be read as "
            f"words ({first_line(error)})"
        ) from error
    places = array.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    return [*words, None], places


class Encoder:
    """Turns blocks into input arrays."""

    def __init__(self, schema: TableSchema):
        self._schema = schema
        self._tables = [WordRows(f, schema.missing) for f in schema.categorical]

    def ids(self, block: Block) -> np.ndarray:
        """`[N, F]` int32."""
        ids = np.empty((len(block), len(self._tables)), np.int32)
        for f, (field, table) in enumerate(
            zip(self._schema.categorical, self._tables, strict=True)
        ):
            words, places = words_of(block, field.name)
            ids[:, f] = table.rows(words)[places]
        return ids

    def numeric(self, block: Block) -> np.ndarray:
        """`[N, D]` float32; raises `DataError` where a value is no finite number."""
        schema = self._schema
        numbers = np.empty((len(block), len(schema.numeric)), np.float32)
        for d, field in enumerate(schema.numeric):
            given = values = numbers_of(block, field.name, schema.missing)
            _refuse(block, field, given, np.isinf(given), "is not finite")
            if field.transform == "log1p":
                low = given <= -1
                _refuse(block, field, given, low, "has no log1p, it must be above -1")
                values = np.log1p(given)
            values = (values - field.mean) / field.std
            beyond = np.abs(values) > _LARGEST
            _refuse(block, field, given, beyond, "is too large for float32")
            numbers[:, d] = np.nan_to_num(values)
        return numbers


def _refuse(block: Block, field: Numeric, values, wrong, why: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(
            f"{block.where}: row {block.row + at}: column {field.name!r}: "
            f"{values[at]:g} {why}"
        )


def numbers_of(block: Block, column: str, missing: tuple[str, ...]) -> np.ndarray:
    """A column as float64 `[N]`, NaN where it is missing."""
    array = block.columns[column]
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    elif pa.types.is_temporal(array.type):
        array = _ticks(array)
    elif _is_text(array):
        words, places = words_of(block, column)
        return np.array([_number(block, column, words, places, missing, i)
                         for i in range(len(words))])[places]  # fmt: skip
    try:
        numbers = array.cast(pa.float64(), safe=False)
    except pa.ArrowException as error:
        raise DataError(
            f"{block.where}: column {column!r} holds {array.type}, not numbers"
        ) from error
    return numbers.to_numpy(zero_copy_only=False)


def _number(block: Block, column: str, words, places, missing, i: int) -> float:
    word = words[i]
    if word is None or word.strip() in missing:
        return np.nan
    try:
        return float(word)
    except ValueError as error:
        at = block.row + int(np.argmax(places == i))
        raise DataError(
            f"{block.where}: row {at}: column {column!r}: {word!r} is not a number"
        ) from error


def _ticks(array: pa.Array) -> pa.Array:
    """Dates and times as integers."""
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    return array.cast(width).cast(pa.int64())


def _is_text(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


class Labels:
    """Turns the label column into 0 and 1, and remembers whether there was a 1."""

    def __init__(self, schema: TableSchema):
        self._schema = schema
        self._positive, self._missing = set(schema.positive), set(schema.missing)
        self._seen: set[str] = set()
        self.any_positive = False

    def labels(self, block: Block) -> np.ndarray:
        """`[N]` int32; raises `DataError` where a label is missing."""
        words, places = words_of(block, self._schema.label)
        classes = np.empty(len(words), np.int32)
        for i, word in enumerate(words):
            bare = None if word is None else word.strip()
            if bare is None or bare in self._missing:
                classes[i] = -1
                continue
            classes[i] = bare in self._positive
            if not classes[i] and len(self._seen) < _SHOWN:
                self._seen.add(bare)
        labels = classes[places]
        if len(labels) and labels.min() < 0:
            raise DataError(
                f"{block.where}: row {block.row + int(np.argmin(labels))} has no label "
                f"in column {self._schema.label!r}"
            )
        self.any_positive |= bool(labels.any())
        return labels

    def check(self, where: str) -> None:
        """Raises a `DataError` if, at the end of the stream, no label was positive."""
        if not self.any_positive:
            raise DataError(
                f"{where}: no row has a positive label: column {self._schema.label!r} "
                f"holds {', '.join(map(repr, sorted(self._seen)))}, but the schema "
                f"says {', '.join(map(repr, self._schema.positive))}"
            )


class TimeOrder:
    """Checks that the time column never decreases, across blocks and files."""

    def __init__(self, schema: TableSchema):
        self._column, self._missing = schema.time, set(schema.missing)
        self._last: tuple[Any, Any] | None = None
        self._is_text: bool | None = None

    def check(self, block: Block) -> None:
        """Raises a `DataError` with the row and both values if it decreases."""
        if self._column is None:
            return
        times = block.columns[self._column]
        text = _is_text(times)
        if text:
            times = times.cast(pa.string())
            empty = pc.is_in(times, value_set=pa.array(sorted(self._missing)))
            times = pc.if_else(empty, None, times)
        if times.null_count:
            at = times.is_null().to_pylist().index(True)
            raise DataError(
                f"{block.where}: row {block.row + at} has no time in column "
                f"{self._column!r}"
            )
        if text:
            shown, times = times, _as_numbers(times)
            text = pa.types.is_string(times.type)
        else:
            shown = times
        if self._is_text is None:
            self._is_text = text
        elif self._is_text != text:
            raise DataError(
                f"{block.where}: column {self._column!r} holds numbers in some rows "
                f"and text in others, from row {block.row} on"
            )
        value = times[0].as_py()
        if self._last is not None and value < self._last[0]:
            self._refuse(block, 0, self._last[1], shown[0].as_py())
        falls = pc.less(times[1:], times[:-1])
        if pc.any(falls).as_py():
            at = falls.index(True).as_py()
            self._refuse(block, at + 1, shown[at].as_py(), shown[at + 1].as_py())
        self._last = times[-1].as_py(), shown[-1].as_py()

    def _refuse(self, block: Block, at: int, before, after) -> None:
        raise DataError(
            f"{block.where}: row {block.row + at}: the stream must be in time order, "
            f"but column {self._column!r} goes back from {before} to {after}"
        )


def _as_numbers(texts: pa.Array) -> pa.Array:
    for kind in (pa.int64(), pa.float64()):
        try:
            return texts.cast(kind)
        except pa.ArrowException:
            continue
    return texts


class HoldOut:
    """Which rows are held out: a share of the groups, or of rows without a group."""

    def __init__(self, schema: TableSchema, share: float):
        if not 0 <= share < 1:
            raise DataError(f"holdout must be a share from 0 to below 1; got {share}")
        self._group, self._missing = schema.group, set(schema.missing)
        self.share = share
        self._known: dict[str, int] = {}

    def mask(self, block: Block, keys: np.ndarray) -> np.ndarray:
        """Bool `[N]`, for a block whose rows have the numbers `keys [N]`."""
        if not self.share:
            return np.zeros(len(keys), bool)
        hashes = mix(keys)
        if self._group is not None:
            words, places = words_of(block, self._group)
            of_words = np.array([self._hash(w) for w in words], np.uint64)
            alone = np.array([w is None or w.strip() in self._missing for w in words])
            hashes = np.where(alone[places], hashes, of_words[places])
        return share_of(hashes, self.share)

    def _hash(self, word: str | None) -> int:
        if word is None:
            return 0
        known = self._known.get(word)
        if known is None:
            if len(self._known) >= _CACHED_GROUPS:
                self._known.clear()
            known = self._known[word] = stable_hash("held out", word.strip())
        return known
