"""What the analyses have computed: a file per section, grown part by part.

A part is what one row's replica (or one corrupted test set) has given. It is kept until
its row is trained again or the section is asked for with other settings, so the same
command goes on where it was stopped.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.array_files import NpzArrays, replace_file, write_file
from churn_compare.documents import plain_values

FOLDER = "diversity"
SECTIONS = ("teachers", "students", "jacobians", "matching", "ood", "corruptions")
"""The analyses in their order."""


class SectionRecord:
    """`diversity/<section>.json`, and `.npz` next to it for what is large."""

    def __init__(self, run_dir, section: str, settings: Mapping[str, Any] | None):
        """Reads the section's files where they are there."""
        self.path = Path(run_dir) / FOLDER / f"{section}.json"
        self.section = section
        self.settings: dict[str, Any] = dict(settings or {})  # of all parts
        self.stamps: dict[str, str] = {}  # what each part's row was trained as
        self.parts: dict[str, Any] = {}  # results by key, JSON values; None is nan
        self.arrays: dict[str, np.ndarray] = {}  # large results, by key
        self.facts: dict[str, Any] = {}
        self.replaced = False  # whether a file with other settings was there
        if not self.path.exists():
            return
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            there = found["settings"]
            parts, stamps = found["parts"], found["stamps"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.path} is not what the analyses write ({error!r}); "
                "remove it to compute it again"
            ) from error
        if settings is not None and there != json.loads(json.dumps(self.settings)):
            self.replaced = True
            return
        self.settings, self.parts, self.stamps = there, parts, stamps
        self.facts = {k: v for k, v in found.items() if k in ("date", "hardware")}
        if self._arrays.exists():
            self.arrays = dict(NpzArrays(self._arrays))

    @property
    def _arrays(self) -> Path:
        return self.path.with_suffix(".npz")

    def has(self, key: str, stamp: str) -> bool:
        """True if the part is there, of a row that was trained as it is now."""
        return key in self.parts and self.stamps.get(key) == stamp

    def put(
        self,
        key: str,
        stamp: str,
        value: Any,
        array: np.ndarray | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds a part and writes the files, whole or not at all."""
        if array is not None:  # written first: the record says that it is there
            self.arrays[key] = np.asarray(array)
            with replace_file(self._arrays) as file:
                np.savez_compressed(file, allow_pickle=False, **self.arrays)
        self.parts[key], self.stamps[key] = plain_values(value), stamp
        self.facts = dict(facts or self.facts)
        record = {
            "section": self.section,
            **self.facts,
            "settings": self.settings,
            "stamps": self.stamps,
            "parts": self.parts,
        }
        write_file(self.path, json.dumps(record, allow_nan=False) + "\n")

    def of_rows(self) -> dict[str, dict[str, Any]]:
        """Parts by row, then by what is left of their key, in the order they came."""
        rows: dict[str, dict[str, Any]] = {}
        for key, value in self.parts.items():
            row, _, rest = key.partition("/")
            rows.setdefault(row, {})[rest] = value
        return rows


def as_numbers(value: Any) -> np.ndarray:
    """A JSON list as float64; None is nan."""
    return np.array(value, np.float64)
