"""What a row learns from: an ensemble of its own, and models that are in use."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from churn_jax.ensembles import Group, with_temperature
from churn_jax.training.run import Trained
from churn_jax.typing import PyTree

__all__ = ["Tutors", "tutors_of"]


@dataclasses.dataclass(frozen=True, eq=False)
class Tutors:
    """A teacher's members, and old models beside them.

    Attributes:
        teacher: a trained method whose members teach; None where only old models do.
        old: deployed models of one network each, in the order of their versions.
        members: how many of the teacher's members teach, the first ones; 0 is all.
        groups: the teacher's committee where it is not the trained one's, such as one
            that computes in bfloat16; empty keeps it.
        temperatures: `[R, T]`, by which the members' logits are divided; None is 1.
        cached: `[R, 1, N, C]` the members' averaged logits on the N training examples
            (offline); the teacher is not run then, and may be unknown. None runs it in
            every update.
        repeats: the R replicas teach so many times R, one set after another: every
            point of a sweep has the same teachers.
    """

    teacher: Trained | None = None
    old: tuple[Trained, ...] = ()
    members: int = 0
    groups: tuple[Group, ...] = ()
    temperatures: np.ndarray | None = None
    cached: np.ndarray | None = None
    repeats: int = 1

    def __post_init__(self):
        """Checks what cannot teach."""
        if self.teacher is None and not self.old and self.cached is None:
            raise ValueError("somebody must teach: a teacher, or an old model")
        for trained in self.old:
            if trained.run.method.members != 1:
                raise ValueError(
                    f"{trained.run.name} deploys {trained.run.method.members} networks;"
                    " an old model is one"
                )
        if self.teacher is None:
            if self.members or self.temperatures is not None:
                raise ValueError("members and temperatures are of a teacher")
            return
        if not self.members:
            return
        sizes = [group.size for group in self.teacher.run.groups]
        heads = max(group.network.heads for group in self.teacher.run.groups)
        if not 0 <= self.members <= sum(sizes) or len(sizes) > 1 or heads > 1:
            raise ValueError(
                f"{self.teacher.run.name}: members must be 0 or some of one group of "
                f"networks, each of one member; got {self.members} of {sizes}"
            )

    def own_groups(self) -> tuple[Group, ...]:
        """The committee that is run in every update; none where logits are cached."""
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
        """One tree per group, on the host: `[R, S, ...]`, cached logits come first."""
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
        return tuple(_repeated(tree, self.repeats) for tree in (*own, *old))

    def _temperatures(self) -> list[np.ndarray]:
        """Of every group, `[R, S, K]` of S networks that yield K members each."""
        groups = self.own_groups()
        ends = np.cumsum([group.members for group in groups])[:-1]
        parts = np.split(np.asarray(self.temperatures, np.float32), ends, axis=1)
        return [
            part.reshape(len(part), group.size, group.network.heads)
            for part, group in zip(parts, groups, strict=True)
        ]

    @property
    def trained(self) -> tuple[Trained, ...]:
        """Everybody who teaches."""
        return (*(() if self.teacher is None else (self.teacher,)), *self.old)

    def identity(self) -> Mapping[str, Any]:
        """What a student's checkpoint knows them by."""
        found: dict[str, Any] = {}
        if self.teacher is not None:
            found = {"name": self.teacher.run.name, **json.loads(self.teacher.identity)}
        if self.old:
            old = [{"name": t.run.name, **json.loads(t.identity)} for t in self.old]
            found["old"] = {str(i): entry for i, entry in enumerate(old)}
        if self.members:
            found["members"] = str(self.members)
        if self.temperatures is not None:
            found["calibrated"] = "True"
        if self.cached is not None:
            found["offline"] = "True" if self.teacher else _digest(self.cached)
        if self.groups:
            found["taught_as"] = repr([g.network.name for g in self.groups])
        return found


def _digest(logits: np.ndarray) -> str:
    """What is known of logits whose networks are not."""
    return hashlib.sha256(np.ascontiguousarray(logits).data).hexdigest()


def _repeated(tree: PyTree, times: int) -> PyTree:
    """Leaves `[R, ...]` as `[times R, ...]`, one set of replicas after another."""
    if times == 1:
        return tree
    return jax.tree.map(lambda x: np.tile(x, (times,) + (1,) * (np.ndim(x) - 1)), tree)


def tutors_of(teacher: "Trained | Tutors | None") -> Tutors | None:
    """`Tutors` of whoever teaches; None where nobody does."""
    if teacher is None or isinstance(teacher, Tutors):
        return teacher
    return Tutors(teacher)
