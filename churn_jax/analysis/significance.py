"""Is a difference between two training methods larger than retraining explains?

Runs, not examples and not pairs, are the independent units: all pairs that share a run
move together. Replica `r` of every method in a study starts from the same seeds, so the
tests are paired by run. Everything here is NumPy in float64.
"""

import dataclasses

import numpy as np
from scipy import special

_ROUNDING = 2.0**-22  # of the values, which reports have in float32: no spread below it


@dataclasses.dataclass(frozen=True)
class Difference:
    """A method's number minus the baseline's, with its uncertainty.

    Attributes:
        difference: method minus baseline, in the unit of the inputs.
        stderr: standard error of `difference`; NaN with too few runs.
        t: `difference / stderr`.
        p: two-sided p-value of "no difference"; NaN with too few runs.
        runs: number of runs both sides have.
    """

    difference: float
    stderr: float
    t: float
    p: float
    runs: int


def _difference(difference: float, stderr: float, runs: int, scale: float):
    if not np.isfinite(stderr):
        return Difference(difference, np.nan, np.nan, np.nan, runs)
    if stderr <= _ROUNDING * scale:  # the runs' values do not vary
        if abs(difference) <= _ROUNDING * scale:
            return Difference(0.0, 0.0, 0.0, 1.0, runs)
        t, p = np.copysign(np.inf, difference), 2.0 ** (1 - runs)  # of flipped signs
        return Difference(difference, 0.0, t, p, runs)
    t = difference / stderr
    p = 2.0 * special.stdtr(runs - 1, -abs(t))
    return Difference(float(difference), float(stderr), float(t), float(p), runs)


def jackknife_stderr(leave_one_out: np.ndarray) -> float:
    """Standard error from the `R` leave-one-out values.

    `sqrt((R - 1) / R * sum_r (theta_(-r) - mean theta_(-r))^2)`.

    Args:
        leave_one_out: `[R]` values of the statistic, each without one run.

    Returns:
        The standard error, in the unit of the statistic; NaN of fewer than two values.

    Example:
        >>> jackknife_stderr(np.array([3.0, 2.0, 1.0]))  # sqrt(2 / 3 * 2)
        1.1547...
    """
    values = np.asarray(leave_one_out, np.float64)
    if (runs := len(values)) < 2:
        return np.nan
    return float(np.sqrt((runs - 1) / runs * np.sum((values - values.mean()) ** 2)))


def paired_jackknife_test(
    matrix_method: np.ndarray, matrix_baseline: np.ndarray
) -> Difference:
    """Do two methods differ in a pairwise quantity such as churn?

    With `theta` the mean over pairs, the statistic is `d = theta(method) -
    theta(baseline)`. Run `r` is left out of both at once, since it shares its seeds;
    `t = d / stderr` is referred to Student's t with `R - 1` degrees of freedom.

    Args:
        matrix_method: `[R, R]` of the method; the diagonal is not read.
        matrix_baseline: `[R, R]` of the baseline, the same runs in the same order.

    Returns:
        The `Difference`; with fewer than three runs its stderr, t and p are NaN.

    Raises:
        ValueError: a matrix is not square, or the shapes differ.

    Example:
        >>> base = np.array([[0, 4, 5], [4, 0, 6], [5, 6, 0]]) / 100
        >>> test = paired_jackknife_test(base - 0.02, base)
        >>> round(test.difference, 4), test.p
        (-0.02, 0.25)

    Notes:
        In expectation the jackknife variance is never too small (Efron and Stein); the
        excess goes to zero as 1/R where single runs explain the spread and stays near a
        factor of two where only the combination of two runs does. In
        simulations of 3 to 10 runs false alarms at 5 % are 2 to 4 %, and up to 8 %
        where some runs are much noisier than others. Where run r of the two sides
        shares no seeds the test only finds less. When all R runs agree on a difference,
        p is `2^(1 - R)`, the share of sign flips that are as far from 0.

    References:
        [jackknife] pp. 586-596 -- Efron and Stein, The Jackknife Estimate of Variance,
        Annals of Statistics 1981. https://doi.org/10.1214/aos/1176345462
    """
    method = _square(matrix_method, "matrix_method")
    baseline = _square(matrix_baseline, "matrix_baseline")
    if method.shape != baseline.shape:
        raise ValueError(
            "matrix_method and matrix_baseline must hold the same runs; got shapes "
            f"{method.shape} and {baseline.shape}"
        )
    runs = len(method)
    delta = method - baseline
    pairs = runs * (runs - 1)
    difference = float(delta.sum() / pairs) if runs > 1 else np.nan
    stderr = np.nan
    if runs > 2:
        touching = delta.sum(axis=0) + delta.sum(axis=1)  # all pairs with run r in them
        without = (delta.sum() - touching) / ((runs - 1) * (runs - 2))
        stderr = jackknife_stderr(without)
    return _difference(difference, stderr, runs, _scale(method, baseline))


def paired_leave_one_out_test(
    value_method: float,
    value_baseline: float,
    without_method: np.ndarray,
    without_baseline: np.ndarray,
) -> Difference:
    """Do two methods differ in a number of all their runs, such as Delta_1?

    As `paired_jackknife_test`, for a number that is not a mean over pairs: run `r` is
    left out of both sets, `t = difference / stderr` with `R - 1` degrees of freedom.

    Args:
        value_method: value of all the method's runs as one set.
        value_baseline: value of all the baseline's runs.
        without_method: `[R]`, entry `r` without run `r`.
        without_baseline: `[R]`, the same runs in the same order.

    Returns:
        The `Difference`; with fewer than three runs its stderr, t and p are NaN.

    Raises:
        ValueError: the arrays are not `[R]` of one length.

    Example:
        >>> left_out = np.array([0.08, 0.10, 0.09])
        >>> test = paired_leave_one_out_test(0.05, 0.09, left_out - 0.04, left_out)
        >>> round(test.difference, 4), test.p
        (-0.04, 0.25)

    Notes:
        Both sets must be of one size: a spread around the mean of R runs grows with R
        as `sqrt((R - 1) / R)`. Simulated for Delta_1 with 3 to 20 runs, false alarms
        at 5 % are 2 to 5 % where runs are alike. Where some stray much farther than
        others they are up to 8 %, and up to 11 % with three runs.

    References:
        [jackknife] pp. 586-596 -- Efron and Stein, The Jackknife Estimate of Variance,
        Annals of Statistics 1981. https://doi.org/10.1214/aos/1176345462
    """
    method = np.asarray(without_method, np.float64)
    baseline = np.asarray(without_baseline, np.float64)
    if method.ndim != 1 or method.shape != baseline.shape:
        raise ValueError(
            "without_method and without_baseline must both be [R]; got "
            f"{method.shape} and {baseline.shape}"
        )
    runs = len(method)
    stderr = jackknife_stderr(method - baseline) if runs > 2 else np.nan
    difference = float(value_method - value_baseline)
    return _difference(difference, stderr, runs, _scale(method, baseline))


def paired_t_test(values_a: np.ndarray, values_b: np.ndarray) -> Difference:
    """Do two methods differ in a run-level quantity such as accuracy?

    Student's paired t test on `values_a - values_b` with `R - 1` degrees of freedom.

    Args:
        values_a: `[R]`, one value per run.
        values_b: `[R]`, the same runs in the same order.

    Returns:
        The `Difference` (a minus b); with fewer than two runs its stderr, t and p are
        NaN.

    Raises:
        ValueError: not one-dimensional, empty, or different lengths.

    Example:
        >>> test = paired_t_test([0.91, 0.93, 0.95], [0.90, 0.90, 0.90])
        >>> round(test.difference, 3), round(test.t, 3), round(test.p, 3)
        (0.03, 2.598, 0.122)
    """
    a, b = np.asarray(values_a, np.float64), np.asarray(values_b, np.float64)
    if a.ndim != 1 or a.shape != b.shape or not a.size:
        raise ValueError(
            f"values_a and values_b must both be [R]; got {a.shape} and {b.shape}"
        )
    delta = a - b
    runs = len(delta)
    stderr = float(delta.std(ddof=1) / np.sqrt(runs)) if runs > 1 else np.nan
    return _difference(float(delta.mean()), stderr, runs, _scale(a, b))


def _square(matrix, name: str) -> np.ndarray:
    matrix = np.array(matrix, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{name} must be [R, R]; got shape {matrix.shape}")
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _scale(*arrays) -> float:
    return max(float(np.max(np.abs(a), initial=0.0)) for a in arrays) or 1.0
