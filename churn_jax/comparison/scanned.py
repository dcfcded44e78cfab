"""What one pass over two versions keeps: a few numbers per run and example."""

import dataclasses

import numpy as np

__all__ = ["Scanned", "ScannedSide", "run_by_run"]

_CLOSER = 2.0  # how many times, than to any other run
_BY_CHANCE = 3  # examples that this may be off by


@dataclasses.dataclass(frozen=True, eq=False)
class ScannedSide:
    """One version after the pass; `R` runs on the `N` examples of the pair.

    Attributes:
        predicted: `[R, N]` int32, classes of the pair; ties go to the lowest class of
            the side, as in `numpy.argmax`.
        confidence: `[R, N]` float32 top probability; None for a side of classes only.
        label_log_prob: `[R, N]` float32 log-probability of the label, -inf where the
            side does not know the class; None without scores or labels.
        brier: `[R, N]` float32 Brier score, the sum over classes; None likewise.
    """

    predicted: np.ndarray
    confidence: np.ndarray | None = None
    label_log_prob: np.ndarray | None = None
    brier: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Scanned:
    """Both versions after the pass.

    Attributes:
        old: the version in use.
        new: the one that is to replace it.
        surrogate: `[*shape, N]` float32, surrogate churn of each example with
            alpha 1, `1/2 sum_c |exp(z_c - max z) - exp(z'_c - max z')|`; a class that a
            side does not know counts as probability 0. None unless both have scores.
        displacement: `[N]` float32, mean over pairs of runs of the Euclidean norm of
            the change in logits, each side's logits centred over the classes that both
            know; of log-probabilities, floored at -30, where a side has probabilities.
            None unless both have scores.
        own_displacement: the same of runs r and r alone; None unless both sides have
            as many runs.
        paired: whether run r is compared with run r alone.
    """

    old: ScannedSide
    new: ScannedSide
    surrogate: np.ndarray | None = None
    displacement: np.ndarray | None = None
    own_displacement: np.ndarray | None = None
    paired: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """`[R_old, R_new]` of the pairs of runs; `[R, 1]` where they are paired."""
        return len(self.old.predicted), 1 if self.paired else len(self.new.predicted)

    def pairs(self) -> list[tuple[tuple[int, int], np.ndarray, np.ndarray]]:
        """Place in `shape`, old and new predictions `[N]` of every pair of runs."""
        rows, columns = self.shape
        return [
            ((a, b), self.old.predicted[a], self.new.predicted[a if self.paired else b])
            for a in range(rows)
            for b in range(columns)
        ]


def run_by_run(scanned: Scanned) -> Scanned:
    """With run r of both sides compared alone, where such runs go together."""
    R = len(scanned.old.predicted)
    if R == 1:
        return scanned
    runs = np.concatenate([scanned.old.predicted, scanned.new.predicted])
    differ = np.array([np.count_nonzero(runs != run, axis=1) for run in runs])
    first = np.arange(2 * R)
    namesake = (first + R) % (2 * R)
    others = differ.astype(float)
    others[first, first] = others[first, namesake] = np.inf
    most = _CLOSER * differ[first, namesake] + _BY_CHANCE
    if np.any(most >= others.min(axis=1)):
        return scanned
    same = np.arange(R)
    surrogate = scanned.surrogate
    if surrogate is not None:
        surrogate = surrogate[same, same][:, None]
    return dataclasses.replace(
        scanned,
        surrogate=surrogate,
        displacement=scanned.own_displacement,
        paired=True,
    )
