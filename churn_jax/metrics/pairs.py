"""A metric for every pair of runs in bounded memory, its summary, and leaving one out.

How `pairwise` knows that a metric streams, and how to add one, is in `pair_metrics`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from churn_jax._checks import check_labels, check_logits, check_mask
from churn_jax.metrics.pair_metrics import PairMetric, streaming
from churn_jax.metrics.state import LongSum
from churn_jax.typing import Array, Labels, Logits, Mask, Scalar


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
    in_blocks = streaming(metric)
    if in_blocks is None:
        return _every_pair(metric, logits, labels, mask)
    if in_blocks.needs_labels and labels is None:
        raise ValueError(f"{metric} needs labels [N]; pass pairwise(..., labels=)")
    if mask is not None:
        mask = jnp.asarray(mask).astype(jnp.bool_)
    size = max(1, min(shape[1], block_bytes // (4 * shape[0] * shape[2])))
    return _stream(in_blocks, size, logits, labels, mask)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _stream(metric, size, logits, labels, mask):
    """Adds up `metric.block` over blocks of `size` examples."""

    def block(cut, valid):
        block_labels = None if labels is None else cut(labels, 0)
        return metric.block(cut(logits, 1), block_labels, valid), valid

    return metric.finish(*sum_blocks(block, size, logits.shape[1], mask))


def sum_blocks(
    block: Callable, size: int, examples: int, mask: Mask | None
) -> tuple[Any, Scalar]:
    """Adds up `block(cut, valid) -> (sums, counted)` over blocks of `size` examples."""
    # `cut(x, axis)` are the examples of the block, `valid [size]` those that count;
    # `counted [size]` may be fewer. Sums are any tree: integers are added up as int32,
    # floats as `LongSum`. Returned are the sums and the number of counted examples.
    if examples == 0:
        sums, _ = block(lambda x, axis: x, jnp.ones(0, jnp.bool_))
        return sums, jnp.int32(0)

    def one_block(i):
        # The last block starts early so that it is full; what it repeats is masked.
        start = jnp.minimum(i * size, examples - size)

        def cut(x, axis):
            return jax.lax.dynamic_slice_in_dim(x, start, size, axis)

        valid = start + jnp.arange(size, dtype=jnp.int32) >= i * size
        if mask is not None:
            valid = valid & cut(mask, 0)
        sums, counted = block(cut, valid)
        return sums, jnp.sum(counted, dtype=jnp.int32)

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
    sums, counted = jax.lax.fori_loop(
        jnp.int32(0), jnp.int32(-(-examples // size)), step, zero
    )
    sums = jax.tree.map(lambda t: t.value() if is_long(t) else t, sums, is_leaf=is_long)
    return sums, counted


@functools.partial(jax.jit, static_argnums=0)
def _every_pair(metric, logits, labels, mask):
    """Any function of two models, one pair at a time."""
    R = logits.shape[0]
    extra = () if labels is None else (labels,)
    masked = {} if mask is None else {"mask": mask}

    def one(pair):
        value = metric(logits[pair // R], logits[pair % R], *extra, **masked)
        check_scalars(value, logits.shape[1:], "pairwise")
        return value

    values = jax.lax.map(one, jnp.arange(R * R, dtype=jnp.int32))
    return jax.tree.map(lambda v: v.reshape(R, R), values)


def check_scalars(value: Any, shape: tuple[int, ...], where: str) -> None:
    """Refuses a metric that returns one number per example."""
    for leaf in jax.tree.leaves(value):
        if jnp.ndim(leaf):
            raise ValueError(
                f"a metric for {where} must return scalars; got shape "
                f"{jnp.shape(leaf)} for logits of one run {shape}: reduce over examples"
            )


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


def leave_one_model_out(metric: Callable, logits: Array, **inputs: Any) -> Any:
    """`metric(logits without model m, **inputs)` for every m.

    With `t_m` these values and `t` their mean, `sqrt((M - 1) / M sum_m (t_m - t)^2)` is
    the jackknife standard error of `metric(logits)` over models.

    Args:
        metric: a function of M - 1 models that JAX can trace, such as
            `prediction_difference` or `functools.partial(prediction_difference,
            order=2)`. It may return a tree, a State among them: then the result is a
            stack of States, whose `merge` and `compute` work on all M at once.
        logits: `[M, ...]`, M at least 3; or scores.
        **inputs: what else the metric takes, by name; the same for every model.

    Returns:
        The metric's result with a leading axis `M`; `[M]` for a scalar.

    Raises:
        ValueError: fewer than three models, of which one less is not a set to compare.

    Notes:
        One model after another, so memory is that of one call and one copy of the
        logits. Works under `jit`. A subset of models is plain indexing,
        `metric(logits[[0, 2, 3]])`.

    Example:
        >>> import jax.numpy as jnp
        >>> from churn_jax.metrics import hamming_prediction_difference
        >>> models = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])
        >>> leave_one_model_out(hamming_prediction_difference, models).tolist()
        [1.0, 0.0, 1.0]

    References:
        [anti-distillation] Sec. 3 -- Shamir and Coviello, Anti-Distillation: Improving
        Reproducibility of Deep Networks, 2020. https://arxiv.org/abs/2010.09923
    """
    logits = jnp.asarray(logits)
    M = logits.shape[0] if logits.ndim else 0
    if M < 3:
        raise ValueError(
            "leaving one model out needs at least three on the first axis; got shape "
            f"{tuple(logits.shape)}"
        )

    def without(m):
        others = jnp.arange(M - 1, dtype=jnp.int32)
        others = others + (others >= m).astype(jnp.int32)
        return metric(jnp.take(logits, others, axis=0), **inputs)

    return jax.lax.map(without, jnp.arange(M, dtype=jnp.int32))
