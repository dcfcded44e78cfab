"""Do student and teacher react alike to a change of the input?

Nam et al., Diversity Matters When Learning From Ensembles, NeurIPS 2021. Every
`predict` is a function `(images [B, ...]) -> logits [B, C]` that treats each example by
itself: a network in evaluation mode. Eqs. 6 and 9 to 11 are lost in our copy of the
text; what is here is derived, at temperature 1, and checked by finite differences.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import PyTree
from numpy.typing import ArrayLike, NDArray

from churn_jax._checks import check_batch, check_same_shape
from churn_jax.divergences import log_probs
from churn_jax.perturbations import unit_directions
from churn_jax.perturbations.ods import Predict
from churn_jax.typing import Array, Logits, PerExample, Scalar

# ---- Jacobians of probabilities ------------------------------------------------------


def probability_jacobians(predict: Predict, images: Array) -> Array:
    """`J(x)_kd = d softmax(predict(x))_k / d x_d`, `[B, C, D]` float32.

    Of a batch at once: one backward pass per class, vectorised.

    References:
        [diversity] Sec. 5.3
    """
    check_batch(images)

    def probabilities(x):
        return jax.nn.softmax(predict(x).astype(jnp.float32))

    probs, pull = jax.vjp(probabilities, images)
    batch, classes = probs.shape
    guides = jnp.eye(classes)[:, None]  # one class for all examples
    # Less a constant, which changes nothing; see `perturbations.pulled_back`.
    top = jnp.argmax(probs, axis=-1)
    guides = guides - (jnp.arange(classes)[:, None] == top[None])[..., None]
    (found,) = jax.vmap(pull)(guides)
    found = found.astype(jnp.float32).reshape(classes, batch, -1)
    return jnp.swapaxes(found, 0, 1)


def jacobian_similarity(
    teacher: Predict, student: Predict, images: Array
) -> PerExample:
    """Cosine of a teacher's and a student's Jacobians, each as one long vector.

    `[B]` float32; 0 where a Jacobian is zero (a saturated network).

    References:
        [diversity] Sec. 5.3
    """
    of_teacher, of_student = (
        probability_jacobians(network, images) for network in (teacher, student)
    )
    named = {"the teacher's Jacobians": of_teacher, "the student's": of_student}
    check_same_shape(**named)
    both = unit_directions(of_teacher) * unit_directions(of_student)
    return jnp.sum(both, axis=(1, 2))


class SimilarityROC(NamedTuple):
    """How well similarity to a teacher tells a distilled network from another.

    Attributes:
        false_positive_rate: `[K]`, share of the from-scratch student's examples at or
            above the k-th largest similarity; from 0 to 1.
        true_positive_rate: `[K]`, the same of the distilled student.
        auc: area under the curve; 0.5 if both are alike.
    """

    false_positive_rate: NDArray[np.float64]
    true_positive_rate: NDArray[np.float64]
    auc: float


def similarity_roc(distilled: ArrayLike, from_scratch: ArrayLike) -> SimilarityROC:
    """ROC curve of a method's similarities against those of a student from scratch.

    Both are `[N]`, without nan; ties are one step of the curve and count half.

    References:
        [diversity] Sec. 5.3
    """
    positive, negative = (np.asarray(x, np.float64) for x in (distilled, from_scratch))
    levels = np.unique(np.concatenate([positive, negative]))[::-1]

    def at_or_above(values):
        below = np.searchsorted(np.sort(values), levels, side="left")
        return np.concatenate([[0.0], 1.0 - below / values.size])

    false, true = at_or_above(negative), at_or_above(positive)
    return SimilarityROC(false, true, float(np.trapezoid(true, false)))


def transferred_guide(
    *, drawn_jacobians: Array, other_jacobians: Array, guides: Array, tolerance=1e-4
) -> Array:
    """The guide `[..., C]` of another teacher that gives the drawn teacher's direction.

    `v = argmin || J_j^T v - J_i^T w ||_2`, the shortest, for Jacobians `[..., C, D]`
    and guides w `[..., C]`; singular values of `J_j` below a share `tolerance` of the
    largest count as zero.

    References:
        [diversity] Eq. 6
    """
    check_same_shape(drawn_jacobians=drawn_jacobians, other_jacobians=other_jacobians)
    exact = jax.lax.Precision.HIGHEST
    target = jnp.einsum("...c,...cd->...d", guides, drawn_jacobians, precision=exact)
    left, size, right = jnp.linalg.svd(other_jacobians, full_matrices=False)
    kept = (size > tolerance * size[..., :1]) & (size > 0.0)
    along = jnp.einsum("...kd,...d->...k", right, target, precision=exact)
    along = jnp.where(kept, along / jnp.where(kept, size, 1.0), 0.0)
    return jnp.einsum("...ck,...k->...c", left, along, precision=exact)


# ---- the part of the loss that matches them ------------------------------------------


def jacobian_matching_term(
    teacher: Predict, student: Predict, images: Array, perturbation: Array
) -> PerExample:
    """The part of the distillation loss that couples the two Jacobians, `[B]`.

    `-sum_k (grad T_k(x) . eps) (grad log S_k(x) . eps)` with the probabilities `T` of
    the teacher and `S` of the student, and eps shaped like the images: one forward-mode
    pass of each. Negative where both change alike.

    References:
        [diversity] Eq. 10
    """
    check_same_shape(images=images, perturbation=perturbation)
    _, of_teacher = jax.jvp(
        lambda x: jnp.exp(log_probs(teacher(x))), (images,), (perturbation,)
    )
    _, of_student = jax.jvp(lambda x: log_probs(student(x)), (images,), (perturbation,))
    named = {"the teacher's logits": of_teacher, "the student's": of_student}
    check_same_shape(**named)
    return -jnp.sum(of_teacher * of_student, axis=-1)


class DistillationExpansion(NamedTuple):
    """Terms of the loss at perturbed images, up to the second order; each `[B]`."""

    clean: PerExample  # the cross-entropy at the image itself
    linear: PerExample  # zero on average
    matching: PerExample  # `jacobian_matching_term`
    student_curvature: PerExample  # `-1/2 sum_k T_k eps^T H(log S_k) eps`
    teacher_curvature: PerExample  # `-1/2 sum_k log S_k eps^T H(T_k) eps`


def distillation_expansion(
    teacher: Predict, student: Predict, images: Array, perturbation: Array
) -> DistillationExpansion:
    """The distillation loss at perturbed images as a series in the perturbation.

    `-sum_k T_k(x + eps) log S_k(x + eps)` of one draw up to the second order. The mean
    over perturbations of zero mean loses the linear term.

    References:
        [diversity] Eq. 9
    """

    def orders(function):
        """Value, first and second derivative along the perturbation."""

        def slope(x):
            return jax.jvp(function, (x,), (perturbation,))

        (value, first), (_, second) = jax.jvp(slope, (images,), (perturbation,))
        return value, first, second

    t, t_slope, t_bend = orders(lambda x: jnp.exp(log_probs(teacher(x))))
    s, s_slope, s_bend = orders(lambda x: log_probs(student(x)))
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
    """Gradient of the mean `jacobian_matching_term` in the weights of `student`.

    The mean over the batch is ours.

    References:
        [diversity] Eq. 11
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

    References:
        [diversity] Eq. 11
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
        gradient = jax.tree.map(lambda x: x.astype(jnp.float32), gradient)
        mean = jax.tree.map(lambda m, x: m + (x - m) / count, self.mean, gradient)

        def spread(squares, old_mean, new_mean, new):
            return squares + (new - old_mean) * (new - new_mean)

        squares = jax.tree.map(spread, self.squares, self.mean, mean, gradient)
        return type(self)(count, mean, squares)

    def signal_to_noise(self) -> Scalar:
        """`|| mean_s g_s ||_2 / sqrt(sum_p var_s g_sp)`, the divisor being S - 1.

        Nan for fewer than two draws. The paper's exact form is lost; it speaks of
        vectorised gradients and of element-wise variances. The mean of S draws keeps a
        share of `1 / S` of the variance: compare perturbations at the same S only.
        """
        signal, noise = (
            sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))
            for tree in (jax.tree.map(jnp.square, self.mean), self.squares)
        )
        enough = self.count > 1.0
        variance = noise / jnp.where(enough, self.count - 1.0, 1.0)
        return jnp.where(enough, jnp.sqrt(signal) / jnp.sqrt(variance), jnp.nan)
