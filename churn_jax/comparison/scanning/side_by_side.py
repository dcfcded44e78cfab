"""What a pass keeps of two versions together: how far their scores are apart."""

import numpy as np

from churn_jax.comparison.scanning.score_block import (
    Block,
    displacement,
    log_probabilities,
    surrogate_churn,
)
from churn_jax.comparison.scanning.side_pass import SidePass

__all__ = ["SideBySide"]

Classes = slice | np.ndarray


class SideBySide:
    """Surrogate churn and displacement of two versions."""

    def __init__(self, old: SidePass, new: SidePass):
        (runs, examples), (new_runs, _) = old.faults.shape, new.faults.shape
        self.surrogate = np.empty((runs, new_runs, examples), np.float32)
        self.displacement = np.empty(examples, np.float32)
        self.own_displacement = (
            np.empty(examples, np.float32) if runs == new_runs else None
        )
        self._kinds = old.side.kind, new.side.kind
        self._old, self._new, self.shared = _split(old, new)

    def compare(
        self, old: list[Block], new: list[Block], start: int, work: np.ndarray
    ) -> None:
        """Keeps what is to be kept of each pair of runs."""
        rows = slice(start, start + len(old[0].top))
        work = work[: len(old[0].top)]
        before = [_Part(block, *self._old, self._kinds[0]) for block in old]
        after = [_Part(block, *self._new, self._kinds[1]) for block in new]
        moved = own = 0.0
        for i, a in enumerate(before):
            for j, b in enumerate(after):
                # The last use of a new run's numbers may overwrite them, in the cache.
                last = i == len(before) - 1
                self.surrogate[i, j, rows] = surrogate_churn(
                    a.ratios, b.ratios, b.ratios if last else work, a.alone + b.alone
                )
                tops = (a.top, b.top) if a.unknown or b.unknown else None
                over = last and b.scores.dtype == work.dtype
                of_pair = displacement(
                    a.scores, b.scores, b.scores if over else work, tops
                )
                moved = moved + of_pair
                if i == j:
                    own = own + of_pair
        self.displacement[rows] = moved / (len(old) * len(new))
        if self.own_displacement is not None:
            self.own_displacement[rows] = own / len(old)


class _Part:
    """A block cut into the classes that both know and the others."""

    def __init__(self, block: Block, shared: Classes, alone: Classes, kind: str):
        if kind == "probabilities":
            log_probabilities(block)
        self.top, self.unknown = block.top, block.unknown
        self.ratios, self.scores = block.ratios[:, shared], block.scores[:, shared]
        self.alone = block.ratios[:, alone].sum(axis=1, dtype=np.float64)


def _split(
    old: SidePass, new: SidePass
) -> tuple[tuple[Classes, Classes], tuple[Classes, Classes], int]:
    """Of each side the classes that both know and those that it knows alone."""
    counts = old.side.classes, new.side.classes
    columns = [
        np.arange(count) if side.columns is None else side.columns
        for side, count in zip((old, new), counts)
    ]
    both = min(counts)
    if np.array_equal(columns[0][:both], columns[1][:both]):
        first = slice(both), slice(both, None)  # views, where a choice is a copy
        return first, first, both
    _, *shared = np.intersect1d(*columns, assume_unique=True, return_indices=True)
    split = [
        (mine, np.setdiff1d(np.arange(count), mine))
        for mine, count in zip(shared, counts)
    ]
    return split[0], split[1], len(shared[0])
