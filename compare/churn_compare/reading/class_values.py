"""Classes and ids as users write them: numbers, names, and which look alike."""

import collections
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from churn_compare.example_ids import (
    PredictionsError,
    as_ids,
    check_lengths,
    check_unique,
    decoded,
    refuse_missing,
    some,
)
from churn_compare.reading import arrow
from churn_compare.reading.account import Doubt

NO_LABEL = -1
# Numbers this large are hash values or ids; tables of all classes would not fit.
MOST_CLASSES = 1_000_000
_CLASSLESS = "; leave these examples out, or give them a class of their own"
_MUST = "must be integers or strings; they are"
_TRUTH = ("False", "True")  # names of the classes of booleans
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBERED = re.compile(r"LABEL_(\d{1,6})")  # as transformers names classes
_DECIMAL = re.compile(r"(-?[0-9]{1,15})\.0*")  # 3.0, as pandas writes 3
_FLOAT = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf)", re.IGNORECASE
)
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"  # of width zero
_OUTER = re.compile(rf"^[\s{_INVISIBLE}]+|[\s{_INVISIBLE}]+$")
_JOINTS = re.compile(r"[\s_]+|(?<=\w)-(?=\w)")
_WHOLE = re.compile(r"^([+-]?\d+)\.0*$")
_THOUSANDS = re.compile(r"(?<=\d)[,'’](?=\d{3}(?!\d))")
_ZEROS = re.compile(r"(?<![\d.])0+(?=\d)")


class ClassValues(NamedTuple):
    """The class of every example."""

    numbers: np.ndarray  # int64 class numbers, or places in `names`; or `NO_LABEL`
    # distinct class names in ascending order; None where classes have numbers only
    names: tuple[str, ...] | None

    def known(self) -> "ClassValues":
        """Those of the examples that have a class."""
        return ClassValues(self.numbers[self.numbers != NO_LABEL], self.names)

    def without_space(self, what: str) -> "ClassValues":
        """The same without outer space in names; equal names become one class."""
        if self.names is None:
            return self
        again = as_class_values(np.array(list(map(stripped, self.names))), what)
        return ClassValues(
            np.append(again.numbers, NO_LABEL)[self.numbers], again.names
        )


def as_number(text: str) -> int | None:
    """The integer that a text is the usual way to write; None for other texts."""
    return int(text) if _NUMBER.fullmatch(text) else None


def all_numbers(names: Iterable[str]) -> bool:
    """True if all names are numbers, so that a number is a name and not a position."""
    return all(as_number(name) is not None for name in names)


def is_truth(names: Iterable[str]) -> bool:
    """True if names of classes are false and true, in that order."""
    return [name.capitalize() for name in names] == [*_TRUTH]


def as_class_values(
    values: Any,
    what: str,
    hint: str = "",
    lacking: Literal["none", "some", "all"] = "none",
) -> ClassValues:
    """Class numbers and names from values of any unambiguous type.

    Texts that are all numbers are numbers, otherwise all are names; booleans are named
    False and True. How many may be `lacking` a value, which have `NO_LABEL` then.
    """
    shape = None
    if not hasattr(values, "null_count"):
        values = np.asarray(values)
        shape, kind = values.shape, values.dtype.kind
        if kind in "bi" or (kind in "uf" and lacking == "none"):
            return _numbered(values, what, hint)
        if kind not in "ufUSO":
            raise PredictionsError(f"{what} {_MUST} {values.dtype}")
        flat = values.reshape(-1)
        flat = decoded(flat, what) if kind == "S" else flat
        try:
            values = arrow.array(flat, from_pandas=True)
        except (arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise PredictionsError(
                f"{what} {_MUST} objects of several types"
            ) from error
    values = arrow.plain(values)
    kind = values.type
    if arrow.types.is_nested(kind) or arrow.types.is_temporal(kind):
        raise PredictionsError(f"{what} {_MUST} {kind}")
    number = arrow.is_number(kind) or arrow.types.is_boolean(kind)
    try:
        values = values if number else values.cast(arrow.string())
    except arrow.ArrowException as error:  # bytes that are not in UTF-8
        raise PredictionsError(f"{what} {_MUST} {kind}") from error
    missing = np.asarray(values.is_null())
    if not number:
        blank = arrow.equal(arrow.utf8_trim_whitespace(values), "")
        missing = missing | np.asarray(arrow.fill_null(blank, True))
    if missing.all() and missing.size and lacking == "all":
        return ClassValues(np.full(missing.size, NO_LABEL), None)
    if missing.any():
        if lacking == "none" or missing.all():
            refuse_missing(missing, what, _CLASSLESS)
        found = as_class_values(values.filter(arrow.array(~missing)), what, hint)
        numbers = np.full(missing.size, NO_LABEL)
        numbers[~missing] = found.numbers
        return ClassValues(numbers, found.names)
    if number:
        values = values.to_numpy(zero_copy_only=False)
        return _numbered(values if shape is None else values.reshape(shape), what, hint)
    numbers, names = _named(values, what, hint)
    return ClassValues(numbers if shape is None else numbers.reshape(shape), names)


def _named(column: Any, what: str, hint: str) -> ClassValues:
    """Classes of texts without a missing one."""
    encoded = arrow.one(column).dictionary_encode()
    check_lengths(encoded.dictionary, what)
    found, places = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    numbers = [class_number(text) for text in found]
    if None not in numbers:
        return _numbered(np.array(numbers, np.int64)[places], what)
    if all(map(_FLOAT.fullmatch, found)):
        floats = np.array(found, np.float64)
        if not np.all(floats == np.floor(floats)):  # scores, which are not names
            _whole(floats[places], what, hint)
    spelled = [composed(name) for name in found]  # equal names become one
    names = tuple(sorted({*spelled}))
    cased = {name.capitalize(): name for name in names}
    if cased.keys() <= {*_TRUTH} and len(cased) == len(names):
        names = tuple(cased.get(name, name) for name in _TRUTH)
    place = {name: i for i, name in enumerate(names)}
    return ClassValues(np.array([place[name] for name in spelled])[places], names)


def class_number(text: str) -> int | None:
    """The number that the name of a class is, also as LABEL_3, 3.0 or padded."""
    text = stripped(text)  # a column of fixed width
    whole = _NUMBERED.fullmatch(text) or _DECIMAL.fullmatch(text)
    return int(whole[1]) if whole else as_number(text)


def _numbered(values: np.ndarray, what: str, hint: str = "") -> ClassValues:
    if values.dtype.kind == "b":
        return ClassValues(values.astype(np.int64), _TRUTH)
    if values.size and values.min() == -1 and np.isin(values, (-1, 1)).all():
        return ClassValues((values > 0).astype(np.int64), ("-1", "1"))  # of an SVM
    return ClassValues(_whole(values, what, hint), None)


def _whole(values: np.ndarray, what: str, hint: str = "") -> np.ndarray:
    """Checked class numbers, as int64."""
    whole = values
    if values.dtype.kind == "f":
        refuse_missing(np.isnan(values).reshape(-1), what, _CLASSLESS)
        whole = np.floor(values)
    for bad, why, way_out in (
        (values != whole, "whole numbers or names", hint),
        (values < 0, "at least 0", ""),
        (values >= MOST_CLASSES, f"below {MOST_CLASSES:,}, or names", ""),
    ):
        if count := int(bad.sum()):
            raise PredictionsError(
                f"{what} must be {why}; {count} of {values.size} are not, for example "
                f"{some(values[bad])}{way_out}"
            )
    return values.astype(np.int64)


# Spelling


def composed(text: str) -> str:
    """The composed form; canonically equivalent texts are equal in it."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def stripped(text: str) -> str:
    """The text without outer space and invisible characters."""
    return _OUTER.sub("", text)


def ids_without_space(ids: np.ndarray | None) -> np.ndarray | None:
    """Ids without outer space."""
    if ids is None or ids.dtype.kind != "U":
        return ids
    return check_unique(as_ids(np.array([stripped(text) for text in ids.tolist()])))


def _visible(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


def _difference(pairs: Sequence[tuple[str, str]]) -> str:
    """In what texts that look alike differ."""
    space = all(stripped(a) == stripped(b) for a, b in pairs)
    return "outer space" if space else "spelling"


def similar_classes(
    names: Sequence[str], sides: Sequence[Collection[int]], labels: Collection[int]
) -> list[Doubt]:
    """A doubt if classes look alike and one spelling is not known everywhere."""
    groups = collections.defaultdict(list)
    for number, name in enumerate(names):
        plain = _JOINTS.sub("", _visible(name).casefold()) or name
        groups[plain].append(number)
    found = []
    for first, *others in groups.values():
        group = {first, *others}
        known = [group <= set(side) for side in sides]
        # Who knows both spellings, tells a from A.
        if all(known) or (any(known) and group <= set(labels)):
            others = [c for c in others if stripped(names[c]) == stripped(names[first])]
        found += [(names[first], names[other]) for other in others]
    if not found:
        return []
    repair = "--strip removes it"
    if _difference(found) == "spelling":
        repair = "write them in one way, or give a --class-map with lines old,new"
    shown = some([f"{a!r} and {b!r}" for a, b in found])
    said = f"classes {shown} differ only in {_difference(found)}: {repair}"
    return [Doubt("similar-classes", said)]


def similar_ids(only_a: np.ndarray, only_b: np.ndarray) -> str:
    """A clause about ids of two sides that only look alike; "" without any."""
    if only_a.dtype.kind != "U" and only_b.dtype.kind != "U":
        return ""

    def plain(text: str) -> str:
        text = _THOUSANDS.sub("", "".join(_visible(text).split()))
        return _ZEROS.sub("", _WHOLE.sub(r"\1", text)).casefold()

    there = {plain(text): text for text in only_a.astype(str).tolist()}
    others = ((plain(text), text) for text in only_b.astype(str).tolist())
    pairs = [(there[key], text) for key, text in others if key in there]
    if not pairs:
        return ""
    kind, (a, b) = _difference(pairs), map(ascii, pairs[0])
    repair = "add --strip" if kind == "outer space" else "write them in one way"
    return f"; {len(pairs):,} of them differ only in {kind} ({a}, {b}): {repair}"
