"""Means over pairs of runs with standard errors over runs; leaving one model out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from churn_jax.typing import Array, Scalar


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
        >>> matrix = jnp.array([[0.0, 0.1, 0.2], [0.1, 0.0, 0.3], [0.2, 0.3, 0.0]])
        >>> summary = summarize_pairs(matrix)
        >>> f"{summary.mean:.3f} {summary.std:.3f} {summary.stderr:.3f}"
        '0.200 0.082 0.115'

    References:
        [reproducibility] Table 2
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


class CrossSummary(NamedTuple):
    """All old x new pairs of an update in three numbers.

    `mean`: over all pairs. `std`: spread over the pairs. `stderr`: standard error of
    the mean, by leaving out one old run, and one new run, at a time. `num_old`,
    `num_new`: runs on either side.
    """

    mean: Scalar
    std: Scalar
    stderr: Scalar
    num_old: int
    num_new: int


def summarize_cross(matrix: Array) -> CrossSummary:
    """Mean over old x new pairs with a two-way jackknife standard error.

    With `m_i` the mean of row i, `c_j` that of column j, `m` that of all and
    `e_ij = x_ij - m_i - c_j + m`:

        V_old = sum_i (m_i - m)^2 / (R1 (R1 - 1))         leave one old run out
        V_new = sum_j (c_j - m)^2 / (R2 (R2 - 1))         leave one new run out
        V_pair = sum_ij e_ij^2 / (R1 R2 (R1 - 1) (R2 - 1))
        stderr^2 = max(V_old + V_new - V_pair, (V_old + V_new) / 2)

    Both jackknife variances contain that of single pairs, once too often; `V_pair`
    estimates it. Where there is no other variance, half of the sum is right.

    Args:
        matrix: `[R1, R2]`, from `cross_pairs`: old runs in rows, new ones in columns.

    Returns:
        `CrossSummary(mean, std, stderr, num_old, num_new)`, float32. `std` divides by
        the number of pairs. With one run on a side `stderr` is that of the other side
        alone, given that run; nan with one run on both.

    Raises:
        ValueError: not a matrix with runs on both sides.

    Notes:
        Pairs share runs, so the usual `std / sqrt(pairs)` would claim far too much.

    Example:
        >>> summary = summarize_cross(jnp.array([[0.1, 0.2], [0.3, 0.4], [0.2, 0.3]]))
        >>> f"{summary.mean:.3f} {summary.std:.3f} {summary.stderr:.4f}"
        '0.250 0.096 0.0764'

    References:
        [elodi] Eq. 11
    """
    shape = tuple(jnp.shape(matrix))
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"matrix must be [R1, R2] with runs on both sides; got shape {shape}"
        )
    R1, R2 = shape
    matrix = jnp.asarray(matrix).astype(jnp.float32)
    mean = jnp.mean(matrix)
    centred = matrix - mean
    old_means, new_means = jnp.mean(centred, axis=1), jnp.mean(centred, axis=0)
    std = jnp.sqrt(jnp.mean(jnp.square(centred)))
    v_old = jnp.sum(jnp.square(old_means)) / max(R1 * (R1 - 1), 1)
    v_new = jnp.sum(jnp.square(new_means)) / max(R2 * (R2 - 1), 1)
    if R1 > 1 and R2 > 1:
        interaction = centred - old_means[:, None] - new_means[None, :]
        v_pair = jnp.sum(jnp.square(interaction)) / (R1 * R2 * (R1 - 1) * (R2 - 1))
        variance = jnp.maximum(v_old + v_new - v_pair, (v_old + v_new) / 2)
    elif R1 * R2 > 1:
        variance = v_old + v_new  # the side with one run has no deviation
    else:
        variance = jnp.asarray(jnp.nan, jnp.float32)
    return CrossSummary(mean, std, jnp.sqrt(variance), R1, R2)


def summarize_paired(matrix: Array) -> PairSummary:
    """Mean and standard error over the pairs (r, r), for targeted updates.

    Where new run r was trained against old run r, only that pair is the update; pairs
    of it with other old runs are not. The pairs share no run, so
    `stderr^2 = sum_r (x_rr - mean)^2 / (R (R - 1))`.

    Args:
        matrix: `[R, R]`, from `cross_pairs`; only the diagonal is read.

    Returns:
        `PairSummary(mean, std, stderr, num_runs)`, float32. `std` divides by the number
        of pairs; `stderr` is nan for one run.

    Raises:
        ValueError: not a square matrix.

    Example:
        >>> summary = summarize_paired(jnp.array([[0.1, 0.9], [0.9, 0.3]]))
        >>> f"{summary.mean:.2f} {summary.stderr:.2f} {summary.num_runs}"
        '0.20 0.10 2'

    References:
        [elodi] Table 1
    """
    shape = tuple(jnp.shape(matrix))
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise ValueError(
            "matrix must be [R, R], new run r against old run r on its diagonal; got "
            f"shape {shape}"
        )
    R = shape[0]
    values = jnp.diagonal(jnp.asarray(matrix).astype(jnp.float32))
    mean = jnp.mean(values)
    squares = jnp.sum(jnp.square(values - mean))
    variance = squares / (R * (R - 1)) if R > 1 else jnp.asarray(jnp.nan, jnp.float32)
    return PairSummary(mean, jnp.sqrt(squares / R), jnp.sqrt(variance), R)


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
        >>> from churn_jax.metrics import hamming_prediction_difference
        >>> models = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])
        >>> leave_one_model_out(hamming_prediction_difference, models).tolist()
        [1.0, 0.0, 1.0]

    References:
        [anti-distillation] Sec. 3
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
