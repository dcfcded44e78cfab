"""Sums of a metric over blocks of examples, to compare runs with runs.

`STREAMING` maps metric functions to `PairMetric` classes, which say what one block of
examples contributes to all pairs of runs at once and how the sums become the number. To
add one, subclass `CrossMetric`, or `PairMetric` where no pair is made of two runs
alone, and pass an instance to `pairwise` or `cross_pairs`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

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
from churn_jax.typing import Array, Labels, Logits, Mask, Scalar


@dataclasses.dataclass(frozen=True)
class PairMetric:
    """The sums that one block of examples adds to every pair `(a, b)` of runs.

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


@dataclasses.dataclass(frozen=True)
class CrossMetric(PairMetric):
    """A `PairMetric` whose two runs may come from two different sets of runs.

    What is needed of a run is computed once per block, in `of_runs`, and then compared
    pair by pair; `finish` gets the sums of `compare` in either case.
    """

    def of_runs(self, logits: Logits, labels: Labels | None, mask: Mask) -> Any:
        """The values of each run: any tree of arrays with a leading axis `R`.

        Args:
            logits: `[R, B, C]` in the caller's dtype.
            labels: `[B]`, or None.
            mask: `[B]` bool.
        """
        raise TypeError(f"{type(self).__name__} does not define of_runs")

    def compare(self, old: Any, new: Any, mask: Mask) -> Any:
        """Sums over one block for every pair of an old and a new run.

        Args:
            old: from `of_runs`, with a leading axis `R1`.
            new: from `of_runs`, with a leading axis `R2`.
            mask: `[B]` bool; examples outside it must add nothing.

        Returns:
            Any tree of arrays, mostly `[R1, R2]`; integers are added up as int32,
            floats as `LongSum`.
        """
        raise TypeError(f"{type(self).__name__} does not define compare")

    def block(self, logits: Logits, labels: Labels | None, mask: Mask) -> Any:
        """Every run against every run of the same set."""
        runs = self.of_runs(logits, labels, mask)
        return self.compare(runs, runs, mask)


def _share(part, whole):
    return part.astype(jnp.float32) / whole.astype(jnp.float32)


def _rows(compare: Callable, old: Array, new: Array) -> Array:
    """`[R1, R2]` from `compare(row [1, ...], new [R2, ...]) -> [R2]`, row by row."""
    return jax.lax.map(lambda row: compare(row[None], new), old)


def _absolute_differences(old, new):
    """`sum_n sum_c |a - b|` for all pairs of `[R, B * C]` scores; `[R1, R2]`."""
    # Each row of pairs reads the block once more; it is small enough to stay in cache.
    return _rows(lambda a, b: jnp.sum(jnp.abs(a - b), axis=-1), old, new)


def _masked(scores, mask):
    """`[R, B * C]`; masked rows are zero for every run, so they cancel."""
    return jnp.where(mask[None, :, None], scores, 0.0).reshape(scores.shape[0], -1)


def _predictions(logits):
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def _count_pairs(compare, old, new, mask):
    """Number of valid examples where `compare(a, b)` holds, int32 `[R1, R2]`."""
    return _rows(
        lambda a, b: jnp.sum(compare(a, b) & mask[None], axis=-1, dtype=jnp.int32),
        old,
        new,
    )


@dataclasses.dataclass(frozen=True)
class _Churn(CrossMetric):
    def of_runs(self, logits, labels, mask):
        return _predictions(logits)

    def compare(self, old, new, mask):
        return _count_pairs(lambda a, b: a != b, old, new, mask)


@dataclasses.dataclass(frozen=True)
class _SurrogateChurn(CrossMetric):
    alpha: float = 1.0

    def of_runs(self, logits, labels, mask):
        return _masked(max_normalized(logits, self.alpha), mask)

    def compare(self, old, new, mask):
        return 0.5 * _absolute_differences(old, new)


@dataclasses.dataclass(frozen=True)
class _L1Distance(CrossMetric):
    def of_runs(self, logits, labels, mask):
        return _masked(jnp.exp(log_probs(logits)), mask)

    def compare(self, old, new, mask):
        return _absolute_differences(old, new)


def _right(logits, labels):
    """Which predictions are right, `[R, B]` bool."""
    return _predictions(logits) == labels.astype(jnp.int32)[None]


@dataclasses.dataclass(frozen=True)
class _ErrorBound(CrossMetric):
    needs_labels = True

    def of_runs(self, logits, labels, mask):
        return jnp.sum(~_right(logits, labels) & mask[None], axis=-1, dtype=jnp.int32)

    def compare(self, old, new, mask):
        return old, new

    def finish(self, sums, examples):
        old, new = (_share(errors, examples) for errors in sums)
        return old[:, None] + new[None, :]


@dataclasses.dataclass(frozen=True)
class _ConfidenceBound(CrossMetric):
    """`P[D_L1 > min gamma]`, or with `total` the sharper `P[D_L1 >= sum gamma]`."""

    total: bool = False

    def of_runs(self, logits, labels, mask):
        probs = jnp.exp(log_probs(logits))
        return probs, prediction_confidence(logits), _predictions(logits)

    def compare(self, old, new, mask):
        def against_all(one):
            (p, gamma, predicted), (q, other, others) = one, new
            distance = jnp.sum(jnp.abs(q - p[None]), axis=-1)
            if self.total:
                event = distance >= gamma[None] + other
            else:
                event = distance > jnp.minimum(gamma[None], other)
            event = (event | (predicted[None] != others)) & mask[None]
            return jnp.sum(event, axis=-1, dtype=jnp.int32)

        return jax.lax.map(against_all, old)


@dataclasses.dataclass(frozen=True)
class _ChurnByCorrectness(CrossMetric):
    needs_labels = True

    def of_runs(self, logits, labels, mask):
        return _predictions(logits), _right(logits, labels)

    def compare(self, old, new, mask):
        (before, right), (after, _) = old, new

        def churned(among):
            return jax.lax.map(
                lambda row: jnp.sum(
                    (row[0][None] != after) & (row[1] & mask)[None],
                    axis=-1,
                    dtype=jnp.int32,
                ),
                (before, among),
            )

        correct = jnp.sum(right & mask[None], axis=-1, dtype=jnp.int32)
        shape = (correct.shape[0], after.shape[0])
        return churned(right), churned(~right), _across(correct, shape)

    def finish(self, sums, examples):
        churned_right, churned_wrong, right = sums
        return split_by_correctness(churned_right, churned_wrong, right, examples)


def _across(of_old, shape):
    """A number of each old run, the same for every new one."""
    return jnp.broadcast_to(of_old[:, None], shape)


@dataclasses.dataclass(frozen=True)
class _Flips(CrossMetric):
    """All of `FlipRates`, or one of them; rows are the old run, columns the new one."""

    rate: str = ""
    needs_labels = True

    def of_runs(self, logits, labels, mask):
        return _right(logits, labels)

    def compare(self, old, new, mask):
        both = _count_pairs(lambda a, b: a & b, old, new, mask)
        of_old, of_new = (
            jnp.sum(right & mask[None], axis=-1, dtype=jnp.int32)
            for right in (old, new)
        )
        return of_old[:, None] - both, of_new[None] - both, both

    def finish(self, sums, examples):
        negative, positive, both = sums
        examples = jnp.broadcast_to(examples, both.shape)
        rates = flips.FlipState(negative, positive, both, examples).compute()
        return getattr(rates, self.rate) if self.rate else rates


STREAMING: dict[Callable, Callable[..., PairMetric]] = {
    churn: _Churn,
    surrogate_churn: _SurrogateChurn,
    churn_by_correctness: _ChurnByCorrectness,
    l1_distance: _L1Distance,
    churn_bound_from_errors: _ErrorBound,
    churn_bound_from_confidence: _ConfidenceBound,
    churn_bound_from_confidence_sum: functools.partial(_ConfidenceBound, total=True),
    flips.flip_rates: _Flips,
    **{
        getattr(flips, name): functools.partial(_Flips, name)
        for name in flips.FlipRates._fields
    },
}
"""Metric function to the constructor of its `PairMetric`, given its settings."""


def streaming(metric: Any) -> PairMetric | None:
    """The block form of a metric, also of a `functools.partial` of one, or None."""
    if isinstance(metric, PairMetric):
        return metric
    if isinstance(metric, functools.partial) and not metric.args:
        make = STREAMING.get(metric.func)
        return make(**metric.keywords) if make else None
    make = STREAMING.get(metric)
    return make() if make else None
