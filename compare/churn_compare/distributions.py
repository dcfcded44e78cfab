"""Distribution functions that intervals and tests need, with NumPy alone.

SciPy has all of them; importing `scipy.special` takes as long as everything else that
a comparison imports, and its files take as much room.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

__all__ = [
    "beta_cdf",
    "chi2_upper_quantile",
    "coin_cdf",
    "normal_cdf",
    "normal_quantile",
    "student_cdf",
    "student_quantile",
]

_STEPS = 100_000  # of a series; it takes about the square root of its parameters
_TINY = 1e-300
_SMALL = 1e-15
_NORMAL = 1e7  # degrees of freedom, from which on Student's distribution is normal
_SUMMED = 1000  # tosses whose probabilities are added; 2**-1000 is still a number


def _by_number(function: Callable[[float], float]) -> Callable[[Any], Any]:
    vectorised = np.vectorize(function, otypes=[np.float64])
    return lambda x: vectorised(np.asarray(x, np.float64))[()]


def _quantile(p: float) -> float:
    if 0 < p < 1:
        return NormalDist().inv_cdf(p)
    return {0.0: -math.inf, 1.0: math.inf}.get(p, math.nan)


_normal_cdf = _by_number(lambda x: math.erfc(-x / math.sqrt(2)) / 2)
_normal_quantile = _by_number(_quantile)


def normal_cdf(x) -> Any:
    """P(X <= x) of a standard normal X, of any shape.

    Example:
        >>> float(normal_cdf(0.0))
        0.5
    """
    return _normal_cdf(x)


def normal_quantile(p) -> Any:
    """The x with P(X <= x) = p of a standard normal X, of any shape.

    Example:
        >>> round(float(normal_quantile(0.975)), 4)
        1.96
    """
    return _normal_quantile(p)


def beta_cdf(a, b, x) -> Any:
    """The regularised incomplete beta function `I_x(a, b)`.

    Args:
        a: first parameter, above 0, of any shape.
        b: second parameter, above 0.
        x: from 0 to 1.

    Returns:
        P(X <= x) of a beta distribution; relative error below 1e-12 for parameters up
        to 100, 1e-8 up to a million.

    Example:
        >>> round(float(beta_cdf(2.0, 1.0, 0.5)), 12)
        0.25

    References:
        [nist] Eqs. 8.17.4 and 8.17.22 -- NIST Digital Library of Mathematical
        Functions. https://dlmf.nist.gov/8.17
    """
    return _beta_cdfs(a, b, x)[()]


def _beta_cdf(a: float, b: float, x: float, y: float) -> float:
    """`I_x(a, b)` with `y = 1 - x`."""
    if x <= 0 or y <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction would converge slowly
        return 1 - _beta_cdf(b, a, y, x)
    log = a * math.log(x) + b * math.log(y) - math.log(a)
    log += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    # The continued fraction from its front, as Lentz and Thompson and Barnett do it.
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _STEPS):
        n = a + 2 * m
        above = m * (b - m) * x / ((n - 1) * n)
        d = 1 / _not_zero(1 + above * d)
        c = _not_zero(1 + above / c)
        change = c * d
        above = -(a + m) * (a + b + m) * x / (n * (n + 1))
        d = 1 / _not_zero(1 + above * d)
        c = _not_zero(1 + above / c)
        change *= c * d
        fraction *= change
        if abs(change - 1) < _SMALL:
            break
    return math.exp(log) * fraction


def _not_zero(x: float) -> float:
    return x if abs(x) > _TINY else _TINY


_beta_cdfs = np.vectorize(
    lambda a, b, x: _beta_cdf(float(a), float(b), float(x), 1 - float(x)),
    otypes=[np.float64],
)


def student_cdf(freedom, t) -> Any:
    """P(T <= t) of Student's distribution.

    Args:
        freedom: degrees of freedom, above 0, of any shape; may be infinite.
        t: where.

    Example:
        >>> round(float(student_cdf(1, 1.0)), 12)
        0.75
    """
    return _student_cdfs(freedom, t)[()]


def _student_cdf(freedom: float, t: float) -> float:
    return 1 - _student_tail(freedom, t) if t > 0 else _student_tail(freedom, -t)


def _student_tail(n: float, t: float) -> float:
    """P(T > t) for t of at least 0."""
    if math.isinf(n):
        return math.erfc(t / math.sqrt(2)) / 2
    square = t * t / n
    return _beta_cdf(n / 2, 0.5, 1 / (1 + square), square / (1 + square)) / 2


def student_quantile(freedom, p) -> Any:
    """The t with P(T <= t) = p of Student's distribution.

    Args:
        freedom: degrees of freedom, above 0, of any shape; may be infinite. Below
            0.1 and far out the quantile is only known to be large.
        p: from 0 to 1.

    Example:
        >>> round(float(student_quantile(4, 0.975)), 4)
        2.7764
    """
    return _student_quantiles(freedom, p)[()]


def _student_quantile(n: float, p: float) -> float:
    if p > 0.5:
        return -_student_quantile(n, 1 - p)
    if math.isnan(n):
        return math.nan
    if not 0 < p < 0.5 or n > _NORMAL:
        return _quantile(p)
    z = -_quantile(p)
    if n < 3:
        t = math.expm1(min(max(-math.log(2 * p) / n, 0.01), 200))
    else:  # Cornish and Fisher
        t = z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    log_front = (
        math.lgamma((n + 1) / 2) - math.lgamma(n / 2) - math.log(n * math.pi) / 2
    )
    for _ in range(20):  # Newton's method for log P(T > t) as a function of log t
        tail = _student_tail(n, t)
        density = math.exp(log_front - (n + 1) / 2 * math.log1p(t * t / n))
        step = math.log(tail / p) * tail / (density * t)
        t *= math.exp(min(max(step, -1), 1))
        if abs(step) < 1e-7:  # the error that is left is about its square
            break
    return -t


_student_cdfs = np.vectorize(
    lambda n, t: _student_cdf(float(n), float(t)), otypes=[np.float64]
)
_student_quantiles = np.vectorize(
    lambda n, p: _student_quantile(float(n), float(p)), otypes=[np.float64]
)


def chi2_upper_quantile(freedom: float, tail: float) -> float:
    """The x with P(X > x) = tail of a chi-squared distribution; numbers, not arrays.

    Args:
        freedom: degrees of freedom, above 0.
        tail: between 0 and 1, exclusive.

    Example:
        >>> round(chi2_upper_quantile(2.0, 0.05), 4)  # -2 log(0.05)
        5.9915

    References:
        [nist] Eqs. 8.7.1 and 8.9.2 -- NIST Digital Library of Mathematical Functions.
        https://dlmf.nist.gov/8.7
    """
    a = freedom / 2
    third = 2 / (9 * freedom)  # Wilson and Hilferty's guess
    root = 1 - third - float(normal_quantile(tail)) * math.sqrt(third)
    x = a * max(root, 0.1) ** 3
    for _ in range(100):
        there = _gamma_tail(a, x)
        density = math.exp((a - 1) * math.log(x) - x - math.lgamma(a))
        if there < 0.5:
            step = math.log(max(there, _TINY) / tail) * there / density
        else:
            step = (there - tail) / density
        step = min(max(step, -x / 2), x + 1)
        x += step
        if abs(step) <= 1e-14 * x:
            break
    return 2 * x


def _gamma_tail(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function `Q(a, x)`."""
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, _STEPS):
            term *= x / (a + n)
            total += term
            if term < _SMALL * total:
                break
        return 1 - front * total
    b, c = x + 1 - a, 1 / _TINY
    d = fraction = 1 / b
    for n in range(1, _STEPS):
        numerator, b = -n * (n - a), b + 2
        d = 1 / (numerator * d + b)
        c = b + numerator / c
        fraction *= c * d
        if abs(c * d - 1) < _SMALL:
            break
    return front * fraction


def coin_cdf(heads, tosses) -> Any:
    """P(X <= heads) of fair tosses, a binomial distribution with chance one half.

    Args:
        heads: whole numbers from 0 to `tosses`, of any shape.
        tosses: whole numbers.

    Example:
        >>> float(coin_cdf(1, 7))  # (1 + 7) / 2**7
        0.0625
    """
    heads, tosses = np.broadcast_arrays(
        *(np.asarray(v, np.float64) for v in (heads, tosses))
    )
    few = tosses <= _SUMMED
    n, k = np.where(few, tosses, 1.0), np.where(few, heads, 0.0)
    term = np.exp2(-n)
    total = term.copy()
    for i in range(1, int(k.max(initial=0)) + 1):
        term = term * (n - i + 1) / i
        total = total + np.where(i <= k, term, 0.0)
    if np.all(few):
        return total[()]
    n, k = np.where(few, 2.0, tosses), np.where(few, 1.0, heads)
    found = np.where(k >= n, 1.0, beta_cdf(np.maximum(n - k, 1.0), k + 1, 0.5))
    return np.where(few, total, found)[()]
