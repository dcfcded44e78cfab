"""The bootstrap over groups of examples, and Efron's BCa interval."""

from collections.abc import Iterator

import numpy as np
from scipy import special

__all__ = ["bca_ends", "resampled_sums"]

_BLOCK = 2**20  # weights at a time: 8 MiB


def resampled_sums(
    sums: np.ndarray, resamples: int, seed: int | np.random.Generator
) -> Iterator[np.ndarray]:
    """Sums over as many groups as there are, drawn with replacement.

    Args:
        sums: `[G, K]`, of every group.
        resamples: how many draws.
        seed: of the draws.

    Yields:
        Blocks `[B, K]` of the resampled sums, `resamples` rows in all.
    """
    groups = len(sums)
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // groups)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = rng.integers(groups, size=(rows, groups))
        drawn += groups * np.arange(rows)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=rows * groups)
        yield weights.reshape(rows, groups).astype(np.float64) @ sums


def bca_ends(
    value: float, resampled: np.ndarray, influence: np.ndarray, level: float
) -> tuple[float, float]:
    """Bias-corrected and accelerated ends of a bootstrap interval.

    Quantiles of the resampled values at `Phi(z0 + (z0 + z) / (1 - a (z0 + z)))`, with
    `z0 = Phi^-1(share of resampled values below the estimate)` and
    `a = sum u^3 / (6 (sum u^2)^1.5)`.

    Args:
        value: the estimate.
        resampled: `[B]`.
        influence: `[G]`, u, what each group moves the estimate by.
        level: 0.95 for 95 %.

    Returns:
        Lower and upper end; NaN where a resampled value is not finite.

    Example:
        >>> values = np.arange(1001.0)
        >>> bca_ends(500.0, values, np.array([1.0, -1.0]), 0.9)
        (50.0..., 950.0...)

    References:
        [bootstrap] Eqs. 2.3, 6.6 -- Efron, Better Bootstrap Confidence Intervals, JASA
        1987. https://doi.org/10.1080/01621459.1987.10478410
    """
    if not (np.isfinite(value) and np.all(np.isfinite(resampled))):
        return np.nan, np.nan
    count = len(resampled)
    close = 1e-12 * max(1.0, abs(value))  # equal but for the order of a sum
    below = np.mean(resampled < value - close)
    ties = np.mean(np.abs(resampled - value) <= close)
    share = np.clip(below + ties / 2, 0.5 / count, 1 - 0.5 / count)
    z0 = special.ndtri(share)
    square = np.sum(np.square(influence))
    cube = np.sum(influence**3)
    acceleration = cube / (6 * square**1.5) if square > 0 else 0.0
    z = special.ndtri((1 + level) / 2) * np.array([-1.0, 1.0])
    at = special.ndtr(z0 + (z0 + z) / (1 - acceleration * (z0 + z)))
    low, high = np.quantile(resampled, at)
    return float(low), float(high)
