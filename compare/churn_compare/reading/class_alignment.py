"""The classes of two versions as one list, and labels as numbers in that list."""

import csv
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from churn_compare.example_ids import PredictionsError, errors_of, some
from churn_compare.pair import Table
from churn_compare.reading.account import Doubt
from churn_compare.reading.class_values import (
    NO_LABEL,
    ClassValues,
    all_numbers,
    as_number,
    is_truth,
    without_space,
)
from churn_compare.reading.ids import ids_without_space
from churn_compare.reading.spelling import composed, similar_classes, stripped, twice
from churn_compare.store import sample_rows, sampled

_Labels = Sequence[ClassValues | None]  # of the old side, the new one and a file


def read_class_map(given: Any) -> dict[str, str] | Literal["identity"] | None:
    """Reads a class map."""
    if given is None or (isinstance(given, str) and given == "identity"):
        return given
    if isinstance(given, Mapping):
        return _checked(list(given.items()))
    if not isinstance(given, str | os.PathLike):
        raise PredictionsError(
            "a class map is 'identity', a mapping or a file; got "
            f"{type(given).__name__}"
        )
    path = Path(given)
    if not path.is_file():
        hint = " (a map may also be 'identity')" if path.suffix == "" else ""
        raise PredictionsError(f"{path}: there is no such file{hint}")
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".json":
            pairs = json.loads(text, object_pairs_hook=list)
        elif path.suffix.lower() == ".csv":
            pairs = _from_csv(text)
        else:
            raise PredictionsError("a class map must be a .json or a .csv file")
        if not isinstance(pairs, list) or not all(
            isinstance(pair, tuple) and len(pair) == 2 for pair in pairs
        ):
            raise PredictionsError("a class map must be one object, old class: new")
        return _checked(pairs)
    except PredictionsError as error:
        raise PredictionsError(f"{path}: {error}") from error
    except (ValueError, RecursionError, csv.Error) as error:
        why = " ".join(str(error).split())
        raise PredictionsError(f"{path}: cannot be read, {why}") from error


def _from_csv(text: str) -> list[tuple[str, str]]:
    rows = list(csv.reader(text.splitlines()))
    if not rows or [name.strip().lower() for name in rows[0]] != ["old", "new"]:
        raise PredictionsError("a class map must have the columns old and new")
    odd = [i + 1 for i, row in enumerate(rows) if row and len(row) != 2]
    if odd:
        raise PredictionsError(f"lines {some(odd)} do not have two values")
    return [(row[0], row[1]) for row in rows[1:] if row]


def _checked(pairs: list[tuple[Any, Any]]) -> dict[str, str]:
    text = [(_text(old), _text(new)) for old, new in pairs]
    if not text:
        raise PredictionsError("the class map is empty")
    found = dict(text)
    if len({stripped(old) for old in found}) < len(text):
        again = sorted(twice(stripped(old) for old, _ in text))
        raise PredictionsError(f"the class map maps old classes {some(again)} twice")
    if again := sorted(twice(found.values())):
        olds = " and ".join(old for old, new in text if new == again[0])
        raise PredictionsError(
            f"the class map maps two old classes to one new class: {olds} to {again[0]}"
        )
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        if not (hasattr(value, "dtype") and value.dtype.kind in "iuU"):
            raise PredictionsError(f"a class map is of numbers or names; got {value!r}")
    return composed(str(value))


def aligned(
    old: Table,
    new: Table,
    rows: Any,
    separate: ClassValues | None,
    drawn: Any,
    class_map: Any,
    notes: list[str],
) -> tuple[dict[str, Any], list[Doubt]]:
    """Fields of a `Pair` about its classes and labels, and doubts about them."""
    given = [
        None if of.labels is None else ClassValues(of.labels[at], of.label_names)
        for of, at in ((old, rows.old), (new, rows.new))
    ]
    given.append(separate)
    labelled = [of and of.known() for of in given]
    found = align_classes(old, new, labelled, class_map)
    columns = np.arange(old.classes) if found.columns is None else found.columns
    names_of = (old.name, new.name, "the separate labels")
    truth, first = None, ""
    for name, of, numbers in zip(names_of, given, found.labels, strict=True):
        if of is None or numbers is None:
            continue
        of_all = np.full(len(rows.ids), NO_LABEL, np.int64)
        of_all[of.numbers != NO_LABEL] = numbers
        if truth is None:
            truth, first = of_all, name
            continue
        differ = (of_all != NO_LABEL) & (truth != NO_LABEL) & (of_all != truth)
        if differ.any():
            raise PredictionsError(
                f"labels of {int(differ.sum()):,} of {len(rows.ids):,} examples differ "
                f"between {first} and {name}, for example ids {some(rows.ids[differ])}"
            )
        truth = np.where(truth != NO_LABEL, truth, of_all)
    count = 0 if truth is None else int((truth != NO_LABEL).sum())
    partial = truth is not None and count < len(truth)
    if partial and drawn is None:
        notes.append(
            f"{count:,} of {len(truth):,} examples have a label: those that change "
            "need one, and only NFR, PFR and their difference are known."
        )
    names = found.names or range(found.classes)
    if "classes" not in (old.kind, new.kind):  # else more classes may be known
        only_new = np.setdiff1d(np.arange(new.classes), columns)
        only_old = columns[columns >= new.classes]
        notes += [
            f"{len(only)} of {side.classes} classes are only in {side.name}: "
            f"{some([names[c] for c in only])}."
            for side, only in ((old, only_old), (new, only_new))
            if len(only)
        ]
    seen = {c for of in found.labels if of is not None for c in np.unique(of).tolist()}
    similar = similar_classes(
        found.names or (), [columns.tolist(), range(new.classes)], seen
    )
    if found.classes > max(10, len(rows.ids) / 2):
        hint = "; if they are texts, call their column answer"
        similar = [of._replace(sentence=of.sentence + hint) for of in similar]
    return {
        "classes": found.classes,
        "old_columns": found.columns,
        "labels": None if partial else truth,
        "some_labels": truth if partial else None,
        "class_names": found.names,
    }, [*_odd_decisions(old, new), *similar]


def named_numbers(*sides: Table) -> list[Table]:
    """The sides with names of classes where equal numbers have different ones."""
    names = [side.class_names or side.number_names for side in sides]
    if None in names or (
        names[0] == names[1] and not any(s.class_names for s in sides)
    ):
        return list(sides)
    found = []
    for side in sides:
        known = side.number_names or ()
        fits = side.kind != "classes" or side.values.max() < len(known)
        if side.class_names is None and fits and side.classes <= len(known):
            labels = side.label_names or known
            side = dataclasses.replace(side, class_names=known, label_names=labels)
        found.append(side)
    return found


def without_outer_space(side: Table) -> Table:
    """The side without space around its ids and the names of its classes."""
    with errors_of(side.name):
        changed: dict[str, Any] = {"ids": ids_without_space(side.ids)}
        names = side.class_names
        if names is not None and side.kind == "classes":
            found = without_space(ClassValues(side.values, names), "predictions")
            changed["values"] = found.numbers.astype(np.int32)
            changed["class_names"] = found.names
        elif names is not None:
            changed["class_names"] = tuple(map(stripped, names))
            if len(set(changed["class_names"])) < len(names):
                raise PredictionsError("columns of two classes differ only in space")
        if side.labels is not None:
            labels = ClassValues(side.labels, side.label_names)
            labels = without_space(labels, "labels")
            changed["labels"], changed["label_names"] = labels
    return dataclasses.replace(side, **changed)


def _odd_decisions(*sides: Table) -> list[Doubt]:
    """Decisions that are seldom the most probable class."""
    found = []
    for side in sides:
        if side.decisions is None:
            continue
        top = sample_rows(side.values).argmax(axis=1)
        differ = side.decisions[0, sampled(side.examples)] != top
        if differ.mean() > 0.5:
            found.append(
                f"{side.name}: {int(differ.sum())} of {differ.size} decisions looked "
                "at are not the most probable class, so the classes may be in another "
                "order; decide by name, or compare decisions alone by --kind classes"
            )
    return [Doubt("decisions", sentence) for sentence in found]


class Alignment(NamedTuple):
    """Classes of a pair, as in `Pair`, and labels as numbers of them."""

    classes: int  # C of the pair
    names: tuple[str, ...] | None  # `C` names, or None
    # `[C_old]` classes of the pair; None where class `c` is class `c`
    columns: np.ndarray | None
    labels: list[np.ndarray | None]  # of each source as classes of the pair


def align_classes(
    old: Table, new: Table, labels: _Labels, class_map: Any = None
) -> Alignment:
    """Matches classes by number, by name or by a class map."""
    # The new side's classes come first and keep their numbers, so its columns never
    # move; then those of the old side alone; then those of labels alone, which exist
    # only where a side has predicted classes and no scores.
    mapping = read_class_map(class_map)
    named = {old.class_names, new.class_names, *(of.names for of in labels if of)}
    if len(named) > 1 and all(map(is_truth, filter(None, named))):
        # False and True are spelled differently, or are 0 and 1 on the other side
        old, new = (dataclasses.replace(s, class_names=None) for s in (old, new))
        labels = [of and of._replace(names=None) for of in labels]
    if not isinstance(mapping, dict):
        if old.class_names is None and new.class_names is None:
            return _by_number(old, new, labels, mapping)
        if old.class_names is None or new.class_names is None:
            old, new = _with_names_of_other(old, new, mapping)
        elif mapping == "identity":
            _check_same_places(old, new)
        mapping = {}
    table = _Table(old, new, mapping, labels[0])
    whose = (f"labels of {old.name}", f"labels of {new.name}", "labels")
    numbers = table.labels_of(labels, whose)
    names = tuple(table.names)
    plain = [as_number(n) for n in names] == list(range(len(names)))
    moved = not np.array_equal(table.columns, np.arange(len(table.columns)))
    return Alignment(
        len(names), None if plain else names, table.columns if moved else None, numbers
    )


def _open(side: Table) -> bool:
    """True if there may be more classes than those that were predicted."""
    return side.kind == "classes"


def _by_number(old: Table, new: Table, labels: _Labels, mapping: Any) -> Alignment:
    """Classes with numbers only: equal numbers are equal classes."""
    classes = max(old.classes, new.classes)
    short = min((old, new), key=lambda side: side.classes)
    if short.classes < classes and not _open(short) and mapping is None:
        raise PredictionsError(
            f"{old.name} has {old.classes} classes and {new.name} {new.classes}; give "
            "a class map, or 'identity' if equal numbers are equal classes"
        )
    for found in labels:
        if found is None:
            continue
        if found.names is not None:
            raise PredictionsError(
                f"labels are names ({some(found.names)}), but the predictions have "
                "class numbers without names; write both in one way"
            )
        if not (_open(old) or _open(new)):
            wrong = found.numbers[found.numbers >= classes]
            if wrong.size:
                raise PredictionsError(
                    f"labels of {wrong.size} of {found.numbers.size} examples are of "
                    f"no class, for example {some(np.unique(wrong))}; there are "
                    f"{classes} classes"
                )
        classes = max(classes, int(found.numbers.max(initial=-1)) + 1)
    numbers = [None if of is None else of.numbers for of in labels]
    return Alignment(classes, None, None, numbers)


def _with_names_of_other(old: Table, new: Table, mapping: Any) -> tuple[Table, Table]:
    """Gives the side without names those of the other, if the user says so."""
    named, bare = (old, new) if new.class_names is None else (new, old)
    assert named.class_names is not None
    names = named.class_names
    if mapping is None:
        raise PredictionsError(
            f"{named.name} has class names ({some(names)}) and {bare.name} class "
            "numbers; give a class map, or 'identity' if class 0 is the first name"
        )
    if _open(named):  # names are sorted as they occur: their places mean nothing
        raise PredictionsError(
            f"{named.name} has predicted class names and {bare.name} class numbers; "
            "give a class map with names and numbers"
        )
    if bare.classes > len(names) or (bare.classes < len(names) and not _open(bare)):
        raise PredictionsError(
            f"{named.name} has {len(names)} class names and {bare.name} "
            f"{bare.classes} classes; their numbers must agree for 'identity'"
        )
    filled = dataclasses.replace(bare, class_names=names)
    return (old, filled) if bare is new else (filled, new)


def _check_same_places(old: Table, new: Table) -> None:
    differ = [
        f"{a} and {b}"
        for a, b in zip(old.class_names or (), new.class_names or ())
        if a != b
    ]
    if differ and not (_open(old) or _open(new)):
        raise PredictionsError(
            f"the class map is 'identity', but {len(differ)} classes have different "
            f"names at one place, for example {differ[0]}; without a class map they "
            "are joined by name"
        )


class _Classes:
    """The classes of one side by name and number."""

    def __init__(self, side: Table):
        self.name, self.names, self.size = side.name, side.class_names, side.classes
        self.predicted = _open(side)
        self.grows = self.predicted and side.class_names is None
        self._place = {name: i for i, name in enumerate(side.class_names or ())}
        self.numeric = all_numbers(self._place)

    def of_label(self, label: int | str) -> int | None:
        """Number of the class; None if the side has no such class."""
        if self.names is None or (isinstance(label, int) and not self.numeric):
            known = isinstance(label, int) and (self.grows or label < self.size)
            return label if known else None
        return self._place.get(str(label))

    def of_text(self, text: str) -> int | None:
        """Number of a class in a class map, given as name or number."""
        for spelled in (text, stripped(text)):
            if spelled in self._place:
                return self._place[spelled]
        number = as_number(stripped(text))
        return None if number is None or number < 0 else self.of_label(number)


class _Table:
    """The classes of the pair; labels may add new ones."""

    def __init__(
        self,
        old: Table,
        new: Table,
        mapping: dict[str, str],
        old_labels: ClassValues | None,
    ):
        known = set()
        if old_labels is not None:
            known = {*map(str, old_labels.names or np.unique(old_labels.numbers))}
        self._old, self._new = _Classes(old), _Classes(new)
        self._by_name = old.class_names is not None and new.class_names is not None
        self._grows = _open(old) or _open(new)
        targets = {text: self._target(target) for text, target in mapping.items()}
        self._mapped = targets if self._by_name else {}
        size = max(self._new.size, *(target + 1 for target in targets.values()), 0)
        self.names = list(new.class_names or map(str, range(size)))
        self._place = {name: place for place, name in enumerate(self.names)}
        self._targets: dict[int | str, int] = {}
        for text, target in targets.items():
            number, label = self._old.of_text(text), as_number(text)
            bare = self._old.names is None and label is not None
            # Labels may have classes that the old side does not know.
            if number is None and not (_open(old) or text in known):
                raise PredictionsError(
                    f"the class map names {text!r}, which is not a class of {old.name}"
                )
            key = number if number is not None else label if bare else text
            assert key is not None
            self._targets[key] = target
        self._taken = set(self._targets.values())
        self.columns = np.array([self._column(c) for c in range(self._old.size)])

    def _target(self, text: str) -> int:
        number = self._new.of_text(text)
        if number is None:
            raise PredictionsError(
                f"the class map leads to {text!r}, which is not a class of "
                f"{self._new.name}"
            )
        return number

    def _column(self, number: int) -> int:
        """Class of the pair for a class of the old side."""
        if number in self._targets:
            return self._targets[number]
        name = str(number) if self._old.names is None else self._old.names[number]
        if not self._by_name:  # then equal names need not be equal classes
            return self._add(f"{name} (old)")
        if self._place.get(name) in self._taken:
            raise PredictionsError(
                f"the class map leads to {name!r}, but {self._old.name} has a class of "
                "that name too, which the map leaves out"
            )
        return self._add(name)

    def _add(self, name: str) -> int:
        """The class of that name, which is added if it is new."""
        if name not in self._place:
            self._place[name] = len(self.names)
            self.names.append(name)
        return self._place[name]

    def labels_of(self, found: _Labels, whose: Sequence[str]) -> list:
        """Labels of the old side, the new one and a file as classes of the pair."""
        numeric = self._new.numeric and self._old.numeric
        same = self._old.names == self._new.names and not self._new.predicted
        of_file = found[2]
        if of_file is not None and of_file.names is None and len(of_file.numbers):
            if self._by_name and not numeric and not same:
                raise PredictionsError(
                    "labels are numbers, but it is not clear of which class names; "
                    "give labels as names"
                )
        sides = (self._old, self._new, self._new)
        return [
            None if of is None else self._numbers(of, side, what)
            for of, side, what in zip(found, sides, whose, strict=True)
        ]

    def _numbers(self, found: ClassValues, side: _Classes, what: str) -> np.ndarray:
        present, places = np.unique(found.numbers, return_inverse=True)
        labels = [
            int(number) if found.names is None else found.names[number]
            for number in present
        ]
        classes = [self._of_label(label, side) for label in labels]
        wrong = np.array([number is None for number in classes], bool)[places]
        if wrong.any():
            which = [label for label, c in zip(labels, classes) if c is None]
            raise PredictionsError(
                f"{what}: {int(wrong.sum())} of {wrong.size} examples are of no class, "
                f"for example {some(which)}; classes are {some(self.names)}"
            )
        return np.array(classes, np.int64)[places]

    def _of_label(self, label: int | str, side: _Classes) -> int | None:
        """Class for a label of a side; None if there is none."""
        number = side.of_label(label)
        if number is not None and number < side.size:
            return number if side is self._new else int(self.columns[number])
        if side is self._old:
            for key in (label, number):
                if key in self._targets:
                    return self._targets[key]
            if not self._by_name:
                return None
        # By its name; a new one if the sides may have more classes.
        if isinstance(label, int) and side.names is not None and not side.numeric:
            return None  # beyond the last name
        if isinstance(label, str) and side.names is None:
            return None  # a name where classes have numbers
        text = str(label)
        if text not in self._place and text in self._mapped:
            return self._mapped[text]
        return self._add(text) if text in self._place or self._grows else None
