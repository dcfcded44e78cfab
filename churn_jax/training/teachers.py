"""Trained networks as a function of the image, on the mesh and differentiable."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from churn_jax.ensembles import Group, Outputs, apply_committee
from churn_jax.ensembles import mapping as slots
from churn_jax.training.partition import MEMBER, REPLICA
from churn_jax.typing import Array, Logits, PyTree

__all__ = [
    "Teacher",
    "TeacherProgram",
    "make_teacher",
    "one_by_one",
    "teacher_program",
]


@dataclasses.dataclass(frozen=True)
class TeacherProgram:
    """A teacher's structure.

    Attributes:
        groups: its committee, and after it that of the old models.
        sharded: whether every group of the committee is sharded over the mesh's member
            axis; else each device holds all of its replica's teachers. It always holds
            all old models, of which each is one network.
        mapping: of the networks on one device.
        old: how many of the groups, the last ones, are old models.
        cached: whether the teacher is a table of logits by training example, which
            comes before the groups' variables.
    """

    groups: tuple[Group, ...]
    sharded: bool
    mapping: str = "vmap"
    old: int = 0
    cached: bool = False

    @property
    def spec(self) -> tuple[P, ...]:
        """How every group's leaves `[R, T, ...]` lie on the mesh, cached logits first.

        One entry per tree of variables.
        """
        own = P(REPLICA, MEMBER) if self.sharded else P(REPLICA)
        return (own,) * (len(self.own) + self.cached) + (P(REPLICA),) * self.old

    @property
    def own(self) -> tuple[Group, ...]:
        """The teacher's committee."""
        return self.groups[: len(self.groups) - self.old]


def teacher_program(
    groups: tuple[Group, ...],
    member_devices: int,
    mapping: str,
    *,
    old: int = 0,
    cached: bool = False,
) -> TeacherProgram:
    """Shards the teachers where the member axis divides every group of theirs."""
    own = groups[: len(groups) - old]
    sharded = bool(own) and all(g.size % member_devices == 0 for g in own)
    return TeacherProgram(groups, sharded, mapping, old, cached)


@dataclasses.dataclass(frozen=True, eq=False)
class Teacher:
    """What one replica learns from, inside `shard_map`; eval mode throughout.

    Attributes:
        program: structure.
        variables: one tree per group, leaves `[T, ...]` (local), or a list of T trees;
            cached logits first.
        member_devices: size of the member axis.
        rows: `[B]` which training examples the batch holds, for cached logits.
    """

    program: TeacherProgram
    variables: PyTree
    member_devices: int
    rows: Array | None = None

    @property
    def size(self) -> int:
        """How many members `teacher(images)` answers for; 0 with old models alone."""
        own = sum(group.members for group in self.program.own)
        return 1 if self.program.cached else own

    @property
    def olds(self) -> int:
        """How many old models there are."""
        return self.program.old

    def __call__(self, images: Array, pick: int | Array | None = None) -> Logits:
        """Logits `[T, B, C]` of the teacher's members; gradients flow to the images.

        Args:
            images: `[B, ...]`; a cached teacher answers for the batch's examples as
                they are in the training set, whatever has been done to them since.
            pick: number of one teacher (may be traced), for `[B, C]`.

        Raises:
            ValueError: there are only old models.
        """
        if not self.size:
            raise ValueError("old models teach here, and no teacher beside them")
        if self.program.cached:
            table = self.variables[0]["logits"]
            if self.rows is None:
                raise ValueError("cached logits need the batch's rows (Batch.rows)")
            logits = jnp.take(table, self.rows, axis=1, mode="clip")
            return logits if pick is None else logits[pick]
        return self._every(images) if pick is None else self._one(images, pick)

    def old(self, images: Array) -> Logits:
        """Logits `[O, B, C]` of the old models, in the order of their versions."""
        return self._apply(self._old(), images, sharded=False)

    def classify(self, features: Array) -> Logits:
        """Logits `[O, B, C]` of the old models' last layers, given others' features.

        Args:
            features: `[B, D]`; the first `D_old` columns are used.

        Raises:
            ValueError: an old model is wider than the features, or its last layer is
                not known.
        """
        groups = []
        for group, variables in self._old():
            network = group.network
            if (head := network.head) is None:
                raise ValueError(
                    f"the last layer of {network.name} is not known (Network.head), so "
                    "it cannot classify the features of another network"
                )
            layer = dataclasses.replace(network, apply=_head_alone(head))
            groups.append((Group(layer, group.size), variables))
        return self._apply(groups, features, sharded=False)

    def _old(self) -> list[tuple[Group, PyTree]]:
        count = self.program.old
        if not count:
            raise ValueError("there is no old model; name one in teaching.old")
        return list(zip(self.program.groups[-count:], self.variables[-count:]))

    def _own(self) -> list[tuple[Group, PyTree]]:
        return list(zip(self.program.own, self.variables))

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

    def _every(self, images: Array) -> Logits:
        return self._apply(self._own(), images, sharded=self.program.sharded)

    def _one(self, images: Array, pick: int | Array) -> Logits:
        groups = self.program.own
        if len(groups) > 1 or groups[0].network.heads > 1:
            return self._every(images)[pick]
        network, sharded = groups[0].network, self.program.sharded
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


def one_by_one(program: TeacherProgram, variables: PyTree) -> tuple[PyTree, ...]:
    """A replica's teachers as lists of networks, where they are unrolled.

    Taken apart once for all updates of a call: of a dense network, copying the weights
    out of the stacked ones takes a good part of its forward pass.
    """
    cached = int(program.cached)
    if program.mapping != "unroll":
        return tuple(variables)
    lists = [
        slots.unstack(tree, jax.tree.leaves(tree)[0].shape[0])
        for tree in variables[cached:]
    ]
    return (*variables[:cached], *lists)


def _head_alone(head: Callable[[PyTree, Array], Logits]):
    """A network's last layer as the `apply` of a network whose input is features."""

    def apply(variables, features, **kwargs):
        del kwargs
        return Outputs(head(variables, features)), {}

    return apply


def make_teacher(
    program: TeacherProgram,
    variables: PyTree,
    member_devices: int,
    rows: Array | None = None,
) -> Teacher:
    """The `Teacher` of one replica, inside `shard_map`."""
    return Teacher(program, tuple(variables), member_devices, rows)
