"""Exact tests of two versions, and Holm's adjustment for many of them."""

import numpy as np
from scipy import special

_NOTHING = 1e-290
_LATTICE = 1 << 20  # most flips for which the sign-flip distribution is exact


def mcnemar_exact(b, c):
    """Exact McNemar test on the examples that only one of two models gets right.

    Under "neither is better", `b ~ Binomial(b + c, 1/2)`; two-sided
    `p = min(1, 2 P[X <= min(b, c)])`.

    Args:
        b: number of examples that only the first model gets right (negative flips from
            old to new), or an array of numbers.
        c: number of examples that only the second gets right (positive flips).

    Example:
        >>> mcnemar_exact(1, 6)  # 2 * (1 + 7) / 2**7
        0.125

    Notes:
        It tests whether these two *models* differ on this kind of example. Whether two
        training methods differ takes several runs (`paired_t_test`).

    References:
        [mcnemar] pp. 153-157 -- McNemar, Note on the sampling error of the difference
        between correlated proportions or percentages, Psychometrika 1947.
        https://doi.org/10.1007/BF02295996
    """
    both = np.array([b, c])
    counts = both.astype(np.int64)
    if np.any(both < 0) or np.any(both != counts):
        raise ValueError(f"b and c must be counts; got {b} and {c}")
    p = 2.0 * special.bdtr(counts.min(axis=0), counts.sum(axis=0), 0.5)
    return np.minimum(1.0, p) if p.ndim else float(min(1.0, p))


def sign_flip_exact(net) -> float:
    """McNemar's test for clusters, which swaps old and new in whole clusters.

    With `d_k` the positive less the negative flips of cluster k, and independent signs
    `e_k` that are as likely 1 as -1, `p = P[|sum_k e_k d_k| >= |sum_k d_k|]`.

    Args:
        net: `[K]` whole numbers `d_k`; clusters without flips may be left out.

    Example:
        >>> sign_flip_exact([-1, 1, 1, 1, 1, 1, 1]) == mcnemar_exact(1, 6)
        True
        >>> sign_flip_exact([3, 2])  # of 5, 1, -1 and -5, two are as far from 0
        0.5

    Notes:
        The test is exact if, for equally good versions, exchanging old and new in a
        cluster leaves its probability the same. If only the mean of `d_k` is 0, it
        holds in large samples, as does the test of Durkalski et al. (Statistics in
        Medicine 2003), the normal approximation to it with the clusters' shares instead
        of counts. This test needs no large sample and is the exact McNemar test if each
        cluster is one example. The distribution is computed from its characteristic
        function, `prod_k cos(d_k t)`; with more than 2^20 flips, the normal
        approximation with variance `sum_k d_k^2` is used.

    References:
        [sign-flip] pp. 381-397 -- Winkler et al., Permutation inference for the general
        linear model, NeuroImage 2014. https://doi.org/10.1016/j.neuroimage.2014.01.060
        [mcnemar] pp. 153-157 -- McNemar, Note on the sampling error of the difference
        between correlated proportions or percentages, Psychometrika 1947.
        https://doi.org/10.1007/BF02295996
    """
    given = np.asarray(net)
    whole = given.astype(np.int64)
    if np.any(given != whole):
        raise ValueError(f"net flips must be whole numbers; got {net}")
    observed, sizes = abs(int(whole.sum())), np.abs(whole[whole != 0])
    if not observed:
        return 1.0
    if sizes.max() == 1:
        return mcnemar_exact((len(sizes) - observed) // 2, (len(sizes) + observed) // 2)
    most = int(sizes.sum())
    if most > _LATTICE:
        return float(2.0 * special.ndtr(-observed / np.sqrt(np.square(sizes).sum())))
    points = 1 << (2 * most + 1).bit_length()
    angle = 2.0 * np.pi / points * np.arange(points // 2 + 1)
    transform, alive = np.ones(len(angle)), np.arange(len(angle))
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        transform[alive] *= np.cos(size * angle[alive]) ** count
        alive = alive[np.abs(transform[alive]) > _NOTHING]  # many vanish soon
    chances = np.maximum(np.fft.irfft(transform, points)[observed : most + 1], 0.0)
    return float(np.clip(2.0 * chances.sum(), 2.0 ** (1 - len(sizes)), 1.0))


def holm(p_values) -> np.ndarray:
    """Holm's step-down adjustment: keeps the chance of any false alarm below alpha.

    Sorted ascending, `p_adj(k) = max_{i <= k} min(1, (m - i + 1) p(i))`.

    Args:
        p_values: `[m]`; NaN (not testable) stays NaN and is not counted in `m`.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        array([0.03, 0.06, 0.06])

    References:
        [holm] pp. 65-70 -- Holm, A Simple Sequentially Rejective Multiple Test
        Procedure, Scandinavian Journal of Statistics 1979.
        https://www.jstor.org/stable/4615733
    """
    p_values = np.asarray(p_values, np.float64)
    tested = np.isfinite(p_values)
    p = p_values[tested]
    if p_values.ndim != 1 or np.any((p < 0) | (p > 1)):
        raise ValueError(f"p_values must be [m] within [0, 1]; got {p_values}")
    order = np.argsort(p, kind="stable")
    steps = np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps * p[order]))
    out = np.full(p_values.shape, np.nan)
    out[tested] = adjusted
    return out
