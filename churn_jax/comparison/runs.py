"""What examples and runs contribute to the uncertainty of a mean over pairs of runs."""

import dataclasses

import numpy as np
from scipy import special

__all__ = ["Uncertainty", "run_part", "uncertainty"]


@dataclasses.dataclass(frozen=True, eq=False)
class Uncertainty:
    """How well a number is known; arrays of any shape.

    Attributes:
        examples: variance due to the examples, given the runs.
        total: variance due to examples and runs.
        freedom: degrees of freedom of `total`, infinite with one run a side.
    """

    examples: np.ndarray
    total: np.ndarray
    freedom: np.ndarray

    def quantile(self, level: float) -> np.ndarray:
        """Of Student's distribution, two-sided: 1.96 for 0.95 and many runs.

        Example:
            >>> one = np.ones(1)
            >>> Uncertainty(one, one, 4 * one).quantile(0.95).round(3)
            array([2.776])
        """
        upper = (1.0 + level) / 2.0
        # stdtrit is exact for few degrees of freedom and slow to converge for many
        few = special.stdtrit(np.minimum(self.freedom, 1e6), upper)
        return np.where(self.freedom > 1e6, special.ndtri(upper), few)


def run_part(
    of_runs: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Variance of the mean over runs, less what examples explain of it.

    `S = sum_r (m_r - m)^2 / (R (R - 1))` holds the spread between runs and, once more,
    part of the noise of the examples, whose share `noise` is known well.

    Args:
        of_runs: `[..., R]`, the number of every run.
        noise: `[...]`, the expectation of S where runs differ by noise alone.

    Returns:
        `max(S - noise, 0)`, `S` and the degrees of freedom `R - 1`; zeros and 1 for one
        run, which is taken as it is.
    """
    R = of_runs.shape[-1]
    if R == 1:
        zero = np.zeros(of_runs.shape[:-1])
        return zero, zero, np.ones_like(zero)
    centred = of_runs - of_runs.mean(axis=-1, keepdims=True)
    S = np.sum(np.square(centred), axis=-1) / (R * (R - 1))
    return np.maximum(S - noise, 0.0), S, np.full(S.shape, R - 1.0)


def uncertainty(examples: np.ndarray, *parts: tuple) -> Uncertainty:
    """Examples and runs together, with Satterthwaite's degrees of freedom.

    `V = V_examples + sum_k C_k`, `1 / df = sum_k (S_k / V)^2 / df_k`, from the
    `(C_k, S_k, df_k)` of `run_part`.

    Args:
        examples: `[...]` variance due to examples; its degrees of freedom are taken to
            be many.
        *parts: of `run_part`, one per side.

    Returns:
        The `Uncertainty`.

    Example:
        >>> known = uncertainty(np.array(1.0), run_part(np.array([0.0, 2.0]), 0.5))
        >>> float(known.total), float(known.freedom)  # S is 1
        (1.5, 2.25)

    References:
        [satterthwaite] p. 111 -- Satterthwaite, An Approximate Distribution of
        Estimates of Variance Components, Biometrics Bulletin 1946.
        https://doi.org/10.2307/3002019
    """
    examples = np.asarray(examples, np.float64)
    total = examples + sum(part[0] for part in parts)
    spread = sum((np.square(S) / df for _, S, df in parts), np.zeros_like(total))
    some = spread > 0
    freedom = np.where(some, np.square(total) / np.where(some, spread, 1.0), np.inf)
    return Uncertainty(examples, total, freedom)
