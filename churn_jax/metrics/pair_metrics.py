"""Metrics of two models as additive statistics, for one pair or for all pairs of runs.

A `PairMetric` says once what is needed of each model, what a pair of models adds per
example and what number the sums give. The metric's function, `pairwise` and
`cross_pairs` follow from it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from churn_jax.metrics.state import masked_sum, ratio, valid_examples
from churn_jax.typing import Labels, Logits, Mask, Scalar


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
    """Sum of a term over all axes from `first` on, where those of examples begin."""
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
