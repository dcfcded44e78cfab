"""Numbers of a comparison with what every group of examples does to them."""

import dataclasses

import numpy as np

from churn_jax.comparison.statistics.runs import Uncertainty, run_part, uncertainty

__all__ = ["Estimate", "difference", "ratio", "relative"]


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """A number of every pair of runs."""

    # `[R_old, R_new]`, or a 1 for a side that the number does not depend on; NaN where
    # a pair has none
    matrix: np.ndarray
    # `[G, R_old, R_new]`, what every group of examples moves it by, to first order;
    # adds up to 0 over the groups
    influence: np.ndarray
    examples: float  # how many examples the number is a share of, mean over pairs

    @property
    def value(self) -> float:
        """The mean over pairs of runs; NaN where no pair has the number."""
        known = self.matrix[~np.isnan(self.matrix)]
        return float(known.mean()) if known.size else np.nan

    def of_groups(self) -> np.ndarray:
        """`[G]`, what every group moves the mean over pairs by."""
        return self.influence.mean(axis=(1, 2))

    def tail(self) -> float:
        """Squared relative error of the variance over examples, by its influences."""
        squares = np.square(self.of_groups())
        total = squares.sum()
        if total <= 0:
            return 0.0
        return max(np.sum(np.square(squares)) / total**2 - 1 / len(squares), 0.0)

    def uncertainty(self) -> Uncertainty:
        """Of the mean over pairs: examples, and runs of a side that has several."""
        of_groups = self.of_groups()
        examples = np.sum(np.square(of_groups))
        known = np.where(np.isnan(self.matrix), self.value, self.matrix)
        parts = []
        for other in (1, 0):
            of_runs = self.influence.mean(axis=2 if other else 1)
            R = of_runs.shape[1]
            squares = np.sum(np.square(of_runs - of_groups[:, None]))
            noise = squares / (R * max(R - 1, 1))
            parts.append(run_part(known.mean(axis=other), noise))
        return uncertainty(examples, *parts)


def ratio(above: np.ndarray, below: np.ndarray, empty: float) -> Estimate:
    """`sum_g above / sum_g below` of every pair of runs."""
    total, of = above.sum(axis=0), np.broadcast_to(below, above.shape).sum(axis=0)
    some = of > 0
    safe = np.where(some, of, 1.0)
    value = total / safe
    influence = np.where(some, (above - value * below) / safe, 0.0)
    return Estimate(np.where(some, value, empty), influence, float(of.mean()))


def relative(
    negative: np.ndarray, right: np.ndarray, wrong: np.ndarray, size: np.ndarray
) -> Estimate:
    """`(negative / N) / ((right / N) (wrong / N))`; 0 where nothing is below."""
    examples = float(size.sum())
    old, new = right.sum(axis=0), wrong.sum(axis=0)
    some = (old > 0) & (new > 0)
    old, new = np.where(some, old, 1.0), np.where(some, new, 1.0)
    value = np.where(some, negative.sum(axis=0) * examples / (old * new), 0.0)
    of_flips = negative * examples / (old * new)
    of_rest = value * (size / examples - right / old - wrong / new)
    influence = np.where(some, of_flips + of_rest, 0.0)
    return Estimate(value, influence, float(wrong.sum(axis=0).mean()))


def difference(old: Estimate, new: Estimate) -> Estimate:
    """New minus old of every pair; `old` is `[R_old, 1]` and `new` `[1, R_new]`."""
    # Where a run's number is infinite, so is the difference of the means over runs, or
    # NaN where both means are.
    if np.all(np.isfinite(old.matrix)) and np.all(np.isfinite(new.matrix)):
        influence = new.influence - old.influence
        return Estimate(new.matrix - old.matrix, influence, new.examples)
    with np.errstate(invalid="ignore"):
        value = np.full((1, 1), np.subtract(new.value, old.value))
    return Estimate(value, np.full((1, 1, 1), np.nan), new.examples)
