"""Predictions, ids and labels as they are found in arrays or in a table."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from churn_jax.comparison.reading.class_values import decoded
from churn_jax.comparison.reading.column_names import (
    ID,
    LABEL,
    PREDICTION,
    SCORES,
    ColumnNames,
    find_column,
    score_columns,
)
from churn_jax.comparison.reading.contents import as_array
from churn_jax.comparison.reading.score_arrays import Scores, as_scores
from churn_jax.comparison.side import Kind
from churn_jax.predictions import PredictionsError, stopped_runs

__all__ = ["Found", "array_class_names", "find_in_arrays", "has_arrays"]


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """What a file holds; ids and labels as they are there."""

    scores: Scores  # the predictions
    class_names: tuple[str, ...] | None = None  # of the columns of the scores, or None
    ids: Any = None  # `[N]`, or None
    labels: Any = None  # `[N]`, or None
    runs: tuple[int, ...] | None = None  # numbers of the runs; None for 0 to R - 1
    notes: tuple[str, ...] = ()  # sentences that a user should know


def find_in_arrays(
    arrays: Mapping[str, Any], kind: Kind | None, names: ColumnNames
) -> Found:
    """Predictions among arrays by name, such as those of a `.npz` file."""
    id_name = find_column(arrays, ID, names.id, "id")
    label_name = find_column(arrays, LABEL, names.label, "label")
    name, kind = _predictions_name(arrays, kind, names)
    scores = as_scores(as_array(arrays[name], name), kind, name)
    runs, notes = None, ()
    if "meta" in arrays:
        stopped = stopped_runs(_meta(arrays["meta"]), len(scores.values))
        if stopped:
            runs = tuple(r for r in range(len(scores.values)) if r not in stopped)
            if not runs:
                raise PredictionsError("every run stopped before its end")
            notes = (f"runs {_listed(stopped)} stopped early and are left out.",)
            scores = dataclasses.replace(scores, values=scores.values[list(runs)])
    return Found(
        scores,
        array_class_names(arrays),
        None if id_name is None else as_array(arrays[id_name], "ids"),
        None if label_name is None else as_array(arrays[label_name], "labels"),
        runs,
        notes,
    )


def has_arrays(
    arrays: Mapping[str, Any], kind: Kind | None, names: ColumnNames
) -> bool:
    """Whether predictions are arrays, and not an array per class as in a table."""
    if names.prediction is not None or any(n.strip().lower() in SCORES for n in arrays):
        return True
    return score_columns(arrays, kind) is None


def array_class_names(arrays: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The entry `class_names` as strings; None where there is none."""
    if "class_names" not in arrays:
        return None
    found = as_array(arrays["class_names"], "class_names")
    if found.ndim != 1 or found.dtype.kind not in "USOiu":
        raise PredictionsError(
            f"class_names must be [C] strings; got {found.dtype} of shape {found.shape}"
        )
    if found.dtype.kind == "S":
        found = decoded(found, "class_names")
    return tuple(map(str, found.tolist()))


def _predictions_name(
    arrays: Mapping[str, Any], kind: Kind | None, names: ColumnNames
) -> tuple[str, Kind | None]:
    """Which of the arrays holds the predictions, and what its name says it is."""
    by_kind: dict[Kind, list[str]] = {"logits": [], "probabilities": []}
    for name in arrays:
        if said := SCORES.get(name.strip().lower()):
            by_kind[said].append(name)
    for said, found in by_kind.items():
        if found and (kind == said or (kind is None and names.prediction is None)):
            if len(found) > 1:
                raise PredictionsError(
                    f"{' and '.join(found)} are both {said}; leave one of them out"
                )
            return found[0], said
    predicted = find_column(arrays, PREDICTION, names.prediction, "prediction")
    if predicted is None:
        wanted = kind or "logits, probabilities or predictions"
        raise PredictionsError(
            f"there are no {wanted}, it has {', '.join(arrays) or 'nothing'}; say "
            "which is the prediction column"
        )
    return predicted, kind


def _meta(entry: Any) -> Mapping[str, Any]:
    """Facts about the runs; those of another tool are none of ours."""
    if isinstance(entry, Mapping):
        return entry
    try:
        meta = json.loads(str(np.asarray(entry)))
    except (ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, Mapping) else {}


def _listed(runs: tuple[int, ...]) -> str:
    return ", ".join(map(str, runs))
