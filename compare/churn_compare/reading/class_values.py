"""Classes as users write them, and what columns are for, by their names."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from churn_compare.pair import Kind
from churn_compare.predictions import PredictionsError, some

# Numbers this large are hash values or ids; tables of all classes would not fit.
_LONGEST_NAME = 10_000
MOST_CLASSES = 1_000_000
_TRUTH = ("False", "True")  # names of the classes of booleans
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DECIMAL = re.compile(r"(-?[0-9]{1,15})\.0*")  # 3.0, as pandas writes 3
_FLOAT = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf)", re.IGNORECASE
)


class ClassValues(NamedTuple):
    """The class of every example."""

    numbers: np.ndarray  # int64 class numbers, or places in `names`
    # distinct class names in ascending order; None where classes have numbers only
    names: tuple[str, ...] | None


def as_number(text: str) -> int | None:
    """The integer that a text is the usual way to write; None for other texts."""
    return int(text) if _NUMBER.fullmatch(text) else None


def all_numbers(names: Iterable[str]) -> bool:
    """Whether all names are numbers, so that a number is a name and not a position."""
    return all(as_number(name) is not None for name in names)


def is_truth(names: Iterable[str]) -> bool:
    """Whether names of classes are false and true, in that order."""
    return [name.capitalize() for name in names] == [*_TRUTH]


def decoded(values: np.ndarray, what: str) -> np.ndarray:
    """Bytes as strings."""
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise PredictionsError(f"{what} are bytes that are not in UTF-8") from error


def look_alikes(names: Iterable[str]) -> list[str]:
    """Names that differ from an earlier one only in capitals and spaces."""
    found, first = [], {}
    for name in names:
        plain = "".join(name.split()).casefold()
        if plain in first:
            found.append(f"{name!r} and {first[plain]!r}")
        first.setdefault(plain, name)
    return found


def as_class_values(values: Any, what: str, hint: str = "") -> ClassValues:
    """Class numbers and names from values of any unambiguous type."""
    # Strings that are all numbers are numbers, otherwise all are names; booleans are
    # named False and True.
    if hasattr(values, "null_count"):
        values = _from_arrow(values, what)
    values = np.asarray(values)
    if values.dtype.kind == "b":
        return ClassValues(values.astype(np.int64), _TRUTH)
    if values.dtype.kind in "USO":
        return _from_strings(values, what, hint)
    if values.dtype.kind not in "iuf":
        raise PredictionsError(
            f"{what} must be integers or strings; they are {values.dtype}"
        )
    return ClassValues(_whole(values, what, hint), None)


def check_lengths(longest: int, what: str) -> None:
    """Refuses texts that are too long for a name; NumPy would give each its room."""
    if longest > _LONGEST_NAME:
        raise PredictionsError(
            f"{what} must be names of at most {_LONGEST_NAME:,} characters; one has "
            f"{longest:,}"
        )


def _from_arrow(column: Any, what: str) -> np.ndarray:
    """A column without missing values, as an array."""
    import pyarrow as pa

    if column.null_count:
        _refuse_missing(np.asarray(column.is_null()), what)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if pa.types.is_nested(kind):
        raise PredictionsError(f"{what} must be integers or strings; they are {kind}")
    return column.to_numpy()


def _refuse_missing(missing: np.ndarray, what: str) -> None:
    if count := int(missing.sum()):
        raise PredictionsError(
            f"{what} are missing for {count} of {missing.size} examples, for example "
            f"rows {some(np.flatnonzero(missing))} (the first is 0)"
        )


def _from_strings(values: np.ndarray, what: str, hint: str) -> ClassValues:
    import pyarrow as pa

    flat = values.reshape(-1)
    if flat.dtype.kind == "S":
        flat = decoded(flat, what)
    try:
        column = pa.array(flat, from_pandas=True)
        if column.null_count == len(column) or not pa.types.is_string(column.type):
            column = column.cast(pa.string())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise PredictionsError(
            f"{what} must be integers or strings; they are objects of several types"
        ) from error
    encoded = column.dictionary_encode()
    found = encoded.dictionary.to_pylist()
    check_lengths(max(map(len, filter(None, found)), default=0), what)
    missing = np.asarray(encoded.is_null())
    if "" in found:
        missing = missing | (
            encoded.indices.fill_null(-1).to_numpy() == found.index("")
        )
    _refuse_missing(missing, what)
    places = encoded.indices.to_numpy()
    numbers = [_number(text) for text in found]
    if None not in numbers:
        taken = np.array(numbers, np.int64)[places] if len(places) else places
        return ClassValues(_whole(taken, what).reshape(values.shape), None)
    if all(map(_FLOAT.fullmatch, found)):
        floats = np.array(found, np.float64)
        if not np.all(floats == np.floor(floats)):  # scores, which are no names
            _whole(floats[places], what, hint)
    spelled = {name.capitalize(): name for name in found}
    if spelled.keys() <= set(_TRUTH) and len(spelled) == len(found):
        truth = np.array([name.capitalize() == "True" for name in found], np.int64)
        names = tuple(spelled.get(name, name) for name in _TRUTH)
        return ClassValues(truth[places].reshape(values.shape), names)
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(found), np.int64)
    rank[order] = np.arange(len(found))
    names = tuple(found[i] for i in order)
    return ClassValues(rank[places].reshape(values.shape), names)


def _number(text: str) -> int | None:
    whole = _DECIMAL.fullmatch(text)
    return int(whole[1]) if whole else as_number(text)


def _whole(values: np.ndarray, what: str, hint: str = "") -> np.ndarray:
    """Checked class numbers, as int64."""
    if values.dtype.kind == "f":
        _refuse_missing(np.isnan(values).reshape(-1), what)
        wrong = values[values != np.floor(values)]
        if wrong.size:
            raise PredictionsError(
                f"{what} must be whole numbers or names; {wrong.size} of {values.size} "
                f"are not, for example {some(wrong)}{hint}"
            )
    for bad, why in (
        (values < 0, "at least 0"),
        (values >= MOST_CLASSES, f"below {MOST_CLASSES:,}, or names"),
    ):
        if count := int(bad.sum()):
            raise PredictionsError(
                f"{what} must be {why}; {count} of {values.size} are not, for example "
                f"{some(values[bad])}"
            )
    return values.astype(np.int64)


ID = ("id", "ids", "example_id", "example_ids")
LABEL = ("label", "labels", "y_true", "target", "targets")
PREDICTION = ("prediction", "predictions", "predicted", "class", "classes", "y_pred")
RUN = ("run",)
SCORES: dict[str, Kind] = {
    "logits": "logits",
    "logit": "logits",
    "probabilities": "probabilities",
    "probability": "probabilities",
    "probs": "probabilities",
    "prob": "probabilities",
}
_PREFIXES: dict[str, Kind] = {
    "logit_": "logits",
    "logits_": "logits",
    "prob_": "probabilities",
    "probability_": "probabilities",
    "p_": "probabilities",
}


class ColumnNames(NamedTuple):
    """Column names that a user gives; None means the usual ones."""

    id: str | None = None  # of the examples
    label: str | None = None  # the right class
    prediction: str | None = None  # the predicted class


class ScoreColumns(NamedTuple):
    """One column of scores per class."""

    kind: Kind  # of the scores
    columns: tuple[str, ...]  # names of the columns, in the order of the classes
    class_names: tuple[str, ...] | None  # None where classes have numbers


def find_column(
    names: Iterable[str], known: Sequence[str], given: str | None, what: str
) -> str | None:
    """The one column for a purpose, such as ids."""
    names = list(names)
    if given is not None:
        if given not in names:
            raise PredictionsError(
                f"there is no {what} column {given!r}; it has {some(names)}"
            )
        return given
    found = [name for name in names if name.strip().lower() in known]
    if len(found) > 1:
        raise PredictionsError(
            f"{' and '.join(found)} could both be the {what} column; say which it is"
        )
    return found[0] if found else None


def score_columns(names: Iterable[str], kind: Kind | None) -> ScoreColumns | None:
    """The columns `logit_<class>`, `prob_<class>` and the like."""
    names = list(names)
    for wanted in (kind,) if kind else ("logits", "probabilities"):
        sets = {}
        for prefix, prefix_kind in _PREFIXES.items():
            columns = [n for n in names if n.strip().lower().startswith(prefix)]
            if prefix_kind == wanted and columns:
                sets[prefix] = columns
        if len(sets) > 1 or len(sets.get("p_", ())) == 1:
            sets.pop("p_", None)  # may be anything: p_value
        if len(sets) > 1:
            raise PredictionsError(
                f"columns {' and '.join(f'{prefix}<class>' for prefix in sets)} are "
                "both there; leave one of them out"
            )
        for prefix, columns in sets.items():
            if len(columns) < 2:
                raise PredictionsError(
                    f"column {columns[0]} has scores of one class; there must be a "
                    f"column {prefix}<class> for every class"
                )
            return _by_class(wanted, prefix, columns)
    return None


def _by_class(kind: Kind, prefix: str, columns: list[str]) -> ScoreColumns:
    classes = [name.strip()[len(prefix) :] for name in columns]
    numbers = [as_number(text) for text in classes]
    if all(number is not None for number in numbers):
        by_number = dict(zip(numbers, columns, strict=True))
        lacking = [c for c in range(len(columns)) if c not in by_number]
        if lacking:
            raise PredictionsError(
                f"columns {prefix}<class> must have the class numbers 0 to "
                f"{len(columns) - 1} or names; {some(lacking)} missing, "
                f"{len(columns)} columns found"
            )
        ordered = tuple(by_number[c] for c in range(len(columns)))
        return ScoreColumns(kind, ordered, None)
    return ScoreColumns(kind, tuple(columns), tuple(classes))
