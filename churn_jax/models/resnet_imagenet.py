"""The ImageNet ResNets: 18, 50, 101 layers, post-activation, projection shortcuts."""

from functools import partial
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.layers import ModelOutput, check_dropout, check_images
from churn_jax.models.residual import (
    batch_norm,
    check_stages,
    classify,
    convolution,
    doubled,
    max_pool,
    norm_settings,
    residual_stages,
)
from churn_jax.typing import Array

_BLOCKS = ("basic", "bottleneck")
_STRIDES = ("3x3", "1x1")


class ImageNetBlock(nn.Module):
    """A residual block whose shortcut is a 1x1 convolution where shapes change.

    Basic: two 3x3 convolutions. Bottleneck: 1x1, 3x3 and 1x1 with four times as many
    channels out as in between. Batch norm after every convolution, ReLU after all but
    the last and after the sum.

    Attributes:
        width: channels of the 3x3 convolutions.
        block: `basic` or `bottleneck`.
        stride: 1, or 2 to halve the resolution.
        stride_at: which convolution of a bottleneck has the stride, `3x3` or `1x1`;
            that of a basic block is in its first.
        dtype, axis_name, momentum, epsilon: as in `ImageNetResNet`.
    """

    width: int
    block: str = "bottleneck"
    stride: int = 1
    stride_at: str = "3x3"
    dtype: Any = jnp.float32
    axis_name: str | None = None
    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, C]` to `[B, H / stride, W / stride, width or 4 width]`."""
        conv = partial(convolution, dtype=self.dtype)
        norm = partial(batch_norm, train, **norm_settings(self))
        if self.block == "basic":
            layers = [(self.width, 3, self.stride), (self.width, 3, 1)]
        else:
            early = self.stride_at == "1x1"
            layers = [
                (self.width, 1, self.stride if early else 1),
                (self.width, 3, 1 if early else self.stride),
                (4 * self.width, 1, 1),
            ]
        y = x
        for number, (width, size, stride) in enumerate(layers, start=1):
            y = conv(width, size, stride=stride, name=f"conv{number}")(y)
            y = norm(name=f"norm{number}")(y)
            if number < len(layers):
                y = nn.relu(y)
        shortcut = x
        if shortcut.shape != y.shape:
            width = y.shape[-1]
            shortcut = conv(width, 1, stride=self.stride, name="shortcut")(x)
            shortcut = norm(name="shortcut_norm")(shortcut)
        return nn.relu(y + shortcut)


class ImageNetResNet(nn.Module):
    """The residual network for 224 x 224 images.

    A 7x7 convolution and a 3x3 maximum, each at every second pixel, stages of blocks
    of which each but the first halves the resolution and doubles the channels, the
    mean over pixels, a dense layer. Kernels of convolutions are He-normal by fan out,
    that of the dense layer LeCun-normal. With 1,000 classes and three input channels
    `(2, 2, 2, 2)` basic blocks (ResNet-18) have 11,689,512 parameters, and bottlenecks
    `(3, 4, 6, 3)` (ResNet-50) 25,557,032 and `(3, 4, 23, 3)` (ResNet-101) 44,549,160.

    Attributes:
        num_classes: C.
        stages: number of blocks of every stage.
        block: `basic` or `bottleneck`.
        width: channels of the stem and of the first stage's 3x3 convolutions.
        stride_at: which convolution of a bottleneck has the stride: `3x3` as in the
            public PyTorch models ("v1.5"), or `1x1` as in the paper.
        dtype, axis_name, remat, dropout: as in `ResNet`.
        momentum: share of batch norm's old running value that stays.
        epsilon: added to batch norm's variance.

    Notes:
        Images of any size are taken; after a stem and three halvings those of 32 x 32
        have one pixel left, so `ResNet` suits them better. Every batch norm starts at
        scale one, also the last of a block.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = ImageNetResNet(num_classes=10, stages=(1, 1), width=4)
        >>> images = jnp.zeros((2, 32, 32, 3))
        >>> shapes = jax.eval_shape(model.init, jax.random.key(0), images)
        >>> shapes["params"]["stage2_block1"]["conv3"]["kernel"].shape
        (1, 1, 8, 32)

    References:
        [he2016] Table 1 -- He et al., Deep Residual Learning for Image Recognition,
            CVPR 2016. https://arxiv.org/abs/1512.03385
    """

    num_classes: int
    stages: tuple[int, ...] = (3, 4, 6, 3)
    block: Literal["basic", "bottleneck"] = "bottleneck"
    width: int = 64
    stride_at: Literal["3x3", "1x1"] = "3x3"
    dtype: Any = jnp.float32
    axis_name: str | None = None
    remat: bool = False
    momentum: float = 0.9
    epsilon: float = 1e-5
    dropout: float = 0.0

    input_params = ("stem",)  # top-level, of the layer that sees the input

    def __post_init__(self):
        if self.block not in _BLOCKS:
            raise ValueError(f"block must be one of {_BLOCKS}; got {self.block!r}")
        if self.stride_at not in _STRIDES:
            raise ValueError(
                f"stride_at must be one of {_STRIDES}; got {self.stride_at!r}"
            )
        check_stages(self.stages, self.width)
        check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, D]`; arguments as in `ResNet`."""
        check_images(x, min_rank=4, max_rank=4)
        options = norm_settings(self)
        x = convolution(self.width, 7, stride=2, dtype=self.dtype, name="stem")(x)
        x = batch_norm(train, name="stem_norm", **options)(x)
        x = residual_stages(
            max_pool(nn.relu(x)),
            train,
            ImageNetBlock,
            self.stages,
            doubled(self.width, self.stages),
            remat=self.remat,
            block=self.block,
            stride_at=self.stride_at,
            **options,
        )
        return classify(
            x, self.num_classes, self.dtype, dropout=self.dropout, train=train
        )
