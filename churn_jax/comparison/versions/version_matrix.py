"""Every version against every other, from predicted classes alone."""

import dataclasses
from collections.abc import Sequence

import numpy as np

__all__ = ["VersionMatrices", "version_matrices"]

_BLOCK = 1 << 16  # examples at once; counts of so many are exact in float32


@dataclasses.dataclass(frozen=True, eq=False)
class VersionMatrices:
    """Means over pairs of runs; the old version is in the row, the new in the column.

    On the diagonal are different runs of one version: what training again changes; NaN
    where there is one run.

    Attributes:
        churn: `[V, V]` share of examples whose predicted class differs; symmetric.
        negative_flip_rate: `[V, V]` right in the old, wrong in the new; None without
            labels.
        relative_negative_flip_rate: `[V, V]` NFR of independent errors is 1; None
            without labels.
    """

    churn: np.ndarray
    negative_flip_rate: np.ndarray | None = None
    relative_negative_flip_rate: np.ndarray | None = None


def version_matrices(
    predicted: Sequence[np.ndarray], labels: np.ndarray | None = None
) -> VersionMatrices:
    """Churn and negative flips between every two versions.

    With run r of the old version and run s of the new one,

        churn_rs = 1/N sum_i [yhat_ri != yhat_si]
        NFR_rs = 1/N sum_i [yhat_ri = l_i and yhat_si != l_i]
        relative NFR_rs = NFR_rs / (accuracy_r (1 - accuracy_s))

    and every entry is the mean over the pairs of runs, on the diagonal over those of
    different runs.

    Args:
        predicted: one `[R, N]` of class numbers per version, on the same examples in
            the same order; the number of runs may differ.
        labels: `[N]` in the same class numbers, or None.

    Returns:
        The `VersionMatrices`, float64. A relative NFR of a pair in which one side has
        no right, or the other no wrong predictions, counts as 0.

    Example:
        >>> old, new = np.array([[0, 1, 1, 0]]), np.array([[0, 1, 0, 0]])
        >>> found = version_matrices([old, new], np.array([0, 1, 1, 1]))
        >>> found.churn[0, 1], found.negative_flip_rate[0, 1]
        (np.float64(0.25), np.float64(0.25))
        >>> found.negative_flip_rate[1, 0]
        np.float64(0.0)
    """
    runs = np.concatenate(predicted)
    version = np.repeat(np.arange(len(predicted)), [len(of) for of in predicted])
    total, examples = runs.shape
    differ = np.zeros((total, total))
    both = np.zeros((total, total))  # right in both runs
    for start in range(0, examples, _BLOCK):
        block = runs[:, start : start + _BLOCK]
        for i in range(total - 1):
            differ[i, i + 1 :] += np.count_nonzero(block[i] != block[i + 1 :], axis=1)
        if labels is not None:
            right = block == labels[start : start + _BLOCK]
            right = right.astype(np.float32)
            both += right @ right.T
    different = ~np.eye(total, dtype=bool)
    churn = _mean((differ + differ.T) / examples, version, different)
    if labels is None:
        return VersionMatrices(churn)
    accuracy = np.diag(both) / examples
    flips = (np.diag(both)[:, None] - both) / examples
    chance = accuracy[:, None] * (1 - accuracy)
    relative = np.divide(flips, chance, out=np.zeros_like(flips), where=chance > 0)
    return VersionMatrices(
        churn, _mean(flips, version, different), _mean(relative, version, different)
    )


def _mean(values: np.ndarray, version: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Mean over the counted pairs of runs of every pair of versions, `[V, V]`."""
    of = (version == np.arange(version.max() + 1)[:, None]).astype(float)  # [V, runs]
    pairs = of @ counted @ of.T
    sums = of @ np.where(counted, values, 0.0) @ of.T
    return np.divide(sums, pairs, out=np.full(pairs.shape, np.nan), where=pairs > 0)
