"""What is in a file or an object that a user gives: arrays by name, or a table."""

import collections
import csv
import dataclasses
import io
import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from churn_compare.array_files import (
    ArrayFileError,
    NpzArrays,
    UnpackedFile,
    as_real,
    read_npy,
)
from churn_compare.prediction_shards import (
    INDEX,
    ShardedRows,
    read_shards,
    shard_folder,
)
from churn_compare.predictions import Predictions, PredictionsError, some
from churn_compare.reading.class_values import ID
from churn_compare.reading.objects import json_lines, table_of

ENDINGS = (".npz", ".npy", ".csv", ".csv.gz", ".parquet", ".jsonl")
_IN_FOLDER = "predictions.npz"


@dataclasses.dataclass(frozen=True, eq=False)
class Contents:
    """One array, several by name, or a table; exactly one of the three."""

    array: np.ndarray | None = None  # an array without a name
    arrays: Mapping[str, np.ndarray] | None = None  # arrays by name
    table: Any = None  # a `pyarrow.Table`
    # `[N]` index of the data frame that the table is or was; None where it has none
    index: Any = None
    notes: tuple[str, ...] = ()  # sentences that a user should know


def read_contents(
    given: Any,
    numeric: Callable[[list[str]], Collection[str]] = lambda names: (),
    wanted: Callable[[list[str]], Collection[str]] = lambda names: names,
    id_column: str | None = None,
) -> Contents:
    """Reads a file, or takes arrays and tables as they are."""
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        try:
            found = _read_file(path, numeric, wanted, id_column)
        except (PredictionsError, ArrayFileError):
            raise
        except Exception as error:  # a damaged file may raise anything in a parser
            why = " ".join(str(error).split())[:200] or type(error).__name__
            if isinstance(error, UnicodeDecodeError):
                why = "it is not in UTF-8"
            raise PredictionsError(f"cannot be read, {why}") from error
        return found if found.table is None else _without_index(found, id_column)
    if isinstance(given, Predictions):
        return Contents(arrays=vars(given))
    if isinstance(given, Mapping):
        if tables := [str(n) for n, of in given.items() if hasattr(of, "column_names")]:
            raise PredictionsError(f"holds tables, {some(tables)}: give one of them")
        return Contents(arrays={str(key): value for key, value in given.items()})
    if isinstance(given, list) and given and isinstance(given[0], Mapping):
        return Contents(table=table_of(given))
    given = _as_arrow(given)
    if hasattr(given, "column_names") and hasattr(given, "to_batches"):
        check_columns(given.column_names)
        try:
            given.validate(full=True)
        except ValueError as error:
            raise PredictionsError(f"the table is damaged, {error}") from error
        return _without_index(Contents(table=given), id_column)
    if hasattr(given, "columns") and hasattr(given, "__getitem__"):
        columns = {str(name): given[name] for name in given.columns}
        check_columns([str(name) for name in given.columns])
        index = _frame_index(given)
        name = str(getattr(index, "name", ""))
        if name not in columns and (name == id_column or name.lower() in ID):
            columns, index = {name: index, **columns}, None
        found = Contents(table=as_table(columns), index=index)
        return _without_index(found, id_column)
    return Contents(array=as_array(given, "the values"))


def _as_arrow(given: Any) -> Any:
    """Frames of polars and data sets of Hugging Face as Arrow tables."""
    if hasattr(given, "with_format") and hasattr(given, "features"):
        if not hasattr(given, "__len__"):
            raise PredictionsError("is read as a stream; give a data set in memory")
        return given.with_format("arrow")[:]
    if hasattr(given, "collect") and hasattr(given, "lazy"):  # a lazy frame
        given = given.collect()
    return given.to_arrow() if hasattr(given, "to_arrow") else given


def as_array(given: Any, what: str) -> np.ndarray:
    """A NumPy array of anything array-like, also of other frameworks."""
    if isinstance(given, ShardedRows):  # read as an array is, but never as a whole
        return cast(np.ndarray, given)
    if isinstance(given, np.memmap):
        return as_real(given)
    if hasattr(given, "detach") and hasattr(given, "cpu"):  # a PyTorch tensor
        given = given.detach().cpu()
        if str(given.dtype) == "torch.bfloat16":
            given = given.float()
    try:
        return as_real(np.asarray(given))
    except Exception as error:  # of other frameworks, anything
        why = " ".join(str(error).split())[:120]
        raise PredictionsError(f"{what} cannot be made an array: {why}") from error


def as_table(given: Mapping[str, Any]) -> Any:
    """An Arrow table of columns of any library."""
    import pyarrow as pa

    columns = {}
    for name, column in given.items():
        if isinstance(column, list) and any(isinstance(of, list) for of in column):
            columns[name] = table_of({name: of} for of in column).column(name)
            continue
        values = as_array(column, f"column {name}")
        if values.dtype.name == "bfloat16":
            values = values.astype(np.float32)
        try:
            flat = values.reshape(-1) if values.ndim == 2 else values
            columns[name] = pa.array(flat, from_pandas=True)
            if values.ndim == 2:  # a list in each row
                lists = pa.FixedSizeListArray.from_arrays(
                    columns[name], values.shape[1]
                )
                columns[name] = lists
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise PredictionsError(
                f"column {name} of shape {values.shape} and type {values.dtype} is no "
                "column of a table"
            ) from error
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise PredictionsError(f"columns have different lengths: {said[:200]}")
    return pa.table(columns)


def _without_index(found: Contents, id_column: str | None) -> Contents:
    """The table without its index, which is kept separately."""
    table, index = split_index(found.table, id_column)
    index = found.index if index is None else index
    return dataclasses.replace(found, table=table, index=index)


def _frame_index(frame: Any) -> Any:
    """The index of a pandas data frame; other frames have none."""
    index = getattr(frame, "index", None)
    return None if callable(index) else index


def _read_file(
    path: Path, numeric: Callable, wanted: Callable, id_column: str | None
) -> Contents:
    if path.is_dir():
        if (path / INDEX).is_file():
            return _read_shards(path)
        path = path / _IN_FOLDER
        if not path.is_file():
            shards = shard_folder(path)
            if (shards / INDEX).is_file():  # a row of a study
                return _read_shards(shards)
            raise PredictionsError(f"is a folder without {_IN_FOLDER} or {INDEX}")
    if not path.exists():
        raise PredictionsError("there is no such file")
    if not path.is_file():
        raise PredictionsError("is no file")
    if not path.stat().st_size:
        raise PredictionsError("the file is empty")
    name = path.name.lower()
    if name.endswith(".npy"):
        return Contents(array=read_npy(path))
    if name.endswith(".npz"):
        return Contents(arrays=NpzArrays(path, mapped=True))
    if name.endswith(".parquet"):
        return Contents(table=read_parquet(path, wanted, id_column))
    if name.endswith(".jsonl"):
        return Contents(table=table_of(json_lines(path)))
    if name.endswith((".csv", ".csv.gz")):
        notes = ()
        if name.endswith(".csv") and not _ends_line(path):
            notes = (f"{path.name}: the last line has no end; it may be cut short.",)
        return Contents(table=read_csv(path, numeric, id_column), notes=notes)
    raise PredictionsError(f"files of this kind are not read; {', '.join(ENDINGS)} are")


def _read_shards(folder: Path) -> Contents:
    try:
        found = read_shards(folder)
    except PredictionsError as error:  # names the folder, which the caller does too
        raise PredictionsError(str(error).removeprefix(f"{folder}: ")) from error
    rows = cast(np.ndarray, found.values)
    of = {"ids": found.ids, "labels": found.labels, "logits": rows}
    return Contents(arrays={**of, "meta": cast(np.ndarray, found.meta)})


def _ends_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) in b"\r\n"


_INDEX = ("__index_level_0__", "Unnamed: 0")  # of pandas, where it has no name


def read_csv(
    path: Path,
    numeric: Callable[[list[str]], Collection[str]],
    id_column: str | None = None,
) -> Any:
    """A table of comma-separated values, compressed by gzip or not."""
    # Columns are read as float64 or text, so that "007" stays different from 7.
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    def opened() -> Any:
        packed = path.name.lower().endswith(".gz")
        return (
            pa.PythonFile(UnpackedFile(path), "r") if packed else pa.OSFile(str(path))
        )

    with opened() as file:
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        names = next(csv.reader(text), [])
    check_columns(names)
    if len(names) == 1 and (found := [mark for mark in ";\t" if mark in names[0]]):
        mark = {";": "semicolons", "\t": "tabs"}[found[0]]
        raise PredictionsError(f"values must be separated by commas, not by {mark}")
    index = _index_names(names, None, id_column)
    scores = frozenset(numeric([name for name in names if name not in index]))
    types = {n: pa.float64() if n in scores else pa.string() for n in names}
    converted = arrow_csv.ConvertOptions(column_types=types, strings_can_be_null=False)

    def read(newlines: bool) -> Any:
        with opened() as file:
            parsed = arrow_csv.ParseOptions(newlines_in_values=newlines)
            return arrow_csv.read_csv(
                file, parse_options=parsed, convert_options=converted
            )

    try:
        return read(newlines=False)  # a third faster, but blocks end at any newline
    except pa.ArrowInvalid:
        pass
    try:
        return read(newlines=True)
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error):
            raise
        raise PredictionsError(
            "a row has more than a million characters; a quote may lack its end"
        ) from error


def read_parquet(
    path: Path,
    wanted: Callable[[list[str]], Collection[str]],
    id_column: str | None = None,
) -> Any:
    """A Parquet file."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        names = file.schema_arrow.names
        check_columns(names)
        index = _index_names(names, file.schema_arrow.metadata, id_column)
        columns = {*wanted([name for name in names if name not in index]), *index}
        table = file.read(columns=[name for name in names if name in columns])
    table.validate(full=True)  # that strings are UTF-8, which they may not be
    return table


def split_index(table: Any, id_column: str | None = None) -> tuple[Any, Any]:
    """A table without the index of its data frame, and that index."""
    # pandas writes an index as an unnamed first column (CSV), as `__index_level_0__` or
    # by its name, or as a range in the metadata (Parquet). One of several levels stays.
    metadata = table.schema.metadata
    names = _index_names(table.column_names, metadata, id_column)
    if names:
        return table.drop_columns(names), table.column(names[0])
    recorded = _recorded_index(metadata)
    try:
        index = range(recorded["start"], recorded["stop"], recorded["step"])
        if len(index) == table.num_rows:
            return table, np.array(index, np.int64)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass  # there is none, or it is damaged
    return table, None


def _index_names(names: list[str], metadata: Any, id_column: str | None) -> list[str]:
    """Columns that hold an index, the innermost data frame's first."""
    recorded = _recorded_index(metadata)
    candidates = (recorded if isinstance(recorded, str) else None, *_INDEX)
    found = [name for name in candidates if name in names]
    if names and not names[0].strip():  # pandas writes it each time a file is saved
        found.append(names[0])
    ids = (id_column, *ID)
    return [n for n in dict.fromkeys(found) if n not in ids and n.lower() not in ids]


def _recorded_index(metadata: Any) -> Any:
    """The only index that pandas recorded: a name, or the facts of a range."""
    try:
        columns = json.loads((metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    single = isinstance(columns, list) and len(columns) == 1
    return columns[0] if single and isinstance(columns[0], str | dict) else None


def check_columns(names: list[str]) -> None:
    """Refuses a table without columns or with two of the same name."""
    if not names:
        raise PredictionsError("the file is empty")
    counts = collections.Counter(names)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise PredictionsError(
            f"{len(twice)} of {len(counts)} columns are there more than once, for "
            f"example {some(twice)}"
        )
