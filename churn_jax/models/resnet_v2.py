"""The pre-activation ResNet for ImageNet: ResNet-v2-50 and smaller ones."""

from functools import partial
from typing import Any

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


class PreActivationBottleneck(nn.Module):
    """`x + conv3(a3(conv2(a2(conv1(a1(x))))))`, where `a` is batch norm and ReLU.

    The convolutions are 1x1, 3x3 (which has the stride) and 1x1. Where shapes change,
    `x` is replaced by a 1x1 convolution of `a1(x)`, without batch norm.

    Attributes:
        width: channels of the 3x3 convolution; the block puts out four times as many.
        stride: 1, or 2 to halve the resolution.
        dtype, axis_name, momentum, epsilon: as in `ResNetV2`.
    """

    width: int
    stride: int = 1
    dtype: Any = jnp.float32
    axis_name: str | None = None
    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, C]` to `[B, H / stride, W / stride, 4 width]`."""
        conv = partial(convolution, dtype=self.dtype)
        norm = partial(batch_norm, train, **norm_settings(self))
        activated = nn.relu(norm(name="norm1")(x))
        shortcut = x
        if self.stride != 1 or x.shape[-1] != 4 * self.width:
            shortcut = conv(4 * self.width, 1, stride=self.stride, name="shortcut")(
                activated
            )
        y = conv(self.width, 1, stride=1, name="conv1")(activated)
        y = nn.relu(norm(name="norm2")(y))
        y = conv(self.width, 3, stride=self.stride, name="conv2")(y)
        y = nn.relu(norm(name="norm3")(y))
        y = conv(4 * self.width, 1, stride=1, name="conv3")(y)
        return shortcut + y


class ResNetV2(nn.Module):
    """The pre-activation residual network for 224 x 224 images.

    A 7x7 convolution and a 3x3 maximum, each at every second pixel and neither
    normalised, stages of bottlenecks of which each but the first halves the
    resolution and doubles the channels, batch norm and ReLU, the mean over pixels, a
    dense layer. Kernels of convolutions are He-normal by fan out, that of the dense
    layer LeCun-normal. `(3, 4, 6, 3)` is ResNet-v2-50, which has 25,549,352 parameters
    with 1,000 classes and three input channels.

    Attributes:
        num_classes: C.
        stages: number of bottlenecks of every stage.
        width: channels of the stem and of the first stage's 3x3 convolutions.
        dtype, axis_name, remat, dropout: as in `ResNet`.
        momentum, epsilon: as in `ImageNetResNet`.

    Notes:
        As in the public PyTorch model the stride is in the first block of a stage and
        in its 3x3 convolution. The `reproducibility` paper (Appendix A) speaks of "the
        stride of the first convolution filter within each block", which may mean the
        1x1 convolution before it: parameters and shapes are the same, the function is
        not. It does not say how batch norm is set.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = ResNetV2(num_classes=10, stages=(1, 1), width=4)
        >>> images = jnp.zeros((2, 32, 32, 3))
        >>> shapes = jax.eval_shape(model.init, jax.random.key(0), images)
        >>> shapes["params"]["stage2_block1"]["shortcut"]["kernel"].shape
        (1, 1, 16, 32)

    References:
        [he2016b] Sec. 3 -- He et al., Identity Mappings in Deep Residual Networks,
            ECCV 2016. https://arxiv.org/abs/1603.05027
    """

    num_classes: int
    stages: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    dtype: Any = jnp.float32
    axis_name: str | None = None
    remat: bool = False
    momentum: float = 0.9
    epsilon: float = 1e-5
    dropout: float = 0.0

    input_params = ("stem",)  # top-level, of the layer that sees the input

    def __post_init__(self):
        check_stages(self.stages, self.width)
        check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, D]`; arguments as in `ResNet`."""
        check_images(x, min_rank=4, max_rank=4)
        options = norm_settings(self)
        x = convolution(self.width, 7, stride=2, dtype=self.dtype, name="stem")(x)
        x = residual_stages(
            max_pool(x),
            train,
            PreActivationBottleneck,
            self.stages,
            doubled(self.width, self.stages),
            remat=self.remat,
            **options,
        )
        x = nn.relu(batch_norm(train, name="norm", **options)(x))
        return classify(
            x, self.num_classes, self.dtype, dropout=self.dropout, train=train
        )
