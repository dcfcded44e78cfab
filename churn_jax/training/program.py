"""Everything about a run that is compiled into its step."""

import dataclasses
from collections.abc import Callable

from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike

from churn_jax.configuration.training import OptimizerConfig
from churn_jax.data.augment import Augmentation
from churn_jax.ensembles import Group
from churn_jax.training.partition import DATA, MEMBER, REPLICA
from churn_jax.training.teachers import TeacherProgram

__all__ = ["Program"]


@dataclasses.dataclass(frozen=True)
class Program:
    """A run's structure; what differs between replicas is in `ReplicaInputs`.

    Attributes:
        groups: the committee of one replica.
        optimizer: structure of the optimiser.
        schedule: factor of the learning rate by update.
        batch_size: examples per update and replica, over all data shards.
        mesh: `("replica", "member", "data")`.
        mapping: of replicas: `vmap`, `unroll` or `loop`.
        at_once: replicas of a device that a call of `loop` takes, vmapped.
        member_mapping: of a replica's networks: `vmap` or `unroll`.
        augmentation: policy; None is none.
        mean: of pixels in [0, 1], a number or one per channel.
        std: likewise.
        teacher: the teacher's networks, or None.
        stale_steps: every how many updates the copies are refreshed that members
            follow; 0 keeps none.
        ema_decay: of the moving average of the weights; 0 keeps none.
        feed: what the step's images and labels are: the whole training set
            (`resident`), a batch for all replicas (`shared`), or a batch for each
            (`own`).
        example_shape: of one example; resident ones lie flat, see `flat_examples`.
        convolutional: whether a network convolves, so that vmapped replicas can
            spoil each other's gradients; see `vmapped_gradients`.
    """

    groups: tuple[Group, ...]
    optimizer: OptimizerConfig
    schedule: Callable[[ArrayLike], ArrayLike]
    batch_size: int
    mesh: Mesh
    mapping: str = "vmap"
    at_once: int = 1
    member_mapping: str = "vmap"
    augmentation: Augmentation | None = None
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    teacher: TeacherProgram | None = None
    convolutional: bool = True
    stale_steps: int = 0
    ema_decay: float = 0.0
    feed: str = "resident"
    example_shape: tuple[int, ...] = ()

    def __post_init__(self):
        """Checks that the mesh divides what it shards."""
        shape = dict(self.mesh.shape)
        if self.batch_size % shape[DATA]:
            raise ValueError(
                f"batch_size {self.batch_size} is not divisible by the mesh's data "
                f"axis, {shape[DATA]}"
            )
        for group in self.groups:
            if group.size % shape[MEMBER] and not self.replicated:
                raise ValueError(
                    f"{group.size} networks of {group.network.name} cannot be sharded "
                    f"over a member axis of {shape[MEMBER]} devices"
                )
        rates = self.optimizer.member_rates
        networks = sum(group.size for group in self.groups)
        if rates and len(rates) != networks:
            raise ValueError(
                f"member_rates must be empty or one per network of a replica, "
                f"{networks}; got {len(rates)}"
            )

    @property
    def replicated(self) -> bool:
        """Whether each device along the member axis holds all networks of its replicas.

        So one network whose members share weights, or one that is taught, can be on a
        mesh whose member axis shards its teachers.
        """
        devices = self.mesh.shape[MEMBER]
        one = len(self.groups) == 1 and self.groups[0].size == 1
        return one and devices > 1 and self._may_replicate

    @property
    def _may_replicate(self) -> bool:
        return self.groups[0].network.heads > 1 or self.teacher is not None

    @property
    def member_axis(self) -> str | None:
        """The mesh axis over which networks are sharded; None where they are not."""
        return None if self.replicated else MEMBER

    @property
    def member_devices(self) -> int:
        """Over how many devices a replica's networks are shared out."""
        return 1 if self.replicated else self.mesh.shape[MEMBER]

    @property
    def slots(self) -> P:
        """How leaves `[R, S, ...]` of the networks lie on the mesh."""
        return P(REPLICA) if self.replicated else P(REPLICA, MEMBER)

    @property
    def data_specs(self) -> tuple[P, P]:
        """How the step's images and labels lie on the mesh."""
        feeds = {"resident": P(), "shared": P(DATA), "own": P(REPLICA, DATA)}
        return (feeds[self.feed],) * 2

    @property
    def teacher_spec(self) -> P | tuple[P, ...]:
        """How the teacher's variables lie on the mesh."""
        return P() if self.teacher is None else self.teacher.spec
