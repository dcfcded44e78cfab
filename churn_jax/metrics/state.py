"""Sums that metrics share: masks, exact long sums, means and rates as States.

A State holds sums only. `merge` is addition, so `jax.lax.psum(state, axis_name)` and
`jax.tree.map(jnp.add, a, b)` combine shards of the data, and nothing at all is needed
under `jit` with globally sharded arrays. How long a stream may get:

* counts are int32: exact up to 2**31 - 1 examples in all;
* real values go through `LongSum`, whose error does not grow with the length of the
  stream: what is added is rounded once (float32, one batch at a time) and then kept
  exactly, so a mean over ten million examples is as good as the batch sums are, about
  1e-7 relative. A plain float32 accumulator stops growing at 2**24 additions of 1.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from flax import struct

from churn_jax._checks import check_mask
from churn_jax.typing import Mask, PerExample, Scalar

_UNITS_PER_BLOCK = 2**20


def valid_examples(mask: Mask | None, shape: tuple[int, ...]):
    """The mask as bool, `[...]`; all examples are valid where it is None."""
    check_mask(mask, shape)
    if mask is None:
        return jnp.ones(shape, jnp.bool_)
    return jnp.asarray(mask).astype(jnp.bool_)


def masked_mean(values: PerExample, mask: Mask | None = None) -> Scalar:
    """Mean of the valid values `[...]`, float32; nan when there is none."""
    # Bools and integers are counted exactly; padded rows are ignored, nan included.
    values = jnp.asarray(values)
    valid = valid_examples(mask, values.shape)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        total = jnp.sum(valid & values.astype(jnp.bool_), dtype=jnp.int32)
    else:
        total = jnp.sum(jnp.where(valid, values.astype(jnp.float32), 0.0))
    return _ratio(total, jnp.sum(valid, dtype=jnp.int32))


def _ratio(numerator, denominator):
    """Float32 quotient of two sums; 0 / 0 is nan."""
    return numerator.astype(jnp.float32) / denominator.astype(jnp.float32)


@struct.dataclass
class LongSum:
    """A running float32 sum that does not lose small terms; any shape.

    The value is `2**20 * blocks + units + rest`. Two integers hold the whole part, so
    adding is exact there; `rest` stays below one after every `add`. All three simply
    add up, which is what makes `psum` of the parts right. Inf, nan and anything above
    2**50 stay in `rest` with float32's own rules. The gradient of the value with
    respect to what was added is one.
    """

    blocks: jax.Array
    units: jax.Array
    rest: jax.Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...] = ()) -> "LongSum":
        """The empty sum."""
        return cls(
            blocks=jnp.zeros(shape, jnp.int32),
            units=jnp.zeros(shape, jnp.int32),
            rest=jnp.zeros(shape, jnp.float32),
        )

    def add(self, value) -> "LongSum":
        """Adds an array of this sum's shape."""
        return dataclasses.replace(
            self, rest=self.rest + value.astype(jnp.float32)
        )._carry()

    def merge(self, other: "LongSum") -> "LongSum":
        """The sum of both."""
        return jax.tree.map(jnp.add, self, other)._carry()

    def _carry(self) -> "LongSum":
        """Moves whole numbers out of `rest` and full blocks out of `units`."""
        movable = jnp.abs(self.rest) < 2.0**50  # False for nan
        rest = jnp.where(movable, self.rest, 0.0)
        full = jnp.trunc(rest / _UNITS_PER_BLOCK)
        rest = rest - full * _UNITS_PER_BLOCK  # exact: a multiple of rest's last bit
        whole = jnp.trunc(rest)
        units = self.units + whole.astype(jnp.int32)
        spill = units >> 20
        return LongSum(
            blocks=self.blocks + full.astype(jnp.int32) + spill,
            units=units - (spill << 20),
            rest=jnp.where(movable, rest - whole, self.rest),
        )

    def value(self) -> jax.Array:
        """The sum in float32, rounded here and not before."""
        blocks = self.blocks.astype(jnp.float32) * _UNITS_PER_BLOCK
        return blocks + (self.units.astype(jnp.float32) + self.rest)


class AdditiveState:
    """Base of all States: sums of which two can be merged."""

    def merge(self, other):
        """The state of both sets of examples; both need equal settings and shapes."""
        if jax.tree.structure(self) != jax.tree.structure(other):
            raise ValueError(
                f"only states of one kind and setting add up; got {self!r} and "
                f"{other!r}"
            )
        for a, b in zip(jax.tree.leaves(self), jax.tree.leaves(other)):
            if jnp.shape(a) != jnp.shape(b):
                raise ValueError(
                    f"only states of one shape add up; got {jnp.shape(a)} and "
                    f"{jnp.shape(b)} in {type(self).__name__}"
                )
        return jax.tree.map(
            lambda a, b: a.merge(b) if isinstance(a, LongSum) else a + b,
            self,
            other,
            is_leaf=lambda x: isinstance(x, LongSum),
        )


@struct.dataclass
class MeanState(AdditiveState):
    """The mean over examples of a real per-example quantity.

    Subclasses add `update(...)`, which names the quantity's inputs. `compute` is nan
    before the first valid example.
    """

    total: LongSum
    examples: jax.Array

    @classmethod
    def empty(cls, **settings) -> Self:
        """No examples yet; `settings` are the static fields of the subclass."""
        return cls(total=LongSum.zeros(), examples=jnp.zeros((), jnp.int32), **settings)

    def add(self, values: PerExample, mask: Mask | None = None) -> Self:
        """This state and the valid ones of `values [...]`."""
        valid = valid_examples(mask, values.shape)
        total = jnp.sum(jnp.where(valid, values.astype(jnp.float32), 0.0))
        return dataclasses.replace(
            self,
            total=self.total.add(total),
            examples=self.examples + jnp.sum(valid, dtype=jnp.int32),
        )

    def compute(self) -> Scalar:
        """The mean, float32."""
        return _ratio(self.total.value(), self.examples)


@struct.dataclass
class CountState(AdditiveState):
    """Base of States whose fields are int32 counts of examples, the last one of all."""

    @classmethod
    def empty(cls) -> Self:
        """No examples yet."""
        return cls(*(jnp.zeros((), jnp.int32) for _ in dataclasses.fields(cls)))

    def count(self, *which, mask: Mask | None = None) -> Self:
        """Adds the valid ones of the bools `[...]`, an array for each field but one."""
        valid = valid_examples(mask, which[0].shape)
        counts = (
            jnp.sum(x & valid, dtype=jnp.int32)
            for x in (*which, jnp.ones_like(which[0]))
        )
        return jax.tree.map(jnp.add, self, type(self)(*counts))


@struct.dataclass
class RateState(CountState):
    """The share of examples for which something holds; integers only, so exact."""

    hits: jax.Array
    examples: jax.Array

    def add(self, holds, mask: Mask | None = None) -> Self:
        """This state and the valid ones of the bools `holds [...]`."""
        return self.count(holds, mask=mask)

    def compute(self) -> Scalar:
        """The share, float32; nan before the first valid example."""
        return _ratio(self.hits, self.examples)
