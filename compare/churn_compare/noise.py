"""How much churn retraining alone gives, and whether an update has more."""

import itertools
from collections.abc import Callable

import numpy as np
from scipy import special

from churn_compare.flip_counts import count_flips_by_group
from churn_compare.pair import Scanned
from churn_compare.result import NONE, Interval, Noise
from churn_compare.sums import Partition, partition
from churn_compare.uncertainty import (
    Uncertainty,
    run_part,
    share_ends,
    uncertainty,
)

TESTED_RUNS = 5  # in all; with fewer, runs' effects alone can look like an update
_ONE_RUN = 1 / 3  # of the excess is left without a run: less, and this run decides
_EXCEEDS = 1.2  # V_runs counts where it is so many times V_examples
_EXAMPLES = 5  # that bear on the excess; with fewer, p has too few values
_SKEWED = 2000  # examples from which on the excess is about normal
_NORMAL = 1e-3  # skewness
_DIVISIONS = 300  # of runs to two versions
_HALVINGS = 40
_ROUNDING = 1e-9


def noise_test(
    scanned: Scanned,
    *,
    clusters: np.ndarray | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Noise | None:
    """Is the churn between two versions more than retraining either would give?

    With `x_rs` the churn of two runs, the excess is its mean over pairs of an old and a
    new run, minus the mean over pairs within a side (of both sides where both have
    several runs). Where the versions are equal, their A + B runs are exchangeable:

        x_rs = mu + a_r + a_s + e_rs

    With several runs on both sides the effects `a` cancel in the excess, and

        V_runs     = s^2 (1/(A B) + 1/(2 A (A-1)) + 1/(2 B (B-1)))
        V_examples = the same with the `e` of every example, if its runs are permuted

    where `s^2` is the mean square of `e` after a least-squares fit of `mu`, `a` and the
    excess to all pairs. V_examples is the variance of runs that are independent on each
    example. It is known from all examples; V_runs, which may be larger, from few runs.
    So V_examples is the least that V can be, and p solves

        excess^2 = z_p^2 V_examples + t_p^2 max(V_runs - 1.2 V_examples, 0)

    with quantiles of a gamma distribution, as skewed as the excess under permutation,
    and Student's with (A + B - 3) / 2 degrees of freedom. With one run on a side its
    effect does not cancel: V_runs is the variance of one more draw from the effects of
    the other side's runs, and z is normal.

    With clusters, runs are permuted in whole clusters: `e` is that of every cluster.

    Args:
        scanned: both versions.
        clusters: `[N]` as in `intervals`.
        level: of the intervals.
        seed: of assigning more than 4096 examples (or clusters) to groups.

    Returns:
        None where both sides have one run. `within_old` or `within_new` is NaN for a
        side with one run; `p` with fewer than five runs in all, or where it would
        rest on fewer than five examples or, below 0.05, on one run without which less
        than a third of the excess is left (`one_run`). It is at least `least_p`. Runs
        that are paired are not tested: they are no two samples.

    Notes:
        With several runs on both sides p is one-sided. In expectation the excess is
        half the squared distance between the versions' distributions of predictions,
        mean over examples, so it is never negative. One run can be closer to the others
        than they are to each other: there p is two-sided.

        The factor 1.2 and the degrees of freedom are chosen by simulation, for versions
        whose runs differ by noise alone and for versions whose runs shift all examples
        at once, which has a skewed effect on churn. Equal versions are found to differ
        at the 5 % level in 3 to 7 % of simulations, with few exceptions
        (`benchmarks/README.md`). Its far tail is too light where runs have effects or a
        few are outliers: equal versions have a p below 0.001 in up to 1 % of
        simulations, and in 4 % with one run on a side, which may be an outlier itself.
        With two against two runs there is no p: they can be divided in three ways only,
        and no test holds its level for any effects of runs.

        The intervals are for new examples and new runs (`uncertainty`). That of
        the excess adds the variances over examples and runs and is no narrower than
        that of equal versions. It does not answer the same question as `p`, which uses
        that all runs are alike where nothing changed; it can hold 0 where `p` is small.

    Example:
        >>> from churn_compare.pair import ScannedSide
        >>> runs = np.array([[0, 0, 0, 1], [0, 0, 1, 0]])
        >>> side = ScannedSide(runs)
        >>> found = noise_test(Scanned(side, side))
        >>> found.within_old.value, found.excess.value
        (0.5, -0.25)
    """
    old, new = scanned.old.predicted, scanned.new.predicted
    A, B = len(old), len(new)
    if A == B == 1:
        return None
    runs = np.concatenate([old, new])
    N = old.shape[1]
    parts = partition(N, (A + B) ** 2, seed, clusters)
    group, groups, _ = parts
    size = np.bincount(group, minlength=groups)
    changed = count_flips_by_group(runs, runs, None, group, groups).changed
    if scanned.paired:  # a pair's churn is a number of its old run
        same = np.diagonal(changed[:, :A, A:], axis1=1, axis2=2)
        changed[:, :A, A:] = same[:, :, None]
        changed[:, A:, :A] = same[:, None]
    x = changed.sum(axis=0) / N
    # what every group moves each pair's churn by
    moved = (changed - x * size[:, None, None]) / N
    weight = 1.0 if min(A, B) == 1 else 0.5
    in_old, in_new = (weight if R > 1 else 0.0 for R in (A, B))

    least = 0.0
    if not scanned.paired:
        equal = _equal_versions(x, A, _permuted(runs, A, clusters).sum() / N**2)
        least = float(equal.total if min(A, B) > 1 else equal.examples)

    p, one_run = np.nan, False
    if not scanned.paired:
        p, one_run = retraining_p(runs, x, A, clusters)

    def interval(*weights: float) -> Interval:
        return _interval(x, moved, A, weights, parts, level, least)

    return Noise(
        within_old=interval(0.0, 1.0, 0.0) if A > 1 else NONE,
        within_new=interval(0.0, 0.0, 1.0) if B > 1 else NONE,
        expected=interval(0.0, in_old, in_new),
        excess=interval(1.0, -in_old, -in_new),
        of_runs=float(_known(x, moved, A, (1.0, 0.0, 0.0), parts.clusters).of_runs()),
        p=p,
        one_run=one_run,
    )


def least_p(old: int, new: int) -> float:
    """The smallest p that so many runs support; the smallest that is given."""
    # Chosen by simulation with runs that shift all examples and occasional outliers.
    return 0.05 if min(old, new) == 1 else 0.01


def retraining_p(
    runs: np.ndarray, x: np.ndarray, A: int, clusters: np.ndarray | None = None
) -> tuple[float, bool]:
    """The p-value of `noise_test`, and whether one run would decide it."""
    R, N = runs.shape
    of_examples = _permuted(runs, A, clusters)
    squares = np.sum(np.square(of_examples))
    bearing = of_examples.sum() ** 2 / squares if squares > 0 else 0.0
    if R < TESTED_RUNS or bearing < _EXAMPLES:
        return np.nan, False
    one_sided = min(A, R - A) > 1
    excess = _excess(x, A)
    equal = _equal_versions(x, A, of_examples.sum() / N**2)
    of_runs = equal.total - equal.examples
    skewness = 0.0
    if one_sided and excess > 0:
        bearing = of_examples > 0
        if clusters is not None:
            bearing = bearing[clusters]
            clusters = np.unique(clusters[bearing], return_inverse=True)[1]
        skewness = _skewness(runs[:, bearing], A, of_examples.sum(), clusters)
    low, high = 0.0, 0.5
    for _ in range(_HALVINGS):
        tail = (low + high) / 2
        examples = max(_skewed(tail, skewness), 0.0) ** 2 * equal.examples
        student = special.stdtrit(equal.freedom, 1 - tail)
        outside = excess**2 > examples + student**2 * of_runs
        low, high = (low, tail) if outside else (tail, high)
    p = 2 * high
    if one_sided:
        p = high if excess > 0 else 1 - high
    if p < 0.05 and _without_a_run(x, A) < _ONE_RUN:
        return np.nan, True
    return max(p, least_p(A, R - A)), False


def _excess(x: np.ndarray, A: int) -> float:
    """Churn between the versions minus that of runs of one version."""
    B = len(x) - A
    weight = 0.5 if min(A, B) > 1 else 1.0
    weights = (1.0, -weight if A > 1 else 0.0, -weight if B > 1 else 0.0)
    return float(_combination(x, A, weights))


def _without_a_run(x: np.ndarray, A: int) -> float:
    """The least share of the excess that is left without a run that is not alone."""
    R = len(x)
    sides = [(r, A - (r < A)) for r in range(R)]
    return min(
        _excess(np.delete(np.delete(x, r, 0), r, 1), left) / _excess(x, A)
        for r, left in sides
        if 0 < left < R - 1
    )


def _skewed(tail: float, skewness: float) -> float:
    """Upper quantile of a gamma distribution with mean 0 and variance 1."""
    if skewness < _NORMAL:
        return -special.ndtri(tail)
    freedom = 8 / skewness**2
    return (special.chdtri(freedom, tail) - freedom) / np.sqrt(2 * freedom)


def _skewness(runs: np.ndarray, A: int, variance: float, clusters=None) -> float:
    """Skewness of the excess if every unit's predictions are permuted."""
    R, M = runs.shape
    units = M if clusters is None else int(clusters.max()) + 1
    if units > _SKEWED:
        return 0.0
    pairs = np.array(list(itertools.combinations(range(R), 2)))
    if clusters is None:
        differ = runs[pairs[:, 0]] != runs[pairs[:, 1]]
    else:
        differ = np.array(
            [np.bincount(clusters, runs[r] != runs[s], units) for r, s in pairs]
        )
    every = itertools.combinations(range(R), A)
    divisions = list(itertools.islice(every, _DIVISIONS + 1))
    if len(divisions) > _DIVISIONS:
        rng = np.random.default_rng(0)
        divisions = [rng.permutation(R)[:A] for _ in range(_DIVISIONS)]
    old = np.zeros((len(divisions), R), bool)
    np.put_along_axis(old, np.array(divisions), True, axis=1)
    first, second = old[:, pairs[:, 0]], old[:, pairs[:, 1]]
    inside = np.where(first, A * (A - 1), (R - A) * (R - A - 1))
    weights = np.where(first != second, 1 / (A * (R - A)), -1 / inside)
    cubes = np.mean((weights @ differ) ** 3, axis=0).sum()
    return float(max(cubes, 0.0) / variance**1.5)


def _within(x: np.ndarray):
    """Mean over the pairs of different runs of `[..., R, R]`; NaN for one run."""
    R = x.shape[-1]
    if R == 1:
        return np.full(x.shape[:-2], np.nan)
    return x.sum(axis=(-2, -1)) / (R * (R - 1))


def _combination(x: np.ndarray, A: int, weights) -> np.ndarray:
    """`w_0 between + w_1 within old + w_2 within new` of `[..., A + B, A + B]`."""
    between = x[..., :A, A:].mean(axis=(-2, -1))
    parts = (between, _within(x[..., :A, :A]), _within(x[..., A:, A:]))
    chosen = [w * part for w, part in zip(weights, parts, strict=True) if w]
    return np.sum(chosen, axis=0)


def _effects(x: np.ndarray, A: int, weights, side: int) -> np.ndarray:
    """First-order effect of every run of a side on the combination, `[..., R]`."""
    # A run's row within its side leaves the run out, so that differences between rows
    # are too small by (R - 2) / (R - 1), which is mended for churn within a side. Two
    # runs have one row: the effect on the churn against the other side takes its place.
    # In the excess over both sides the effects cancel, and it is left as it is.
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


def _known(x, moved, A: int, weights, clusters: int) -> Uncertainty:
    of_groups = _combination(moved, A, weights)
    G = len(moved)
    factor = G / max(G - 1, 1) if clusters else 1.0
    parts = []
    for side, R in enumerate((A, len(x) - A)):
        if R == 1:
            continue
        effects = _effects(moved, A, weights, side)
        centred = effects - effects.mean(axis=1, keepdims=True)
        noise = factor * np.sum(np.square(centred)) / (R * (R - 1))
        parts.append(run_part(_effects(x, A, weights, side), noise))
    examples = factor * np.sum(np.square(of_groups))
    return uncertainty(examples, *parts, clusters=clusters)


def _interval(
    x, moved, A: int, weights, parts: Partition, level: float, least=0.0
) -> Interval:
    value = float(_combination(x, A, weights))
    known = _known(x, moved, A, weights, parts.clusters)
    units = np.array(parts.units(len(parts.group)))
    if not weights[0]:
        quantile = known.quantile(level)
        ends = share_ends(np.array(value), known.total, quantile, units)
        return Interval(value, *map(float, ends))
    # With runs on both sides S and its noise are large next to V: no Student's t of
    # the runs' freedom.
    of_examples = known.example_quantile(level)
    quantile = known.quantile(level) if known.alone else of_examples
    variance = max(known.total, known.examples, least)
    half = float(quantile * np.sqrt(variance))
    if not np.any(x):  # no run differs from any other
        half = float(share_ends(np.zeros(()), np.zeros(()), of_examples, units)[1])
    return Interval(value, value - half, value + half)


def _permuted(runs: np.ndarray, A: int, clusters: np.ndarray | None) -> np.ndarray:
    """Variance of each example's or cluster's excess if its runs are permuted."""
    R, N = runs.shape
    return permuted_variance(lambda r, s: runs[r] != runs[s], R, A, N, clusters)


def permuted_variance(
    differ: Callable[[int, int], np.ndarray],
    R: int,
    A: int,
    N: int,
    clusters: np.ndarray | None,
) -> np.ndarray:
    """The same for runs of which `differ` says where two do, `[N]`."""
    B = R - A
    units = N if clusters is None else int(clusters.max()) + 1
    kind = np.int32 if clusters is None else np.int64
    disagreeing = np.zeros((R, units), kind)  # predictions, with each run
    of_pairs = np.zeros(units, np.int64)  # squares of each pair's
    for r, s in itertools.combinations(range(R), 2):
        apart = differ(r, s)
        if clusters is not None:
            apart = np.bincount(clusters[apart], minlength=units)
        disagreeing[r] += apart
        disagreeing[s] += apart
        if clusters is not None:
            of_pairs += np.square(apart, dtype=np.int64)
    if min(A, B) == 1:
        return disagreeing.var(axis=0) * (R / ((R - 1) * (R - 2))) ** 2
    # What the mean and an effect of each run leave of the pairs' squares.
    total = disagreeing.sum(axis=0)
    squares = np.square(disagreeing).sum(axis=0, dtype=np.int64)
    if clusters is None:  # of each pair 0 or 1, which is its own square
        of_pairs = total / 2
    left = of_pairs - (squares - np.square(total) / (2 * (R - 1))) / (R - 2)
    left[left < _ROUNDING] = 0.0
    return left / (R * (R - 3) / 2) * _spread(A, B)


def _spread(A: int, B: int) -> float:
    """Variance of the excess if the churn of each pair has variance 1."""
    return 1 / (A * B) + 1 / (2 * A * (A - 1)) + 1 / (2 * B * (B - 1))


def _equal_versions(x: np.ndarray, A: int, of_examples: float) -> Uncertainty:
    """Uncertainty of equal versions' excess; with three runs, of examples alone."""
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
        of_runs = float(left @ left / (len(pairs) - R - 1) * _spread(A, B))
    elif R > 3:
        several = x[:A, :A] if A > 1 else x[A:, A:]
        rows = several.sum(axis=1) / (len(several) - 2)
        of_runs = float(np.var(rows, ddof=1) * (1 + 1 / len(several)))
    else:
        of_runs = 0.0
    total = of_examples + max(of_runs - _EXCEEDS * of_examples, 0.0)
    freedom = np.array(max(R - 3, 1) / 2)
    return Uncertainty(np.array(of_examples), np.array(total), freedom, alone=True)
