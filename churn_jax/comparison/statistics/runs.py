"""What examples and runs contribute to the uncertainty of a mean over pairs of runs."""

import dataclasses

import numpy as np
from scipy import special

__all__ = ["Uncertainty", "run_part", "uncertainty"]


@dataclasses.dataclass(frozen=True, eq=False)
class Uncertainty:
    """How well a number is known; arrays of any shape."""

    examples: np.ndarray  # variance due to the examples, given the runs
    total: np.ndarray  # variance due to examples and runs
    # degrees of freedom of `total`, infinite with one run a side; where one side alone
    # has several runs, of what the runs add
    freedom: np.ndarray
    alone: bool = False  # whether one side alone has several runs

    def of_runs(self) -> np.ndarray:
        """Share of the variance that runs add; 0 where there is none."""
        some = self.total > 0
        examples = np.where(some, self.examples / np.where(some, self.total, 1.0), 1.0)
        return np.maximum(1.0 - examples, 0.0)

    def quantile(self, level: float) -> np.ndarray:
        """Two-sided: 1.96 for 0.95 and one run a side."""
        # Satterthwaite's approximation is poor for one degree of freedom (two runs on
        # one side), so where one side alone has runs, half-widths are added as squares:
        # q^2 V = z^2 V_examples + t^2 C, with C what the runs add.
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
    """Variance of the mean over runs, and what of it is the noise of the examples."""
    # S = sum_r (m_r - m)^2 / (R (R - 1)); `noise` is its expectation where runs differ
    # by noise alone.
    R = of_runs.shape[-1]
    if R == 1:
        zero = np.zeros(of_runs.shape[:-1])
        return zero, zero, 0
    centred = of_runs - of_runs.mean(axis=-1, keepdims=True)
    return np.sum(np.square(centred), axis=-1) / (R * (R - 1)), noise, R - 1


def uncertainty(examples: np.ndarray, *parts: tuple) -> Uncertainty:
    """Examples and runs together, with Satterthwaite's degrees of freedom."""
    # The spread between runs holds their noise on the examples, which the variance over
    # examples holds as well and which is counted once: V = V_examples + sum_k (S_k -
    # noise_k), at least V_examples - noise / 2 (cut off at V_examples, two runs a side
    # that differ by noise alone would have intervals that hold the truth 98 times of
    # 100), and 1 / df = sum_k (S_k / V)^2 / df_k (Satterthwaite 1946).
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
