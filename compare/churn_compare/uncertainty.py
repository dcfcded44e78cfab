"""Uncertainty of a mean over pairs of runs, and the ends of its interval."""

import dataclasses

import numpy as np
from scipy import special


@dataclasses.dataclass(frozen=True, eq=False)
class Uncertainty:
    """Variance and degrees of freedom of numbers, as arrays of any shape."""

    examples: np.ndarray  # variance due to the examples, given the runs
    total: np.ndarray  # variance due to examples and runs
    # degrees of freedom of `total`, infinite with one run a side; if only one side has
    # several runs, those of the variance due to runs
    freedom: np.ndarray
    alone: bool = False  # True if only one side has several runs
    # degrees of freedom of `examples`: infinite, or below the number of clusters
    of_clusters: np.ndarray | float = np.inf
    bearing: np.ndarray | float = np.inf  # effective number of clusters

    def of_runs(self) -> np.ndarray:
        """Share of the variance that is due to runs."""
        some = self.total > 0
        examples = np.where(some, self.examples / np.where(some, self.total, 1.0), 1.0)
        return np.maximum(1.0 - examples, 0.0)

    def quantile(self, level: float) -> np.ndarray:
        """Two-sided quantile: 1.96 for 0.95 and one run a side."""
        # Satterthwaite's approximation is poor for one degree of freedom (two runs on
        # one side), so if only one side has runs, half-widths are added as squares:
        # q^2 V = z^2 V_examples + t^2 C, with C the variance due to runs.
        upper = (1.0 + level) / 2.0
        student = _student(self.freedom, upper)
        if not self.alone:
            return student
        of_runs, few = self.of_runs(), self.example_quantile(level)
        return np.sqrt(np.square(few) * (1.0 - of_runs) + np.square(student) * of_runs)

    def widened(self, most: np.ndarray | float) -> np.ndarray:
        """`total`, moved towards `most` if few clusters have events."""
        # If one cluster has all events, their number hardly tells how similar examples
        # of a cluster are; without any event only `most` is known, the variance if the
        # examples of each cluster are equal. Chosen by simulation: half of the way, on
        # a logarithmic scale, for one cluster, a quarter for two.
        share = 0.5 ** np.asarray(self.bearing)
        some = self.total > 0
        total = np.where(some, self.total, 1.0)
        up = np.maximum(most / total, 1.0) ** share
        return np.where(some, total * up, 0.0)

    def example_quantile(self, level: float) -> np.ndarray:
        """The same with runs treated as fixed; larger with few clusters."""
        return _student(self.of_clusters, (1.0 + level) / 2.0)


def _student(freedom: np.ndarray | float, upper: float) -> np.ndarray:
    """Quantile of Student's t; very large with one cluster."""
    freedom = np.asarray(freedom)
    few = special.stdtrit(np.maximum(freedom, 1.0), upper)
    return np.where(freedom < 1, _MOST, few)


def run_part(of_runs: np.ndarray, noise: np.ndarray) -> tuple:
    """Variance of the mean over runs, its noise, and its degrees of freedom."""
    # S = sum_r (m_r - m)^2 / (R (R - 1)); `noise` is its expectation if runs differ
    # only by noise.
    R = of_runs.shape[-1]
    if R == 1:
        zero = np.zeros(of_runs.shape[:-1])
        return zero, zero, 0
    centred = of_runs - of_runs.mean(axis=-1, keepdims=True)
    return np.sum(np.square(centred), axis=-1) / (R * (R - 1)), noise, R - 1


def uncertainty(
    examples: np.ndarray,
    *parts: tuple,
    clusters: np.ndarray | int = 0,
    bearing: np.ndarray | float = np.inf,
) -> Uncertainty:
    """Uncertainty due to examples and runs, by Satterthwaite's approximation."""
    # With G clusters that move the number by u the variance over examples, sum u^2, has
    # a squared relative error of sum u^4 / (sum u^2)^2 - 1 / G, twice one over degrees
    # of freedom: G for normal u, fewer for clusters of unequal size, at most G - 1.
    # The variance between runs includes their noise on the examples, as the variance
    # over examples does; it is counted once: V = V_examples + sum_k (S_k - noise_k), at
    # least V_examples - noise / 2 (with V_examples as the least value, intervals of two
    # runs a side that differ only by noise would hold the true value 98 times of 100),
    # and 1 / df = sum_k (S_k / V)^2 / df_k (Satterthwaite 1946).
    examples = np.asarray(examples, np.float64)
    several = [part for part in parts if part[2]]
    count = np.asarray(clusters, np.float64)
    tail = np.maximum(1.0 / np.asarray(bearing) - 1.0 / np.maximum(count, 1.0), 0.0)
    freedom = np.minimum(count - 1.0, 2.0 / np.maximum(tail, 1e-9))
    of_clusters = np.where(count > 0, freedom, np.inf)
    noise = sum((part[1] for part in several), np.zeros(examples.shape))
    total = examples - noise + sum(part[0] for part in several)
    total = np.maximum(total, examples - np.minimum(noise, examples) / 2)
    if len(several) == 1:
        freedom = np.full(total.shape, float(several[0][2]))
        return Uncertainty(examples, total, freedom, True, of_clusters, bearing)
    spread = sum((np.square(S) / df for S, _, df in several), np.zeros(total.shape))
    spread = spread + np.square(examples) / np.maximum(of_clusters, 0.5)
    some = spread > 0
    freedom = np.square(total) / np.where(some, spread, 1.0)
    freedom = np.where(some, freedom, of_clusters)
    fewest = min((df for _, _, df in several), default=np.inf)
    # V may be less than its parts
    freedom = np.maximum(freedom, np.minimum(fewest, of_clusters))
    return Uncertainty(examples, total, freedom, False, of_clusters, bearing)


_MOST = 1e6  # largest quantile, with hardly any degrees of freedom
Given = np.ndarray | float
_HALVINGS = 50  # bisections of an interval of length 1, to 1e-15


def share_ends(
    share: Given, variance: Given, quantile: Given, examples: Given
) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval with the number of examples that fits the variance."""
    # With n = p (1 - p) / V, the examples of a binomial share of this variance, the
    # ends are the solutions P of (p - P)^2 = q^2 P (1 - P) / n (Wilson 1927). If p is 0
    # or 1, or V is not positive, n is `examples`.
    share = np.clip(np.asarray(share, np.float64), 0.0, 1.0)
    binomial = share * (1.0 - share)
    usable = (binomial > 0) & (variance > 0)
    counted = np.where(usable, binomial / np.where(usable, variance, 1.0), examples)
    square = np.square(np.minimum(quantile, _MOST)) / np.maximum(counted, 1e-12)
    centre = (share + square / 2) / (1 + square)
    half = np.sqrt(square * binomial + np.square(square) / 4) / (1 + square)
    low = np.where(share == 0, 0.0, np.clip(centre - half, 0.0, share))
    high = np.where(share == 1, 1.0, np.clip(centre + half, share, 1.0))
    missing = np.isnan(share)
    return np.where(missing, np.nan, low), np.where(missing, np.nan, high)


def difference_ends(
    gained: Given,
    lost: Given,
    variance: Given,
    quantile: Given,
    examples: Given,
) -> tuple[np.ndarray, np.ndarray]:
    """Tango's score interval of `gained - lost`, stretched to the given variance."""
    # The ends are the solutions D of (g - l - D)^2 = q^2 s v(D) (Tango 1998, Eq. 11);
    # v(D) is the variance of the difference of two paired shares where the difference
    # is D and the rest is as likely as can be, and s = V / v(g - l) is 1 for one run a
    # side.
    gained, lost, variance, quantile, examples = np.broadcast_arrays(
        *(
            np.asarray(x, np.float64)
            for x in (gained, lost, variance, quantile, examples)
        )
    )
    found = gained - lost
    count = np.maximum(examples, 1e-12)
    plain = (gained + lost - np.square(found)) / count
    usable = (plain > 0) & (variance > 0)
    stretch = np.where(usable, variance / np.where(usable, plain, 1.0), 1.0)

    def score_variance(difference):
        """`v(D)`, in which the most likely share lost solves a quadratic equation."""
        linear = difference * (2.0 - found) - gained - lost
        constant = -lost * difference * (1.0 - difference)
        root = np.sqrt(np.maximum(np.square(linear) - 8.0 * constant, 0.0))
        least = np.maximum(-difference, 0.0)
        share = np.maximum((root - linear) / 4.0, least)
        return np.maximum(2.0 * share + difference * (1.0 - difference), 0.0) / count

    def solve(end):
        inside, outside = found.copy(), np.full(found.shape, end)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            allowed = (
                np.square(np.minimum(quantile, _MOST))
                * stretch
                * score_variance(middle)
            )
            fits = np.square(found - middle) <= allowed
            inside = np.where(fits, middle, inside)
            outside = np.where(fits, outside, middle)
        return np.where(np.isnan(found), np.nan, inside)

    return solve(-1.0), solve(1.0)
