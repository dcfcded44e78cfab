"""Layers that the convolutional networks share."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.layers import PLAIN, Layers, ModelOutput, drop
from churn_jax.typing import Array

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


def norm_settings(module: Any) -> dict[str, Any]:
    """The fields of a network or a block that its batch norms share."""
    names = ("dtype", "axis_name", "momentum", "epsilon")
    return {name: getattr(module, name) for name in names}


def max_pool(x: Array) -> Array:
    """Maxima of 3x3 pixels at every second pixel; padding never wins."""
    return nn.max_pool(x, (3, 3), (2, 2), padding=((1, 1),) * 2)


def residual_stages(
    x: Array,
    train: bool,
    block_class: type[nn.Module],
    stages: Sequence[int],
    widths: Sequence[int],
    *,
    remat: bool,
    **options,
) -> Array:
    """Stages of blocks; each stage but the first starts by halving the resolution."""
    if remat:
        block_class = nn.remat(block_class, static_argnums=(2,))
    for stage, (blocks, width) in enumerate(zip(stages, widths, strict=True), start=1):
        for number in range(1, blocks + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            name = f"stage{stage}_block{number}"
            x = block_class(width, stride=stride, name=name, **options)(x, train)
    return x


def doubled(width: int, stages: Sequence[int]) -> list[int]:
    """Channels of each stage, twice as many as of the one before it."""
    return [width * 2**stage for stage in range(len(stages))]


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
    """Refuses a network without stages, a stage without blocks, and no channels."""
    if not stages or min(stages) < 1:
        raise ValueError(
            f"{name} must be numbers of {of}, each at least 1; got {stages}"
        )
    if width < 1:
        raise ValueError(f"width must be at least 1; got {width}")
