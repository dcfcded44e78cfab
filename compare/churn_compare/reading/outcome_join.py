"""Outcomes of two versions joined: the same examples, inputs and measures."""

import ast
import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from churn_compare.example_ids import PredictionsError, some
from churn_compare.measures import (
    NORMALIZATIONS,
    Kind,
    Measure,
    Normalization,
    normalized,
)
from churn_compare.reading.account import Doubt, settle
from churn_compare.reading.class_values import arrow_compute
from churn_compare.reading.ids import counts_rows, ids_without_space
from churn_compare.reading.labels import (
    cluster_numbers,
    from_zero,
    read_clusters,
    read_slices,
    without_clusters,
)
from churn_compare.reading.outcomes import (
    ITEM,
    Outcomes,
    answers_of,
    lists_of,
    numbers_of,
    text_of,
)
from churn_compare.reading.rows import Rows

Errors = Literal["wrong", "drop", "refuse"]
_FEW = 10  # examples of which none may be right by chance
_MOST_ITEMS = 1000  # of a set or a ranking
# Lists, tuples and sets of Python and arrays of NumPy, as texts.
_CALL = re.compile(r"^(?:frozenset|set|array)\((.*?)(?:, *dtype=.*)?\)$", re.DOTALL)
_ADJACENT = re.compile(r"(['\"])\s+\1")
_BRACKETS = re.compile(r"[\[{](.*)[\]}]", re.DOTALL)
_PART = re.compile(r"'[^']*'|\"[^\"]*\"|[\d.e+-]+")
_PARTED = re.compile(rf"\s*((?:{_PART.pattern})(\s+|$))*")


def _listed(text: str) -> list[str]:
    """The items of a list that is written as a text."""
    if ITEM in text or not text.strip():
        return text.split(ITEM) if text else []
    text = _CALL.sub(r"\1", text.strip()) or "[]"  # set() is empty
    if not _ADJACENT.search(text):
        for read in (json.loads, ast.literal_eval) if text[0] in "[{(" else ():
            try:
                found = read(text)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
            if isinstance(found, list | tuple | set):
                return [str(item) for item in found]
    inside = _BRACKETS.fullmatch(text)
    text = inside[1] if inside else text
    mark = next((mark for mark in ";|,\n" if mark in text), None)
    if inside and mark in ("\n", None) and _PARTED.fullmatch(text):
        return [part.strip("'\"") for part in _PART.findall(text)]
    items = text.split(mark) if mark else [text]
    return [item.strip() for item in items]


@dataclasses.dataclass(frozen=True, eq=False)
class Joined:
    """Two versions, example by example."""

    measures: tuple[Measure, ...]
    ids: np.ndarray
    clusters: np.ndarray | None
    slices: Mapping[str, np.ndarray]
    notes: tuple[str, ...]
    cluster_column: str = ""  # that the clusters are from, "" if from none


def join_outcomes(
    old: Outcomes,
    new: Outcomes,
    *,
    slices: Any = None,
    by: Sequence[str] = (),
    clusters: Any = None,
    tolerance: float = 0.0,
    relative: bool = False,
    normalize: Normalization = "text",
    top: int | None = None,
    on_missing: Literal["error", "intersect"] = "error",
    confirm: Sequence[str] = (),
    strip: bool = False,
    id_column: str | None = None,
    errors: Errors | None = None,
) -> Joined:
    """Joins two versions example by example."""
    if normalize not in NORMALIZATIONS:
        known = ", ".join(NORMALIZATIONS)
        raise ValueError(f"normalize takes {known}; got {normalize!r}")
    if strip:
        old, new = (
            dataclasses.replace(s, ids=ids_without_space(s.ids)) for s in (old, new)
        )
    rows = Rows(old, new, on_missing == "intersect", confirm)
    notes, ids, rows_old, rows_new = rows.notes, rows.ids, rows.old, rows.new
    inputs = old.inputs is not None and new.inputs is not None
    if old.ids is not None and not inputs and len(ids) > 1 and counts_rows(ids):
        notes.append("Ids count the rows: both files must keep the same order.")
    sides = ((old, rows_old), (new, rows_new))
    belonging, column = None, isinstance(clusters, str)
    if column and (slices is None or clusters in {**old.rest, **new.rest}):
        belonging = cluster_numbers(_column(clusters, notes, *sides), clusters)
    elif clusters is not None:
        found = read_clusters(clusters, (slices,), id_column)
        slices = without_clusters(slices, found, id_column)
        belonging = rows.clusters_of(found)
    groupings = {}
    if slices is not None:
        groupings = rows.values_of(read_slices(slices, id_column))
    groupings |= {column: _column(column, notes, *sides) for column in by}
    failed = [of.failed[at] for of, at in ((old, rows_old), (new, rows_new))]
    notes += _errors(errors, [int(of.sum()) for of in failed], old, new)
    keep = np.ones(len(ids), bool)
    if errors == "drop":
        keep = ~(failed[0] | failed[1])
    else:
        old, new = old.errors_as_wrong(), new.errors_as_wrong()
    rows_old, rows_new, ids = rows_old[keep], rows_new[keep], ids[keep]
    groupings = {name: values[keep] for name, values in groupings.items()}
    belonging = None if belonging is None else belonging[keep]
    keep = old.known[rows_old] & new.known[rows_new]
    if lacking := int((~keep).sum()):
        lost = [int((~of).sum()) for of in (old.known[rows_old], new.known[rows_new])]
        said = (
            f"{lacking:,} of {len(keep):,} examples lack an outcome ({lost[0]:,} in "
            f"{old.name}, {lost[1]:,} in {new.name})"
        )
        if on_missing == "error":
            raise PredictionsError(
                f"{said}, for example {some(ids[~keep])}; --on-missing intersect "
                "leaves them out"
            )
        notes.append(f"{said} and are left out.")
    if inputs and "inputs" not in confirm:
        same = equal(old.inputs.take(rows_old), new.inputs.take(rows_new))
        if changed := int((keep & ~same).sum()):
            said = f"{changed:,} of {len(keep):,} examples have another input"
            if not (keep & same).any():
                raise PredictionsError(
                    f"{said} under the same id; if the prompt is what the update "
                    "changes, add --confirm inputs"
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
    sides = ((old, rows_old), (new, rows_new))
    measures = []
    for name, kind in common.items():
        if kind not in ("correct", "score", "value"):
            measure = _coded(name, kind, *sides, normalize)
        else:
            measure = _numbers(name, kind, *sides, tolerance, relative)
        measures.append(measure)
        if top is not None and measure.kind == "ranking":
            measures.append(_first_of(measure, top))
    if belonging is not None:
        belonging, said = from_zero(belonging[keep])
        notes += said
    notes += settle(_never_right(measures, old, new, normalize), confirm)
    groupings = {name: values[keep] for name, values in groupings.items()}
    named = clusters if column else ""
    return Joined(tuple(measures), ids, belonging, groupings, tuple(notes), named)


def _errors(
    policy: Errors | None, counts: Sequence[int], old: Outcomes, new: Outcomes
) -> list[str]:
    """What is done with examples that a tool could not evaluate."""
    if not any(counts):
        return []
    said = f"{counts[0]:,} examples errored in {old.name}, {counts[1]:,} in {new.name}"
    if policy == "refuse" or (policy is None and counts[0] != counts[1]):
        raise PredictionsError(
            f"{said}; --errors wrong counts them as wrong, --errors drop leaves them "
            "out of both"
        )
    done = "are left out of both" if policy == "drop" else "count as wrong"
    return [f"Warning: {said}, and {done}."]


def _never_right(measures, old, new, normalize) -> list[Doubt]:
    """Sides of which no text is like its target: the two may be written differently."""
    found = {}
    for measure in measures:
        of_things = measure.things is not None and measure.target is not None
        if not of_things or measure.kind == "label" or measure.examples < _FEW:
            continue
        for side, name, runs in ((old, "old", measure.old), (new, "new", measure.new)):
            if any(measure.worth(run).any() for run in runs):
                continue
            said, goal = (measure.text(of, 0)[:60] for of in (name, "target"))
            sentence = (
                f"no {measure.name} of {side.name} is like its target, for example "
                f"{said!r} and {goal!r}"
            )
            if measure.kind == "answer" and normalize != "squad":
                sentence += "; --normalize squad ignores punctuation and articles"
            found[side.name] = Doubt("never-right", sentence)
    return list(found.values())


def equal(a: Any, b: Any) -> np.ndarray:
    """Where two Arrow arrays of texts are equal, or one has none."""
    pc = arrow_compute()
    return np.asarray(pc.fill_null(pc.equal(a, b), True))


def _common_kind(old: Kind, new: Kind | None) -> Kind | None:
    if {old, new} == {"correct", "score"}:
        return "score"  # a side without partial marks
    return old if old == new else None


def _numbers(name, kind, old, new, tolerance, relative) -> Measure:
    before, after = (side.at(rows, name) for side, rows in (old, new))
    return Measure(
        name,
        kind,
        before,
        after,
        target=target_of(numbers_of, old, new) if kind == "value" else None,
        tolerance=tolerance if kind != "correct" else 0.0,
        relative=relative,
        lower_is_better=kind == "score" and _less(name, old[0], new[0]),
    )


def _less(name: str, *sides: Outcomes) -> bool:
    """Return True if less of a score is better, on which both sides must agree."""
    known = {side.less[name] for side in sides if name in side.less}
    if len(known) > 1:
        raise PredictionsError(
            f"more of {name} is better by one log and less by the other; "
            f"--lower-is-better {name} decides"
        )
    return any(known)


def directions(measures: Sequence[Measure]) -> tuple[str, ...]:
    """One sentence about the scores: which of them should rise, which should fall."""
    scores = [(m.name, m.lower_is_better) for m in measures if m.kind == "score"]
    less, more = ([name for name, low in scores if low is of] for of in (True, False))
    found = [f"less is better in {', '.join(less)}"] if less else []
    if more:
        other = "(--lower-is-better NAME says otherwise)"
        found.append(f"more is better in {', '.join(more)} {other}")
    return (f"Scores: {'; '.join(found)}.",) if found else ()


def target_of(
    read: Callable,
    *sides: tuple[Outcomes, np.ndarray],
    normalize: Normalization = "text",
) -> Any:
    """What is right, on which all sides must agree; None if none says."""
    given = [(side, rows) for side, rows in sides if side.target is not None]
    found = [read(side.target.take(rows), "target") for side, rows in given]
    if lacking := sum(int((~known).sum()) for _, known in found):
        raise PredictionsError(f"{lacking} targets are missing")
    for (side, rows), (right, _) in zip(given[1:], found[1:], strict=True):
        first, first_rows = given[0]
        try:
            columns = first.target.take(first_rows), side.target.take(rows)
            a, b = (numbers_of(column, "target")[0] for column in columns)
            differ = a != b
        except PredictionsError:
            texts = (normalized(text, normalize) for text in (found[0][0], right))
            differ = ~equal(*texts)
        if differ.any():
            where = rows if side.ids is None else np.asarray(side.ids)[rows]
            raise PredictionsError(
                f"targets of {int(differ.sum()):,} of {len(rows):,} examples differ "
                f"between {first.name} and {side.name}, for example "
                f"{some(where[differ])}"
            )
    return found[0][0] if found else None


def _coded(name, kind, old, new, normalize) -> Measure:
    """Texts, sets and rankings as places in what there is on either side."""
    import pyarrow as pa

    pc = arrow_compute()

    texts = [side.at(rows, name) for side, rows in (old, new)]
    read = lists_of if kind in ("set", "ranking") else answers_of
    goal = target_of(read, old, new, normalize=normalize)
    if goal is not None:
        texts.append(goal)
    plain = pa.concat_arrays([text.cast(pa.large_string()) for text in texts])
    if kind == "answer":
        plain = normalized(plain, normalize)
    elif kind != "label":
        plain = pc.utf8_normalize(plain, "NFC")
    encoded = plain.dictionary_encode()
    places, things = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    if kind not in ("answer", "label"):
        lists = [_listed(text) for text in things]
        if (longest := max(map(len, lists), default=0)) > _MOST_ITEMS:
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
    count = len(old[1])
    shown = None
    if kind in ("answer", "label"):
        shown = {
            side: text.to_numpy(zero_copy_only=False).reshape(-1, count)
            for side, text in zip(("old", "new", "target"), texts)
        }
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


def _column(
    column: str, notes: list[str], *sides: tuple[Outcomes, np.ndarray]
) -> np.ndarray:
    """A column of the old side, or else of the new one, as `[N]` strings."""
    found = []
    for side, rows in sides:
        if column in side.rest:
            values = text_of(side.rest[column].take(rows)).to_pylist()
            found.append(np.array(["" if value is None else value for value in values]))
    if not found:
        known = dict.fromkeys(name for side, _ in sides for name in side.rest)
        there = some([*known]) or "none"
        raise PredictionsError(f"there is no column {column!r}; others are {there}")
    if differ := int(np.sum(found[0] != found[-1])):
        notes.append(
            f"Warning: {column} differs between the two sides for {differ:,} of "
            f"{len(found[0]):,} examples; that of {sides[0][0].name} is taken."
        )
    return found[0]
