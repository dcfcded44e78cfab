"""Metrics of click models, two classes with class 1 the click.

Log loss, area under the ROC curve and calibration, of arrays and of streams. For one
score z per example pass the logits `[0, z]`.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from flax import struct

from churn_jax._checks import check_labels, check_logits
from churn_jax.divergences import log_probs
from churn_jax.metrics.scoring import class_ids, nan_at_unknown_labels
from churn_jax.metrics.state import AdditiveState, LongSum, valid_examples
from churn_jax.typing import Labels, Logits, Mask, Scalar


def _check(logits, labels):
    check_logits(logits=logits)
    shape = tuple(jnp.shape(logits))
    if shape[-1] != 2:
        raise ValueError(
            "clicks have two classes, logits [..., N, 2] with class 1 positive; got "
            f"shape {shape}. For one score z per example pass [0, z]"
        )
    check_labels(labels, logits)


def _scored(logits, labels, mask):
    """Log-odds of class 1, positive, negative, and valid but unusable, each `[...]`."""
    # Unusable: the score is nan, or the label is neither 0 nor 1.
    _check(logits, labels)
    valid = valid_examples(mask, jnp.shape(labels))
    logits, labels = jnp.asarray(logits).astype(jnp.float32), class_ids(labels)
    score = logits[..., 1] - logits[..., 0]
    usable = valid & ~jnp.isnan(score) & (labels >= 0) & (labels <= 1)
    positive, negative = usable & (labels == 1), usable & (labels == 0)
    return jnp.where(usable, score, 0.0), positive, negative, valid & ~usable


def gathered(x):
    """`x`, replicated if its type is sharded: sort and scatter need the whole array."""
    # Only meshes with explicit axes put the sharding into the type; elsewhere the
    # compiler gathers by itself.
    sharding = jax.typeof(x).sharding
    if all(axis is None for axis in sharding.spec):
        return x
    everywhere = jax.sharding.NamedSharding(
        sharding.mesh, jax.sharding.PartitionSpec(*(None,) * x.ndim)
    )
    return jax.sharding.reshard(x, everywhere)


def roc_auc(logits: Logits, labels: Labels, mask: Mask | None = None) -> Scalar:
    """Area under the ROC curve, by ranks; exact.

    `P[z(positive) > z(negative)] + 1/2 P[z(positive) = z(negative)]` over all pairs of
    a positive and a negative example, `z` the log-odds `logits[1] - logits[0]`.

    Args:
        logits: `[..., 2]`, class 1 positive. For one score z pass `[0, z]`, which is
            ranked as it is, without rounding.
        labels: `[...]`, 0 or 1; a valid example with another label gives nan, as a
            score that is nan does.
        mask: `[...]` valid examples.

    Returns:
        A float32 scalar in [0, 1]; nan where one of the two classes is absent.

    Raises:
        ValueError: not two classes, or labels or mask that do not fit.

    Notes:
        One sort, `O(N log N)`. It does not add up over batches: a stream takes
        `AUCState`, whose error is bounded. The paper reports a ranking loss that it
        does not define; ours is one minus this.

    Example:
        >>> z = jnp.array([0.1, 0.4, 0.4, 0.8])
        >>> logits = jnp.stack([jnp.zeros(4), z], axis=-1)
        >>> float(roc_auc(logits, jnp.array([0, 0, 1, 1])))
        0.875

    References:
        [anti-distillation] Table 3
    """
    score, positive, negative, unusable = (
        gathered(x).reshape(-1) for x in _scored(logits, labels, mask)
    )
    if not score.size:
        return jnp.asarray(jnp.nan, jnp.float32)
    score, positive, negative = jax.lax.sort(
        (score, positive.astype(jnp.int32), negative.astype(jnp.int32)), num_keys=1
    )
    through = jnp.cumsum(negative, dtype=jnp.int32)
    edge = score[1:] != score[:-1]
    first = jnp.concatenate([jnp.ones(1, jnp.bool_), edge])  # of a run of equal scores
    last = jnp.concatenate([edge, jnp.ones(1, jnp.bool_)])
    below = jax.lax.cummax(jnp.where(first, through - negative, 0))
    not_above = jax.lax.cummin(
        jnp.where(last, through, jnp.iinfo(jnp.int32).max), reverse=True
    )
    return _area(
        positive, below, not_above, jnp.sum(unusable, dtype=jnp.int32), through[-1]
    )


def _area(positive, below, not_above, unusable, negatives):
    """Mean over positives of the share of negatives below, ties half; `[..., K]`."""
    # `below` counts the negatives with a lower score, `not_above` also equal ones.
    beaten = 0.5 * below.astype(jnp.float32) + 0.5 * not_above.astype(jnp.float32)
    share = beaten / negatives.astype(jnp.float32)[..., None]
    positives = jnp.sum(positive, axis=-1, dtype=jnp.int32).astype(jnp.float32)
    each = positive.astype(jnp.float32) * share
    area = jnp.sum(jnp.where(positive > 0, each, 0.0), axis=-1) / positives
    known = (positives > 0) & (negatives > 0) & (unusable == 0)
    return jnp.where(known, area, jnp.nan)


@struct.dataclass
class AUCState(AdditiveState):
    """`roc_auc` of a stream, from a histogram of the log-odds of each class.

    `compute()` counts two examples of one bin as a tie, so it is within
    `error_bound()` of the exact area of the same examples, for every stream.

    Example:
        >>> state = AUCState.empty(num_bins=64, limit=8.0)
        >>> z = jnp.array([0.1, 0.9, 0.9, 2.4])
        >>> logits = jnp.stack([jnp.zeros(4), z], axis=-1)
        >>> state = state.update(logits, jnp.array([0, 0, 1, 1]))
        >>> float(state.compute()), float(state.error_bound())
        (0.875, 0.125)
    """

    positives: jax.Array  # `[num_bins]` int32, exact up to 2**31 - 1 examples in all
    negatives: jax.Array  # `[num_bins]` int32
    # int32, valid examples without a score or with another label; any makes the area
    # nan
    unusable: jax.Array
    # static. The bins are of equal width over `[-limit, limit]`, in units of the
    # log-odds; the outer two also take what lies beyond.
    limit: float = struct.field(pytree_node=False, default=16.0)

    @classmethod
    # pyrefly: ignore[bad-override]
    def empty(cls, num_bins: int = 2**14, limit: float = 16.0) -> Self:
        """No examples yet.

        Args:
            num_bins: memory is 8 bytes a bin. The default resolves 1/512 of a unit of
                log-odds, which leaves scores of spread one a bound near 3e-4 and an
                error far below.
            limit: log-odds at which the outer bins begin to collect.

        Raises:
            ValueError: fewer than one bin or a limit that is not positive.
        """
        if num_bins < 1:
            raise ValueError(f"num_bins must be at least 1; got {num_bins}")
        if not 0 < limit < float("inf"):
            raise ValueError(f"limit must be positive and finite; got {limit}")
        zeros = jnp.zeros((num_bins,), jnp.int32)
        return cls(zeros, zeros, jnp.zeros((), jnp.int32), limit=limit)

    def update(self, logits, labels, mask=None) -> Self:
        """Adds a batch; arguments as in `roc_auc`."""
        score, positive, negative, unusable = _scored(logits, labels, mask)
        num_bins = self.positives.shape[-1]
        # Every step is monotone in float32, so that order across bins is never lost.
        place = (score + self.limit) * (num_bins / (2.0 * self.limit))
        bins = jnp.clip(jnp.floor(place), 0, num_bins - 1).astype(jnp.int32)

        def count(which):
            ones = gathered(which.astype(jnp.int32))
            return jnp.zeros((num_bins,), jnp.int32).at[gathered(bins)].add(ones)

        return dataclasses.replace(
            self,
            positives=self.positives + count(positive),
            negatives=self.negatives + count(negative),
            unusable=self.unusable + jnp.sum(unusable, dtype=jnp.int32),
        )

    def compute(self) -> Scalar:
        """The area, float32; nan where one of the two classes is absent."""
        through = jnp.cumsum(self.negatives, axis=-1, dtype=jnp.int32)
        below = through - self.negatives
        return _area(self.positives, below, through, self.unusable, through[..., -1])

    def error_bound(self) -> Scalar:
        """Half the probability that a positive and a negative share a bin.

        `|compute() - roc_auc| <= error_bound()` up to float32 rounding (about 1e-6):
        only pairs within a bin are counted wrongly, each by at most one half.

        Returns:
            A float32 scalar in [0, 1/2]; nan where `compute()` is.
        """
        zeros = jnp.zeros_like(self.negatives)
        negatives = jnp.sum(self.negatives, axis=-1, dtype=jnp.int32)
        return _area(self.positives, zeros, self.negatives, self.unusable, negatives)


@struct.dataclass
class CalibrationRatioState(AdditiveState):
    """Streamed `calibration_ratio`.

    `predicted` is the sum of the predicted probabilities, `positives` the int32 count
    of clicks, `examples` that of valid examples.
    """

    predicted: LongSum
    positives: jax.Array
    examples: jax.Array

    def update(self, logits, labels, mask=None) -> Self:
        """Adds a batch; arguments as in `calibration_ratio`."""
        _check(logits, labels)
        labels = class_ids(labels)
        probability = jnp.exp(log_probs(logits)[..., 1])
        probability = nan_at_unknown_labels(probability, labels, logits)
        return self.plus(mask, probability, labels == 1)

    def compute(self) -> Scalar:
        """The ratio, float32; nan before the first valid example."""
        ratio = self.predicted.value() / self.positives.astype(jnp.float32)
        return jnp.where(self.examples > 0, ratio, jnp.nan)


def calibration_ratio(
    logits: Logits, labels: Labels, mask: Mask | None = None
) -> Scalar:
    """Predicted clicks over clicks, `sum_n P_n(1) / sum_n [l_n = 1]`.

    Above one the model predicts more clicks than there are.

    Args:
        logits, labels, mask: as in `roc_auc`; errors as there.

    Returns:
        A float32 scalar, at least 0; infinite without a positive, nan without a valid
        example.

    Notes:
        The paper does not report it. It tells whether a high log loss comes from a
        shift of all predictions or from their order.

    Example:
        >>> logits = jnp.log(jnp.array([[0.75, 0.25], [0.25, 0.75]]))
        >>> f"{calibration_ratio(logits, jnp.array([0, 1])):.2f}"
        '1.00'

    References:
        [anti-distillation] Table 3
    """
    return CalibrationRatioState.empty().update(logits, labels, mask).compute()
