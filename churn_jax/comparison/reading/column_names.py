"""What columns and arrays are for, by their names."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from churn_jax.comparison.reading.class_values import as_number
from churn_jax.comparison.side import Kind
from churn_jax.predictions import PredictionsError, some

__all__ = [
    "ID",
    "LABEL",
    "PREDICTION",
    "RUN",
    "SCORES",
    "ColumnNames",
    "ScoreColumns",
    "find_column",
    "score_columns",
]

ID = ("id", "ids", "example_id", "example_ids")
LABEL = ("label", "labels", "y_true", "target", "targets")
PREDICTION = (
    "prediction",
    "predictions",
    "predicted",
    "class",
    "classes",
    "y_pred",
)
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
    """Columns that a user names; None goes by `ID`, `LABEL` and `PREDICTION`."""

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
    """The one column of a purpose."""
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
