"""Data sets given as Python objects instead of files."""

import dataclasses
import hashlib
import numbers
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from churn_jax.data.arrays import (
    Part,
    Uncut,
    as_array,
    as_images,
    as_labels,
    check_columns,
    checked_parts,
    pool_note,
)
from churn_jax.data.digits import VALIDATION_SIZE
from churn_jax.data.example_sources import COLUMNS, read_examples
from churn_jax.data.loading import assemble, read_uncut
from churn_jax.data.npz_source import read_arrays
from churn_jax.data.records import StreamingDataset
from churn_jax.data.splits import DataError, Dataset, fingerprint, first_line
from churn_jax.data.text import TextOptions

_SPLITS = ("train", "validation", "test")


def from_source(
    source: Any,
    *,
    columns: tuple[str, str] = COLUMNS,
    validation: Any = None,
    test: Any = None,
    train_size: int | None = None,
    num_classes: int | None = None,
    name: str | None = None,
) -> Dataset:
    """A data set in memory from a Python object.

    Args:
        source: a pair of arrays `(x, y)`; `((x, y), (x_test, y_test))`, as Keras gives
            them; a dict of arrays by the names that an `.npz` file has; a dict of
            sources by split (`train`, `test`, `validation`), such as a `DatasetDict`;
            any sequence or iterable of records, which are dicts or pairs (image,
            label), as Hugging Face, Grain and PyTorch have them; a `Dataset`; a name or
            path as for `load`; or a function without arguments that returns one of
            these. Arrays are read as in `Dataset.from_arrays`, records to the end in
            their order, which must not change from one launch to the next.
        columns: names of the image and of the label in records that are dicts.
            `input_ids`, `token_ids` and `tokens` hold token ids, where 0 is padding. A
            column `id` is the example's id.
        validation: a source of validation examples; or how many of the training
            examples to hold out, as for `load`.
        test: a source of test examples. If there is none, a fifth of the examples is
            held out, which `Dataset.notes` says.
        train_size: as for `load`.
        num_classes: as for `Dataset.from_arrays`.
        name: what titles call it; None for `arrays@` and a hash of the contents.

    Returns:
        The data set.

    Raises:
        DataError: the object cannot be used; one sentence says why.

    Example:
        >>> x, y = np.zeros((50, 3)), np.array(["no", "yes"] * 25)
        >>> mine = from_source({"images": x, "labels": y}, name="mine")
        >>> len(mine.train), len(mine.test), mine.class_names
        (36, 10, ('no', 'yes'))
    """
    counted = isinstance(validation, numbers.Number)
    held: Any = validation if counted else None
    if isinstance(source, str) and source == "digits" and validation is None:
        held = VALIDATION_SIZE
    uncut = read_source(
        source,
        columns=columns,
        validation=None if counted else validation,
        test=test,
    )
    dataset = assemble(name or _called(source), uncut, held, train_size, num_classes)
    if name or isinstance(source, (str, pathlib.Path)):
        return dataset
    return dataclasses.replace(dataset, name=object_name(dataset))


def read_source(
    source: Any,
    *,
    columns: tuple[str, str] = COLUMNS,
    validation: Any = None,
    test: Any = None,
    text: TextOptions = TextOptions(),
) -> Uncut:
    """The splits of a source before they are cut; arguments as for `from_source`."""
    named = [name for name in columns if isinstance(name, str)]
    if isinstance(columns, str) or len(columns) != 2 or len(named) != 2:
        raise DataError(
            f"columns must be the names of the image and of the label; got {columns!r}"
        )
    if is_function(source):
        source = returned(source)
    given = {"validation": validation, "test": test}
    more = {name: part for name, part in given.items() if part is not None}
    whole = _whole(source, text)
    if whole is not None:
        if more:
            raise DataError(
                f"{' and '.join(more)}: {_kind(source)} has splits of its own; give "
                "all of them as {'train': ..., 'test': ...}"
            )
        return whole
    sources = source if isinstance(source, Mapping) else _by_split(source)
    sources = {**sources, **more}
    if sources.keys() - set(_SPLITS) or "train" not in sources:
        raise DataError(
            "the splits of a data set are train, test and validation; got "
            f"{', '.join(map(str, sources))}"
        )
    return checked_parts(
        {name: _part(name, part, columns) for name, part in sources.items()}
    )


def is_function(source: Any) -> bool:
    """True if a source is a function or class, which returns one."""
    return callable(source) and hasattr(source, "__qualname__")


def returned(function: Any) -> Any:
    """The source that a function of the user returns."""
    try:
        return function()
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"{function.__qualname__}() failed: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error


def object_name(dataset: Dataset) -> str:
    """The stem of its name and a hash of its contents, as `arrays@1a2b3c4d`."""
    stem = pathlib.Path(dataset.name).name.removesuffix(".npz")
    stem = re.sub(r"[^\w.-]+", "-", re.sub(r"@[0-9a-f]{8}$", "", stem))
    # Not the fingerprint of the data set: that of a narrowed one is not of its arrays.
    contents = fingerprint(dataset.train, dataset.validation, dataset.test)
    text = f"{contents} {dataset.num_classes} {dataset.class_names}"
    return f"{stem}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _called(source: Any) -> str:
    if isinstance(source, (str, pathlib.Path)):
        return str(source)
    return source.name if isinstance(source, Dataset) else "arrays"


def _kind(source: Any) -> str:
    return "a dict of arrays" if isinstance(source, Mapping) else str(_called(source))


def _whole(source: Any, text: TextOptions) -> Uncut | None:
    """The splits of a source that has all of them under names of its own."""
    if isinstance(source, (str, pathlib.Path)):
        return read_uncut(source, text=text)
    if isinstance(source, StreamingDataset):
        raise DataError(
            f"{source.name} is read on demand; give its name instead of the object"
        )
    if isinstance(source, Dataset):
        splits = {"train": source.train, "test": source.test}
        if len(source.validation):
            splits["validation"] = source.validation
        return Uncut(splits, source.num_classes, source.class_names, source.notes)
    if isinstance(source, Mapping) and not source.keys() & set(_SPLITS):
        return _named_arrays(source)
    return None


def _named_arrays(given: Mapping[str, Any]) -> Uncut:
    """Arrays by the names that a file has, after what is unambiguous is converted."""
    plain = {str(key).removesuffix("s"): key for key in given}
    raw = {k: (k, given[v]) for k, v in plain.items() if k.endswith("label")}
    classes, names, notes, arrays = None, (), (), {}
    if train := next((k for k in ("train_label", "label") if k in raw), None):
        arrays, classes, names, notes = as_labels(raw, train)
    check_columns({k: given[v] for k, v in plain.items() if k.endswith("image")})
    for key in plain.keys() - raw.keys():
        if key.endswith("image"):
            arrays[key] = as_images(key, given[plain[key]])
        else:
            arrays[key] = as_array(key, "values", given[plain[key]])
    # Texts keep their length, of which a file's reader is told one.
    lengths = [
        np.diff(array).max(initial=1) if key.endswith("offset") else array.shape[-1]
        for key, array in arrays.items()
        if key.endswith("offset") or (key.endswith("token") and array.ndim == 2)
    ]
    longest = TextOptions(sequence_length=int(max(lengths, default=1)))
    splits, declared = read_arrays("the dict of arrays", arrays, longest)
    if "image" in plain and "split" not in plain:
        count = sum(map(len, splits.values()))
        notes += (pool_note(count, len(splits["test"])),)
    return Uncut(splits, classes if declared is None else declared, names, notes)


def _by_split(source: Any) -> dict[str, Any]:
    """`((x, y), (x_test, y_test))` by split; any other source is one of training."""
    if isinstance(source, tuple) and not isinstance(source, Part):
        if all(isinstance(part, tuple) for part in source) and len(source) > 1:
            if len(source) == 2:
                return dict(zip(("train", "test"), source, strict=True))
            raise DataError(
                f"got {len(source)} pairs of arrays; name them: "
                "{'train': (x, y), 'validation': (x, y), 'test': (x, y)}"
            )
    return {"train": source}


def _part(where: str, source: Any, columns: tuple[str, str]) -> Part:
    """The examples of one split."""
    if isinstance(source, Part):
        return source
    if not isinstance(source, tuple):
        return read_examples(where, source, columns)
    if len(source) != 2:
        raise DataError(
            f"{where}: expected a pair (x, y) of images and labels; got a tuple of "
            f"{len(source)}"
        )
    for values in source:
        if not hasattr(values, "__array__") and not isinstance(values, Sequence):
            raise DataError(
                f"{where}: a pair is one of arrays (x, y); got "
                f"{type(values).__name__}. Several splits are given as "
                "{'train': ..., 'test': ...}"
            )
    return Part(*source)
