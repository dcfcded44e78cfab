"""Ends of intervals for shares and for differences of paired shares.

Both take the variance of the estimate as an argument, so that they serve for one run of
each version, where it is that of a binomial share, and for means over pairs of runs.
"""

import numpy as np

__all__ = ["difference_ends", "share_ends"]

_MOST = 1e6  # quantile, of next to no degrees of freedom: nothing is known
_HALVINGS = 50  # of an interval of length 1: to 1e-15


def share_ends(
    share: np.ndarray,
    variance: np.ndarray,
    quantile: np.ndarray,
    examples: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval with as many examples as the variance says."""
    # With n = p (1 - p) / V, the examples of a binomial share of this variance, the
    # ends are the solutions P of (p - P)^2 = q^2 P (1 - P) / n (Wilson 1927). Where p
    # is 0 or 1, or V is not positive, V says nothing and n is `examples`.
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
    gained: np.ndarray,
    lost: np.ndarray,
    variance: np.ndarray,
    quantile: np.ndarray,
    examples: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Tango's score interval of `gained - lost`, stretched to the variance given."""
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
        """`v(D)`: the likeliest share lost, given the difference, is a quadratic's."""
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
