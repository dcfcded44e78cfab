"""The residual networks: for 32 and 224 pixels, with activation after and before."""

from collections.abc import Sequence
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.layers import (
    PLAIN,
    ConvolutionalNetwork,
    Layers,
    ModelOutput,
    check_images,
    check_stages,
    max_pool,
    pixel_means,
)
from churn_jax.setting_checks import check_least, check_settings
from churn_jax.typing import Array


def _convolutions(
    width: int, stride: int, block: str, stride_at: str = "3x3"
) -> list[tuple[int, int, int]]:
    """Channels, size and stride of the convolutions of a block."""
    if block == "basic":
        return [(width, 3, stride), (width, 3, 1)]
    first, second = (stride, 1) if stride_at == "1x1" else (1, stride)
    return [(width, 1, first), (width, 3, second), (4 * width, 1, 1)]


def _residual_block(
    net: Any,
    x: Array,
    train: bool,
    *,
    width: int,
    stride: int,
    block: str = "basic",
    stride_at: str = "3x3",
    projects: bool = False,
) -> Array:
    """Convolutions with batch norm, ReLU after all but the last and after the sum."""
    y, form = x, _convolutions(width, stride, block, stride_at)
    for number, (channels, size, step) in enumerate(form, start=1):
        y = net.conv(y, channels, size, stride=step, name=f"conv{number}")
        y = net.norm(y, train, name=f"norm{number}")
        if number < len(form):
            y = net.activate(y)
    out = y.shape[-1]
    if not projects:  # every second pixel, and channels of zeros
        missing = out - x.shape[-1]
        x = x[:, ::stride, ::stride]
        x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, missing)))
    elif stride != 1 or x.shape[-1] != out:
        x = net.conv(x, out, 1, stride=stride, name="shortcut")
        x = net.norm(x, train, name="shortcut_norm")
    return net.activate(y + x)


def _pre_activation_block(
    net: Any,
    x: Array,
    train: bool,
    *,
    width: int,
    stride: int,
    block: str = "basic",
    projects_input: bool = False,
) -> Array:
    """`x + conv2(a2(conv1(a1(x))))`, where `a` is batch norm and ReLU."""
    form = _convolutions(width, stride, block)
    y = net.activated(x, train, "norm1")
    out = form[-1][0]
    if stride != 1 or x.shape[-1] != out:
        entered = x if projects_input else y
        x = net.conv(entered, out, 1, stride=stride, name="shortcut")
    for number, (channels, size, step) in enumerate(form, start=1):
        if number > 1:
            y = net.activated(y, train, f"norm{number}")
        y = net.conv(y, channels, size, stride=step, name=f"conv{number}")
    return x + y


def _residual_network(
    net: Any,
    x: Array,
    train: bool,
    stages: Sequence[int],
    widths: Sequence[int],
    *,
    stem: int,
    large: bool,
    block_function: Any = _residual_block,
    **form: Any,
) -> ModelOutput:
    """The stem, stages of blocks that halve the resolution, and the last layer."""
    check_images(x)
    before = block_function is _pre_activation_block
    x, entered = net.layers.enter(net, x, train)
    size, stride = (7, 2) if large else (3, 1)
    x = net.conv(x, stem, size, stride=stride, name="stem")
    if not before:
        x = net.activated(x, train, "stem_norm")
    if large:
        x = max_pool(x)
    for stage, (blocks, width) in enumerate(zip(stages, widths, strict=True), start=1):
        for number in range(1, blocks + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            name = f"stage{stage}_block{number}"
            shape = {"width": width, "stride": stride}
            x = net.part(name, block_function, **shape, **form)(x, train)
    if before:
        x = net.activated(x, train, "norm")
    return net.classify(pixel_means(x), train, entered)


def doubled(width: int, stages: Sequence[int]) -> list[int]:
    """Channels of each stage, twice as many as of the one before it."""
    return [width * 2**stage for stage in range(len(stages))]


class ResNet(ConvolutionalNetwork, nn.Module):
    """The residual network for 32 x 32 images: `depth = 6 n + 2` layers.

    A 3x3 convolution, three stages of n blocks at full, half and quarter resolution,
    the mean over pixels, a dense layer. With ten classes and three input channels depth
    20 has 269,722 parameters, 32 has 464,154 and 56 has 853,018.

    Attributes:
        depth: number of layers: 20, 32, 44, 56, 110, ...; 8 is the smallest.
        num_classes: C.
        widths: channels of the three stages, not decreasing.
        layers: plain ones; a `BatchEnsemble` or a `MIMO` yields K members, logits
            `[K, B, C]` and features `[K, B, D]`.
        dtype, axis_name, dropout, remat, momentum, epsilon: as in
            `ConvolutionalNetwork`, also of the other networks.

    Notes:
        The paper leaves open where the zero channels go; here they follow the others.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = ResNet(depth=8, num_classes=10)
        >>> images = jnp.zeros((2, 8, 8, 3))
        >>> variables = model.init(jax.random.key(0), images)
        >>> output, updated = model.apply(
        ...     variables, images, train=True, mutable=["batch_stats"])
        >>> output.logits.shape, list(updated)
        ((2, 10), ['batch_stats'])

    References:
        [he2016] Sec. 4.2 -- He et al., Deep Residual Learning for Image Recognition,
            CVPR 2016. https://arxiv.org/abs/1512.03385
    """

    depth: int
    num_classes: int
    widths: tuple[int, int, int] = (16, 32, 64)
    layers: Layers = PLAIN

    def __post_init__(self):
        if self.depth < 8 or (self.depth - 2) % 6:
            raise ValueError(
                f"depth must be 6 n + 2 (8, 14, 20, 32, 56, ...); got {self.depth}"
            )
        if len(self.widths) != 3 or list(self.widths) != sorted(self.widths):
            raise ValueError(
                f"widths must be three numbers that do not decrease; got {self.widths}"
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, widths[-1]]` of images `[B, H, W, C]`.

        Args:
            x: normalised images, floating point.
            train: use the batch's statistics and update the running ones, which needs
                `mutable=["batch_stats"]`.

        Raises:
            ValueError: `x` is not `[B, H, W, C]`.
            TypeError: `x` is not floating point.
        """
        stages = [(self.depth - 2) // 6] * 3
        form = {"stem": self.widths[0], "large": False}
        return _residual_network(self, x, train, stages, self.widths, **form)


class WideResNet(ConvolutionalNetwork, nn.Module):
    """The wide pre-activation network WRN-depth-k: `depth = 6 n + 4` layers.

    A 3x3 convolution of 16 channels, three stages of n blocks at full, half and
    quarter resolution with 16 k, 32 k and 64 k channels, batch norm and ReLU, the mean
    over pixels, a dense layer. 64-pixel images take the same network; their last
    stage has 16 x 16 pixels. With ten classes and three input channels WRN-28-10 has
    36,479,194 parameters, WRN-28-5 9,132,634, WRN-28-2 1,467,610, WRN-28-1 369,498.

    Attributes:
        depth: number of layers: 28, 40, ...; 10 is the smallest.
        num_classes: C.
        widen: k, how many times wider than 16, 32 and 64 channels.
        layers: as in `ResNet`.

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
    layers: Layers = PLAIN

    def __post_init__(self):
        if self.depth < 10 or (self.depth - 4) % 6:
            raise ValueError(
                f"depth must be 6 n + 4 (10, 16, 22, 28, 40, ...); got {self.depth}"
            )
        check_least("widen", self.widen, 1)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, 64 k]`; arguments as in `ResNet`."""
        stages = [(self.depth - 4) // 6] * 3
        return _residual_network(
            self,
            x,
            train,
            stages,
            doubled(16 * self.widen, stages),
            stem=16,
            large=False,
            block_function=_pre_activation_block,
            projects_input=True,
        )


class ImageNetResNet(ConvolutionalNetwork, nn.Module):
    """The residual network for 224 x 224 images.

    A 7x7 convolution and a 3x3 maximum, each at every second pixel, stages of blocks
    of which each but the first halves the resolution and doubles the channels, the
    mean over pixels, a dense layer. With 1,000 classes and three input channels
    `(2, 2, 2, 2)` basic blocks (ResNet-18) have 11,689,512 parameters, and bottlenecks
    `(3, 4, 6, 3)` (ResNet-50) 25,557,032 and `(3, 4, 23, 3)` (ResNet-101) 44,549,160.

    Attributes:
        num_classes: C.
        stages: number of blocks of every stage.
        block: `basic` or `bottleneck`.
        width: channels of the stem and of the first stage's 3x3 convolutions.
        stride_at: which convolution of a bottleneck has the stride: `3x3` as in the
            public PyTorch models ("v1.5"), or `1x1` as in the paper.

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
        Table 1 of the paper of `ResNet`.
    """

    num_classes: int
    stages: tuple[int, ...] = (3, 4, 6, 3)
    block: Literal["basic", "bottleneck"] = "bottleneck"
    width: int = 64
    stride_at: Literal["3x3", "1x1"] = "3x3"

    def __post_init__(self):
        check_settings(self, block=("basic", "bottleneck"), stride_at=("3x3", "1x1"))
        check_stages(self.stages, self.width)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, D]`; arguments as in `ResNet`."""
        return _residual_network(
            self,
            x,
            train,
            self.stages,
            doubled(self.width, self.stages),
            stem=self.width,
            large=True,
            block=self.block,
            stride_at=self.stride_at,
            projects=True,
        )


class ResNetV2(ConvolutionalNetwork, nn.Module):
    """The pre-activation residual network for 224 x 224 images.

    A 7x7 convolution and a 3x3 maximum, each at every second pixel and neither
    normalised, stages of bottlenecks of which each but the first halves the
    resolution and doubles the channels, batch norm and ReLU, the mean over pixels, a
    dense layer. `(3, 4, 6, 3)` is ResNet-v2-50, which has 25,549,352 parameters with
    1,000 classes and three input channels.

    Attributes:
        num_classes: C.
        stages: number of bottlenecks of every stage.
        width: channels of the stem and of the first stage's 3x3 convolutions.

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

    def __post_init__(self):
        check_stages(self.stages, self.width)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, D]`; arguments as in `ResNet`."""
        return _residual_network(
            self,
            x,
            train,
            self.stages,
            doubled(self.width, self.stages),
            stem=self.width,
            large=True,
            block_function=_pre_activation_block,
            block="bottleneck",
        )
