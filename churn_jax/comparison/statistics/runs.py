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
        freedom: degrees of freedom of `total`, infinite with one run a side; where one
            side alone has several runs, of what the runs add.
        alone: whether one side alone has several runs.
    """

    examples: np.ndarray
    total: np.ndarray
    freedom: np.ndarray
    alone: bool = False

    def of_runs(self) -> np.ndarray:
        """Share of the variance that runs add; 0 where there is none."""
        some = self.total > 0
        examples = np.where(some, self.examples / np.where(some, self.total, 1.0), 1.0)
        return np.maximum(1.0 - examples, 0.0)

    def quantile(self, level: float) -> np.ndarray:
        """Two-sided: 1.96 for 0.95 and one run a side.

        Student's with `freedom`. Two runs on one side would be one degree of freedom,
        for which Satterthwaite's approximation is a poor one; so where one side alone
        has runs, half-widths are added as squares: `q^2 V = z^2 V_examples + t^2 C`,
        with C what the runs add.

        Example:
            >>> one = np.ones(1)
            >>> Uncertainty(one, one, 4 * one).quantile(0.95).round(3)
            array([2.776])
        """
        upper = (1.0 + level) / 2.0
        normal = special.ndtri(upper)
        # stdtrit is slow to converge for very many degrees of freedom
        few = special.stdtrit(np.minimum(self.freedom, 1e6), upper)
        student = np.where(self.freedom > 1e6, normal, few)
        if not self.alone:
            return student
        of_runs = self.of_runs()
        return np.sqrt(normal**2 * (1.0 - of_runs) + np.square(student) * of_runs)


def run_part(of_runs: np.ndarray, noise: np.ndarray) -> tuple:
    """Variance of the mean over runs, and what of it is the noise of the examples.

    `S = sum_r (m_r - m)^2 / (R (R - 1))`.

    Args:
        of_runs: `[..., R]`, the number of every run.
        noise: `[...]`, the expectation of S where runs differ by noise alone.

    Returns:
        `S`, `noise` and the degrees of freedom `R - 1`; zeros for one run, which is
        taken as it is.
    """
    R = of_runs.shape[-1]
    if R == 1:
        zero = np.zeros(of_runs.shape[:-1])
        return zero, zero, 0
    centred = of_runs - of_runs.mean(axis=-1, keepdims=True)
    return np.sum(np.square(centred), axis=-1) / (R * (R - 1)), noise, R - 1


def uncertainty(examples: np.ndarray, *parts: tuple) -> Uncertainty:
    """Examples and runs together, with Satterthwaite's degrees of freedom.

    The spread between runs holds their own noise on the examples, which the variance
    over examples holds as well; it is known well and counted once:

        V = V_examples + sum_k (S_k - noise_k)       at least V_examples - sum noise / 2
        1 / df = sum_k (S_k / V)^2 / df_k

    Args:
        examples: `[...]` variance due to examples; its degrees of freedom are taken to
            be many.
        *parts: `(S_k, noise_k, df_k)` of `run_part`, one per side.

    Returns:
        The `Uncertainty`.

    Notes:
        `S - noise` may be negative. Cut off at 0, two runs a side that differ by noise
        alone would have intervals that hold the truth 98 times of 100.

    Example:
        >>> runs = run_part(np.array([0.0, 2.0]), 0.5)  # S is 1
        >>> known = uncertainty(np.array(1.0), runs, runs)
        >>> float(known.total), float(known.freedom)
        (2.0, 2.0)

    References:
        [satterthwaite] p. 111 -- Satterthwaite, An Approximate Distribution of
        Estimates of Variance Components, Biometrics Bulletin 1946.
        https://doi.org/10.2307/3002019
    """
    examples = np.asarray(examples, np.float64)
    several = [part for part in parts if part[2]]
    noise = sum((part[1] for part in several), np.zeros(examples.shape))
    total = examples - noise + sum(part[0] for part in several)
    total = np.maximum(total, examples - np.minimum(noise, examples) / 2)
    if len(several) == 1:
        freedom = np.full(total.shape, float(several[0][2]))
        return Uncertainty(examples, total, freedom, alone=True)
    spread = sum((np.square(S) / df for S, _, df in several), np.zeros(total.shape))
    some = spread > 0
    freedom = np.where(some, np.square(total) / np.where(some, spread, 1.0), np.inf)
    fewest = min((df for _, _, df in several), default=1)
    freedom = np.maximum(freedom, fewest)  # V may fall below the spreads it is made of
    return Uncertainty(examples, total, freedom)
