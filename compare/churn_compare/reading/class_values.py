"""Classes as users write them: numbers, names, and which look alike."""

import collections
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from churn_compare.example_ids import (
    PredictionsError,
    canonical,
    check_lengths,
    decoded,
    numpy_array,
    refuse_missing,
    some,
    trimmed,
)
from churn_compare.reading import arrow
from churn_compare.reading.account import Doubt

NO_LABEL = -1
# Numbers this large are hash values or ids; tables of all classes would not fit.
MOST_CLASSES = 1_000_000
_CLASSLESS = "; leave these examples out, or give them a class of their own"
_NONE = "; leave the column out, or name another one"
_MUST = "must be integers or strings; they are"
_TRUTH = ("False", "True")  # names of the classes of booleans
SIGNS = ("-1", "1")  # names of the classes of an SVM
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBERED = re.compile(r"LABEL_(\d{1,6})")  # as transformers names classes
_DECIMAL = re.compile(r"(-?[0-9]{1,15})\.0*")  # 3.0, as pandas writes 3
_FLOAT = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf)", re.IGNORECASE
)
_JOINTS = re.compile(r"[\s_]+|(?<=\w)-(?=\w)")


class ClassValues(NamedTuple):
    """The class of every example."""

    numbers: np.ndarray  # int64 class numbers, or places in `names`; or `NO_LABEL`
    # distinct class names in ascending order; None where classes have numbers only
    names: tuple[str, ...] | None

    def known(self) -> "ClassValues":
        """The values of the examples that have a class."""
        return ClassValues(self.numbers[self.numbers != NO_LABEL], self.names)


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
    False and True. `lacking`: how many may have no value; these get `NO_LABEL`.
    """
    shape = None
    if not hasattr(values, "null_count"):
        values = numpy_array(values)
        shape, kind = values.shape, values.dtype.kind
        if lacking != "none" and len(shape) != 1:
            raise PredictionsError(f"{what} must have shape [N]; got {shape}")
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
    missing = np.asarray(values.is_null(nan_is_null=True))
    if not number:
        values = trimmed(values)
        missing = missing | np.asarray(arrow.fill_null(arrow.equal(values, ""), True))
    if missing.all() and missing.size and lacking == "all":
        return ClassValues(np.full(missing.size, NO_LABEL), None)
    if missing.any():
        if lacking == "none" or missing.all():
            refuse_missing(missing, what, _NONE if missing.all() else _CLASSLESS)
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
    """Classes of trimmed texts without a missing one."""
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
    spelled = [canonical(name) for name in found]  # equal names become one
    names = tuple(sorted({*spelled}))
    cased = {name.capitalize(): name for name in names}
    if cased.keys() <= {*_TRUTH} and len(cased) == len(names):
        names = tuple(cased.get(name, name) for name in _TRUTH)
    place = {name: i for i, name in enumerate(names)}
    return ClassValues(np.array([place[name] for name in spelled])[places], names)


def class_number(text: str) -> int | None:
    """The number that the name of a class is, also as LABEL_3 or 3.0."""
    whole = _NUMBERED.fullmatch(text) or _DECIMAL.fullmatch(text)
    return int(whole[1]) if whole else as_number(text)


def _numbered(values: np.ndarray, what: str, hint: str = "") -> ClassValues:
    if values.dtype.kind == "b":
        return ClassValues(values.astype(np.int64), _TRUTH)
    if values.size and values.min() == -1 and np.isin(values, (-1, 1)).all():
        return ClassValues((values > 0).astype(np.int64), SIGNS)
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


def similar_classes(
    names: Sequence[str], sides: Sequence[Collection[int]], labels: Collection[int]
) -> list[Doubt]:
    """A doubt if classes look alike and one spelling is not known everywhere."""
    groups = collections.defaultdict(list)
    for number, name in enumerate(names):
        text = unicodedata.normalize("NFKC", name)
        text = "".join(c for c in text if unicodedata.category(c) != "Cf")
        plain = _JOINTS.sub("", text.casefold()) or name
        groups[plain].append(number)
    found = []
    for first, *others in groups.values():
        group = {first, *others}
        known = [group <= set(side) for side in sides]
        # A version that knows both spellings tells them apart.
        if not (all(known) or (any(known) and group <= set(labels))):
            found += [f"{names[first]!r} and {names[other]!r}" for other in others]
    if not found:
        return []
    said = (
        f"classes {some(found)} differ only in spelling: write them in one way, or "
        "give a --class-map with lines old,new"
    )
    return [Doubt("similar-classes", said)]
