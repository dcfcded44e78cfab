"""The effect of a perturbation on distillation: the Jacobian term and its signal.

Temperature 1 throughout. A `predict` is a function `(images [B, ...]) -> logits [B, C]`
that treats each example by itself.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import PyTree

from churn_jax._checks import check_batch, check_same_shape
from churn_jax.divergences import log_probs
from churn_jax.perturbations.ods import Predict
from churn_jax.typing import Array, Logits, PerExample, Scalar


def _check(images, perturbation):
    check_batch(images)
    check_same_shape(images=images, perturbation=perturbation)


def jacobian_matching_term(
    teacher: Predict, student: Predict, images: Array, perturbation: Array
) -> PerExample:
    """The part of the distillation loss that couples the two Jacobians.

    `-sum_k (grad T_k(x) . eps) (grad log S_k(x) . eps)` with the probabilities `T` of
    the teacher and `S` of the student: one forward-mode pass of each.

    Args:
        teacher: `(images) -> logits [B, C]`.
        student: `(images) -> logits [B, C]`.
        images: `[B, ...]`, floating point.
        perturbation: eps, shaped like the images: `ods(...) - images`, or noise.

    Returns:
        `[B]` float32; negative where both change alike.

    Notes:
        The paper's formulas are lost in our copy of the text; this is derived, for the
        temperature 1, as the cross term of the loss's expansion in `eps`
        (`distillation_expansion`), and checked by finite differences.

    References:
        [diversity] Eq. 10 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    _check(images, perturbation)
    _, of_teacher = jax.jvp(
        lambda x: jnp.exp(log_probs(teacher(x))), (images,), (perturbation,)
    )
    _, of_student = jax.jvp(lambda x: log_probs(student(x)), (images,), (perturbation,))
    check_same_shape(
        **{"the teacher's logits": of_teacher, "the student's": of_student}
    )
    return -jnp.sum(of_teacher * of_student, axis=-1)


class DistillationExpansion(NamedTuple):
    """Terms of the loss at perturbed images, up to the second order; each `[B]`.

    Attributes:
        clean: the cross-entropy at the image itself.
        linear: what is of first order; zero on average.
        matching: `jacobian_matching_term`.
        student_curvature: `-1/2 sum_k T_k eps^T H(log S_k) eps`.
        teacher_curvature: `-1/2 sum_k log S_k eps^T H(T_k) eps`.
    """

    clean: PerExample
    linear: PerExample
    matching: PerExample
    student_curvature: PerExample
    teacher_curvature: PerExample

    @property
    def total(self) -> PerExample:
        """The sum of the terms."""
        return sum(self[1:], start=self[0])


def distillation_expansion(
    teacher: Predict, student: Predict, images: Array, perturbation: Array
) -> DistillationExpansion:
    """The distillation loss at perturbed images as a series in the perturbation.

    `-sum_k T_k(x + eps) log S_k(x + eps)` up to the second order. The mean over
    perturbations of zero mean loses the linear term; what is left is the loss at the
    image, the Jacobian-matching term and two curvatures, and an error of third order.

    Args:
        teacher, student, images, perturbation: as in `jacobian_matching_term`; errors
            as there.

    Returns:
        `DistillationExpansion` of this one draw, float32.

    Notes:
        Derived, as `jacobian_matching_term` is. The loss is the cross-entropy; the
        divergence from the teacher is less by the teacher's entropy, which no weight of
        the student enters.

    References:
        [diversity] Eq. 9 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    _check(images, perturbation)

    def probs(x):
        return jnp.exp(log_probs(teacher(x)))

    def log_student(x):
        return log_probs(student(x))

    def orders(function):
        """Value, first and second derivative along the perturbation."""

        def slope(x):
            return jax.jvp(function, (x,), (perturbation,))

        (value, first), (_, second) = jax.jvp(slope, (images,), (perturbation,))
        return value, first, second

    t, t_slope, t_bend = orders(probs)
    s, s_slope, s_bend = orders(log_student)
    check_same_shape(**{"the teacher's logits": t, "the student's": s})
    return DistillationExpansion(
        clean=-jnp.sum(t * s, axis=-1),
        linear=-jnp.sum(t * s_slope + t_slope * s, axis=-1),
        matching=-jnp.sum(t_slope * s_slope, axis=-1),
        student_curvature=-0.5 * jnp.sum(t * s_bend, axis=-1),
        teacher_curvature=-0.5 * jnp.sum(s * t_bend, axis=-1),
    )


def jacobian_matching_gradient(
    teacher: Predict,
    student: Callable[[PyTree, Array], Logits],
    params: PyTree,
    images: Array,
    perturbation: Array,
) -> PyTree:
    """Gradient of the mean `jacobian_matching_term` in the student's weights.

    Args:
        teacher, images, perturbation: as in `jacobian_matching_term`; errors as there.
        student: `(params, images) -> logits [B, C]`.
        params: the student's weights.

    Returns:
        A tree like `params`.

    Notes:
        Derived, as `jacobian_matching_term` is; the mean over the batch is ours.

    References:
        [diversity] Eq. 11 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    def mean(params):
        return jnp.mean(
            jacobian_matching_term(
                teacher, lambda x: student(params, x), images, perturbation
            )
        )

    return jax.grad(mean)(params)


@struct.dataclass
class GradientMoments:
    """Running mean and spread of gradients (Welford), one gradient in memory.

    Attributes:
        count: draws so far.
        mean: a tree like the gradients, float32.
        squares: the same of the squared distances from the mean, summed over draws.
    """

    count: Array
    mean: PyTree
    squares: PyTree

    @classmethod
    def empty(cls, like: PyTree) -> Self:
        """No draws yet, for gradients shaped like the tree `like`."""
        zeros = jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), jnp.float32), like)
        return cls(jnp.zeros((), jnp.float32), zeros, zeros)

    def update(self, gradient: PyTree) -> Self:
        """Adds one draw."""
        count = self.count + 1.0

        def moved(mean, new):
            return mean + (new.astype(jnp.float32) - mean) / count

        mean = jax.tree.map(moved, self.mean, gradient)

        def spread(squares, old_mean, new_mean, new):
            new = new.astype(jnp.float32)
            return squares + (new - old_mean) * (new - new_mean)

        squares = jax.tree.map(spread, self.squares, self.mean, mean, gradient)
        return type(self)(count, mean, squares)

    def signal_to_noise(self) -> Scalar:
        """`gradient_signal_to_noise` of the draws so far; nan for fewer than two."""
        signal, noise = (
            sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))
            for tree in (jax.tree.map(jnp.square, self.mean), self.squares)
        )
        enough = self.count > 1.0
        variance = noise / jnp.where(enough, self.count - 1.0, 1.0)
        return jnp.where(enough, jnp.sqrt(signal) / jnp.sqrt(variance), jnp.nan)


def gradient_signal_to_noise(gradients: Array) -> Scalar:
    """Norm of the mean gradient over the square root of its total variance.

    `|| mean_s g_s ||_2 / sqrt(sum_p var_s g_sp)`, the variance per element with the
    divisor S - 1.

    Args:
        gradients: `[S, ...]`, one draw per row; all other axes are one long vector.

    Returns:
        A float32 scalar, at least 0; infinite where all draws are equal, nan where all
        are zero or there is only one.

    Notes:
        The paper's exact form is lost in our copy of the text; it speaks of vectorised
        gradients and of element-wise variances, and this is our choice. The mean of S
        draws keeps a share of `1 / S` of the variance, so compare perturbations at the
        same S only.

    References:
        [diversity] Eq. 11 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    if jnp.ndim(gradients) < 1:
        raise ValueError("gradients must have an axis of draws [S, ...]; got a scalar")
    gradients = jnp.asarray(gradients).astype(jnp.float32)
    draws = gradients.reshape(gradients.shape[0], -1)
    mean = jnp.mean(draws, axis=0)
    squares = jnp.sum(jnp.square(draws - mean[None]), axis=0)
    count = jnp.float32(draws.shape[0])
    return GradientMoments(count, mean, squares).signal_to_noise()


def matching_signal_to_noise(
    teacher: Predict,
    student: Callable[[PyTree, Array], Logits],
    params: PyTree,
    images: Array,
    perturbations: Iterable[Array],
) -> Scalar:
    """Signal-to-noise ratio of the Jacobian-matching gradient over perturbations.

    Args:
        teacher, student, params: as in `jacobian_matching_gradient`; errors as there.
        images: `[B, ...]`, the same for every draw.
        perturbations: draws of eps, two or more, each shaped like the images; a
            generator is read one draw at a time.

    Returns:
        `gradient_signal_to_noise` of `jacobian_matching_gradient`, a float32 scalar.

    References:
        [diversity] Sec. 5.3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    @jax.jit
    def add(moments, params, images, perturbation):
        return moments.update(
            jacobian_matching_gradient(teacher, student, params, images, perturbation)
        )

    moments = GradientMoments.empty(params)
    for perturbation in perturbations:
        moments = add(moments, params, images, perturbation)
    return moments.signal_to_noise()
