"""Tables in `.csv` and `.parquet` files, without a Python object per cell."""

import collections
import csv
import io
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from churn_jax.predictions import PredictionsError, some

__all__ = ["check_columns", "read_csv", "read_parquet"]


def read_csv(path: Path, numeric: Callable[[list[str]], Collection[str]]) -> Any:
    """A table of comma-separated values, compressed by gzip or not.

    Columns are float32 or text: "007" stays apart from 7.

    Args:
        path: the file, in UTF-8, with names in its first line.
        numeric: says which of the columns hold numbers that are scores.

    Returns:
        A `pyarrow.Table`.

    Raises:
        PredictionsError: it has no names or no rows, or names a column twice.
        OSError: it cannot be read.
        ValueError: it is no such table.
    """
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    with pa.input_stream(str(path), compression="detect") as file:
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        names = next(csv.reader(text), [])
    check_columns(names)
    if len(names) == 1 and (found := [mark for mark in ";\t" if mark in names[0]]):
        mark = {";": "semicolons", "\t": "tabs"}[found[0]]
        raise PredictionsError(f"values must be separated by commas, not by {mark}")
    scores = frozenset(numeric(names))
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


def read_parquet(path: Path, wanted: Callable[[list[str]], Collection[str]]) -> Any:
    """A Parquet file.

    Args:
        path: the file.
        wanted: says which of the columns to read.

    Returns:
        A `pyarrow.Table`.

    Raises:
        PredictionsError: it names a column twice.
        OSError: it cannot be read.
        ValueError: it is no such file.
    """
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        names = file.schema_arrow.names
        check_columns(names)
        columns = wanted(names)
        table = file.read(columns=[name for name in names if name in columns])
    table.validate(full=True)  # that strings are UTF-8, which they may not be
    return table


def check_columns(names: list[str]) -> None:
    """Refuses a table without columns or with two of one name.

    Raises:
        PredictionsError: says which.
    """
    if not names:
        raise PredictionsError("the file is empty")
    counts = collections.Counter(names)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise PredictionsError(
            f"{len(twice)} of {len(counts)} columns are there more than once, for "
            f"example {some(twice)}"
        )
