"""Arguments and results of a method's loss: a batch, all members, terms.

Means over examples are those of the *global* batch, without its padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from churn_jax import ensembles
from churn_jax.lazy import jax, jnp
from churn_jax.methods.fields import pytree, static

if TYPE_CHECKING:
    from jaxtyping import PyTree

    from churn_jax.typing import Logits


@pytree
class Batch:
    """One replica's share of a batch on one device.

    Attributes:
        images: `[B, ...]` float32, normalised and augmented, or token ids `[B, L]`
            int32.
        labels: `[B]` int32.
        mask: `[B]` float32, 1 for valid examples.
        keys: `[B]` typed keys, one per example and step, the same on every mesh.
        axis_name: mesh axis that shares the batch, or None outside of `shard_map`.
        member_weights: `[M, B]` float32, how often each member's own sample of the
            training set holds the example; None is once each.
        pixel_mean: mean of the normalisation `(x - mean) / std` of `images`: a number,
            or one per channel.
        pixel_std: its standard deviation, in the same form.
        memory: `LossOutput.memory` of the last update, `Method.init_memory` before the
            first; `()` for methods without memory.
        rows: `[B]` positions of the examples in the training set; None outside of the
            engine.
    """

    images: jax.Array
    labels: jax.Array
    mask: jax.Array
    keys: jax.Array
    axis_name: str | None = static(None)
    member_weights: jax.Array | None = None
    memory: PyTree = ()
    pixel_mean: float | tuple[float, ...] = static(0.0)
    pixel_std: float | tuple[float, ...] = static(1.0)
    rows: jax.Array | None = None

    def to_pixels(self, images: jax.Array) -> jax.Array:
        """Normalised images on the scale on which perturbations step, 0 to 1."""
        mean, std = self._moments(images.ndim)
        return images * std + mean

    def from_pixels(self, images: jax.Array) -> jax.Array:
        """The inverse of `to_pixels`."""
        mean, std = self._moments(images.ndim)
        return (images - mean) / std

    def _moments(self, ndim: int) -> list[jax.Array]:
        lead = (1,) * (ndim - 1)
        moments = (self.pixel_mean, self.pixel_std)
        return [jnp.asarray(m, jnp.float32).reshape(*lead, -1) for m in moments]

    def sum(self, values: jax.Array) -> jax.Array:
        """Masked sum over the examples of the *global* batch; `[..., B]` to `[...]`."""
        total = jnp.sum(self.hide(values, axis=-1), axis=-1)
        return total if self.axis_name is None else jax.lax.psum(total, self.axis_name)

    @property
    def size(self) -> int:
        """Rows of the *global* batch, those of padding included."""
        local = self.mask.shape[0]
        return local * jax.lax.psum(1, self.axis_name) if self.axis_name else local

    def mean(self, values: jax.Array) -> jax.Array:
        """Masked mean over the examples of the *global* batch; `[..., B]` to `[...]`.

        Methods never call `jnp.mean` over examples: the mean of per-device means is
        another number when a shard holds padding.
        """
        count = self.sum(jnp.ones_like(self.mask))
        return self.sum(values) / jnp.maximum(count, 1.0)

    def total(self, values: jax.Array) -> jax.Array:
        """Sum over members of their means over the *global* batch; `[M, B]` to `[]`."""
        return jnp.sum(self.mean(values))

    def member_mean(self, values: jax.Array) -> jax.Array:
        """Each member's mean over its own sample, `[M, B]` to `[M]`.

        `1/n sum_i w_mi v_mi`, over the n examples of the global batch and not over the
        sum of the weights: the expected weight is 1, so in expectation every example
        counts as much as without weights, however small the batch.
        """
        if self.member_weights is None:
            return self.mean(values)
        # Selected, not only multiplied: an example that a member does not hold cannot
        # reach it, even where its value is not finite.
        held = self.member_weights > 0
        return self.mean(jnp.where(held, self.member_weights * values, 0.0))

    def hide(self, array: jax.Array, *, axis: int) -> jax.Array:
        """`array` with zeros in the rows of padding along its example axis."""
        shape = [1] * array.ndim
        shape[axis] = -1
        zero = jnp.zeros((), array.dtype)
        return jnp.where(self.mask.reshape(shape) > 0, array, zero)


@pytree
class LossOutput:
    """Result of `Method.loss`.

    Attributes:
        loss: the scalar that is differentiated.
        terms: scalars logged under their own names; a non-finite one is named when
            the replica is stopped.
        model_state: state that `apply` returned (batch statistics).
        memory: `Batch.memory` of the next update, with the same structure, shapes and
            dtypes. Values of the *global* batch and of all members, equal on every
            device: from `Batch.sum` and `Batch.mean`, or `psum`ed over
            `Batch.axis_name`. No gradient flows from one update to another.
    """

    loss: jax.Array
    terms: Mapping[str, jax.Array]
    model_state: PyTree
    memory: PyTree = ()


class Apply(Protocol):
    """`apply(variables, images, train=True) -> (Outputs(logits [M, B, C]), state)`."""

    def __call__(
        self,
        variables: PyTree,
        images: jax.Array,
        train: bool = True,
        extras: tuple[str, ...] = (),
    ) -> tuple[ensembles.Outputs, PyTree]:
        """Applies all members of the replica; `extras` are `features` or `part`."""


def forward(
    apply: Apply, variables: PyTree, batch: Batch
) -> tuple[Logits, jax.Array, PyTree]:
    """All members' logits of the batch, with the rows of padding hidden.

    Returns:
        `(logits [M, B, C], labels [M, B], model_state)`; nothing changes where the
        batch's mask is all ones.
    """
    outputs, labels, model_state = forward_outputs(apply, variables, batch)
    return outputs.logits, labels, model_state


def forward_outputs(
    apply: Apply, variables: PyTree, batch: Batch, extras: tuple[str, ...] = ()
) -> tuple[ensembles.Outputs, jax.Array, PyTree]:
    """`forward` with all outputs; `extras` are some of `features` and `part`."""
    # A masked mean keeps padding out of the value, not out of the gradient: where a
    # masked row is not finite, its zero cotangent becomes `0 * nan`. So padding enters
    # the network as zeros and leaves it as zeros.
    options: dict[str, Any] = {"extras": extras} if extras else {}
    images = batch.hide(batch.images, axis=0)
    outputs, model_state = apply(variables, images, **options)
    outputs = jax.tree.map(lambda leaf: batch.hide(leaf, axis=1), outputs)
    labels = jnp.broadcast_to(batch.labels, outputs.logits.shape[:-1])
    return outputs, labels, model_state


class Teacher(Protocol):
    """The trained models that a replica learns from; no weight of theirs is trained."""

    @property
    def size(self) -> int:
        """T, the number of members that teach; 0 with old models alone."""
        ...

    @property
    def olds(self) -> int:
        """O, the number of old models."""
        ...

    def __call__(self, images: jax.Array, pick: Any = None) -> Logits:
        """`[T, B, C]` of the members, or `[B, C]` of the one with the number `pick`."""
        ...

    def old(self, images: jax.Array) -> Logits:
        """`[O, B, C]` of the old models, in the order of their versions."""
        ...

    def classify(self, features: jax.Array) -> Logits:
        """`[O, B, C]` of the old models' last layers on features `[B, D]`."""
        ...


def teacher_logits(teacher: Teacher | None, batch: Batch) -> Logits:
    """Logits of the teacher's members, `[T, B, C]`, without gradient or padding.

    Raises:
        ValueError: there is no teacher.
    """
    if teacher is None:
        raise ValueError("the method needs a teacher; none was given")
    logits = teacher(batch.hide(batch.images, axis=0))
    return jax.lax.stop_gradient(batch.hide(logits, axis=-2))


def old_logits(teacher: Teacher | None, batch: Batch) -> Logits:
    """Old models' logits of a batch, `[O, B, C]`, without gradient or padding.

    Raises:
        ValueError: there is no old model.
    """
    if teacher is None:
        raise ValueError("the method needs an old model; name one in teaching.old")
    logits = teacher.old(batch.hide(batch.images, axis=0))
    return jax.lax.stop_gradient(batch.hide(logits, axis=-2))


def with_state(variables: PyTree, model_state: PyTree) -> PyTree:
    """The variables with the model state that `apply` has returned."""
    # A method that applies its members twice per update passes this to the second
    # call, so that running batch statistics see both inputs in order.
    if isinstance(variables, (list, tuple)):
        pairs = zip(variables, model_state, strict=True)
        return [with_state(v, s) for v, s in pairs]
    return {**variables, **model_state}
