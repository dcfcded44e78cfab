"""Classes as users write them, and what columns are for, by their names."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from churn_compare.example_ids import PredictionsError, some
from churn_compare.pair import Kind
from churn_compare.reading.spelling import arrow_compute, composed, stripped, twice

# Numbers this large are hash values or ids; tables of all classes would not fit.
_LONGEST_NAME = 10_000
MOST_CLASSES = 1_000_000
_CLASSLESS = "; leave these examples out, or give them a class of their own"
_TRUTH = ("False", "True")  # names of the classes of booleans
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBERED = re.compile(r"LABEL_(\d{1,6})")  # as transformers names classes
_DECIMAL = re.compile(r"(-?[0-9]{1,15})\.0*")  # 3.0, as pandas writes 3
_FLOAT = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf)", re.IGNORECASE
)


class ClassValues(NamedTuple):
    """The class of every example."""

    numbers: np.ndarray  # int64 class numbers, or places in `names`
    # distinct class names in ascending order; None where classes have numbers only
    names: tuple[str, ...] | None

    def known(self) -> "ClassValues":
        """Those of the examples that have a class."""
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


def decoded(values: np.ndarray, what: str) -> np.ndarray:
    """Bytes as strings."""
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise PredictionsError(f"{what} are bytes that are not in UTF-8") from error


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
    return _numbered(values, what, hint)


NO_LABEL = -1


def with_missing(values: Any, what: str, none: bool = False) -> ClassValues:
    """The same, `NO_LABEL` for examples without a value; all of them with `none`."""
    column = values
    if not hasattr(column, "null_count"):
        if np.asarray(values).dtype.kind in "biu":
            return as_class_values(values, what)
        import pyarrow as pa

        try:
            column = pa.chunked_array([pa.array(np.asarray(values), from_pandas=True)])
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return as_class_values(values, what)
    missing = _missing(column)
    if missing.all() and none:
        return ClassValues(np.full(len(missing), NO_LABEL, np.int64), None)
    if not missing.any() or missing.all():
        return as_class_values(values, what)
    found = as_class_values(column.filter(~missing), what)
    numbers = np.full(len(missing), NO_LABEL, np.int64)
    numbers[~missing] = found.numbers
    return ClassValues(numbers, found.names)


def _missing(column: Any) -> np.ndarray:
    """Where an Arrow column has no value, or a blank text."""
    import pyarrow as pa

    pc = arrow_compute()
    missing = np.asarray(column.is_null())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        blank = pc.equal(pc.utf8_trim_whitespace(column), "")
        missing = missing | np.asarray(pc.fill_null(blank, True))
    return missing


def without_space(found: ClassValues, what: str) -> ClassValues:
    """Classes whose names have no outer space; equal names become one class."""
    if found.names is None:
        return found
    again = as_class_values(np.array(list(map(stripped, found.names))), what)
    numbers = np.append(again.numbers, NO_LABEL)[found.numbers]
    return ClassValues(numbers, again.names)


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
        refuse_missing(np.asarray(column.is_null()), what, _CLASSLESS)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if pa.types.is_nested(kind):
        raise PredictionsError(f"{what} must be integers or strings; they are {kind}")
    return column.to_numpy()


def refuse_missing(missing: np.ndarray, what: str, hint: str = "") -> None:
    """Refuses examples without a value."""
    if count := int(missing.sum()):
        raise PredictionsError(
            f"{what} are missing for {count} of {missing.size} examples, for example "
            f"rows {some(np.flatnonzero(missing))} (the first is 0){hint}"
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
    refuse_missing(missing, what, _CLASSLESS)
    places = encoded.indices.to_numpy()
    spelled = list(map(composed, found))
    if spelled != found:  # decomposed letters; equal names become one
        found = list(dict.fromkeys(spelled))
        places = np.array([found.index(name) for name in spelled])[places]
    numbers = [_number(text) for text in found]
    if None not in numbers:
        taken = np.array(numbers, np.int64)[places] if len(places) else places
        return _numbered(taken.reshape(values.shape), what)
    if all(map(_FLOAT.fullmatch, found)):
        floats = np.array(found, np.float64)
        if not np.all(floats == np.floor(floats)):  # scores, which are not names
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
    text = stripped(text)  # a column of fixed width
    whole = _NUMBERED.fullmatch(text) or _DECIMAL.fullmatch(text)
    return int(whole[1]) if whole else as_number(text)


def _numbered(values: np.ndarray, what: str, hint: str = "") -> ClassValues:
    if values.size and values.min() == -1 and np.isin(values, (-1, 1)).all():
        return ClassValues((values > 0).astype(np.int64), ("-1", "1"))  # of an SVM
    return ClassValues(_whole(values, what, hint), None)


def _whole(values: np.ndarray, what: str, hint: str = "") -> np.ndarray:
    """Checked class numbers, as int64."""
    if values.dtype.kind == "f":
        refuse_missing(np.isnan(values).reshape(-1), what, _CLASSLESS)
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


# Names of columns and arrays for each role, as `plain` writes them: the one list for
# predictions, files of labels and outcomes.
ID = ("id", "ids", "example_id", "example_ids")
LABEL = (
    *("label", "labels", "label_id", "label_ids", "true_label", "true_class"),
    *("y_true", "y_test", "y", "target", "targets", "truth", "ground_truth", "gold"),
    *("gold_label", "actual", "reference", "expected"),
)
OUTPUT = ("output", "outputs")  # a prediction only where no outcome is there
PREDICTION = (
    *("prediction", "predictions", "predicted", "predict", "pred", "preds"),
    *("y_pred", "yhat", "y_hat", "predicted_label", "predicted_labels"),
    *("predicted_class", "predicted_classes", "pred_label", "pred_class"),
    *(".pred_class", "prediction_label", "scored_labels", *OUTPUT),
)
CLASS = ("class", "classes")  # the truth if another column is the prediction
RUN = ("run",)
_USUAL = {*ID, *LABEL, *PREDICTION, *CLASS, *RUN}
_LOGITS = ("logits", "logit")
_PROBABILITIES = (
    *("probabilities", "probability", "probs", "prob", "probas", "proba"),
    *("y_prob", "y_proba", "pred_proba", "predict_proba"),
)
SCORES: dict[str, Kind] = {
    name: "logits" if name in _LOGITS else "probabilities"
    for name in (*_LOGITS, *_PROBABILITIES)
}
_PREFIXES: dict[str, Kind] = {
    "logit_": "logits",
    "logits_": "logits",
    "prob_": "probabilities",
    "proba_": "probabilities",
    "probability_": "probabilities",
    "p_": "probabilities",
}
SCORE_PREFIXES = tuple(_PREFIXES)
_OPTIONS = {  # that decide between two columns for one role
    "id": "--id-column",
    "label": "--label-column",
    "target": "--label-column",
    "prediction": "--prediction-column",
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
    class_names: tuple[str, ...] | None  # None where classes have numbers 0 to C - 1
    sure: bool = True  # whether the names alone say so; p_value and p_adj may be others


class Roles(NamedTuple):
    """Which column is for what, by the names."""

    id: str | None
    label: str | None
    prediction: str | None  # predicted classes; where scores are too, the decisions
    run: str | None
    scores: ScoreColumns | str | None  # a column per class, or the one with all of them


def plain(name: str) -> str:
    """A column's name as the lists of names have it."""
    return "_".join(name.lower().split())


def find_roles(
    names: Iterable[str], kind: Kind | None, given: ColumnNames, others: bool = True
) -> Roles:
    """Roles of columns or arrays; a column that a user names has that role only."""
    names = list(names)
    chosen = [name for name in given if name is not None]
    if again := twice(chosen):
        raise PredictionsError(f"column {again[0]} is named for two roles")
    free = [name for name in names if name not in chosen]
    usual = [name for name in free if plain(name) in _USUAL]

    def one(known: Sequence[str], own: str | None, what: str) -> str | None:
        return find_column(usual if own is None else names, known, own, what)

    id_name, run = one(ID, given.id, "id"), one(RUN, None, "run")
    prediction = one(PREDICTION, given.prediction, "prediction")
    scores = None if kind == "classes" else _scores_named(free, kind)
    of_scores = kind in ("logits", "probabilities")
    classes = one(CLASS, None, "prediction")
    pairs = [
        pair
        for pair in paired_columns(free + chosen)
        if (given.prediction or prediction) in (None, pair[1])
    ]
    known = LABEL
    if classes is not None and prediction is not None:
        known = (*LABEL, *CLASS)
    label = one(known, given.label, "label")
    if len(pairs) == 1 and scores is None and not of_scores and classes is None:
        truth, predicted = pairs[0]
        if label in (None, truth):
            label, prediction = truth, predicted
    if classes is not None and prediction is None:
        if label is None and (scores is not None or of_scores):
            raise PredictionsError(
                f"column {classes} next to scores could be the label or the "
                f"prediction; --label-column {classes} or --prediction-column "
                f"{classes} says which (an array of their names is called class_names)"
            )
        prediction = classes
    named = given.prediction
    if named is not None and kind is None and plain(named) in SCORES:
        return Roles(id_name, label, None, run, named)
    if of_scores and scores is not None and named is None:
        prediction = None  # the kind asks for the scores alone
    elif of_scores and scores is None:
        left = [n for n in free if n not in (id_name, label, prediction, run)]
        if named is None and _scores_named(free, None) is not None:  # another kind
            prediction = None
        elif named is None and others and len(left) > 1:
            prediction, scores = None, _by_class(kind, "", left)
        else:
            prediction, scores = None, prediction
    return Roles(id_name, label, prediction, run, scores)


_PAIR = re.compile(
    r"(?:pred|predicted|prediction)_(.+)|(.+)_(?:pred|predicted|prediction)"
)
_TRUTHS = "{} true_{} gold_{} actual_{} {}_true {}_gold {}_actual".split()


def paired_columns(names: Iterable[str]) -> list[tuple[str, str]]:
    """Truths and predictions that are named alike: category, predicted_category."""
    known = {plain(name): name for name in names}
    stems = [
        (m[1] or m[2], name) for of, name in known.items() if (m := _PAIR.fullmatch(of))
    ]
    return [
        (known[truth.format(stem)], name)
        for stem, name in stems
        for truth in _TRUTHS
        if truth.format(stem) in known
    ]


def score_of_label(
    names: Iterable[str], roles: Roles, given: ColumnNames
) -> tuple[str, str] | None:
    """A label (or class) and a score alone, as pipelines of Hugging Face write them."""
    label = roles.prediction or roles.label
    if roles.prediction is not None and (
        roles.prediction == given.prediction
        or roles.label is not None
        or plain(roles.prediction) not in CLASS
    ):
        return None
    score = next((name for name in names if plain(name) == "score"), None)
    found = None if label is None or score is None else (label, score)
    return found if roles.scores is None else None


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
    found = [name for name in names if plain(name) in known]
    if len(found) > 1:
        way_out = _OPTIONS.get(what, "renaming the others")
        raise PredictionsError(
            f"{' and '.join(found)} could both be the {what} column; {way_out} says "
            "which it is"
        )
    return found[0] if found else None


def _scores_named(names: list[str], kind: Kind | None) -> ScoreColumns | str | None:
    """The columns of scores, one per class, or the one column with all of them."""
    for wanted in (kind,) if kind else ("logits", "probabilities"):
        columns = score_columns(names, wanted)
        if columns is not None and columns.sure and len(columns.columns) > 1:
            return columns
        single = [name for name in names if SCORES.get(plain(name)) == wanted]
        if len(single) > 1:
            raise PredictionsError(
                f"{' and '.join(single)} are both {wanted}; leave one of them out"
            )
        if single:
            return single[0]
        if columns is not None:
            return columns._replace(sure=kind is not None or columns.sure)
    return None


def score_columns(names: Iterable[str], kind: Kind | None) -> ScoreColumns | None:
    """The columns `logit_<class>`, `prob_<class>` and the like."""
    of: dict[str, list[str]] = {prefix: [] for prefix in _PREFIXES}
    for name in names:
        prefix = "".join(name.strip().lower().partition("_")[:2])
        if prefix in of:
            of[prefix].append(name)
    for wanted in (kind,) if kind else ("logits", "probabilities"):
        sets = {p: of[p] for p, said in _PREFIXES.items() if said == wanted and of[p]}
        if len(sets) > 1 or len(sets.get("p_", ())) == 1:
            sets.pop("p_", None)  # may be anything: p_value
        if len(sets) > 1:
            raise PredictionsError(
                f"columns {' and '.join(f'{prefix}<class>' for prefix in sets)} are "
                "both there; leave one of them out"
            )
        for prefix, columns in sets.items():
            return _by_class(wanted, prefix, columns)
    return None


def _by_class(kind: Kind | None, prefix: str, columns: list[str]) -> ScoreColumns:
    assert kind is not None
    classes = [composed(name.strip()[len(prefix) :]) for name in columns]
    by_number = dict(zip(map(_number, classes), columns, strict=True))
    if by_number.keys() == set(range(len(columns))):
        ordered = tuple(by_number[c] for c in range(len(columns)))
        return ScoreColumns(kind, ordered, None)
    return ScoreColumns(kind, tuple(columns), tuple(classes), prefix != "p_")


def check_class_numbers(found: ScoreColumns) -> None:
    """Refuses columns of some class numbers, and of one class."""
    if len(found.columns) == 1:
        name = found.columns[0]
        raise PredictionsError(
            f"column {name} has scores of one class; there must be a column for every "
            f"class (--kind {found.kind} --prediction-column {name} takes it for the "
            "scores of class 1 of two)"
        )
    if found.class_names is not None and all_numbers(found.class_names):
        count = len(found.columns)
        lacking = [c for c in range(count) if str(c) not in found.class_names]
        raise PredictionsError(
            f"columns of scores must have the class numbers 0 to {count - 1} or names; "
            f"{some(lacking)} missing, {count} columns found: {some(found.columns)}"
        )
