"""The VGG networks: plain 3x3 convolutions and large dense layers."""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from churn_jax.models.layers import (
    ConvolutionalNetwork,
    ModelOutput,
    check_images,
    check_stages,
    drop,
    halved,
)
from churn_jax.setting_checks import check_settings
from churn_jax.typing import Array


def adaptive_average_pool(x: Array, size: int) -> Array:
    """Means over a grid of `size` x `size` windows that cover an image of any size.

    Window i of n pixels is `[floor(i n / size), ceil((i + 1) n / size))`. Windows
    overlap where `size` does not divide n, and hold a pixel each, some the same one,
    where n is smaller.

    Args:
        x: `[B, H, W, C]`.
        size: windows along height and width.

    Returns:
        `[B, size, size, C]`, in the dtype of `x`.

    Example:
        >>> import jax.numpy as jnp
        >>> row = jnp.arange(3.0).reshape(1, 1, 3, 1)
        >>> adaptive_average_pool(row, 2)[0, 0, :, 0]
        Array([0.5, 1.5], dtype=float32)
    """
    for axis in (1, 2):
        pixels = x.shape[axis]
        if pixels == size:
            continue
        means = np.zeros((size, pixels), np.float32)
        for window in range(size):
            first, end = window * pixels // size, -(-(window + 1) * pixels // size)
            means[window, first:end] = 1 / (end - first)
        means = jnp.asarray(means, x.dtype)
        exact = jax.lax.Precision.HIGHEST
        pooled = jnp.tensordot(means, x, (1, axis), precision=exact)
        x = jnp.moveaxis(pooled, 0, axis)
    return x


def _stage(net: Any, x: Array, train: bool, *, convolutions: int, width: int) -> Array:
    """3x3 convolutions with ReLU, batch norm in between if asked for, and maxima."""
    for number in range(1, convolutions + 1):
        x = net.conv(x, width, use_bias=True, name=f"conv{number}")
        if net.batch_norm:
            x = net.norm(x, train, name=f"norm{number}")
        x = net.activate(x)
    return halved(x)


class VGG(ConvolutionalNetwork, nn.Module):
    """The plain convolutional network for 224 x 224 images.

    Stages of 3x3 convolutions with ReLU, each of which halves the resolution by
    maxima; the channels double from stage to stage up to eight times the first ones.
    Means over a 7 x 7 grid, two hidden dense layers with ReLU, a dense layer. With
    1,000 classes and three input channels two convolutions in each of five stages
    (VGG-13) have 133,047,848 parameters, and 133,053,736 with batch norm; the other
    columns of the paper's table are `stages`, as in `churn_jax.models.zoo`.

    Attributes:
        num_classes: C.
        stages: number of convolutions of every stage.
        width: channels of the first stage.
        grid: windows along height and width that the dense layers see.
        hidden: width of the hidden dense layers.
        batch_norm: batch norm after every convolution, which keeps its bias.
        dropout: share of the outputs of either hidden dense layer that are zero in
            training; half of them in the paper, none here unless asked.

    Notes:
        Images of 224 pixels leave 7 x 7 ones, so the grid is theirs; others go through
        `adaptive_average_pool`, as in the public PyTorch models. Images must have a
        pixel left after the last stage: 32 x 32 with five stages, 8 x 8 with three
        (`vgg_tiny`). Kernels of convolutions are He-normal by fan out, of hidden dense
        layers He-normal by fan in and of the last one LeCun-normal, so that narrow
        forms train too; the public models draw dense kernels with deviation 0.01. The
        first dense layer sees row, column, channel.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = VGG(num_classes=10, stages=(1, 1), width=4, grid=2, hidden=16)
        >>> images = jnp.zeros((2, 28, 28, 1))
        >>> shapes = jax.eval_shape(model.init, jax.random.key(0), images)
        >>> shapes["params"]["dense1"]["kernel"].shape  # 2 x 2 windows of 8 channels
        (32, 16)

    References:
        [simonyan2015] Table 1 -- Simonyan and Zisserman, Very Deep Convolutional
            Networks for Large-Scale Image Recognition, ICLR 2015.
            https://arxiv.org/abs/1409.1556
    """

    num_classes: int
    stages: tuple[int, ...] = (2, 2, 2, 2, 2)
    width: int = 64
    grid: int = 7
    hidden: int = 4096
    batch_norm: bool = False

    input_params: ClassVar[tuple[str, ...]] = ("stage1",)

    def __post_init__(self):
        check_stages(self.stages, self.width, of="convolutions")
        check_settings(self, grid=1, hidden=1)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and last hidden layer `[B, hidden]` of `[B, H, W, 3]`.

        Raises:
            ValueError: the images are too small; others as in `ResNet`.
        """
        check_images(x, min_size=2 ** len(self.stages))
        for stage, convolutions in enumerate(self.stages, start=1):
            width = self.width * min(2 ** (stage - 1), 8)
            form = {"convolutions": convolutions, "width": width}
            x = self.part(f"stage{stage}", _stage, **form)(x, train)
        x = adaptive_average_pool(x, self.grid)
        x = x.reshape(x.shape[0], -1)
        he = nn.initializers.he_normal()
        for number in (1, 2):
            if number > 1:
                x = drop(x, self.dropout, train)
            name = f"dense{number}"
            x = nn.Dense(self.hidden, kernel_init=he, dtype=self.dtype, name=name)(x)
            x = self.activate(x)
        return self.classify(x, train)
