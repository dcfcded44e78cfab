"""Additive statistics: masked sums over examples of what a metric adds for each.

A State holds sums only. `merge` is addition, so `jax.lax.psum(state, axis_name)` and
`jax.tree.map(jnp.add, a, b)` combine shards of the data, and nothing at all is needed
under `jit` with globally sharded arrays. `AdditiveState.of` makes the State of a metric
that is a mean over examples; the sums of pairs of runs are in `pairs`. How long a
stream may get:

* counts are int32: exact up to 2**31 - 1 examples in all;
* real values go through `LongSum`, whose error does not grow with the length of the
  stream: what is added is rounded once (float32, one batch at a time) and then kept
  exactly, so a mean over ten million examples is as good as the batch sums are, about
  1e-7 relative. A plain float32 accumulator stops growing at 2**24 additions of 1.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from churn_jax._checks import check_mask
from churn_jax.typing import Mask, PerExample, Scalar

_UNITS_PER_BLOCK = 2**20
_ARGUMENT = inspect.Parameter.POSITIONAL_OR_KEYWORD


def valid_examples(mask: Any, shape: tuple[int, ...]):
    """The mask as bool, `[...]`; all examples are valid where it is None."""
    if not (mask is None or isinstance(mask, jax.Array)):
        mask = np.asarray(mask)
    check_mask(mask, shape)
    if mask is None:
        return jnp.ones(shape, jnp.bool_)
    return jnp.asarray(mask).astype(jnp.bool_)


def masked_sum(values, valid, axes: tuple[int, ...], over: tuple[int, ...] = ()):
    """Sum of `values` where `valid`, which has their `axes`; over these, or `over`."""
    # Selected, not multiplied: padded rows may hold anything, nan included.
    valid = jnp.expand_dims(valid, [i for i in range(values.ndim) if i not in axes])
    if jnp.issubdtype(values.dtype, jnp.floating):
        values, dtype = values.astype(jnp.float32), jnp.float32
    else:
        dtype = jnp.int32
    values = jnp.where(valid, values, jnp.zeros((), values.dtype))
    return jnp.sum(values, axis=over or axes, dtype=dtype)


def masked_mean(values: PerExample, mask: Mask | None = None) -> Scalar:
    """Mean of the valid values `[...]`, float32; nan when there is none."""
    values = jnp.asarray(values)
    valid = valid_examples(mask, values.shape)
    total = masked_sum(values, valid, tuple(range(values.ndim)))
    return ratio(total, jnp.sum(valid, dtype=jnp.int32))


def ratio(numerator, denominator):
    """Float32 quotient of two sums; 0 / 0 is nan."""
    return numerator.astype(jnp.float32) / denominator.astype(jnp.float32)


def rate(hits, unusable, examples):
    """`hits / examples`; nan with an unusable example, and without any."""
    return jnp.where(unusable > 0, jnp.nan, ratio(hits, examples))


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


@struct.dataclass
class AdditiveState:
    """Base of all States: sums over examples, of which two can be merged.

    A subclass is a `flax.struct.dataclass`; its fields are int32 counts, `LongSum`s and
    static settings, and it adds `update` and `compute`.
    """

    @classmethod
    def empty(cls, *, num_bins: int | None = None, **settings: Any) -> Self:
        """No examples yet; `settings` are the static fields."""
        if num_bins is not None and num_bins < 1:
            raise ValueError(f"num_bins must be at least 1; got {num_bins}")
        shape = () if num_bins is None else (num_bins,)
        zero = jnp.zeros(shape, jnp.int32)
        sums = {
            field.name: LongSum.zeros(shape) if field.type is LongSum else zero
            for field in _sums(cls)
        }
        return cls(**sums, **settings)

    def update(self, *inputs: Any, **named: Any) -> Self:
        """Adds a batch; arguments as in the metric's function."""
        raise NotImplementedError(f"{type(self).__name__} does not define update")

    def add(self, values: PerExample, mask: Mask | None = None) -> Self:
        """This state and the valid ones of `values [...]`, numbers or bools."""
        return self.plus(mask, values)

    def plus(self, mask: Mask | None, *terms) -> Self:
        """This state and the sum of the valid terms of every field, in their order.

        A term is `[..., *shape of the field]`. The field behind the last term counts
        the examples.
        """
        fields = [(field.name, getattr(self, field.name)) for field in _sums(self)]
        within = jnp.ndim(jax.tree.leaves(fields[0][1])[0])
        valid = valid_examples(mask, terms[0].shape[: terms[0].ndim - within])
        axes = tuple(range(valid.ndim))
        new = {}
        for (name, total), term in zip(fields, (*terms, valid)):
            part = masked_sum(term, valid, axes)
            new[name] = total.add(part) if isinstance(total, LongSum) else total + part
        return dataclasses.replace(self, **new)

    @classmethod
    def of(cls, name: str, function: Callable, values: Callable) -> type[Self]:
        """The State, called `name`, of a metric that is the mean of `values`.

        Its `update` takes what `function` takes; parameters with defaults, but for the
        mask, are settings of `empty`. `values` takes both by the same names.
        """
        given = dict(inspect.signature(function).parameters)
        mask = inspect.Parameter("mask", _ARGUMENT, default=None)
        given["mask"] = given.pop("mask", mask)  # which a value per example has not
        settings = {
            key: parameter.default
            for key, parameter in given.items()
            if parameter.default is not parameter.empty and key != "mask"
        }
        inputs = (given[key] for key in given if key not in settings)
        state = inspect.Parameter("self", _ARGUMENT)
        signature = inspect.Signature([state, *inputs])

        def update(*args, **named):
            """Adds a batch; arguments as in the metric's function."""
            batch = signature.bind(*args, **named).arguments
            self, mask = batch.pop("self"), batch.pop("mask", None)
            batch.update((setting, getattr(self, setting)) for setting in settings)
            return self.add(values(**batch), mask)

        vars(update)["__signature__"] = signature
        docstring = f"Streamed `{function.__name__}`"
        docstring += "".join(f"; `empty({p}=...)` fixes {p}" for p in settings)
        body = {p: struct.field(False, default=d) for p, d in settings.items()}
        body["__annotations__"] = dict.fromkeys(settings, float)
        body |= {"__doc__": f"{docstring}.", "__module__": function.__module__}
        return struct.dataclass(type(name, (cls,), {**body, "update": update}))

    def merge(self, other: Self) -> Self:
        """The state of both sets of examples; both need equal settings and shapes."""
        ours, theirs = (jax.tree.map(jnp.shape, state) for state in (self, other))
        if ours != theirs:
            raise ValueError(
                "only states of one kind, setting and shape add up; got the shapes "
                f"{ours} and {theirs}"
            )
        return jax.tree.map(
            lambda a, b: a.merge(b) if isinstance(a, LongSum) else a + b,
            self,
            other,
            is_leaf=lambda x: isinstance(x, LongSum),
        )


def _sums(state: Any) -> list[dataclasses.Field]:
    """The fields of a State that are sums, not settings."""
    fields = dataclasses.fields(state)
    return [field for field in fields if field.metadata.get("pytree_node", True)]


@struct.dataclass
class MeanState(AdditiveState):
    """The mean over examples of a real per-example quantity."""

    total: LongSum
    examples: jax.Array

    def compute(self) -> Scalar:
        """The mean, float32; nan before the first valid example."""
        return ratio(self.total.value(), self.examples)


@struct.dataclass
class RateState(AdditiveState):
    """The share of examples for which something holds; integers only, so exact.

    `unusable` counts valid examples whose value is nan; any makes the share nan.
    """

    hits: jax.Array
    unusable: jax.Array
    examples: jax.Array

    def add(self, values: PerExample, mask: Mask | None = None) -> Self:
        """This state and the valid ones of `values [...]`: bools, or 1, 0 and nan."""
        return self.plus(mask, values == 1, values != values)

    def compute(self) -> Scalar:
        """The share, float32; nan before the first valid example."""
        return rate(self.hits, self.unusable, self.examples)
