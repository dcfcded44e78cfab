"""Calibration of probabilities: binned calibration error."""

from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from churn_jax.divergences import log_probs
from churn_jax.metrics.scoring import is_correct
from churn_jax.metrics.state import AdditiveState, LongSum, ratio
from churn_jax.typing import Array, Labels, Logits, Mask, PerExample, Scalar


def bin_of(shares: PerExample, num_bins: int) -> Array:
    """The place of equal bins of [0, 1], open left, closed right, `[...]` int32."""
    # Compared with the edges: ceil(share * num_bins) would round 3/15 up. A nan falls
    # into the first bin, where it is seen.
    edges = jnp.asarray(np.arange(1, num_bins) / num_bins, jnp.float32)
    above = shares[..., None] > edges.reshape((1,) * shares.ndim + (-1,))
    return jnp.sum(above, axis=-1, dtype=jnp.int32)


def in_bins(index: Array, num_bins: int) -> Array:
    """`index [...]` as `[..., num_bins]` bools."""
    bins = jnp.arange(num_bins, dtype=jnp.int32)
    return index[..., None] == bins.reshape((1,) * index.ndim + (-1,))


@struct.dataclass
class ECEState(AdditiveState):
    """Streamed `expected_calibration_error`; sums per bin.

    `examples [num_bins]` and `correct [num_bins]` are int32 counts, `confidence
    [num_bins]` the sum of the top probabilities. `empty(num_bins=...)` fixes the bins.
    """

    examples: jax.Array
    correct: jax.Array
    confidence: LongSum

    @classmethod
    def empty(cls, num_bins: int = 15) -> Self:
        """No examples yet.

        Raises:
            ValueError: there is no bin.
        """
        return super().empty(num_bins)

    def update(self, logits, labels, mask=None) -> Self:
        """Adds a batch; arguments as in `expected_calibration_error`."""
        right = is_correct(logits, labels)[..., None]
        confidence = jnp.exp(jnp.max(log_probs(logits), axis=-1))
        num_bins = self.examples.shape[-1]
        inside = in_bins(bin_of(confidence, num_bins), num_bins)
        confidence = jnp.where(inside, confidence[..., None], 0.0)
        return self.plus(mask, inside, inside & right, confidence)

    def compute(self) -> Scalar:
        """The calibration error, float32; nan before the first valid example."""
        gaps = jnp.abs(self.correct.astype(jnp.float32) - self.confidence.value())
        return ratio(jnp.sum(gaps), jnp.sum(self.examples, dtype=jnp.int32))


def expected_calibration_error(
    logits: Logits, labels: Labels, num_bins: int = 15, mask: Mask | None = None
) -> Scalar:
    """Expected calibration error of the top prediction (ECE).

    `sum_m |B_m| / N * |acc(B_m) - conf(B_m)|` with `M` bins of equal width over the
    top probability; bin m is `((m - 1)/M, m/M]`, open left, closed right.

    Args:
        logits: `[..., C]`.
        labels: `[...]` class ids.
        num_bins: M, static. The papers do not state theirs; 15 is usual.
        mask: `[...]` valid examples.

    Returns:
        A float32 scalar in [0, 1]; nan without a valid example.

    Raises:
        ValueError: labels or mask are not shaped like the examples, or no bin.

    Notes:
        Not differentiable across bin edges and biased upwards on few examples. Bins
        of equal mass do not add up over batches and are not offered here.

    Example:
        >>> import jax.numpy as jnp
        >>> logits = jnp.log(jnp.array([[0.75, 0.25], [0.75, 0.25]]))
        >>> f"{expected_calibration_error(logits, jnp.array([0, 1])):.2f}"
        '0.25'

    References:
        [reproducibility] Table 4
        [calibration] Eq. 3 -- Guo et al., On Calibration of Modern Neural Networks,
        ICML 2017. https://arxiv.org/abs/1706.04599
        [diversity] Eq. 15
    """
    return ECEState.empty(num_bins).update(logits, labels, mask).compute()
