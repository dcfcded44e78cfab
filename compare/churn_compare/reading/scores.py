"""Arrays and columns as scores `[R, N, C]` or predicted classes `[R, N]`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from churn_compare.example_ids import PredictionsError, canonical, decoded, some
from churn_compare.pair import Kind
from churn_compare.reading import arrow
from churn_compare.reading.class_values import as_class_values
from churn_compare.reading.contents import as_array, parsing
from churn_compare.scanning import sum_tolerance
from churn_compare.stored_logits import sample_rows

ROWS = 16_384  # converted at once
_NEAR = 0.01
_BRACKETS = re.compile(r"[\[\](),;]|(array|tensor|dtype=.*)")
_FRACTIONS = (
    "; if they are scores of class 1 of two, say their kind (logits or probabilities); "
    "if they are a regression's, call the column value"
)


class Scores(NamedTuple):
    """Predictions in the shapes of `Table`."""

    kind: Kind  # what `values` are
    values: Any  # `[R, N, C]`, or `[R, N]` classes
    class_names: tuple[str, ...] | None = None  # of classes that were strings
    notes: tuple[str, ...] = ()  # what was assumed


def as_scores(values: np.ndarray, kind: Kind | None, what: str) -> Scores:
    """Tells what an array holds, and gives it the shape of a `Table`."""
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
        if letter in "USO" and kind in ("logits", "probabilities"):
            raise PredictionsError(f"{what} are not numbers, so they cannot be {kind}")
        whole = letter != "f" or np.array_equal(values, np.floor(values))
        if values.ndim == 3 or (values.ndim == 2 and not whole):
            raise PredictionsError(
                f"{what} of shape {values.shape} are scores, not classes; say whether "
                "they are logits or probabilities"
            )
        if values.ndim == 2 and values.shape[0] > values.shape[1]:
            raise PredictionsError(
                f"{what} are integers of shape {values.shape}: as classes [R, N] that "
                "is more runs than examples; transpose them, or say the kind if they "
                "are scores"
            )
        return _classes(values, what)
    if letter in "iub":
        values = values.astype(np.result_type(values.dtype, np.float32))
    if values.ndim == 1 or values.shape[-1] == 1:
        return _binary(values, kind, what)
    values = values if values.ndim == 3 else values[None]
    if kind is not None:
        return Scores(kind, values)
    kind, why = _guess(values, what)
    return Scores(kind, values, None, (f"{what} are taken for {kind}: {why}.",))


def _classes(values: Any, what: str, hint: str = "") -> Scores:
    numbers, names = as_class_values(values, what, hint)
    return Scores("classes", np.atleast_2d(numbers.astype(np.int32)), names)


def _binary(values: np.ndarray, kind: Kind | None, what: str) -> Scores:
    """The score of class 1 of two."""
    if kind is None:
        raise PredictionsError(
            f"{what} have one score per example; say by the kind whether that is the "
            "logit or the probability of class 1 of two, or give a score of every class"
        )
    values = values.astype(np.result_type(values.dtype, np.float32))
    values = values if values.ndim == 3 else values.reshape(1, -1, 1)
    other = 1 - values if kind == "probabilities" else np.zeros_like(values)
    note = f"{what} are taken for the {kind} of class 1 of two."
    return Scores(kind, np.concatenate([other, values], axis=2), None, (note,))


def _guess(values: np.ndarray, what: str) -> tuple[Kind, str]:
    """Logits or probabilities, from rows of the first run, and why."""
    sample = sample_rows(values)
    sample = sample[np.isfinite(sample).all(axis=1)]
    positive = (sample >= 0).all(axis=1)
    if not len(sample):
        return "logits", "no row that was looked at is finite"
    if positive.mean() < 0.5:
        return "logits", "many are negative"
    total = sample.sum(axis=1)
    tolerance = max(_NEAR, sum_tolerance(sample, values.dtype))
    near = np.minimum(np.abs(total - 1), np.abs(total / 100 - 1)) <= tolerance
    near &= positive
    if near.mean() >= 0.5:
        return "probabilities", "rows are at least 0 and sum to one"
    if sample.max() <= 1:
        raise PredictionsError(
            f"{what} lie between 0 and 1 like probabilities, but {int((~near).sum())} "
            f"of {len(near)} rows that were looked at do not sum to one (one sums to "
            f"{total[~near][0]:.3g}); say the kind: logits, or classes"
        )
    return "logits", "rows do not sum to one"


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
    return tuple(canonical(str(name)) for name in found.tolist())


def predicted(column: Any, name: str) -> Scores:
    """Predicted classes, or the lists of scores that a column of predictions holds."""
    what = f"values of column {name}"
    if arrow.types.is_nested(column.type):
        return as_scores(lists(column, name), None, what)
    return _classes(column, what, _FRACTIONS)


def with_numbers(
    columns: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Any] | None:
    """The columns, with `names` as numbers; None if some hold other values."""
    texts = [name for name in names if arrow.types.is_string(columns[name].type)]
    if not all(n in texts or arrow.is_number(columns[n].type) for n in names):
        return None
    try:
        numbers = {name: columns[name].cast(arrow.float64()) for name in texts}
    except arrow.ArrowInvalid:
        return None
    return {**columns, **numbers}


def matrix(
    columns: Mapping[str, Any], names: Sequence[str], file: Any = None
) -> np.ndarray:
    """Columns as one array `[N, C]` in their own precision; missing values are NaN.

    They are read block by block from the Parquet `file` that has them, if any.
    """
    if file is None:
        table = arrow.table({name: columns[name] for name in names})
        schema, count = table.schema, table.num_rows
        batches = table.to_batches(max_chunksize=ROWS)
    else:
        schema, count = file.schema_arrow, file.metadata.num_rows
        batches = file.iter_batches(ROWS, columns=list(names))
    kinds = {name: schema.field(name).type for name in names}
    for name, kind in kinds.items():
        if not arrow.is_number(kind):
            raise PredictionsError(f"column {name} must hold numbers; it holds {kind}")
    of_numpy = {kind.to_pandas_dtype() for kind in kinds.values()}
    out = np.empty((count, len(names)), np.result_type(np.float32, *of_numpy))
    start = 0
    with parsing():
        for batch in batches:
            stop = start + batch.num_rows
            for place, name in enumerate(names):
                values = batch.column(name).to_numpy(zero_copy_only=False)
                out[start:stop, place] = values
            start = stop
    return out


def dense(column: Any) -> Any:
    """Lists, also those in dense vectors of Spark; None for other structs."""
    if not arrow.types.is_struct(column.type):
        return column
    fields = {field.name for field in column.type}
    if not {"type", "values"} <= fields:
        return None
    whole = arrow.all(arrow.equal(arrow.struct_field(column, "type"), 1)).as_py()
    return arrow.struct_field(column, "values") if whole else None


def parsed_lists(column: Any, name: str, sure: bool) -> Any:
    """Texts of numbers, or of lists of them in brackets, as such."""
    if not arrow.is_text(column.type):
        return column
    try:
        if "[" in (column[0].as_py() or ""):
            rows = [_BRACKETS.sub(" ", of or "").split() for of in column.to_pylist()]
            return arrow.chunked_array([[[*map(float, row)] for row in rows]])
        return column.cast(arrow.float64()) if sure else column
    except ValueError:
        raise PredictionsError(
            f"column {name} must hold numbers or lists of them, as [0.1, 0.9]"
        ) from None


def lists(column: Any, name: str) -> np.ndarray:
    """A column of equally long lists as `[N, C]`, or of numbers as `[N]`."""
    column = dense(column)
    if column is None:
        raise PredictionsError(
            f"column {name} holds structs, not dense vectors; write lists of "
            "numbers (vector_to_array in Spark), or --kind classes"
        )
    kind = column.type
    if not arrow.types.is_nested(kind):
        return column.to_numpy()
    element = getattr(kind, "value_type", None)
    if element is None or not arrow.is_number(element):
        raise PredictionsError(
            f"column {name} must hold lists of numbers, not {kind}; lists of names are "
            "compared in a column set, with target"
        )
    lengths = arrow.fill_null(arrow.list_value_length(column), -1).to_numpy()
    values, counts = np.unique(lengths, return_counts=True)
    usual = values[np.argmax(counts)]
    if len(values) > 1:
        odd = np.flatnonzero(lengths != usual)
        raise PredictionsError(
            f"column {name} has {usual} entries in most rows, but not in {odd.size} of "
            f"{lengths.size}, for example rows {some(odd)} (the first is 0)"
        )
    if usual < 0:
        raise PredictionsError(f"column {name} is empty")
    least = np.float16 if arrow.types.is_float16(element) else np.float32
    dtype = np.result_type(least, element.to_pandas_dtype())
    parts = [of.flatten().to_numpy(zero_copy_only=False) for of in column.chunks]
    return np.concatenate(parts, dtype=dtype).reshape(len(column), usual)
