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

FORMAT = 1  # grows where a program that reads the file would have to change


def as_record(result: CompareResult) -> dict:
    """Everything that was found, as plain values."""
    fields = {
        field.name: _plain(getattr(result, field.name))
        for field in dataclasses.fields(result)
    }
    if fields["curves"] is not None:
        fields["curves"] = dict(zip(("old", "new"), fields["curves"], strict=True))
    found = {"format": FORMAT, "passed": result.passed}
    return found | {"verdict": list(sentences(result))} | fields


def write_record(result: CompareResult, path: str | os.PathLike) -> Path:
    """Writes `as_record(result)`, whole or not at all."""
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
