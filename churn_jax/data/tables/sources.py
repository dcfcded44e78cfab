"""CSV and Parquet files and TFDS sets as blocks of Arrow columns, in time order.

A source reads forward, a block at a time, so memory does not grow with its length. It
knows nothing of what the columns mean beyond which ones are words and which numbers.
"""

import csv
import gzip
import hashlib
import io
import pathlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from churn_jax.data.splits import DataError, first_line
from churn_jax.data.tables.schema import TableSchema, check_columns

_BLOCK_BYTES = 8 * 2**20  # of a CSV file, at a time
_BLOCK_ROWS = 2**15  # of anything else
_ENDS = 2**20  # bytes at either end of a file that its fingerprint covers
_SUFFIXES = (".csv", ".csv.gz", ".parquet")

_WORDS = pa.dictionary(pa.int32(), pa.string())


class Block(NamedTuple):
    """Consecutive rows."""

    where: str  # the file, for messages
    row: int  # of the first row, as an editor counts: from 1, the header included
    columns: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True)
class _File:
    path: pathlib.Path
    schema: TableSchema

    @property
    def where(self) -> str:
        """Its name."""
        return self.path.name

    def fingerprint(self) -> str:
        """sha256 over the length and the first and last MiB."""
        # Reading all of a stream of many gigabytes would take as long as using it.
        length = self.path.stat().st_size
        digest = hashlib.sha256(str(length).encode())
        with self.path.open("rb") as file:
            digest.update(file.read(_ENDS))
            file.seek(max(length - _ENDS, 0))
            digest.update(file.read(_ENDS))
        return digest.hexdigest()


@dataclass(frozen=True)
class CsvFile(_File):
    """A CSV file, perhaps compressed by gzip."""

    def count(self) -> None:
        """None: not known without reading."""

    def blocks(self, columns: tuple[str, ...]) -> Iterator[Block]:
        """A column is parsed as numbers unless it is needed as words or as the time."""
        schema = self.schema
        words = {field.name for field in schema.categorical}
        words |= {c for c in (schema.label, schema.group) if c is not None}
        types = {
            column: _WORDS
            if column in words
            else pa.string()
            if column == schema.time
            else pa.float64()
            for column in columns
        }
        row = 1 if schema.columns else 2
        names = list(schema.columns) or self._header()
        check_columns(schema, names, self.where)
        try:
            reader = pyarrow.csv.open_csv(
                pa.input_stream(
                    str(self.path),
                    compression="gzip" if self.path.suffix == ".gz" else None,
                ),
                # One thread keeps count of rows, which messages need.
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False,
                    block_size=_BLOCK_BYTES,
                    column_names=list(schema.columns) or None,
                ),
                parse_options=pyarrow.csv.ParseOptions(delimiter=schema.delimiter),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(columns),
                    # A blank after the delimiter is no part of a number.
                    null_values=[b + w for w in schema.missing for b in ("", " ")],
                    strings_can_be_null=False,
                ),
            )
            for batch in reader:
                if batch.num_rows:
                    yield Block(
                        self.where, row, dict(zip(columns, batch.columns, strict=True))
                    )
                    row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.where}: {self._explain(error, names)}") from error

    def _header(self) -> list[str]:
        try:
            opened = gzip.open if self.path.suffix == ".gz" else open
            with opened(self.path, "rb") as raw:
                # What is not UTF-8 is found with its row later on.
                text = io.TextIOWrapper(raw, "utf-8-sig", "replace", newline="")
                rows = csv.reader(text, delimiter=self.schema.delimiter)
                names = next((row for row in rows if row), [])
        except (OSError, EOFError, zlib.error, csv.Error) as error:
            raise DataError(
                f"{self.where}: the header cannot be read ({error})"
            ) from error
        if not names:
            raise DataError(f"{self.where}: the file is empty")
        for name in self.schema.needed:
            if names.count(name) > 1:
                raise DataError(f"{self.where}: two columns are called {name!r}")
        return names

    @staticmethod
    def _explain(error: Exception, names: list[str]) -> str:
        """A sentence for the user, from Arrow's message."""
        text = first_line(error)
        found = re.search(r"column #(\d+): Row #(\d+): .* to (\w+): (.*)", text)
        if found:
            column, row, kind, what = found.groups()
            wrong = what.removeprefix("invalid value ").strip("'")
            said = (
                f"{wrong!r} is not a number"
                if kind == "double"
                else f"the text cannot be read ({what})"
            )
            return f"row {row}: column {names[int(column)]!r}: {said}"
        if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", text):
            row, wanted, got = found.groups()
            return f"row {row} has {got} fields instead of {wanted}"
        if "Empty CSV" in text:
            return "the file is empty"
        if "Truncated" in text:
            return "the compressed file ends too early"
        if "inflate" in text:
            return f"the file is not gzip, or is damaged ({text})"
        return f"the file cannot be read ({text})"


@dataclass(frozen=True)
class ParquetFile(_File):
    """A Parquet file."""

    def count(self) -> int:
        """From the file's footer."""
        with self._open() as file:
            return file.metadata.num_rows

    def _open(self):
        try:
            return pyarrow.parquet.ParquetFile(str(self.path))
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{self.where}: this is no Parquet file, or it is damaged "
                f"({first_line(error)})"
            ) from error

    def blocks(self, columns: tuple[str, ...]) -> Iterator[Block]:
        """Columns keep their types."""
        row = 1
        with self._open() as file:
            check_columns(self.schema, file.schema_arrow.names, self.where)
            batches = file.iter_batches(
                batch_size=_BLOCK_ROWS, columns=list(columns), use_threads=False
            )
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise DataError(
                        f"{self.where}: after row {row - 1} the file cannot be read "
                        f"({first_line(error)})"
                    ) from error
                if batch is None:
                    return
                if batch.num_rows:
                    yield Block(self.where, row, {c: batch.column(c) for c in columns})
                    row += batch.num_rows


@dataclass(frozen=True, eq=False)
class TfdsSplit:
    """A split of a TFDS set that is prepared as array_record, without TensorFlow."""

    # Records come in the order of the prepared files, which is the generated one only
    # for sets that disable shuffling; a schema's time column finds out.

    where: str
    split: str
    builder: Any
    schema: TableSchema

    def count(self) -> int:
        """From the set's description."""
        return self.builder.info.splits[self.split].num_examples

    def fingerprint(self) -> str:
        """sha256 over the set's name, version and the lengths of its files."""
        lengths = self.builder.info.splits[self.split].shard_lengths
        text = f"{self.builder.info.full_name}/{self.split}{lengths}"
        return hashlib.sha256(text.encode()).hexdigest()

    def blocks(self, columns: tuple[str, ...]) -> Iterator[Block]:
        """Text and class labels are words, the rest are numbers."""
        features = self.builder.info.features
        check_columns(self.schema, list(features), self.where)
        for column in columns:
            if features[column].shape != ():
                raise DataError(
                    f"{self.where}: column {column!r} must hold one value per example; "
                    f"its shape is {features[column].shape}"
                )
        try:
            source = self.builder.as_data_source(self.split)
        except NotImplementedError as error:
            raise DataError(
                f"{self.where} was not prepared as array_record: prepare it again, or "
                "pass another data_dir"
            ) from error
        for start in range(0, len(source), _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, len(source))
            records = source.__getitems__(list(range(start, stop)))
            yield Block(
                self.where,
                start + 1,
                {
                    c: _tfds_column(features[c], [r[c] for r in records])
                    for c in columns
                },
            )


def _tfds_column(feature: Any, values: list) -> pa.Array:
    if hasattr(feature, "int2str"):
        return pa.array([feature.int2str(v) if v >= 0 else "" for v in values])
    if isinstance(values[0], bytes):
        return pa.array([v.decode("utf-8", "replace") for v in values])
    return pa.array([v.item() if hasattr(v, "item") else v for v in values])


Source = CsvFile | ParquetFile | TfdsSplit
"""Rows of one file or set, read forward, block by block."""


def find_sources(
    source: str | pathlib.Path,
    schema: TableSchema,
    data_dir: str | pathlib.Path | None = None,
) -> list[Source]:
    """The files or TFDS split to read, one after the other; at least one."""
    if str(source).startswith("tfds:"):
        return [_tfds(str(source), schema, data_dir)]
    path = pathlib.Path(source)
    if path.is_dir():
        files = sorted(
            p for p in path.iterdir() if _kind(p) and not p.name.startswith(".")
        )
        if not files:
            raise DataError(
                f"{path}: the folder holds no file that ends in {', '.join(_SUFFIXES)}"
            )
        return [_file(p, schema) for p in files]
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if not _kind(path):
        raise DataError(
            f"{path.name}: the name must end in {', '.join(_SUFFIXES)}; for a TFDS set "
            "pass tfds:NAME/SPLIT"
        )
    return [_file(path, schema)]


def _kind(path: pathlib.Path) -> str | None:
    return next((s for s in _SUFFIXES if path.name.endswith(s)), None)


def _file(path: pathlib.Path, schema: TableSchema) -> Source:
    kind = ParquetFile if _kind(path) == ".parquet" else CsvFile
    return kind(path, schema)


def _tfds(name: str, schema: TableSchema, data_dir) -> TfdsSplit:
    # Importing tensorflow-datasets takes time that others need not pay.
    from churn_jax.data.tfds_source import prepared_builder

    plain, _, split = name.removeprefix("tfds:").rpartition("/")
    if not plain:
        raise DataError(f"{name}: pass tfds:NAME/SPLIT, such as tfds:mine/train")
    builder = prepared_builder(plain, data_dir)
    if split not in builder.info.splits:
        raise DataError(
            f"{name}: {plain} has no {split!r} split; it has "
            f"{', '.join(builder.info.splits) or 'none'}"
        )
    return TfdsSplit(name, split, builder, schema)
