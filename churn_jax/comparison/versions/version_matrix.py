"""Every version against every other, from predicted classes alone."""

import dataclasses
from collections.abc import Sequence

import numpy as np

__all__ = ["VersionMatrices", "version_matrices"]

_BLOCK = 1 << 16  # examples at once; counts of so many are exact in float32


@dataclasses.dataclass(frozen=True, eq=False)
class VersionMatrices:
    """Means over pairs of runs."""

    # `[V, V]` share of examples whose predicted class differs; symmetric
    churn: np.ndarray
    # `[V, V]` right in the old, wrong in the new; None without labels
    negative_flip_rate: np.ndarray | None = None
    # `[V, V]` NFR of independent errors is 1; None without labels
    relative_negative_flip_rate: np.ndarray | None = None


def version_matrices(
    predicted: Sequence[np.ndarray], labels: np.ndarray | None = None
) -> VersionMatrices:
    """Churn and negative flips between every two versions."""
    # Means over the pairs of runs of every pair of versions, on the diagonal over pairs
    # of different runs. A relative NFR without right old or wrong new predictions
    # counts as 0.
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
