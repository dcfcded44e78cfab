"""What a comparison of a folder of versions finds."""

import dataclasses
import os
from pathlib import Path

import numpy as np

from churn_jax.comparison.result import CompareResult, Interval, Version

__all__ = ["VersionsResult"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class VersionsResult:
    """Every version against every other, and every update for itself.

    Attributes:
        versions: the oldest first.
        examples: N, those that all versions have.
        level: of all confidence intervals, 0.95 for 95 %.
        accuracy: of each version; empty without labels.
        churn: `[V, V]` share of examples whose predicted class differs, mean over pairs
            of runs; on the diagonal between runs of one version, NaN with one run.
        negative_flip_rate: `[V, V]` right in the row's version, wrong in the column's;
            None without labels.
        relative_negative_flip_rate: `[V, V]` likewise; 1 for independent errors.
        steps: each version against the one before it.
        whole: the last version against the first.
        notes: sentences about what was read and joined.
    """

    versions: tuple[Version, ...]
    examples: int
    level: float
    accuracy: tuple[Interval, ...]
    churn: np.ndarray
    negative_flip_rate: np.ndarray | None
    relative_negative_flip_rate: np.ndarray | None
    steps: tuple[CompareResult, ...]
    whole: CompareResult
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the versions, the oldest first."""
        return tuple(version.name for version in self.versions)

    @property
    def labelled(self) -> bool:
        """Whether there were labels."""
        return self.negative_flip_rate is not None

    @property
    def passed(self) -> bool:
        """Whether every gate holds in every step; True without gates."""
        return all(step.passed for step in self.steps)

    def step_sum(self, name: str) -> float:
        """What the steps add up to, of the quantity `name`.

        Of churn and of flips this is at least what they are from the first version to
        the last: an example that flips and flips back counts in two steps and not in
        the whole.

        Args:
            name: a quantity that every step has.
        """
        return float(sum(step[name].value for step in self.steps))

    def __repr__(self) -> str:
        """One line; all numbers would fill screens, and `print` shows them."""
        names = ", ".join(self.names)
        return f"<VersionsResult of {names}: {self.examples:,} examples>"

    def __str__(self) -> str:
        """The tables as they are printed in a terminal, without colours."""
        from churn_jax.comparison.versions.versions_text import plain_versions

        return plain_versions(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from churn_jax.comparison.versions.versions_page import notebook_versions

        return notebook_versions(self)

    def to_dict(self) -> dict:
        """JSON-ready; undefined numbers are None."""
        from churn_jax.comparison.versions.versions_record import as_versions_record

        return as_versions_record(self)

    def save_json(self, path: str | os.PathLike) -> Path:
        """Writes `to_dict()`, whole or not at all.

        Raises:
            OSError: the file could not be written; an earlier one is left as it was.
        """
        from churn_jax.comparison.versions.versions_record import write_versions_record

        return write_versions_record(self, path)

    def save_html(self, path: str | os.PathLike, *, command: str | None = None) -> Path:
        """Writes the page, one file that needs nothing else, whole or not at all.

        Args:
            path: where to.
            command: shown under the title.

        Raises:
            OSError: the file could not be written; an earlier one is left as it was.
        """
        from churn_jax.comparison.versions.versions_page import write_versions_page

        return write_versions_page(self, path, command=command)
