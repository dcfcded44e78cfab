"""Ids, labels and slices in files of their own."""

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from churn_compare.example_ids import (
    PredictionsError,
    as_ids,
    check_lengths,
    check_unique,
    errors_of,
    repeated,
    some,
    value_texts,
)
from churn_compare.reading import arrow
from churn_compare.reading.account import Account, account_lines
from churn_compare.reading.class_values import ClassValues, all_numbers, as_class_values
from churn_compare.reading.columns import (
    CLASS,
    ID,
    LABEL,
    OPTIONS,
    PREDICTION,
    RUN,
    SCORES,
    find_column,
    plain,
    score_columns,
)
from churn_compare.reading.contents import as_array, check_same_lengths, read_contents
from churn_compare.reading.scores import array_class_names

NO_CLUSTER = -1
DRAWN_FROM = "drawn_from"  # a column of queues of examples to label
_MOST_VALUES = 200  # of a grouping


class ExampleValues(NamedTuple):
    """Labels, slices or clusters from a file of their own."""

    ids: np.ndarray | None  # `[N]`, or None where values are in row order
    labels: ClassValues | None = None  # class of every example, or None
    slices: Mapping[str, np.ndarray] = {}  # name of a grouping to `[N]` strings
    clusters: np.ndarray | None = None  # `[N]` from 0; -1 for an example without one
    column: str = ""  # of the clusters
    left_out: tuple[str, ...] = ()  # columns that are called like predictions
    others: Mapping[str, Any] = {}  # the columns of the file of labels
    read: tuple[str, ...] = ()  # a line on what was read of it

    @property
    def size(self) -> int:
        """N."""
        of = self.clusters if self.labels is None else self.labels.numbers
        return len(next(iter(self.slices.values()), ()) if of is None else of)


class _Given:
    """The ids and the columns of a file or an object about examples."""

    def __init__(self, given: Any, id_column: str | None):
        found = read_contents(given, id_column)
        self.array, self.columns = found.array, found.columns
        # The user's column of ids, unless the file only has the usual one.
        own = id_column if id_column in self.columns else None
        id_name = find_column(self.columns, ID, own, "id")
        self.others = [name for name in self.columns if name != id_name]
        if id_name is None and found.index:
            raise PredictionsError(found.index)
        self.ids = None if id_name is None else as_ids(self.columns[id_name])

    def check_lengths(self, columns: Mapping[str, Any]) -> None:
        """Refuses columns and ids of different lengths."""
        with_ids = columns if self.ids is None else {**columns, "ids": self.ids}
        check_same_lengths({name: len(values) for name, values in with_ids.items()})

    def only(self, known: tuple[str, ...], named: str | None, what: str) -> str:
        """Name of the column for a purpose; for ids also the only column."""
        found = find_column(self.others, known, named, what)
        if found is None and (what == "label" or len(self.others) != 1):
            there = some(self.others) or "none"
            raise PredictionsError(
                f"there is no {what} column; it has {there}; {OPTIONS[what]} names it"
            )
        return found or self.others[0]

    def by_example(
        self, names: Collection[str], read: Callable
    ) -> tuple[ExampleValues, dict[str, np.ndarray]]:
        """Columns with one row of each id, whose rows (several runs) must agree."""
        ids = self.ids
        columns = {name: read(self.columns[name], f"column {name}") for name in names}
        self.check_lengths(columns)
        if ids is not None and repeated(ids).size:
            unique, first, of = np.unique(ids, return_index=True, return_inverse=True)
            for name, values in columns.items():
                if len(differ := np.unique(of[values[first][of] != values])):
                    raise PredictionsError(
                        f"column {name} has several values for one id, for example "
                        f"{some(unique[differ])}"
                    )
            ids, columns = unique, {n: of[first] for n, of in columns.items()}
        return ExampleValues(ids), columns

    def clusters(self, name: str) -> ExampleValues:
        """The clusters in a column."""
        values, numbers = self.by_example([name], cluster_numbers)
        return values._replace(clusters=numbers[name], column=name)


def read_ids(given: Any, id_column: str | None = None) -> np.ndarray:
    """Ids of examples."""
    with errors_of(_where(given, "ids")):
        found = _Given(given, id_column)
        ids = found.ids
        if found.array is not None:
            ids = as_ids(found.array)
        elif ids is None:
            ids = as_ids(found.columns[found.only(ID, None, "id")])
        return check_unique(ids)


def read_labels(
    given: Any, id_column: str | None = None, label_column: str | None = None
) -> ExampleValues:
    """Labels, with ids or in row order."""
    if isinstance(given, ExampleValues):
        return given
    with errors_of(_where(given, "labels")):
        found = _Given(_by_id(given, "label"), id_column)
        columns, values, named = found.columns, found.array, None
        read: tuple[str, ...] = ()
        if values is None:
            known = LABEL if any(plain(n) in LABEL for n in found.others) else CLASS
            name = found.only(known, label_column, "label")
            values, left = columns[name], tuple(n for n in found.others if n != name)
            usual = plain(name) in ("label", "labels")
            of = "label" if usual else f"label (column {name})"
            account = Account((*["id"] * (found.ids is not None), of), left)
            if DRAWN_FROM not in columns:
                read = account_lines([(_where(given, "labels"), account)])
            named = array_class_names(columns)
            if named is None and (scores := score_columns(columns, None)):
                named = scores.class_names
        elif label_column is not None:
            raise PredictionsError(
                f"they have no names, so there is no column {label_column!r}; leave it "
                "out, or give a file or a mapping with this column"
            )
        if found.ids is not None:
            check_unique(found.ids)
        lacking = "all" if DRAWN_FROM in columns else "some"
        labels = as_class_values(values, "labels", lacking=lacking)
        found.check_lengths({"labels": labels.numbers})
        if named and labels.names is None and not all_numbers(named):
            # Places in the file's own names.
            if labels.numbers.max(initial=0) >= len(named):
                raise PredictionsError(
                    f"labels must be below {len(named)}, the number of class names; "
                    f"got {labels.numbers.max()}"
                )
            labels = ClassValues(labels.numbers, named)
    return ExampleValues(found.ids, labels, others=columns, read=read)


def read_slices(
    given: Any, id_column: str | None = None, without: str = ""
) -> ExampleValues:
    """Slices, with ids or in row order; every column except the ids is one."""
    # Columns named like predictions are left out, so that a file of predictions with
    # further columns will do.
    if isinstance(given, ExampleValues):
        return given
    if hasattr(given, "to_frame") and getattr(given, "name", None):  # a series
        given = given.to_frame()
    with errors_of(_where(given, "slices")):
        found = _Given(given, id_column)
        if found.array is not None:
            raise PredictionsError("slices must be columns with names")
        columns, known = found.columns, (*SCORES, *PREDICTION, *CLASS, *RUN, "meta")
        predictions = {name for name in columns if plain(name) in known}
        for kind in ("logits", "probabilities"):
            scores = score_columns(columns, kind)
            predictions.update(scores.columns if scores else ())
        groupings = [name for name in found.others if name not in predictions]
        chosen = [name for name in groupings if name != without]
        if not chosen and without not in columns:
            raise PredictionsError("there is no column to group by")
        left = tuple(name for name in columns if name in predictions)
        values, slices = found.by_example(chosen, as_slices)
        return values._replace(slices=slices, left_out=left)


def read_clusters(
    given: Any, slices: Any = None, id_column: str | None = None
) -> ExampleValues:
    """Clusters from a column of the slices, if `given` is its name; else its values."""
    if isinstance(given, ExampleValues):
        return given
    if isinstance(given, str):
        with errors_of(_where(slices, "slices")):
            return _Given(slices, id_column).clusters(given)
    with errors_of(_where(given, "clusters")):
        found = _Given(_by_id(given, "cluster"), id_column)
        if found.array is not None:
            numbers = cluster_numbers(found.array, "clusters")
            return ExampleValues(found.ids, clusters=numbers)
        if len(found.others) != 1:
            there = some(found.others) or "none"
            raise PredictionsError(f"clusters must be one column; it has {there}")
        return found.clusters(found.others[0])


def cluster_numbers(values: Any, what: str) -> np.ndarray:
    """A number for each different value, -1 for none."""
    coded = arrow.one(as_names(values, what)).dictionary_encode()
    numbers = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names = coded.dictionary.to_pylist()
    if "" in names:
        numbers[numbers == names.index("")] = NO_CLUSTER
    return numbers


def from_zero(numbers: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Clusters without gaps in their numbers, and a note about examples of none."""
    numbers, notes = numbers.copy(), ()
    alone = np.flatnonzero(numbers == NO_CLUSTER)
    if len(alone):
        notes = (
            f"{len(alone):,} of {len(numbers):,} examples have no cluster: each is one "
            "of its own.",
        )
    numbers[alone] = numbers.max(initial=NO_CLUSTER) + 1 + np.arange(len(alone))
    names, numbers = np.unique(numbers, return_inverse=True)
    if len(names) < 2:
        raise PredictionsError(
            "all examples are in one cluster; an interval needs several clusters"
        )
    return numbers, notes


def _where(given: Any, what: str) -> str:
    """The name of `given` in messages: its path, else `what`."""
    return str(Path(given)) if isinstance(given, str | os.PathLike) else what


def _by_id(given: Any, what: str) -> Any:
    """A mapping of ids to values as two columns; all else unchanged."""
    if not isinstance(given, Mapping) or any(np.ndim(v) > 0 for v in given.values()):
        return given
    return {"id": list(given.keys()), what: list(given.values())}


def as_slices(values: Any, what: str) -> np.ndarray:
    """Values of a slice column as `[N]` strings."""
    text = as_names(values, what)
    count = arrow.count_distinct(text).as_py()
    if count > _MOST_VALUES:
        raise PredictionsError(
            f"{what} has {count:,} different values; at most {_MOST_VALUES} can be "
            "slices: if they are the ids, call it id, else leave it out or bin them"
        )
    return np.asarray(text.to_numpy(zero_copy_only=False), "U")


def as_names(values: Any, what: str) -> Any:
    """`as_text` in one spelling, and refused if a text is too long for a name."""
    kind = str(getattr(values, "type", getattr(values, "dtype", "")))
    names = as_text(values, what)
    names = names if kind.startswith(("int", "uint")) else value_texts(names)
    check_lengths(names, what)
    return names


def as_text(values: Any, what: str) -> Any:
    """An Arrow array of `[N]` strings, "" where there is no value."""
    try:
        if not hasattr(values, "null_count"):
            array = as_array(values, what)
            if array.ndim != 1:
                raise PredictionsError(f"{what} must have shape [N]; got {array.shape}")
            values = arrow.array(array, from_pandas=True)
        if arrow.types.is_floating(values.type):
            values = arrow.if_else(arrow.is_nan(values), None, values)
            whole = arrow.equal(arrow.floor(values), values)
            whole = arrow.and_(whole, arrow.less(arrow.abs(values), 2.0**53))
            numbers = arrow.if_else(whole, values, 0.0).cast(arrow.int64())
            texts = numbers.cast(arrow.string()), values.cast(arrow.string())
            text = arrow.if_else(whole, *texts)
        else:
            text = values.cast(arrow.string())
    except PredictionsError:
        raise
    except (arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise PredictionsError(f"{what} cannot be made text") from error
    return arrow.fill_null(text, "")
