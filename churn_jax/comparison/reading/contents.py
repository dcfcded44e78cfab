"""What is in a file or an object that a user gives: arrays by name, or a table."""

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from churn_jax.array_files import ArrayFileError, NpzArrays, as_real, read_npy
from churn_jax.comparison.reading.table_file import (
    check_columns,
    read_csv,
    read_parquet,
    split_index,
)
from churn_jax.prediction_shards import (
    INDEX,
    ShardedRows,
    read_shards,
    shards_beside,
)
from churn_jax.predictions import Predictions, PredictionsError

__all__ = ["ENDINGS", "Contents", "as_array", "as_table", "read_contents"]

ENDINGS = (".npz", ".npy", ".csv", ".csv.gz", ".parquet")
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
        return Contents(arrays={str(key): value for key, value in given.items()})
    if hasattr(given, "column_names") and hasattr(given, "to_batches"):
        check_columns(given.column_names)
        try:
            given.validate(full=True)
        except ValueError as error:
            raise PredictionsError(f"the table is damaged, {error}") from error
        return _without_index(Contents(table=given), id_column)
    if hasattr(given, "columns") and hasattr(given, "__getitem__"):
        check_columns([str(name) for name in given.columns])
        table = as_table({str(name): given[name] for name in given.columns})
        found = Contents(table=table, index=_frame_index(given))
        return _without_index(found, id_column)
    return Contents(array=as_array(given, "the values"))


def as_array(given: Any, what: str) -> np.ndarray:
    """A NumPy array of anything array-like, of other frameworks too."""
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
    """The index out of the columns of a table."""
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
            shards = shards_beside(path)
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
