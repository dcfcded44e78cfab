"""Predictions in a table: a column per class, of lists, or of predicted classes."""

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import numpy as np

from churn_compare.example_ids import PredictionsError, some
from churn_compare.pair import Kind
from churn_compare.reading.arrays import (
    SCORES_ALONE,
    RawSide,
    Scores,
    account_of,
    as_scores,
)
from churn_compare.reading.class_values import (
    CLASS,
    LABEL,
    OUTPUT,
    PREDICTION,
    SCORES,
    ColumnNames,
    Roles,
    ScoreColumns,
    arrow_compute,
    as_class_values,
    check_class_numbers,
    find_roles,
    is_truth,
    paired_columns,
    plain,
    score_columns,
    score_of_label,
)
from churn_compare.reading.ids import as_ids, split_runs

_ROWS = 16_384  # converted at once
_FRACTIONS = (
    "; if they are scores of class 1 of two, say their kind (logits or probabilities), "
    "if they are numbers of a regression, call the column value"
)
_WANTED: dict[Kind | None, str] = {
    None: "logit_<class>, prob_<class> or prediction",
    "logits": "logit_<class>",
    "probabilities": "prob_<class>",
    "classes": "prediction",
}
_LISTED = 20  # columns that a message names
_BRACKETS = re.compile(r"[\[\](),;]|(array|tensor|dtype=.*)")
_NEAR = 0.02  # how near to one probabilities sum


def _no_predictions(names: list[str], kind: Kind | None) -> PredictionsError:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    pairs = [" and ".join(pair) for pair in paired_columns(names)]
    if len(pairs) > 1:
        return PredictionsError(
            f"{some(pairs)} are several predictions; --label-column and "
            "--prediction-column name one pair, and the names of all classes of an "
            "example are compared as a list in a column set, with target"
        )
    return PredictionsError(
        f"there is no column {_WANTED[kind]}, it has {', '.join(names[:_LISTED])}{more}"
        "; --prediction-column names the predicted classes (or --kind what all other "
        "columns are, if they are the scores of classes), --score-column a column of "
        "numbers to compare, --id-column the ids"
    )


def _doubtful(roles: Roles, kind: Kind | None) -> bool:
    """True if what looks like scores may be something else, next to a prediction."""
    scores = roles.scores
    if roles.prediction is None or scores is None or kind is not None:
        return False
    return isinstance(scores, str) or not scores.sure or len(scores.columns) == 1


def numeric_columns(
    names: list[str], kind: Kind | None, given: ColumnNames
) -> Collection[str]:
    """Which columns of a `.csv` file hold scores."""
    roles = find_roles(names, kind, given)
    scores = roles.scores
    if isinstance(scores, ScoreColumns) and not _doubtful(roles, kind):
        return scores.columns
    return ()  # a text may be a list


def read_columns(
    names: list[str], kind: Kind | None, given: ColumnNames
) -> Collection[str]:
    """Which columns of a file to read at all."""
    roles = find_roles(names, kind, given)
    beside = score_of_label(names, roles, given) or ()
    if roles.scores is None and roles.prediction is None and not beside:
        raise _no_predictions(names, kind)
    scores = roles.scores
    of_classes = scores.columns if isinstance(scores, ScoreColumns) else (scores,)
    found = (*roles[:4], *of_classes, *beside, *_seeds(names))
    return {name for name in found if name is not None}


def _seeds(names: list[str]) -> list[str]:
    """The column that tells runs apart where ids occur several times."""
    return [name for name in names if plain(name) == "seed"][:1]


def find_in_table(
    table: Any, kind: Kind | None, names: ColumnNames, columns: list[str] | None = None
) -> RawSide:
    """Predictions in a table that was read of a file with these `columns`."""
    columns = columns or table.column_names
    roles = find_roles(columns, kind, names)
    if not table.num_rows:
        raise PredictionsError("it has no rows")
    if roles.run is None and roles.id is not None:
        for seed in _seeds(columns):
            if len(table.column(roles.id).unique()) < table.num_rows:
                roles = roles._replace(run=seed)
    said: dict[str, str] = {}
    table, number_names = _with_names(table, roles)
    if (beside := score_of_label(columns, roles, names)) is not None:
        label, score = beside
        found = _beside_label(table, label, score)
        if found == "unclear":
            raise PredictionsError(
                f"it is not clear what column {score} next to {label} is: --kind "
                f"probabilities --prediction-column {score} takes it for the "
                f"probability of class 1 of two, --prediction-column {label} takes "
                f"{label} for the prediction, --score-column {score} compares "
                "numbers of which more is better"
            )
        if found == "confidence":
            said[score] = "its confidence"
            roles = roles._replace(prediction=label, label=None)
    if isinstance(roles.scores, str):
        table = _parsed_lists(table, roles.scores, not _doubtful(roles, kind))
    table, roles = _without_doubtful(table, roles, kind, said)
    named, class_names, notes = roles.scores, None, ()
    if isinstance(named, ScoreColumns):
        check_class_numbers(named)
        if score_columns(columns, kind) is None:
            notes = (
                f"{named.kind} of {len(named.columns)} classes are all other columns: "
                f"{some(named.columns)}.",
            )
        scores = Scores(named.kind, _matrix(table, named.columns)[None])
        class_names = named.class_names
    elif named is not None:
        kind_said = SCORES.get(plain(named), kind)
        what = f"values of column {named}"
        scores = as_scores(_lists(table.column(named), named), kind_said, what)
    elif roles.prediction is None:
        raise _no_predictions(columns, kind)
    else:
        scores = _predicted(table.column(roles.prediction), roles.prediction)
    decisions = None
    if named is not None and roles.prediction is not None:
        what = f"values of column {roles.prediction}"
        column = table.column(roles.prediction)
        decisions = as_class_values(column, what, SCORES_ALONE)
    found = RawSide(
        scores,
        class_names,
        None if roles.id is None else table.column(roles.id),
        None if roles.label is None else table.column(roles.label),
        notes=notes,
        decisions=decisions,
        number_names=number_names,
        account=account_of(roles, columns, scores, said=said),
    )
    return found if roles.run is None else _by_run(found, table.column(roles.run))


def _with_names(table: Any, roles: Roles) -> tuple[Any, tuple[str, ...] | None]:
    """The table, and the names of class numbers as Hugging Face records them."""
    import pyarrow as pa

    pc = arrow_compute()
    try:
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        named = {
            name: tuple(features[name]["names"])
            for name in (roles.label, roles.prediction)
            if name in features and features[name].get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return table, None
    columns = [name for name in (roles.label, roles.prediction) if name is not None]
    texts = [n for n in columns if not pa.types.is_integer(table.schema.field(n).type)]
    if len({*named.values()}) == 1 and not texts:
        return table, next(iter(named.values()))
    for name in named.keys() - {*texts}:
        numbers = table.column(name).combine_chunks()
        known = pc.if_else(pc.less(numbers, 0), None, numbers)
        column = pa.array(named[name]).take(known)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table, None


def _predicted(column: Any, name: str) -> Scores:
    """Predicted classes, or the lists of scores that a column of predictions holds."""
    import pyarrow as pa

    what = f"values of column {name}"
    if pa.types.is_nested(column.type):
        return as_scores(_lists(column, name), None, what)
    values = as_class_values(column, what, _FRACTIONS)
    return Scores("classes", values.numbers.astype(np.int32)[None], values.names)


def _without_doubtful(
    table: Any, roles: Roles, kind: Kind | None, said: dict[str, str]
) -> tuple[Any, Roles]:
    """Leaves out, next to a prediction, what is not the scores of all classes."""
    import pyarrow as pa

    scores = roles.scores
    why = ""
    if isinstance(scores, ScoreColumns) and not scores.sure:
        parsed = _parsed(table, scores.columns)
        if parsed is not None and _are_probabilities(parsed, scores, roles):
            return parsed, roles
        why = "not probabilities of the classes"
        if roles.prediction is None:
            raise PredictionsError(
                f"columns {some(scores.columns)} are {why}: their rows do not sum to "
                "one and their names are not labels; --prediction-column names the "
                "predicted classes, --kind what the columns are"
            )
    elif _doubtful(roles, kind):
        one = isinstance(scores, ScoreColumns)
        if one or not pa.types.is_nested(table.column(scores).type):
            why = "scores of one class" if one else "one number per example"
        elif _dense(table.column(scores)) is None:
            why = "sparse vectors"
    if not why:
        return table, roles
    names = scores.columns if isinstance(scores, ScoreColumns) else (str(scores),)
    said |= dict.fromkeys(names, why)
    return table, roles._replace(scores=None)


def _parsed(table: Any, columns: Sequence[str]) -> Any:
    """The table with these columns as numbers; None if they are none."""
    import pyarrow as pa

    for name in columns:
        place = table.schema.get_field_index(name)
        kind = table.schema.field(place).type
        if pa.types.is_string(kind):
            try:
                numbers = table.column(place).cast(pa.float64())
            except pa.ArrowInvalid:
                return None
            table = table.set_column(place, name, numbers)
        elif not _is_number(kind):
            return None
    return table


def _are_probabilities(table: Any, scores: ScoreColumns, roles: Roles) -> bool:
    """True if columns p_<x> are of the classes: by their names, or by their sum."""
    named = roles.prediction or roles.label
    if named is not None:
        found = set(map(str, table.column(named).unique().to_pylist()))
        if found <= set(scores.class_names or ()):
            return True
    values = _matrix(table.slice(0, _ROWS), scores.columns)
    whole = np.abs(values.sum(axis=1) - 1) <= _NEAR
    return roles.prediction is None and bool(np.mean(whole) >= 0.5)


def of_classifier(
    names: list[str], scored: bool, read: Callable[[list[str]], Any]
) -> bool:
    """True if a table with columns of outcomes is about predicted classes."""
    known = set(map(plain, names))
    if known & ({*PREDICTION, *SCORES} - {*OUTPUT}):
        return True
    scores = score_columns(names, None)
    if scores is not None and scores.sure:
        return True
    labels = [name for name in names if plain(name) in (*LABEL, *CLASS)][:1]
    if scores is not None:
        label = labels[0] if labels else None
        roles = Roles(None, label, None, None, scores)
        parsed = _parsed(read([*labels, *scores.columns]), scores.columns)
        if parsed is not None and _are_probabilities(parsed, scores, roles):
            return True
    if not (scored and labels):
        return False
    score = next(name for name in names if plain(name) == "score")
    return _beside_label(read([*labels, score]), labels[0], score) != "number"


def _beside_label(
    table: Any, label: str, score: str
) -> Literal["confidence", "unclear", "number"]:
    """What a score next to a label is: of a prediction, of outcomes, or not clear."""
    # Pipelines of Hugging Face write the predicted class as `label`. A truth of two
    # classes and a number from 0 to 1 may be a classifier's probability.
    parsed = _parsed(table, (score,))
    if parsed is None:
        return "number"
    values = parsed.column(score).to_numpy()
    try:
        found, names = as_class_values(table.column(label), f"column {label}")
    except PredictionsError:
        return "number"
    if plain(label) in ("label", "labels", *CLASS):
        named = names is not None and not is_truth(names)
        clear = named and bool(np.all((values > 0) & (values <= 1)))
        return "confidence" if clear else "unclear"
    shares = np.all((values >= 0) & (values <= 1)) and len(np.unique(values)) > 2
    two = len(np.unique(found)) <= 2 and (names is None or is_truth(names))
    return "unclear" if two and shares else "number"


def _by_run(found: RawSide, column: Any) -> RawSide:
    """Rows of several runs, rearranged to `[R, N]` in the order of the ids."""
    if found.ids is None:
        raise PredictionsError("a table with a run column must have an id column")
    runs = split_runs(as_ids(found.ids), column)
    if len(runs.names) != len(runs.rows):
        raise PredictionsError(f"runs {some(runs.names)} must have the same ids")
    labels, decisions = None, found.decisions
    if decisions is not None:
        decisions = decisions._replace(numbers=decisions.numbers[runs.rows])
    if found.labels is not None:
        numbers, label_names = as_class_values(found.labels, "labels")
        runs.check_same(numbers, "labels")
        labels = numbers[runs.rows[0]]
        if label_names is not None:
            labels = np.array(label_names)[labels]
    values = found.scores.values[0][runs.rows]
    return dataclasses.replace(
        found,
        scores=dataclasses.replace(found.scores, values=values),
        ids=runs.ids,
        labels=labels,
        decisions=decisions,
        runs=tuple(runs.names.tolist()) if runs.names.dtype.kind == "i" else None,
    )


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _matrix(table: Any, columns: tuple[str, ...]) -> np.ndarray:
    """Columns as one array `[N, C]` in their own precision; missing values are NaN."""
    for name in columns:
        kind = table.schema.field(name).type
        if not _is_number(kind):
            raise PredictionsError(f"column {name} must hold numbers; it holds {kind}")
    kinds = {table.schema.field(name).type.to_pandas_dtype() for name in columns}
    dtype = np.result_type(np.float32, *kinds)
    out = np.empty((table.num_rows, len(columns)), dtype)
    start = 0
    for batch in table.select(list(columns)).to_batches(max_chunksize=_ROWS):
        stop = start + batch.num_rows
        for place, column in enumerate(batch.columns):
            out[start:stop, place] = column.to_numpy(zero_copy_only=False)
        start = stop
    return out


def _dense(column: Any) -> Any:
    """Lists, also those in dense vectors of Spark; None for other structs."""
    import pyarrow as pa

    pc = arrow_compute()
    if not pa.types.is_struct(column.type):
        return column
    fields = [column.type.field(i).name for i in range(column.type.num_fields)]
    if not {"type", "values"} <= set(fields):
        return None
    dense = pc.all(pc.equal(pc.struct_field(column, "type"), 1)).as_py()
    return pc.struct_field(column, "values") if dense else None


def _parsed_lists(table: Any, name: str, sure: bool) -> Any:
    """The table with texts of numbers, or of lists of them in brackets, as such."""
    import pyarrow as pa

    column = table.column(name)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return table
    lists = "[" in (column[0].as_py() or "")
    try:
        if lists:
            rows = [_BRACKETS.sub(" ", of or "").split() for of in column.to_pylist()]
            column = pa.array([[*map(float, row)] for row in rows])
        elif sure:
            column = column.cast(pa.float64())
    except ValueError:
        raise PredictionsError(
            f"column {name} must hold numbers or lists of them, as [0.1, 0.9]"
        ) from None
    return table.set_column(table.schema.get_field_index(name), name, column)


def _lists(column: Any, name: str) -> np.ndarray:
    """A column of equally long lists as `[N, C]`, or of numbers as `[N]`."""
    import pyarrow as pa

    pc = arrow_compute()
    column = _dense(column)
    if column is None:
        raise PredictionsError(
            f"column {name} holds structs, not dense vectors; write lists of "
            "numbers (vector_to_array in Spark), or --kind classes"
        )
    kind = column.type
    if not pa.types.is_nested(kind):
        return column.to_numpy()
    element = getattr(kind, "value_type", None)
    if element is None or not _is_number(element):
        raise PredictionsError(
            f"column {name} must hold lists of numbers, not {kind}; lists of names are "
            "compared in a column set, with target"
        )
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
    least = np.float16 if pa.types.is_float16(element) else np.float32
    dtype = np.result_type(least, element.to_pandas_dtype())
    values = [of.flatten().to_numpy(zero_copy_only=False) for of in column.chunks]
    return np.concatenate(values, dtype=dtype).reshape(len(column), lengths[0])
