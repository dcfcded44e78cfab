"""One list of classes for both versions, labels as places in it, and doubts."""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from churn_compare.example_ids import (
    PredictionsError,
    canonical,
    errors_of,
    some,
    twice,
)
from churn_compare.pair import Pair, Scanned, ScannedSide, Table
from churn_compare.reading.account import Doubt
from churn_compare.reading.class_values import (
    NO_LABEL,
    SIGNS,
    ClassValues,
    all_numbers,
    as_number,
    is_truth,
    similar_classes,
)
from churn_compare.reading.columns import plain
from churn_compare.reading.contents import parsing, read_contents
from churn_compare.reading.text_tables import unique
from churn_compare.stored_logits import sample_rows, sampled

_Labels = Sequence[ClassValues | None]  # of the old side, the new one and a file
_FEW = 10  # examples or classes; below, anything may be chance
_WIDTHS = 3  # standard deviations below chance
_EXPECTED, _PURE = 4, 0.6  # fewest right by chance; share right if renamed
_NEAR = 0.01  # of the sum of probabilities to one
# As R, pandas, Excel, MySQL and SAS write a missing value.
_MISSING = {*r"na nan null none n/a #n/a <na> nat \n - ? .".split()}
_CHANCES = 100  # one in so many is too rare for chance

_REPAIR = (
    "use the same class names in both files, or give --class-map a CSV file with the "
    "header old,new"
)


def read_class_map(given: Any) -> dict[str, str] | Literal["identity"] | None:
    """Reads a class map."""
    if given is None or (isinstance(given, str) and given == "identity"):
        return given
    if isinstance(given, Mapping):
        return _checked(given.items())
    if not isinstance(given, str | os.PathLike):
        raise PredictionsError(
            "a class map is 'identity', a mapping or a file; got "
            f"{type(given).__name__}"
        )
    path = Path(given)
    if not path.is_file():
        hint = " (a map may also be 'identity')" if path.suffix == "" else ""
        raise PredictionsError(f"{path}: there is no such file{hint}")
    with errors_of(path), parsing():
        if path.suffix.lower() == ".json":
            text = path.read_text(encoding="utf-8-sig")
            found = json.loads(text, object_pairs_hook=unique)
            if not isinstance(found, dict):
                raise PredictionsError("a class map must be one object, old to new")
            return _checked(found.items())
        named = read_contents(path).columns
        columns = {plain(name): column for name, column in named.items()}
        if columns.keys() != {"old", "new"}:
            raise PredictionsError("a class map must have the columns old and new")
        return _checked(zip(*(columns[n].to_pylist() for n in ("old", "new"))))


def _checked(pairs: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    text = [(_text(old), _text(new)) for old, new in pairs]
    if not text:
        raise PredictionsError("the class map is empty")
    if again := sorted(twice(old for old, _ in text)):
        raise PredictionsError(f"the class map maps old classes {some(again)} twice")
    if again := sorted(twice(new for _, new in text)):
        olds = " and ".join(old for old, new in text if new == again[0])
        raise PredictionsError(
            f"the class map maps two old classes to one new class: {olds} to {again[0]}"
        )
    return dict(text)


def _text(value: Any) -> str:
    of_numpy = getattr(getattr(value, "dtype", None), "kind", "") in tuple("iuU")
    if isinstance(value, bool) or not (isinstance(value, str | int) or of_numpy):
        raise PredictionsError(
            f"classes of a map must be numbers or names; got {value!r}"
        )
    return canonical(str(value))


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
    found = align_classes(old, new, [of and of.known() for of in given], class_map)
    names = old.name, new.name, "the separate labels"
    truth, first, N = None, "", len(rows.ids)
    for name, of, numbers in zip(names, given, found.labels, strict=True):
        if of is None:
            continue
        of_all: Any = np.full(N, NO_LABEL, np.int64)
        of_all[of.numbers != NO_LABEL] = numbers
        if truth is None:
            truth, first = of_all, name
        differ = (of_all != NO_LABEL) & (truth != NO_LABEL) & (of_all != truth)
        if differ.any():
            known: Any = read_class_map(class_map)
            every = old.class_names or () if isinstance(known, Mapping) else ()
            lone = [of for of in every if of not in {*known, *(new.class_names or ())}]
            more = f"; the class map does not have {some(lone)}" * bool(lone)
            raise PredictionsError(
                f"labels of {int(differ.sum()):,} of {N:,} examples differ between "
                f"{first} and {name}, for example ids {some(rows.ids[differ])}{more}"
            )
        truth = np.where(truth != NO_LABEL, truth, of_all)
    count = N if truth is None else int((truth != NO_LABEL).sum())
    if (partial := count < N) and drawn is None:
        notes.append(
            f"{count:,} of {N:,} examples have a label: those that change need one, "
            "and only NFR, PFR and accuracy gain are reported."
        )
    columns = np.arange(old.classes) if found.columns is None else found.columns
    if "classes" not in (old.kind, new.kind):  # else more classes may be known
        names = found.names or range(found.classes)
        only_new = np.setdiff1d(np.arange(new.classes), columns)
        only_old = columns[columns >= new.classes]
        notes += [
            f"{len(only)} of {side.classes} classes are only in {side.name}: "
            f"{some([names[c] for c in only])}."
            for side, only in ((old, only_old), (new, only_new))
            if len(only)
        ]
    seen = {c for of in found.labels if of is not None for c in np.unique(of).tolist()}
    known = columns.tolist(), range(new.classes)
    classes = found.names or ()
    similar = similar_classes(classes, known, seen)
    if found.classes > max(10, N / 2):
        hint = "; if they are texts, call their column answer"
        similar = [of._replace(sentence=of.sentence + hint) for of in similar]
    lone = sorted(seen.difference(*known))
    never = [str((classes or range(found.classes))[c]) for c in lone]
    if partial and never:
        of = [f"{n} ({np.sum(truth == c)})" for n, c in zip(never, lone, strict=True)]
        notes.append(f"Warning: no version predicts these labels: {some(of)}.")
    if lost := [name for name in never if name.lower() in _MISSING]:
        said = f"{lost[0]!r} is a label and never a prediction, so it may mean that "
        similar.append(Doubt("missing-labels", said + "there is none: leave it empty"))
    return {
        "classes": found.classes,
        "old_columns": found.columns,
        "labels": None if partial else truth,
        "some_labels": truth if partial else None,
        "class_names": found.names,
    }, [*_odd_scores(old, new), *similar]


def _odd_scores(*sides: Table) -> list[Doubt]:
    """Logits that are probabilities, decisions that are seldom the most probable."""
    found = []
    for side in (side for side in sides if side.kind != "classes"):
        rows = sample_rows(side.values)
        one = (rows >= 0).all() and np.allclose(rows.sum(axis=1), 1, atol=_NEAR)
        if side.kind == "logits" and one and (rows > 0).sum() > len(rows):
            said = "logits are at least 0 and sum to one; are they probabilities?"
            found.append(Doubt("logits", f"{side.name}: {said} Call them prob_<class>"))
        if side.decisions is None:
            continue
        differ = side.decisions[0, sampled(side.examples)] != rows.argmax(axis=1)
        if differ.mean() > 0.5:
            said = (
                f"{side.name}: {int(differ.sum())} of {differ.size} sampled "
                "decisions are not the most probable class, so the classes may be in "
                "another order; give decisions as class names, or compare them alone "
                "(--kind classes)"
            )
            found.append(Doubt("decisions", said))
    return found


class Alignment(NamedTuple):
    """Classes of a pair, as in `Pair`, and labels as numbers of them."""

    classes: int
    names: tuple[str, ...] | None
    columns: np.ndarray | None  # of the old side
    labels: list[np.ndarray | None]  # of each source


def align_classes(
    old: Table, new: Table, labels: _Labels, class_map: Any = None
) -> Alignment:
    """Matches classes by number, by name or by a class map."""
    mapping = read_class_map(class_map)
    named = {old.class_names, new.class_names, *(of.names for of in labels if of)}
    if len(named) > 1 and all(map(is_truth, filter(None, named))):
        # False and True are spelled differently, or are 0 and 1 on the other side
        old, new = (dataclasses.replace(s, class_names=None) for s in (old, new))
        labels = [of and of._replace(names=None) for of in labels]
    if SIGNS in named:  # a side that predicts 1 alone has these classes, too
        old, new = (
            dataclasses.replace(s, class_names=SIGNS)
            if s.class_names is None and _open(s) and (s.values == 1).all()
            else s
            for s in (old, new)
        )
    if isinstance(mapping, dict):
        return _by_name(old, new, labels, mapping)
    if old.class_names is None and new.class_names is None:
        return _by_number(old, new, labels, mapping)
    if old.class_names is None or new.class_names is None:
        old, new = _with_names_of_other(old, new, mapping)
    elif mapping == "identity":
        pairs = zip(old.class_names, new.class_names)
        differ = [f"{a} and {b}" for a, b in pairs if a != b]
        if differ:
            raise PredictionsError(
                f"the class map is 'identity', but {len(differ)} classes have "
                f"different names at the same place, for example {differ[0]}; without "
                "a class map they are joined by name"
            )
    return _by_name(old, new, labels, {})


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
    for found in filter(None, labels):
        if found.names is not None:
            raise PredictionsError(
                f"labels are names ({some(found.names)}), but the predictions have "
                "class numbers without names; use names or numbers in both"
            )
        wrong = found.numbers[found.numbers >= classes]
        if wrong.size and not (_open(old) or _open(new)):
            raise PredictionsError(
                f"labels of {wrong.size} of {found.numbers.size} examples are of no "
                f"class, for example {some(np.unique(wrong))}; there are {classes} "
                "classes"
            )
        classes = max(classes, int(found.numbers.max(initial=-1)) + 1)
    numbers = [None if of is None else of.numbers for of in labels]
    return Alignment(classes, None, None, numbers)


def _with_names_of_other(old: Table, new: Table, mapping: Any) -> tuple[Table, Table]:
    """Gives the side without names those of the other, if the user says so."""
    named, bare = (old, new) if new.class_names is None else (new, old)
    names = named.class_names or ()
    if mapping is None:
        raise PredictionsError(
            f"{named.name} has class names ({some(names)}) and {bare.name} class "
            "numbers; give a class map, or 'identity' if class 0 is the first name"
        )
    if _open(named):  # names are sorted as they occur: their places mean nothing
        raise PredictionsError(
            f"{named.name} has predicted class names, which have no order, and "
            f"{bare.name} class numbers; give a class map with names and numbers"
        )
    if bare.classes > len(names) or (bare.classes < len(names) and not _open(bare)):
        raise PredictionsError(
            f"{named.name} has {len(names)} class names and {bare.name} "
            f"{bare.classes} classes; 'identity' needs as many"
        )
    filled = dataclasses.replace(bare, class_names=names)
    return (old, filled) if bare is new else (filled, new)


class _Classes:
    """The classes of one side by name and number."""

    def __init__(self, side: Table):
        self.names, self.size, self.open = side.class_names, side.classes, _open(side)
        self._place = {name: i for i, name in enumerate(side.class_names or ())}
        self.numeric = all_numbers(self._place)

    def of_label(self, label: int | str) -> int | None:
        """Number of the class; None if the side has no such class."""
        if self.names is None or (isinstance(label, int) and not self.numeric):
            grows = self.open and self.names is None
            known = isinstance(label, int) and (grows or label < self.size)
            return label if known else None
        return self._place.get(str(label))

    def of_text(self, text: str) -> int | None:
        """Number of a class in a class map, given as name or number."""
        if text in self._place:
            return self._place[text]
        number = as_number(text)
        return None if number is None or number < 0 else self.of_label(number)


def _by_name(
    old: Table, new: Table, labels: _Labels, mapping: dict[str, str]
) -> Alignment:
    """Classes by their names, or by a class map."""
    # The new side's classes come first and keep their numbers, so its columns never
    # move; then those of the old side alone; then those of labels alone, which exist
    # only where a side has predicted classes and no scores.
    before, now = _Classes(old), _Classes(new)
    both = before.names is not None and now.names is not None
    grows = before.open or now.open
    by_text, targets = {}, {}  # classes of the pair by text, and by number or name
    known = set()  # labels may have classes that the old side does not know
    if (own := labels[0]) is not None:
        known = {*map(str, own.names or np.unique(own.numbers))}
    for text, target in mapping.items():
        if (to := now.of_text(target)) is None:
            raise PredictionsError(
                f"the class map leads to {target!r}, which is not a class of {new.name}"
            )
        by_text[text], number, label = to, before.of_text(text), as_number(text)
        if number is None and not (before.open or text in known):
            raise PredictionsError(
                f"the class map names {text!r}, which is not a class of {old.name}"
            )
        bare = before.names is None and label is not None
        targets[number if number is not None else label if bare else text] = to
    size = max(now.size, *(to + 1 for to in by_text.values()), 0)
    place = {n: i for i, n in enumerate(new.class_names or map(str, range(size)))}

    def column(number: int) -> int:
        """Class of the pair for a class of the old side."""
        if number in targets:
            return targets[number]
        name = str(number) if before.names is None else before.names[number]
        if not both:  # then equal names need not be equal classes
            name = f"{name} (old)"
        elif place.get(name) in taken:
            raise PredictionsError(
                f"the class map leads to {name!r}, but {old.name} has a class of that "
                "name too, which the map leaves out"
            )
        return place.setdefault(name, len(place))

    def of_label(label: int | str, side: _Classes) -> int | None:
        """Class for a label of a side; None if there is none."""
        number, text = side.of_label(label), str(label)
        if number is not None and number < side.size:
            return number if side is now else int(columns[number])
        if side is before:
            for key in (label, number):
                if key in targets:
                    return targets[key]
            if not both:
                return None
        # By its name; a new one if the sides may have more classes.
        if side.names is None and isinstance(label, str):
            return None  # a name where classes have numbers
        if side.names is not None and isinstance(label, int) and not side.numeric:
            return None  # beyond the last name
        if text not in place and both and text in by_text:
            return by_text[text]
        return place.setdefault(text, len(place)) if grows else place.get(text)

    taken = {*targets.values()}
    columns = np.array([column(c) for c in range(before.size)])
    of_file, same = labels[2], before.names == now.names and not now.open
    if of_file is not None and of_file.names is None and len(of_file.numbers):
        if both and not (now.numeric and before.numeric) and not same:
            raise PredictionsError(
                "labels are numbers, and it is unclear of which class names; give "
                "labels as names"
            )
    numbers: list[np.ndarray | None] = []
    whose = (f"labels of {old.name}", f"labels of {new.name}", "labels")
    for of, side, what in zip(labels, (before, now, now), whose, strict=True):
        if of is None:
            numbers.append(None)
            continue
        present, places = np.unique(of.numbers, return_inverse=True)
        given = [int(c) if of.names is None else of.names[c] for c in present]
        classes = [of_label(label, side) for label in given]
        wrong = np.array([number is None for number in classes], bool)[places]
        if wrong.any():
            which = [label for label, c in zip(given, classes) if c is None]
            raise PredictionsError(
                f"{what}: {int(wrong.sum())} of {wrong.size} examples are of no class, "
                f"for example {some(which)}; classes are {some([*place])}"
            )
        numbers.append(np.array(classes, np.int64)[places])
    names = tuple(place)
    if [*map(as_number, names)] == [*range(len(names))]:
        names = None
    moved = not np.array_equal(columns, np.arange(len(columns)))
    return Alignment(len(place), names, columns if moved else None, numbers)


# Doubts by what each side predicts


def class_doubts(pair: Pair, scanned: Scanned) -> list[Doubt]:
    """Doubts about the classes of a pair, from what each side predicts."""
    found, labels = [], pair.labels
    sides = (pair.old, scanned.old), (pair.new, scanned.new)
    seen = [of.predicted.reshape(-1) for side, of in sides if side.kind == "classes"]
    if seen:
        more = [] if labels is None else [labels]
        count = len(np.unique(np.concatenate(seen + more)))
        if count > max(_FEW, pair.examples / 2):
            said = (
                f"there are {count:,} different classes in {pair.examples:,} examples, "
                "so they may be texts, numbers or ids; texts are compared in a column "
                "answer, numbers in a column value"
            )
            found.append(Doubt("many-classes", said))
    if labels is None and seen and pair.examples >= _FEW:
        if not np.intersect1d(scanned.old.predicted, scanned.new.predicted).size:
            said = "no class is predicted by both versions, so their names may differ"
            found.append(Doubt("renamed-classes", f"{said}: {_REPAIR}"))
    if pair.some_labels is not None:
        known = pair.some_labels[pair.some_labels != NO_LABEL]
        unseen = not any(np.isin(known, of.predicted).any() for _, of in sides)
        if unseen and len(known) >= _FEW:
            names = some([*map(pair.class_name, np.unique(known))])
            said = f"neither version predicts a class of the {len(known):,} labels"
            found.append(Doubt("below-chance", f"{said} ({names}): {_REPAIR}"))
        elif seen and len(known):
            every = np.concatenate([of.predicted for _, of in sides])
            found += _renamed(pair, "each version", every, pair.some_labels)
    for side, of in sides:
        if said := _no_class(pair, side, of, labels):
            remedy = "if that is not a class, leave its column out or rename it"
            found.append(Doubt("score-columns", f"{side.name}: {said}; {remedy}"))
    if labels is None or len(labels) < _FEW or found:
        return found
    size = 1 + max(int(of.max()) for of in (labels, *(of.predicted for _, of in sides)))
    of_labels = np.bincount(labels, minlength=size)
    never = not any((of.predicted == labels).any() for _, of in sides)
    for side, of in sides:
        of_predicted = np.bincount(of.predicted.reshape(-1), minlength=size)
        right = (of.predicted == labels).mean(axis=0).sum()
        chance = float(of_labels @ of_predicted) / of.predicted.size
        if never or not chance or _below(right, chance, of.predicted, labels):
            names = [
                some([*map(pair.class_name, np.flatnonzero(of)[:4])])
                for of in (of_predicted, of_labels)
            ]
            said = (
                f"{side.name} is right on {right:,.0f} of {len(labels):,} examples; by "
                f"chance it would be right on {chance:,.0f}; it predicts {names[0]}, "
                f"and labels are {names[1]}"
            )
            found.append(Doubt("below-chance", f"{said}: {_REPAIR}"))
        elif side.kind == "classes":
            found += _renamed(pair, side.name, of.predicted, labels)
    return found


def _no_class(
    pair: Pair, side: Table, of: ScannedSide, labels: np.ndarray | None
) -> str:
    """A sentence if a column of scores may be no class, such as logit_norm."""
    if side.kind == "classes":
        return ""
    names = side.class_names or ()
    odd = [name for name in names if as_number(name) is None]
    if 0 < len(odd) < len(names) - len(odd):
        return f"{some(odd)} has scores, and all other classes are numbers"
    rows = sample_rows(side.values)
    if side.decisions is None and of.ties > max(0.9 * of.predicted.size, _FEW):
        highest = (rows == rows.max(axis=1, keepdims=True)).mean(axis=0)
        name = names[highest.argmax()] if names else str(highest.argmax())
        where = f"{of.ties:,} of {of.predicted.size:,} rows"
        return f"several classes have the highest score in {where}, mostly {name!r}"
    if labels is None or len(labels) < _FEW:
        return ""
    count = np.bincount(of.of_scores.reshape(-1))
    top = int(count.argmax())
    if count[top] > of.of_scores.size / 2 and not (labels == top).any():
        where = f"{count[top]:,} of {of.of_scores.size:,} rows"
        said = f"{pair.class_name(top)!r} has the highest score in {where}"
        return f"{said} and is never a label"
    return ""


def _below(
    right: float, chance: float, predicted: np.ndarray, labels: np.ndarray
) -> bool:
    """True if a side is right less often than independent predictions would be."""
    if right >= chance / 2:
        return False
    if chance - right > _WIDTHS * np.sqrt(chance):
        return True
    # It would be right often if each predicted class stood for its most frequent label.
    pairs = np.stack([predicted.reshape(-1), np.tile(labels, len(predicted))])
    pairs, counts = np.unique(pairs, axis=1, return_counts=True)
    most = np.zeros(pairs[0].max() + 1)
    np.maximum.at(most, pairs[0], counts)
    return chance >= _EXPECTED and most.sum() / predicted.size > _PURE


def _renamed(pair: Pair, who: str, every: np.ndarray, labels: Any) -> list[Doubt]:
    """Doubt that a label is predicted under another name."""
    known = labels != NO_LABEL
    labels, predicted = labels[known], every[:, known]
    of_labels = np.bincount(labels, minlength=int(every.max()) + 1)
    # Examples a class needs so that, at this accuracy, some would surely be right. Of
    # changed examples, one version or the other mostly is.
    right, share, few = predicted == labels, 0.5, _FEW
    if pair.partial:
        right, share, few = right.any(axis=0), 0.25, 1
    wrong = np.clip(1 - right.mean(), 0.01, 0.99)
    least = np.log(_CHANCES * np.count_nonzero(of_labels)) / -np.log(wrong)
    found, never = [], of_labels >= max(least, few)
    never[every] = False
    for label in np.flatnonzero(never).tolist():
        instead = np.bincount(predicted[:, labels == label].reshape(-1))
        other = int(instead.argmax())
        most = share * max(instead.sum(), (predicted == other).sum())
        if of_labels[other] == 0 and instead[other] > most:
            found.append(
                f"{who} never predicts {pair.class_name(label)!r}, the label of "
                f"{of_labels[label]:,} examples, and predicts "
                f"{pair.class_name(other)!r}, which is never a label, for most of them"
            )
    more = f" (and {len(found) - 1} further classes)" if len(found) > 1 else ""
    return [Doubt("renamed-classes", f"{found[0]}{more}: {_REPAIR}")] if found else []
