"""One version's predictions, from a file or an object of any framework."""

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from churn_compare.array_files import NpzArrays
from churn_compare.example_ids import PredictionsError, check_unique, errors_of, some
from churn_compare.pair import Kind, Side
from churn_compare.reading.account import Doubt
from churn_compare.reading.arrays import (
    KINDS,
    SCORES_ALONE,
    RawSide,
    as_scores,
    find_in_arrays,
    has_arrays,
)
from churn_compare.reading.class_values import (
    ClassValues,
    ColumnNames,
    all_numbers,
    as_number,
    is_truth,
    with_missing,
)
from churn_compare.reading.contents import as_table, read_contents
from churn_compare.reading.ids import as_ids, index_ids
from churn_compare.reading.labels import read_ids
from churn_compare.reading.spelling import twice
from churn_compare.reading.tables import find_in_table, numeric_columns, read_columns
from churn_compare.store import StoredLogits


def read_side(
    given: Any,
    name: str | None = None,
    ids: Any = None,
    kind: Kind | None = None,
    *,
    id_column: str | None = None,
    label_column: str | None = None,
    prediction_column: str | None = None,
) -> Side:
    """Reads one version's predictions.

    A `.npz` file or a mapping has arrays, a table (`.csv`, `.parquet`, `.jsonl`, a data
    frame) has columns; their names say what they are, see the page "File formats".

    Args:
        given: a path, an array, a mapping, a frame, an Arrow table or `Predictions`.
        name: what to call the version; a path is called by its file name.
        ids: `[N]`, or a file of them, for predictions that hold none.
        kind: "logits", "probabilities" or "classes", where several are there.
        id_column: name of the column or array of ids, if it is not a usual one.
        label_column: the same for the labels.
        prediction_column: the same for the predicted classes.

    Raises:
        PredictionsError: it cannot be read, or is not consistent.

    Example:
        >>> side = read_side({"predictions": ["cat", "dog"], "ids": [7, 8]}, "v1")
        >>> side.kind, side.class_names, side.values, side.ids
        ('classes', ('cat', 'dog'), array([[0, 1]], dtype=int32), array([7, 8]))
    """
    file = Path(given) if isinstance(given, str | os.PathLike) else None
    name = name or (file.name if file else "predictions")
    if kind is not None and kind not in KINDS:
        raise PredictionsError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    names = ColumnNames(id_column, label_column, prediction_column)
    with errors_of(file or name):
        columns: list[str] = []  # of a file of which not all are read

        def wanted(found: list[str]) -> Collection[str]:
            columns.extend(found)
            return read_columns(found, kind, names)

        contents = read_contents(
            given,
            lambda columns: numeric_columns(columns, kind, names),
            wanted,
            id_column,
        )
        if contents.array is not None:
            found = RawSide(as_scores(contents.array, kind, "scores"))
        elif contents.arrays is None:
            found = find_in_table(contents.table, kind, names, columns)
        elif has_arrays(contents.arrays, kind, names):
            found = find_in_arrays(contents.arrays, kind, names)
        else:
            kept = wanted(list(contents.arrays))
            table = as_table({n: contents.arrays[n] for n in columns if n in kept})
            found = find_in_table(table, kind, names, columns)
        side = _side(found, name)
        if isinstance(contents.arrays, NpzArrays) and contents.arrays.checks:
            check = errors_of(file or name)(contents.arrays.check)
            if side.kind == "classes":
                check()
            else:
                values = cast(np.ndarray, StoredLogits([side.values], check=check))
                side = dataclasses.replace(side, values=values)
        if side.ids is None and ids is not None:
            given_ids = read_ids(ids, id_column)
            _check_length("the separate ids", len(given_ids), side.examples)
            side = dataclasses.replace(side, ids=given_ids)
        elif side.ids is None:
            index = index_ids(contents.index)
            side = dataclasses.replace(side, ids=index, index=index is not None)
    notes = [f"{name}: {note}" for note in side.notes]
    account = side.account
    if account is None:
        return dataclasses.replace(side, notes=(*contents.notes, *notes))
    names_left = account.columns

    def others() -> Mapping[str, Any]:
        found = read_contents(given, wanted=set(names_left).intersection).columns
        return {name: found[name] for name in names_left if name in found}

    return dataclasses.replace(
        side,
        notes=(*contents.notes, *notes),
        account=account._replace(read=(*account.read, *contents.read)),
        others=others if names_left else dict,
    )


def side_names(old: Any, new: Any) -> tuple[str, str]:
    """Names of two versions: their files, with folders if names are equal."""
    parts = [
        Path(given).parts if isinstance(given, str | os.PathLike) else (other,)
        for given, other in ((old, "old"), (new, "new"))
    ]
    names = ["", ""]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(p[-count:]).replace("//", "/") for p in parts]
        if names[0] != names[1]:
            return names[0], names[1]
    return f"{names[0]} (old)", f"{names[1]} (new)"


def same_file(old: Any, new: Any) -> list[Doubt]:
    """A doubt if two versions are read from one file."""
    paths = isinstance(old, str | os.PathLike) and isinstance(new, str | os.PathLike)
    if not (paths and os.path.samefile(old, new)):
        return []
    said = (
        "old and new are the same file, so nothing can differ; write one file for each "
        "version, with its prediction in a column called prediction"
    )
    return [Doubt("same-file", said)]


def _side(found: RawSide, name: str) -> Side:
    values, examples = found.scores.values, found.scores.values.shape[1]
    class_names = found.scores.class_names or found.class_names
    if class_names is not None and found.scores.kind != "classes":
        class_names = _checked_names(class_names, values.shape[2])
    ids = None if found.ids is None else as_ids(found.ids)
    if ids is not None:
        _check_length("ids", len(ids), examples)
        check_unique(ids)
    labels = label_names = None
    if found.labels is not None:
        labels, label_names = with_missing(found.labels, "labels")
        if labels.ndim != 1:
            raise PredictionsError(f"labels must have shape [N]; got {labels.shape}")
        _check_length("labels", len(labels), examples)
        own = found.scores.class_names  # in no order that numbers could mean
        named = own and not is_truth(own) and not all_numbers(own)
        if named and not label_names:
            raise PredictionsError(
                f"predicted classes are names ({some(own)}), but labels are numbers; "
                "write the labels as names"
            )
    decisions = None
    if found.decisions is not None:
        decisions = _decisions(found.decisions, class_names, values)
    return Side(
        name=name,
        kind=found.scores.kind,
        values=values,
        class_names=class_names,
        ids=ids,
        labels=labels,
        label_names=label_names,
        runs=found.runs or tuple(range(len(values))),
        notes=(*found.scores.notes, *found.notes),
        account=found.account,
        decisions=decisions,
        number_names=found.number_names,
    )


def _decisions(
    found: ClassValues, names: tuple[str, ...] | None, values: np.ndarray
) -> np.ndarray:
    """Decided classes as numbers of the classes that have scores, `[R, N]`."""
    numbers = found.numbers.reshape(-1, found.numbers.shape[-1])
    if numbers.shape != values.shape[:2]:
        raise PredictionsError(
            f"decisions have shape {found.numbers.shape} and scores [R, N, C] "
            f"{values.shape}{SCORES_ALONE}; an array of the names of the classes is "
            "called class_names"
        )
    own = names or tuple(map(str, range(values.shape[2])))
    texts, places = found.names, numbers
    if texts is None or (is_truth(texts) and not is_truth(own)):
        distinct, places = np.unique(numbers, return_inverse=True)
        named = bool(names) and all_numbers(own)
        texts = [str(n) if named or n >= len(own) else own[n] for n in distinct]
    elif is_truth(texts):
        texts = own
    place_of = {name: place for place, name in enumerate(own)}
    table = np.array([place_of.get(text, -1) for text in texts], np.int32)
    decided = table[places].reshape(numbers.shape)
    if (unknown := decided < 0).any():
        lost = [text for text in texts if text not in place_of]
        raise PredictionsError(
            f"the decisions of {int(unknown.any(axis=0).sum())} of {numbers.shape[1]} "
            f"examples are of no class that has scores, for example {some(lost)}; "
            f"classes are {some(own)}{SCORES_ALONE}, --kind classes the decisions alone"
        )
    return decided


def _checked_names(names: tuple[str, ...], classes: int) -> tuple[str, ...] | None:
    """Class names; None if they are only the class numbers."""
    if len(names) != classes:
        raise PredictionsError(
            f"class_names must name {classes} classes; there are {len(names)} names"
        )
    if again := twice(names):
        raise PredictionsError(
            f"class names must differ; {some(again)} occur more than once"
        )
    if "" in names:
        raise PredictionsError("a class has an empty name")
    if [as_number(n) for n in names] == list(range(classes)):
        return None
    return names


def _check_length(what: str, length: int, examples: int) -> None:
    if length != examples:
        raise PredictionsError(
            f"{what} are of {length} examples, the predictions of {examples}"
        )
