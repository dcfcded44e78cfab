"""The bootstrap over groups of examples, and Efron's BCa interval."""

from collections.abc import Iterator

import numpy as np
from scipy import special

__all__ = ["bca_ends", "resampled_sums"]

_BLOCK = 2**20  # weights at a time: 8 MiB


def resampled_sums(
    sums: np.ndarray, resamples: int, seed: int | np.random.Generator
) -> Iterator[np.ndarray]:
    """Sums over as many groups as there are, drawn with replacement."""
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
    """Bias-corrected and accelerated ends of a bootstrap interval."""
    # Efron (JASA 1987), Eqs. 2.3 and 6.6: quantiles of the resampled values at Phi(z0 +
    # (z0 + z) / (1 - a (z0 + z))), with z0 = Phi^-1(share of them below the estimate)
    # and a = sum u^3 / (6 (sum u^2)^1.5).
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
