"""Convolutional networks without sums: LeNet5, VGG and the densely connected ones."""

from functools import partial
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from churn_jax.models.convolution import banded_convolution
from churn_jax.models.layers import (
    PLAIN,
    ConvolutionalNetwork,
    Layers,
    ModelOutput,
    ZooNetwork,
    backend,
    check_images,
    check_stages,
    drop,
    halved,
    max_pool,
    pixel_means,
)
from churn_jax.setting_checks import check_choice, check_least, check_settings
from churn_jax.typing import Array


class LeNet5(ZooNetwork, nn.Module):
    """LeNet5: two 5x5 convolutions (6 and 16), then dense 120, 84 and C.

    The activation after every hidden layer and average pooling, the subsampling of the
    original, after both convolutions. The first convolution pads by two pixels, so that
    28 x 28 images give the classic 400 inputs of the first dense layer; the second does
    not pad. Images must be at least 12 x 12 (a smaller digit data set takes an `MLP` or
    a `ResNet`); 32 x 32 gives 576 inputs. 28 x 28 x 1 and ten classes have 61,706
    parameters.

    Attributes:
        num_classes: C.
        layout: `"nhwc"` uses XLA's convolution, `"banded"` one dense product per
            convolution (`banded_convolution`). Both compute the same function of the
            same parameter tree. `"auto"` is `"banded"` for images of one channel where
            JAX's default backend is the CPU, faster there by a tenth or two (by far
            where networks are vmapped), and `"nhwc"` elsewhere; name one when compiling
            for a device that is not the default.
        layers: as in `ResNet`.

    Notes:
        Unlike in the original the second convolution sees all six input maps, the
        subsampling has no coefficients, and the output layer is dense.

    Example:
        >>> model = LeNet5(num_classes=10)
        >>> images = jnp.zeros((2, 28, 28, 1))
        >>> variables = model.init(jax.random.key(0), images)
        >>> model.apply(variables, images, train=True).logits.shape
        (2, 10)

    References:
        [lecun1998] Fig. 2 -- LeCun et al., Gradient-Based Learning Applied to
            Document Recognition, Proc. IEEE 1998. https://doi.org/10.1109/5.726791
    """

    num_classes: int
    layout: Literal["auto", "nhwc", "banded"] = "auto"
    layers: Layers = PLAIN

    input_params = ("conv1",)

    def __post_init__(self):
        check_choice("layout", self.layout, ("auto", "nhwc", "banded"))
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and features `[B, 84]` of normalised images `[B, H, W, C]`.

        Raises:
            ValueError: `x` is not `[B, H, W, C]` or smaller than 12 x 12.
            TypeError: `x` is not floating point.
        """
        check_images(x, min_size=12)  # 12 -> pool 6 -> 5x5 kernel 2 -> pool 1
        layout = self.layout
        if layout == "auto":
            layout = "banded" if backend() == "cpu" and x.shape[-1] == 1 else "nhwc"
        convolve = banded_convolution if layout == "banded" else None
        layers, he = self.layers, nn.initializers.he_normal()
        x, entered = layers.enter(self, x, train)
        for number, width, padding in ((1, 6, 2), (2, 16, 0)):
            x = layers.conv(
                width,
                5,
                padding=padding,
                use_bias=True,
                convolve=convolve and partial(convolve, padding=padding),
                kernel_init=he,
                dtype=self.dtype,
                name=f"conv{number}",
            )(x)
            # XLA's windows: as a mean over a reshaped array it took four vmapped
            # replicas on a TPU twice the cycles (the compiler's estimate).
            x = nn.avg_pool(self.activate(x), (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        for number, width in ((1, 120), (2, 84)):
            name = f"dense{number}"
            x = layers.dense(width, dtype=self.dtype, kernel_init=he, name=name)(x)
            x = self.activate(x)
        return self.classify(x, train, entered)


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


_BOTTLENECK = 4  # channels of the 1x1 convolution, by those that a layer adds


def _dense_layer(net: Any, x: Array, train: bool, *, growth: int) -> Array:
    """New channels `conv2(a2(conv1(a1(x))))`, where `a` is batch norm and ReLU."""
    y = net.activated(x, train, "norm1")
    y = net.conv(y, _BOTTLENECK * growth, 1, name="conv1")
    y = net.activated(y, train, "norm2")
    return net.conv(y, growth, name="conv2")


def _transition(net: Any, x: Array, train: bool) -> Array:
    """Half of the channels and a quarter of the pixels; an odd last row is dropped."""
    half = x.shape[-1] // 2
    x = net.conv(net.activated(x, train, "norm"), half, 1, name="conv")
    return nn.avg_pool(x, (2, 2), (2, 2))


class DenseNet(ConvolutionalNetwork, nn.Module):
    """The densely connected network for 224 x 224 images.

    A 7x7 convolution and a 3x3 maximum, each at every second pixel, then blocks of
    layers. Each layer sees the block's input and what all layers before it have added,
    and adds `growth` channels of its own. A transition between two blocks halves
    channels and resolution. At the end batch norm and ReLU, the mean over pixels, a
    dense layer. With 1,000 classes and three input channels `(6, 12, 24, 16)`
    layers of 32 channels (DenseNet-121) have 7,978,856 parameters, and
    `(6, 12, 36, 24)` of 48 with a stem of 96 (DenseNet-161) 28,681,000.

    Attributes:
        num_classes: C.
        blocks: number of layers of every block.
        growth: channels that a layer adds.
        width: channels of the stem.

    Notes:
        The paper's own dropout, after every convolution, is another one. `remat`
        recomputes layer by layer.
        The last transition must have two pixels to take the mean of, so four blocks
        need images of at least 29 x 29 and two (`densenet_tiny`) of 5 x 5.

    Example:
        >>> model = DenseNet(num_classes=10, blocks=(2, 2), growth=4, width=8)
        >>> images = jnp.zeros((2, 28, 28, 1))
        >>> shapes = jax.eval_shape(model.init, jax.random.key(0), images)
        >>> shapes["params"]["block1_layer2"]["conv1"]["kernel"].shape
        (1, 1, 12, 16)

    References:
        [huang2017] Table 1 -- Huang et al., Densely Connected Convolutional Networks,
            CVPR 2017. https://arxiv.org/abs/1608.06993
    """

    num_classes: int
    blocks: tuple[int, ...] = (6, 12, 24, 16)
    growth: int = 32
    width: int = 64

    def __post_init__(self):
        check_stages(self.blocks, self.width, "blocks", "layers")
        check_least("growth", self.growth, 1)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, D]`; arguments as in `ResNet`.

        Raises:
            ValueError: the images are too small.
        """
        # A quarter of the pixels, rounded up, can be halved after each block but one.
        smallest = 4 * (2 ** (len(self.blocks) - 1) - 1) + 1
        check_images(x, min_size=smallest)
        x = self.conv(x, self.width, 7, stride=2, name="stem")
        x = max_pool(self.activated(x, train, "stem_norm"))
        for block, layers in enumerate(self.blocks, start=1):
            if block > 1:
                name = f"transition{block - 1}"
                x = self.part(name, _transition, remat=False)(x, train)
            for layer in range(1, layers + 1):
                name = f"block{block}_layer{layer}"
                new = self.part(name, _dense_layer, growth=self.growth)(x, train)
                x = jnp.concatenate([x, new], axis=-1)
        return self.classify(pixel_means(self.activated(x, train, "norm")), train)
