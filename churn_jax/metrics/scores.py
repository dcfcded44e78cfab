"""How far M models' raw scores spread: regression outputs, or logits before softmax."""

from typing import Self

import jax.numpy as jnp
from flax import struct

from churn_jax._checks import check_members
from churn_jax.metrics.prediction_difference import from_mean, norm_over_classes
from churn_jax.metrics.state import MeanState, masked_mean
from churn_jax.typing import Array, Mask, Scalar

__all__ = ["ScoreDifferenceState", "score_difference"]


def _difference(scores, order):
    check_members(scores, name="scores", axes="[M, N]")
    if not jnp.issubdtype(scores.dtype, jnp.floating):
        raise TypeError(f"scores must be floating point; got {scores.dtype}")
    scores = scores.astype(jnp.float32).reshape(*scores.shape[:2], -1)
    return jnp.mean(norm_over_classes(from_mean(scores), order), axis=0)


def score_difference(
    scores: Array, order: float = 1, mask: Mask | None = None
) -> Scalar:
    """Mean L_p distance of M models' scores from their mean: Delta_p of raw scores.

    `1/N sum_n 1/M sum_m ||s_nm - sbar_n||_p` with `sbar_n = 1/M sum_m s_nm`.

    Args:
        scores: `[M, N]` or `[M, N, ...]`, M at least 2; the norm is over all axes after
            the second. Units are the scores' own.
        order: p, static; at least 1, `float("inf")` for the largest difference.
        mask: `[N]` valid examples.

    Returns:
        A float32 scalar, at least 0; nan without a valid example.

    Raises:
        ValueError: fewer than two models, an order below one, or a mask that is not
            shaped like the examples.
        TypeError: the scores are not floating point.

    Notes:
        For regression, and for logits. Logits of several classes are only fixed up to
        a constant per example, which this sees and `prediction_difference` does not;
        for two classes pass the one score `logits[..., 1] - logits[..., 0]`. Two models
        of one score give half of `mean |s_1 - s_2|`, the form that the paper states for
        M = 2, where Eq. 1 itself sums over both labels.

    Example:
        >>> import jax.numpy as jnp
        >>> float(score_difference(jnp.array([[1.0, 3.0], [2.0, 3.0]])))
        0.25

    References:
        [anti-distillation] Sec. 3 -- Shamir and Coviello, Anti-Distillation: Improving
        Reproducibility of Deep Networks, 2020. https://arxiv.org/abs/2010.09923
    """
    return masked_mean(_difference(jnp.asarray(scores), order), mask)


@struct.dataclass
class ScoreDifferenceState(MeanState):
    """Streamed `score_difference`; `empty(order=...)` fixes the order."""

    order: float = struct.field(pytree_node=False, default=1)

    def update(self, scores, mask=None) -> Self:
        """Adds a batch `[M, B]` or `[M, B, ...]`."""
        return self.add(_difference(jnp.asarray(scores), self.order), mask)
