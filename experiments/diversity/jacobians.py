"""Do student and teacher react alike to a change of the input? Jacobians compared.

Every `predict` is a function `(images [B, ...]) -> logits [B, C]` that treats each
example by itself: a network in evaluation mode.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from churn_jax._checks import check_batch, check_same_shape
from churn_jax.perturbations import unit_directions
from churn_jax.perturbations.ods import Predict
from churn_jax.typing import Array, PerExample


def _by_chunks(
    function: Callable[[Array], Array], images: Array, chunk_size: int
) -> Array:
    """`function` of all examples, `chunk_size` of them in memory at a time."""
    # A loop outside of the compiled program: convolutions inside of a compiled loop are
    # many times slower on CPU.
    check_batch(images)
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1; got {chunk_size}")
    compiled = jax.jit(function)
    starts = range(0, max(images.shape[0], 1), chunk_size)
    return jnp.concatenate([compiled(images[i : i + chunk_size]) for i in starts])


def _jacobians(predict: Predict, images: Array, temperature) -> Array:
    """`[B, C, D]` of a batch at once: one backward pass per class, vectorised."""

    def tempered(x):
        return jax.nn.softmax(predict(x).astype(jnp.float32) / temperature)

    probs, pull = jax.vjp(tempered, images)
    batch, classes = probs.shape
    guides = jnp.eye(classes)[:, None]  # one class for all examples
    # Less a constant, which changes nothing; see `perturbations.pulled_back`.
    top = jnp.argmax(probs, axis=-1)
    guides = guides - (jnp.arange(classes)[:, None] == top[None])[..., None]
    (found,) = jax.vmap(pull)(guides)
    found = found.astype(jnp.float32).reshape(classes, batch, -1)
    return jnp.swapaxes(found, 0, 1)


def probability_jacobians(
    predict: Predict,
    images: Array,
    *,
    temperature: float | Array = 1.0,
    chunk_size: int = 64,
) -> Array:
    """Jacobians of tempered probabilities with respect to the input.

    `J(x)_kd = d softmax(predict(x) / tau)_k / d x_d`.

    Args:
        predict: `(images) -> logits [B, C]`, every example by itself.
        images: `[B, ...]`, floating point, in the space that is asked about (pixels).
        temperature: tau.
        chunk_size: examples that are differentiated at once; C copies of their
            activations' gradients are in memory.

    Returns:
        `[B, C, D]` float32, D numbers per image; the sum over classes is zero.

    References:
        [diversity] Sec. 5.3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    return _by_chunks(lambda x: _jacobians(predict, x, temperature), images, chunk_size)


def jacobian_similarity(
    teacher: Predict,
    student: Predict,
    images: Array,
    *,
    temperature: float | Array = 1.0,
    chunk_size: int = 64,
) -> PerExample:
    """Cosine of a teacher's and a student's Jacobians, each as one long vector.

    `vec(J_T) . vec(J_S) / (|| vec(J_T) || || vec(J_S) ||)` of `probability_jacobians`.

    Args:
        teacher: `(images) -> logits [B, C]`.
        student: `(images) -> logits [B, C]`.
        images, temperature, chunk_size: as in `probability_jacobians`.

    Returns:
        `[B]` float32 in [-1, 1] up to rounding; 0 where a Jacobian is zero (a saturated
        network).

    References:
        [diversity] Sec. 5.3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    def cosine(x):
        of_teacher = _jacobians(teacher, x, temperature)
        of_student = _jacobians(student, x, temperature)
        check_same_shape(
            **{"the teacher's Jacobians": of_teacher, "the student's": of_student}
        )
        both = unit_directions(of_teacher) * unit_directions(of_student)
        return jnp.sum(both, axis=(1, 2))

    return _by_chunks(cosine, images, chunk_size)


class SimilarityROC(NamedTuple):
    """How well similarity to a teacher tells a distilled network from another.

    Attributes:
        false_positive_rate: `[K]` float64, share of the from-scratch student's examples
            at or above the k-th largest similarity; from 0 to 1.
        true_positive_rate: `[K]` float64, the same of the distilled student.
        auc: area under the curve; 1 if every distilled similarity is larger, 0.5 if
            both are alike.
    """

    false_positive_rate: NDArray[np.float64]
    true_positive_rate: NDArray[np.float64]
    auc: float


def similarity_roc(distilled: ArrayLike, from_scratch: ArrayLike) -> SimilarityROC:
    """ROC curve of a method's similarities against those of a student from scratch.

    Args:
        distilled: `[N]`, `jacobian_similarity` of the method's student to its teacher.
        from_scratch: `[N']`, that of a student which never met the teacher.

    Returns:
        `SimilarityROC`; ties are one step of the curve and count half in the area.

    References:
        [diversity] Sec. 5.3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    given = {"distilled": distilled, "from_scratch": from_scratch}
    positive, negative = (np.asarray(x, np.float64) for x in given.values())
    for name, values in zip(given, (positive, negative), strict=True):
        if values.ndim != 1 or not values.size or np.isnan(values).any():
            raise ValueError(
                f"{name} must be a list of one similarity or more, without nan; got "
                f"shape {values.shape}"
            )
    levels = np.unique(np.concatenate([positive, negative]))[::-1]

    def at_or_above(values):
        below = np.searchsorted(np.sort(values), levels, side="left")
        return np.concatenate([[0.0], 1.0 - below / values.size])

    false, true = at_or_above(negative), at_or_above(positive)
    area = np.sum(np.diff(false) * (true[1:] + true[:-1])) / 2.0
    return SimilarityROC(false, true, float(area))
