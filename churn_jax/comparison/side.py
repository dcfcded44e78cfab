"""One version's predictions, as they were read: which numbers, of which examples."""

import dataclasses
from typing import Literal

import numpy as np

__all__ = ["Kind", "Side"]

Kind = Literal["logits", "probabilities", "classes"]


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """Predictions of one version of a model: `R` runs on `N` examples.

    Attributes:
        name: what to call the version, usually the file's name.
        kind: what `values` are.
        values: scores `[R, N, C]` of any real dtype, perhaps memory-mapped and not yet
            checked; or predicted classes `[R, N]`, integers below `C`.
        class_names: `C` names, in the order of the classes; None where classes have
            numbers only.
        ids: `[N]` unique integers or strings; None where only the order tells examples
            apart.
        labels: `[N]` class numbers, or None. A label may exceed `C - 1`: an old model
            need not know every class.
        label_names: names of the classes, where `labels` are places in these names and
            no class numbers.
        runs: the numbers of the runs in `values`, without those that stopped early.
        index: whether the ids are only the index of a data frame, which may say no more
            than the order of the rows.
        notes: sentences about how the file was read that a user should know.
    """

    name: str
    kind: Kind
    values: np.ndarray
    class_names: tuple[str, ...] | None = None
    ids: np.ndarray | None = None
    labels: np.ndarray | None = None
    label_names: tuple[str, ...] | None = None
    runs: tuple[int, ...] = (0,)
    index: bool = False
    notes: tuple[str, ...] = ()

    @property
    def examples(self) -> int:
        """N."""
        return self.values.shape[1]

    @property
    def classes(self) -> int:
        """C; of predicted classes the number of names, or one more than the largest."""
        if self.kind != "classes":
            return self.values.shape[2]
        if self.class_names is not None:
            return len(self.class_names)
        return int(self.values.max(initial=-1)) + 1
