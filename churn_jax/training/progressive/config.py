"""What is trained on a stream, and how: plain records."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np

from churn_jax import models
from churn_jax.methods.base import Method
from churn_jax.training.optim import OptimizerConfig
from churn_jax.training.partition import MeshShape
from churn_jax.training.seeds import Seeds

__all__ = [
    "StreamConfig",
    "StreamRun",
    "stream_identity",
]

# Where and how fast training runs; its results do not depend on them.
_FREE = ("mesh", "checkpoint_every_seconds")


def _adagrad() -> OptimizerConfig:
    return OptimizerConfig(
        name="adagrad",
        learning_rate=0.02,
        momentum=0.0,
        nesterov=False,
        weight_decay=0.0,
        adagrad_accumulator=0.1,
    )


@dataclasses.dataclass(frozen=True)
class StreamConfig:
    """How replicas are trained in one pass over a stream.

    Attributes:
        replicas: R.
        seed_numbers: one number per replica; empty numbers them from 0.
        batch_size: B, examples per update and replica.
        window: W, examples inside which replicas differ in order; a multiple of
            `batch_size`. Scores are compared window by window.
        optimizer: `adagrad`, or `sgd` without momentum, with a constant schedule:
            what else there is would touch every row of every table at every update.
            Weight decay is of the towers' kernels, not of the tables.
        seeds: the paper's replicas start from equal weights (`init="fixed"`) and
            differ by the order inside a window (`order="varied"`).
        mesh: the member axis must be 1; tables are sharded over data.
        warm_examples: the first part of the stream, rounded up to whole windows, in
            which all replicas are replica number 0; metrics begin after it.
        report_every_windows: windows per line of metrics. From the 512th line on
            lines cover ever more windows, so that a long stream has few.
        checkpoint_every_seconds: time between checkpoints.

    Raises:
        ValueError: numbers do not fit each other.
    """

    replicas: int = 10
    seed_numbers: tuple[int, ...] = ()
    batch_size: int = 256
    window: int = 8192
    optimizer: OptimizerConfig = dataclasses.field(default_factory=_adagrad)
    seeds: Seeds = Seeds(init="fixed", order="varied")
    mesh: MeshShape = MeshShape()
    warm_examples: int = 0
    report_every_windows: int = 1
    checkpoint_every_seconds: float = 60.0

    def __post_init__(self):
        """Checks that the numbers fit each other."""
        for name in ("replicas", "batch_size", "window", "report_every_windows"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1; got {getattr(self, name)}"
                )
        if self.warm_examples < 0:
            raise ValueError(
                f"warm_examples must be at least 0; got {self.warm_examples}"
            )
        if self.warm_examples and self.seeds.init == "varied":
            raise ValueError(
                f"the first {self.warm_examples} examples are a warm start of one "
                "model, so seeds.init='varied' would change nothing; set warm_examples "
                "to 0, or seeds.init to 'fixed'"
            )
        if self.seed_numbers and len(self.seed_numbers) != self.replicas:
            raise ValueError(
                f"seed_numbers must be empty or {self.replicas} numbers, one per "
                f"replica; got {len(self.seed_numbers)}"
            )
        if self.window % self.batch_size:
            raise ValueError(
                f"window {self.window} is not a multiple of batch_size "
                f"{self.batch_size}"
            )
        if self.mesh.member != 1:
            raise ValueError(
                f"a stream's mesh has no member axis; got {self.mesh.member} devices "
                "along it. Use replica and data"
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
        _check_optimizer(self.optimizer)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The seed number of every replica."""
        return self.seed_numbers or tuple(range(self.replicas))

    @property
    def warm_windows(self) -> int:
        """Windows of the shared start."""
        return -(-self.warm_examples // self.window)


def _check_optimizer(optimizer: OptimizerConfig) -> None:
    """Only updates that leave untouched rows as they are."""
    plain = optimizer.name == "sgd" and optimizer.momentum == 0.0
    if optimizer.name != "adagrad" and not plain:
        raise ValueError(
            "a stream is trained by adagrad, or by sgd with momentum 0, which leave "
            f"rows that are not in the batch as they are; got {optimizer.name} with "
            f"momentum {optimizer.momentum}"
        )
    if optimizer.schedule != "constant" or optimizer.warmup_epochs:
        raise ValueError(
            "a stream has no epochs, so its learning rate is constant; got schedule "
            f"{optimizer.schedule!r} with {optimizer.warmup_epochs} warmup_epochs"
        )
    if optimizer.clip_norm is not None:
        raise ValueError(
            f"a stream's gradients are not clipped; got clip_norm {optimizer.clip_norm}"
        )


@dataclasses.dataclass(frozen=True)
class StreamRun:
    """What to train: a method and its click model.

    Attributes:
        name: folder and messages.
        method: with coefficients as numbers or one per replica; `input_scale`, where
            it has one, scales the variance of the initial embeddings. What the method
            remembers between updates runs on over the whole stream.
        model: its components must be the method's members.
        config: see `StreamConfig`.

    Raises:
        ValueError: the model's components are not the method's members, the method
            needs a teacher, or one of model and method has a gate and the other not.
    """

    name: str
    method: Method
    model: models.ClickModel
    config: StreamConfig = StreamConfig()

    def __post_init__(self):
        """Checks that the model suits the method."""
        if self.model.components != self.method.members:
            raise ValueError(
                f"{self.name}: the method has {self.method.members} members, the "
                f"click model {self.model.components} components"
            )
        if self.method.needs_teacher or self.method.stale_steps:
            raise ValueError(
                f"{self.name}: {type(self.method).__name__} follows another set of "
                "weights, which a stream does not keep"
            )
        scale = np.asarray(self.method.input_scale)
        if not np.all(np.isfinite(scale)) or np.any(scale < 0):
            raise ValueError(
                f"{self.name}: input_scale must be finite and not negative; got {scale}"
            )
        if self.model.shared_embeddings and self.config.optimizer.member_rates:
            raise ValueError(
                f"{self.name}: components that share their embeddings cannot learn at "
                "rates of their own (member_rates)"
            )
        if self.method.deploy != "gate":
            if self.model.gate:
                raise ValueError(
                    f"{self.name}: the click model has a gate that nothing reads; the "
                    f"method deploys {self.method.deploy!r}, not 'gate'"
                )
            return
        if not self.model.gate:
            raise ValueError(
                f"{self.name}: the method deploys a gate, the click model has none; "
                "set gate=True"
            )
        if self.method.gate == "constant":
            raise ValueError(
                f"{self.name}: the gate of a click model reads the input; it cannot be "
                "constant"
            )


def stream_identity(run: StreamRun, fingerprint: str) -> str:
    """What a checkpoint must have been trained as, to be continued by `run`.

    Args:
        run: what is trained.
        fingerprint: of the stream.

    Returns:
        JSON text; equal texts mean equal training.
    """
    with np.printoptions(threshold=sys.maxsize):
        flat = {
            "data": fingerprint,
            "method": repr(run.method),
            "model": repr(run.model),
        }
        for field in dataclasses.fields(run.config):
            if field.name not in _FREE:
                flat[field.name] = repr(getattr(run.config, field.name))
    return json.dumps(flat, sort_keys=True)
