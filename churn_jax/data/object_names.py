"""Names under which data sets given as Python objects are found.

A study's settings are names and numbers. A function that returns a data set is found
by `package.module:function` or the short name it was registered under; any other object
by a hash of its contents, in the process that it was given to.
"""

import numbers
import pathlib
import re
from collections import deque
from typing import Any
from weakref import WeakValueDictionary

from churn_jax.data.arrays import Uncut
from churn_jax.data.loading import assemble
from churn_jax.data.sources import (
    COLUMNS,
    is_function,
    object_name,
    read_source,
    returned,
)
from churn_jax.data.splits import DataError, Dataset, is_tokens
from churn_jax.data.text import TextOptions, fit_tokens
from churn_jax.registry import Registry, dotted_name

DATASETS = Registry("function that returns a data set", {})
"""Data sets of your own and of installed packages, by name."""

_OBJECT = re.compile(r"[\w.-]+@[0-9a-f]{8}")
_FUNCTION = re.compile(r"(?!tfds:)[A-Za-z_]\w*(\.\w+)*:[A-Za-z_][\w.]*")
# The last few are kept; earlier ones as long as somebody else holds them, so that a
# notebook that trains on many arrays does not fill the memory.
_KEPT = 4
_objects: WeakValueDictionary[str, Dataset] = WeakValueDictionary()
_last: deque[Dataset] = deque(maxlen=_KEPT)


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
        name: what the name begins with; None for `arrays`.

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
    if isinstance(source, (str, pathlib.Path)):
        return str(source)
    options = (validation, test, num_classes, name)
    plain = columns == COLUMNS and all(option is None for option in options)
    if plain and is_function(source) and _importable(source):
        return dotted_name(source)
    if isinstance(validation, numbers.Number):
        raise DataError(
            f"validation={validation}: how many examples are held out is a setting of "
            "the study, DataConfig(validation=...)"
        )
    uncut = read_source(source, columns=columns, validation=validation, test=test)
    called = name or (source.name if isinstance(source, Dataset) else "arrays")
    if not (plain and isinstance(source, Dataset)):
        own = None if "validation" in uncut.splits else 0
        source = assemble(called, uncut, own, None, num_classes)
    found = object_name(source)
    # The one that is held stays, unless its arrays were changed meanwhile.
    held = _objects.get(found)
    if held is None or object_name(held) != found:
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
    if object_name(found) != name:
        raise DataError(
            f"the arrays of {name} were changed after they were given; give them again"
        )
    return found


def is_object(name: str) -> bool:
    """True if a name is that of a Python object, here or in another process."""
    known = _OBJECT.fullmatch(name) or _FUNCTION.fullmatch(name)
    return bool(known) or (":" not in name and name in DATASETS)


def read_object(name: str, text: TextOptions) -> Uncut:
    """The splits of an object by its name, with texts of the length of `text`."""
    if _OBJECT.fullmatch(name):
        source: Any = find_dataset(name)
    else:
        source = returned(DATASETS.find(name))
    uncut = read_source(source, text=text)
    images = uncut.splits["train"].images
    # Texts in words are cut already.
    if isinstance(source, (str, pathlib.Path)) or not is_tokens(images):
        return uncut
    notes, length = uncut.notes, text.sequence_length
    if length < images.shape[1]:
        notes += (
            f"Texts of {images.shape[1]} tokens are cut to {length} "
            "(data.sequence_length).",
        )
    splits = {n: fit_tokens(n, split, text) for n, split in uncut.splits.items()}
    return uncut._replace(splits=splits, notes=notes)


def _importable(function: Any) -> bool:
    """True if the name of a function leads to it."""
    try:
        return DATASETS.find(dotted_name(function)) is function
    except ValueError:
        return False
