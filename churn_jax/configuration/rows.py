"""One row of a study: a method, its network, who teaches it, how it is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from churn_jax import ensembles, models
from churn_jax.configuration.codec import replaced
from churn_jax.configuration.network import DTYPES, ModelConfig
from churn_jax.configuration.training import TrainConfig
from churn_jax.methods.base import Method
from churn_jax.setting_checks import check_fields, check_none, setting


@dataclasses.dataclass(frozen=True)
class Teaching:
    """How a row is taught.

    Attributes:
        old: rows that are deployed already, one network each, in the order of their
            versions; the method learns from them in addition to its teacher or instead.
        members: number of the teacher's members that teach, the first ones; 0 is all.
        offline: the average of the teacher's members is computed once, on the training
            examples as they are stored, instead of in every update on what the
            student sees.
        calibrated: every member's logits are divided by the temperature that fits it
            best on the validation split, before they are averaged.
        dtype: type that the teacher computes in, `float32` or `bfloat16`; empty is what
            it was trained in.
        logits: path of a `predictions.npz` of the training examples, or of a folder of
            their shards, of one run or of as many as the study has, that teaches
            instead of a row: a network of any framework. Its examples are found by
            their ids.
        neighbours: the offline teacher's logits only say which training examples are
            near each other, and the labels of the k nearest ones teach, as
            `churn_jax.methods.neighbour_targets` says; 0 is the logits themselves.
        uniform: share of the uniform distribution in what neighbours teach.

    References:
        [elodi] Sec. 5.5 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """

    old: tuple[str, ...] = ()
    members: int = setting(0, of=0)
    offline: bool = False
    calibrated: bool = False
    dtype: str = setting("", of=("", *DTYPES))
    logits: str = ""
    neighbours: int = setting(0, of=0)
    uniform: float = 0.0

    def __post_init__(self):
        """Checks what needs no study."""
        check_fields(self, "teaching.")
        check_none(
            "",
            (
                (self.neighbours and not self.offline)
                or (self.uniform and not self.neighbours),
                "teaching.neighbours needs teaching.offline=True, and teaching.uniform "
                f"needs neighbours; got {self.neighbours}, {self.offline} and "
                f"{self.uniform}",
            ),
            (
                not 0.0 <= self.uniform <= 1.0,
                f"teaching.uniform must be from 0 to 1; got {self.uniform}",
            ),
            (
                len(set(self.old)) != len(self.old),
                f"teaching.old names a row twice: {', '.join(self.old)}",
            ),
        )


@dataclasses.dataclass(frozen=True)
class MethodSpec:
    """One row of the study's table.

    Attributes:
        name: folder name.
        label: shown in tables.
        method: with its coefficients.
        equation: where it comes from, `[key] Eq. N`.
        teacher: name of the method that teaches it, or None.
        models: committee of several architectures, `((network, size), ...)`; a network
            is a name, with the row's other options, or a `ModelConfig`, so that members
            may differ in width or in what they see of the input. Empty means `members`
            networks of the row's model.
        train: settings of this row in place of the study's `TrainConfig`, by dotted
            path: `(("seeds.init", "fixed"), ("optimizer.weight_decay", 0.0))`.
        train_size: keep so many training examples for this row, a prefix of the
            study's training split in its fixed order; None keeps all.
        model: network of this row instead of the study's, a `ModelConfig` or a name;
            None is the study's.
        separate: every member is a network of its own, even if the model says that
            members share weights (`ModelConfig.sharing`).
        teaching: see `Teaching`.
        classes: ids of the classes that the row is trained on and knows, increasing;
            empty is all of them. Logits of the others are `UNKNOWN_LOGIT`.
        class_share: share of every class's training examples, the first ones in the
            study's fixed order.
        start: name of the row with whose weights and moments of pixels training starts.
        keep: share of those weights in the deployed ones; see `interpolate_weights`.
    """

    name: str
    label: str
    method: Method
    equation: str = ""
    teacher: str | None = None
    models: tuple[tuple[str | ModelConfig, int], ...] = ()
    train: tuple[tuple[str, Any], ...] = ()
    train_size: int | None = None
    model: ModelConfig | None = None
    separate: bool = False
    teaching: Teaching = Teaching()
    classes: tuple[int, ...] = ()
    class_share: float = 1.0
    start: str = ""
    keep: float = 0.0

    def __post_init__(self):
        """Checks what needs no study."""
        if isinstance(self.model, str):
            object.__setattr__(self, "model", ModelConfig(self.model))
        teaching, kind = self.teaching, type(self.method).__name__
        own = (teaching.members, teaching.offline, teaching.calibrated, teaching.dtype)
        named, old = self.teacher or teaching.logits, teaching.old
        cached = teaching.offline or teaching.logits
        olds = self.method.olds
        check_none(
            self.name,
            (
                not 0.0 < self.class_share <= 1.0,
                f"class_share must be above 0 and at most 1; got {self.class_share}",
            ),
            (not 0.0 <= self.keep <= 1.0, f"keep must be from 0 to 1; got {self.keep}"),
            (
                self.keep and not self.start,
                f"keep={self.keep} needs weights that training starts from; name their "
                "row as start",
            ),
            (
                teaching.logits and self.teacher is not None,
                "a file of logits teaches instead of a row, but teacher is "
                f"{self.teacher}",
            ),
            (
                named and not (self.method.needs_teacher or self.method.old_models),
                f"{kind} learns nothing from a teacher (needs_teacher is False); leave "
                f"out {named}",
            ),
            (
                self.teacher is None and any(own),
                "teaching.members, offline, calibrated and dtype are of a teacher; it "
                "has none",
            ),
            (
                old and not self.method.old_models,
                f"{kind} learns nothing from old models; teaching.old names "
                f"{', '.join(old)}",
            ),
            (
                self.method.old_models == "only" and named,
                f"{kind} learns from old models alone; {named} is named as its teacher",
            ),
            (
                old and olds not in (0, len(old)),
                f"olds={olds}, but teaching.old names {', '.join(old)}",
            ),
            (
                cached and self.method.perturbation != "none",
                "an offline teacher has not seen perturbed images",
            ),
            (
                cached and self.method.teacher_average not in ("logits", "probs"),
                f"{kind}, set like this, needs the logits of each of the teacher's "
                "members; leave out teaching.offline and teaching.logits",
            ),
        )

    @property
    def taught(self) -> bool:
        """True if the row learns from a teacher, old models or a file of logits."""
        return bool(self.teacher or self.teaching.old or self.teaching.logits)

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Names of all rows that must be trained before this one."""
        teacher = () if self.teacher is None else (self.teacher,)
        start = (self.start,) if self.start else ()
        return tuple(dict.fromkeys((*teacher, *self.teaching.old, *start)))

    def config(self, train: TrainConfig) -> TrainConfig:
        """How this row is trained: the study's `train` with the row's changes."""
        try:
            return replaced(train, self.train)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.name}: {error}") from error

    def with_networks(self, change: Callable[[ModelConfig], ModelConfig]) -> MethodSpec:
        """The row with each network of its own changed; others are only named."""
        parts = tuple(
            (part if isinstance(part, str) else change(part), size)
            for part, size in self.models
        )
        model = None if self.model is None else change(self.model)
        return dataclasses.replace(self, model=model, models=parts)

    def computing_in(self, dtype: str, model: ModelConfig) -> MethodSpec:
        """The row with networks of another dtype; `model` is the study's."""
        whole = dataclasses.replace(self, model=self.model or model)
        return whole.with_networks(lambda one: dataclasses.replace(one, dtype=dtype))

    def groups(
        self, model: ModelConfig, num_classes: int
    ) -> tuple[ensembles.Group, ...]:
        """The committee of one replica; `model` is the study's.

        A method that deploys a gate gets one: linear in the flattened input, or
        constant, with separate weights for every member. Where the model says that
        members share weights, there are as many networks as it takes to yield them all.
        """
        model = self.model or model
        gate = ()
        if self.method.deploy == "gate":
            kind = self.method.gate
            module = models.Gate(1, constant=kind == "constant")
            network = ensembles.from_linen(module, name=f"{kind} gate")
            gate = (ensembles.Group(network, self.method.members, gate=True),)
        parts = self.models or ((model, self.method.members),)
        built = []
        for part, size in parts:
            # A part that is only named takes the options of the row's network.
            named = isinstance(part, str)
            own = dataclasses.replace(model, name=part, features=()) if named else part
            if self.separate:
                own = dataclasses.replace(own, sharing=None)
            outputs = len(self.classes) or num_classes
            try:
                network = own.build(outputs, size)
                if self.classes:
                    network = ensembles.with_classes(network, self.classes, num_classes)
            except ValueError as error:
                raise ValueError(f"{self.name}: {error}") from error
            built.append(ensembles.Group(network, size // own.heads(size)))
        return (*built, *gate)


def coefficient_names(method: Any) -> list[str]:
    """Dotted names of a method's coefficients, those of its ramps among them."""
    names: list[str] = []
    for field in dataclasses.fields(method):
        if field.metadata.get("pytree_node", True):
            value = getattr(method, field.name)
            own = dataclasses.is_dataclass(value)
            inner = [f".{name}" for name in coefficient_names(value)] if own else [""]
            names += [f"{field.name}{name}" for name in inner]
    return names


def averaged_name(name: str) -> str:
    """Name of the row with a method's averaged weights (`TrainConfig.ema_decay`)."""
    return f"{name}_ema"
