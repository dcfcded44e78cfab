"""Two versions on the same examples and in the same classes."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from churn_jax.comparison.side import Side

__all__ = ["Pair"]


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """An old and a new version, joined example by example and class by class.

    Example `i` of the pair is row `old_rows[i]` of the old side and `new_rows[i]` of
    the new one; class `c` of the old side is class `old_columns[c]` of the pair.

    Attributes:
        old: the version in use.
        new: the one that is to replace it.
        ids: `[N]` of the joined examples; row numbers where neither side has ids.
        classes: C of the pair, every class that either side or a label has.
        old_rows: `[N]` rows of the old side; None where it is all rows in order.
        new_rows: the same of the new side.
        old_columns: `[C_old]` distinct classes of the pair; None where class `c` is
            class `c`.
        new_columns: the same of the new side.
        labels: `[N]` classes of the pair, or None without labels.
        class_names: `C` names, or None.
        slices: name of a grouping (a column) to its `[N]` values as strings; "" is no
            value.
        notes: sentences about how the two were joined that a user should know.
    """

    old: Side
    new: Side
    ids: np.ndarray
    classes: int
    old_rows: np.ndarray | None = None
    new_rows: np.ndarray | None = None
    old_columns: np.ndarray | None = None
    new_columns: np.ndarray | None = None
    labels: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    slices: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def examples(self) -> int:
        """N, of the joined examples."""
        return len(self.ids)

    @property
    def scored(self) -> bool:
        """Whether both sides have logits or probabilities."""
        return "classes" not in (self.old.kind, self.new.kind)

    def class_name(self, number: int) -> str:
        """What a report calls the class.

        Example:
            >>> side = Side("a", "classes", np.zeros((1, 2), int))
            >>> Pair(side, side, np.arange(2), 2).class_name(1)
            '1'
        """
        return str(number) if self.class_names is None else self.class_names[number]
