"""How to train one method; lengths in epochs, checked when it is made."""

import dataclasses

from churn_jax.data.augment import Augmentation
from churn_jax.ensembles.mapping import MAPPINGS
from churn_jax.training.optim import OptimizerConfig
from churn_jax.training.partition import MeshShape
from churn_jax.training.seeds import SAMPLES, Seeds

__all__ = ["TrainConfig"]


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Training of R replicas of one method.

    Attributes:
        replicas: R, independent repetitions.
        seed_numbers: which seeds the replicas have, R numbers; empty means 0 .. R-1.
            A grid repeats the same numbers at every point, so that points differ by
            their coefficients alone.
        epochs: passes over each replica's training set; what is left of an epoch
            after its last full batch is skipped, in a new order every epoch.
        batch_size: examples per update and replica, over all devices.
        eval_batch_size: rows per call in evaluation.
        eval_every_epochs: validation after every so many epochs, and at the end.
        optimizer: see `OptimizerConfig`.
        seeds: what differs between replicas.
        augmentation: see `Augmentation`; removed where `seeds.augment` is off.
        sample: each replica's training set: `all` or `bootstrap`.
        mesh: devices along replica, member and data.
        mapping: of the replicas on one device: auto, vmap, unroll or loop.
        steps_per_call: updates per dispatch; 0 chooses.
        weights: deployed weights, of the `last` or the `best` validation epoch.
        ema_decay: of an exponential moving average of weights and batch statistics,
            kept beside the weights and evaluated with them; 0 keeps none.
        checkpoint_every_seconds: at most so much work is lost by a kill.
    """

    replicas: int = 10
    seed_numbers: tuple[int, ...] = ()
    epochs: int = 10
    batch_size: int = 128
    eval_batch_size: int = 1000
    eval_every_epochs: int = 1
    optimizer: OptimizerConfig = OptimizerConfig()
    seeds: Seeds = Seeds()
    augmentation: Augmentation = Augmentation()
    sample: str = "all"
    mesh: MeshShape = MeshShape()
    mapping: str = "auto"
    steps_per_call: int = 0
    weights: str = "last"
    ema_decay: float = 0.0
    checkpoint_every_seconds: float = 60.0

    def __post_init__(self):
        """Checks what needs no data."""
        for field in ("replicas", "epochs", "batch_size", "eval_batch_size"):
            if getattr(self, field) < 1:
                raise ValueError(
                    f"{field} must be at least 1; got {getattr(self, field)}"
                )
        if self.eval_every_epochs < 1:
            raise ValueError(
                f"eval_every_epochs must be at least 1; got {self.eval_every_epochs}"
            )
        if self.seed_numbers and len(self.seed_numbers) != self.replicas:
            raise ValueError(
                f"seed_numbers must be empty or {self.replicas} numbers, one per "
                f"replica; got {len(self.seed_numbers)}"
            )
        if self.mapping not in MAPPINGS:
            raise ValueError(
                f"mapping must be one of {', '.join(MAPPINGS)}; got {self.mapping!r}"
            )
        if self.sample not in SAMPLES:
            raise ValueError(
                f"sample must be one of {', '.join(SAMPLES)}; got {self.sample!r}"
            )
        if self.weights not in ("last", "best"):
            raise ValueError(f"weights must be last or best; got {self.weights!r}")
        if not 0.0 <= self.ema_decay < 1.0:
            raise ValueError(
                f"ema_decay must be at least 0 and below 1; got {self.ema_decay}"
            )
        if self.replicas % self.mesh.replica:
            raise ValueError(
                f"{self.replicas} replicas cannot be sharded over a replica axis of "
                f"{self.mesh.replica} devices"
            )
        if self.batch_size % self.mesh.data:
            raise ValueError(
                f"batch_size {self.batch_size} is not divisible by the mesh's data "
                f"axis, {self.mesh.data}"
            )

    @property
    def numbers(self) -> tuple[int, ...]:
        """The seed number of every replica."""
        return self.seed_numbers or tuple(range(self.replicas))
