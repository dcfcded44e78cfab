"""A comparison of versions as JSON."""

import json
import math
import os
from pathlib import Path

import numpy as np

from churn_jax.comparison.result import VersionsResult
from churn_jax.comparison.showing.record import as_record
from churn_jax.predictions import replace_file

_FORMAT = 1


def as_versions_record(result: VersionsResult) -> dict:
    """Plain lists, numbers and text; numbers that do not exist are None."""
    return {
        "format": _FORMAT,
        "versions": list(result.names),
        "examples": result.examples,
        "level": result.level,
        "passed": result.passed,
        "accuracy": [
            {
                "value": _plain(found.value),
                "low": _plain(found.low),
                "high": _plain(found.high),
            }
            for found in result.accuracy
        ],
        "churn": _rows(result.churn),
        "negative_flip_rate": _rows(result.negative_flip_rate),
        "relative_negative_flip_rate": _rows(result.relative_negative_flip_rate),
        "steps": [as_record(step) for step in result.steps],
        "first_to_last": as_record(result.whole),
        "notes": list(result.notes),
    }


def write_versions_record(result: VersionsResult, path: str | os.PathLike) -> Path:
    """Writes the record, whole or not at all."""
    record = as_versions_record(result)
    text = json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False)
    with replace_file(path) as file:
        file.write(f"{text}\n".encode())
    return Path(path)


def _rows(matrix: np.ndarray | None) -> list[list[float | None]] | None:
    return None if matrix is None else [[_plain(v) for v in row] for row in matrix]


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
