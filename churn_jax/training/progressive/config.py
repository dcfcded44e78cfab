"""What is trained on a stream, and how."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from churn_jax import models
from churn_jax.configuration.streams import StreamConfig
from churn_jax.methods.base import Method
from churn_jax.training.identity import identity


@dataclasses.dataclass(frozen=True)
class StreamRun:
    """What to train: a method and its click model.

    Attributes:
        name: folder and messages.
        method: with coefficients as numbers or one per replica; its `input_scale`
            scales the variance of the initial embeddings. What the method remembers
            between updates is kept over the whole stream.
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
    """JSON text of what decides a run's results: equal texts mean equal training.

    Args:
        run: what is trained.
        fingerprint: of the stream.
    """
    return identity(run.config, data=fingerprint, method=run.method, model=run.model)


def check_schema(run: StreamRun, stream: Any) -> None:
    """Refuses a stream that has other features than the model, if it has a schema."""
    schema = getattr(stream, "schema", None)
    if schema is None:
        return
    sizes, numeric = tuple(schema.sizes), len(schema.numeric)
    if sizes != run.model.sizes or numeric != run.model.numeric:
        raise ValueError(
            f"{run.name}: the model has tables of {run.model.sizes} rows and "
            f"{run.model.numeric} numeric features, the stream {sizes} and {numeric}"
        )


def check_window(run: StreamRun, window: Any) -> None:
    """Refuses a window whose shapes, ids or labels the model cannot take."""
    # On the host: an id beyond its table would be learned as another field's.
    size, model = run.config.window, run.model
    for name, expected in (
        ("ids", (size, len(model.sizes))),
        ("numeric", (size, model.numeric)),
        ("labels", (size,)),
        ("mask", (size,)),
    ):
        shape = np.shape(getattr(window, name))
        if shape != expected:
            raise ValueError(
                f"{run.name}: a window's {name} must have shape {expected}; got {shape}"
            )
    valid = np.asarray(window.mask) > 0
    ids = np.asarray(window.ids)[valid]
    beyond = ((ids < 0) | (ids >= np.asarray(model.sizes))).any(axis=0)
    if beyond.any():
        field = int(np.flatnonzero(beyond)[0])
        raise ValueError(
            f"{run.name}: an id of field {field} is outside of its table of "
            f"{model.sizes[field]} rows"
        )
    if not np.isin(np.asarray(window.labels)[valid], (0, 1)).all():
        raise ValueError(f"{run.name}: labels must be 0 or 1")
