"""What a training method is: pure data plus one pure `loss`.

A method is a frozen pytree dataclass. Array leaves are coefficients that may differ
between replicas (a grid is just more replicas); static fields are structure. The
engine calls `loss` for one replica, so no leaf has a replica axis in there.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    Protocol,
    TypeVar,
    dataclass_transform,
)

import numpy as np

from churn_jax import ensembles
from churn_jax.lazy import jax, jnp

if TYPE_CHECKING:
    from jax.typing import ArrayLike

    from churn_jax.typing import Logits, PyTree


__all__ = [
    "DEPLOYMENTS",
    "MEMBER_SAMPLES",
    "Apply",
    "Batch",
    "LossOutput",
    "Method",
    "Passes",
    "Ramp",
    "check_teacher",
    "coefficient",
    "deploy",
    "forward",
    "forward_outputs",
    "pytree",
    "register",
    "static",
    "with_state",
]

DEPLOYMENTS = ("member", "mean_probs", "mean_logits", "gate")
MEMBER_SAMPLES = ("shared", "bootstrap", "subset", "split")


def coefficient(default: float, **kwargs) -> Any:
    """A sweepable field: a number, or an array with one entry per replica."""
    return dataclasses.field(default=default, **kwargs)


def static(default: Any) -> Any:
    """A structural field: part of the program, not of the data."""
    return dataclasses.field(default=default, metadata={"pytree_node": False})


T = TypeVar("T")
_UNREGISTERED: list[type] = []  # classes made while JAX is not loaded


@dataclass_transform()
def pytree(cls: type[T]) -> type[T]:
    """A frozen dataclass that is a pytree, as of `flax.struct.dataclass`.

    Presets are made without JAX. While it is not loaded, classes wait until a name of
    `churn_jax.methods` is used, as the engine does.
    """
    made = dataclasses.dataclass(frozen=True)(cls)
    made.replace = dataclasses.replace  # pyrefly: ignore[missing-attribute]
    _UNREGISTERED.append(made)
    if "jax" in sys.modules:
        register()
    return made


def register() -> None:
    """Makes pytrees of the classes that wait for JAX."""
    while _UNREGISTERED:
        cls: Any = _UNREGISTERED.pop()
        names: dict[bool, list[str]] = {True: [], False: []}
        for field in dataclasses.fields(cls):
            names[field.metadata.get("pytree_node", True)].append(field.name)
        jax.tree_util.register_dataclass(cls, names[True], names[False])


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
        pixel_mean: of the normalisation that made `images` of pixels, `(x - mean) /
            std`: a number or one per channel.
        pixel_std: likewise.
        memory: what the last update's `LossOutput.memory` was, `Method.init_memory`
            before the first; `()` for methods without.
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
        total = jnp.sum(jnp.where(self._valid(values), values, 0.0), axis=-1)
        return total if self.axis_name is None else jax.lax.psum(total, self.axis_name)

    def mean(self, values: jax.Array) -> jax.Array:
        """Masked mean over the examples of the *global* batch; `[..., B]` to `[...]`.

        Methods never call `jnp.mean` over examples: the mean of per-device means is
        another number when a shard holds padding.
        """
        count = self.sum(jnp.ones_like(self.mask))
        return self.sum(values) / jnp.maximum(count, 1.0)

    def member_mean(self, values: jax.Array) -> jax.Array:
        """Each member's mean over its own sample, `[M, B]` to `[M]`.

        `1/n sum_i w_mi v_mi`, over the n examples of the global batch and not over
        the sum of the weights: the weights' expectation is 1, so every example counts
        in expectation what it counts without weights, however small the batch.
        """
        if self.member_weights is None:
            return self.mean(values)
        # Selected, not only multiplied: what a member does not hold cannot reach it,
        # even where it is not finite.
        held = self.member_weights > 0
        return self.mean(jnp.where(held, self.member_weights * values, 0.0))

    def hide(self, array: jax.Array, *, axis: int) -> jax.Array:
        """`array` with zeros in the rows of padding along its example axis."""
        shape = [1] * array.ndim
        shape[axis] = -1
        return jnp.where(
            self.mask.reshape(shape) > 0, array, jnp.zeros((), array.dtype)
        )

    def _valid(self, values: jax.Array) -> jax.Array:
        lead = (1,) * (values.ndim - 1)
        return jnp.broadcast_to(self.mask.reshape(*lead, -1) > 0, values.shape)


@pytree
class LossOutput:
    """Result of `Method.loss`.

    Attributes:
        loss: the scalar that is differentiated.
        terms: scalars logged under their own names; a non-finite one is named when
            the replica is stopped.
        model_state: what `apply` returned (batch statistics).
        memory: what the next update is given as `Batch.memory`, of the same structure,
            shapes and dtypes. Values of the *global* batch and of all members, equal on
            every device: from `Batch.sum` and `Batch.mean`, or `psum`ed over
            `Batch.axis_name`. No gradient passes from one update to another.
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

    Args:
        apply: of all members.
        variables: of all members.
        batch: the batch; nothing changes where its mask is all ones.

    Returns:
        `(logits [M, B, C], labels [M, B], model_state)`.
    """
    outputs, labels, model_state = forward_outputs(apply, variables, batch)
    return outputs.logits, labels, model_state


def forward_outputs(
    apply: Apply, variables: PyTree, batch: Batch, extras: tuple[str, ...] = ()
) -> tuple[ensembles.Outputs, jax.Array, PyTree]:
    """Like `forward`, with everything that members return besides logits.

    A masked mean keeps padding out of the value, not out of the gradient: where a
    masked row is not finite, its zero cotangent becomes `0 * nan`. So padding enters
    the network as zeros and leaves it as zeros.

    Args:
        apply: of all members.
        variables: of all members.
        batch: the batch.
        extras: which of `features` and `part` are gathered from all members.

    Returns:
        `(Outputs(logits [M, B, C], ...), labels [M, B], model_state)`.
    """
    asked: dict[str, Any] = {"extras": extras} if extras else {}
    images = batch.hide(batch.images, axis=0)
    outputs, model_state = apply(variables, images, **asked)
    outputs = jax.tree.map(lambda leaf: batch.hide(leaf, axis=1), outputs)
    labels = jnp.broadcast_to(batch.labels, outputs.logits.shape[:-1])
    return outputs, labels, model_state


def with_state(variables: PyTree, model_state: PyTree) -> PyTree:
    """The variables with the model state that a first application has left.

    For methods that apply their members to more than one input per update, so that
    running batch statistics see all of them in order.

    Args:
        variables: of all members, as `Method.loss` is given them.
        model_state: as `apply` has returned it.
    """
    if isinstance(variables, (list, tuple)):
        pairs = zip(variables, model_state, strict=True)
        return [with_state(v, s) for v, s in pairs]
    return {**variables, **model_state}


Teacher = Callable[..., "Logits"]


@pytree
class Ramp:
    r"""How a coefficient grows from 0 during training.

    * `constant`: the full coefficient from the first step.
    * `linear`: `min(c t, beta)`, with `c = beta / steps`.
    * `step`: 0 until `steps` (the burn-in t0), the full coefficient after it.

    Attributes:
        kind: `constant`, `linear` or `step`.
        steps: length of the ramp, in optimiser steps.

    References:
        [reproducibility] Appendix C -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """

    kind: str = static("constant")
    steps: float = coefficient(0.0)

    def __post_init__(self):
        """Refuses an unknown kind."""
        if self.kind not in ("constant", "linear", "step"):
            raise ValueError(
                f"ramp must be constant, linear or step; got {self.kind!r}"
            )

    def __call__(self, value: ArrayLike, step: ArrayLike) -> jax.Array:
        """The coefficient `value` as it stands at `step` (0 is the first update)."""
        value = jnp.asarray(value, jnp.float32)
        step = jnp.asarray(step, jnp.float32)
        length = jnp.asarray(self.steps, jnp.float32)
        if self.kind == "linear":
            return value * jnp.clip((step + 1.0) / jnp.maximum(length, 1.0), 0.0, 1.0)
        if self.kind == "step":
            return jnp.where(step >= length, value, 0.0)
        return value


class Passes(NamedTuple):
    """How often an update applies networks to the batch.

    Attributes:
        training: passes of all members with the gradient in their weights.
        forward: forward passes of all members alone.
        input_gradients: passes of all members with the gradient in the input.
        teachers: forward passes of all teachers.
        drawn_teacher: passes of one teacher with the gradient in the input.
        teachers_input_gradients: passes of all teachers with the gradient in the input.
    """

    training: int = 1
    forward: int = 0
    input_gradients: int = 0
    teachers: int = 0
    drawn_teacher: int = 0
    teachers_input_gradients: int = 0


@pytree
class Method:
    """Base of all methods; the fields that every method has.

    Attributes:
        members: M, networks per replica that train together.
        deploy: what a replica predicts with: `member` (number `deployed_member`),
            `mean_probs` or `mean_logits` of its members, or `gate`, their mixture
            with learned weights, for methods that train a gate.
        deployed_member: which peer, for `deploy="member"`, counted from 0.
    """

    members: int = static(1)
    deploy: str = static("member")
    deployed_member: int = static(0)

    # Whether another method's trained replicas teach this one.
    needs_teacher = False
    # Whether `Method.loss` follows old models (`teacher.old`, `teacher.classify`):
    # `beside` a teacher or without one, or `alone`; empty where it never asks them.
    old_models = ""
    # What the trained weights depend on that `deploy="gate"` mixes members with; empty
    # for methods that train none.
    gate = ""
    # Whether each member has a sample of the training set to itself: `bootstrap`, or a
    # `subset` where the method has a field `member_share`; or its own part of every
    # batch, `split`, for networks whose members share weights and split the batch.
    member_sample = "shared"
    member_share = 1.0
    # Factor of the variance of the weights that the input meets first; a coefficient
    # where the method has a field of that name.
    input_scale = 1.0

    def __post_init__(self):
        """Checks structure; coefficients may be traced and are not looked at."""
        for name in ("members", "deployed_member"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ValueError(f"{name} must be a whole number; got {value!r}")
        if self.members < 1:
            raise ValueError(f"members must be at least 1; got {self.members}")
        if self.deploy not in DEPLOYMENTS:
            raise ValueError(
                f"deploy must be one of {', '.join(DEPLOYMENTS)}; got {self.deploy!r}"
            )
        if self.deploy == "gate" and not self.gate:
            raise ValueError(
                f"{type(self).__name__} trains no gate; deploy='gate' needs a method "
                "that does, such as AntiDistillation"
            )
        if not 0 <= self.deployed_member < self.members:
            raise ValueError(
                "deployed_member must be at least 0 and below members="
                f"{self.members}; got {self.deployed_member}"
            )
        if self.member_sample not in MEMBER_SAMPLES:
            raise ValueError(
                f"member_sample must be one of {', '.join(MEMBER_SAMPLES)}; got "
                f"{self.member_sample!r}"
            )
        if self.member_sample == "subset" and not any(
            field.name == "member_share" for field in dataclasses.fields(self)
        ):
            raise ValueError(
                f"{type(self).__name__} has no member_share, so its member_sample "
                "cannot be subset"
            )
        if self.member_sample != "subset" and self.member_share != 1.0:
            raise ValueError(
                f"member_share is of member_sample='subset'; got {self.member_share} "
                f"with {self.member_sample!r}"
            )
        if not 0.0 < self.member_share <= 1.0:
            raise ValueError(
                f"member_share must be above 0 and at most 1; got {self.member_share}"
            )

    def init_memory(self, num_classes: int) -> PyTree:
        """What the method remembers between updates, before the first one.

        A replica's running statistics, for example: arrays whose shapes depend on
        structure alone. The engine keeps one copy per replica, in every checkpoint,
        hands it to `loss` as `Batch.memory` and takes `LossOutput.memory` in exchange.

        Args:
            num_classes: C, the logits' last axis.

        Returns:
            A tree of arrays without a replica axis; `()` remembers nothing.
        """
        del num_classes
        return ()

    def loss(
        self,
        apply: Apply,
        variables: PyTree,
        batch: Batch,
        *,
        teacher: Teacher | None,
        step: jax.Array,
        key: jax.Array,
    ) -> LossOutput:
        """The training objective of one replica; see the subclasses."""
        raise TypeError(f"{type(self).__name__} defines no loss")

    @property
    def stale_steps(self) -> int:
        """T where members follow copies of each other made every T updates; else 0.

        The engine keeps the copies, and `teacher` answers for them.
        """
        return 0

    @property
    def passes(self) -> Passes:
        """What an update applies to the batch, for counting its arithmetic."""
        return Passes(
            forward=int(self.stale_steps > 0), teachers=int(self.needs_teacher)
        )

    @property
    def inference_cost(self) -> float:
        """Forward passes at deployment, in units of one network."""
        return 1.0 if self.deploy == "member" else float(self.members)


def deploy(
    method: Method, logits: Logits, log_weights: jax.Array | None = None
) -> Logits:
    """The deployed prediction of a replica, `[M, ..., C]` to `[..., C]`.

    Args:
        method: says what is deployed.
        logits: `[M, ..., C]`.
        log_weights: of the members, `[M, ...]`, for `deploy="gate"`.

    Raises:
        ValueError: a gate is deployed and the committee has none.
    """
    if method.deploy == "mean_probs":
        return ensembles.average_probs(logits)
    if method.deploy == "mean_logits":
        return ensembles.average_logits(logits)
    if method.deploy == "gate":
        if log_weights is None:
            raise ValueError(
                "deploy='gate' needs a gate in the committee: a Group(..., gate=True), "
                "or networks whose outputs have .gate"
            )
        return ensembles.gate(logits, log_weights)
    return logits[method.deployed_member].astype(jnp.float32)


def check_teacher(method: Method, student: str) -> None:
    """Refuses a teacher that its students would not see as it is deployed.

    Args:
        method: of the teacher.
        student: shown in the message.

    Raises:
        ValueError: the teacher weights its members by a learned gate.
    """
    if method.deploy == "gate":
        raise ValueError(
            f"{student}: an ensemble with a gate cannot teach, since students see its "
            "members and not their weights; deploy the teacher by mean_probs or "
            "mean_logits"
        )
