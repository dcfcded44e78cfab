"""The VGG networks: plain 3x3 convolutions and large dense layers."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from churn_jax.models.layers import (
    Conv,
    ModelOutput,
    check_dropout,
    check_images,
    drop,
)
from churn_jax.models.residual import (
    batch_norm,
    check_stages,
    he_fan_out,
    norm_settings,
)
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


def halved(x: Array) -> Array:
    """2 x 2 maxima; a last odd row or column is dropped."""
    # On a CPU `nn.max_pool` makes a training step of `vgg_tiny` take twice as long: its
    # gradient searches every window again.
    batch, height, width, channels = x.shape
    rows, columns = height // 2, width // 2
    x = x[:, : 2 * rows, : 2 * columns]
    return x.reshape(batch, rows, 2, columns, 2, channels).max(axis=(2, 4))


class VGGStage(nn.Module):
    """3x3 convolutions with ReLU, then the maxima of 2 x 2 pixels.

    Attributes:
        convolutions: how many.
        width: channels out.
        batch_norm: batch norm between each convolution and its ReLU.
        dtype, axis_name, momentum, epsilon: as in `VGG`.
    """

    convolutions: int
    width: int
    batch_norm: bool = False
    dtype: Any = jnp.float32
    axis_name: str | None = None
    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, C]` to `[B, H / 2, W / 2, width]`; an odd last row is dropped."""
        for number in range(1, self.convolutions + 1):
            x = Conv(
                self.width,
                (3, 3),
                padding=((1, 1),) * 2,
                kernel_init=he_fan_out,
                dtype=self.dtype,
                name=f"conv{number}",
            )(x)
            if self.batch_norm:
                norm = f"norm{number}"
                x = batch_norm(train, name=norm, **norm_settings(self))(x)
            x = nn.relu(x)
        return halved(x)


class VGG(nn.Module):
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
        dtype, axis_name, remat: as in `ResNet`; `remat` is by stage.
        momentum, epsilon: as in `ImageNetResNet`.
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
    dtype: Any = jnp.float32
    axis_name: str | None = None
    remat: bool = False
    momentum: float = 0.9
    epsilon: float = 1e-5
    dropout: float = 0.0

    input_params = ("stage1",)  # top-level, of the layer that sees the input

    def __post_init__(self):
        check_stages(self.stages, self.width, of="convolutions")
        if min(self.grid, self.hidden) < 1:
            raise ValueError(
                f"grid and hidden must be at least 1; got {self.grid} and {self.hidden}"
            )
        check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and last hidden layer `[B, hidden]` of `[B, H, W, 3]`.

        Raises:
            ValueError: the images are too small; others as in `ResNet`.
        """
        check_images(x, min_rank=4, max_rank=4, min_size=2 ** len(self.stages))
        stage_class = VGGStage
        if self.remat:
            stage_class = nn.remat(VGGStage, static_argnums=(2,))
        for stage, convolutions in enumerate(self.stages, start=1):
            x = stage_class(
                convolutions,
                self.width * min(2 ** (stage - 1), 8),
                batch_norm=self.batch_norm,
                name=f"stage{stage}",
                **norm_settings(self),
            )(x, train)
        x = adaptive_average_pool(x, self.grid)
        x = x.reshape(x.shape[0], -1)
        he = nn.initializers.he_normal()
        for number in (1, 2):
            x = nn.Dense(
                self.hidden, kernel_init=he, dtype=self.dtype, name=f"dense{number}"
            )(x)
            x = drop(nn.relu(x), self.dropout, train)
        logits = nn.Dense(self.num_classes, dtype=self.dtype, name="head")(x)
        return ModelOutput(logits.astype(jnp.float32), x.astype(jnp.float32))
