"""Which examples belong together: values of a column, or as they are given."""

import os
from typing import Any, NamedTuple

import numpy as np

from churn_compare.example_ids import PredictionsError, errors_of, some
from churn_compare.pair import Side
from churn_compare.reading.contents import read_contents
from churn_compare.reading.labels import (
    as_text,
    by_id,
    id_name_in,
    ids_in,
    once,
    read_slices,
    where,
)

NO_CLUSTER = -1


class ClusterValues(NamedTuple):
    """Clusters from a file or as they are given."""

    ids: np.ndarray | None  # `[N]`, or None where values are in row order
    numbers: np.ndarray  # `[N]` from 0; -1 for an example without a value
    column: str = ""  # where they are from
    index: bool = False  # whether the ids are only the index of a data frame


def read_clusters(
    given: Any, sources: tuple[Any, ...] = (), id_column: str | None = None
) -> ClusterValues:
    """Clusters from a column of `sources`, if `given` is a name; else its values."""
    if isinstance(given, ClusterValues):
        return given
    if isinstance(given, str):
        return _of_column(given, sources, id_column)
    with errors_of(where(given, "clusters")):
        contents = read_contents(by_id(given, "cluster"), id_column=id_column)
        if contents.array is not None:
            numbers = numbers_of(contents.array, "clusters")
            return ClusterValues(ids_in(contents, None), numbers, index=True)
        names = list(contents.columns)
        others = [n for n in names if n != id_name_in(names, id_column)]
        if len(others) != 1:
            raise PredictionsError(
                f"clusters must be one column; it has {some(others) or 'none'}"
            )
        return _from(contents, others[0], id_column)


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


def without_clusters(slices: Any, clusters: ClusterValues, id_column: str | None):
    """The slices less the column that says which examples belong together."""
    if slices is None or not clusters.column:
        return slices
    return read_slices(slices, id_column, without=clusters.column)


def _of_column(column: str, sources: tuple[Any, ...], id_column: str | None):
    """The column of the first source that has it."""
    seen: list[str] = []
    for given in sources:
        if given is None or isinstance(given, Side) or isinstance(given, np.ndarray):
            continue
        with errors_of(where(given, "the predictions")):

            def wanted(names: list[str]) -> list[str]:
                name = id_name_in(names, id_column)
                kept = [n for n in names if n in (column, name)]
                return kept or names[:1]

            contents = read_contents(given, wanted=wanted, id_column=id_column)
            if contents.array is not None:
                continue
            if column in contents.columns:
                return _from(contents, column, id_column)
            if isinstance(given, str | os.PathLike):
                seen.append(str(given))
    there = some(seen) if seen else "the predictions and the slices"
    raise PredictionsError(f"there is no column {column!r} of clusters in {there}")


def _from(contents: Any, column: str, id_column: str | None) -> ClusterValues:
    columns = contents.columns
    numbers = numbers_of(columns[column], f"column {column}")
    id_name = id_name_in(columns, id_column)
    ids = ids_in(contents, id_name, unique=False)
    if ids is None:
        return ClusterValues(None, numbers, column)
    if len(ids) != len(numbers):
        raise PredictionsError(f"there are {len(ids)} ids and {len(numbers)} clusters")
    ids, kept = once(ids, {column: numbers})
    return ClusterValues(ids, kept[column], column, id_name is None)


def numbers_of(values: Any, what: str) -> np.ndarray:
    """A number for each different value, -1 for none."""
    import pyarrow as pa

    text = pa.chunked_array([as_text(values, what)])
    coded = text.combine_chunks().dictionary_encode()
    numbers = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names = coded.dictionary.to_pylist()
    if "" in names:
        numbers[numbers == names.index("")] = NO_CLUSTER
    return numbers
