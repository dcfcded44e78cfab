"""Disagreement: churn, its smooth surrogate, by correctness, and per example."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from churn_jax._checks import (
    check_labels,
    check_logits,
    check_members,
    check_same_shape,
    known_number,
)
from churn_jax.divergences import log_probs, weighted
from churn_jax.metrics.pairs import STREAMING, PairMetric
from churn_jax.metrics.scoring import predicted, right
from churn_jax.metrics.state import (
    AdditiveState,
    MeanState,
    RateState,
    masked_mean,
    rate,
    ratio,
)
from churn_jax.typing import Labels, Logits, Mask, PerExample, Scalar


def _changed(logits_a: Any, logits_b: Any):
    """1 where predicted classes differ, nan at logits with nan; of classes or lists."""
    arrays = {"logits_a": _as_array(logits_a), "logits_b": _as_array(logits_b)}
    if all(map(_is_floating, arrays.values())):
        check_same_shape(**arrays)
    elif all(map(_is_one_hot, arrays.values())):
        raise ValueError(
            "logits_a and logits_b must be logits or predicted classes; got one-hot "
            f"rows of shape {arrays['logits_a'].shape}. Pass their argmax(axis=-1)"
        )
    a, b = (_classes(name, x) for name, x in arrays.items())
    check_same_shape(**{"classes of logits_a": a, "classes of logits_b": b})
    if (a.dtype.kind == "U") != (b.dtype.kind == "U"):
        raise TypeError(
            "logits_a and logits_b must both have the numbers of classes or both their "
            f"names; got {a.dtype} and {b.dtype}"
        )
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a != b  # exact, also for ids that int32 cannot hold
    for x in (a, b):
        if isinstance(x, np.ndarray) and np.any(x != x.astype(np.int32)):
            raise ValueError(
                "class ids that int32 cannot hold are compared by NumPy alone; give "
                "both sides as NumPy arrays, outside of jit"
            )
    a, b = (jnp.asarray(x).astype(jnp.int32) for x in (a, b))
    changed = (a != b).astype(jnp.float32)
    for logits, classes in zip(arrays.values(), (a, b)):
        if _is_floating(logits):
            changed = jnp.where(classes < 0, jnp.nan, changed)
    return changed


def _as_array(x: Any) -> Any:
    found = x if isinstance(x, jax.Array) else np.asarray(x)
    return found.astype(np.int32) if found.shape == (0,) else found  # of no examples


def _is_floating(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _is_one_hot(x: Any) -> bool:
    if isinstance(x, jax.core.Tracer) or x.dtype.kind not in "biu" or x.ndim < 2:
        return False
    ones = np.asarray(x) == 1
    rows = x.shape[-1] > 1 and x.size > 0 and np.all(np.sum(ones, axis=-1) == 1)
    return bool(rows and np.all(ones | (np.asarray(x) == 0)))


def _classes(name: str, x: Any) -> Any:
    """Predicted classes `[...]` of logits `[..., C]`; other arrays are classes."""
    if _is_floating(x):
        check_logits(**{name: x})
        # Inside `vmap` it is an example's logits; outside it may as well be N scores.
        if x.ndim == 1 and not isinstance(x, jax.core.Tracer):
            raise ValueError(
                f"{name} must be logits [..., N, C] or predicted classes [..., N]; got "
                f"shape {x.shape} of {x.dtype}. Pass classes as integers, one binary "
                "score z per example as binary_logits(z)"
            )
        return predicted(x)
    if x.dtype.kind in "biu":
        return x
    if x.dtype.kind in "UST" or (
        x.dtype.kind == "O" and all(isinstance(one, str) for one in x.flat)
    ):
        return x.astype(str)
    raise TypeError(
        f"{name} must be floating-point logits, or predicted classes as integers or "
        f"names; got {x.dtype}"
    )


def churn(
    logits_a: Logits | Labels | Sequence,
    logits_b: Logits | Labels | Sequence,
    mask: Mask | Sequence | None = None,
) -> Scalar:
    """Share of examples on which two models predict different classes.

    `Churn = P[argmax f(X; w_1) != argmax f(X; w_2)]`.

    Args:
        logits_a: `[..., C]`, one model (the paper's `w_1`), or its predicted classes
            `[...]`: arrays or lists of integers, bools or strings. Floating point is
            always logits, everything else always classes.
        logits_b: `[..., C]`, the other one (`w_2`), same examples in the same order; or
            its classes, also where `logits_a` are logits.
        mask: `[...]` valid examples.

    Returns:
        A float32 scalar in [0, 1], symmetric; nan without a valid example.

    Raises:
        ValueError: the logits or the classes differ in shape, or the mask from the
            examples; floating point has no axis of examples (outside of `jit` and
            `vmap`), both sides are one-hot integers or bools.
        TypeError: names of classes are compared with their numbers.

    Notes:
        A tie is resolved as `jnp.argmax` does, in favour of the lower class id. A valid
        example with NaN among its logits gives nan. Float64 logits of NumPy keep their
        digits, but under `jit` and in `pairwise` they are rounded to float32 first.
        Names of classes are compared by NumPy, so not under `jit`.

    Example:
        >>> old = jnp.array([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 1.0]])
        >>> new = jnp.array([[1.0, 0.0], [3.0, 2.0], [1.0, 0.0], [0.0, 1.0]])
        >>> float(churn(old, new)), float(churn([0, 1, 0, 1], [0, 0, 0, 1]))
        (0.25, 0.25)

    References:
        [reproducibility] Eq. 3
    """
    return ChurnState.empty().update(logits_a, logits_b, mask).compute()


def _max_normalized(logits: Logits, alpha) -> Logits:
    """`(f / max f)^alpha = exp(alpha (z - max z))`, `[..., C]` float32 in [0, 1]."""
    if not 0 < known_number(alpha, 1.0) < np.inf:
        raise ValueError(f"alpha must be positive and finite; got {alpha}")
    logits = jnp.asarray(logits).astype(jnp.float32)
    top = jnp.max(logits, axis=-1, keepdims=True)
    return jnp.exp(jnp.asarray(alpha, jnp.float32) * (logits - top))


def _surrogate(logits_a, logits_b, alpha):
    check_logits(logits_a=logits_a, logits_b=logits_b)
    scores_a, scores_b = (_max_normalized(z, alpha) for z in (logits_a, logits_b))
    # As in `divergences.l1`: no derivative where the scores are equal.
    difference = scores_a - scores_b
    distance = jnp.where(difference == 0.0, 0.0, jnp.abs(difference))
    return 0.5 * jnp.sum(distance, axis=-1)


def surrogate_churn(
    logits_a: Logits, logits_b: Logits, alpha: float = 1.0, mask: Mask | None = None
) -> Scalar:
    """Churn with scores in place of the arg max, SChurn_alpha.

    `1/2 E || (f_1 / max f_1)^alpha - (f_2 / max f_2)^alpha ||_1`.

    Args:
        logits_a, logits_b, mask: as in `churn`; errors as there, and for alpha.
        alpha: positive and finite; the sharpness of the scores. It tends to `churn` as
            alpha grows, where neither model has ties.

    Returns:
        A float32 scalar in [0, C/2], symmetric; nan without a valid example.

    Notes:
        Not bounded by one: the scores are divided by their maximum, not by their sum.

    Example:
        >>> a, b = jnp.array([[0.0, -1.0]]), jnp.array([[0.0, 0.0]])
        >>> f"{surrogate_churn(a, b):.4f}"  # (1 - exp(-1)) / 2
        '0.3161'

    References:
        [reproducibility] Eq. 4
    """
    return masked_mean(_surrogate(logits_a, logits_b, alpha), mask)


class ChurnByCorrectness(NamedTuple):
    """Churn on the examples that model `a` gets right, and on those it gets wrong."""

    correct: Scalar
    incorrect: Scalar


def churn_by_correctness(
    logits_a: Logits, logits_b: Logits, labels: Labels, mask: Mask | None = None
) -> ChurnByCorrectness:
    """Churn separately where model `a` is right and where it is wrong.

    `P[Y_a != Y_b | Y_a = Y]` and `P[Y_a != Y_b | Y_a != Y]`, so that
    `churn = acc_a * correct + (1 - acc_a) * incorrect`.

    Args:
        logits_a: `[..., C]`; this model's correctness makes the groups.
        logits_b: `[..., C]`.
        labels: `[...]` class ids; a valid example with another id gives nan.
        mask: `[...]` valid examples.

    Returns:
        `ChurnByCorrectness(correct, incorrect)`, float32 scalars. An empty group (a
        perfect model has no incorrect examples) counts as 0, which keeps the identity;
        without any valid example both are nan.

    Raises:
        ValueError: logits, labels or mask do not fit together.

    Example:
        >>> a = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> b = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> parts = churn_by_correctness(a, b, jnp.array([0, 0, 0]))
        >>> float(parts.correct), float(parts.incorrect)
        (0.5, 1.0)

    References:
        [reproducibility] Table 2
    """
    state = ChurnByCorrectnessState.empty()
    return state.update(logits_a, logits_b, labels, mask).compute()


@dataclasses.dataclass(frozen=True)
class _ChurnSums(PairMetric):
    """`churn` of logits."""

    def of_run(self, logits, labels):
        return predicted(logits)

    def compare(self, old, new):
        return old != new, old < 0, new < 0

    def finish(self, sums, examples):
        changed, *unusable = sums
        return rate(changed, sum(unusable), examples)


@dataclasses.dataclass(frozen=True)
class _SurrogateChurnSums(PairMetric):
    """`surrogate_churn`."""

    alpha: float = 1.0

    def of_run(self, logits, labels):
        return 0.5 * _max_normalized(logits, self.alpha)

    def compare(self, old, new):
        return jnp.abs(old - new)


@dataclasses.dataclass(frozen=True)
class _ChurnByCorrectnessSums(PairMetric):
    """`churn_by_correctness`: churn & right, churn & wrong, right."""

    needs_labels = True

    def of_run(self, logits, labels):
        return predicted(logits), *right(logits, labels)

    def compare(self, old, new):
        (before, was_right, bad), (after, _, worse) = old, new
        churned = before != after
        return churned & was_right, churned & ~was_right, was_right, bad, worse

    def finish(self, sums, examples) -> ChurnByCorrectness:
        churned_right, churned_wrong, correct, *unusable = sums
        examples = jnp.where(sum(unusable) > 0, 0, examples)

        def share(hits, group):
            return jnp.where(examples > 0, ratio(hits, jnp.maximum(group, 1)), jnp.nan)

        return ChurnByCorrectness(
            share(churned_right, correct), share(churned_wrong, examples - correct)
        )


STREAMING.update(
    {
        churn: _ChurnSums,
        surrogate_churn: _SurrogateChurnSums,
        churn_by_correctness: _ChurnByCorrectnessSums,
    }
)
ChurnState = RateState.of("ChurnState", churn, _changed)
SurrogateChurnState = MeanState.of("SurrogateChurnState", surrogate_churn, _surrogate)


@struct.dataclass
class ChurnByCorrectnessState(AdditiveState):
    """Streamed `churn_by_correctness`; int32 counts."""

    churned_correct: jax.Array
    churned_incorrect: jax.Array
    correct: jax.Array
    unusable: jax.Array
    examples: jax.Array

    def update(self, logits_a, logits_b, labels, mask=None) -> Self:
        """Adds a batch; arguments as in `churn_by_correctness`."""
        check_logits(logits_a=logits_a, logits_b=logits_b)
        check_labels(labels, logits_a, logits_name="logits_a")
        sums = _ChurnByCorrectnessSums()
        *terms, bad, worse = sums.terms(logits_a, logits_b, labels)
        return self.plus(mask, *terms, bad | worse)

    def compute(self) -> ChurnByCorrectness:
        """Both rates, float32."""
        *sums, examples = jax.tree.leaves(self)
        return _ChurnByCorrectnessSums().finish(sums, examples)


def ambiguity(logits: Logits) -> PerExample:
    """Share of pairs of runs that predict an example differently, per example.

    `1 - sum_c v_c (v_c - 1) / (R (R - 1))` with `v_c` of the R runs voting for class c:
    0 where all agree, 1 where no two do. Its mean over examples is the churn averaged
    over all pairs of runs, so it says which examples carry that churn.

    Args:
        logits: `[R, ..., C]` of at least two runs on the same examples.

    Returns:
        `[...]` float32 in [0, 1]. With two classes at most `R / (2 (R - 1))`, or
        `(R + 1) / (2 R)` for odd R.

    Raises:
        ValueError: there are fewer than two runs or two classes.

    Notes:
        Ours: the paper averages over examples at once. The name is that of predictive
        multiplicity, where an example is ambiguous if near-equal models disagree on it;
        here it is how often they do.

    Example:
        >>> runs = jnp.eye(2)[jnp.array([[0, 0], [0, 1], [0, 0]])]  # 3 runs, 2 examples
        >>> [round(float(a), 4) for a in ambiguity(runs)]
        [0.0, 0.6667]

    References:
        [reproducibility] Eq. 3
    """
    check_logits(logits=logits)
    check_members(logits, name="logits", axes="[R, ..., C]")
    return _share_of_pairs(predicted(logits))


@jax.jit  # a loop outside of a program is compiled again in every call
def _share_of_pairs(predictions):
    """Of ordered pairs of runs `[R, ...]` those that differ, per example."""
    runs = predictions.shape[0]
    # One run against all at a time: no [R, R, ...] and no [..., C] of votes.
    differ = jax.lax.map(
        lambda one: jnp.sum(one[None] != predictions, axis=0, dtype=jnp.int32),
        predictions,
    )
    ordered_pairs = jnp.sum(differ, axis=0).astype(jnp.float32)
    known = jnp.all(predictions >= 0, axis=0)
    return jnp.where(known, ordered_pairs / (runs * (runs - 1)), jnp.nan)


_UPDATES = 300  # of Blahut's and Arimoto's algorithm


def rashomon_capacity(logits: Logits) -> PerExample:
    """How many classes near-equal models spread an example over, per example.

    `exp max_p sum_r p_r KL(f_r || sum_s p_s f_s)` over weights p of the R models: the
    capacity of the channel from models to classes, as a number of classes. 1 where all
    predict the same probabilities, C where some model is sure of each class.

    Args:
        logits: `[R, ..., C]` of at least two models of like accuracy.

    Returns:
        `[...]` float32 in [1, min(R, C)], a lower bound: after 300 Blahut-Arimoto
        updates at most about 1 % too small.

    Raises:
        ValueError: there are fewer than two models or two classes.

    Notes:
        Unlike `ambiguity` it sees probabilities: models that waver about an example
        without ever changing its class count, too.

    Example:
        >>> models = jnp.log(jnp.array([[[0.9, 0.1]], [[0.1, 0.9]], [[0.5, 0.5]]]))
        >>> round(float(rashomon_capacity(models)[0]), 3)
        1.445

    References:
        [rashomon] Rashomon Capacity -- Hsu and Calmon, Rashomon Capacity: A Metric for
        Predictive Multiplicity in Classification, NeurIPS 2022.
        https://arxiv.org/abs/2206.01295
    """
    check_logits(logits=logits)
    check_members(logits, name="logits", axes="[R, ..., C]")
    # Finite, so that a class that all models rule out has the gradient 0.
    return _capacity(jnp.maximum(log_probs(logits), -1e30))


@jax.jit  # or its loop is compiled again in every call
def _capacity(log_f):
    """`rashomon_capacity` of log probabilities `[R, ..., C]`."""

    def divergences(log_p):
        mixture = jax.nn.logsumexp(log_p[..., None] + log_f, axis=0)  # [..., C]
        return jnp.sum(weighted(log_f, log_f - mixture[None]), axis=-1)  # [R, ...]

    def update(_, log_p):
        return jax.nn.log_softmax(log_p + divergences(log_p), axis=0)

    start = jnp.full(log_f.shape[:-1], -jnp.log(len(log_f)), jnp.float32)
    log_p = jax.lax.fori_loop(0, _UPDATES, update, start)
    nats = jnp.sum(jnp.exp(log_p) * divergences(log_p), axis=0)
    return jnp.exp(jnp.maximum(nats, 0.0))
