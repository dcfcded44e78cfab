"""The teachers of a row: trained models on the host, and functions in the step."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax.ensembles import Group, Outputs, apply_committee
from churn_jax.ensembles import mapping as slots
from churn_jax.ensembles.wrappers import with_temperature
from churn_jax.training.partition import MEMBER, REPLICA
from churn_jax.typing import Array, Logits

if TYPE_CHECKING:
    from churn_jax.training.run import Trained


@dataclasses.dataclass(frozen=True, eq=False)
class Teachers:
    """What a row learns from: a teacher or its cached logits, old models, or both."""

    # a trained method whose members teach; None with old models only
    teacher: "Trained | None" = None
    # deployed models of one network each, in the order of their versions
    old: "tuple[Trained, ...]" = ()
    members: int = 0  # number of members that teach, counted from the first; 0 for all
    # networks in place of the teacher's, such as ones that compute in bfloat16; empty
    # for the teacher's own
    groups: tuple[Group, ...] = ()
    # divisors `[R, T]` of the members' logits; None for 1. Unused with `cached`.
    temperatures: np.ndarray | None = None
    # `[R, 1, N, C]` logits of the members' average on the N training examples
    # (offline); the teacher is then not run and need not be given. None to run it in
    # every update.
    cached: np.ndarray | None = None
    # what temperatures and cached logits are, for `identity`, where the teacher decides
    # their values; empty identifies them by the values
    targets: str = ""
    # how often the R replicas are repeated, one set after another: every point of a
    # sweep has the same teachers
    repeats: int = 1

    def __post_init__(self):
        """Refuses combinations that cannot teach."""
        if self.teacher is None and not self.old and self.cached is None:
            raise ValueError("Teachers needs a teacher, an old model or cached logits")
        for trained in self.old:
            if trained.run.method.members != 1:
                raise ValueError(
                    "an old model is trained as one network; "
                    f"{trained.run.name} trains {trained.run.method.members}"
                )
        if self.teacher is None:
            if self.members or self.temperatures is not None:
                raise ValueError("members and temperatures need a teacher")
            return
        if not self.members:
            return
        sizes = [group.size for group in self.teacher.run.groups]
        heads = max(group.network.heads for group in self.teacher.run.groups)
        if not 0 <= self.members <= sum(sizes) or len(sizes) > 1 or heads > 1:
            raise ValueError(
                f"{self.teacher.run.name}: members needs one group of single networks "
                f"and at most its size; got {self.members}, groups of {sizes}"
            )

    def own_groups(self) -> tuple[Group, ...]:
        """The committee that is run in every update; empty where logits are cached."""
        if self.teacher is None or self.cached is not None:
            return ()
        groups = self.groups or self.teacher.run.groups
        if self.members:
            groups = (Group(groups[0].network, self.members),)
        if self.temperatures is not None:
            groups = tuple(Group(with_temperature(g.network), g.size) for g in groups)
        return groups

    def old_groups(self) -> tuple[Group, ...]:
        """One group of one network per old model."""
        return tuple(group for trained in self.old for group in trained.run.groups)

    def variables(self) -> tuple[PyTree, ...]:
        """One tree `[R, S, ...]` per group, on the host; cached logits come first."""
        own: list[PyTree] = []
        if self.cached is not None:
            own.append({"logits": self.cached})
        elif self.teacher is not None:
            own = list(self.teacher.teacher_variables())
            if self.members:
                own = [jax.tree.map(lambda leaf: leaf[:, : self.members], own[0])]
            if self.temperatures is not None:
                cooled = zip(own, self._temperatures(), strict=True)
                own = [{**v, "temperature": t} for v, t in cooled]
        old = [v for trained in self.old for v in trained.teacher_variables()]
        return repeated((*own, *old), self.repeats)

    def _temperatures(self) -> list[np.ndarray]:
        """One `[R, S, K]` per group: S networks that yield K members each."""
        groups = self.own_groups()
        ends = np.cumsum([group.members for group in groups])[:-1]
        parts = np.split(np.asarray(self.temperatures, np.float32), ends, axis=1)
        return [
            part.reshape(len(part), group.size, group.network.heads)
            for part, group in zip(parts, groups, strict=True)
        ]

    @property
    def trained(self) -> "tuple[Trained, ...]":
        """The teacher, if there is one, and the old models."""
        return (*(() if self.teacher is None else (self.teacher,)), *self.old)

    def identity(self) -> Mapping[str, Any]:
        """A mapping that identifies the teachers in a student's checkpoint."""
        found: dict[str, Any] = {}
        if self.teacher is not None:
            found = {"name": self.teacher.run.name, **json.loads(self.teacher.identity)}
        if self.old:
            old = [{"name": t.run.name, **json.loads(t.identity)} for t in self.old]
            found["old"] = {str(i): entry for i, entry in enumerate(old)}
        if self.members:
            found["members"] = str(self.members)
        if self.temperatures is not None:
            found["calibrated"] = "True" if self.targets else _digest(self.temperatures)
        if self.cached is not None:
            found["offline"] = self.targets or _digest(self.cached)
        if self.groups:
            found["taught_as"] = repr([g.network.name for g in self.groups])
        return found


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()


def repeated(tree: PyTree, times: int) -> PyTree:
    """Host arrays `[times * R, ...]`: the R replicas repeated as a block."""
    if times == 1:
        return tree
    return jax.tree.map(
        lambda leaf: np.tile(leaf, (times,) + (1,) * (np.ndim(leaf) - 1)), tree
    )


def as_teachers(teacher: "Trained | Teachers | None") -> Teachers | None:
    """One trained method as `Teachers`; None stays None."""
    if teacher is None or isinstance(teacher, Teachers):
        return teacher
    return Teachers(teacher)


@dataclasses.dataclass(frozen=True)
class TeacherProgram:
    """The structure of a replica's teachers, compiled into the step."""

    groups: tuple[Group, ...]  # the teacher's committee, followed by the old models
    # Whether every group of the committee is sharded over the mesh's member axis;
    # otherwise each device holds all of its replica's teachers, as it always holds all
    # old models.
    sharded: bool
    mapping: str = "vmap"  # of the networks on one device
    old: int = 0  # how many of the groups, the last ones, are old models
    cached: bool = False  # the first tree is a table of logits by training example

    @property
    def spec(self) -> tuple[P, ...]:
        """Placement of leaves `[R, T, ...]`, one entry per tree of variables."""
        own = P(REPLICA, MEMBER) if self.sharded else P(REPLICA)
        return (own,) * (len(self.own) + self.cached) + (P(REPLICA),) * self.old

    @property
    def own(self) -> tuple[Group, ...]:
        """The teacher's committee."""
        return self.groups[: len(self.groups) - self.old]


@dataclasses.dataclass(frozen=True, eq=False)
class Teacher:
    """The `teacher` that `Method.loss` is given, inside `shard_map`; in eval mode."""

    program: TeacherProgram
    # One tree per group, leaves [T, ...] (local), or a list of T trees; cached logits
    # first.
    variables: tuple[PyTree, ...]
    member_devices: int  # size of the member axis
    rows: Array | None = None  # [B], the batch's rows of cached logits

    @property
    def size(self) -> int:
        """Number of members that answer `teacher(images)`; 0 with old models only."""
        own = sum(group.members for group in self.program.own)
        return 1 if self.program.cached else own

    @property
    def olds(self) -> int:
        """Number of old models."""
        return self.program.old

    def __call__(self, images: Array, pick: int | Array | None = None) -> Logits:
        """Logits `[T, B, C]` of the teacher's members; gradients flow to the images.

        With `pick`, the number of one teacher (may be traced), `[B, C]`. A cached
        teacher answers for the examples as they are in the training set, without
        augmentation or perturbation.
        """
        if not self.size:
            raise ValueError("there is no teacher, only old models: call .old(images)")
        if self.program.cached:
            table = self.variables[0]["logits"]
            if self.rows is None:
                raise ValueError("cached logits need the batch's rows (Batch.rows)")
            logits = jnp.take(table, self.rows, axis=1, mode="clip")
            return logits if pick is None else logits[pick]
        groups, sharded = self.program.own, self.program.sharded
        if pick is None or len(groups) > 1 or groups[0].network.heads > 1:
            own = list(zip(groups, self.variables))
            every = self._apply(own, images, sharded=sharded)
            return every if pick is None else every[pick]
        network = groups[0].network
        local = groups[0].size // (self.member_devices if sharded else 1)
        first = jax.lax.axis_index(MEMBER) * local if sharded else 0
        here = jnp.clip(pick - first, 0, local - 1)
        every = self.variables[0]
        stacked = slots.stack(every) if isinstance(every, list) else every
        chosen = jax.tree.map(lambda v: jnp.take(v, here, axis=0), stacked)
        logits = network.apply(chosen, images, train=False)[0].logits
        if not sharded:
            return logits
        # Only the device that holds the picked teacher contributes; its gradient in
        # the images is the one image-sized sum over members.
        mine = (pick >= first) & (pick < first + local)
        return jax.lax.psum(jnp.where(mine, logits, 0.0), MEMBER)

    def old(self, images: Array) -> Logits:
        """Logits `[O, B, C]` of the old models, in the order of their versions."""
        return self._apply(self._old(), images, sharded=False)

    def classify(self, features: Array) -> Logits:
        """Logits `[O, B, C]` of the old models' last layers on features `[B, D]`.

        A layer of input width d uses the first d columns.
        """
        groups = []
        for group, variables in self._old():
            network = group.network
            if (head := network.head) is None:
                raise ValueError(
                    f"the last layer of {network.name} is not known (Network.head), so "
                    "it cannot classify the features of another network"
                )

            def apply(variables, features, head=head, **kwargs):
                del kwargs
                return Outputs(head(variables, features)), {}

            layer = dataclasses.replace(network, apply=apply)
            groups.append((Group(layer, group.size), variables))
        return self._apply(groups, features, sharded=False)

    def _old(self) -> list[tuple[Group, PyTree]]:
        count = self.program.old
        if not count:
            raise ValueError("there is no old model; name one in teaching.old")
        return list(zip(self.program.groups[-count:], self.variables[-count:]))

    def _apply(
        self, networks: list[tuple[Group, PyTree]], images: Array, *, sharded: bool
    ) -> Logits:
        return apply_committee(
            [group for group, _ in networks],
            [variables for _, variables in networks],
            images,
            member_axis=MEMBER if sharded else None,
            mapping=self.program.mapping,
            train=False,
        )[0].logits


def one_by_one(program: TeacherProgram, variables: PyTree) -> tuple[PyTree, ...]:
    """A replica's teachers as lists of networks, where they are unrolled."""
    # Unstacked once for all updates of a call: copying a dense network's weights out of
    # the stacked ones takes a good part of its forward pass.
    cached = int(program.cached)
    if program.mapping != "unroll":
        return tuple(variables)
    lists = [
        slots.unstack(tree, jax.tree.leaves(tree)[0].shape[0])
        for tree in variables[cached:]
    ]
    return (*variables[:cached], *lists)
