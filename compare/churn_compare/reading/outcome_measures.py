"""Outcomes of joined examples as measures: numbers, or indices of distinct values."""

import ast
import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

import numpy as np

from churn_compare.example_ids import PredictionsError, check_choice, some, twice
from churn_compare.measures import WHOLE, Kind, Measure, Normalization, normalized
from churn_compare.number_text import counted
from churn_compare.pair import Table
from churn_compare.reading import arrow
from churn_compare.reading.account import Doubt
from churn_compare.reading.outcomes import ITEM, answers_of, lists_of, numbers_of

_FEW = 10  # examples of which none may be right by chance
_TARGETS = {"value": numbers_of, "set": lists_of, "ranking": lists_of}
_MOST_ITEMS = 1000  # of a set or a ranking
# Lists, tuples and sets of Python and arrays of NumPy, as texts.
_CALL = re.compile(r"^(?:frozenset|set|array)\((.*?)(?:, *dtype=.*)?\)$", re.DOTALL)
_ADJACENT = re.compile(r"(['\"])\s+\1")
_BRACKETS = re.compile(r"[\[{](.*)[\]}]", re.DOTALL)
_PART = re.compile(r"'[^']*'|\"[^\"]*\"|[\d.e+-]+")
_PARTED = re.compile(rf"\s*((?:{_PART.pattern})(\s+|$))*")


def _listed(text: str) -> list[str]:
    """The items of a list, as one text for every form of files."""
    return [re.sub(WHOLE, r"\1", item) for item in _items(text)]


def _items(text: str) -> list[str]:
    """The items of a list that is written as a text."""
    if text.startswith(ITEM):  # it was a list
        return text[1:].split(ITEM) if text[1:] else []
    if not text.strip():
        return []
    text = _CALL.sub(r"\1", text.strip()) or "[]"  # set() is empty
    if not _ADJACENT.search(text):
        for read in (json.loads, ast.literal_eval) if text[0] in "[{(" else ():
            try:
                found = read(text)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
            if isinstance(found, list | tuple | set):
                return [
                    str(x).lower() if isinstance(x, bool) else str(x) for x in found
                ]
    inside = _BRACKETS.fullmatch(text)
    text = inside[1] if inside else text
    mark = next((mark for mark in ";|,\n" if mark in text), None)
    if inside and mark in ("\n", None) and _PARTED.fullmatch(text):
        return [part.strip("'\"") for part in _PART.findall(text)]
    items = text.split(mark) if mark else [text]
    return [item.strip() for item in items]


def common_measures(old: Table, new: Table) -> dict[str, Kind]:
    """The outcomes that two versions have in common, and what they are compared as."""
    kinds, common = (old.measures, new.measures), {}
    for name, kind in kinds[0].items():
        if {kind, kinds[1].get(name)} == {"correct", "score"}:
            common[name] = "score"  # a side without partial marks
        elif kind == kinds[1].get(name):
            common[name] = kind
    if not common:
        raise PredictionsError(
            f"no outcome is on both sides: {old.name} has {', '.join(kinds[0])}, "
            f"{new.name} has {', '.join(kinds[1])}"
        )
    return common


def measures_of(
    old: tuple[Table, np.ndarray],
    new: tuple[Table, np.ndarray],
    *,
    normalize: Normalization = "text",
    tolerance: float = 0.0,
    relative: bool = False,
    top: int | None = None,
) -> tuple[list[Measure], list[str]]:
    """The outcomes that two versions have in common, each on its rows, and notes."""
    check_choice("normalize", normalize, get_args(Normalization))
    common = common_measures(old[0], new[0])
    notes, measures = [], []
    if lone := sorted({*old[0].measures, *new[0].measures} - {*common}):
        notes.append(f"Only one side has {', '.join(lone)}, which is not compared.")
    for name, kind in common.items():
        if kind not in ("correct", "score", "value"):
            measures.append(_coded(name, kind, old, new, normalize))
            for side, rows in (old, new) if kind == "answer" else ():
                blank = arrow.equal(arrow.utf8_trim_whitespace(side.at(rows, name)), "")
                if empty := arrow.sum(blank).as_py():
                    notes.append(
                        f"{side.name} has {counted(empty, 'empty answer')} in column "
                        f"{name}, compared as given: null in JSON or Parquet is none."
                    )
            if top is not None and kind == "ranking":
                measures.append(_first_of(measures[-1], top))
            continue
        values = (side.at(rows, name) for side, rows in (old, new))
        near: dict[str, Any] = {"relative": relative}
        near |= {"tolerance": tolerance if kind != "correct" else 0.0}
        less = kind == "score" and _less(name, old[0], new[0])
        target = target_of(kind, old, new) if kind == "value" else None
        measures.append(
            Measure(name, kind, *values, target=target, lower_is_better=less, **near)
        )
    found = {of.kind for of in measures}
    for option, given, kinds in (
        ("top", top is not None, ("ranking",)),
        ("normalize", normalize != "text", ("answer",)),
        ("tolerance", tolerance > 0, ("score", "value", "set", "ranking")),
    ):
        if given and not found & {*kinds}:
            what = ", ".join(f"{kind}s" for kind in kinds)
            raise PredictionsError(
                f"{option} is for {what}, and there are none; leave it out"
            )
    return measures, notes


def errors_as_wrong(side: Table, names: Iterable[str]) -> Table:
    """The side with 0 or an empty answer where a tool could not evaluate."""
    if side.errored is None or not side.errored.any():
        return side
    columns = dict(side.columns)
    for name in names:
        values, kind = columns[name], side.measures[name]
        if kind == "answer":
            blank = arrow.array(side.errored.reshape(-1))
            columns[name] = arrow.if_else(blank, "", values)
            continue
        if kind != "correct" and (
            kind != "score" or side.less.get(name) or np.nanmin(values) < 0
        ):
            raise PredictionsError(
                f"{name} has no value that stands for wrong; --errors drop leaves "
                "out what could not be evaluated"
            )
        columns[name] = np.where(side.errored, 0.0, values)
    return dataclasses.replace(side, columns=columns)


def never_right(measures, old, new, normalize) -> list[Doubt]:
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


def _less(name: str, *sides: Table) -> bool:
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
    kind: Kind, *sides: tuple[Table, np.ndarray], normalize: Normalization = "text"
) -> Any:
    """The expected outcome, on which all sides must agree; None without one."""
    read = _TARGETS.get(kind, answers_of)
    given = [(side, rows) for side, rows in sides if side.target is not None]
    found = [read(side.target.take(rows), "target") for side, rows in given]
    if lacking := sum(int((~known).sum()) for _, known in found):
        raise PredictionsError(f"{lacking} targets are missing")
    for side, rows in given[1:]:
        first, first_rows = given[0]
        columns = first.target.take(first_rows), side.target.take(rows)
        if (differ := ~same_targets(*columns, kind, normalize)).any():
            where = rows if side.ids is None else np.asarray(side.ids)[rows]
            raise PredictionsError(
                f"targets of {int(differ.sum()):,} of {len(rows):,} examples differ "
                f"between {first.name} and {side.name}, for example "
                f"{some(where[differ])}"
            )
    return found[0][0] if found else None


def same_targets(
    a: Any, b: Any, kind: Kind = "answer", normalize: Normalization = "text"
) -> np.ndarray:
    """Where two columns of targets are equal, or one has none."""
    same = np.zeros(len(a), bool)
    if kind in ("set", "ranking"):
        shape: Callable = set if kind == "set" else list
        texts = (arrow.utf8_normalize(lists_of(x, "target")[0], "NFC") for x in (a, b))
        pairs = zip(*(of.to_pylist() for of in texts))
        same = np.array(
            [None in x or shape(_listed(x[0])) == shape(_listed(x[1])) for x in pairs]
        )
    elif kind != "value":
        texts = (normalized(answers_of(of, "target")[0], normalize) for of in (a, b))
        same = np.array(arrow.fill_null(arrow.equal(*texts), True))
    with contextlib.suppress(PredictionsError):  # 1 and 1.0 are equal
        first, second = (numbers_of(of, "target")[0] for of in (a, b))
        same |= first == second
    return same


def _coded(
    name: str,
    kind: Kind,
    old: tuple[Table, np.ndarray],
    new: tuple[Table, np.ndarray],
    normalize: Normalization,
) -> Measure:
    """Texts, sets and rankings as indices of the distinct values of both sides."""
    texts = [side.at(rows, name) for side, rows in (old, new)]
    named, count = kind in ("answer", "label"), len(old[1])
    goal = target_of(kind, old, new, normalize=normalize)
    texts += [] if goal is None else [goal]
    plain = arrow.concat_arrays([text.cast(arrow.large_string()) for text in texts])
    if kind == "answer":
        plain = normalized(plain, normalize)
    elif not named:
        plain = arrow.utf8_normalize(plain, "NFC")
    encoded = plain.dictionary_encode()
    places, things = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    if not named:
        lists = [_listed(text) for text in things]
        if (longest := max(map(len, lists), default=0)) > _MOST_ITEMS:
            raise PredictionsError(
                f"column {name} has a list of {longest} items; at most {_MOST_ITEMS}"
            )
        if kind == "ranking" and (again := [i for of in lists for i in twice(of)]):
            raise PredictionsError(
                f"column {name} has rankings with an item twice, for example "
                f"{some(again)}; keep its first place"
            )
        shaped = [tuple(sorted(set(of)) if kind == "set" else of) for of in lists]
        things, place = _placed(shaped)
        places = place[places]
    before, after, *goals = np.split(places, np.cumsum([*map(len, texts)])[:-1])
    shown = None
    if named:
        shown = {
            side: text.to_numpy(zero_copy_only=False).reshape(-1, count)
            for side, text in zip(("old", "new", "target"), texts)
        }
    was, now = (of.reshape(-1, count) for of in (before, after))
    target = goals[0] if goals else None
    return Measure(name, kind, was, now, things, target, shown=shown)


def _placed(things: Sequence[tuple]) -> tuple[list[tuple], np.ndarray]:
    """The distinct values, and the index of each given value."""
    place = {thing: i for i, thing in enumerate(dict.fromkeys(things))}
    return list(place), np.array([place[thing] for thing in things])


def _first_of(ranking: Measure, top: int) -> Measure:
    """The first `top` items of every ranking, as sets."""
    sets, place = _placed([tuple(sorted(of[:top])) for of in ranking.things or ()])
    goal = ranking.target
    codes: dict[str, Any] = {"old": place[ranking.old], "new": place[ranking.new]}
    codes |= {"target": None if goal is None else place[goal]}
    name = f"{ranking.name}, first {top}"
    return dataclasses.replace(ranking, name=name, kind="set", things=sets, **codes)
