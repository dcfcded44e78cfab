"""How different the members of one ensemble are, and what averaging them brings.

Members that share weights may turn out nearly identical although there are several:
these are the numbers to look at first. `diversity_by_confidence` says among which
examples the differences lie.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from flax import struct

from churn_jax._checks import check_labels, check_logits, check_members
from churn_jax.divergences import log_probs
from churn_jax.metrics.churn import ambiguity
from churn_jax.metrics.prediction_difference import from_mean, log_mean_probs
from churn_jax.metrics.prediction_divergence import pairwise_kl
from churn_jax.metrics.scoring import example_nll, is_correct
from churn_jax.metrics.state import AdditiveState, LongSum
from churn_jax.typing import Array, Labels, Logits, Mask, Scalar


class MemberDiversity(NamedTuple):
    """Differences between an ensemble's members, and what averaging them gains."""

    mean_kl: Scalar
    disagreement: Scalar
    variance_share: Scalar
    mean_member_nll: Scalar
    ensemble_nll: Scalar
    mean_member_accuracy: Scalar
    ensemble_accuracy: Scalar


def _of_examples(member_logits, labels) -> tuple[MemberDiversity, Array]:
    """The terms per example; the share is of the variance that is returned too."""
    member_logits, labels = jnp.asarray(member_logits), jnp.asarray(labels)
    check_logits(member_logits=member_logits)
    check_members(member_logits, name="member_logits")
    check_labels(labels, member_logits[0], logits_name="logits of one member")
    log_p = log_probs(member_logits)
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
    def empty(cls) -> Self:
        """No examples yet."""
        size = len(MemberDiversity._fields) + 1
        return cls(LongSum.zeros((size,)), jnp.zeros((), jnp.int32))

    def update(self, member_logits, labels, mask=None) -> Self:
        """Adds a batch `[M, B, C]` with labels `[B]`."""
        terms, variance = _of_examples(member_logits, labels)
        return self.plus(mask, jnp.stack([*terms, variance], axis=-1))

    def compute(self) -> MemberDiversity:
        """The numbers, float32; nan before the first valid example."""
        *means, total = self.sums.value() / self.examples.astype(jnp.float32)
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
          where each is certain and all that is unsure is which of them to ask;
        * `mean_member_nll` and `ensemble_nll`: of one member on average, and of the
          mean of their probabilities, nats. The ensemble's is never the larger one;
          equal members make them equal;
        * `mean_member_accuracy` and `ensemble_accuracy`: the same for accuracy.

    Raises:
        ValueError: fewer than two members, or labels or mask that do not fit.

    Notes:
        `variance_share` is ours. `MemberDiversityState` streams all of them.

    Example:
        >>> import jax.numpy as jnp
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
