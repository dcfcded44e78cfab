"""What is trained on a stream, and how: plain records."""

from __future__ import annotations

import dataclasses

import numpy as np

from churn_jax import models
from churn_jax.configuration.streams import StreamConfig
from churn_jax.methods.base import Method
from churn_jax.training.identity import identity

__all__ = [
    "StreamRun",
    "stream_identity",
]


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
    return identity(run.config, data=fingerprint, method=run.method, model=run.model)
