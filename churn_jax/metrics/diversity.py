"""How an ensemble's members differ, on which examples, and what averaging gains.

Members that share weights may turn out nearly identical although there are several:
these are the numbers to look at first.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from churn_jax._checks import check_labels, check_logits, check_members
from churn_jax.divergences import log_probs
from churn_jax.metrics.calibration import bin_of, in_bins
from churn_jax.metrics.churn import ambiguity
from churn_jax.metrics.clicks import gathered
from churn_jax.metrics.prediction_difference import (
    from_mean,
    log_mean_probs,
    pairwise_kl,
)
from churn_jax.metrics.scoring import class_ids, example_nll, is_correct
from churn_jax.metrics.state import AdditiveState, LongSum, valid_examples
from churn_jax.typing import Array, Labels, Logits, Mask, Scalar

_QUARTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class DiversityByConfidence(NamedTuple):
    """Mean pairwise KL of the members by their least confidence, for a box per bin.

    `edges [num_bins + 1]`, `counts [num_bins]`, `bin_mean_kl [num_bins]`, `mean_kl`,
    `quartiles [5, num_bins]`.
    """

    edges: Array
    counts: Array
    bin_mean_kl: Array
    mean_kl: Scalar
    quartiles: Array | None = None  # None from a State


def _kl_and_bin(member_logits, num_bins):
    """Mean pairwise KL and the bin of the least top probability, both `[N]`."""
    top = jnp.exp(jnp.max(log_probs(member_logits), axis=-1))
    return pairwise_kl(member_logits), bin_of(jnp.min(top, axis=0), num_bins)


@struct.dataclass
class DiversityByConfidenceState(AdditiveState):
    """Streamed `diversity_by_confidence`, without its quartiles; sums per bin.

    `examples [num_bins]` are int32 counts, `kl [num_bins]` the sum of the examples'
    mean pairwise KL. `empty(num_bins=...)` fixes the bins.
    """

    examples: jax.Array
    kl: LongSum

    @classmethod
    def empty(cls, num_bins: int = 10) -> Self:  # pyrefly: ignore[bad-override]
        """No examples yet.

        Raises:
            ValueError: there is no bin.
        """
        return super().empty(num_bins=num_bins)

    def update(self, member_logits, mask=None) -> Self:
        """Adds a batch `[M, B, C]`; arguments as in `diversity_by_confidence`."""
        return self.binned(*_kl_and_bin(member_logits, self.examples.shape[-1]), mask)

    def binned(self, kl, index, mask=None) -> Self:
        """This state and the valid ones of `kl [...]`, in the bins `index [...]`."""
        inside = in_bins(index, self.examples.shape[-1])
        return self.plus(mask, inside, jnp.where(inside, kl[..., None], 0.0))

    def compute(self) -> DiversityByConfidence:
        """Counts and means of the bins, nan in an empty one; no quartiles."""
        num_bins, kl = self.examples.shape[-1], self.kl.value()
        counts = jnp.asarray(self.examples).astype(jnp.float32)
        return DiversityByConfidence(
            edges=jnp.asarray(np.arange(num_bins + 1) / num_bins, jnp.float32),
            counts=self.examples,
            bin_mean_kl=kl / counts,
            mean_kl=jnp.sum(kl, axis=-1) / jnp.sum(counts, axis=-1),
        )


def _quartiles(kl, index, counts):
    """Per bin, from one sort by bin and then by value; nan for an empty bin."""
    if not kl.size:
        return jnp.full((len(_QUARTILES), len(counts)), jnp.nan, jnp.float32)
    kl, index = gathered(kl), gathered(index)
    _, values = jax.lax.sort((index, kl), num_keys=2)
    share = jnp.asarray(_QUARTILES, jnp.float32)[:, None]
    # The quartile of n values stands (n - 1) * share behind the first of them.
    behind = share * jnp.maximum(counts - 1, 0).astype(jnp.float32)[None]
    whole = jnp.floor(behind)
    fraction = behind - whole
    start = (jnp.cumsum(counts) - counts).astype(jnp.int32)[None]
    low = jnp.minimum(start + whole.astype(jnp.int32), kl.shape[0] - 1)
    high = jnp.minimum(low + 1, kl.shape[0] - 1)
    between = (1.0 - fraction) * values[low] + fraction * values[high]
    # Not 0 * inf where the quartile is one of the values.
    return jnp.where(
        counts[None] > 0, jnp.where(fraction > 0.0, between, values[low]), jnp.nan
    )


def diversity_by_confidence(
    member_logits: Logits, num_bins: int = 10, mask: Mask | None = None
) -> DiversityByConfidence:
    """Pairwise KL of an ensemble's members by confidence: the diversity plot.

    Example n has the value `1/(M (M - 1)) sum_{m != k} KL(P_nm || P_nk)` and the
    confidence `min_m max_l P_nm(l)`; bins of equal width over the confidence, open
    left, closed right.

    Args:
        member_logits: `[M, N, C]` (or `[M, ..., C]`), M at least 2.
        num_bins: static. The paper does not state its number.
        mask: `[N]` valid examples.

    Returns:
        `DiversityByConfidence`, nan where there is no example (no confidence is below
        1/C, so the first bins are empty):

        * `edges [num_bins + 1]` and `counts [num_bins]`, int32;
        * `bin_mean_kl [num_bins]`, nats;
        * `mean_kl`, over all examples, which is also the mean of the bins weighted by
          their counts ("mean-KLD");
        * `quartiles [5, num_bins]`, nats: smallest, 25 %, median, 75 %, largest, linear
          between values.

    Raises:
        ValueError: fewer than two members, no bin, or a mask that does not fit.

    Notes:
        Quartiles do not add up over batches: `DiversityByConfidenceState` has all the
        rest. They sort the examples, so give them whole, not a shard of them.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])
        >>> plot = diversity_by_confidence(jnp.log(probs), num_bins=2)
        >>> plot.counts.tolist(), f"{plot.mean_kl:.4f}"
        ([0, 1], '0.5493')

    References:
        [diversity] Fig. 3
    """
    state = DiversityByConfidenceState.empty(num_bins)
    kl, index = _kl_and_bin(member_logits, num_bins)
    found = state.binned(kl, index, mask).compute()
    valid = valid_examples(mask, kl.shape)
    index = jnp.where(valid, index, num_bins)  # behind all others
    quartiles = _quartiles(kl.ravel(), index.ravel(), found.counts)
    return found._replace(quartiles=quartiles)


class MemberDiversity(NamedTuple):
    """Differences between an ensemble's members, and what averaging them gains."""

    mean_kl: Scalar
    disagreement: Scalar
    variance_share: Scalar
    mean_member_nll: Scalar
    ensemble_nll: Scalar
    mean_member_accuracy: Scalar
    ensemble_accuracy: Scalar


def _terms_per_example(member_logits, labels) -> tuple[MemberDiversity, Array]:
    """Terms per example, and the variance that divides `variance_share`."""
    member_logits = jnp.asarray(member_logits)
    check_logits(member_logits=member_logits)
    check_members(member_logits, name="member_logits")
    check_labels(labels, member_logits[0], logits_name="logits of one member")
    log_p, labels = log_probs(member_logits), class_ids(labels)
    mean, p = log_mean_probs(log_p)[0], jnp.exp(log_p)
    of_members = jnp.broadcast_to(labels[None], log_p.shape[:-1])
    right = is_correct(log_p, of_members)
    between = jnp.mean(jnp.sum(jnp.square(from_mean(p)), axis=-1), axis=0)
    # -expm1(log p) is 1 - p with all its digits where p is nearly 1.
    within = jnp.mean(jnp.sum(p * -jnp.expm1(log_p), axis=-1), axis=0)
    terms = MemberDiversity(
        mean_kl=pairwise_kl(member_logits),
        disagreement=ambiguity(member_logits),
        variance_share=between,
        mean_member_nll=jnp.mean(example_nll(log_p, of_members), axis=0),
        ensemble_nll=example_nll(mean, labels),
        mean_member_accuracy=jnp.mean(right, axis=0, dtype=jnp.float32),
        ensemble_accuracy=is_correct(mean, labels).astype(jnp.float32),
    )
    return terms, between + within


@struct.dataclass
class MemberDiversityState(AdditiveState):
    """Streamed `member_diversity`; sums over examples."""

    sums: LongSum
    examples: jax.Array

    @classmethod
    def empty(cls) -> Self:  # pyrefly: ignore[bad-override]
        """No examples yet."""
        size = len(MemberDiversity._fields) + 1
        return cls(LongSum.zeros((size,)), jnp.zeros((), jnp.int32))

    def update(self, member_logits, labels, mask=None) -> Self:
        """Adds a batch `[M, B, C]` with labels `[B]`."""
        terms, variance = _terms_per_example(member_logits, labels)
        return self.plus(mask, jnp.stack([*terms, variance], axis=-1))

    def compute(self) -> MemberDiversity:
        """The numbers, float32; nan before the first valid example."""
        means = self.sums.value() / self.examples.astype(jnp.float32)[..., None]
        *means, total = jnp.moveaxis(means, -1, 0)
        found = MemberDiversity(*means)
        # All are sure of the same class where nothing varies: 0 of it is between them.
        share = found.variance_share / jnp.where(total == 0.0, 1.0, total)
        return found._replace(variance_share=share)


def member_diversity(
    member_logits: Logits, labels: Labels, mask: Mask | None = None
) -> MemberDiversity:
    """How far an ensemble's members differ, and what averaging them brings.

    Args:
        member_logits: `[M, N, C]` (or `[M, ..., C]`), M at least 2. Heads of one
            network with shared weights, or networks of their own.
        labels: `[N]` class ids.
        mask: `[N]` valid examples.

    Returns:
        `MemberDiversity` of float32 scalars, nan without a valid example:

        * `mean_kl`: over ordered pairs, nats, as `kl_prediction_difference`;
        * `disagreement`: share of examples that two members predict differently, mean
          over pairs, as `hamming_prediction_difference`;
        * `variance_share`: of the variance of the class that a member picked at random
          would draw, the part that lies between members, `sum_n mean_m |P_nm -
          Pbar_n|^2 / sum_n (1 - |Pbar_n|^2)`, in [0, 1]: 0 where members are equal, 1
          where every member is certain and members predict different classes;
        * `mean_member_nll` and `ensemble_nll`: of one member on average, and of the
          mean of their probabilities, nats. The ensemble's is never the larger one;
          equal members make them equal;
        * `mean_member_accuracy` and `ensemble_accuracy`: the same for accuracy.

    Raises:
        ValueError: fewer than two members, or labels or mask that do not fit.

    Notes:
        `variance_share` is ours. `MemberDiversityState` streams all of them.

    Example:
        >>> probs = jnp.array([[[0.75, 0.25]], [[0.25, 0.75]]])
        >>> found = member_diversity(jnp.log(probs), jnp.array([0]))
        >>> float(found.disagreement), f"{found.mean_kl:.4f}"
        (1.0, '0.5493')
        >>> f"{found.variance_share:.2f} {found.ensemble_nll:.4f}"  # .125 / .5, log 2
        '0.25 0.6931'

    References:
        [diversity] Sec. 5.2
    """
    state = MemberDiversityState.empty()
    return state.update(member_logits, labels, mask).compute()
