"""Distillation: a student follows a teacher's predictions, or an ensemble's spread."""

import math

import jax
import jax.numpy as jnp

from churn_jax._checks import check_logits, check_same_shape, known_number
from churn_jax.divergences import kl_divergence, log_probs, modelled, weighted
from churn_jax.typing import Array, Logits, PerExample, Scalar

# The largest concentration's. A Dirichlet this sharp spreads by 3e-7, which float32
# cannot tell from a point, and twice the exponent fits, so Adam's squares are finite.
_LARGEST_LOG_CONCENTRATION = 30.0

# From here on three terms of Stirling's series are exact to 3e-10.
_STIRLING_FROM = 8.0


def _check_scalars(temperature: float | Scalar, **others) -> None:
    for name, value in {"temperature": temperature, **others}.items():
        if jnp.ndim(value) != 0:
            raise ValueError(f"{name} must be a scalar; got shape {jnp.shape(value)}")
    if not 0 < known_number(temperature, 1.0) < math.inf:
        raise ValueError(f"temperature must be positive and finite; got {temperature}")


def distillation_kl(
    *, student_logits: Logits, teacher_logits: Logits, temperature: float | Scalar = 1.0
) -> PerExample:
    """Tempered divergence of the student from the teacher, in nats.

    `tau^2 KL(softmax(t / tau) || softmax(s / tau))`: the expectation is under the
    teacher `t`; `tau` is `temperature`.

    Args:
        student_logits: `[..., C]`, floating point.
        teacher_logits: `[..., C]`.
        temperature: a positive scalar; may be traced, so that a sweep can vary it.

    Returns:
        `[...]` float32, at least 0 up to rounding.

    Raises:
        ValueError: the shapes differ, or `temperature` is not a positive scalar (a
            traced one is not checked).
        TypeError: an argument is not floating point.

    Example:
        >>> t, s = jnp.log(jnp.array([[0.5, 0.5], [0.8, 0.2]]))
        >>> kl = distillation_kl(student_logits=s, teacher_logits=t)
        >>> f"{kl:.4f}"
        '0.2231'

    Notes:
        `tau^2` keeps the size of the gradient when the temperature changes. As the
        temperature grows the loss tends to `sum_j (s_j - t_j)^2 / (2 C)` of logits
        centred over classes. The teacher is not frozen here.

    References:
        [diversity] Eq. 1
        [hinton-distillation] Sec. 2 -- Hinton et al., Distilling the Knowledge in a
        Neural Network, 2015. https://arxiv.org/abs/1503.02531
    """
    check_logits(student_logits=student_logits, teacher_logits=teacher_logits)
    _check_scalars(temperature=temperature)
    tau = jnp.asarray(temperature, jnp.float32)
    student = jnp.asarray(student_logits).astype(jnp.float32) / tau
    teacher = jnp.asarray(teacher_logits).astype(jnp.float32) / tau
    return tau**2 * kl_divergence(teacher, student)


def _log_gamma_residual(log_x: Array) -> Array:
    """`lgamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2)` for `x = exp(log_x)`."""
    # The large terms of `lgamma` cancel between the total and the single concentrations
    # and are added up by hand.
    large = log_x >= math.log(_STIRLING_FROM)
    # Each branch sees only arguments at which it and its derivative are finite.
    log_small = jnp.where(large, 0.0, log_x)
    small = jnp.exp(log_small)
    # lgamma(x) = lgamma(1 + x) - log x, which holds where x underflows.
    exact = (
        jax.lax.lgamma(1.0 + small)
        - (small + 0.5) * log_small
        + small
        - 0.5 * math.log(2.0 * math.pi)
    )
    inverse = jnp.exp(-jnp.where(large, log_x, math.log(_STIRLING_FROM)))
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260)))
    return jnp.where(large, series, exact)


def dirichlet_nll(
    *,
    student_logits: Logits,
    teacher_logits: Logits,
    temperature: float | Scalar = 1.0,
    smoothing: float | Scalar = 1e-4,
) -> PerExample:
    """Negative log-density of all teachers' predictions under the student's Dirichlet.

    `-1/T sum_m log Dir(p_m; a)` with the concentrations `a = exp(s / tau)` of the
    student `s` and the smoothed predictions
    `p_m = (1 - gamma) softmax(t_m / tau) + gamma / C` of the teachers `t_m`; `tau` is
    `temperature`, `gamma` is `smoothing`.

    Args:
        student_logits: `[..., C]`, floating point.
        teacher_logits: `[T, ..., C]`, one teacher or more on the first axis.
        temperature: a positive scalar; may be traced, so that it can be annealed.
        smoothing: share of the uniform distribution in each prediction, from 0 to 1. At
            0 a teacher that excludes a class makes the loss infinite.

    Returns:
        `[...]` float32, in nats; negative where the density is above one.

    Raises:
        ValueError: one teacher's shape differs from the student's, a scalar is not one,
            `temperature` is not positive or `smoothing` not in [0, 1] (traced ones are
            not checked).
        TypeError: the logits are not floating point.

    Example:
        >>> t = jnp.array([[0.0, 0.0], [2.0, 0.0]])
        >>> flat = dirichlet_nll(student_logits=jnp.zeros(2), teacher_logits=t)
        >>> abs(float(flat)) < 1e-6  # Dir(1, 1) has density 1 everywhere
        True

    Notes:
        The mean of the Dirichlet is `softmax(s / tau)`, so the student predicts with
        its logits like any other network; a shift of all logits changes only the
        precision `sum_c a_c`. The loss reads the teachers through their mean log
        probabilities alone. It is computed as the precision times
        `KL(softmax(s / tau) || p)` plus terms of the size of logarithms, since float32
        loses the difference of the `lgamma`s at precisions of a million. Above a
        largest concentration of `e^30` the precision's factor grows linearly instead of
        exponentially: it stays finite and keeps a gradient.
        Smoothing towards the uniform distribution, 1e-4 and the same temperature on
        both sides are those of the public re-implementation, which also multiplies by
        `tau^2`; here the method does. The teachers are not frozen here.

    References:
        [end2] Sec. 3 -- Malinin et al., Ensemble Distribution Distillation, ICLR 2020.
        https://arxiv.org/abs/1905.00076
        [diversity] Table 5
    """
    check_logits(student_logits=student_logits)
    check_logits(teacher_logits=teacher_logits)
    student = jnp.asarray(student_logits).astype(jnp.float32)
    teachers = jnp.asarray(teacher_logits).astype(jnp.float32)
    if teachers.ndim != student.ndim + 1 or not teachers.shape[0]:
        raise ValueError(
            "teacher_logits must be [T, ..., C] over student_logits [..., C], at least "
            f"one teacher; got {teachers.shape} over {student.shape}"
        )
    check_same_shape(student_logits=student, **{"one teacher's": teachers[0]})
    _check_scalars(temperature=temperature, smoothing=smoothing)
    if not 0 <= known_number(smoothing, 0.0) <= 1:
        raise ValueError(f"smoothing must be between 0 and 1; got {smoothing}")
    tau = jnp.asarray(temperature, jnp.float32)
    gamma = jnp.asarray(smoothing, jnp.float32)
    known = modelled(student)
    classes = jnp.sum(known, axis=-1, keepdims=True, dtype=jnp.float32)
    log_teachers = jnp.logaddexp(
        log_probs(teachers / tau) + jnp.log1p(-gamma),
        (jnp.log(gamma) - jnp.log(classes))[None],
    )
    log_p = jnp.mean(log_teachers, axis=0)
    log_a = student / tau
    largest = jnp.max(log_a, axis=-1, keepdims=True)
    excess = jax.nn.relu(largest - _LARGEST_LOG_CONCENTRATION)
    log_a = log_a - excess
    log_total = jax.scipy.special.logsumexp(log_a, axis=-1)
    log_mean = log_a - log_total[..., None]
    # lgamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + residual, for the total and for
    # every concentration; of the terms in x log x only the divergence is left.
    divergence = jnp.sum(weighted(log_mean, log_mean - log_p), axis=-1)
    precision = jnp.exp(log_total) * (1.0 + excess[..., 0])
    of_classes = _log_gamma_residual(log_a) - 0.5 * log_a + log_p
    return (
        precision * divergence
        + 0.5 * log_total
        - _log_gamma_residual(log_total)
        + jnp.sum(of_classes, axis=-1, where=known)
        + 0.5 * (classes[..., 0] - 1) * math.log(2.0 * math.pi)
    )
