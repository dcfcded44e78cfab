"""Predictions in arrays: logits, probabilities or predicted classes."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from churn_compare.pair import Kind
from churn_compare.reading.account import Account
from churn_compare.reading.class_values import (
    SCORES,
    ClassValues,
    ColumnNames,
    Roles,
    ScoreColumns,
    as_class_values,
    decoded,
    find_roles,
    plain,
    score_of_label,
)
from churn_compare.reading.contents import as_array
from churn_compare.reading.spelling import composed
from churn_compare.scanning.score_block import sum_tolerance
from churn_compare.store import PredictionsError, sample_rows, stopped_runs

KINDS = ("logits", "probabilities", "classes")
_NEAR = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Predictions in the shapes of `Side`."""

    kind: Kind  # what `values` are
    values: np.ndarray  # `[R, N, C]`, or `[R, N]` classes
    # of classes that were strings, else None
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()  # what was assumed


def as_scores(values: np.ndarray, kind: Kind | None, what: str) -> Scores:
    """Tells what an array holds, and gives it the shape of a `Side`."""
    # Integers and strings are classes. Real numbers are probabilities where sampled
    # rows are at least 0 and sum to one (or to 100, which the pass refuses with a
    # hint), else logits. One score per example is that of class 1 of two, if the kind
    # is given.
    letter = "f" if values.dtype.name == "bfloat16" else values.dtype.kind
    if values.dtype.names or letter not in "fiubUSO":
        raise PredictionsError(
            f"{what} must be numbers or class names; they are {values.dtype}"
        )
    if values.ndim not in (1, 2, 3):
        raise PredictionsError(
            f"{what} must have shape [N, C] or [R, N, C] for scores, [N] or [R, N] for "
            f"classes; got {values.shape}"
        )
    if not values.size:
        raise PredictionsError(f"{what} are empty; got shape {values.shape}")
    if letter in "USO" or kind == "classes" or (letter in "iub" and kind is None):
        return _classes(values, letter, kind, what)
    if letter in "iub":
        values = values.astype(np.result_type(values.dtype, np.float32))
    return _scores(values, kind, what)


def _classes(values: np.ndarray, letter: str, kind: Kind | None, what: str) -> Scores:
    if letter in "USO" and kind in ("logits", "probabilities"):
        raise PredictionsError(f"{what} are not numbers, so they cannot be {kind}")
    if values.ndim == 3 or (letter == "f" and values.ndim == 2):
        raise PredictionsError(
            f"{what} of shape {values.shape} are scores, not classes; say whether they "
            "are logits or probabilities"
        )
    if values.ndim == 2 and values.shape[0] > values.shape[1]:
        raise PredictionsError(
            f"{what} are integers of shape {values.shape}: as classes [R, N] that is "
            "more runs than examples; transpose them, or say the kind if they are "
            "scores"
        )
    found = as_class_values(values, what)
    numbers = found.numbers.astype(np.int32)
    numbers = numbers[None] if numbers.ndim == 1 else numbers
    return Scores("classes", numbers, found.names)


def _scores(values: np.ndarray, kind: Kind | None, what: str) -> Scores:
    if values.ndim == 1 or values.shape[-1] == 1:
        values = values[:, None] if values.ndim == 1 else values
        return _binary(values if values.ndim == 3 else values[None], kind, what)
    values = values if values.ndim == 3 else values[None]
    if kind is not None:
        return Scores(kind, values)
    kind, why = _guess(values, what)
    return Scores(kind, values, None, (f"{what} are taken for {kind}: {why}.",))


def _binary(values: np.ndarray, kind: Kind | None, what: str) -> Scores:
    """The score of class 1 of two; `values` is `[R, N, 1]`."""
    if kind is None:
        raise PredictionsError(
            f"{what} have one score per example; say by the kind whether that is the "
            "logit or the probability of class 1 of two, or give a score of every class"
        )
    values = values.astype(np.result_type(values.dtype, np.float32))
    other = 1 - values if kind == "probabilities" else np.zeros_like(values)
    note = f"{what} are taken for the {kind} of class 1 of two."
    return Scores(kind, np.concatenate([other, values], axis=2), None, (note,))


def _guess(values: np.ndarray, what: str) -> tuple[Kind, str]:
    """Logits or probabilities, from rows of the first run, and why."""
    sample = sample_rows(values)
    sample = sample[np.isfinite(sample).all(axis=1)]
    if not len(sample) or not (sample >= 0).all(axis=1).mean() >= 0.5:
        return "logits", "many are negative"
    total = sample.sum(axis=1)
    tolerance = max(_NEAR, sum_tolerance(sample, values.dtype))
    near = np.minimum(np.abs(total - 1), np.abs(total / 100 - 1)) <= tolerance
    near &= (sample >= 0).all(axis=1)
    if near.mean() >= 0.5:
        return "probabilities", "rows are at least 0 and sum to one"
    if sample.max() <= 1:
        raise PredictionsError(
            f"{what} lie between 0 and 1 like probabilities, but {int((~near).sum())} "
            f"of {len(near)} rows that were looked at do not sum to one (one sums to "
            f"{total[~near][0]:.3g}); say that they are logits if they are"
        )
    return "logits", "rows do not sum to one"


@dataclasses.dataclass(frozen=True, eq=False)
class RawSide:
    """What will be a `Side`; ids and labels as they are in the file."""

    scores: Scores  # the predictions
    class_names: tuple[str, ...] | None = None  # of the columns of the scores, or None
    ids: Any = None  # `[N]`, or None
    labels: Any = None  # `[N]`, or None
    runs: tuple[int, ...] | None = None  # numbers of the runs; None for 0 to R - 1
    notes: tuple[str, ...] = ()  # sentences that a user should know
    decisions: ClassValues | None = None  # `[R, N]`, of classes next to scores
    account: Account | None = None
    number_names: tuple[str, ...] | None = None  # of class numbers, by the metadata


SCORES_ALONE = "; --kind probabilities or logits compares the scores alone"


def account_of(
    roles: Roles,
    names: Iterable[str],
    scores: Scores,
    what: str = "column",
    said: Mapping[str, str] = {},
) -> Account:
    """What was read of the columns; `said` has why some were left out."""

    def of(role: str, name: str | None) -> list[str]:
        if name is None:
            return []
        usual = plain(name) in (role, f"{role}s")
        return [role if usual else f"{role} ({what} {name})"]

    if roles.scores is None and scores.kind != "classes":
        roles = roles._replace(scores=roles.prediction, prediction=None)
    read = [*of("id", roles.id), *of("label", roles.label)]
    used = {roles.id, roles.label, roles.prediction, roles.run}
    if scores.kind == "classes":
        read += of("prediction", roles.prediction or str(roles.scores))
    else:
        of_classes = f"{scores.kind} of {scores.values.shape[-1]} classes"
        if roles.prediction is not None:
            read.append(f"decision ({what} {roles.prediction})")
        if isinstance(roles.scores, str) and plain(roles.scores) != scores.kind:
            of_classes += f" ({what} {roles.scores})"
        read.append(of_classes)
    columns = roles.scores
    used |= set(columns.columns if isinstance(columns, ScoreColumns) else (columns,))
    left = [f"{n} ({said[n]})" if n in said else n for n in names if n not in used]
    return Account((*read, *of("run", roles.run)), tuple(left))


def find_in_arrays(
    arrays: Mapping[str, Any], kind: Kind | None, names: ColumnNames
) -> RawSide:
    """Predictions among arrays by name, such as those of a `.npz` file."""
    roles = find_roles(arrays, kind, names, others=False)
    name, chosen = roles.scores or roles.prediction, kind
    assert isinstance(name, str)
    values, said, decisions = as_array(arrays[name], name), {}, None
    if roles.scores is not None:
        chosen = SCORES.get(plain(name), kind)
    if roles.scores is not None and roles.prediction is not None:
        decided = roles.prediction
        decisions = _decisions(as_array(arrays[decided], decided), decided)
        if kind is None and values.shape[-1:] == values.shape[1:] == (1,):
            values = values[:, 0]
        if kind is None and values.ndim == 1:
            said[name] = "one number per example"
            values, chosen, decisions = decisions.numbers, "classes", None
            values = as_array(arrays[decided], decided)
            roles = roles._replace(scores=None)
            name = decided
    scores = as_scores(values, chosen, name)
    runs, notes = None, ()
    if "meta" in arrays:
        stopped = stopped_runs(_meta(arrays["meta"]), len(scores.values))
        if stopped:
            runs = tuple(r for r in range(len(scores.values)) if r not in stopped)
            if not runs:
                raise PredictionsError("every run stopped before its end")
            listed = ", ".join(map(str, stopped))
            notes = (f"runs {listed} stopped early and are left out.",)
            scores = dataclasses.replace(scores, values=scores.values[list(runs)])
            if decisions is not None and decisions.numbers.ndim == 2:
                decisions = decisions._replace(numbers=decisions.numbers[list(runs)])
    entries = [n for n in arrays if n not in ("meta", "class_names")]
    return RawSide(
        scores,
        array_class_names(arrays),
        None if roles.id is None else as_array(arrays[roles.id], "ids"),
        None if roles.label is None else as_array(arrays[roles.label], "labels"),
        runs,
        notes,
        decisions,
        account_of(roles, entries, scores, "array", said),
    )


def _decisions(values: np.ndarray, name: str) -> ClassValues:
    """Classes that were decided, next to scores."""
    if values.ndim not in (1, 2) or (values.ndim == 2 and values.dtype.kind == "f"):
        raise PredictionsError(
            f"{name} of shape {values.shape} and type {values.dtype} next to scores "
            f"are not decided classes{SCORES_ALONE}"
        )
    return as_class_values(values, name, SCORES_ALONE)


def has_arrays(
    arrays: Mapping[str, Any], kind: Kind | None, names: ColumnNames
) -> bool:
    """True if predictions are whole arrays, not one array per class."""
    roles = find_roles(arrays, kind, names, others=False)
    if score_of_label(arrays, roles, names) is not None:
        return False
    return isinstance(roles.scores or roles.prediction, str)


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
    return tuple(composed(str(name)) for name in found.tolist())


def _meta(entry: Any) -> Mapping[str, Any]:
    """Facts about the runs; those of other tools are ignored."""
    if isinstance(entry, Mapping):
        return entry
    try:
        meta = json.loads(str(np.asarray(entry)))
    except (ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, Mapping) else {}
