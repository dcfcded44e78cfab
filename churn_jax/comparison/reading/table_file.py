"""Tables in `.csv` and `.parquet` files, without a Python object per cell."""

import collections
import csv
import io
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from churn_jax.comparison.reading.column_names import ID
from churn_jax.predictions import PredictionsError, some

__all__ = ["check_columns", "read_csv", "read_parquet", "split_index"]

_INDEX = ("__index_level_0__", "Unnamed: 0")  # of pandas, where it has no name


def read_csv(
    path: Path,
    numeric: Callable[[list[str]], Collection[str]],
    id_column: str | None = None,
) -> Any:
    """A table of comma-separated values, compressed by gzip or not."""
    # Columns are read as float32 or text, so that "007" stays different from 7.
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    with pa.input_stream(str(path), compression="detect") as file:
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        names = next(csv.reader(text), [])
    check_columns(names)
    if len(names) == 1 and (found := [mark for mark in ";\t" if mark in names[0]]):
        mark = {";": "semicolons", "\t": "tabs"}[found[0]]
        raise PredictionsError(f"values must be separated by commas, not by {mark}")
    index = _index_names(names, None, id_column)
    scores = frozenset(numeric([name for name in names if name not in index]))
    types = {n: pa.float32() if n in scores else pa.string() for n in names}
    converted = arrow_csv.ConvertOptions(column_types=types, strings_can_be_null=False)

    def read(newlines: bool) -> Any:
        with pa.input_stream(str(path), compression="detect") as file:
            parsed = arrow_csv.ParseOptions(newlines_in_values=newlines)
            return arrow_csv.read_csv(
                file, parse_options=parsed, convert_options=converted
            )

    try:
        return read(newlines=False)  # a third faster, but blocks end at any newline
    except pa.ArrowInvalid:
        return read(newlines=True)


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
    """A table without the index of the data frame that it was, and that index."""
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
    """Columns that are an index, that of the first frame first."""
    recorded = _recorded_index(metadata)
    candidates = (recorded if isinstance(recorded, str) else None, *_INDEX)
    found = [name for name in candidates if name in names]
    if names and not names[0].strip():  # written anew each time a file is saved
        found.append(names[0])
    ids = (id_column, *ID)
    return [n for n in dict.fromkeys(found) if n not in ids and n.lower() not in ids]


def _recorded_index(metadata: Any) -> Any:
    """The only index column that pandas recorded, a name or the facts of a range."""
    try:
        columns = json.loads((metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    single = isinstance(columns, list) and len(columns) == 1
    return columns[0] if single and isinstance(columns[0], str | dict) else None


def check_columns(names: list[str]) -> None:
    """Refuses a table without columns or with two of one name."""
    if not names:
        raise PredictionsError("the file is empty")
    counts = collections.Counter(names)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise PredictionsError(
            f"{len(twice)} of {len(counts)} columns are there more than once, for "
            f"example {some(twice)}"
        )
