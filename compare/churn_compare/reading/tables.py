"""Predictions in a table: a column per class, of lists, or of predicted classes."""

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np

from churn_compare.example_ids import PredictionsError, check_unique, errors_of, some
from churn_compare.pair import Kind
from churn_compare.reading.arrays import RawSide, Scores, as_scores
from churn_compare.reading.class_values import (
    ID,
    LABEL,
    PREDICTION,
    RUN,
    SCORES,
    ColumnNames,
    ScoreColumns,
    as_class_values,
    find_column,
    score_columns,
)
from churn_compare.reading.ids import as_ids

_ROWS = 16_384  # converted at once
_FRACTIONS = (
    "; if they are scores of class 1 of two, say their kind (logits or probabilities)"
)
_WANTED: dict[Kind | None, str] = {
    None: "logit_<class>, prob_<class> or prediction",
    "logits": "logit_<class>",
    "probabilities": "prob_<class>",
    "classes": "prediction",
}


def _special(names: list[str], given: ColumnNames) -> list[str]:
    """Columns that are not scores."""
    found = (
        find_column(names, ID, given.id, "id"),
        find_column(names, LABEL, given.label, "label"),
        find_column(names, PREDICTION, given.prediction, "prediction"),
        find_column(names, RUN, None, "run"),
    )
    return [name for name in found if name is not None]


def _scores_named(
    names: list[str], kind: Kind | None, given: ColumnNames
) -> ScoreColumns | str | None:
    """The columns of scores, one per class, or the one column with all of them."""
    # With a kind and no column of that name, all other columns are the classes, as in a
    # table of scikit-learn's `predict_proba`; if there are no others, or a user names
    # it, the prediction column holds the scores.
    if kind == "classes" or (kind is None and given.prediction is not None):
        return None
    for name in names:
        if SCORES.get(name.strip().lower()) in (
            (kind,) if kind else ("logits", "probabilities")
        ):
            return name
    found = score_columns(names, kind)
    if found is not None or kind is None:
        return found
    prediction = find_column(names, PREDICTION, given.prediction, "prediction")
    if given.prediction is not None:
        return prediction
    if score_columns(names, None) is not None:  # of the other kind
        raise _no_predictions(names, kind)
    special = _special(names, given)
    others = [f"p_{name}" for name in names if name not in special]
    if len(others) < 2:
        return prediction
    by_class = score_columns(others, "probabilities")
    assert by_class is not None
    columns = tuple(name.removeprefix("p_") for name in by_class.columns)
    return ScoreColumns(kind, columns, by_class.class_names)


def _no_predictions(names: list[str], kind: Kind | None) -> PredictionsError:
    return PredictionsError(
        f"there is no column {_WANTED[kind]}, it has {some(names)}; say which is the "
        "prediction column, or the kind if all others are scores "
        "(compare_outcomes compares what is no predicted class)"
    )


def numeric_columns(
    names: list[str], kind: Kind | None, given: ColumnNames
) -> Collection[str]:
    """Which columns of a `.csv` file hold scores."""
    found = _scores_named(names, kind, given)
    if isinstance(found, str):
        return (found,)
    return found.columns if found else ()


def read_columns(
    names: list[str], kind: Kind | None, given: ColumnNames
) -> Collection[str]:
    """Which columns of a file to read at all."""
    return {*_special(names, given), *numeric_columns(names, kind, given)}


def find_in_table(table: Any, kind: Kind | None, names: ColumnNames) -> RawSide:
    """Predictions in the columns of a table."""
    columns = table.column_names
    id_name = find_column(columns, ID, names.id, "id")
    label_name = find_column(columns, LABEL, names.label, "label")
    run_name = find_column(columns, RUN, None, "run")
    if not table.num_rows:
        raise PredictionsError("it has no rows")
    named = _scores_named(columns, kind, names)
    class_names, notes = None, ()
    if isinstance(named, ScoreColumns):
        if score_columns(columns, kind) is None:
            notes = (
                f"{named.kind} of {len(named.columns)} classes are all other columns: "
                f"{some(named.columns)}.",
            )
        scores = Scores(named.kind, _matrix(table, named.columns)[None])
        class_names = named.class_names
    elif named is not None:
        said = SCORES.get(named.strip().lower(), kind)
        what = f"values of column {named}"
        scores = as_scores(_lists(table.column(named), named), said, what)
    else:
        name = find_column(columns, PREDICTION, names.prediction, "prediction")
        if name is None:
            raise _no_predictions(columns, kind)
        values = as_class_values(table.column(name), f"column {name}", _FRACTIONS)
        numbers = values.numbers.astype(np.int32)[None]
        scores = Scores("classes", numbers, values.names)
    found = RawSide(
        scores,
        class_names,
        None if id_name is None else table.column(id_name),
        None if label_name is None else table.column(label_name),
        notes=notes,
    )
    return found if run_name is None else _by_run(found, table.column(run_name))


def _by_run(found: RawSide, column: Any) -> RawSide:
    """Rows of several runs, rearranged to `[R, N]` in the order of the ids."""
    if found.ids is None:
        raise PredictionsError("a table with a run column must have an id column")
    ids = as_ids(found.ids)
    names, run_of = np.unique(as_ids(column), return_inverse=True)
    rows, first = [], ids[:0]
    for run, name in enumerate(names):
        of_run = np.flatnonzero(run_of == run)
        with errors_of(f"run {name}"):
            check_unique(ids[of_run])
        of_run = of_run[np.argsort(ids[of_run], kind="stable")]
        rows.append(of_run)
        first = ids[rows[0]]
        if not np.array_equal(ids[of_run], first):
            lacking = np.setxor1d(ids[of_run], first)
            raise PredictionsError(
                f"runs must have the same ids; {lacking.size} are not both in run "
                f"{names[0]} and in run {name}, for example {some(lacking)}"
            )
    index = np.stack(rows)
    labels = None
    if found.labels is not None:
        numbers, label_names = as_class_values(found.labels, "labels")
        differ = (numbers[index] != numbers[index[0]]).any(axis=0)
        if differ.any():
            raise PredictionsError(
                f"labels of {int(differ.sum())} of {differ.size} examples differ "
                f"between runs, for example ids {some(first[differ])}"
            )
        labels = numbers[index[0]]
        if label_names is not None:
            labels = np.array(label_names)[labels]
    return dataclasses.replace(
        found,
        scores=dataclasses.replace(found.scores, values=found.scores.values[0][index]),
        ids=first,
        labels=labels,
        runs=tuple(names.tolist()) if names.dtype.kind == "i" else None,
    )


def _matrix(table: Any, columns: tuple[str, ...]) -> np.ndarray:
    """Columns as one array `[N, C]` of float32; missing values are NaN."""
    import pyarrow as pa

    for name in columns:
        kind = table.schema.field(name).type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            raise PredictionsError(f"column {name} must hold numbers; it holds {kind}")
    out = np.empty((table.num_rows, len(columns)), np.float32)
    start = 0
    with np.errstate(over="ignore"):  # the pass over the scores reports infinite ones
        for batch in table.select(list(columns)).to_batches(max_chunksize=_ROWS):
            stop = start + batch.num_rows
            for place, column in enumerate(batch.columns):
                out[start:stop, place] = column.to_numpy(zero_copy_only=False)
            start = stop
    return out


def _lists(column: Any, name: str) -> np.ndarray:
    """A column of equally long lists as `[N, C]`, or of numbers as `[N]`."""
    import pyarrow as pa
    from pyarrow import compute

    pc: Any = compute

    kind = column.type
    if not pa.types.is_nested(kind):
        return column.to_numpy()
    element = getattr(kind, "value_type", None)
    if element is None or not (
        pa.types.is_floating(element) or pa.types.is_integer(element)
    ):
        raise PredictionsError(f"column {name} must hold lists of numbers, not {kind}")
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy()
    if lengths.min() != lengths.max():
        values, counts = np.unique(lengths, return_counts=True)
        usual = values[np.argmax(counts)]
        odd = np.flatnonzero(lengths != usual)
        raise PredictionsError(
            f"column {name} has {usual} entries in most rows, but not in {odd.size} of "
            f"{lengths.size}, for example rows {some(odd)} (the first is 0)"
        )
    if lengths[0] < 0:
        raise PredictionsError(f"column {name} is empty")
    half = pa.types.is_float16(element)
    out = np.empty((len(column), int(lengths[0])), np.float16 if half else np.float32)
    start = 0
    with np.errstate(over="ignore"):
        for chunk in column.chunks:
            stop = start + len(chunk)
            out[start:stop] = (
                chunk.flatten()
                .to_numpy(zero_copy_only=False)
                .reshape(len(chunk), out.shape[1])
            )
            start = stop
    return out
