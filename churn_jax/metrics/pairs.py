"""A metric for every pair of runs in bounded memory: of one set, or of old and new.

A `PairMetric` says once what is needed of each model, what a pair of models adds per
example and what number the sums give. The metric's function, `pairwise` and
`cross_pairs` follow from it. One old and one new model are one draw of each; retraining
either changes every number that compares them. So an update is measured over all pairs
of an old and a new run.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from churn_compare.class_sets import UNKNOWN_LOGIT, known_classes
from churn_jax._checks import check_labels, check_logits, check_mask
from churn_jax.metrics.scoring import class_ids
from churn_jax.metrics.state import LongSum, masked_sum, ratio, valid_examples
from churn_jax.typing import Array, Labels, Logits, Mask, Scalar


@dataclasses.dataclass(frozen=True)
class PairMetric:
    """A metric of two models that follows from sums over examples.

    Subclasses are frozen dataclasses, compared by value, so that a compiled `pairwise`
    is found again; fields are static settings. An instance is passed to `pairwise` or
    `cross_pairs`.
    """

    needs_labels: ClassVar[bool] = False

    def of_run(self, logits: Logits, labels: Labels | None) -> Any:
        """Statistics of a model: any tree of arrays `[..., B, *rest]`.

        It is computed once per model, for all its pairs.

        Args:
            logits: `[..., B, C]` in the caller's dtype.
            labels: `[B]`, or None.
        """
        raise TypeError(f"{type(self).__name__} does not define of_run")

    def compare(self, old: Any, new: Any) -> Any:
        """Contribution of a pair per example: any tree of arrays `[..., B, *rest]`.

        Bools and integers are summed as int32, real numbers in float32, over the valid
        examples and the axes behind them.

        Args:
            old: from `of_run`.
            new: from `of_run`; broadcasts against `old`.
        """
        raise TypeError(f"{type(self).__name__} does not define compare")

    def finish(self, sums: Any, examples: Scalar) -> Any:
        """The metric, or a tree of them, from the sums; of any shape.

        Args:
            sums: the tree of `compare`, summed over all valid examples.
            examples: number of valid examples, int32.
        """
        return jax.tree.map(lambda total: ratio(total, examples), sums)

    def terms(self, old: Logits, new: Logits, labels: Labels | None = None) -> Any:
        """`compare` of two models with logits `[..., C]`."""
        return self.compare(self.of_run(old, labels), self.of_run(new, labels))

    def __call__(
        self,
        old: Logits,
        new: Logits,
        labels: Labels | None = None,
        mask: Mask | None = None,
    ) -> Any:
        """The metric of two models with logits `[..., C]`."""
        terms = self.terms(old, new, labels)
        valid = valid_examples(mask, jnp.shape(old)[:-1])
        return self.finish(
            jax.tree.map(lambda term: _total(term, valid, 0), terms),
            jnp.sum(valid, dtype=jnp.int32),
        )


def _total(term, valid, first):
    """Sum of a term over all axes from `first`, the first axis of examples, on."""
    examples = tuple(range(first, first + valid.ndim))
    return masked_sum(term, valid, examples, tuple(range(first, term.ndim)))


def pair_sums(
    metric: PairMetric, old: Logits, new: Logits, labels: Labels | None, valid: Mask
) -> Any:
    """The sums over `[R1, B, C]` and `[R2, B, C]` for every pair, arrays `[R1, R2]`."""
    of_old = metric.of_run(old, labels)
    of_new = of_old if new is old else metric.of_run(new, labels)

    def against_all(one):
        terms = metric.compare(jax.tree.map(lambda x: x[None], one), of_new)
        return jax.tree.map(lambda term: _total(term, valid, 1), terms)

    # One run against all at a time: a block is small enough to stay in cache.
    sums = jax.lax.map(against_all, of_old)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (len(old), len(new))), sums)


STREAMING: dict[Callable, Callable[..., PairMetric]] = {}
"""Metric function to the constructor of its `PairMetric`, given its settings."""


def streaming(metric: Any) -> PairMetric | None:
    """The sums of a metric, also of a `functools.partial` of one, or None."""
    if isinstance(metric, PairMetric):
        return metric
    settings = {}
    if isinstance(metric, functools.partial) and not metric.args:
        metric, settings = metric.func, metric.keywords
    make = STREAMING.get(metric)
    return make(**settings) if make else None


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
        >>> from churn_jax.metrics import churn
        >>> runs = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])
        >>> pairwise(churn, runs).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]

    References:
        [reproducibility] Table 2
    """
    runs = (_runs("logits", logits),)
    return _all_pairs(metric, runs, labels, mask, False, block_bytes)


def cross_pairs(
    metric: Callable | PairMetric,
    old: Logits,
    new: Logits,
    labels: Labels | None = None,
    mask: Mask | None = None,
    *,
    examples: str = "all",
    block_bytes: int = 4 * 2**20,
) -> Array:
    """`metric` of every update, `matrix[i, j] = metric(old run i, new run j)`.

    Args:
        metric: one of the three kinds of `pairwise`; a function of the third kind gets
            `mask=` also where `examples` is "known".
        old: `[R1, N, C1]`, runs of the model in use.
        new: `[R2, N, C2]`, runs of the model that is to replace it, on the same N
            examples in the same order.
        labels: `[N]` class ids, for metrics that need them and for "known".
        mask: `[N]` valid examples.
        examples: "all", or "known": those whose class every old run knows. A class is
            known where its logit is above half of `UNKNOWN_LOGIT`.
        block_bytes: memory for the scores of one block of both sides, in bytes.

    Returns:
        `[R1, R2]` float32, or the metric's tuple of such matrices; errors as in
        `pairwise`.

    Notes:
        Class ids agree. Where one side has fewer columns, its missing last classes have
        `UNKNOWN_LOGIT`, hence probability zero, as have others that it does not know.
        Logits must be above it, or a missing class is predicted. A label that neither
        side has gives nan.

    Example:
        >>> from churn_jax.metrics import negative_flip_rate
        >>> old = jnp.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
        >>> new = jnp.array([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
        >>> labels = jnp.array([0, 0])
        >>> cross_pairs(negative_flip_rate, old, new, labels).tolist()
        [[0.5], [0.5]]

    References:
        [elodi] Eq. 11
    """
    runs = _runs("old", old), _runs("new", new)
    if runs[0].shape[1] != runs[1].shape[1]:
        raise ValueError(
            "old and new must be predictions of the same examples; got shapes "
            f"{runs[0].shape} and {runs[1].shape}"
        )
    if examples not in ("all", "known"):
        raise ValueError(f"examples must be one of 'all', 'known'; got {examples!r}")
    if examples == "known" and labels is None:
        raise ValueError("which examples are known depends on their labels [N]")
    return _all_pairs(metric, runs, labels, mask, examples == "known", block_bytes)


def _runs(name, logits):
    check_logits(**{name: logits})
    shape = tuple(jnp.shape(logits))
    if len(shape) != 3 or not shape[0]:
        raise ValueError(f"{name} must be [R, N, C] with a run; got shape {shape}")
    return jnp.asarray(logits)


def _widened(logits, width):
    """Logits `[..., width]`; added columns have `UNKNOWN_LOGIT`."""
    missing = width - logits.shape[-1]
    if not missing:
        return logits
    pads = [(0, 0)] * (logits.ndim - 1) + [(0, missing)]
    return jnp.pad(logits, pads, constant_values=UNKNOWN_LOGIT)


def _is_known(old, labels):
    """Examples whose class every old run knows, `[B]`; `old [R1, B, C1]`."""
    last = old.shape[-1] - 1
    column = jnp.clip(labels, 0, last)[None, :, None]
    at_label = jnp.take_along_axis(old, column, axis=-1)[..., 0]
    known = jnp.all(known_classes(at_label), axis=0)
    return known & (labels >= 0) & (labels <= last)


def _all_pairs(metric, runs, labels, mask, known, block_bytes):
    """The matrix of one set of runs, or of an old and a new one."""
    examples = runs[0].shape[1]
    check_mask(mask, (examples,))
    if mask is not None:
        mask = jnp.asarray(mask).astype(jnp.bool_)
    if labels is not None:
        check_labels(labels, runs[0][0], logits_name="logits of one run")
        labels = class_ids(labels)
    sums = streaming(metric)
    if sums is None:
        return _one_by_one(metric, known, runs, labels, mask)
    if sums.needs_labels and labels is None:
        raise ValueError(f"{metric} needs labels [N]; pass labels=")
    size = block_bytes // (4 * sum(map(len, runs)) * _width(runs))
    return _stream(sums, max(1, min(examples, size)), known, runs, labels, mask)


def _width(runs):
    return max(x.shape[2] for x in runs)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _stream(metric, size, known, runs, labels, mask):
    """Adds up what blocks of `size` examples contribute to every pair."""

    def block(cut, valid):
        old, new = cut(runs[0], 1), cut(runs[-1], 1) if len(runs) > 1 else None
        there = None if labels is None else cut(labels, 0)
        if known:
            valid = valid & _is_known(old, there)
        old = _widened(old, _width(runs))
        new = old if new is None else _widened(new, _width(runs))
        return pair_sums(metric, old, new, there, valid), valid

    return metric.finish(*sum_blocks(block, size, runs[0].shape[1], mask))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _one_by_one(metric, known, runs, labels, mask):
    """Any function of two models, one pair at a time."""
    old, new = runs[0], runs[-1]
    if known:
        counted = _is_known(old, labels)
        mask = counted if mask is None else counted & mask
    extra = () if labels is None else (labels,)
    masked = {} if mask is None else {"mask": mask}

    def one(pair):
        a = _widened(old[pair // len(new)], _width(runs))
        b = _widened(new[pair % len(new)], _width(runs))
        value = metric(a, b, *extra, **masked)
        for leaf in jax.tree.leaves(value):
            if jnp.ndim(leaf):
                raise ValueError(
                    "a metric for pairs of runs must return scalars; got shape "
                    f"{jnp.shape(leaf)} for logits of one run {a.shape}: reduce over "
                    "examples"
                )
        return value

    pairs = (len(old), len(new))
    values = jax.lax.map(one, jnp.arange(pairs[0] * pairs[1], dtype=jnp.int32))
    return jax.tree.map(lambda v: v.reshape(pairs), values)


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
