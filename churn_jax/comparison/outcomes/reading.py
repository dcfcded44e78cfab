"""Outcomes of one version: columns of a table, of an evaluation's log, of arrays."""

import csv
import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from churn_jax.comparison.outcomes.logs import read_log
from churn_jax.comparison.outcomes.values import Kind, Measure, normalized
from churn_jax.comparison.reading.class_values import (
    ID,
    LABEL,
    PREDICTION,
    RUN,
    SCORES,
    find_column,
)
from churn_jax.comparison.reading.class_values import score_columns as class_scores
from churn_jax.comparison.reading.contents import as_table, read_contents
from churn_jax.comparison.reading.ids import as_ids, counts_rows
from churn_jax.comparison.reading.labels import read_slices
from churn_jax.comparison.reading.objects import json_lines
from churn_jax.example_ids import PredictionsError, errors_of, match_ids, rows_of, some

COLUMNS: Mapping[str, Kind] = {
    "correct": "correct",
    "is_correct": "correct",
    "passed": "correct",
    "score": "score",
    "answer": "answer",
    "value": "value",
    "set": "set",
    "ranking": "ranking",
}
"""Columns that are outcomes, by their names."""

TARGET = (*LABEL, "reference", "expected")
INPUT = ("input", "prompt", "question", "input_hash")
RUNS = (*RUN, "epoch", "repeat", "sample")
_TRUE = ("true", "yes", "pass", "passed", "correct", "c", "1", "1.0")
_FALSE = ("false", "no", "fail", "failed", "incorrect", "i", "0", "0.0")
_ITEM = "\x1f"  # between the items of a list, as text
_MOST_ITEMS = 1000  # of a set or a ranking


@dataclasses.dataclass(frozen=True, eq=False)
class Outcomes:
    """Outcomes of one version: `R` runs on `N` examples.

    Attributes:
        name: what to call the version.
        runs: R.
        ids: `[N]` integers or strings; None if only their order identifies examples.
        kinds: name of each measure to what it is.
        columns: name to `[R, N]` float64, or an Arrow array of `R * N` texts, run by
            run.
        known: `[N]` whether every outcome is there.
        target: Arrow array `[N]`; None without one.
        inputs: Arrow array of texts `[N]`; None without one.
        others: Arrow columns `[N]`, by name, that are neither.
    """

    name: str
    runs: int
    ids: np.ndarray | None
    kinds: Mapping[str, Kind]
    columns: Mapping[str, Any]
    known: np.ndarray
    target: Any = None
    inputs: Any = None
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def outcome_columns(names: Sequence[str]) -> list[str]:
    """Those columns that are outcomes by their names."""
    return [name for name in names if name.strip().lower() in COLUMNS]


def read_outcomes(
    given: Any,
    name: str | None = None,
    *,
    score_columns: Sequence[str] = (),
    id_column: str | None = None,
    target_column: str | None = None,
) -> Outcomes:
    """Reads one version's outcomes.

    A table (`.jsonl`, `.csv`, `.parquet`, a data frame, a mapping of arrays) has a row
    per example, or per example and run: columns `correct` (0 or 1, true or false),
    `score` (a number), `answer` (a text), `value` (a number, with `target`), `set` or
    `ranking` (a list); perhaps `id`, `target`, `input` (`prompt`, `question`) and `run`
    (`epoch`, `repeat`, `sample`). An id that occurs R times, always equally often, has
    R runs. Logs of lm-evaluation-harness (`samples_*.jsonl`) and Inspect (`.eval`,
    `.json`) are read as such tables.

    Args:
        given: a path, a mapping of arrays, a data frame or an Arrow table.
        name: what to call the version; a path is called by its file name.
        score_columns: columns of numbers to compare, in place of the usual names.
        id_column: name of the column of ids, if it is not a usual one.
        target_column: the same for what is right.

    Raises:
        PredictionsError: it cannot be read, or has no outcomes.

    Example:
        >>> found = read_outcomes({"id": [4, 4, 9, 9], "correct": [1, 0, 1, 1]}, "v1")
        >>> found.runs, found.ids, found.columns["correct"]
        (2, array([4, 9]), array([[1., 1.],
               [0., 1.]]))
    """
    file = Path(given) if isinstance(given, str | os.PathLike) else None
    name = name or (file.name if file else "outcomes")
    with errors_of(file or name):
        log = read_log(file) if file else None
        if log is not None:
            table = log.table
            answers = [n for n in outcome_columns(table.column_names) if n == "answer"]
            kinds = {n: _kind_of(table.column(n)) for n in log.scores}
            kinds |= dict.fromkeys(answers, COLUMNS["answer"])
        else:
            contents = read_contents(given, id_column=id_column)
            table = contents.table
            if contents.arrays is not None:
                table = as_table(contents.arrays)
            if table is None:
                raise PredictionsError("outcomes must be columns with names")
            names = outcome_columns(table.column_names)
            kinds = {n: COLUMNS[n.strip().lower()] for n in names}
        if score_columns:
            kinds = dict.fromkeys(score_columns, COLUMNS["score"])
        return _outcomes(table, name, kinds, id_column, target_column)


def _kind_of(column: Any) -> Kind:
    """Whether a tool's numbers only say right and wrong."""
    found = set(column.drop_null().unique().to_pylist())
    return "correct" if found <= {0.0, 1.0} else "score"


def _outcomes(table, name, chosen: Mapping[str, Kind], id_column, target_column):
    names = table.column_names
    id_name = find_column(names, ID, id_column, "id")
    if missing := [n for n in chosen if n not in names]:
        raise PredictionsError(
            f"there is no column {missing[0]!r}, it has {some(names)}"
        )
    if not chosen:
        raise PredictionsError(
            f"there is no column of outcomes ({', '.join(COLUMNS)}), it has "
            f"{some(names)}; --score-column names one"
        )
    target_name = find_column(names, TARGET, target_column, "target")
    run_name = _first(names, RUNS)
    input_name = _first(names, INPUT)
    order, runs, ids = _runs(table, id_name, run_name)
    if order is not None:
        table = table.take(order)
    examples = table.num_rows // runs
    known = np.ones(examples, bool)
    columns = {}
    for column, kind in chosen.items():
        values, there = _READERS[kind](table.column(column), column)
        known &= there.reshape(runs, examples).all(axis=0)
        of_runs = isinstance(values, np.ndarray)
        columns[column] = values.reshape(runs, examples) if of_runs else values
    first = table.slice(0, examples)
    special = {id_name, run_name, *chosen}
    return Outcomes(
        name=name,
        runs=runs,
        ids=ids,
        kinds=dict(chosen),
        columns=columns,
        known=known,
        target=None if target_name is None else _one(first.column(target_name)),
        inputs=None if input_name is None else _text(_one(first.column(input_name))),
        others={n: _one(first.column(n)) for n in names if n not in special},
    )


def _first(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    lower = {name.strip().lower(): name for name in reversed(names)}
    return next((lower[name] for name in wanted if name in lower), None)


def _runs(table, id_name, run_name) -> tuple[Any, int, np.ndarray | None]:
    """The order of rows, run by run; how many runs; the ids of the examples."""
    if not table.num_rows:
        raise PredictionsError("there are no examples")
    if id_name is None:
        if run_name is not None and len(set(table.column(run_name).to_pylist())) > 1:
            raise PredictionsError(f"column {run_name} needs ids of the examples")
        return None, 1, None
    ids = as_ids(table.column(id_name))
    distinct, place, count = np.unique(ids, return_inverse=True, return_counts=True)
    if count.min() != count.max():
        few, many = distinct[count.argmin()], distinct[count.argmax()]
        raise PredictionsError(
            f"every example must have as many rows as runs; {few} has {count.min()}, "
            f"{many} has {count.max()}"
        )
    runs = int(count[0])
    if runs == 1:
        return None, 1, ids
    keys: list[Any] = [place]
    if run_name is not None:
        run = table.column(run_name).combine_chunks().dictionary_encode()
        named = np.argsort(np.argsort(np.array(run.dictionary.to_pylist())))
        keys.insert(0, named[run.indices.to_numpy()])
        both = np.unique(np.stack([place, keys[0]]), axis=1).shape[1]
        if both != len(ids):
            raise PredictionsError(f"an example has two rows of one {run_name}")
    by_example = np.lexsort(keys)  # stable: without a run, in the order of the file
    return by_example.reshape(-1, runs).T.reshape(-1), runs, distinct


def _one(column: Any) -> Any:
    """A column as one Arrow array."""
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if hasattr(whole, "chunks") else whole


def _text(column: Any) -> Any:
    """A column as texts."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_nested(kind):
        return pa.array([json.dumps(x, sort_keys=True) for x in column.to_pylist()])
    return column.cast(pa.large_string())


def _numbers(column: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow as pa

    whole = _one(column)
    if pa.types.is_string(whole.type) or pa.types.is_large_string(whole.type):
        whole = _blank_to_null(whole)
    try:
        numbers = whole.cast(pa.float64())
    except pa.ArrowException:
        if pa.types.is_boolean(whole.type):
            numbers = whole.cast(pa.int8()).cast(pa.float64())
        else:
            raise PredictionsError(f"column {name} must hold numbers") from None
    values = numbers.to_numpy(zero_copy_only=False)
    if count := int(np.isinf(values).sum()):
        raise PredictionsError(f"column {name} has {count} infinite numbers")
    return values, ~np.isnan(values)


def _blank_to_null(column: Any) -> Any:
    from pyarrow import compute

    pc: Any = compute
    blank = pc.equal(pc.utf8_trim_whitespace(column), "")
    return pc.if_else(blank, None, column)


def _truths(column: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow as pa

    whole = _one(column)
    if not (pa.types.is_string(whole.type) or pa.types.is_large_string(whole.type)):
        values, known = _numbers(column, name)
        odd = values[known & (values != 0) & (values != 1)]
        if odd.size:
            raise PredictionsError(
                f"column {name} must be 0 or 1, true or false; {odd.size} are not, for "
                f"example {some(odd)}; --score-column {name} compares numbers"
            )
        return values, known
    encoded = _blank_to_null(whole).dictionary_encode()
    found = [text.strip().lower() for text in encoded.dictionary.to_pylist()]
    if odd := [text for text in found if text not in (*_TRUE, *_FALSE)]:
        raise PredictionsError(
            f"column {name} must be 0 or 1, true or false; got {some(odd)}"
        )
    worth = np.array([float(text in _TRUE) for text in found] + [np.nan])
    places = encoded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
    values = worth[places]
    return values, ~np.isnan(values)


def _answers(column: Any, name: str) -> tuple[Any, np.ndarray]:
    import pyarrow as pa

    try:
        texts = _text(_one(column))
    except pa.ArrowException as error:
        raise PredictionsError(f"column {name} cannot be made text") from error
    return texts, ~np.asarray(texts.is_null())


def _lists(column: Any, name: str) -> tuple[Any, np.ndarray]:
    import pyarrow as pa
    from pyarrow import compute

    pc: Any = compute
    whole = _one(column)
    kind = whole.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        try:
            items = whole.cast(pa.large_list(pa.large_string()))
        except pa.ArrowException as error:
            raise PredictionsError(f"column {name} must hold lists of items") from error
        texts = pc.binary_join(items, _ITEM)
        return texts, ~np.asarray(texts.is_null())
    return _answers(column, name)


_READERS: dict[Kind, Callable[[Any, str], tuple[Any, np.ndarray]]] = {
    "correct": _truths,
    "score": _numbers,
    "value": _numbers,
    "answer": _answers,
    "set": _lists,
    "ranking": _lists,
}


def _listed(text: str) -> list[str]:
    """The items of a list that is written as a text."""
    if _ITEM in text or not text.strip():
        return text.split(_ITEM) if text else []
    if text.lstrip().startswith("["):
        try:
            return [str(item) for item in json.loads(text)]
        except (ValueError, TypeError, RecursionError):
            pass
    mark = next((mark for mark in ";|,\n" if mark in text), None)
    return [item.strip() for item in (text.split(mark) if mark else [text])]


@dataclasses.dataclass(frozen=True, eq=False)
class Joined:
    """Two versions, example by example.

    Attributes:
        measures: that both have.
        ids: `[N]`; row numbers where neither side has ids.
        clusters: `[N]` codes below their number; None where examples are independent.
        slices: name of a grouping to its `[N]` values.
        notes: what a user should know about the join.
    """

    measures: tuple[Measure, ...]
    ids: np.ndarray
    clusters: np.ndarray | None
    slices: Mapping[str, np.ndarray]
    notes: tuple[str, ...]


def join_outcomes(
    old: Outcomes,
    new: Outcomes,
    *,
    slices: Any = None,
    cluster: str | None = None,
    tolerance: float = 0.0,
    relative: bool = False,
    top: int | None = None,
    on_missing: Literal["error", "intersect"] = "error",
    inputs: bool = True,
    id_column: str | None = None,
) -> Joined:
    """Joins two versions example by example.

    Args:
        old: the version in use.
        new: the one that is to replace it.
        slices: see `read_slices`.
        cluster: column of either side, or of the slices, whose equal values mark
            examples that are not independent.
        tolerance: numbers this near count as equal.
        relative: whether `tolerance` is a share of the larger of both numbers.
        top: also compares the first `top` of every ranking, as sets.
        on_missing: "intersect" leaves out examples that a side lacks, or whose
            outcome it lacks.
        inputs: whether examples with another input under the same id are left out.
        id_column: name of the ids in the slices, if it is not a usual one.

    Raises:
        PredictionsError: they have no example or no measure in common.
    """
    notes: list[str] = []
    rows_old, rows_new, ids = _matched(old, new, on_missing, notes)
    keep = old.known[rows_old] & new.known[rows_new]
    if lacking := int((~keep).sum()):
        said = f"{lacking:,} of {len(keep):,} examples lack an outcome"
        if on_missing == "error":
            raise PredictionsError(
                f"{said}, for example {some(ids[~keep])}; --on-missing intersect "
                "leaves them out"
            )
        notes.append(f"{said} and are left out.")
    if inputs and old.inputs is not None and new.inputs is not None:
        same = _equal(_taken(old.inputs, rows_old), _taken(new.inputs, rows_new))
        if changed := int((keep & ~same).sum()):
            said = f"{changed:,} of {len(keep):,} examples have another input"
            if not (keep & same).any():
                raise PredictionsError(
                    f"{said} under the same id; if the prompt is what the update "
                    "changes, add --ignore-inputs"
                )
            example = some(ids[keep & ~same])
            notes.append(
                f"Warning: {said} under the same id and are left out: {example}."
            )
        keep &= same
    rows_old, rows_new, ids = rows_old[keep], rows_new[keep], ids[keep]
    if not len(ids):
        raise PredictionsError("no example is left to compare")
    common = {n: _common_kind(old.kinds[n], new.kinds.get(n)) for n in old.kinds}
    common = {name: kind for name, kind in common.items() if kind is not None}
    if not common:
        raise PredictionsError(
            f"no outcome is on both sides: {old.name} has {', '.join(old.kinds)}, "
            f"{new.name} has {', '.join(new.kinds)}"
        )
    if lone := sorted({*old.kinds, *new.kinds} - {*common}):
        notes.append(f"Only one side has {', '.join(lone)}, which is not compared.")
    measures = []
    for name, kind in common.items():
        measure = _measure(
            name, kind, old, new, rows_old, rows_new, tolerance, relative
        )
        measures.append(measure)
        if top is not None and measure.kind == "ranking":
            measures.append(_first_of(measure, top))
    groupings = {}
    if slices is not None:
        groupings = _slices(read_slices(slices, id_column), ids, old.ids is not None)
    clusters = None
    if cluster is not None:
        values = groupings.pop(cluster, None)
        if values is None:
            values = _cluster(cluster, (old, rows_old), (new, rows_new))
        clusters = np.unique(values, return_inverse=True)[1].reshape(-1)
    return Joined(tuple(measures), ids, clusters, groupings, tuple(notes))


def _matched(old, new, on_missing, notes):
    if (old.ids is None) != (new.ids is None):
        lacking = old.name if old.ids is None else new.name
        raise PredictionsError(f"{lacking} has no ids and the other side has")
    if old.ids is None:
        if len(old.known) != len(new.known):
            raise PredictionsError(
                f"{old.name} has {len(old.known)} examples, {new.name} "
                f"{len(new.known)}, and without ids they cannot be matched"
            )
        notes.append("There are no ids: examples are matched by the order of rows.")
        rows = np.arange(len(old.known))
        return rows, rows, rows
    found = match_ids(old.ids, new.ids)
    alone = len(found.only_a) + len(found.only_b)
    if alone:
        said = (
            f"{len(found.only_a):,} examples are only in {old.name} and "
            f"{len(found.only_b):,} only in {new.name}"
        )
        if on_missing == "error" or not len(found.ids):
            which = some([*found.only_a[:2], *found.only_b[:2]])
            raise PredictionsError(
                f"{said}, for example {which}; --on-missing intersect compares the rest"
            )
        notes.append(f"{said}; they are left out.")
    if counts_rows(np.sort(found.ids)) and len(found.ids) > 1:
        notes.append("Ids count the rows: both files must keep the same order.")
    return found.rows_a, found.rows_b, found.ids


def _taken(column: Any, rows: np.ndarray) -> Any:
    return column.take(rows)


def _equal(a: Any, b: Any) -> np.ndarray:
    from pyarrow import compute

    pc: Any = compute
    return np.asarray(pc.fill_null(pc.equal(a, b), True))


def _common_kind(old: Kind, new: Kind | None) -> Kind | None:
    if {old, new} == {"correct", "score"}:
        return "score"  # a side without partial marks
    return old if old == new else None


def _measure(name, kind, old, new, rows_old, rows_new, tolerance, relative) -> Measure:
    target = next(
        (
            _taken(side.target, rows)
            for side, rows in ((new, rows_new), (old, rows_old))
            if side.target is not None
        ),
        None,
    )
    if kind in ("correct", "score", "value"):
        truth = None
        if kind == "value" and target is not None:
            truth, known = _numbers(target, "target")
            if not known.all():
                raise PredictionsError(f"{int((~known).sum())} targets are missing")
        slack = tolerance if kind != "correct" else 0.0
        before, after = old.columns[name][:, rows_old], new.columns[name][:, rows_new]
        return Measure(name, kind, before, after, None, truth, slack, relative)
    return _coded(name, kind, old, new, rows_old, rows_new, target)


def _coded(name, kind, old, new, rows_old, rows_new, target) -> Measure:
    """Texts, sets and rankings as places in what there is on either side."""
    import pyarrow as pa

    def chosen(side, rows):
        places = (np.arange(side.runs)[:, None] * len(side.known) + rows).reshape(-1)
        return side.columns[name].take(places)

    texts = [chosen(old, rows_old), chosen(new, rows_new)]
    if target is not None:
        read = _lists if kind in ("set", "ranking") else _answers
        goal, known = read(target, "target")
        if not known.all():
            raise PredictionsError(f"{int((~known).sum())} targets are missing")
        texts.append(goal)
    whole = pa.concat_arrays([text.cast(pa.large_string()) for text in texts])
    plain = normalized(whole) if kind == "answer" else whole
    encoded = plain.dictionary_encode()
    places, things = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    if kind != "answer":
        lists = [_listed(text) for text in things]
        if longest := max(map(len, lists), default=0) > _MOST_ITEMS:
            raise PredictionsError(
                f"column {name} has a list of {longest} items; at most {_MOST_ITEMS}"
            )
        shaped = [
            tuple(sorted(set(items))) if kind == "set" else tuple(dict.fromkeys(items))
            for items in lists
        ]
        numbers = {thing: i for i, thing in enumerate(dict.fromkeys(shaped))}
        places = np.array([numbers[thing] for thing in shaped])[places]
        things = list(numbers)
    ends = np.cumsum([len(text) for text in texts])
    before, after, *goals = np.split(places, ends[:-1])
    count = len(rows_old)
    shown = None
    if kind == "answer":
        shown = tuple(
            text.to_numpy(zero_copy_only=False).reshape(-1, count) for text in texts[:2]
        )
    return Measure(
        name,
        kind,
        before.reshape(-1, count),
        after.reshape(-1, count),
        things,
        goals[0] if goals else None,
        shown=shown,
    )


def _first_of(ranking: Measure, top: int) -> Measure:
    """The first `top` items of every ranking, as sets."""
    assert ranking.things is not None
    sets = [tuple(sorted(items[:top])) for items in ranking.things]
    numbers = {items: i for i, items in enumerate(dict.fromkeys(sets))}
    place = np.array([numbers[items] for items in sets])
    return dataclasses.replace(
        ranking,
        name=f"{ranking.name}, first {top}",
        kind="set",
        old=place[ranking.old],
        new=place[ranking.new],
        things=list(numbers),
        target=None if ranking.target is None else place[ranking.target],
    )


def _slices(found, ids: np.ndarray, named: bool) -> dict[str, np.ndarray]:
    if found.ids is None or not named:
        if any(len(values) != len(ids) for values in found.slices.values()):
            raise PredictionsError(
                f"slices without ids must be of the {len(ids)} examples compared"
            )
        return dict(found.slices)
    rows = rows_of(ids, found.ids)
    if (rows < 0).all():
        raise PredictionsError("the slices have none of the examples compared")
    return {n: np.where(rows >= 0, v[rows], "") for n, v in found.slices.items()}


def _cluster(column: str, *sides: tuple[Outcomes, np.ndarray]) -> np.ndarray:
    for side, rows in sides:
        if column in side.others:
            return np.asarray(_text(_taken(side.others[column], rows)).to_pylist(), "U")
    raise PredictionsError(f"there is no column {column!r} to cluster by")


def has_outcomes(path: Path) -> bool:
    """Whether a file holds outcomes and no predicted classes, by its columns."""
    name = path.name.lower()
    if not path.is_file():
        return False
    if name.endswith((".eval", ".json")):
        return True
    if name.endswith(".jsonl"):
        names = list(next(json_lines(path), {}))
        if {"doc_id", "filtered_resps"} <= set(names):
            return True
    elif name.endswith(".csv"):
        with open(path, encoding="utf-8-sig", newline="", errors="replace") as file:
            names = next(csv.reader(file), [])
    elif name.endswith(".parquet"):
        import pyarrow.parquet as parquet

        try:
            names = parquet.read_schema(path).names
        except (OSError, ValueError):
            return False  # whoever reads it says what is wrong
    else:
        return False
    lower = [column.strip().lower() for column in names]
    if any(column in (*SCORES, *PREDICTION) for column in lower):
        return False
    return bool(outcome_columns(names)) and class_scores(names, None) is None
