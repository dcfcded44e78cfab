"""Rows of studies that differ from another row in one thing."""

import dataclasses
from typing import Any

from churn_jax.configuration.rows import MethodSpec


def variant(row: MethodSpec, ending: str, words: str, **fields: Any) -> MethodSpec:
    """The row with other `fields`; name and label say what is different."""
    name, label = f"{row.name}_{ending}", f"{row.label}, {words}"
    return dataclasses.replace(row, name=name, label=label, **fields)
