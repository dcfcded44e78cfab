"""What one pass over two versions keeps: a few numbers per run and example."""

import dataclasses

import numpy as np

__all__ = ["Scanned", "ScannedSide"]


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
        surrogate: `[R_old, R_new, N]` float32, surrogate churn of each example with
            alpha 1, `1/2 sum_c |exp(z_c - max z) - exp(z'_c - max z')|`; a class that a
            side does not know counts as probability 0. None unless both have scores.
        displacement: `[N]` float32, mean over pairs of runs of the Euclidean norm of
            the change in logits, each side's logits centred over the classes that both
            know; of log-probabilities, floored at -30, where a side has probabilities.
            None unless both have scores.
    """

    old: ScannedSide
    new: ScannedSide
    surrogate: np.ndarray | None = None
    displacement: np.ndarray | None = None
