"""Knowledge distillation: a student follows a teacher's tempered distribution."""

import jax.numpy as jnp

from churn_jax._checks import check_logits, check_same_shape
from churn_jax.divergences import kl_divergence
from churn_jax.typing import Logits, PerExample, Scalar

__all__ = ["distillation_kl"]


def distillation_kl(
    *,
    student_logits: Logits,
    teacher_logits: Logits,
    temperature: float | Scalar = 1.0,
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
        ValueError: the shapes differ, or `temperature` is not a positive scalar (the
            sign is seen only if it is a Python number).
        TypeError: an argument is not floating point.

    Example:
        >>> import jax.numpy as jnp
        >>> t, s = jnp.log(jnp.array([[0.5, 0.5], [0.8, 0.2]]))
        >>> kl = distillation_kl(student_logits=s, teacher_logits=t)
        >>> f"{kl:.4f}"
        '0.2231'

    Notes:
        `tau^2` keeps the size of the gradient when the temperature changes. As the
        temperature grows the loss tends to `sum_j (s_j - t_j)^2 / (2 C)` of logits
        centred over classes. The teacher is not frozen here.

    References:
        [diversity] Eq. 1 -- Nam et al., Diversity Matters When Learning From Ensembles,
        NeurIPS 2021. https://arxiv.org/abs/2110.14149
        [hinton-distillation] Sec. 2 -- Hinton et al., Distilling the Knowledge in a
        Neural Network, 2015. https://arxiv.org/abs/1503.02531
    """
    check_logits(student_logits=student_logits, teacher_logits=teacher_logits)
    check_same_shape(student_logits=student_logits, teacher_logits=teacher_logits)
    if jnp.ndim(temperature) != 0:
        raise ValueError(
            f"temperature must be a scalar; got shape {jnp.shape(temperature)}"
        )
    if isinstance(temperature, (int, float)) and temperature <= 0:
        raise ValueError(f"temperature must be positive; got {temperature}")
    tau = jnp.asarray(temperature, jnp.float32)
    student = jnp.asarray(student_logits).astype(jnp.float32) / tau
    teacher = jnp.asarray(teacher_logits).astype(jnp.float32) / tau
    return tau**2 * kl_divergence(teacher, student)
