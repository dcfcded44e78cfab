"""Ids, labels and slices in files of their own."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from churn_compare.example_ids import PredictionsError, check_unique, errors_of, some
from churn_compare.reading.arrays import array_class_names
from churn_compare.reading.class_values import (
    CLASS,
    ID,
    LABEL,
    PREDICTION,
    RUN,
    SCORES,
    ClassValues,
    all_numbers,
    arrow_compute,
    find_column,
    plain,
    score_columns,
    with_missing,
)
from churn_compare.reading.contents import Contents, as_array, read_contents
from churn_compare.reading.ids import as_ids, index_ids

DRAWN_FROM = "drawn_from"  # a column of queues of examples to label
_MOST_VALUES = 200  # of a grouping


class ExampleValues(NamedTuple):
    """Ids, labels or slices from a file of their own."""

    ids: np.ndarray | None  # `[N]`, or None where values are in row order
    labels: ClassValues | None = None  # class of every example, or None
    slices: Mapping[str, np.ndarray] = {}  # name of a grouping to `[N]` strings
    # columns that are no groupings, since they are called like predictions
    left_out: tuple[str, ...] = ()
    # whether the ids are only the index of a data frame, as in `Side`
    index: bool = False
    others: Mapping[str, Any] = {}  # the columns of the file of labels


def read_ids(given: Any, id_column: str | None = None) -> np.ndarray:
    """Ids of examples."""
    with errors_of(where(given, "ids")):
        contents = read_contents(given, id_column=id_column)
        columns, values = contents.columns, contents.array
        if values is None:
            name = id_name_in(columns, id_column)
            values = contents.index
            if name is not None or values is None or len(columns) == 1:
                values = columns[name or _only(columns, ID, None, "id")]
        return check_unique(as_ids(values))


def read_labels(
    given: Any, id_column: str | None = None, label_column: str | None = None
) -> ExampleValues:
    """Labels, with ids or in row order."""
    if isinstance(given, ExampleValues):
        return given
    with errors_of(where(given, "labels")):
        contents = read_contents(by_id(given, "label"), id_column=id_column)
        columns, values, named = contents.columns, contents.array, None
        id_name = id_name_in(columns, id_column)
        if values is None:
            others = [name for name in columns if name != id_name]
            known = LABEL if any(plain(n) in LABEL for n in others) else CLASS
            given_name = label_column if label_column in others else None
            name = _only(others, known, given_name, "label")
            values, named = columns[name], _names_of_scores(columns)
        ids = ids_in(contents, id_name)
        if not hasattr(values, "null_count") and np.ndim(values) != 1:
            raise PredictionsError(
                f"labels must have shape [N]; got {np.shape(values)}"
            )
        labels = with_missing(values, "labels", DRAWN_FROM in columns)
        if ids is not None and len(ids) != len(labels.numbers):
            raise PredictionsError(
                f"there are {len(ids)} ids and {len(labels.numbers)} labels"
            )
        if named and labels.names is None and not all_numbers(named):
            # Places in the file's own names.
            if labels.numbers.max(initial=0) >= len(named):
                raise PredictionsError(
                    f"labels must be below {len(named)}, the number of class names; "
                    f"got {labels.numbers.max()}"
                )
            labels = ClassValues(labels.numbers, named)
    return ExampleValues(ids, labels, index=id_name is None, others=columns)


def read_slices(
    given: Any,
    id_column: str | None = None,
    without: str = "",
    only: Collection[str] = (),
) -> ExampleValues:
    """Slices, with ids or in row order; every column except the ids is one."""
    # Columns named like predictions are left out, so that a file of predictions with
    # further columns will do.
    if isinstance(given, ExampleValues):
        return given
    if hasattr(given, "to_frame") and getattr(given, "name", None):  # a series
        given = given.to_frame()
    with errors_of(where(given, "slices")):
        contents = read_contents(given, id_column=id_column)
        if contents.array is not None:
            raise PredictionsError("slices must be columns with names")
        columns = contents.columns
        id_name = id_name_in(columns, id_column)
        ids = ids_in(contents, id_name, unique=False)
        predictions = _prediction_columns(columns)
        for name in only:
            if name in predictions:
                raise PredictionsError(
                    f"column {name} is called like predictions, so it cannot group"
                )
            if name not in columns or name == id_name:
                there = some([n for n in columns if n not in {id_name, *predictions}])
                raise PredictionsError(f"there is no column {name!r}, it has {there}")
        slices = {
            name: _as_slices(columns[name], name)
            for name in only or columns
            if name not in {id_name, without, *predictions}
        }
        if not slices and without not in columns:
            raise PredictionsError("there is no column to group by")
        lengths = {len(values) for values in slices.values()}
        lengths |= set() if ids is None else {len(ids)}
        if len(lengths) > 1:
            raise PredictionsError(
                f"columns have different lengths, {some([*lengths])}"
            )
        if ids is not None:
            ids, slices = once(ids, slices)
    left = () if only else tuple(name for name in columns if name in predictions)
    return ExampleValues(ids, None, slices, left, id_name is None)


def id_name_in(names: Collection[str], id_column: str | None) -> str | None:
    """The column of ids: the user's, unless the file only has the usual one."""
    return find_column(names, ID, id_column if id_column in names else None, "id")


def where(given: Any, what: str) -> str:
    """What a message calls it: its path, or what it is."""
    return str(Path(given)) if isinstance(given, str | os.PathLike) else what


def _only(columns: Any, known: tuple[str, ...], given: str | None, what: str) -> str:
    """The column for a purpose, or the only column."""
    found = find_column(columns, known, given, what)
    names = list(columns)
    if found is None and len(names) == 1:
        found = names[0]
    if found is None:
        raise PredictionsError(f"there is no {what} column; it has {some(names)}")
    return found


def ids_in(contents: Contents, id_name: str | None, unique: bool = True) -> Any:
    """The column of ids `[N]`, or else the index, or None."""
    if id_name is None:
        return index_ids(contents.index)
    ids = as_ids(contents.columns[id_name])
    return check_unique(ids) if unique else ids


def once(
    ids: np.ndarray, columns: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """One row of each id, whose rows (several runs) must agree."""
    unique, first, of = np.unique(ids, return_index=True, return_inverse=True)
    if len(unique) == len(ids):
        return ids, dict(columns)
    for name, values in columns.items():
        if len(differ := np.unique(of[values[first][of] != values])):
            raise PredictionsError(
                f"column {name} has several values for one id, for example "
                f"{some(unique[differ])}"
            )
    return unique, {name: values[first] for name, values in columns.items()}


def by_id(given: Any, what: str) -> Any:
    """Two columns, if it maps ids to values and not names to columns."""
    if not isinstance(given, Mapping) or any(np.ndim(v) > 0 for v in given.values()):
        return given
    return {"id": list(given.keys()), what: list(given.values())}


def _names_of_scores(columns: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Names of the classes in a file of predictions."""
    if "class_names" in columns:
        return array_class_names(columns)
    found = score_columns(columns, None)
    return found.class_names if found else None


def _prediction_columns(columns: Mapping[str, Any]) -> set[str]:
    """Columns that are predictions, by their names."""
    known = (*SCORES, *PREDICTION, *CLASS, *RUN, "meta")
    left = {name for name in columns if plain(name) in known}
    for kind in ("logits", "probabilities"):
        scores = score_columns(columns, kind)
        left.update(scores.columns if scores else ())
    return left


def _as_slices(values: Any, name: str) -> np.ndarray:
    """Values of a slice column as `[N]` strings."""
    pc = arrow_compute()
    text = as_text(values, f"column {name}")
    count = pc.count_distinct(text).as_py()
    if count > _MOST_VALUES:
        raise PredictionsError(
            f"column {name} has {count:,} different values; at most {_MOST_VALUES} can "
            "be slices, so leave it out, or bin its values"
        )
    return np.asarray(text.to_numpy(zero_copy_only=False), "U")


def as_text(values: Any, what: str) -> Any:
    """An Arrow array of `[N]` strings, "" where there is no value."""
    import pyarrow as pa

    pc = arrow_compute()
    try:
        if not isinstance(values, pa.ChunkedArray):
            array = as_array(values, what)
            if array.ndim != 1:
                raise PredictionsError(f"{what} must have shape [N]; got {array.shape}")
            values = pa.array(array, from_pandas=True)
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)
            whole = pc.all(pc.equal(pc.floor(values), values)).as_py()
            if whole and pc.max(pc.abs(values)).as_py() < 2**53:
                values = values.cast(pa.int64())
        text = values.cast(pa.string())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, PredictionsError):
            raise
        raise PredictionsError(f"{what} cannot be made text") from error
    return pc.fill_null(text, "")
