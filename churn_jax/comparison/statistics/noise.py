"""How much churn retraining alone gives, and whether an update has more."""

import itertools

import numpy as np
from scipy import special

from churn_jax.comparison.result import Interval, Noise
from churn_jax.comparison.scanned import Scanned
from churn_jax.comparison.statistics.runs import run_part, uncertainty
from churn_jax.comparison.statistics.shares import share_ends
from churn_jax.comparison.statistics.sums import partition

__all__ = ["noise_test"]

_ROUNDING = 1e-12  # a standard error below this is rounding noise
_NONE = Interval(np.nan, np.nan, np.nan)


def noise_test(
    scanned: Scanned,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Noise | None:
    """Is the churn between two versions more than retraining either would give?

    With `x_rs` the churn of two runs, the excess is its mean over pairs of an old and a
    new run, minus the mean over pairs within a side (of both sides where both have
    several runs). Where the versions are equal, all runs are alike and

        x_rs = mu + a_r + a_s + e_rs

    with independent runs' effects `a` and a remainder `e`. With several runs on both
    sides the effects cancel in the excess, so that

        t = excess / (s sqrt(1/(A B) + 1/(2 A (A-1)) + 1/(2 B (B-1))))

    with `s^2` the mean square of the remainders after a least-squares fit of `mu`, `a`
    and the excess to all P pairs of the A + B runs; P - A - B - 1 degrees of freedom.
    With one run on a side, its effect does not cancel: the test is that of one more
    draw from the effects of the other side's runs, three of them at least.

    Args:
        scanned: both versions.
        level: of the intervals.
        resamples: not used; everything here is computed without resampling.
        seed: of dealing more than 4096 examples into groups.

    Returns:
        None where both sides have one run. `within_old` or `within_new` is NaN for a
        side with one run; `p` with fewer than two runs on both sides or three on one.

    Notes:
        The intervals are for new examples and new runs (`runs.uncertainty`). That of
        the excess adds the variances over examples and runs, is no narrower than that
        of equal versions, and takes normal quantiles. It does not answer the same
        question as `p`, which uses that all runs are alike where nothing changed; it
        can hold 0 where `p` is small. In expectation the excess is never negative: it
        is half the squared distance between the two versions' distributions of
        predictions, mean over examples.

    Example:
        >>> from churn_jax.comparison.scanned import ScannedSide
        >>> runs = np.array([[0, 0, 0, 1], [0, 0, 1, 0]])
        >>> side = ScannedSide(runs)
        >>> found = noise_test(Scanned(side, side))
        >>> found.within_old.value, found.excess.value
        (0.5, -0.25)
    """
    del resamples
    old, new = scanned.old.predicted, scanned.new.predicted
    A, B = len(old), len(new)
    if A == B == 1:
        return None
    runs = [*old, *new]
    N = old.shape[1]
    group, groups = partition(N, (A + B) ** 2, seed)
    size = np.bincount(group, minlength=groups)
    changed = np.zeros((groups, A + B, A + B))
    for r, s in itertools.combinations(range(A + B), 2):
        counts = np.bincount(group, runs[r] != runs[s], groups)
        changed[:, r, s] = changed[:, s, r] = counts
    x = changed.sum(axis=0) / N
    # what every group moves each pair's churn by
    moved = (changed - x * size[:, None, None]) / N
    between, of_old, of_new = _between(x, A), _within(x[:A, :A]), _within(x[A:, A:])
    sides = [v for v in (of_old, of_new) if np.isfinite(v)]
    expected = float(np.mean(sides))
    weight = 1 / len(sides)
    in_old, in_new = (weight if R > 1 else 0.0 for R in (A, B))

    variance, freedom = _equal_versions(x, A)
    least = variance if min(A, B) > 1 else 0.0

    def interval(*weights: float) -> Interval:
        return _interval(x, moved, A, weights, N, level, least)

    return Noise(
        within_old=interval(0.0, 1.0, 0.0) if A > 1 else _NONE,
        within_new=interval(0.0, 0.0, 1.0) if B > 1 else _NONE,
        expected=interval(0.0, in_old, in_new),
        excess=interval(1.0, -in_old, -in_new),
        p=_p(between - expected, variance, freedom),
    )


def _between(x: np.ndarray, A: int):
    return x[..., :A, A:].mean(axis=(-2, -1))


def _within(x: np.ndarray):
    """Mean over the pairs of different runs of `[..., R, R]`; NaN for one run."""
    R = x.shape[-1]
    if R == 1:
        return np.full(x.shape[:-2], np.nan)
    return x.sum(axis=(-2, -1)) / (R * (R - 1))


def _combination(x: np.ndarray, A: int, weights) -> np.ndarray:
    """`w_0 between + w_1 within old + w_2 within new` of `[..., A + B, A + B]`."""
    parts = (_between(x, A), _within(x[..., :A, :A]), _within(x[..., A:, A:]))
    chosen = [w * part for w, part in zip(weights, parts, strict=True) if w]
    return np.sum(chosen, axis=0)


def _effects(x: np.ndarray, A: int, weights, side: int) -> np.ndarray:
    """What every run of a side does to the combination, to first order: `[..., R]`.

    A run's row within its side leaves itself out, so that the differences between rows
    are too small by (R - 2) / (R - 1). That is mended for churn within a side; two runs
    have one row only, and there the effect on the churn against the other side takes
    its place. In the excess over both sides runs' effects cancel, and it is left as is.
    """
    own = slice(0, A) if side == 0 else slice(A, None)
    other = slice(A, None) if side == 0 else slice(0, A)
    across = x[..., own, other].mean(axis=-1)
    inside = x[..., own, own].sum(axis=-1)
    R = inside.shape[-1]
    if all(weights):
        rows = inside / (R - 1)
    else:
        rows = inside / (R - 2) if R > 2 else across
    return weights[0] * across + 2 * weights[1 + side] * rows


def _interval(x, moved, A: int, weights, N: int, level: float, least=0.0) -> Interval:
    value = float(_combination(x, A, weights))
    of_groups = _combination(moved, A, weights)
    parts = []
    for side, R in enumerate((A, len(x) - A)):
        if R == 1:
            continue
        effects = _effects(moved, A, weights, side)
        centred = effects - effects.mean(axis=1, keepdims=True)
        noise = np.sum(np.square(centred)) / (R * (R - 1))
        parts.append(run_part(_effects(x, A, weights, side), noise))
    known = uncertainty(np.sum(np.square(of_groups)), *parts)
    if not weights[0]:
        quantile = known.quantile(level)
        ends = share_ends(np.array(value), known.total, quantile, np.array(N))
        return Interval(value, *map(float, ends))
    normal = special.ndtri((1 + level) / 2)
    # Beside the excess of equal versions S and its noise are large: no Student's t.
    variance = max(known.total, known.examples, least)
    half = float(normal * np.sqrt(variance))
    if not np.any(x):  # no run differs from any other
        half = float(share_ends(np.zeros(()), np.zeros(()), normal, np.array(N))[1])
    return Interval(value, value - half, value + half)


def _equal_versions(x: np.ndarray, A: int) -> tuple[float, int]:
    """Variance of the excess where the versions are equal, and degrees of freedom.

    NaN and 0 with too few runs.
    """
    R = len(x)
    B = R - A
    if min(A, B) > 1:
        pairs = np.array(list(itertools.combinations(range(R), 2)))
        design = np.zeros((len(pairs), R + 1))
        design[np.arange(len(pairs)), pairs[:, 0]] = 1
        design[np.arange(len(pairs)), pairs[:, 1]] = 1
        design[:, R] = (pairs[:, 0] < A) & (pairs[:, 1] >= A)
        y = x[pairs[:, 0], pairs[:, 1]]
        left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        freedom = len(pairs) - R - 1
        spread = 1 / (A * B) + 1 / (2 * A * (A - 1)) + 1 / (2 * B * (B - 1))
        return float(left @ left / freedom * spread), freedom
    if R < 4:
        return np.nan, 0
    several = x[:A, :A] if A > 1 else x[A:, A:]
    rows = several.sum(axis=1) / (len(several) - 2)
    one_more = 1 + 1 / len(several)
    return float(np.var(rows, ddof=1) * one_more), len(several) - 1


def _p(excess: float, variance: float, freedom: int) -> float:
    if not freedom:
        return np.nan
    error = np.sqrt(variance)
    if error <= _ROUNDING:
        return 1.0 if abs(excess) <= _ROUNDING else 0.0
    return float(2 * special.stdtr(freedom, -abs(excess) / error))
