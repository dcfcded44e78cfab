"""Trained networks as a function of the image, on the mesh and differentiable."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from churn_jax.ensembles import Group, apply_committee
from churn_jax.methods import Method
from churn_jax.training.partition import MEMBER, REPLICA
from churn_jax.typing import Logits, PyTree

__all__ = ["TeacherProgram", "check_teacher", "make_teacher", "teacher_program"]


@dataclasses.dataclass(frozen=True)
class TeacherProgram:
    """A teacher's structure.

    Attributes:
        groups: its committee.
        sharded: whether every group is sharded over the mesh's member axis; else
            each device holds all of its replica's teachers.
        mapping: of the networks on one device.
    """

    groups: tuple[Group, ...]
    sharded: bool
    mapping: str = "vmap"

    @property
    def spec(self) -> P:
        """Leaves are `[R, T, ...]`."""
        return P(REPLICA, MEMBER) if self.sharded else P(REPLICA)


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


def teacher_program(
    groups: tuple[Group, ...], member_devices: int, mapping: str
) -> TeacherProgram:
    """Shards the teachers where the member axis divides every group."""
    sharded = all(group.size % member_devices == 0 for group in groups)
    return TeacherProgram(groups, sharded, mapping)


def make_teacher(
    program: TeacherProgram, variables: PyTree, member_devices: int
) -> Callable[..., Logits]:
    """`teacher(images, pick=None)` for one replica, inside `shard_map`.

    Args:
        program: structure.
        variables: one tree per group, leaves `[T, ...]` (local).
        member_devices: size of the member axis.

    Returns:
        A function of images `[B, ...]` to logits `[T, B, C]`, or with `pick`, the
        number of one teacher (may be traced), to `[B, C]`. Eval mode; gradients flow
        to the images.
    """

    def every(images):
        return apply_committee(
            program.groups,
            list(variables),
            images,
            member_axis=MEMBER if program.sharded else None,
            mapping=program.mapping,
            train=False,
        )[0].logits

    def one(images, pick):
        if len(program.groups) > 1 or program.groups[0].network.heads > 1:
            return every(images)[pick]
        network = program.groups[0].network
        local = program.groups[0].size // (member_devices if program.sharded else 1)
        first = jax.lax.axis_index(MEMBER) * local if program.sharded else 0
        here = jnp.clip(pick - first, 0, local - 1)
        chosen = jax.tree.map(lambda v: jnp.take(v, here, axis=0), variables[0])
        logits = network.apply(chosen, images, train=False)[0].logits
        if not program.sharded:
            return logits
        # Only the device that holds the picked teacher contributes; its gradient in
        # the images is the one image-sized sum over members.
        mine = (pick >= first) & (pick < first + local)
        return jax.lax.psum(jnp.where(mine, logits, 0.0), MEMBER)

    def teacher(images, pick=None):
        return every(images) if pick is None else one(images, pick)

    return teacher
