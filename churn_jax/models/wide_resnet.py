"""Wide residual networks for 32- and 64-pixel images."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.layers import (
    PLAIN,
    Layered,
    Layers,
    ModelOutput,
    check_dropout,
    check_images,
)
from churn_jax.models.residual import (
    batch_norm,
    classify,
    convolution,
    doubled,
    residual_stages,
)
from churn_jax.typing import Array


class PreActivationBlock(nn.Module):
    """`x + conv2(a2(conv1(a1(x))))`, where `a` is batch norm and ReLU.

    Both convolutions are 3x3; the first one has the stride. Where shapes change, `x`
    is replaced by a 1x1 convolution of `x` itself, without batch norm.

    Attributes:
        width: channels out.
        stride: 1, or 2 to halve the resolution.
        dtype, axis_name, layers: as in `WideResNet`.
    """

    width: int
    stride: int = 1
    dtype: Any = jnp.float32
    axis_name: str | None = None
    layers: Layers = PLAIN

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, C]` to `[B, H / stride, W / stride, width]`."""
        conv = partial(convolution, self.width, dtype=self.dtype, layers=self.layers)
        norm = partial(
            batch_norm, train, self.axis_name, self.dtype, layers=self.layers
        )
        activated = nn.relu(norm("norm1")(x))
        shortcut = x
        if self.stride != 1 or x.shape[-1] != self.width:
            shortcut = conv(size=1, stride=self.stride, name="shortcut")(x)
        y = conv(stride=self.stride, name="conv1")(activated)
        y = nn.relu(norm("norm2")(y))
        return shortcut + conv(stride=1, name="conv2")(y)


class WideResNet(Layered, nn.Module):
    """The wide pre-activation network WRN-depth-k: `depth = 6 n + 4` layers.

    A 3x3 convolution of 16 channels, three stages of n blocks at full, half and
    quarter resolution with 16 k, 32 k and 64 k channels, batch norm and ReLU, the mean
    over pixels, a dense layer. 64-pixel images take the same network; their last
    stage has 16 x 16 pixels. Kernels of convolutions are He-normal by fan out, that of
    the dense layer LeCun-normal. Batch norm has momentum 0.9 (the share of the old
    running value that stays) and epsilon 1e-5. With ten classes and three input
    channels WRN-28-10 has 36,479,194 parameters, WRN-28-5 9,132,634, WRN-28-2
    1,467,610 and WRN-28-1 369,498.

    Attributes:
        depth: number of layers: 28, 40, ...; 10 is the smallest.
        num_classes: C.
        widen: k, how many times wider than 16, 32 and 64 channels.
        dtype, axis_name, remat, layers, dropout: as in `ResNet`.

    Notes:
        No convolution has a bias. A shortcut projects a block's input as it is, as the
        public code of Nam et al. 2021 does; the code of the wide networks' authors
        projects it after batch norm and ReLU (as `ResNetV2` does), which has the same
        parameters and is another function. Their dropout is between the convolutions
        of a block, ours before the last layer.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = WideResNet(depth=10, num_classes=10, widen=2)
        >>> images = jnp.zeros((2, 32, 32, 3))
        >>> shapes = jax.eval_shape(model.init, jax.random.key(0), images)
        >>> shapes["params"]["stage3_block1"]["shortcut"]["kernel"].shape
        (1, 1, 64, 128)

    References:
        [zagoruyko2016] Table 1 -- Zagoruyko and Komodakis, Wide Residual Networks,
            BMVC 2016. https://arxiv.org/abs/1605.07146
    """

    depth: int
    num_classes: int
    widen: int = 1
    dtype: Any = jnp.float32
    axis_name: str | None = None
    remat: bool = False
    layers: Layers = PLAIN
    dropout: float = 0.0

    input_params = ("stem",)  # top-level, of the layer that sees the input

    def __post_init__(self):
        if self.depth < 10 or (self.depth - 4) % 6:
            raise ValueError(
                f"depth must be 6 n + 4 (10, 16, 22, 28, 40, ...); got {self.depth}"
            )
        if self.widen < 1:
            raise ValueError(f"widen must be at least 1; got {self.widen}")
        check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, 64 k]`; arguments as in `ResNet`."""
        check_images(x, min_rank=4, max_rank=4)
        layers = self.layers
        x, entered = layers.enter(self, x, train)
        shared = {"dtype": self.dtype, "layers": layers}
        x = convolution(16, stride=1, name="stem", **shared)(x)
        stages = [(self.depth - 4) // 6] * 3
        x = residual_stages(
            x,
            train,
            PreActivationBlock,
            stages,
            doubled(16 * self.widen, stages),
            remat=self.remat,
            axis_name=self.axis_name,
            **shared,
        )
        x = nn.relu(batch_norm(train, self.axis_name, name="norm", **shared)(x))
        return classify(
            x,
            self.num_classes,
            self.dtype,
            layers,
            entered,
            dropout=self.dropout,
            train=train,
        )
