"""Contents of a file or an object that a user gives: arrays, or a table."""

import contextlib
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from churn_compare.array_files import (
    ArrayFileError,
    NpzArrays,
    as_real,
    check_memory,
    read_npy,
)
from churn_compare.example_ids import (
    PredictionsError,
    as_ids,
    counts_rows,
    numpy_array,
    some,
)
from churn_compare.reading import arrow, text_tables
from churn_compare.reading.columns import ID
from churn_compare.store import INDEX, Predictions, read_shards, shard_folder
from churn_compare.stored_logits import StoredLogits

_TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_LINES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
_ARROW = (".feather", ".arrow")
_TABLES = (".parquet", *_ARROW, *_TEXT, *_LINES)
ENDINGS = (".npz", ".npy", *_TABLES)
_JSON = (".json", ".json.gz")  # also reports and settings: no versions in a folder
_IN_FOLDER = "predictions.npz"
# Of Spark, Dask, DuckDB, Hugging Face and BigQuery.
_PART = re.compile(r"part[-._]\d+.*|.+-\d{5}-of-\d{5}\..+|.+[-_]0{6}\d{6}\..+")
_INDEX = ("__index_level_0__", "Unnamed: 0")  # of pandas, where it has no name
_ODD = " that does not just count the rows"


@dataclasses.dataclass(frozen=True, eq=False)
class Contents:
    """One array, several by name, or a table; exactly one of the three."""

    array: np.ndarray | None = None  # an array without a name
    arrays: Mapping[str, np.ndarray] | None = None  # arrays by name
    table: Any = None  # a `pyarrow.Table`
    index: str = ""  # why rows need ids, where an index says more than their order
    # The Parquet file with the columns of scores that the table does not have yet.
    late: Any = None
    notes: tuple[str, ...] = ()  # sentences that a user should know
    read: tuple[str, ...] = ()  # what is unusual about the file, for the account

    @property
    def columns(self) -> Mapping[str, Any]:
        """Columns or arrays by name."""
        if self.table is None:
            return self.arrays or {}
        return {name: self.table.column(name) for name in self.table.column_names}


# From the columns of a file those to read, and those of them that are scores.
Choice = Callable[[list[str]], tuple[Collection[str], Collection[str]]]


@contextlib.contextmanager
def parsing() -> Iterator[None]:
    """Makes one sentence of the error of a parser, which may raise anything."""
    try:
        yield
    except (PredictionsError, ArrayFileError):
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        known: dict[type, str] = {UnicodeDecodeError: "it is not in UTF-8"}
        known |= {RecursionError: "it is nested too deep"}
        why = known.get(type(error), why)
        raise PredictionsError(f"cannot be read, {why}") from error


def read_contents(
    given: Any,
    id_column: str | None = None,
    choice: Choice = lambda names: (names, ()),
) -> Contents:
    """Reads a file, or takes arrays and tables as they are."""
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        with parsing():
            found = _read_file(path, choice, id_column)
        return _without_index(found, id_column)
    if isinstance(given, Predictions):
        return Contents(arrays=vars(given))
    if isinstance(given, Mapping):
        if tables := [str(n) for n, of in given.items() if hasattr(of, "column_names")]:
            raise PredictionsError(f"holds tables, {some(tables)}: give one of them")
        arrays = {str(key): value for key, value in given.items()}
        for name, values in arrays.items():
            _refuse_masked(values, name)
            if why := _odd_index(values):
                raise PredictionsError(f"{name} {why}")
        return Contents(arrays=arrays)
    if _are_records(given):
        return Contents(table=text_tables.table_of(given))
    given = _as_arrow(given)
    if hasattr(given, "column_names") and hasattr(given, "to_batches"):
        return _without_index(Contents(table=_checked(given)), id_column)
    if hasattr(given, "columns") and hasattr(given, "__getitem__"):
        columns = {str(name): given[name] for name in given.columns}
        text_tables.check_columns([str(name) for name in given.columns])
        found = Contents(table=as_table(columns), index=_odd_index(given))
        return _without_index(found, id_column)
    found = _of_array(as_array(given, "the values"))
    return dataclasses.replace(found, index=_odd_index(given))


def _are_records(given: Any) -> bool:
    """True for a list or tuple of mappings, a row each."""
    rows = given if isinstance(given, list | tuple) else ()
    return bool(rows) and all(isinstance(row, Mapping) for row in rows)


def _of_array(array: np.ndarray) -> Contents:
    """One array, or the fields of a structured one."""
    if (names := array.dtype.names) is None:
        return Contents(array=array)
    return Contents(arrays={name: array[name] for name in names})


def _as_arrow(given: Any) -> Any:
    """Frames of polars and data sets of Hugging Face as Arrow tables."""
    if hasattr(given, "with_format") and hasattr(given, "features"):
        if not hasattr(given, "__len__"):
            raise PredictionsError("is read as a stream; give a data set in memory")
        return given.with_format("arrow")[:]
    if hasattr(given, "collect") and hasattr(given, "lazy"):  # a lazy frame
        given = given.collect()
    return given.to_arrow() if hasattr(given, "to_arrow") else given


def _checked(table: Any) -> Any:
    """A table of Arrow's that is what it says, with views of strings as strings."""
    text_tables.check_columns(table.column_names)
    try:
        table.validate(full=True)
    except ValueError as error:
        raise PredictionsError(f"the table is damaged, {error}") from error
    for place, field in enumerate(table.schema):
        if arrow.types.is_string_view(field.type):  # polars writes them
            column = table.column(place).cast(arrow.string())
            table = table.set_column(place, field.name, column)
    return table


def as_array(given: Any, what: str) -> np.ndarray:
    """A NumPy array of anything array-like, also of other frameworks."""
    if isinstance(given, StoredLogits):  # read as an array is, but never as a whole
        return cast(np.ndarray, given)
    if isinstance(given, np.memmap):
        return as_real(given)
    _refuse_masked(given, what)
    if hasattr(given, "detach") and hasattr(given, "cpu"):  # a PyTorch tensor
        given = given.detach().cpu()
        if str(given.dtype) == "torch.bfloat16":
            given = given.float()
    try:
        return as_real(numpy_array(given))
    except Exception as error:  # of other frameworks, anything
        why = " ".join(str(error).split())[:120]
        raise PredictionsError(f"{what} cannot be made an array: {why}") from error


def _refuse_masked(given: Any, what: str) -> None:
    """Refuses entries without a value, which `np.asarray` would make numbers."""
    parts = given if isinstance(given, list | tuple) else [given]
    masked = [of for of in parts if isinstance(of, np.ma.MaskedArray)]
    if count := sum(int(np.ma.getmaskarray(of).sum()) for of in masked):
        size = sum(of.size for of in masked) if masked[0].ndim else len(parts)
        raise PredictionsError(
            f"{what}: {count:,} of {size:,} entries are masked; leave these examples "
            "out, or fill the entries"
        )


def as_table(given: Mapping[str, Any]) -> Any:
    """An Arrow table of columns of any library."""
    columns = {}
    for name, column in given.items():
        if isinstance(column, list) and any(isinstance(of, list) for of in column):
            rows = ({name: of} for of in column)
            columns[name] = text_tables.table_of(rows).column(name)
            continue
        values = as_array(column, f"column {name}")
        if values.dtype.name == "bfloat16":
            values = values.astype(np.float32)
        try:
            flat = values.reshape(-1) if values.ndim == 2 else values
            columns[name] = arrow.array(flat, from_pandas=True)
            if values.ndim == 2:  # a list in each row
                lists = arrow.FixedSizeListArray.from_arrays
                columns[name] = lists(columns[name], values.shape[1])
        except (arrow.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise PredictionsError(
                f"column {name} of shape {values.shape} and type {values.dtype} is no "
                "column of a table"
            ) from error
    check_same_lengths({name: len(column) for name, column in columns.items()})
    return arrow.table(columns)


def check_same_lengths(lengths: Mapping[str, int]) -> None:
    """Refuses columns of different lengths."""
    if len({*lengths.values()}) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise PredictionsError(f"columns have different lengths: {said[:200]}")


# The index of a data frame


def _without_index(found: Contents, id_column: str | None) -> Contents:
    """The table without its index, which must count the rows if there are no ids."""
    if found.table is None:
        return found
    table, why = found.table, found.index
    names = _index_names(table.column_names, table.schema.metadata, id_column)
    for name in names:
        if not _counts(table.column(name)):
            why = f"column {name!r} is an index{_ODD}: call it id, or leave it out"
    return dataclasses.replace(found, table=table.drop_columns(names), index=why)


def _index_names(names: list[str], metadata: Any, id_column: str | None) -> list[str]:
    """Columns that hold the index of a data frame of pandas."""
    known = [*_INDEX]
    with contextlib.suppress(KeyError, TypeError, ValueError, RecursionError):
        recorded = json.loads((metadata or {})[b"pandas"])["index_columns"]
        known += recorded if len(recorded) == 1 else []  # several are columns
    known += [name for name in names[:1] if not name.strip()]  # in a CSV
    ids = (id_column, *ID)
    return [n for n in names if n in known and n not in ids and n.lower() not in ids]


def _odd_index(given: Any) -> str:
    """Why the index of a frame or a series cannot be left out; "" if it can."""
    index = getattr(given, "index", None)
    if index is None or callable(index) or not len(index) or _counts(index):
        return ""
    return (
        f"has an index{_ODD}: give it as a column, frame.reset_index(names='id'), or "
        "leave it out, reset_index(drop=True)"
    )


def _counts(index: Any) -> bool:
    try:
        return counts_rows(as_ids(index))
    except PredictionsError:
        return False


# Files and folders


def _check_path(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:  # no report could name the file
        raise PredictionsError("its path is not in UTF-8; rename it") from error


def _read_file(path: Path, choice: Choice, id_column: str | None) -> Contents:
    _check_path(path)
    if path.is_dir():
        inside = path / _IN_FOLDER
        for shards in (path, shard_folder(inside)):  # also a row of a study
            if (shards / INDEX).is_file() and (shards is path or not inside.is_file()):
                return Contents(arrays=vars(read_shards(shards)))
        if not inside.is_file():
            raise PredictionsError(_not_one_table(path))
        path = inside
    if not path.is_file():
        what = "is not a file" if path.exists() else "there is no such file"
        raise PredictionsError(what)
    if not path.stat().st_size:
        raise PredictionsError("the file is empty")
    name = path.name.lower()
    if name.endswith(".npy"):
        return _of_array(read_npy(path))
    if name.endswith(".npz"):
        return Contents(arrays=NpzArrays(path, mapped=True))
    if name.endswith(".parquet"):
        return _read_parquet(path, choice, id_column)
    if name.endswith(_ARROW):
        return Contents(table=_read_arrow(path))
    if name.endswith(_LINES):
        return Contents(table=text_tables.table_of(text_tables.json_lines(path)))
    if name.endswith(_JSON):
        found = text_tables.read_json(path)
        if isinstance(found, list):
            return Contents(array=as_array(found, "the list"))
        return Contents(table=found)
    if not name.endswith(_TEXT):
        raise PredictionsError(
            f"files of this kind are not read, only {', '.join(ENDINGS)}"
        )
    notes = ()
    if not text_tables.is_packed(path) and not text_tables.ends_line(path):
        notes = (f"{path.name}: the last line has no end; it may be cut short.",)

    def scores(names: list[str]) -> Collection[str]:
        index = _index_names(names, None, id_column)
        return choice([name for name in names if name not in index])[1]

    table, unusual = text_tables.read_text(path, scores)
    return Contents(table=table, notes=notes, read=unusual)


def parts_of(folder: Path) -> list[Path]:
    """The files that make one table, as Spark writes them; none in other folders."""
    found, marked = [], (folder / "_SUCCESS").is_file()
    for path in sorted(folder.iterdir()):
        name = path.name.lower()
        if name.startswith((".", "_")):
            continue
        if path.is_dir() and "=" in name:  # a partition
            tables = [of for of in path.iterdir() if of.name.lower().endswith(_TABLES)]
            found += parts_of(path) or tables
        elif path.is_file() and name.endswith((*_TABLES, *_JSON)):
            if marked or _PART.fullmatch(name):
                found.append(path)
            elif not name.endswith(_JSON):  # Hugging Face describes a data set so
                return []
    return found


def _not_one_table(folder: Path) -> str:
    """Why a folder is not predictions, and how to merge the parts of a table."""
    if not (parts := parts_of(folder)):
        return f"is a folder without {_IN_FOLDER} or {INDEX}"
    said = f"is a folder of {len(parts)} parts of one table"
    if (folder / "_delta_log").is_dir():  # whose files have deleted rows, too
        return f"{said}, a Delta table: write its current version as one file"
    kinds = ("parquet", "feather", "arrow", "json")
    kind = next((of for of in kinds if of in parts[0].name.lower()), "csv")
    return (
        f"{said}: merge them, with pyarrow.parquet as pq and pyarrow.dataset as ds, by "
        f"pq.write_table(ds.dataset({str(folder)!r}, format={kind!r}, "
        "partitioning='hive').to_table(), 'merged.parquet')"
    )


@parsing()
def column_names(given: Any) -> list[str]:
    """Names of the columns or arrays of a file or an object; none without names."""
    if isinstance(given, str | os.PathLike):
        return _names_in(Path(given))
    if isinstance(given, Mapping):
        return [*map(str, given)]
    if isinstance(given, list | tuple):
        return _keys(given if _are_records(given) else ())
    if hasattr(given, "collect_schema"):  # of polars
        return given.collect_schema().names()
    names = getattr(getattr(given, "dtype", None), "names", None)
    names = getattr(given, "column_names", getattr(given, "columns", names))
    return [] if names is None else [*map(str, names)]


def _keys(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return [*dict.fromkeys(name for row in rows for name in row)]  # some lack some


@functools.lru_cache(maxsize=8)
def _keys_in(path: Path, *state: int) -> list[str]:
    """Keys of all lines of a file in this state; several readers ask for them."""
    return _keys(text_tables.json_lines(path))


def _names_in(path: Path) -> list[str]:
    _check_path(path)
    name = path.name.lower()
    try:
        if not path.is_file() or not path.stat().st_size:
            return []
        if name.endswith(_TEXT):
            return text_tables.layout_of(path).names
        if name.endswith(_LINES):
            of = path.stat()
            return [*_keys_in(path, of.st_ino, of.st_mtime_ns, of.st_size)]
        if name.endswith(_JSON):
            return getattr(text_tables.read_json(path), "column_names", [])
        if name.endswith(".parquet"):
            return arrow.parquet.read_schema(path).names
        return _read_arrow(path).column_names if name.endswith(_ARROW) else []
    except PredictionsError:
        raise
    except (OSError, ValueError, EOFError, TypeError):
        return []  # what reads all of it says what is wrong


def _read_arrow(path: Path) -> Any:
    """A file of Arrow's, in either of its forms."""
    try:
        return _checked(arrow.feather.read_table(path))
    except arrow.ArrowInvalid:  # a stream, as Hugging Face writes it
        with arrow.OSFile(str(path)) as file:
            return _checked(arrow.ipc.open_stream(file).read_all())


def _read_parquet(path: Path, choice: Choice, id_column: str | None) -> Contents:
    """A Parquet file, of which columns of scores are read when they are used."""
    # Not a whole group of rows at once, which may be the whole file.
    file = arrow.parquet.ParquetFile(
        path, page_checksum_verification=True, pre_buffer=False, buffer_size=1 << 18
    )
    schema = file.schema_arrow
    text_tables.check_columns(schema.names)
    index = _index_names(schema.names, schema.metadata, id_column)
    columns, scores = choice([name for name in schema.names if name not in index])
    chosen, size = {*columns, *index}, 0
    widths = {"INT64": 8, "DOUBLE": 8, "INT32": 4, "FLOAT": 4, "INT96": 12}
    for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema.split(".")[0] in chosen:
                room = chunk.num_values * widths.get(chunk.physical_type, 1)
                size += max(room, chunk.total_uncompressed_size)
    check_memory(size)
    primitive, scores = arrow.types.is_primitive, {*scores} & chosen
    late = {name for name in scores if primitive(schema.field(name).type)}
    now = [name for name in schema.names if name in chosen and name not in late]
    table = file.read(columns=now)
    table = _checked(table) if now else table  # that strings are UTF-8, too
    return Contents(table=table, late=file if late else None)
