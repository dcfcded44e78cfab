"""Outcomes of one version: columns of a table, of an evaluation's log, of arrays."""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.example_ids import (
    PredictionsError,
    Runs,
    as_ids,
    errors_of,
    names_of,
    repeated,
    some,
    split_runs,
)
from churn_compare.measures import Kind, less_is_better
from churn_compare.pair import Table
from churn_compare.reading import arrow
from churn_compare.reading.account import Account
from churn_compare.reading.columns import ID, INPUT, LABEL, RUNS, find_column, plain
from churn_compare.reading.contents import (
    Contents,
    as_table,
    column_names,
    read_contents,
)
from churn_compare.reading.labels import cluster_numbers
from churn_compare.reading.logs import ERROR, KEY, Log, read_log, reader_of
from churn_compare.reading.sides import of_classifier

COLUMNS: Mapping[str, Kind] = {
    **{"correct": "correct", "is_correct": "correct", "passed": "correct"},
    **{"score": "score", "answer": "answer", "value": "value"},
    **{"set": "set", "ranking": "ranking"},
}
"""Columns that are outcomes, by their names."""
_ALONE = ("success", "resolved", "solved", "pass", "status")  # if there is no other

# Columns that an example has one value of, whatever the run.
_OF_EXAMPLES = "task subtask dataset subset subject benchmark config".split()
# What Inspect's `value_to_float` makes of texts.
_GRADES = {"C": 1.0, "P": 0.5, "N": 0.0, "I": 0.0}
_GRADES |= dict.fromkeys("yes Yes YES true True TRUE".split(), 1.0)
_GRADES |= dict.fromkeys("no No NO false False FALSE".split(), 0.0)
_MOST_GRADES = 12  # most distinct texts of a score that may be grades
_TRUE = "true yes pass passed success resolved correct c 1 1.0".split()
_FALSE = "false no fail failed failure unresolved incorrect i 0 0.0".split()
_LARGEST = 1e100  # sums of squares of larger numbers are infinite
ITEM = "\x1f"  # before every item of a list, as text


def outcome_columns(names: Sequence[str]) -> list[str]:
    """The columns whose names are those of outcomes."""
    lower = {name.strip().lower(): name for name in names}
    found = [name for of, name in lower.items() if of in COLUMNS]
    return found or [lower[name] for name in _ALONE if name in lower][:1]


def read_outcomes(
    given: Any,
    name: str | None = None,
    *,
    score_columns: Sequence[str] = (),
    lower_is_better: Sequence[str] = (),
    grades: Mapping[str, float] | None = None,
    id_column: str | None = None,
    target_column: str | None = None,
) -> Table:
    """Reads one version's outcomes.

    A table has a row per example, or per example and run; an id that occurs R times,
    always equally often, has R runs. Logs of evaluation tools are read as such tables;
    the page "LLM evaluations" has the names of columns and the tools.

    Args:
        given: a path, a mapping of arrays, a list of records, a frame or a table.
        name: name of the version; None for the file's name.
        score_columns: columns of numbers to compare, in place of the usual names.
        lower_is_better: scores of which less is better, by their names.
        grades: what each grade is worth, where scores are letters or words. Of Inspect
            C, P, N and I are 1, 0.5, 0 and 0 unless `grades` are given.
        id_column: name of the column of ids, if it is not a usual one.
        target_column: name of the column of targets, if it is not a usual one.

    Raises:
        PredictionsError: if it cannot be read or has no outcomes.

    Example:
        >>> found = read_outcomes({"id": [4, 4, 9, 9], "correct": [1, 0, 1, 1]}, "v1")
        >>> len(found.runs), found.ids, found.columns["correct"]
        (2, array([4, 9]), array([[1., 1.],
               [0., 1.]]))
    """
    score_columns, lower = names_of(score_columns), names_of(lower_is_better)
    file = Path(given) if isinstance(given, str | os.PathLike) else None
    name = name or (file.name if file else "outcomes")
    with errors_of(file or name):
        log = read_log(file) if file else None
        unusual: tuple[str, ...] = ()
        if log is not None:
            columns = _columns(Contents(table=log.table))
            kinds: dict[str, Kind] = {n: "score" for n in log.scores}
            kinds.update((n, "answer") for n in log.answers)
        else:
            contents = read_contents(given, id_column=id_column)
            if contents.array is not None:
                raise PredictionsError("outcomes must be columns with names")
            unusual = (*contents.read, *(of.rstrip(".") for of in contents.notes))
            columns = _columns(contents)
            if contents.index and find_column(columns, ID, id_column, "id") is None:
                raise PredictionsError(contents.index)
            names = outcome_columns([*columns])
            for of in () if score_columns else map(plain, names):
                find_column(columns, (of,), None, of)  # refuses two of one name
            kinds = {n: COLUMNS.get(n.strip().lower(), "correct") for n in names}
        if score_columns:
            kinds = dict.fromkeys(score_columns, "score")
        if missing := [n for n in kinds if n not in columns]:
            every = log.scores if log else [*columns]
            similar = [name for name in every if missing[0] in name] or every
            raise PredictionsError(
                f"there is no column {missing[0]!r}, it has {some(similar)}"
            )
        scores = [name for name, kind in kinds.items() if kind == "score"]
        known = grades or (_GRADES if log else {})
        for column in scores:
            columns[column] = _graded(columns[column], column, known)
        less = _directions(scores, lower, log)
        for column in scores if log and not score_columns else ():
            found = {*columns[column].drop_null().unique().to_pylist()}
            if not less.get(column) and found <= {0.0, 1.0}:
                kinds[column] = "correct"
        found = _outcomes(columns, name, kinds, id_column, target_column, log, unusual)
        return dataclasses.replace(found, less=less)


def _columns(contents: Contents, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The columns, or those of some names, each as one Arrow array."""
    if (table := contents.table) is None:
        arrays = contents.arrays or {}
        table = as_table({name: arrays[name] for name in names or arrays})
    return {name: arrow.one(table.column(name)) for name in table.column_names}


def _graded(column: Any, name: str, grades: Mapping[str, float]) -> Any:
    """A column of grades as numbers; one of numbers as it is."""
    if not arrow.is_text(column.type):
        return column
    encoded = _blank_to_null(column).dictionary_encode()
    worth, words, unknown = [], [], []
    for text in map(str.strip, encoded.dictionary.to_pylist()):
        try:
            worth.append(float(text if text.isascii() and "_" not in text else "_"))
        except ValueError:
            worth.append(grades.get(text, math.nan))
            words.append(text)
            unknown += [] if text in grades else [text]
    if unknown and len(words) > _MOST_GRADES:
        raise PredictionsError(
            f"column {name} must hold numbers; it has texts, for example "
            f"{some(unknown)}; --score-column names the scores to compare"
        )
    if unknown:
        example = " ".join(f"{word}=..." for word in sorted(words))
        raise PredictionsError(
            f"{name} has grades without a number, {some(sorted(unknown))}; add "
            f"--grades {example} with what each is worth, or name other scores by "
            "--score-column"
        )
    return arrow.array(worth, arrow.float64()).take(encoded.indices)


def _directions(
    scores: Sequence[str], lower: Sequence[str], log: Log | None
) -> dict[str, bool]:
    """Score to whether less is better, by the option, the log or its name."""
    found, known = {}, set()
    for name in scores:
        metric = name.partition(",")[0]  # without its filter
        names = [name, metric, metric.partition(".")[0]]
        known |= {*names}
        logged = [log.less[n] for n in names if n in log.less] if log else []
        if {*names} & {*lower}:
            found[name] = True
        elif logged:
            found[name] = logged[0]
        elif any(map(less_is_better, names)):
            found[name] = True
    if lone := [name for name in lower if name not in known]:
        raise PredictionsError(
            f"--lower-is-better {some(lone)} is not a score here; scores are "
            f"{some(scores) or 'none'}"
        )
    return found


def _outcomes(
    columns: dict[str, Any],
    name: str,
    chosen: Mapping[str, Kind],
    id_column: str | None,
    target_column: str | None,
    log: Log | None,
    unusual: tuple[str, ...],
) -> Table:
    names = [*columns]
    id_name = find_column(names, ID, id_column, "id")
    if not chosen:
        raise PredictionsError(
            f"there is no column of outcomes ({', '.join(COLUMNS)}), it has "
            f"{some(names)}; --score-column names one"
        )
    target_name = find_column(names, LABEL, target_column, "target")
    judged = {*chosen.values()} - {"correct", "score"}  # by the target
    key_name = target_name or _first(names, (KEY,))
    answered = not target_column and plain(key_name or "") == "actual"
    if (judged and target_name) or answered:  # `actual` may be what was answered
        key_name = None
    run_name, input_name = _first(names, RUNS), _first(names, INPUT)
    if not (rows := len(columns[names[0]])):
        raise PredictionsError("there are no examples")
    runs, ids = 1, None if id_name is None else as_ids(columns[id_name])
    repeats: Runs | None = None
    several = ids is None or repeated(ids).size > 0
    run_name = run_name if several else None  # with one row of each id, a column
    run = text_of(columns[run_name], run_name) if run_name else None
    if ids is None and run is not None and len(run.unique()) > 1:
        raise PredictionsError(f"column {run_name} needs ids of the examples")
    if ids is not None and several:
        repeats = split_runs(ids, run)
        of_examples = [n for n in names if n.strip().lower() in _OF_EXAMPLES]
        for column in filter(None, (target_name, key_name, input_name, *of_examples)):
            codes = text_of(columns[column], column).dictionary_encode().indices
            codes = codes.fill_null(-1).to_numpy(zero_copy_only=False)
            repeats.check_same(codes, column)
        order = arrow.array(repeats.rows.reshape(-1))
        columns = {n: of.take(order) for n, of in columns.items()}
        ids, runs = repeats.ids, len(repeats.rows)
        repeats = repeats._replace(rows=np.arange(rows).reshape(runs, -1))
    examples = rows // runs
    values = {}
    for column, kind in chosen.items():
        of, _ = _READERS[kind](columns[column], column)
        numbers = isinstance(of, np.ndarray)
        values[column] = of.reshape(runs, examples) if numbers else of
    special, errored = {id_name, run_name, *chosen}, None
    if log and ERROR in names:
        special.add(ERROR)
        errored = columns[ERROR].to_numpy(zero_copy_only=False)
        errored = errored.reshape(runs, examples)
    first = {n: of.slice(0, examples) for n, of in columns.items()}
    every = {n: of for n, of in columns.items() if n not in special}

    def others(names: Collection[str] | None = None) -> dict[str, Any]:
        for name in filter(every.__contains__, names or ()):
            if repeats is not None:  # of which the first run is taken
                numbers = cluster_numbers(text_of(every[name], name), name)
                repeats.check_same(numbers, f"column {name}")
        return {name: first[name] for name in every}

    roles = {"id": id_name, "run": run_name if runs > 1 or not log else None}
    truth_name = key_name or (target_name if judged else None)
    roles |= {"target": truth_name, "input": input_name}
    used = [(role, column) for role, column in roles.items() if column]
    if log:
        read = [*log.read, *(role for role, _ in used), *sorted(chosen)]
    else:
        used += [(kind, column) for column, kind in chosen.items()]
        read = [
            role if column.strip().lower() == role else f"{role} (column {column})"
            for role, column in used
        ]
    left = log.left_out if log else [n for n in every if n not in roles.values()]
    return Table(
        name=name,
        runs=tuple(range(runs)),
        ids=ids,
        measures=dict(chosen),
        columns=values,
        target=None if target_name is None else first[target_name],
        inputs=None if input_name is None else text_of(first[input_name], input_name),
        key=None if key_name is None else first[key_name],
        others=others,
        errored=errored,
        account=Account((*read, *unusual), tuple(left), () if log else tuple(left)),
    )


def _first(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    lower = {name.strip().lower(): name for name in reversed(names)}
    return next((lower[name] for name in wanted if name in lower), None)


def text_of(column: Any, name: str) -> Any:
    """A column as texts; lists and structures as JSON."""
    if arrow.types.is_nested(column.type):
        every = column.to_pylist()  # of dates, too
        return arrow.array([json.dumps(x, sort_keys=True, default=str) for x in every])
    try:
        return column.cast(arrow.large_string())
    except arrow.ArrowException as error:
        raise PredictionsError(f"column {name} cannot be made text") from error


def numbers_of(column: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A column as `[N]` float64, and which of them are there."""
    if arrow.types.is_fixed_size_list(column.type) and column.type.list_size == 1:
        column = column.flatten()  # what a network of one output predicts
    if arrow.is_text(column.type):
        column = _blank_to_null(column)
    if arrow.types.is_boolean(column.type):
        column = column.cast(arrow.int8())
    try:
        numbers = column.cast(arrow.float64())
    except arrow.ArrowException:
        raise PredictionsError(f"column {name} must hold numbers") from None
    values = numbers.to_numpy(zero_copy_only=False)
    if count := int(np.isinf(values).sum()):
        raise PredictionsError(f"column {name} has {count} infinite numbers")
    if (largest := np.nanmax(np.abs(values), initial=0.0)) > _LARGEST:
        raise PredictionsError(f"column {name} has numbers as large as {largest:.1g}")
    return values, ~np.isnan(values)


def _blank_to_null(column: Any) -> Any:
    blank = arrow.equal(arrow.utf8_trim_whitespace(column), "")
    return arrow.if_else(blank, None, column)


def _truths(column: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    odd, way_out = [], ""
    if arrow.is_text(column.type):
        encoded = _blank_to_null(column).dictionary_encode()
        found = [text.strip().lower() for text in encoded.dictionary.to_pylist()]
        odd = [text for text in found if text not in (*_TRUE, *_FALSE)]
        worth = arrow.array([float(text in _TRUE) for text in found], arrow.float64())
        column = worth.take(encoded.indices)
    values, known = numbers_of(column, name)
    if np.any(wrong := known & (values != 0) & (values != 1)):
        odd, way_out = values[wrong], f"; --score-column {name} compares numbers"
    if len(odd):
        raise PredictionsError(
            f"column {name} must be 0 or 1, true or false; got {some(odd)}{way_out}"
        )
    return values, known


def answers_of(column: Any, name: str) -> tuple[Any, np.ndarray]:
    """A column as texts, and which of them are there."""
    texts = text_of(column, name)
    return texts, ~np.asarray(texts.is_null())


def lists_of(column: Any, name: str) -> tuple[Any, np.ndarray]:
    """A column of lists as texts with `ITEM` before items, and which are there."""
    kind = column.type
    if not (arrow.types.is_list(kind) or arrow.types.is_large_list(kind)):
        return answers_of(column, name)
    try:
        items = column.cast(arrow.large_list(arrow.large_string()))
    except arrow.ArrowException as error:
        raise PredictionsError(f"column {name} must hold lists of items") from error
    texts = arrow.binary_join(items, arrow.scalar(ITEM, arrow.large_string()))
    texts = arrow.utf8_replace_slice(texts, 0, 0, ITEM)  # also before a single item
    return texts, ~np.asarray(texts.is_null())


_READERS: dict[Kind, Callable[[Any, str], tuple[Any, np.ndarray]]] = {
    "correct": _truths,
    "score": numbers_of,
    "value": numbers_of,
    "answer": answers_of,
    "set": lists_of,
    "ranking": lists_of,
}


def has_outcomes(given: Any) -> bool:
    """True if there are outcomes and no predicted classes, by the names of columns."""
    path = Path(given) if isinstance(given, str | os.PathLike) else None

    def read(columns: list[str]) -> Mapping[str, Any]:
        found = read_contents(given, choice=lambda names: (columns, ()))
        return _columns(found, columns)

    with errors_of(path or "the predictions"):
        if path and reader_of(path) is not None:
            return True
        names = column_names(given)
        found = outcome_columns(names)
        scored = all(column.strip().lower() == "score" for column in found)
        return bool(found) and not of_classifier(names, scored, read)
