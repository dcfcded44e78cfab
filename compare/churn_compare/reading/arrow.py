"""The names of `pyarrow` and `pyarrow.compute`, loaded when one is first used.

A comparison of arrays does not need them, and they take long to load.
"""

import functools
import importlib
from typing import Any

_MODULES = ("csv", "feather", "ipc", "parquet")


@functools.cache
def __getattr__(name: str) -> Any:
    import pyarrow
    from pyarrow import compute

    if name in _MODULES:
        return importlib.import_module(f"pyarrow.{name}")
    return getattr(pyarrow if hasattr(pyarrow, name) else compute, name)


def is_text(kind: Any) -> bool:
    """True for types of strings."""
    types = __getattr__("types")
    return types.is_string(kind) or types.is_large_string(kind)


def is_number(kind: Any) -> bool:
    """True for integers and floating-point numbers."""
    types = __getattr__("types")
    return types.is_floating(kind) or types.is_integer(kind)


def plain(column: Any) -> Any:
    """The column, decoded if it is a dictionary."""
    encoded = __getattr__("types").is_dictionary(column.type)
    return column.cast(column.type.value_type) if encoded else column


def one(column: Any) -> Any:
    """The column as one array, decoded if it is a dictionary."""
    if hasattr(column, "chunks"):
        column = column.combine_chunks()
        if hasattr(column, "chunks"):  # of more than 2 GB
            column = __getattr__("concat_arrays")(column.chunks)
    return plain(column)
