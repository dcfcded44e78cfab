"""A training method is pure data and one pure `loss`.

A method is a frozen pytree dataclass. Array leaves are coefficients that may differ
between replicas (a grid is just more replicas); static fields are structure. The engine
calls `loss` for one replica, so inside it no leaf has a replica axis.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from churn_jax import ensembles
from churn_jax.lazy import jax, jnp
from churn_jax.methods.fields import (
    check_coefficients,
    check_whole,
    coefficient,
    pytree,
    static,
)
from churn_jax.registry import Registry
from churn_jax.setting_checks import check_fields, check_settings

if TYPE_CHECKING:
    from jax.typing import ArrayLike
    from jaxtyping import PyTree

    from churn_jax.methods.batch import Apply, Batch, LossOutput, Teacher
    from churn_jax.typing import Logits


DEPLOYMENTS = ("member", "mean_probs", "mean_logits", "gate")
MEMBER_SAMPLES = ("shared", "bootstrap", "subset", "split")


@pytree
class Ramp:
    r"""How a coefficient grows from 0 during training.

    * `constant`: the full coefficient from the first step.
    * `linear`: `min(c t, beta)` at update t = 1, 2, ..., `c = beta / steps`.
    * `step`: 0 in the first `steps` updates (the burn-in t0), then the full value.

    Attributes:
        kind: `constant`, `linear` or `step`.
        steps: length of the ramp, in optimiser steps.

    References:
        [reproducibility] Appendix C
    """

    kind: str = static("constant", of=("constant", "linear", "step"))
    steps: float = coefficient(0.0, "at least 0")

    def __post_init__(self):
        """Refuses an unknown kind, a negative length, and one without effect."""
        check_fields(self)
        check_coefficients(self)
        given = isinstance(self.steps, (int, float)) and self.steps
        if given and self.kind == "constant":
            raise ValueError(
                f"a constant ramp has no steps; got {self.steps}; set kind to linear "
                "or step"
            )

    def __call__(self, value: ArrayLike, step: ArrayLike) -> jax.Array:
        """The coefficient `value` at update number `step`, counted from 0."""
        value = jnp.asarray(value, jnp.float32)
        step = jnp.asarray(step, jnp.float32)
        length = jnp.asarray(self.steps, jnp.float32)
        if self.kind == "linear":
            return value * jnp.clip((step + 1.0) / jnp.maximum(length, 1.0), 0.0, 1.0)
        if self.kind == "step":
            return jnp.where(step >= length, value, 0.0)
        return value


class Passes(NamedTuple):
    """The passes of networks over the batch that one update takes."""

    training: int = 1  # passes of all members with the gradient in their weights
    forward: int = 0  # forward passes of all members alone
    input_gradients: int = 0  # passes of all members with the gradient in the input
    teachers: int = 0  # forward passes of all teachers
    drawn_teacher: int = 0  # passes of one teacher with the gradient in the input
    # passes of all teachers with the gradient in the input
    teachers_input_gradients: int = 0


@pytree
class Method:
    """Base of all methods, with the fields that every method has."""

    members: int = static(1)  # M, networks per replica that train together
    # way in which a replica predicts: `mean_probs` or `mean_logits` of its members, one
    # `member` (number `deployed_member`), or `gate`, their mixture with learned
    # weights, for methods that train a gate. One network predicts by itself.
    deploy: str = static("mean_probs")
    # number of the peer, for `deploy="member"`, counted from 0
    deployed_member: int = static(0)

    # Whether the trained replicas of another method teach this one.
    needs_teacher = False
    # The average of the teacher's members that an offline teacher keeps: of their
    # `logits` or `probs`; any other word if the method needs each member's logits.
    teacher_average = "logits"
    # Whether `loss` uses old models (`teacher.old`, `teacher.classify`): they are
    # `allowed`, with or without a teacher, or the `only` ones; empty for no old models.
    old_models = ""
    # What the learned weights of `deploy="gate"` depend on; empty for methods that
    # train no gate.
    gate = ""
    # Whether each member has its own sample of the training set: `bootstrap`, or a
    # `subset` where the method has a field `member_share`; or its own part of every
    # batch, `split`, for networks whose members share weights and split the batch.
    member_sample = "shared"
    member_share = 1.0
    # Factor of the variance of the first layer's weights; a coefficient where the
    # method has a field of that name.
    input_scale = 1.0
    # How the students' images are perturbed; see `Perturbing`.
    perturbation = "none"
    # Whether member m learns from the teacher's member m alone.
    one_to_one = False
    # How the members' losses are put together, `sum` or `mean`; see `ERM`.
    over_members = "sum"
    # The number of old models, where a method must know it beforehand; else 0.
    olds = 0

    def __post_init__(self):
        """Checks structure, and coefficients that are numbers, not traced arrays."""
        if "replace" not in vars(type(self)):  # which `pytree` gives to its class
            raise TypeError(
                f"the class {type(self).__name__} needs the decorator "
                "churn_jax.methods.pytree, as every method does"
            )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and field.type in ("int", "int | None", int):
                check_whole(field.name, value)
        known = {"deploy": DEPLOYMENTS, "member_sample": MEMBER_SAMPLES}
        check_settings(self, members=1, **known)
        check_fields(self)
        check_coefficients(self)
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
        if self.deployed_member and self.deploy != "member":
            raise ValueError(
                f"deployed_member={self.deployed_member} needs deploy='member'; got "
                f"deploy={self.deploy!r}"
            )
        share, subset = self.member_share, self.member_sample == "subset"
        if not 0.0 < share <= 1.0 or (share != 1.0 and not subset):
            raise ValueError(
                "member_share must be above 0 and at most 1, and is of "
                f"member_sample='subset'; got {share} with {self.member_sample!r}"
            )

    def check_inputs(self, images: Any) -> None:
        """Refuses inputs that the method cannot take."""
        del images

    def check_teaches(self, student: str) -> None:
        """Refuses a teacher with a gate, whose weights students do not see."""
        if self.deploy == "gate":
            raise ValueError(
                f"{student}: an ensemble with a gate cannot teach, since students see "
                "its members and not their weights; deploy the teacher by mean_probs "
                "or mean_logits"
            )

    def init_memory(self, num_classes: int) -> PyTree:
        """The method's memory between updates, before the first one.

        For example a replica's running statistics: arrays whose shapes depend on
        structure alone. The engine keeps one copy per replica and in every checkpoint,
        passes it to `loss` as `Batch.memory` and replaces it by `LossOutput.memory`.

        Args:
            num_classes: C, the logits' last axis.

        Returns:
            A tree of arrays without a replica axis; `()` remembers nothing.
        """
        del num_classes
        return ()

    def memory_of(self, batch: Batch, kind: type) -> Any:
        """The batch's memory, an instance of `kind`; a missing one is an error."""
        if not isinstance(batch.memory, kind):
            raise ValueError(
                f"{type(self).__name__} needs an engine that keeps the method's memory "
                "between updates; this one gave none"
            )
        return batch.memory

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
        """The training objective of one replica; a method defines it.

        Args:
            apply: applies all members of the replica; `forward` calls it.
            variables: variables of all members; the loss is differentiated in their
                `params`.
            batch: the images and labels of this device.
            teacher: the trained models to learn from, or None; `teacher_logits` and
                `old_logits` call it. For methods with `stale_steps` it is the members
                themselves, some updates ago.
            step: number of the update, from 0; `Ramp` takes it.
            key: key of the update, the same on every device.

        Returns:
            The loss, the terms to log, the model state that `apply` returned, and the
            new memory of methods that have one.
        """
        raise TypeError(f"{type(self).__name__} defines no loss")

    @property
    def is_independent(self) -> bool:
        """True if every member is trained on the labels alone: a deep ensemble."""
        return False

    @property
    def is_plain(self) -> bool:
        """True if the deployed network is trained on the labels alone, by itself.

        It is then the baseline of a sweep and is not trained twice. True only at
        coefficients at which nothing else reaches that network.
        """
        return False

    @property
    def stale_steps(self) -> int:
        """T where members follow copies of each other made every T updates; else 0.

        The engine keeps the copies; they are the `teacher` of `loss`.
        """
        return 0

    @property
    def passes(self) -> Passes:
        """The passes of an update, from which its arithmetic is counted."""
        stale, taught = self.stale_steps > 0, self.needs_teacher
        return Passes(forward=int(stale), teachers=int(taught))

    @property
    def inference_cost(self) -> float:
        """Forward passes at deployment, in units of one network."""
        return 1.0 if self.deploy == "member" else float(self.members)

    @property
    def deploys_a_mean(self) -> bool:
        """True if a replica predicts with the mean of several members."""
        return self.members > 1 and self.deploy in ("mean_probs", "mean_logits")


@pytree
class Updating(Method):
    """Base of the methods that learn from old models and have no other teacher."""

    needs_teacher = True
    old_models = "only"

    def check_old_models(self, teacher: Teacher | None) -> int:
        """The number of old models; raises without one, or with a teacher."""
        name = type(self).__name__
        if teacher is None or not teacher.olds:
            raise ValueError(f"{name} needs an old model; name one in teaching.old")
        if teacher.size:
            raise ValueError(
                f"{name} learns from old models alone; its row has a teacher too"
            )
        return teacher.olds


class Deployment(NamedTuple):
    """The fields that `deploy` reads; equal for methods that deploy alike."""

    deploy: str
    deployed_member: int


def deploy(
    method: Method | Deployment, logits: Logits, log_weights: jax.Array | None = None
) -> Logits:
    """The deployed prediction of a replica, `[M, ..., C]` to `[..., C]`.

    Args:
        method: its `deploy` says how.
        logits: `[M, ..., C]`.
        log_weights: log weights of the members, `[M, ...]`, for `deploy="gate"`.

    Raises:
        ValueError: a gate is deployed and the committee has none.
    """
    if len(logits) == 1:  # the mean would round its logits
        return logits[0].astype(jnp.float32)
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


_MODULES = {
    "ELODI": "elodi",
    "ERM": "erm",
    "RACT": "updating",
    "AntiDistillation": "anti_distillation",
    "BackwardCompatible": "updating",
    "BayesianUpdate": "bayesian_update",
    "ChurnConstraint": "churn_constraint",
    "Codistillation": "codistillation",
    "EnsembleDistillation": "ensemble_distillation",
    "EnsembleDistributionDistillation": "ensemble_distillation",
    "FocalDistillation": "focal_distillation",
    "MinimumEntropy": "erm",
    "OneToOneDistillation": "ensemble_distillation",
}

METHODS = Registry(
    "method",
    {name: f"churn_jax.methods.{file}:{name}" for name, file in _MODULES.items()},
    lambda value: isinstance(value, type) and issubclass(value, Method),
)
"""The classes of methods by name."""
