"""Every number of a comparison with its confidence interval, and two tests."""

import numpy as np
from scipy import special

from churn_jax.analysis.significance import mcnemar_exact
from churn_jax.comparison.quantities import QUANTITIES
from churn_jax.comparison.result import Interval, McNemar
from churn_jax.comparison.scanned import Scanned
from churn_jax.comparison.statistics.counted import counted
from churn_jax.comparison.statistics.noise import noise_test
from churn_jax.comparison.statistics.resampled import resampled
from churn_jax.comparison.statistics.shares import share_ends
from churn_jax.comparison.statistics.sums import outcome_sums, partition

__all__ = ["intervals", "mcnemar_test", "noise_test", "share_interval"]


def intervals(
    scanned: Scanned,
    labels: np.ndarray | None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Interval]:
    """All numbers that these predictions allow, each with a confidence interval.

    A number is the mean over all pairs of an old and a new run. Its variance is

        V = V_examples + C_old + C_new

    where V_examples is the variance over examples of what each contributes to that mean
    and C is the spread between the runs of a side, less what their noise on the
    examples explains of it (`runs.uncertainty`). A side with one run is taken as it is.
    Quantiles are Student's with Satterthwaite's degrees of freedom, normal ones with
    one run a side. The ends:

    * of shares and of numbers made of them: Wilson's, with as many examples as have the
      variance V; the interval of no event in N examples does not end at 0;
    * of the accuracy gain: Tango's score interval, stretched to V in the same way;
    * of changes of NLL, Brier score and ECE: `q sqrt(V)` to either side;
    * of these themselves and of surrogate churn: the bootstrap's BCa interval over
      examples, stretched by `q sqrt(V) / (z sqrt(V_examples))` and drawn to hold the
      number, which its bias may keep out where it is the ECE.

    Args:
        scanned: both versions after the pass.
        labels: `[N]` classes of the pair, or None.
        level: of the intervals.
        resamples: of the bootstrap.
        seed: of the bootstrap, and of dealing more than 4096 examples into groups.

    Returns:
        Name to `Interval`, in the order of `QUANTITIES`. Ends are NaN where a number is
        undefined or infinite.

    Notes:
        In simulations (`benchmarks/compare_coverage.py`) 95 % intervals hold the truth
        93 to 97 times of 100 with one run a side, from 200 examples and from 1 % of
        flips on, and mostly so with 2 to 10 runs. The exceptions are ratios of few
        examples, with two or three runs a side (up to 99), and two runs that differ by
        more than the examples explain (about 92). Where runs differ by far more than
        that, up to ten runs do not show how skewed churn is between them, and 88 to 96
        of 100 hold; `Noise.of_runs` and the verdict tell. Means of heavy-tailed scores
        need more: with 200 examples of which 4 differ, 90 for surrogate churn. The
        calibration error of few examples is too large, and so are its intervals.

    Example:
        >>> from churn_jax.comparison.scanned import ScannedSide
        >>> old = ScannedSide(np.array([[0, 1, 1, 0]]))
        >>> new = ScannedSide(np.array([[0, 1, 0, 0]]))
        >>> found = intervals(Scanned(old, new), None)
        >>> list(found), found["churn"].value
        (['churn', 'kappa'], 0.25)
        >>> round(found["churn"].low, 3), round(found["churn"].high, 3)  # 1 of 4
        (0.046, 0.699)

    References:
        [bootstrap] Eqs. 2.3, 6.6 -- Efron, Better Bootstrap Confidence Intervals, JASA
        1987. https://doi.org/10.1080/01621459.1987.10478410
        [wilson] p. 209 -- Wilson, Probable Inference, the Law of Succession, and
        Statistical Inference, JASA 1927. https://doi.org/10.1080/01621459.1927.10502953
        [tango] Eq. 11 -- Tango, Equivalence test and confidence interval for the
        difference in proportions for the paired-sample design, Statistics in Medicine
        1998. https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8%3C891::AID-SIM780%3E3.0.CO;2-B
        [satterthwaite] p. 111 -- Satterthwaite, An Approximate Distribution of
        Estimates of Variance Components, Biometrics Bulletin 1946.
        https://doi.org/10.2307/3002019
    """
    runs = len(scanned.old.predicted) * len(scanned.new.predicted)
    dealing, drawing = np.random.default_rng(seed).spawn(2)
    group, groups = partition(scanned.old.predicted.shape[1], runs, dealing)
    found = counted(scanned, labels, group, groups, level)
    found |= resampled(scanned, labels, group, groups, level, resamples, drawing)
    return {name: found[name] for name in QUANTITIES if name in found}


def share_interval(hits: float, n: float, *, level: float = 0.95) -> Interval:
    """A share of independent examples with Wilson's interval."""
    share = np.array(hits / n if n else np.nan)
    quantile = special.ndtri((1 + level) / 2)
    low, high = share_ends(
        share,
        np.array(0.0 if not n else share * (1 - share) / n),
        quantile,
        np.array(n),
    )
    return Interval(float(share), float(low), float(high))


def mcnemar_test(scanned: Scanned, labels: np.ndarray | None) -> McNemar | None:
    """Are both versions equally accurate? The exact test of every pair of runs.

    Args:
        scanned: both versions.
        labels: `[N]` classes of the pair, or None.

    Returns:
        Mean counts and the median p over pairs of runs; None without labels. The median
        is that of a typical pair, not a test of all runs together.

    Example:
        >>> from churn_jax.comparison.scanned import ScannedSide
        >>> old = ScannedSide(np.zeros((1, 7), int))
        >>> new = ScannedSide(np.array([[1, 0, 0, 0, 0, 0, 0]]))
        >>> mcnemar_test(Scanned(old, new), np.array([0, 1, 1, 1, 1, 1, 1]))
        McNemar(negative_flips=1.0, positive_flips=0.0, p=1.0, pairs=1)

    References:
        [mcnemar] pp. 153-157 -- McNemar, Note on the sampling error of the difference
        between correlated proportions or percentages, Psychometrika 1947.
        https://doi.org/10.1007/BF02295996
    """
    if labels is None:
        return None
    whole = np.zeros(len(labels), np.int64)
    sums = outcome_sums(scanned, labels, whole, 1)
    lost, gained = sums["negative"].ravel(), sums["positive"].ravel()
    p = [mcnemar_exact(int(b), int(c)) for b, c in zip(lost, gained, strict=True)]
    return McNemar(
        float(lost.mean()), float(gained.mean()), float(np.median(p)), len(p)
    )
