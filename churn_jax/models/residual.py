"""Layers that the convolutional networks share."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.layers import PLAIN, Layers, ModelOutput, drop
from churn_jax.typing import Array

__all__ = [
    "batch_norm",
    "check_stages",
    "classify",
    "convolution",
    "he_fan_out",
    "max_pool",
]

he_fan_out = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


def convolution(
    width: int,
    size: int = 3,
    *,
    stride: int,
    dtype: Any,
    name: str,
    layers: Layers = PLAIN,
):
    """A convolution without bias, He-normal by fan out, padded by half its odd size."""
    # Half of the kernel on each side: "SAME" would shift a strided kernel.
    return layers.conv(
        width,
        size,
        stride=stride,
        padding=size // 2,
        kernel_init=he_fan_out,
        dtype=dtype,
        name=name,
    )


def batch_norm(
    train: bool,
    axis_name: str | None,
    dtype: Any,
    name: str,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    layers: Layers = PLAIN,
):
    """Batch norm over batch and pixels, and over a mesh axis where one is named."""
    return layers.norm(
        train=train,
        momentum=momentum,
        epsilon=epsilon,
        axis_name=axis_name,
        dtype=dtype,
        name=name,
    )


def max_pool(x: Array) -> Array:
    """Maxima of 3x3 pixels at every second pixel; padding never wins."""
    return nn.max_pool(x, (3, 3), (2, 2), padding=((1, 1),) * 2)


def classify(
    x: Array,
    num_classes: int,
    dtype: Any,
    layers: Layers = PLAIN,
    entered: Any = None,
    *,
    dropout: float = 0.0,
    train: bool = False,
) -> ModelOutput:
    """Mean over pixels `[B, H, W, D]` in float32, dropout, the dense layer `head`."""
    features = drop(jnp.mean(x, axis=(1, 2), dtype=jnp.float32), dropout, train)
    logits = layers.head(num_classes, dtype=dtype)(features)
    return layers.output(logits, features, entered)


def check_stages(
    stages: tuple[int, ...], width: int, name: str = "stages", of: str = "blocks"
) -> None:
    """Refuses no stage, an empty one, or no channels; the names are the network's."""
    if not stages or min(stages) < 1:
        raise ValueError(
            f"{name} must be numbers of {of}, each at least 1; got {stages}"
        )
    if width < 1:
        raise ValueError(f"width must be at least 1; got {width}")
