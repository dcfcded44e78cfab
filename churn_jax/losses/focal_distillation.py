"""Focal distillation: an old model's weight is largest where it is right."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from churn_compare.class_sets import known_classes
from churn_jax._checks import check_labels, check_logits
from churn_jax.losses.distillation import distillation_kl
from churn_jax.typing import Array, Labels, Logits, PerExample, Scalar


def focal_weights(
    old_logits: Logits, labels: Labels, alpha: ArrayLike = 1.0, beta: ArrayLike = 5.0
) -> PerExample:
    """The weight of an old model's prediction, from whether it is right.

    `alpha + beta [argmax_c o_c = y]`.

    Args:
        old_logits: o, `[..., C]`, floating point.
        labels: y, `[...]`, integers.
        alpha: weight of every example (public code: 1).
        beta: added weight of an example that the old model gets right (5).

    Returns:
        `[...]` float32.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: logits are not floating point, or labels are not integers.

    Example:
        >>> old = jnp.array([[2.0, 0.0], [2.0, 0.0]])
        >>> print(focal_weights(old, jnp.array([0, 1])))
        [6. 1.]

    Notes:
        The weight is a step of the logits, so it has no gradient in them. Of equal
        logits the class with the lowest number is the prediction. An old model is never
        right about a class that it does not know.

    References:
        [pc-training] Focal distillation -- Yan et al., Positive-Congruent Training:
        Towards Regression-Free Model Updates, CVPR 2021.
        https://arxiv.org/abs/2011.09161
        [elodi] Table 1
    """
    check_logits(old_logits=old_logits)
    check_labels(labels, old_logits, logits_name="old_logits")
    predicted = jnp.argmax(jnp.asarray(old_logits), axis=-1)
    right = (predicted == jnp.asarray(labels)).astype(jnp.float32)
    return jnp.asarray(alpha, jnp.float32) + jnp.asarray(beta, jnp.float32) * right


def _compared(student_logits: Logits, old_logits: Logits) -> tuple[Array, Array, Array]:
    """Both models' logits in float32, and which classes both know."""
    check_logits(student_logits=student_logits, old_logits=old_logits)
    student = jnp.asarray(student_logits).astype(jnp.float32)
    old = jnp.asarray(old_logits).astype(jnp.float32)
    return student, old, known_classes(old) & known_classes(student)


def focal_kl(
    *,
    student_logits: Logits,
    old_logits: Logits,
    labels: Labels,
    temperature: float | Scalar = 100.0,
    alpha: ArrayLike = 1.0,
    beta: ArrayLike = 5.0,
) -> PerExample:
    """Tempered divergence from an old model, weighted by whether that is right (FD-KL).

    `w tau^2 KL(softmax(o / tau) || softmax(s / tau))` with `w` of `focal_weights`, over
    the classes that both models know.

    Args:
        student_logits: s, `[..., C]`, floating point.
        old_logits: o, `[..., C]`.
        labels, alpha, beta: as in `focal_weights`.
        temperature: tau, a positive scalar; may be traced (public code: 100).

    Returns:
        `[...]` float32, at least 0 up to rounding.

    Raises:
        ValueError: the shapes do not fit, or `temperature` is not a positive scalar.
        TypeError: logits are not floating point, or labels are not integers.

    Example:
        >>> o, s = jnp.log(jnp.array([[0.5, 0.5], [0.8, 0.2]]))
        >>> for y in (0, 1):
        ...     loss = focal_kl(
        ...         student_logits=s, old_logits=o, labels=jnp.array(y), temperature=1.0
        ...     )
        ...     print(f"{loss:.4f}")
        1.3389
        0.2231

    Notes:
        The weights multiply example by example. In the public code they have one axis
        more than the divergences, so after broadcasting and averaging they scale the
        whole loss and favour no example. At temperature 100 the loss is nearly half the
        variance over classes of the difference `s - o`; float32 leaves its value three
        digits if logits differ by 3, none if by 0.05; its gradient more.

    References:
        [pc-training] Focal distillation -- Yan et al., Positive-Congruent Training:
        Towards Regression-Free Model Updates, CVPR 2021.
        https://arxiv.org/abs/2011.09161
        [elodi] Table 1
    """
    student, old, known = _compared(student_logits, old_logits)
    weights = focal_weights(old_logits, labels, alpha, beta)
    # Both sides leave out the same classes, so the student's logits of them are free.
    # Low enough at any temperature; finite, for rows without a known class.
    excluded = -1e30
    divergence = distillation_kl(
        student_logits=jnp.where(known, student, excluded),
        teacher_logits=jnp.where(known, old, excluded),
        temperature=temperature,
    )
    return weights * divergence


def focal_logit_matching(
    *,
    student_logits: Logits,
    old_logits: Logits,
    labels: Labels,
    alpha: ArrayLike = 1.0,
    beta: ArrayLike = 5.0,
) -> PerExample:
    """Squared logit difference from an old model, weighted by whether it is right.

    FD-LM: `w 1/C sum_c (s_c - o_c)^2` with `w` of `focal_weights`; C counts the classes
    that both models know.

    Args:
        student_logits, old_logits, labels, alpha, beta: as in `focal_kl`; errors as
            there.

    Returns:
        `[...]` float32, at least 0.

    Example:
        >>> o, s = jnp.array([[3.0, 0.0], [1.0, 2.0]])
        >>> y = jnp.array(0)
        >>> print(focal_logit_matching(student_logits=s, old_logits=o, labels=y))
        24.0

    Notes:
        The mean over classes, as in the code that the authors published. Another public
        implementation halves it.

    References:
        [pc-training] Focal distillation -- Yan et al., Positive-Congruent Training:
        Towards Regression-Free Model Updates, CVPR 2021.
        https://arxiv.org/abs/2011.09161
        [elodi] Table 1
    """
    student, old, known = _compared(student_logits, old_logits)
    weights = focal_weights(old_logits, labels, alpha, beta)
    difference = jnp.where(known, student - old, 0.0)
    total = jnp.sum(jnp.square(difference), axis=-1)
    count = jnp.sum(known, axis=-1, dtype=jnp.float32)
    return weights * total / jnp.maximum(count, 1.0)
