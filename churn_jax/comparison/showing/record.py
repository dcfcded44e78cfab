"""A comparison as JSON, for other programs."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from churn_jax.comparison.result import CompareResult
from churn_jax.comparison.showing.verdict import sentences
from churn_jax.predictions import replace_file

__all__ = ["FORMAT", "as_record", "write_record"]

FORMAT = 1  # grows where a program that reads the file would have to change


def as_record(result: CompareResult) -> dict:
    """Everything that was found, as plain values.

    Args:
        result: of `compare`.

    Returns:
        The fields of `CompareResult` under their names, and `format`, `passed` and
        `verdict`, the sentences. Arrays and tuples are lists; NaN and infinite numbers
        are None. The order of the keys is always the same.

    Example:
        >>> from churn_jax.comparison.result import Flow, Interval, Version
        >>> version = Version("a", "classes", 1, 2, 10)
        >>> churn = {"churn": Interval(0.5, math.nan, math.nan)}
        >>> result = CompareResult(version, version, 10, 0.95, churn, Flow(*[()] * 5))
        >>> as_record(result)["quantities"]
        {'churn': {'value': 0.5, 'low': None, 'high': None}}
    """
    fields = {
        field.name: _plain(getattr(result, field.name))
        for field in dataclasses.fields(result)
    }
    if fields["curves"] is not None:
        fields["curves"] = dict(zip(("old", "new"), fields["curves"], strict=True))
    found = {"format": FORMAT, "passed": result.passed}
    return found | {"verdict": list(sentences(result))} | fields


def write_record(result: CompareResult, path: str | os.PathLike) -> Path:
    """Writes `as_record(result)`, whole or not at all.

    Args:
        result: of `compare`.
        path: where to.

    Returns:
        The path.

    Raises:
        OSError: the file could not be written; an earlier one is left as it was.
    """
    text = json.dumps(as_record(result), indent=1, allow_nan=False, ensure_ascii=False)
    with replace_file(path) as file:
        file.write((text + "\n").encode("utf-8"))
    return Path(path)


def _plain(value: Any) -> Any:
    """Dataclasses as mappings, sequences as lists, what is no finite number as None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
