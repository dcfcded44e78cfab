"""Data sets by name, by path, or as Python objects, which are given a name.

A study's settings are names and numbers. A function that returns a data set is found
by `package.module:function` or the short name it was registered under; any other object
by a hash of its contents, in the process that it was given to.
"""

import contextlib
import dataclasses
import hashlib
import numbers
import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from churn_jax.data.arrays import (
    SPLITS,
    Part,
    Uncut,
    checked_parts,
    named_arrays,
    open_npz,
)
from churn_jax.data.cutting import assemble
from churn_jax.data.digits import NUM_CLASSES, VALIDATION_SIZE, load_digits
from churn_jax.data.example_sources import COLUMNS, read_examples
from churn_jax.data.records import StreamingDataset
from churn_jax.data.splits import DataError, Dataset, fingerprint, first_line, is_tokens
from churn_jax.data.text import (
    TextOptions,
    is_text_folder,
    read_text_folder,
    text_split,
    token_rows,
)
from churn_jax.registry import Registry, dotted_name

DATASETS = Registry("function that returns a data set", {})
"""Data sets of your own and of installed packages, by name."""

_OBJECT = re.compile(r"[\w.-]+@[0-9a-f]{8}")
_FUNCTION = re.compile(r"(?!tfds:)([A-Za-z_]\w*(\.\w+)*|.+\.py):[A-Za-z_][\w.]*")
# The last few are kept; earlier ones as long as somebody else holds them, so that a
# notebook that trains on many arrays does not fill the memory.
_KEPT = 4
_objects: WeakValueDictionary[str, Dataset] = WeakValueDictionary()
_last: deque[Dataset] = deque(maxlen=_KEPT)


def load(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    manual_dir: str | Path | None = None,
    validation: int | float | None = None,
    train_size: int | None = None,
    num_classes: int | None = None,
    text: TextOptions = TextOptions(),
) -> Dataset:
    """Reads a data set into memory and cuts it the same way every time.

    Validation examples are the last of a fixed permutation of the source's training
    examples, and `train_size` keeps the first of what is left: neither depends on a
    study's seeds, training sets of growing size contain each other, and with
    `train_size` given the training set does not change with `validation`. Examples
    keep the order and the ids of their source.

    Args:
        name_or_path: `digits` (embedded); a path that ends in `.npz`; a folder with
            `train.csv` and `test.csv` of texts; the name of a Python object (see
            `named`), or `package.module:function` of a function without arguments that
            returns one; or a TFDS name, plain or with the prefix `tfds:`.
        data_dir: where TFDS sets are prepared; None for the TFDS default.
        manual_dir: folder with original files. If given, a TFDS set that is not yet
            prepared is prepared from it, as `churn-jax data` does.
        validation: training examples to hold out: a count (int), or a
            fraction (float, below 1). None takes the source's own validation split,
            or 200 for `digits`, or else a tenth. 0 leaves it empty.
        train_size: number of training examples to keep; None for all.
        num_classes: checked against the source; None takes the source's, or the
            largest training label plus one.
        text: settings of texts, their length and their vocabulary.

    Returns:
        The data set, with images uint8 `[N, H, W, C]` or float32, or token ids int32
        `[N, L]`; labels int32 `[N]`.

    Raises:
        DataError: the source cannot be read or used; one sentence says why.

    Example:
        >>> digits = load("digits", train_size=300)
        >>> len(digits.train), len(digits.validation), len(digits.test)
        (300, 200, 897)
        >>> digits.train.images.shape, digits.train.ids[0].item()
        ((300, 8, 8, 1), 'digits/2')
    """
    name = str(name_or_path)
    uncut = read_uncut(name_or_path, data_dir, manual_dir, text)
    if validation is None and name == "digits":
        validation = VALIDATION_SIZE
    return assemble(name, uncut, validation, train_size, num_classes)


def read_uncut(
    name_or_path: str | Path,
    data_dir: str | Path | None = None,
    manual_dir: str | Path | None = None,
    text: TextOptions = TextOptions(),
) -> Uncut:
    """The source's own splits; arguments as for `load`."""
    name = str(name_or_path)
    if name == "digits":
        return Uncut(load_digits(), NUM_CLASSES)
    if is_text_folder(name):
        return Uncut(read_text_folder(name, text))
    if isinstance(name_or_path, Path) or name.endswith(".npz"):
        with open_npz(name) as arrays:
            return named_arrays(name, arrays, text)
    if is_object(name):
        return _read_object(name, text)
    if not name.startswith("tfds:") and Path(name).is_file():
        raise DataError(f"{name} is a file, but its name does not end in .npz")
    name = name.removeprefix("tfds:")
    # Importing tensorflow-datasets takes time that digits and files need not pay.
    if manual_dir is not None:
        from churn_jax.data.prepare import prepare

        prepare(name, data_dir=data_dir, manual_dir=manual_dir)
    from churn_jax.data.tfds_source import read_tfds

    return Uncut(*read_tfds(name, data_dir=data_dir, text=text))


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
        >>> import numpy as np
        >>> x, y = np.zeros((50, 3)), np.array(["no", "yes"] * 25)
        >>> mine = from_source({"images": x, "labels": y}, name="mine")
        >>> len(mine.train), len(mine.test), mine.class_names
        (36, 10, ('no', 'yes'))
    """
    counted = isinstance(validation, numbers.Number)
    held: Any = validation if counted else None
    by_name = isinstance(source, (str, Path))
    if by_name and str(source) == "digits" and validation is None:
        held = VALIDATION_SIZE
    uncut = _read_source(
        source, columns=columns, validation=None if counted else validation, test=test
    )
    dataset = assemble(name or _called(source), uncut, held, train_size, num_classes)
    if name or by_name:
        return dataset
    return dataclasses.replace(dataset, name=_object_name(dataset))


def _read_source(
    source: Any,
    *,
    columns: tuple[str, str] = COLUMNS,
    validation: Any = None,
    test: Any = None,
    text: TextOptions = TextOptions(),
) -> Uncut:
    """The splits of a source before they are cut; arguments as for `from_source`."""
    if (
        isinstance(columns, str)
        or len(columns) != 2
        or not all(isinstance(name, str) for name in columns)
    ):
        raise DataError(
            f"columns must be the names of the image and of the label; got {columns!r}"
        )
    if _is_function(source):
        source = returned(source)
    given = {"validation": validation, "test": test}
    more = {name: part for name, part in given.items() if part is not None}
    whole = None
    if isinstance(source, (str, Path)):
        whole = read_uncut(source, text=text)
    elif isinstance(source, StreamingDataset):
        raise DataError(
            f"{source.name} is read on demand; give its name instead of the object"
        )
    elif isinstance(source, Dataset):
        splits = {"train": source.train, "test": source.test}
        if len(source.validation):
            splits["validation"] = source.validation
        whole = Uncut(splits, source.num_classes, source.class_names, source.notes)
    elif isinstance(source, Mapping) and not source.keys() & set(SPLITS):
        whole = named_arrays("the dict of arrays", source, None)
    if whole is not None:
        if more:
            arrays = isinstance(source, Mapping)
            kind = "a dict of arrays" if arrays else _called(source)
            raise DataError(
                f"{' and '.join(more)}: {kind} has splits of its own; give "
                "all of them as {'train': ..., 'test': ...}"
            )
        return whole
    sources = {**(source if isinstance(source, Mapping) else _by_split(source)), **more}
    if sources.keys() - set(SPLITS) or "train" not in sources:
        raise DataError(
            "the splits of a data set are train, test and validation; got "
            f"{', '.join(map(str, sources))}"
        )
    parts = {name: _part(name, part, columns) for name, part in sources.items()}
    return checked_parts(parts)


def _called(source: Any) -> str:
    if isinstance(source, (str, Path)):
        return str(source)
    return source.name if isinstance(source, Dataset) else "arrays"


def named(
    source: Any,
    *,
    columns: tuple[str, str] = COLUMNS,
    validation: Any = None,
    test: Any = None,
    num_classes: int | None = None,
    name: str | None = None,
) -> str:
    """The name under which `load` finds a data set given as a Python object.

    It goes into `DataConfig(name=...)`, whose `validation` and `train_size` then cut
    the object as they cut a file. Equal contents have equal names.

    Args:
        source: as for `from_source`; or a function without arguments that returns such
            a source.
        columns: as for `from_source`.
        validation: a source of validation examples; how many to hold out is a setting
            of `DataConfig`.
        test: as for `from_source`.
        num_classes: as for `from_source`.
        name: beginning of the name; None for `arrays`.

    Returns:
        `package.module:function` of a function that other processes can import, else a
        name like `arrays@1a2b3c4d`, which only this process knows. The last four
        objects are kept, and earlier ones as long as something else holds what
        `find_dataset` returns.

    Raises:
        DataError: as for `from_source`.

    Example:
        >>> import numpy as np
        >>> from churn_jax.data import load
        >>> mine = named((np.zeros((50, 3)), np.arange(50) % 2), name="zeros")
        >>> mine, len(load(mine, train_size=20).train)
        ('zeros@d3e91f6d', 20)
    """
    if isinstance(source, (str, Path)):
        return str(source)
    options = (validation, test, num_classes, name)
    plain = columns == COLUMNS and all(option is None for option in options)
    if plain and _is_function(source):
        with contextlib.suppress(ValueError):
            if DATASETS.find(dotted_name(source)) is source:  # others can import it
                return dotted_name(source)
    if isinstance(validation, numbers.Number):
        raise DataError(
            f"validation={validation}: how many examples are held out is a setting of "
            "the study, DataConfig(validation=...)"
        )
    uncut = _read_source(source, columns=columns, validation=validation, test=test)
    if not (plain and isinstance(source, Dataset)):
        own = None if "validation" in uncut.splits else 0
        called = name or _called(source)
        source = assemble(called, uncut, own, None, num_classes)
    found = _object_name(source)
    # The one that is held stays, unless its arrays were changed meanwhile.
    held = _objects.get(found)
    if held is None or _object_name(held) != found:
        held = _objects[found] = source
    _last.append(held)
    return found


def find_dataset(name: str) -> Dataset:
    """The data set that `named` keeps under a name, before it is cut.

    Args:
        name: as `named` returned it, of an object.

    Raises:
        DataError: this process does not have it.
    """
    if (found := _objects.get(name)) is None:
        raise DataError(
            f"{name} was given as a Python object, which this process does not have "
            "(any more): run the script that made it again, or give the object itself"
        )
    if _object_name(found) != name:
        raise DataError(
            f"the arrays of {name} were changed after they were given; give them again"
        )
    return found


def is_object(name: str) -> bool:
    """True if a name stands for a Python object or function, known here or not."""
    known = _OBJECT.fullmatch(name) or _FUNCTION.fullmatch(name)
    return bool(known) or (":" not in name and name in DATASETS)


def is_tfds(name_or_path: str | Path) -> bool:
    """True if a source is looked up among the sets of TFDS."""
    name = str(name_or_path)
    ours = isinstance(name_or_path, Path) or name == "digits" or name.endswith(".npz")
    return not (ours or is_text_folder(name) or is_object(name))


def _read_object(name: str, text: TextOptions) -> Uncut:
    """The splits of an object by its name, with texts of the length of `text`."""
    if _OBJECT.fullmatch(name):
        source: Any = find_dataset(name)
    else:
        source = returned(DATASETS.find(name))
    uncut = _read_source(source, text=text)
    images = uncut.splits["train"].images
    # Texts in words are cut already.
    if isinstance(source, (str, Path)) or not is_tokens(images):
        return uncut
    notes, length = uncut.notes, text.sequence_length
    if length < images.shape[1]:
        notes += (
            f"Texts of {images.shape[1]} tokens are cut to {length} "
            "(data.sequence_length).",
        )
    splits = {
        n: text_split(n, token_rows(n, s.images, None, text), s.labels, s.ids)
        for n, s in uncut.splits.items()
    }
    return uncut._replace(splits=splits, notes=notes)


def _is_function(source: Any) -> bool:
    """True of a function or class, which returns a source; a generator is one."""
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


def _object_name(dataset: Dataset) -> str:
    """The stem of its name and a hash of its contents, as `arrays@1a2b3c4d`."""
    stem = Path(dataset.name).name.removesuffix(".npz")
    stem = re.sub(r"[^\w.-]+", "-", re.sub(r"@[0-9a-f]{8}$", "", stem))
    # Not the fingerprint of the data set: that of a narrowed one is not of its arrays.
    contents = fingerprint(dataset.train, dataset.validation, dataset.test)
    text = f"{contents} {dataset.num_classes} {dataset.class_names}"
    return f"{stem}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"


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
