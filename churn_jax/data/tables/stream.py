"""A table read once from its start to its end, in windows of constant shape."""

import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np

from churn_jax.data.splits import DataError
from churn_jax.data.tables.encoding import Chunk, Encoder, HoldOut, Labels, TimeOrder
from churn_jax.data.tables.schema import TableSchema
from churn_jax.data.tables.sources import Source, find_sources

Part = Literal["train", "holdout"]

_TRIED = 2**16  # examples that are read when a table is opened


class Window(NamedTuple):
    """Consecutive examples of a stream; the last window is padded with zeros.

    Attributes:
        ids: `[W, F]` int32, rows within each field's own table.
        numeric: `[W, D]` float32.
        labels: `[W]` int32, 0 or 1.
        mask: `[W]` float32, 0 for padding.
        first: index, in its part of the stream, of the first example; `start` of the
            windows that begin with this one.
        keys: `[W]` int64, the examples' ids: numbers of their rows in the whole stream.
    """

    ids: np.ndarray
    numeric: np.ndarray
    labels: np.ndarray
    mask: np.ndarray
    first: int
    keys: np.ndarray


class Examples(Protocol):
    """The source of a stream's examples."""

    def chunks(self, part: Part, start: int) -> Iterator[Chunk]:
        """Examples of a part in order, without its first `start`."""
        ...

    def count(self, part: Part) -> int:
        """How many examples a part has; may take a pass over the stream."""
        ...


class TableStream:
    """Examples in time order, each visited once; made by `open_table`.

    Attributes:
        schema: what the columns mean.
        fingerprint: differs where the contents, the schema or the held-out share do.
    """

    def __init__(self, schema: TableSchema, examples: Examples, fingerprint: str):
        self.schema = schema
        self.fingerprint = fingerprint
        self._examples = examples
        self._counts: dict[Part, int] = {}

    def windows(
        self, size: int, *, start: int = 0, part: Part = "train"
    ) -> Iterator[Window]:
        """The stream in windows; memory does not depend on its length.

        Windows that start at the end of an earlier one are those that would have
        followed it. Reaching `start` takes reading what is before it, but neither
        hashing nor numbers.

        Args:
            size: examples per window, W.
            start: examples of the part to leave out at its beginning.
            part: what is learned, or what is held out of it.

        Yields:
            Windows of W examples, the last one padded.

        Raises:
            DataError: the table cannot be used; one sentence says where and why.
            ValueError: an argument is out of range.
        """
        if size < 1 or start < 0:
            raise ValueError(
                f"a window has at least 1 example and start is at least 0; got size "
                f"{size} and start {start}"
            )
        _check_part(part)
        return self._windows(size, start, part)

    def count(self, part: Part = "train") -> int:
        """How many examples a part has; the first time, a pass over the stream.

        Raises:
            DataError: the table cannot be read.
            ValueError: there is no such part.
        """
        _check_part(part)
        if part not in self._counts:
            self._counts[part] = self._examples.count(part)
        return self._counts[part]

    def _windows(self, size: int, start: int, part: Part) -> Iterator[Window]:
        pending: list[Chunk] = []
        held, first = 0, start
        for chunk in self._examples.chunks(part, start):
            pending.append(chunk)
            held += len(chunk.labels)
            if held < size:
                continue
            whole = _join(pending)
            for low in range(0, held - size + 1, size):
                yield _window(whole.take(slice(low, low + size)), size, first)
                first += size
            rest = held % size
            # A copy: a view would keep all of the chunk in memory.
            last = whole.take(slice(held - rest, held))
            pending, held = ([Chunk(*map(np.copy, last))] if rest else []), rest
        if held:
            yield _window(_join(pending), size, first)


def _check_part(part: str) -> None:
    if part not in get_args(Part):
        raise ValueError(
            f"a stream's parts are {' and '.join(get_args(Part))}; got {part!r}"
        )


def _join(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    return Chunk(*map(np.concatenate, zip(*chunks, strict=True)))


def _window(chunk: Chunk, size: int, first: int) -> Window:
    count = len(chunk.labels)

    def padded(array: np.ndarray) -> np.ndarray:
        full = np.zeros((size, *array.shape[1:]), array.dtype)
        full[:count] = array
        return full

    ids, numeric, labels, keys = map(padded, chunk)
    mask = (np.arange(size) < count).astype(np.float32)
    return Window(ids, numeric, labels, mask, first, keys)


class TableExamples:
    """The rows of files, one file after the other."""

    def __init__(self, schema: TableSchema, sources: list[Source], holdout: float):
        self._schema, self._sources = schema, sources
        self._holdout = holdout
        self._where = sources[0].where if len(sources) == 1 else "the files"

    def chunks(self, part: Part, start: int) -> Iterator[Chunk]:
        """Examples of a part in order, without its first `start`."""
        schema = self._schema
        encoder, labels = Encoder(schema), Labels(schema)
        order, held_out = TimeOrder(schema), HoldOut(schema, self._holdout)
        row = 0
        for source in self._sources:
            for block in source.blocks(schema.needed):
                keys = np.arange(row, row + len(block), dtype=np.int64)
                row += len(block)
                order.check(block)
                classes = labels.labels(block)
                chosen = held_out.mask(block, keys) == (part == "holdout")
                count = int(chosen.sum())
                if count <= start:
                    start -= count
                    continue
                chunk = Chunk(encoder.ids(block), encoder.numeric(block), classes, keys)
                if count < len(block):
                    chunk = chunk.take(chosen)
                yield chunk.take(slice(start, None)) if start else chunk
                start = 0
        if not row:
            raise DataError(f"{self._where}: there are no rows")
        labels.check(self._where)

    def count(self, part: Part) -> int:
        """How many examples a part has; files that know their length are not read."""
        schema, held = self._schema, HoldOut(self._schema, self._holdout)
        if part == "holdout" and not held.share:
            return 0
        column = schema.group if held.share and schema.group else schema.label
        row = total = 0
        for source in self._sources:
            rows = None if held.share else source.count()
            if rows is not None:
                total += rows
                continue
            for block in source.blocks((column,)):
                keys = np.arange(row, row + len(block), dtype=np.int64)
                row += len(block)
                total += int((held.mask(block, keys) == (part == "holdout")).sum())
        return total

    def fingerprint(self) -> str:
        """Over the files, the schema and the held-out share."""
        parts = [source.fingerprint() for source in self._sources]
        text = json.dumps([parts, self._schema.as_table(), self._holdout])
        return hashlib.sha256(text.encode()).hexdigest()


def open_table(
    source: str | pathlib.Path,
    schema: TableSchema,
    *,
    holdout: float = 0.0,
    data_dir: str | pathlib.Path | None = None,
) -> TableStream:
    r"""A table as a stream of examples in time order.

    The first 65,536 examples are read at once, so that most mistakes show before
    anything is trained.

    Args:
        source: a `.csv`, `.csv.gz` or `.parquet` file; a folder of such files, whose
            names sort as time does; or `tfds:NAME/SPLIT` for a TFDS set prepared as
            array_record.
        schema: what the columns mean.
        holdout: share of the groups (`schema.group`), or else of the rows, that are
            never in the part "train" and make up the part "holdout". Which ones is a
            hash of the group's value or of the row's number.
        data_dir: where TFDS sets are prepared; None for the TFDS default.

    Returns:
        The stream.

    Raises:
        DataError: the source cannot be read or does not fit the schema; one sentence
            says where and why.

    Example:
        >>> import tempfile
        >>> from churn_jax.data.tables import Categorical, Numeric
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "clicks.csv"
        >>> _ = path.write_text("site,age,clicked\na,30,1\nb,40,0\na,?,0\n")
        >>> schema = TableSchema(
        ...     "clicked", ("1",), (Categorical("site", vocabulary=("a",)),),
        ...     (Numeric("age", mean=35.0, std=5.0),))
        >>> first, second = open_table(path, schema).windows(2)
        >>> first.ids.tolist(), first.numeric.tolist(), first.labels.tolist()
        ([[1], [0]], [[-1.0], [1.0]], [1, 0])
        >>> second.mask.tolist(), second.first
        ([1.0, 0.0], 2)
    """
    examples = TableExamples(schema, find_sources(source, schema, data_dir), holdout)
    tried = 0
    for chunk in examples.chunks("train", 0):
        tried += len(chunk.labels)
        if tried >= _TRIED:
            break
    if not tried:
        raise DataError(f"{source}: every row is held out")
    return TableStream(schema, examples, examples.fingerprint())
