"""Model updates: what a new model breaks, repairs and keeps, example by example.

Only the arg max matters, so the two models may know different numbers of classes, as
long as class ids agree.
"""

import dataclasses
import functools
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from flax import struct

from churn_jax._checks import check_labels, check_logits
from churn_jax.metrics.pairs import STREAMING, PairMetric
from churn_jax.metrics.scoring import is_correct, predicted, right
from churn_jax.metrics.state import AdditiveState, ratio
from churn_jax.typing import Labels, Logits, Mask, PerExample, Scalar


class FlipRates(NamedTuple):
    """The rates of one model update; each is also a function of its own."""

    negative_flip_rate: Scalar
    positive_flip_rate: Scalar
    relative_negative_flip_rate: Scalar
    backward_trust_compatibility: Scalar
    backward_error_compatibility: Scalar


@dataclasses.dataclass(frozen=True)
class _FlipSums(PairMetric):
    """All of `FlipRates`, or one of them: counts of both right, old right, new right.

    A rate whose group is empty is 0 for relative negative flips (none was possible)
    and 1 for the compatibilities (nothing was broken).
    """

    rate: str = ""
    num_classes: int = 0  # at least so many have names, whatever one model knows
    needs_labels = True

    def of_run(self, logits, labels):
        return right(logits, labels, self.num_classes)

    def compare(self, old, new):
        (old, bad), (new, worse) = old, new
        return old & new, old, new, bad, worse

    def finish(self, sums, examples):
        # Integers, so that a small difference of large counts keeps its digits.
        both, old_right, new_right, *unusable = (jnp.asarray(x) for x in sums)
        examples = jnp.where(sum(unusable) > 0, 0, examples)
        negative, new_wrong = old_right - both, examples - new_right

        def share(part, group, when_empty):
            value = jnp.where(group > 0, ratio(part, group), when_empty)
            return jnp.where(examples > 0, value, jnp.nan)

        rates = FlipRates(
            negative_flip_rate=share(negative, examples, jnp.nan),
            positive_flip_rate=share(new_right - both, examples, jnp.nan),
            relative_negative_flip_rate=share(
                share(negative, old_right, 0.0), share(new_wrong, examples, 0.0), 0.0
            ),
            backward_trust_compatibility=share(both, old_right, 1.0),
            backward_error_compatibility=share(new_wrong - negative, new_wrong, 1.0),
        )
        return getattr(rates, self.rate) if self.rate else rates


@struct.dataclass
class FlipState(AdditiveState):
    """Streamed `flip_rates`; int32 counts of examples that a version gets right."""

    both: jax.Array
    old_right: jax.Array
    new_right: jax.Array
    unusable: jax.Array
    examples: jax.Array

    def update(self, *, old_logits, new_logits, labels, mask=None) -> Self:
        """Adds a batch; arguments as in `negative_flip_rate`."""
        check_logits(old_logits=old_logits)
        check_logits(new_logits=new_logits)
        check_labels(labels, old_logits, logits_name="old_logits")
        check_labels(labels, new_logits, logits_name="new_logits")
        classes = max(jnp.shape(z)[-1] for z in (old_logits, new_logits))
        sums = _FlipSums(num_classes=classes)
        *terms, bad, worse = sums.terms(old_logits, new_logits, labels)
        return self.plus(mask, *terms, bad | worse)

    def compute(self) -> FlipRates:
        """All rates; nan before the first valid example."""
        *sums, examples = jax.tree.leaves(self)
        return _FlipSums().finish(sums, examples)


def flip_rates(
    *, old_logits: Logits, new_logits: Logits, labels: Labels, mask: Mask | None = None
) -> FlipRates:
    """Every rate of an update at once, from one count of flips.

    The first three are `NFR`, its mirror image `PFR` and
    `NFR / ((1 - ER_old) ER_new)`.

    Args:
        old_logits: `[..., C_old]`, the model in use.
        new_logits: `[..., C_new]`, the model that is to replace it.
        labels: `[...]` class ids; nan with a valid example of neither model's classes.
        mask: `[...]` valid examples.

    Returns:
        `FlipRates` of float32 scalars; nan without a valid example.

    Raises:
        ValueError: labels or mask are not shaped like the examples of both models.

    Example:
        >>> old, new = jnp.eye(2)[jnp.array([[0, 1, 0, 1], [1, 0, 0, 1]])]
        >>> labels = jnp.array([0, 0, 0, 0])
        >>> rates = flip_rates(old_logits=old, new_logits=new, labels=labels)
        >>> float(rates.negative_flip_rate), float(rates.positive_flip_rate)
        (0.25, 0.25)

    References:
        [elodi] Eqs. 11, 12
    """
    return _rates(old_logits, new_logits, labels, mask)


def _rates(old, new, labels, mask) -> FlipRates:
    state = FlipState.empty()
    state = state.update(old_logits=old, new_logits=new, labels=labels, mask=mask)
    return state.compute()


def negative_flip_rate(
    *, old_logits: Logits, new_logits: Logits, labels: Labels, mask: Mask | None = None
) -> Scalar:
    """Share of all examples that the old model gets right and the new one wrong.

    `NFR = 1/N sum_i [yhat_new_i != l_i and yhat_old_i = l_i]`.

    Args:
        old_logits, new_logits, labels, mask: as in `flip_rates`; errors as there.

    Returns:
        A float32 scalar in [0, 1]; nan without a valid example.

    Example:
        >>> old, new = jnp.eye(2)[jnp.array([[0, 1, 0, 1], [1, 0, 0, 1]])]
        >>> labels = jnp.array([0, 0, 0, 0])
        >>> float(negative_flip_rate(old_logits=old, new_logits=new, labels=labels))
        0.25

    References:
        [elodi] Eq. 11
    """
    return _rates(old_logits, new_logits, labels, mask).negative_flip_rate


def positive_flip_rate(
    *, old_logits: Logits, new_logits: Logits, labels: Labels, mask: Mask | None = None
) -> Scalar:
    """Share of all examples that the old model gets wrong and the new one right.

    `PFR = 1/N sum_i [yhat_new_i = l_i and yhat_old_i != l_i]`. The accuracy gained by
    an update is `PFR - NFR`.

    Args:
        old_logits, new_logits, labels, mask: as in `flip_rates`; errors as there.

    Returns:
        A float32 scalar in [0, 1]; nan without a valid example.

    Notes:
        The mirror image of Eq. 11; the paper itself prints negative flips only.

    Example:
        >>> old, new = jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])
        >>> labels = jnp.array([1])
        >>> float(positive_flip_rate(old_logits=old, new_logits=new, labels=labels))
        1.0

    References:
        [elodi] Eq. 11
    """
    return _rates(old_logits, new_logits, labels, mask).positive_flip_rate


def relative_negative_flip_rate(
    *, old_logits: Logits, new_logits: Logits, labels: Labels, mask: Mask | None = None
) -> Scalar:
    """Negative flips against what independent errors would give.

    `Rel-NFR = NFR / ((1 - ER_old) ER_new)`.

    Args:
        old_logits, new_logits, labels, mask: as in `flip_rates`; errors as there.

    Returns:
        A float32 scalar, at least 0; 1 for independent errors. 0 when the old model
        is never right or the new one never wrong; nan without a valid example.

    Example:
        >>> old, new = jnp.eye(2)[jnp.array([[0, 1, 0, 1], [1, 0, 0, 1]])]
        >>> labels = jnp.array([0, 0, 0, 0])
        >>> rate = relative_negative_flip_rate(
        ...     old_logits=old, new_logits=new, labels=labels
        ... )
        >>> float(rate)  # 0.25 / (0.5 * 0.5)
        1.0

    References:
        [elodi] Eq. 12
    """
    return _rates(old_logits, new_logits, labels, mask).relative_negative_flip_rate


def backward_trust_compatibility(
    *, old_logits: Logits, new_logits: Logits, labels: Labels, mask: Mask | None = None
) -> Scalar:
    """Share of the old model's successes that the new model keeps.

    `BTC = sum_i [old right and new right] / sum_i [old right]`.

    Args:
        old_logits, new_logits, labels, mask: as in `flip_rates`; errors as there.

    Returns:
        A float32 scalar in [0, 1]; 1 when the old model is never right; nan without a
        valid example.

    Example:
        >>> old, new = jnp.eye(2)[jnp.array([[0, 0], [0, 1]])]
        >>> labels = jnp.array([0, 0])
        >>> rate = backward_trust_compatibility(
        ...     old_logits=old, new_logits=new, labels=labels
        ... )
        >>> float(rate)
        0.5

    References:
        [compatibility] BTC -- Bansal et al., A Case for Backward Compatibility for
        Human-AI Teams, 2019. https://arxiv.org/abs/1906.01148
    """
    return _rates(old_logits, new_logits, labels, mask).backward_trust_compatibility


def backward_error_compatibility(
    *, old_logits: Logits, new_logits: Logits, labels: Labels, mask: Mask | None = None
) -> Scalar:
    """Share of the new model's errors that the old model makes too.

    `BEC = sum_i [old wrong and new wrong] / sum_i [new wrong]`; one minus it is the
    share of errors that users have not met before.

    Args:
        old_logits, new_logits, labels, mask: as in `flip_rates`; errors as there.

    Returns:
        A float32 scalar in [0, 1]; 1 when the new model is never wrong; nan without a
        valid example.

    Notes:
        Divided by the new model's errors. The ratio over the *old* model's errors is
        another quantity: it punishes an update for repairing errors.

    Example:
        >>> old, new = jnp.eye(2)[jnp.array([[1, 0], [1, 1]])]
        >>> labels = jnp.array([0, 0])
        >>> rate = backward_error_compatibility(
        ...     old_logits=old, new_logits=new, labels=labels
        ... )
        >>> float(rate)
        0.5

    References:
        [backward-compatibility] BEC -- Srivastava et al., An Empirical Analysis of
        Backward Compatibility in Machine Learning Systems, KDD 2020.
        https://arxiv.org/abs/2008.04572
    """
    return _rates(old_logits, new_logits, labels, mask).backward_error_compatibility


def flip_rank(*, old_logits: Logits, new_logits: Logits, labels: Labels) -> PerExample:
    """Rank, in the old model, of the wrong class that a negative flip predicts.

    `Rank(psi_k(x), psi(x))` with `k = argmax phi(x)`, `phi` the new model and `psi`
    the old one. Small ranks mean that the old model nearly made the same error.

    Args:
        old_logits, new_logits, labels: as in `flip_rates`, with equal classes.

    Returns:
        `[...]` int32: the rank, from 2 (runner-up) to C, at negative flips; 0
        elsewhere, also where logits are NaN or the label is no class.

    Raises:
        ValueError: the logits differ in shape, or labels do not fit.

    Notes:
        Ties follow `jnp.argmax`: the lower class id ranks first.

    Example:
        >>> old = jnp.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
        >>> new = jnp.array([[0.0, 5.0, 0.0], [5.0, 0.0, 0.0]])
        >>> flip_rank(old_logits=old, new_logits=new, labels=jnp.array([0, 0])).tolist()
        [3, 0]

    References:
        [elodi] Fig. 4
    """
    check_logits(old_logits=old_logits, new_logits=new_logits)
    before, after = (is_correct(z, labels) for z in (old_logits, new_logits))
    negative = (before == 1.0) & (after == 0.0)
    old_logits = jnp.asarray(old_logits)
    wrong = predicted(new_logits)[..., None]
    score = jnp.take_along_axis(old_logits, wrong, axis=-1)
    classes = jnp.arange(old_logits.shape[-1], dtype=jnp.int32)
    classes = classes.reshape((1,) * (old_logits.ndim - 1) + (-1,))
    ahead = (old_logits > score) | ((old_logits == score) & (classes < wrong))
    rank = 1 + jnp.sum(ahead, axis=-1, dtype=jnp.int32)
    return jnp.where(negative, rank, 0)


STREAMING[flip_rates] = _FlipSums
for _rate in (
    negative_flip_rate,
    positive_flip_rate,
    relative_negative_flip_rate,
    backward_trust_compatibility,
    backward_error_compatibility,
):
    STREAMING[_rate] = functools.partial(_FlipSums, _rate.__name__)
