"""A metric for every old run against every new run: model updates, averaged over pairs.

One old and one new model are one draw of each; retraining either changes every number
that compares them. So an update is measured over all pairs of an old and a new run. The
two versions may know different classes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from churn_compare.class_sets import UNKNOWN_LOGIT, known_classes
from churn_jax._checks import check_labels, check_logits, check_mask
from churn_jax.metrics.pair_metrics import CrossMetric, PairMetric, streaming
from churn_jax.metrics.pairs import PairSummary, check_scalars, sum_blocks
from churn_jax.typing import Array, Labels, Logits, Mask, Scalar

EXAMPLES = ("all", "known")


class _Classes(NamedTuple):
    """Two class sets on one axis; hashable, so that compiled programs are reused."""

    # Column of every class of the union on that side, or -1; empty where equal.
    old: tuple[int, ...]
    new: tuple[int, ...]
    ids: tuple[int, ...]  # of the union, ascending; empty for 0, 1, ...
    known: bool  # whether only examples count whose class the old model knows


def cross_pairs(
    metric: Callable | PairMetric,
    old: Logits,
    new: Logits,
    labels: Labels | None = None,
    mask: Mask | None = None,
    *,
    old_classes: Sequence[int] | None = None,
    new_classes: Sequence[int] | None = None,
    examples: str = "all",
    block_bytes: int = 4 * 2**20,
) -> Array:
    """`metric` of every update, `matrix[i, j] = metric(old run i, new run j)`.

    The three kinds of metric are those of `pairwise`:

    * functions with a streaming form (churn, surrogate churn, L1 distance, the bounds
      on churn, flip and compatibility rates) go over blocks of examples, each with at
      most `block_bytes` of float32 scores. Only the arg max of each run is kept where
      nothing else matters.
    * a `CrossMetric` of your own, in the same way; also a `PairMetric`, which then
      compares both sets of runs together, at up to four times the work.
    * any other function of two models, `f(old, new)` or, when labels are given,
      `f(old, new, labels)`, with `mask=` where a mask is given or `examples` is
      "known". It is called on one pair of runs `[N, C]` after another; it must be
      traceable by JAX and return a scalar or a tree of scalars.

    Args:
        metric: see above.
        old: `[R1, N, C1]`, runs of the model in use.
        new: `[R2, N, C2]`, runs of the model that is to replace it, on the same N
            examples in the same order.
        labels: `[N]` class ids, for metrics that need them and for "known".
        mask: `[N]` valid examples.
        old_classes: `[C1]` class ids of the columns of `old`, known when the program is
            compiled; 0, 1, ... by default.
        new_classes: `[C2]`, the same for `new`.
        examples: "all", or "known": those whose class every old run knows. A class is
            known that has a column above `UNKNOWN_LOGIT`.
        block_bytes: memory for the scores of one block of both sides, in bytes.

    Returns:
        `[R1, R2]` float32, or the metric's tuple of such matrices.

    Raises:
        ValueError: shapes do not fit, class ids repeat or are not as many as columns,
            labels are missing, or the metric returns one value per example.

    Notes:
        Where class sets differ, both sides are read on their union, ordered by id; a
        class without a column has `UNKNOWN_LOGIT`, hence probability zero. A label
        that is in neither set is always wrong.

    Example:
        >>> import jax.numpy as jnp
        >>> from churn_jax.metrics import negative_flip_rate
        >>> old = jnp.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
        >>> new = jnp.array([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
        >>> labels = jnp.array([0, 0])
        >>> cross_pairs(negative_flip_rate, old, new, labels).tolist()
        [[0.5], [0.5]]

    References:
        [elodi] Eq. 11 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """
    old, new = _side("old", old), _side("new", new)
    if old.shape[1] != new.shape[1]:
        raise ValueError(
            "old and new must be predictions of the same examples; got shapes "
            f"{old.shape} and {new.shape}"
        )
    check_mask(mask, old.shape[1:2])
    if labels is not None:
        check_labels(labels, old[0], logits_name="logits of one run")
        labels = jnp.asarray(labels).astype(jnp.int32)
    if examples not in EXAMPLES:
        raise ValueError(f"examples must be one of {EXAMPLES}; got {examples!r}")
    if examples == "known" and labels is None:
        raise ValueError("which examples are known depends on their labels [N]")
    if mask is not None:
        mask = jnp.asarray(mask).astype(jnp.bool_)
    classes = _classes(old, new, old_classes, new_classes, examples == "known")
    in_blocks = streaming(metric)
    if in_blocks is None:
        return _every_pair(metric, classes, old, new, labels, mask)
    if in_blocks.needs_labels and labels is None:
        raise ValueError(f"{metric} needs labels [N]; pass cross_pairs(..., labels=)")
    width = max(len(classes.old), len(classes.new), old.shape[2], new.shape[2])
    per_example = 4 * (old.shape[0] + new.shape[0]) * width
    size = max(1, min(old.shape[1], block_bytes // per_example))
    return _stream(in_blocks, size, classes, old, new, labels, mask)


def _side(name, logits):
    check_logits(**{name: logits})
    shape = tuple(jnp.shape(logits))
    if len(shape) != 3 or not shape[0]:
        raise ValueError(f"{name} must be [R, N, C] with a run; got shape {shape}")
    return jnp.asarray(logits)


def _classes(old, new, old_ids, new_ids, known) -> _Classes:
    """Where the columns of both sides are on the union of their class sets."""
    sides = [
        _ids(name, given, logits.shape[2])
        for name, given, logits in (
            ("old_classes", old_ids, old),
            ("new_classes", new_ids, new),
        )
    ]
    union = np.union1d(*sides)

    def columns(ids):
        if np.array_equal(ids, union):
            return ()
        column = {int(c): i for i, c in enumerate(ids)}
        return tuple(column.get(int(c), -1) for c in union)

    plain = np.array_equal(union, np.arange(len(union)))
    ids = () if plain else tuple(map(int, union))
    return _Classes(columns(sides[0]), columns(sides[1]), ids, known)


def _ids(name, given, width):
    if given is None:
        return np.arange(width)
    ids = np.asarray(given)
    if ids.shape != (width,) or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"{name} must be one class id per column, {width} integers; got "
            f"{ids.dtype} of shape {ids.shape}"
        )
    if len(set(ids.tolist())) != width or ids.min() < 0:
        raise ValueError(
            f"{name} must be different ids, none negative; got {ids.tolist()}"
        )
    return ids


def _on_union(logits, columns):
    """Logits `[..., U]` on the union; `UNKNOWN_LOGIT` where there is no column."""
    if not columns:
        return logits
    index = np.array(columns, np.int32)
    there = jnp.asarray(index >= 0).reshape((1,) * (logits.ndim - 1) + (-1,))
    taken = jnp.take(logits, np.maximum(index, 0), axis=-1)
    return jnp.where(there, taken, jnp.asarray(UNKNOWN_LOGIT, logits.dtype))


def _on_union_labels(labels, ids):
    """The place of every label in the union; -1 for a class of neither side."""
    if labels is None or not ids:
        return labels
    order = jnp.asarray(ids, jnp.int32)
    place = jnp.minimum(jnp.searchsorted(order, labels), len(ids) - 1)
    return jnp.where(order[place] == labels, place.astype(jnp.int32), -1)


def _is_known(old, columns, labels):
    """Examples whose class every old run knows, `[B]`; `old [R1, B, C1]`."""
    inside, column = labels >= 0, labels
    if columns:
        inside = inside & (labels < len(columns))
        column = jnp.asarray(columns, jnp.int32)[jnp.clip(labels, 0, len(columns) - 1)]
    inside = inside & (column >= 0) & (column < old.shape[-1])
    column = jnp.clip(column, 0, old.shape[-1] - 1)[None, :, None]
    at_label = jnp.take_along_axis(old, column, axis=-1)[..., 0]
    return jnp.all(known_classes(at_label), axis=0) & inside


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _stream(metric, size, classes, old, new, labels, mask):
    """Adds up what blocks of `size` examples contribute to every pair."""
    labels = _on_union_labels(labels, classes.ids)

    def block(cut, valid):
        before, after = cut(old, 1), cut(new, 1)
        there = None if labels is None else cut(labels, 0)
        if classes.known:
            valid = valid & _is_known(before, classes.old, there)
        before = _on_union(before, classes.old)
        after = _on_union(after, classes.new)
        if isinstance(metric, CrossMetric):
            of_old = metric.of_runs(before, there, valid)
            of_new = metric.of_runs(after, there, valid)
            return metric.compare(of_old, of_new, valid), valid
        dtype = jnp.promote_types(before.dtype, after.dtype)
        together = jnp.concatenate([before.astype(dtype), after.astype(dtype)])
        return metric.block(together, there, valid), valid

    found = metric.finish(*sum_blocks(block, size, old.shape[1], mask))
    if isinstance(metric, CrossMetric):
        return found
    return jax.tree.map(lambda x: x[: len(old), len(old) :], found)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _every_pair(metric, classes, old, new, labels, mask):
    """Any function of two models, one pair at a time."""
    R1, R2 = old.shape[0], new.shape[0]
    labels = _on_union_labels(labels, classes.ids)
    if classes.known:
        known = _is_known(old, classes.old, labels)
        mask = known if mask is None else known & mask
    extra = () if labels is None else (labels,)
    masked = {} if mask is None else {"mask": mask}

    def one(pair):
        before = _on_union(old[pair // R2], classes.old)
        after = _on_union(new[pair % R2], classes.new)
        value = metric(before, after, *extra, **masked)
        check_scalars(value, before.shape, "cross_pairs")
        return value

    values = jax.lax.map(one, jnp.arange(R1 * R2, dtype=jnp.int32))
    return jax.tree.map(lambda v: v.reshape(R1, R2), values)


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

    The variance of single pairs is in both jackknife variances, so once too often;
    `V_pair` is its share. Where there is no other variance, half of the sum is right.

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
        >>> import jax.numpy as jnp
        >>> summary = summarize_cross(jnp.array([[0.1, 0.2], [0.3, 0.4], [0.2, 0.3]]))
        >>> f"{summary.mean:.3f} {summary.std:.3f} {summary.stderr:.4f}"
        '0.250 0.096 0.0764'

    References:
        [elodi] Eq. 11 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
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
    of_old, of_new = jnp.mean(centred, axis=1), jnp.mean(centred, axis=0)
    std = jnp.sqrt(jnp.mean(jnp.square(centred)))
    v_old = jnp.sum(jnp.square(of_old)) / max(R1 * (R1 - 1), 1)
    v_new = jnp.sum(jnp.square(of_new)) / max(R2 * (R2 - 1), 1)
    if R1 > 1 and R2 > 1:
        own = centred - of_old[:, None] - of_new[None, :]
        v_pair = jnp.sum(jnp.square(own)) / (R1 * R2 * (R1 - 1) * (R2 - 1))
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
        >>> import jax.numpy as jnp
        >>> summary = summarize_paired(jnp.array([[0.1, 0.9], [0.9, 0.3]]))
        >>> f"{summary.mean:.2f} {summary.stderr:.2f} {summary.num_runs}"
        '0.20 0.10 2'

    References:
        [elodi] Table 1 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
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
