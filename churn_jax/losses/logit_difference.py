"""Logit difference inhibition: a student's logits stay near those of a teacher."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from churn_compare.class_sets import known_classes
from churn_jax._checks import check_labels, check_logits, known_number
from churn_jax.losses.classification import is_label
from churn_jax.losses.differences import power
from churn_jax.setting_checks import check_choice
from churn_jax.typing import Labels, Logits, PerExample

RANKINGS = ("teacher", "student")


def _check(top_k: int | None, rank_by: str, margin: ArrayLike) -> None:
    whole = isinstance(top_k, int) and not isinstance(top_k, bool)
    if top_k is not None and not (whole and top_k >= 0):
        raise ValueError(
            f"top_k must be a whole number of classes, 0 or None for all; got {top_k!r}"
        )
    check_choice("rank_by", rank_by, RANKINGS)
    if not known_number(margin, 0.0) >= 0:
        raise ValueError(f"margin must be at least 0; got {margin}")


def logit_difference_inhibition(
    *,
    student_logits: Logits,
    teacher_logits: Logits,
    top_k: int | None = 10,
    order: float = 2,
    rank_by: str = "teacher",
    margin: ArrayLike = 0.0,
) -> PerExample:
    """Difference of a student's logits from a teacher's in the highest classes.

    `sum_(k in K(x)) max(|s_k - t_k| - margin, 0)^p`, where `K(x)` are the `top_k`
    classes with the highest logits and p is `order`. With all classes it is Eq. 7.

    Args:
        student_logits: s, `[..., C]`, floating point.
        teacher_logits: t, `[..., C]`; of an ensemble, the mean of its logits.
        top_k: K, static; more than C, None or 0 are all classes (paper: 10).
        order: p, static, at least 1 (paper: 2).
        rank_by: `teacher` ranks the classes by t, as Eq. 5; `student` by s, as the
            line of code under Eq. 8.
        margin: size of a difference that costs nothing; may be traced. The paper has
            none, its earlier version has one.

    Returns:
        `[...]` float32, at least 0.

    Raises:
        ValueError: the shapes differ, or `top_k`, `order`, `rank_by` or `margin` is not
            as above (the value of a traced margin is not checked).
        TypeError: an argument is not floating point.

    Example:
        >>> s, t = jnp.array([[1.0, 4.0, 0.0], [3.0, 2.0, -1.0]])
        >>> for k in (1, 2, None):
        ...     loss = logit_difference_inhibition
        ...     print(loss(student_logits=s, teacher_logits=t, top_k=k))
        4.0
        8.0
        9.0

    Notes:
        The paper gives two sets: Eq. 5 ranks by the ensemble, its code by the student.
        The first is the default. Of equal logits the class with the lowest number comes
        first, and the ranking carries no gradient. Classes that the teacher does not
        know (`churn_compare.class_sets`) never count; the ranking passes over them.
        Where a difference is 0, or within the margin, the gradient is 0 for every
        order, also for p = 1. Nothing is stopped here: the teacher would receive a
        gradient. The loss sees shifts of all logits, unlike a divergence.

    References:
        [elodi] Eqs. 5, 7, 8
    """
    check_logits(student_logits=student_logits, teacher_logits=teacher_logits)
    _check(top_k, rank_by, margin)
    student = jnp.asarray(student_logits).astype(jnp.float32)
    teacher = jnp.asarray(teacher_logits).astype(jnp.float32)
    known = known_classes(teacher)
    if top_k and top_k < teacher.shape[-1]:
        ranked = teacher if rank_by == "teacher" else student
        ranking = jnp.where(known, ranked, -jnp.inf)
        # Only these K classes are read again: no [..., C, K] array.
        chosen = jax.lax.top_k(jax.lax.stop_gradient(ranking), top_k)[1]
        student = jnp.take_along_axis(student, chosen, axis=-1)
        teacher = jnp.take_along_axis(teacher, chosen, axis=-1)
        known = jnp.take_along_axis(known, chosen, axis=-1)
    size = jnp.abs(jnp.where(known, student - teacher, 0.0))
    excess = jnp.maximum(size - jnp.asarray(margin, jnp.float32), 0.0)
    return jnp.sum(power(excess, order), axis=-1)


def released_logit_difference(
    *,
    student_logits: Logits,
    teacher_logits: Logits,
    labels: Labels,
    margin: ArrayLike = 1.0,
) -> PerExample:
    """Logit difference inhibition as the public code of the paper computes it.

    `1/C sum_(k != y) max(|s_k - t_k| - margin, 1e-7)^2` with the label y.

    Args:
        student_logits: s, `[..., C]`, floating point.
        teacher_logits: t, `[..., C]`.
        labels: `[...]`, integers as in `cross_entropy`.
        margin: size of a difference that costs nothing; may be traced (the code's
            README: 0.5 for one teacher, 0 or 0.2 for an ensemble).

    Returns:
        `[...]` float32, above 0: the floor of 1e-7 stays where nothing differs.

    Raises:
        ValueError: the shapes do not fit, or the margin is negative.
        TypeError: logits are not floating point, or labels are not integers.

    Example:
        >>> s, t = jnp.array([[1.0, 4.0, 0.0], [3.0, 2.0, -1.0]])
        >>> loss = released_logit_difference
        >>> y = jnp.array(1)
        >>> f"{loss(student_logits=s, teacher_logits=t, labels=y, margin=0.5):.4f}"
        '0.8333'

    Notes:
        Not the paper's Eq. 8 (`logit_difference_inhibition`). The code averages over
        classes and does not sum, so a weight means something else: with 1,000 classes
        and K = 10 by two orders of magnitude. The class of the label is left out of the
        sum but counted in C. Its top K selects examples and not classes, so in effect
        all classes count, as here. C counts the classes that the teacher knows.

    References:
        [elodi] Released code
    """
    check_logits(student_logits=student_logits, teacher_logits=teacher_logits)
    check_labels(labels, student_logits, logits_name="student_logits")
    _check(None, "teacher", margin)
    student = jnp.asarray(student_logits).astype(jnp.float32)
    teacher = jnp.asarray(teacher_logits).astype(jnp.float32)
    known = known_classes(teacher)
    mine = is_label(labels, teacher.shape[-1])
    counted = known & ~mine
    size = jnp.abs(jnp.where(counted, student - teacher, 0.0))
    excess = jnp.maximum(size - jnp.asarray(margin, jnp.float32), 1e-7)
    total = jnp.sum(jnp.where(counted, jnp.square(excess), 0.0), axis=-1)
    count = jnp.sum(known, axis=-1, dtype=jnp.float32)
    mean = total / jnp.maximum(count, 1.0)
    return jnp.where(jnp.any(mine, axis=-1), mean, jnp.nan)  # a label of no class
