"""Calibration of probabilities: binned calibration error."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from churn_jax._checks import check_logits
from churn_jax.divergences import log_probs
from churn_jax.metrics.scoring import is_correct
from churn_jax.metrics.state import AdditiveState, LongSum, valid_examples
from churn_jax.typing import Labels, Logits, Mask, Scalar


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
    def empty(cls, num_bins: int = 15) -> "ECEState":
        """No examples yet.

        Raises:
            ValueError: there is no bin.
        """
        if num_bins < 1:
            raise ValueError(f"num_bins must be at least 1; got {num_bins}")
        zeros = jnp.zeros((num_bins,), jnp.int32)
        return cls(zeros, zeros, LongSum.zeros((num_bins,)))

    def update(self, logits, labels, mask=None) -> "ECEState":
        """Adds a batch; arguments as in `expected_calibration_error`."""
        check_logits(logits=logits)
        num_bins = self.examples.shape[-1]
        right = is_correct(logits, labels)[..., None]
        confidence = jnp.exp(jnp.max(log_probs(logits), axis=-1))[..., None]
        valid = valid_examples(mask, jnp.shape(labels))[..., None]
        # Compared with the edges: ceil(confidence * num_bins) would round 3/15 up.
        edges = np.arange(1, num_bins) / num_bins
        axes = (1,) * (confidence.ndim - 1) + (num_bins,)
        low = jnp.asarray([-np.inf, *edges], jnp.float32).reshape(axes)
        high = jnp.asarray([*edges, np.inf], jnp.float32).reshape(axes)
        member = (confidence > low) & (confidence <= high) & valid
        over = tuple(range(member.ndim - 1))
        return ECEState(
            self.examples + jnp.sum(member, axis=over, dtype=jnp.int32),
            self.correct + jnp.sum(member & right, axis=over, dtype=jnp.int32),
            self.confidence.add(jnp.sum(jnp.where(member, confidence, 0.0), axis=over)),
        )

    def compute(self) -> Scalar:
        """The calibration error, float32; nan before the first valid example."""
        gaps = jnp.abs(self.correct.astype(jnp.float32) - self.confidence.value())
        total = jnp.sum(self.examples, dtype=jnp.int32)
        return jnp.sum(gaps) / total.astype(jnp.float32)


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
        [reproducibility] Table 4 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
        [calibration] Eq. 3 -- Guo et al., On Calibration of Modern Neural Networks,
        ICML 2017. https://arxiv.org/abs/1706.04599
        [diversity] Eq. 15 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    return ECEState.empty(num_bins).update(logits, labels, mask).compute()
