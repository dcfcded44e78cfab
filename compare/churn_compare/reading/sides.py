"""One version's predictions, from a file or an object of any framework."""

import dataclasses
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from churn_compare.array_files import NpzArrays
from churn_compare.example_ids import (
    PredictionsError,
    as_ids,
    check_choice,
    check_count,
    check_unique,
    errors_of,
    repeated,
    some,
    split_runs,
    twice,
)
from churn_compare.number_text import listed
from churn_compare.pair import Kind, Table
from churn_compare.reading import arrow
from churn_compare.reading.account import Account, Doubt
from churn_compare.reading.class_values import (
    ClassValues,
    all_numbers,
    as_class_values,
    as_number,
    is_truth,
)
from churn_compare.reading.columns import (
    CLASS,
    LABEL,
    OUTPUT,
    PREDICTION,
    SCORES,
    ColumnNames,
    Roles,
    ScoreColumns,
    find_roles,
    plain,
    score_columns,
    score_of_label,
)
from churn_compare.reading.contents import Contents, as_array, as_table, read_contents
from churn_compare.reading.labels import as_text, cluster_numbers, read_ids
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
from churn_compare.store import stopped_runs
from churn_compare.stored_logits import StoredLogits

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
        name: name of the version; None for the file's name.
        ids: `[N]`, or a file of them, for predictions that hold none.
        kind: "logits", "probabilities" or "classes", where several are there.
        id_column: name of the column or array of ids, if it is not a usual one.
        label_column: name of the column or array of labels.
        prediction_column: name of the column or array of predicted classes.

    Raises:
        PredictionsError: if predictions cannot be read or are inconsistent.

    Example:
        >>> side = read_side({"predictions": ["cat", "dog"], "ids": [7, 8]}, "v1")
        >>> side.kind, side.class_names, side.values, side.ids
        ('classes', ('cat', 'dog'), array([[0, 1]], dtype=int32), array([7, 8]))
    """
    file = Path(given) if isinstance(given, str | os.PathLike) else None
    name = name or (file.name if file else "predictions")
    if kind is not None:
        check_choice("kind", kind, filter(None, _WANTED))
    names = ColumnNames(id_column, label_column, prediction_column)
    every: list[str] = []  # columns of a file of which not all are read

    def choice(found: list[str]) -> tuple[Collection[str], Collection[str]]:
        every[:] = found
        roles = find_roles(found, kind, names)
        beside, of = score_of_label(found, roles, names) or (), roles.scores
        if of is None and roles.prediction is None and not beside:
            raise _no_predictions(found, kind)
        used = {*roles.columns, *beside, *_seeds(found)}
        if isinstance(of, ScoreColumns) and of.sure and not roles.doubtful(kind):
            return used, of.columns
        return used, ()  # a text may be a list

    with errors_of(file or name):
        contents = read_contents(given, id_column, choice)
        arrays = contents.arrays
        if contents.array is not None:
            side = _side(name, as_scores(contents.array, kind, "scores"))
        elif arrays is not None:
            roles = find_roles(arrays, kind, names, others=False)
            whole = isinstance(roles.scores or roles.prediction, str)
            if roles.id and roles.run:  # as long: a row for each example and run
                whole &= np.size(arrays[roles.id]) != np.size(arrays[roles.run])
            if whole and score_of_label(arrays, roles, names) is None:
                side = _of_arrays(name, arrays, kind, roles)
            else:  # a column for each class
                kept = choice(list(arrays))[0]
                table = as_table({n: arrays[n] for n in every if n in kept})
                side = _of_table(name, Contents(table=table), kind, names, every)
        else:
            side = _of_table(name, contents, kind, names, every)
        if isinstance(arrays, NpzArrays) and arrays.checks:
            check = errors_of(file or name)(arrays.check)
            if side.kind == "classes":
                check()
            else:
                values = StoredLogits.of(side.values)
                values.check = check
                side = dataclasses.replace(side, values=values)
        if side.ids is None and ids is not None:
            own = read_ids(ids, id_column)
            check_count("the separate ids", len(own), side.examples)
            side = dataclasses.replace(side, ids=own)
        elif side.ids is None and contents.index:
            raise PredictionsError(contents.index)
    notes = (*contents.notes, *(f"{name}: {note}" for note in side.notes))
    if (account := side.account) is None:
        return dataclasses.replace(side, notes=notes)

    left, repeats = account.names, side.repeats

    def others(names: Collection[str] | None = None) -> Mapping[str, Any]:
        wanted = [name for name in left if names is None or name in names]
        if not wanted:
            return {}
        found = read_contents(given, choice=lambda _: (wanted, ())).columns
        found = {name: found[name] for name in wanted if name in found}
        for column, values in found.items():
            what = f"column {column}"
            if repeats is not None:  # rows of several runs, of which one is taken
                if names is not None:
                    repeats.check_same(cluster_numbers(values, what), what)
                found[column] = values.take(repeats.rows[0])
            elif not hasattr(values, "null_count"):
                found[column] = as_array(values, what)
                if names is not None:
                    check_count(f"values of {what}", len(values), side.examples)
        return found

    account = account._replace(read=(*account.read, *contents.read))
    return dataclasses.replace(side, notes=notes, account=account, others=others)


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


def check_used(
    ids: Any, sides: Sequence[Table], columns: Mapping[str, str | None]
) -> None:
    """Raises for separate ids or for names of columns that no version uses."""
    own: list[Any] = [side.ids for side in sides]
    if ids is not None and not any(np.array_equal(of, ids) for of in own):
        raise PredictionsError(
            "separate ids are given, but the predictions have ids of their own; leave "
            "the separate ones out"
        )
    named = [of for role, of in columns.items() if ids is None or role != "id_column"]
    if any(named) and all(side.account is None for side in sides):
        raise PredictionsError(
            f"there is no column {next(filter(None, named))!r}: the versions are "
            "arrays without names; leave it out, or give mappings of names to arrays"
        )


def same_file(old: Any, new: Any) -> list[Doubt]:
    """A doubt if two versions are read from one file."""
    paths = [side for side in (old, new) if isinstance(side, str | os.PathLike)]
    if not (len([*filter(os.path.exists, paths)]) == 2 and os.path.samefile(*paths)):
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
    said, notes, runs = {}, (), None
    roles = roles._replace(run=None)
    columns = {n: as_array(arrays[n], n) for n in roles.columns}
    of, chosen = cast(str, roles.scores or roles.prediction), kind
    if roles.doubtful(kind) and columns[of].size == len(columns[of]):
        said[of] = "one number per example"
        roles = roles._replace(scores=None)
        of, chosen = cast(str, roles.prediction), "classes"
    elif roles.scores is not None:
        chosen = SCORES.get(plain(of), kind)
    scores = as_scores(columns[of], chosen, of)
    stopped = stopped_runs(_meta(arrays.get("meta")), len(scores.values))
    if stopped:
        runs = tuple(r for r in range(len(scores.values)) if r not in stopped)
        if not runs:
            raise PredictionsError("every run stopped before its end")
        listed = ", ".join(map(str, stopped))
        notes = (f"runs that stopped early are left out: {listed}.",)
        values = scores.values
        if isinstance(values, np.memmap) and values.ndim == 3:  # stays on the disk
            values = StoredLogits([values])
        scores = scores._replace(values=values[list(runs)])
    entries = [n for n in arrays if n not in ("meta", "class_names")]
    account = _account(roles, entries, scores, "array", said)
    names = array_class_names(arrays)
    return _side(name, scores, roles, columns, account, names, notes, runs)


def _meta(entry: Any) -> Mapping[str, Any]:
    """Facts about the runs; those of other tools are ignored."""
    try:
        meta = entry if isinstance(entry, Mapping) else json.loads(str(entry))
    except (ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, Mapping) else {}


def _of_table(
    name: str,
    contents: Contents,
    kind: Kind | None,
    names: ColumnNames,
    every: list[str],
) -> Table:
    """Predictions in a table; `every` has the names of all columns of its file."""
    columns, metadata = dict(contents.columns), contents.table.schema.metadata
    every = every or [*columns]
    roles, rows = find_roles(every, kind, names), contents.table.num_rows
    if not rows:
        raise PredictionsError("it has no rows")
    if roles.run is None and roles.id is not None:
        for seed in _seeds(every):
            if repeated(as_ids(columns[roles.id])).size:
                roles = roles._replace(run=seed)
    said: dict[str, str] = {}  # why columns are left out
    recorded = _name_numbers(columns, metadata, roles)
    if (beside := score_of_label(every, roles, names)) is not None:
        label, score = beside
        found = _beside_label(columns, label, score)
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
    of, doubtful = roles.scores, roles.doubtful(kind)
    if isinstance(of, str):
        columns[of] = parsed_lists(columns[of], of, not doubtful)
    if why := _not_scores(columns, roles, doubtful):
        used = of.columns if isinstance(of, ScoreColumns) else (str(of),)
        said |= dict.fromkeys(used, why)
        roles, of = roles._replace(scores=None), None
    class_names, notes = None, ()
    if isinstance(of, ScoreColumns):
        of.check_classes()
        if score_columns(every, kind) is None:
            notes = (
                f"{of.kind} of {len(of.columns)} classes are all other columns: "
                f"{some(of.columns)}.",
            )
        scores = Scores(of.kind, matrix(columns, of.columns, contents.late)[None])
        class_names = of.class_names
    elif of is not None:
        values, what = lists(columns[of], of), f"values of column {of}"
        scores = as_scores(values, SCORES.get(plain(of), kind), what)
    elif roles.prediction is None:
        raise _no_predictions(every, kind)
    else:
        scores = predicted(columns[roles.prediction], roles.prediction)
    if scores.kind != "classes" and recorded is not None:
        fits = class_names is None and len(recorded) == scores.values.shape[2]
        class_names = recorded if fits else class_names
    account = _account(roles, every, scores, "column", said)
    return _side(name, scores, roles, columns, account, class_names, notes)


def _no_predictions(names: list[str], kind: Kind | None) -> PredictionsError:
    return PredictionsError(
        f"there is no column {_WANTED[kind]}, it has {listed(names, _LISTED)}"
        f"; {'leave --kind out, or ' if kind else ''}"
        "--prediction-column names the predicted classes and --label-column the "
        "right ones (or --kind what all other columns are, if they are the scores of "
        "classes), --score-column a column of numbers to compare, --id-column the ids"
    )


def _seeds(names: list[str]) -> list[str]:
    """The column that tells runs apart where ids occur several times."""
    return [name for name in names if plain(name) == "seed"][:1]


def _name_numbers(
    columns: dict[str, Any], metadata: Any, roles: Roles
) -> tuple[str, ...] | None:
    """Replaces class numbers by names that Hugging Face records; returns those."""
    used = [name for name in (roles.label, roles.prediction) if name is not None]
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        named = {
            name: tuple(features[name]["names"])
            for name in used
            if name in features and features[name].get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    one = [*{*named.values()}] if len({*named.values()}) == 1 else [None]
    for name in used:
        names, numbers = named.get(name, one[0]), columns[name].combine_chunks()
        if names and arrow.types.is_integer(numbers.type):
            known = arrow.less(numbers, len(names))
            known = arrow.and_(arrow.greater_equal(numbers, 0), known)
            places = arrow.if_else(known, numbers, None)
            columns[name] = arrow.chunked_array([arrow.array(names).take(places)])
    return one[0]


def _not_scores(columns: dict[str, Any], roles: Roles, doubtful: bool) -> str:
    """Why columns that look like scores are not; "" if they are."""
    scores = roles.scores
    if isinstance(scores, ScoreColumns) and not scores.sure:
        parsed = with_numbers(columns, scores.columns)
        if parsed is not None and _are_probabilities(parsed, scores, roles):
            columns.update(parsed)
            return ""
        why = "not probabilities of the classes"
        if roles.prediction is None:
            raise PredictionsError(
                f"columns {some(scores.columns)} are {why}: their rows do not sum to "
                "one and their names are not labels; --prediction-column names the "
                "predicted classes, --kind what the columns are"
            )
        return why
    if not doubtful:
        return ""
    if not isinstance(scores, str):
        return "scores of one class"
    if not arrow.types.is_nested(columns[scores].type):
        return "one number per example"
    return "sparse vectors" if dense(columns[scores]) is None else ""


def _are_probabilities(
    columns: Mapping[str, Any], scores: ScoreColumns, roles: Roles
) -> bool:
    """True if columns p_<x> are of the classes: by their names, or by their sum."""
    named = roles.prediction or roles.label
    if named is not None and not arrow.types.is_nested(columns[named].type):
        found = set(map(str, columns[named].unique().to_pylist()))
        if found <= set(scores.class_names or ()):
            return True
    first = {name: columns[name].slice(0, ROWS) for name in scores.columns}
    near = np.abs(matrix(first, scores.columns).sum(axis=1) - 1) <= _NEAR
    return roles.prediction is None and bool(np.mean(near) >= 0.5)


def of_classifier(
    names: list[str], scored: bool, read: Callable[[list[str]], Mapping[str, Any]]
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
    columns: Mapping[str, Any], label: str, score: str
) -> Literal["confidence", "unclear", "number"]:
    """The kind of a score next to a label: of a prediction, of outcomes, or unclear."""
    # Pipelines of Hugging Face write the predicted class as `label`. A truth of two
    # classes and a number from 0 to 1 may be a classifier's probability.
    parsed = with_numbers(columns, (score,))
    if parsed is None:
        return "number"
    values = parsed[score].to_numpy()
    try:
        found, names = as_class_values(columns[label], f"column {label}")
    except PredictionsError:
        return "number"
    named = names is not None and not is_truth(names)
    if plain(label) in ("label", "labels", *CLASS):
        clear = named and bool(np.all((values > 0) & (values <= 1)))
        return "confidence" if clear else "unclear"
    shares = np.all((values >= 0) & (values <= 1)) and len(np.unique(values)) > 2
    two = not named and len(np.unique(found)) <= 2
    return "unclear" if shares and two else "number"


def _account(
    roles: Roles, names: list[str], scores: Scores, what: str, said: Mapping[str, str]
) -> Account:
    """The columns that were read; `said` has why some were left out."""

    def of(role: str, name: str | None) -> list[str]:
        if name is None:
            return []
        usual = plain(name) in (role, f"{role}s")
        return [role if usual else f"{role} ({what} {name})"]

    used = {*roles.columns}
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
    left = tuple(name for name in names if name not in used)
    said_left = tuple(f"{n} ({said[n]})" if n in said else n for n in left)
    return Account((*read, *of("run", roles.run)), said_left, left)


def _side(
    name: str,
    scores: Scores,
    roles: Roles = Roles(None, None, None, None, None),
    columns: Mapping[str, Any] = {},
    account: Account | None = None,
    class_names: tuple[str, ...] | None = None,
    notes: tuple[str, ...] = (),
    runs: tuple[Any, ...] | None = None,
) -> Table:
    """A table of what was read; raises if its parts are inconsistent."""
    values, examples, decided = scores.values, scores.values.shape[1], None
    if roles.scores is not None and roles.prediction is not None:
        found = columns[roles.prediction]
        array = isinstance(found, np.ndarray)
        what = roles.prediction if array else f"values of column {roles.prediction}"
        decided = as_class_values(found, what, _ALONE)
        if runs is not None and decided.numbers.ndim == 2:
            decided = decided._replace(numbers=decided.numbers[list(runs)])
    class_names = scores.class_names or class_names
    if class_names is not None and scores.kind != "classes":
        class_names = _checked_names(class_names, values.shape[2])
    ids = labels = label_names = repeats = None
    if roles.id is not None:
        ids = as_ids(columns[roles.id])
        check_count("ids", len(ids), examples)
    if roles.label is not None:
        found = as_class_values(columns[roles.label], "labels", lacking="some")
        labels, label_names = found
        if scores.kind != "classes" and examples != len(labels) == values.shape[2]:
            raise PredictionsError(
                f"labels are of {len(labels)} examples, the scores [N, C] of "
                f"{examples}; if these are classes [R, N], add --kind classes"
            )
        check_count("labels", len(labels), examples)
        own = scores.class_names  # in no order that numbers could mean
        named = own and not is_truth(own) and not all_numbers(own)
        if named and not label_names:
            odd = [of for of in own if as_number(of) is None]
            raise PredictionsError(
                f"predicted classes are names ({some(odd)}), but labels are numbers; "
                "write the labels as names, or the predictions as whole numbers"
            )
    if roles.run is not None:  # rows of several runs become an axis
        if ids is None:
            raise PredictionsError("a table with a run column must have an id column")
        repeats = split_runs(ids, as_text(columns[roles.run], roles.run))
        if len(repeats.names) != len(repeats.rows):
            raise PredictionsError(f"runs {some(repeats.names)} must have the same ids")
        if labels is not None:
            repeats.check_same(labels, "labels")
            labels = labels[repeats.rows[0]]
        if decided is not None:
            decided = decided._replace(numbers=decided.numbers[repeats.rows])
        values, ids = values[0][repeats.rows], repeats.ids
        runs = tuple(repeats.names.tolist())
    elif ids is not None:
        check_unique(ids)
    decisions = None
    if decided is not None:
        decisions = _decisions(decided, class_names, values)
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
        account=account,
        decisions=decisions,
        repeats=repeats,
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
    return None if [*map(as_number, names)] == [*range(classes)] else names
