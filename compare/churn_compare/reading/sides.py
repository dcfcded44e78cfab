"""One version's predictions, from a file or an object of any framework."""

import dataclasses
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from churn_compare.array_files import NpzArrays
from churn_compare.example_ids import PredictionsError, check_unique, errors_of, some
from churn_compare.pair import Kind, Table
from churn_compare.reading.account import Account, Doubt
from churn_compare.reading.class_values import (
    CLASS,
    LABEL,
    OUTPUT,
    PREDICTION,
    SCORES,
    ClassValues,
    ColumnNames,
    Roles,
    ScoreColumns,
    all_numbers,
    as_class_values,
    as_number,
    check_class_numbers,
    find_roles,
    is_truth,
    paired_columns,
    plain,
    score_columns,
    score_of_label,
    with_missing,
)
from churn_compare.reading.contents import as_array, as_table, read_contents
from churn_compare.reading.ids import as_ids, index_ids, split_runs
from churn_compare.reading.labels import read_ids
from churn_compare.reading.scores import (
    ROWS,
    Scores,
    array_class_names,
    as_scores,
    dense,
    lists,
    matrix,
    parsed_lists,
    predicted,
    with_numbers,
)
from churn_compare.reading.spelling import arrow_compute, twice
from churn_compare.store import StoredLogits, stopped_runs

_KINDS = ("logits", "probabilities", "classes")
_ALONE = "; --kind probabilities or logits compares the scores alone"
_WANTED: dict[Kind | None, str] = {
    None: "logit_<class>, prob_<class> or prediction",
    "logits": "logit_<class>",
    "probabilities": "prob_<class>",
    "classes": "prediction",
}
_LISTED = 20  # columns that a message names
_NEAR = 0.02  # how near to one probabilities sum


def read_side(
    given: Any,
    name: str | None = None,
    ids: Any = None,
    kind: Kind | None = None,
    *,
    id_column: str | None = None,
    label_column: str | None = None,
    prediction_column: str | None = None,
) -> Table:
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
    if kind is not None and kind not in _KINDS:
        raise PredictionsError(f"kind must be one of {', '.join(_KINDS)}; got {kind!r}")
    names = ColumnNames(id_column, label_column, prediction_column)
    columns: list[str] = []  # of a file of which not all are read

    def numeric(found: list[str]) -> Collection[str]:
        roles = find_roles(found, kind, names)
        scores = roles.scores
        if isinstance(scores, ScoreColumns) and scores.sure:
            return () if _doubtful(roles, kind) else scores.columns
        return ()  # a text may be a list

    def wanted(found: list[str]) -> Collection[str]:
        columns.extend(found)
        roles = find_roles(found, kind, names)
        beside = score_of_label(found, roles, names) or ()
        if roles.scores is None and roles.prediction is None and not beside:
            raise _no_predictions(found, kind)
        used = (*roles[:4], *_columns_of(roles.scores), *beside, *_seeds(found))
        return {name for name in used if name is not None}

    with errors_of(file or name):
        contents = read_contents(given, numeric, wanted, id_column)
        if contents.array is not None:
            side = _side(name, as_scores(contents.array, kind, "scores"))
        elif contents.arrays is None:
            late = contents.late
            side = _of_table(name, contents.table, kind, names, columns, late)
        else:
            roles = find_roles(contents.arrays, kind, names, others=False)
            whole = isinstance(roles.scores or roles.prediction, str)
            if whole and score_of_label(contents.arrays, roles, names) is None:
                side = _of_arrays(name, contents.arrays, kind, roles)
            else:
                kept = wanted(list(contents.arrays))
                kept = {n: contents.arrays[n] for n in columns if n in kept}
                side = _of_table(name, as_table(kept), kind, names, columns)
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
    notes = (*contents.notes, *(f"{name}: {note}" for note in side.notes))
    if (account := side.account) is None:
        return dataclasses.replace(side, notes=notes)

    def others() -> Mapping[str, Any]:
        left = account.columns
        found = read_contents(given, wanted=set(left).intersection).columns
        return {name: found[name] for name in left if name in found}

    return dataclasses.replace(
        side,
        notes=notes,
        account=account._replace(read=(*account.read, *contents.read)),
        others=others if account.left_out else dict,
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


def _of_arrays(
    name: str, arrays: Mapping[str, Any], kind: Kind | None, roles: Roles
) -> Table:
    """Predictions among arrays by name, such as those of a `.npz` file."""
    said, decisions, runs, notes = {}, None, None, ()
    of, chosen = cast(str, roles.scores or roles.prediction), kind
    values = as_array(arrays[of], of)
    if roles.scores is not None:
        chosen = SCORES.get(plain(of), kind)
        if (decided := roles.prediction) is not None:
            found = as_array(arrays[decided], decided)
            if found.ndim not in (1, 2) or (
                found.ndim == 2 and found.dtype.kind == "f"
            ):
                raise PredictionsError(
                    f"{decided} of shape {found.shape} and type {found.dtype} next to "
                    f"scores are not decided classes{_ALONE}"
                )
            decisions = as_class_values(found, decided, _ALONE)
            if kind is None and (values.ndim == 1 or values.shape[1:] == (1,)):
                said[of] = "one number per example"
                of, values, chosen, decisions = decided, found, "classes", None
                roles = roles._replace(scores=None)
    scores = as_scores(values, chosen, of)
    stopped = stopped_runs(_meta(arrays.get("meta")), len(scores.values))
    if stopped:
        runs = tuple(r for r in range(len(scores.values)) if r not in stopped)
        if not runs:
            raise PredictionsError("every run stopped before its end")
        listed = ", ".join(map(str, stopped))
        notes = (f"runs {listed} stopped early and are left out.",)
        scores = scores._replace(values=scores.values[list(runs)])
        if decisions is not None and decisions.numbers.ndim == 2:
            decisions = decisions._replace(numbers=decisions.numbers[list(runs)])
    entries = [n for n in arrays if n not in ("meta", "class_names")]
    return _side(
        name,
        scores,
        class_names=array_class_names(arrays),
        ids=None if roles.id is None else as_array(arrays[roles.id], "ids"),
        labels=None if roles.label is None else as_array(arrays[roles.label], "labels"),
        decisions=decisions,
        runs=runs,
        notes=notes,
        account=_account(roles, entries, scores, "array", said),
    )


def _meta(entry: Any) -> Mapping[str, Any]:
    """Facts about the runs; those of other tools are ignored."""
    if isinstance(entry, Mapping):
        return entry
    try:
        meta = json.loads(str(np.asarray(entry)))
    except (ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, Mapping) else {}


def _of_table(
    name: str,
    table: Any,
    kind: Kind | None,
    names: ColumnNames,
    columns: list[str],
    late: Any = None,
) -> Table:
    """Predictions in a table that was read of a file with these `columns`."""
    columns = columns or table.column_names
    roles = find_roles(columns, kind, names)
    if not table.num_rows:
        raise PredictionsError("it has no rows")
    if roles.run is None and roles.id is not None:
        for seed in _seeds(columns):
            if len(table.column(roles.id).unique()) < table.num_rows:
                roles = roles._replace(run=seed)
    said: dict[str, str] = {}  # why columns are left out
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
        table = parsed_lists(table, roles.scores, not _doubtful(roles, kind))
    table, why = _checked_scores(table, roles, kind)
    if why:
        said.update(dict.fromkeys(map(str, _columns_of(roles.scores)), why))
        roles = roles._replace(scores=None)
    of, class_names, notes, decisions = roles.scores, None, (), None
    if isinstance(of, ScoreColumns):
        check_class_numbers(of)
        if score_columns(columns, kind) is None:
            count = len(of.columns)
            notes = (
                f"{of.kind} of {count} classes are all other columns: "
                f"{some(of.columns)}.",
            )
        scores = Scores(of.kind, matrix(table, of.columns, late)[None])
        class_names = of.class_names
    elif of is not None:
        values, what = lists(table.column(of), of), f"values of column {of}"
        scores = as_scores(values, SCORES.get(plain(of), kind), what)
    elif roles.prediction is None:
        raise _no_predictions(columns, kind)
    else:
        scores = predicted(table.column(roles.prediction), roles.prediction)
    if of is not None and roles.prediction is not None:
        what = f"values of column {roles.prediction}"
        decisions = as_class_values(table.column(roles.prediction), what, _ALONE)
    given = {
        "class_names": class_names,
        "ids": None if roles.id is None else table.column(roles.id),
        "labels": None if roles.label is None else table.column(roles.label),
        "decisions": decisions,
        "account": _account(roles, columns, scores, "column", said),
    }
    if roles.run is not None:
        runs = table.column(roles.run)
        scores = scores._replace(values=_by_run(scores.values, given, runs))
    return _side(name, scores, notes=notes, number_names=number_names, **given)


def _by_run(values: np.ndarray, given: dict[str, Any], column: Any) -> np.ndarray:
    """Scores of several runs as `[R, N]` in the order of the ids; changes `given`."""
    if given["ids"] is None:
        raise PredictionsError("a table with a run column must have an id column")
    runs = split_runs(as_ids(given["ids"]), column)
    if len(runs.names) != len(runs.rows):
        raise PredictionsError(f"runs {some(runs.names)} must have the same ids")
    if (decisions := given["decisions"]) is not None:
        given["decisions"] = decisions._replace(numbers=decisions.numbers[runs.rows])
    if given["labels"] is not None:
        numbers, names = as_class_values(given["labels"], "labels")
        runs.check_same(numbers, "labels")
        labels = numbers[runs.rows[0]]
        given["labels"] = labels if names is None else np.array(names)[labels]
    given["ids"] = runs.ids
    if runs.names.dtype.kind == "i":
        given["runs"] = tuple(runs.names.tolist())
    return values[0][runs.rows]


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


def _columns_of(scores: ScoreColumns | str | None) -> tuple[str | None, ...]:
    return scores.columns if isinstance(scores, ScoreColumns) else (scores,)


def _doubtful(roles: Roles, kind: Kind | None) -> bool:
    """True if what looks like scores may be something else, next to a prediction."""
    scores = roles.scores
    if roles.prediction is None or scores is None or kind is not None:
        return False
    return isinstance(scores, str) or not scores.sure or len(scores.columns) == 1


def _seeds(names: list[str]) -> list[str]:
    """The column that tells runs apart where ids occur several times."""
    return [name for name in names if plain(name) == "seed"][:1]


def _with_names(table: Any, roles: Roles) -> tuple[Any, tuple[str, ...] | None]:
    """The table, and the names of class numbers as Hugging Face records them."""
    import pyarrow as pa

    pc = arrow_compute()
    columns = [name for name in (roles.label, roles.prediction) if name is not None]
    try:
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        named = {
            name: tuple(features[name]["names"])
            for name in columns
            if name in features and features[name].get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return table, None
    texts = [n for n in columns if not pa.types.is_integer(table.schema.field(n).type)]
    if len({*named.values()}) == 1 and not texts:
        return table, next(iter(named.values()))
    for name in named.keys() - {*texts}:
        numbers = table.column(name).combine_chunks()
        known = pc.if_else(pc.less(numbers, 0), None, numbers)
        column = pa.array(named[name]).take(known)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table, None


def _checked_scores(table: Any, roles: Roles, kind: Kind | None) -> tuple[Any, str]:
    """The table, and why what looks like scores is not those of all classes, or ""."""
    import pyarrow as pa

    scores = roles.scores
    if isinstance(scores, ScoreColumns) and not scores.sure:
        parsed = with_numbers(table, scores.columns)
        if parsed is not None and _are_probabilities(parsed, scores, roles):
            return parsed, ""
        why = "not probabilities of the classes"
        if roles.prediction is None:
            raise PredictionsError(
                f"columns {some(scores.columns)} are {why}: their rows do not sum to "
                "one and their names are not labels; --prediction-column names the "
                "predicted classes, --kind what the columns are"
            )
        return table, why
    if not _doubtful(roles, kind):
        return table, ""
    if not isinstance(scores, str):
        return table, "scores of one class"
    if not pa.types.is_nested(table.column(scores).type):
        return table, "one number per example"
    return table, "sparse vectors" if dense(table.column(scores)) is None else ""


def _are_probabilities(table: Any, scores: ScoreColumns, roles: Roles) -> bool:
    """True if columns p_<x> are of the classes: by their names, or by their sum."""
    named = roles.prediction or roles.label
    if named is not None:
        found = set(map(str, table.column(named).unique().to_pylist()))
        if found <= set(scores.class_names or ()):
            return True
    values = matrix(table.slice(0, ROWS), scores.columns)
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
        roles = Roles(None, labels[0] if labels else None, None, None, scores)
        parsed = with_numbers(read([*labels, *scores.columns]), scores.columns)
        if parsed is not None and _are_probabilities(parsed, scores, roles):
            return True
    if not (scored and labels):
        return False
    score = next(name for name in names if plain(name) == "score")
    return _beside_label(read([*labels, score]), labels[0], score) != "number"


def _beside_label(
    table: Any, label: str, score: str
) -> Literal["confidence", "unclear", "number"]:
    """The kind of a score next to a label: of a prediction, of outcomes, or unclear."""
    # Pipelines of Hugging Face write the predicted class as `label`. A truth of two
    # classes and a number from 0 to 1 may be a classifier's probability.
    parsed = with_numbers(table, (score,))
    if parsed is None:
        return "number"
    values = parsed.column(score).to_numpy()
    try:
        found, names = as_class_values(table.column(label), f"column {label}")
    except PredictionsError:
        return "number"
    named = names is not None and not is_truth(names)
    if plain(label) in ("label", "labels", *CLASS):
        clear = named and bool(np.all((values > 0) & (values <= 1)))
        return "confidence" if clear else "unclear"
    shares = np.all((values >= 0) & (values <= 1)) and len(np.unique(values)) > 2
    return (
        "unclear" if shares and not named and len(np.unique(found)) <= 2 else "number"
    )


def _account(
    roles: Roles, names: Iterable[str], scores: Scores, what: str, said: Mapping
) -> Account:
    """The columns that were read; `said` has why some were left out."""

    def of(role: str, name: str | None) -> list[str]:
        if name is None:
            return []
        usual = plain(name) in (role, f"{role}s")
        return [role if usual else f"{role} ({what} {name})"]

    if roles.scores is None and scores.kind != "classes":
        roles = roles._replace(scores=roles.prediction, prediction=None)
    read = [*of("id", roles.id), *of("label", roles.label)]
    if scores.kind == "classes":
        read += of("prediction", roles.prediction or str(roles.scores))
    else:
        of_classes = f"{scores.kind} of {scores.values.shape[-1]} classes"
        if roles.prediction is not None:
            read.append(f"decision ({what} {roles.prediction})")
        if isinstance(roles.scores, str) and plain(roles.scores) != scores.kind:
            of_classes += f" ({what} {roles.scores})"
        read.append(of_classes)
    used = {*roles[:4], *_columns_of(roles.scores)}
    left = [f"{n} ({said[n]})" if n in said else n for n in names if n not in used]
    return Account((*read, *of("run", roles.run)), tuple(left))


def _side(
    name: str,
    scores: Scores,
    *,
    class_names: tuple[str, ...] | None = None,
    ids: Any = None,
    labels: Any = None,
    decisions: ClassValues | None = None,
    runs: tuple[int, ...] | None = None,
    notes: tuple[str, ...] = (),
    **more: Any,
) -> Table:
    """A side of what was read, once its parts are consistent."""
    values, examples = scores.values, scores.values.shape[1]
    class_names = scores.class_names or class_names
    if class_names is not None and scores.kind != "classes":
        class_names = _checked_names(class_names, values.shape[2])
    if ids is not None:
        ids = as_ids(ids)
        _check_length("ids", len(ids), examples)
        check_unique(ids)
    label_names = None
    if labels is not None:
        labels, label_names = with_missing(labels, "labels")
        if labels.ndim != 1:
            raise PredictionsError(f"labels must have shape [N]; got {labels.shape}")
        _check_length("labels", len(labels), examples)
        own = scores.class_names  # in no order that numbers could mean
        named = own and not is_truth(own) and not all_numbers(own)
        if named and not label_names:
            raise PredictionsError(
                f"predicted classes are names ({some(own)}), but labels are numbers; "
                "write the labels as names"
            )
    decided = None
    if decisions is not None:
        decided = _decisions(decisions, class_names, values)
    return Table(
        name=name,
        kind=scores.kind,
        values=values,
        class_names=class_names,
        ids=ids,
        labels=labels,
        label_names=label_names,
        runs=runs or tuple(range(len(values))),
        notes=(*scores.notes, *notes),
        decisions=decided,
        **more,
    )


def _decisions(
    found: ClassValues, names: tuple[str, ...] | None, values: np.ndarray
) -> np.ndarray:
    """Decided classes as numbers of the classes that have scores, `[R, N]`."""
    numbers = np.atleast_2d(found.numbers)
    if numbers.shape != values.shape[:2]:
        raise PredictionsError(
            f"decisions have shape {found.numbers.shape} and scores [R, N, C] "
            f"{values.shape}{_ALONE}; an array of the names of the classes is "
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
            f"classes are {some(own)}{_ALONE}, --kind classes the decisions alone"
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
