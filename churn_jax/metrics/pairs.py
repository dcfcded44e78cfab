"""A metric for every pair of runs, in bounded memory, and its honest summary.

How `pairwise` knows that a metric streams: `STREAMING` maps metric functions to
`PairMetric` classes, which say what one block of examples contributes to all pairs at
once and how the sums become the number. To add one, subclass `PairMetric` and pass an
instance to `pairwise`, or put the class into `STREAMING` under its function.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from churn_jax._checks import check_labels, check_logits, check_mask
from churn_jax.divergences import log_probs
from churn_jax.metrics import flips
from churn_jax.metrics.churn import (
    churn,
    churn_by_correctness,
    max_normalized,
    split_by_correctness,
    surrogate_churn,
)
from churn_jax.metrics.confidence import (
    churn_bound_from_confidence,
    churn_bound_from_confidence_sum,
    churn_bound_from_errors,
    l1_distance,
    prediction_confidence,
)
from churn_jax.metrics.state import LongSum
from churn_jax.typing import Array, Labels, Logits, Mask, Scalar

__all__ = ["PairMetric", "PairSummary", "pairwise", "summarize_pairs"]


@dataclasses.dataclass(frozen=True)
class PairMetric:
    """What one block of examples adds to every pair `(a, b)` of runs.

    Subclasses are frozen dataclasses, compared by value, so that a compiled `pairwise`
    is found again; fields are static settings.
    """

    needs_labels = False

    def block(self, logits: Logits, labels: Labels | None, mask: Mask) -> Any:
        """Sums over one block: any tree of arrays.

        Args:
            logits: `[R, B, C]` in the caller's dtype.
            labels: `[B]`, or None.
            mask: `[B]` bool; examples outside it must add nothing.

        Returns:
            Integers are added up as int32, floats as `LongSum`.
        """
        raise TypeError(f"{type(self).__name__} does not define block")

    def finish(self, sums: Any, examples: Scalar) -> Any:
        """The `[R, R]` result (or a tree of them) from the summed blocks.

        Args:
            sums: the tree of `block`, summed over all examples.
            examples: number of valid examples, int32.
        """
        return jax.tree.map(lambda s: _share(s, examples), sums)


def _share(part, whole):
    return part.astype(jnp.float32) / whole.astype(jnp.float32)


def _rows(compare: Callable, x: Array) -> Array:
    """`[R, R]` from `compare(x [R, ...], row [1, ...]) -> [R]`, one row at a time."""
    return jax.lax.map(lambda row: compare(row[None], x), x)


def _absolute_differences(scores, mask):
    """`sum_n sum_c |a - b|` for all pairs of `scores [R, B, C]`; `[R, R]`.

    Masked rows are zero for every run, so they cancel. Each row of pairs reads the
    block once more; the block is small enough to stay in cache.
    """
    flat = jnp.where(mask[None, :, None], scores, 0.0).reshape(scores.shape[0], -1)
    return _rows(lambda a, b: jnp.sum(jnp.abs(a - b), axis=-1), flat)


def _predictions(logits):
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def _count_pairs(compare, x, mask):
    """Number of valid examples where `compare(x_a, x_b)` holds, int32 `[R, R]`."""
    return _rows(
        lambda a, b: jnp.sum(compare(a, b) & mask[None], axis=-1, dtype=jnp.int32), x
    )


@dataclasses.dataclass(frozen=True)
class _Churn(PairMetric):
    def block(self, logits, labels, mask):
        return _count_pairs(lambda a, b: a != b, _predictions(logits), mask)


@dataclasses.dataclass(frozen=True)
class _SurrogateChurn(PairMetric):
    alpha: float = 1.0

    def block(self, logits, labels, mask):
        scores = max_normalized(logits, self.alpha)
        return 0.5 * _absolute_differences(scores, mask)


@dataclasses.dataclass(frozen=True)
class _L1Distance(PairMetric):
    def block(self, logits, labels, mask):
        return _absolute_differences(jnp.exp(log_probs(logits)), mask)


@dataclasses.dataclass(frozen=True)
class _ErrorBound(PairMetric):
    needs_labels = True

    def block(self, logits, labels, mask):
        wrong = (_predictions(logits) != labels.astype(jnp.int32)[None]) & mask[None]
        return jnp.sum(wrong, axis=-1, dtype=jnp.int32)

    def finish(self, sums, examples):
        errors = _share(sums, examples)
        return errors[:, None] + errors[None, :]


@dataclasses.dataclass(frozen=True)
class _ConfidenceBound(PairMetric):
    """`P[D_L1 > min gamma]`, or with `total` the sharper `P[D_L1 >= sum gamma]`."""

    total: bool = False

    def block(self, logits, labels, mask):
        probs = jnp.exp(log_probs(logits))
        each = (probs, prediction_confidence(logits), _predictions(logits))

        def against_all(one):
            (p, gamma, predicted), (q, other, others) = one, each
            distance = jnp.sum(jnp.abs(q - p[None]), axis=-1)
            if self.total:
                event = distance >= gamma[None] + other
            else:
                event = distance > jnp.minimum(gamma[None], other)
            event = (event | (predicted[None] != others)) & mask[None]
            return jnp.sum(event, axis=-1, dtype=jnp.int32)

        return jax.lax.map(against_all, each)


@dataclasses.dataclass(frozen=True)
class _ChurnByCorrectness(PairMetric):
    needs_labels = True

    def block(self, logits, labels, mask):
        predictions = _predictions(logits)
        right = labels.astype(jnp.int32)[None]
        correct = jnp.sum((predictions == right) & mask[None], axis=-1, dtype=jnp.int32)
        return (
            _count_pairs(lambda a, b: (a != b) & (a == right), predictions, mask),
            _count_pairs(lambda a, b: (a != b) & (a != right), predictions, mask),
            jnp.broadcast_to(correct[:, None], (correct.shape[0],) * 2),
        )

    def finish(self, sums, examples):
        churned_right, churned_wrong, right = sums
        return split_by_correctness(churned_right, churned_wrong, right, examples)


@dataclasses.dataclass(frozen=True)
class _Flips(PairMetric):
    """One of `FlipRates`; rows are the old run, columns the new one."""

    rate: str
    needs_labels = True

    def block(self, logits, labels, mask):
        right = _predictions(logits) == labels.astype(jnp.int32)[None]
        return (
            _count_pairs(lambda a, b: a & ~b, right, mask),
            _count_pairs(lambda a, b: ~a & b, right, mask),
            _count_pairs(lambda a, b: a & b, right, mask),
        )

    def finish(self, sums, examples):
        negative, positive, both = sums
        examples = jnp.broadcast_to(examples, both.shape)
        state = flips.FlipState(negative, positive, both, examples)
        return getattr(state.compute(), self.rate)


STREAMING: dict[Callable, Callable[..., PairMetric]] = {
    churn: _Churn,
    surrogate_churn: _SurrogateChurn,
    churn_by_correctness: _ChurnByCorrectness,
    l1_distance: _L1Distance,
    churn_bound_from_errors: _ErrorBound,
    churn_bound_from_confidence: _ConfidenceBound,
    churn_bound_from_confidence_sum: functools.partial(_ConfidenceBound, total=True),
    **{
        getattr(flips, name): functools.partial(_Flips, name)
        for name in flips.FlipRates._fields
    },
}
"""Metric function -> constructor of its `PairMetric`; takes the metric's settings."""


def _streaming(metric) -> PairMetric | None:
    """The block form of a metric, or None when it has none."""
    if isinstance(metric, PairMetric):
        return metric
    if isinstance(metric, functools.partial) and not metric.args:
        make = STREAMING.get(metric.func)
        return make(**metric.keywords) if make else None
    make = STREAMING.get(metric)
    return make() if make else None


def pairwise(
    metric: Callable | PairMetric,
    logits: Logits,
    labels: Labels | None = None,
    mask: Mask | None = None,
    *,
    block_bytes: int = 4 * 2**20,
) -> Array:
    """`metric` for every ordered pair of R runs, `matrix[a, b] = metric(a, b)`.

    Three kinds of metric:

    * `churn`, `surrogate_churn`, `churn_by_correctness`, `l1_distance` (its mean), the
      bounds on churn and the flip and compatibility rates (row: old run, column: new
      run) stream over blocks of examples and never hold more than `block_bytes` of
      float32 scores.
      Settings are bound by name: `functools.partial(surrogate_churn, alpha=4.0)`.
    * a `PairMetric` of your own, in the same way.
    * any other function of two models, `f(logits_a, logits_b)` or, when labels are
      given, `f(logits_a, logits_b, labels)`, with `mask=` when a mask is given. It is
      called on all examples of one pair after another, so it need not be a mean; it
      must be traceable by JAX and return a scalar or a tree of scalars.

    Args:
        metric: see above.
        logits: `[R, N, C]`, the same N examples in the same order for every run.
        labels: `[N]` class ids, for metrics that need them.
        mask: `[N]` valid examples.
        block_bytes: memory for the scores of one block, in bytes. The default stays
            in a CPU's cache.

    Returns:
        `[R, R]` float32, or the metric's tuple of such matrices. The diagonal holds
        `metric(a, a)`; `summarize_pairs` ignores it.

    Raises:
        ValueError: shapes do not fit, labels are missing, or the metric returns one
            value per example.

    Example:
        >>> import jax.numpy as jnp
        >>> from churn_jax.metrics import churn
        >>> runs = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])
        >>> pairwise(churn, runs).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]

    References:
        [reproducibility] Table 2 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """
    check_logits(logits=logits)
    shape = tuple(jnp.shape(logits))
    if len(shape) != 3:
        raise ValueError(f"logits must be [R, N, C]; got shape {shape}")
    logits = jnp.asarray(logits)
    check_mask(mask, shape[1:2])
    if labels is not None:
        check_labels(labels, logits[0], logits_name="logits of one run")
        labels = jnp.asarray(labels)
    streaming = _streaming(metric)
    if streaming is None:
        return _every_pair(metric, logits, labels, mask)
    if streaming.needs_labels and labels is None:
        raise ValueError(f"{metric} needs labels [N]; pass pairwise(..., labels=)")
    if mask is not None:
        mask = jnp.asarray(mask).astype(jnp.bool_)
    size = max(1, min(shape[1], block_bytes // (4 * shape[0] * shape[2])))
    return _stream(streaming, size, logits, labels, mask)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _stream(metric, size, logits, labels, mask):
    """Adds up `metric.block` over blocks of `size` examples."""
    N = logits.shape[1]
    if N == 0:
        return metric.finish(
            metric.block(logits, labels, jnp.ones(0, jnp.bool_)), jnp.int32(0)
        )

    def one_block(i):
        # The last block starts early so that it is full; what it repeats is masked.
        start = jnp.minimum(i * size, N - size)

        def cut(x, axis):
            return jax.lax.dynamic_slice_in_dim(x, start, size, axis)

        valid = start + jnp.arange(size, dtype=jnp.int32) >= i * size
        if mask is not None:
            valid = valid & cut(mask, 0)
        block_labels = None if labels is None else cut(labels, 0)
        sums = metric.block(cut(logits, 1), block_labels, valid)
        return sums, jnp.sum(valid, dtype=jnp.int32)

    def start_sum(x):
        if jnp.issubdtype(x.dtype, jnp.floating):
            return LongSum.zeros(x.shape)
        return jnp.zeros(x.shape, jnp.int32)

    def is_long(x):
        return isinstance(x, LongSum)

    def step(i, total):
        return jax.tree.map(
            lambda t, x: t.add(x) if is_long(t) else t + x,
            total,
            one_block(i),
            is_leaf=is_long,
        )

    zero = jax.tree.map(start_sum, jax.eval_shape(one_block, jnp.int32(0)))
    sums, examples = jax.lax.fori_loop(
        jnp.int32(0), jnp.int32(-(-N // size)), step, zero
    )
    sums = jax.tree.map(lambda t: t.value() if is_long(t) else t, sums, is_leaf=is_long)
    return metric.finish(sums, examples)


@functools.partial(jax.jit, static_argnums=0)
def _every_pair(metric, logits, labels, mask):
    """Any function of two models, one pair at a time."""
    R = logits.shape[0]
    extra = () if labels is None else (labels,)
    masked = {} if mask is None else {"mask": mask}

    def one(pair):
        value = metric(logits[pair // R], logits[pair % R], *extra, **masked)
        for leaf in jax.tree.leaves(value):
            if jnp.ndim(leaf):
                raise ValueError(
                    "a metric for pairwise must return scalars; got shape "
                    f"{jnp.shape(leaf)} for logits of one run {logits.shape[1:]}: "
                    "reduce over examples"
                )
        return value

    values = jax.lax.map(one, jnp.arange(R * R, dtype=jnp.int32))
    return jax.tree.map(lambda v: v.reshape(R, R), values)


class PairSummary(NamedTuple):
    """All pairs of runs in three numbers.

    `mean`: over pairs of different runs. `std`: spread over those pairs. `stderr`:
    standard error of the mean, by leaving one run out at a time. `num_runs`: R.
    """

    mean: Scalar
    std: Scalar
    stderr: Scalar
    num_runs: int


def summarize_pairs(matrix: Array) -> PairSummary:
    """Mean over pairs of runs with a jackknife standard error over runs.

    With `m_r` the mean over the pairs that do not contain run r and `m` the mean of
    the `m_r`, `stderr = sqrt((R - 1)/R sum_r (m_r - m)^2)`. Pairs share runs, so the
    usual `std / sqrt(pairs)` would claim far too much.

    Args:
        matrix: `[R, R]`, from `pairwise`; need not be symmetric. The diagonal is
            ignored.

    Returns:
        `PairSummary(mean, std, stderr, num_runs)`, float32. `std` divides by the
        number of pairs, so that ordered and unordered pairs give the same. `stderr` is
        nan for two runs, of which there is one pair.

    Raises:
        ValueError: not a square matrix of at least two runs.

    Example:
        >>> import jax.numpy as jnp
        >>> matrix = jnp.array([[0.0, 0.1, 0.2], [0.1, 0.0, 0.3], [0.2, 0.3, 0.0]])
        >>> summary = summarize_pairs(matrix)
        >>> f"{summary.mean:.3f} {summary.std:.3f} {summary.stderr:.3f}"
        '0.200 0.082 0.115'

    References:
        [reproducibility] Table 2 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """
    shape = tuple(jnp.shape(matrix))
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
        raise ValueError(
            f"matrix must be [R, R] with at least two runs; got shape {shape}"
        )
    R = shape[0]
    matrix = jnp.asarray(matrix).astype(jnp.float32)
    pair = ~jnp.eye(R, dtype=jnp.bool_)
    count = R * (R - 1)
    mean = jnp.sum(jnp.where(pair, matrix, 0.0)) / count
    centred = jnp.where(pair, matrix - mean, 0.0)
    std = jnp.sqrt(jnp.sum(jnp.square(centred)) / count)
    if R == 2:
        return PairSummary(mean, std, jnp.asarray(jnp.nan, jnp.float32), R)
    with_run = jnp.sum(centred, axis=0) + jnp.sum(centred, axis=1)
    left_out = (jnp.sum(centred) - with_run) / ((R - 1) * (R - 2))
    spread = jnp.sum(jnp.square(left_out - jnp.mean(left_out)))
    return PairSummary(mean, std, jnp.sqrt((R - 1) / R * spread), R)
