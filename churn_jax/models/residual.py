"""The residual networks: for 32 and 224 pixels, with activation after and before."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.layers import (
    PLAIN,
    Layered,
    Layers,
    ModelOutput,
    check_dropout,
    check_images,
    drop,
)
from churn_jax.setting_checks import check_choice
from churn_jax.typing import Array

he_fan_out = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
_BLOCKS = ("basic", "bottleneck")
_STRIDES = ("3x3", "1x1")


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
    names = ("dtype", "axis_name", "momentum", "epsilon", "layers")
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def max_pool(x: Array) -> Array:
    """Maxima of 3x3 pixels at every second pixel; padding never wins."""
    return nn.max_pool(x, (3, 3), (2, 2), padding=((1, 1),) * 2)


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


class ResidualBlock(nn.Module):
    """A residual block with batch norm and ReLU after its convolutions.

    Basic: two 3x3 convolutions. Bottleneck: 1x1, 3x3 and 1x1 with four times as many
    channels out as in between. ReLU follows all but the last, and the sum with the
    shortcut. Where shapes change, that takes every second pixel and appends channels of
    zeros, or is a 1x1 convolution with batch norm if `projects`.

    Attributes:
        width: channels of the 3x3 convolutions.
        stride: 1, or 2 to halve the resolution.
        block: `basic` or `bottleneck`.
        stride_at: which convolution of a bottleneck has the stride, `3x3` or `1x1`;
            that of a basic block is in its first.
        projects: as above.
        dtype, axis_name, layers: as in `ResNet`.
        momentum, epsilon: as in `ImageNetResNet`.
    """

    width: int
    stride: int = 1
    block: str = "basic"
    stride_at: str = "3x3"
    projects: bool = False
    dtype: Any = jnp.float32
    axis_name: str | None = None
    momentum: float = 0.9
    epsilon: float = 1e-5
    layers: Layers = PLAIN

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, C]` to `[B, H / stride, W / stride, width or 4 width]`."""
        conv = partial(convolution, dtype=self.dtype, layers=self.layers)
        norm = partial(batch_norm, train, **norm_settings(self))
        form = _form(self.width, self.stride, self.block, self.stride_at)
        y = x
        for number, (width, size, stride) in enumerate(form, start=1):
            y = conv(width, size, stride=stride, name=f"conv{number}")(y)
            y = norm(name=f"norm{number}")(y)
            if number < len(form):
                y = nn.relu(y)
        width = y.shape[-1]
        if not self.projects:
            shortcut = x[:, :: self.stride, :: self.stride]
            missing = width - x.shape[-1]
            shortcut = jnp.pad(shortcut, ((0, 0), (0, 0), (0, 0), (0, missing)))
        elif self.stride != 1 or x.shape[-1] != width:
            shortcut = conv(width, 1, stride=self.stride, name="shortcut")(x)
            shortcut = norm(name="shortcut_norm")(shortcut)
        else:
            shortcut = x
        return nn.relu(y + shortcut)


class PreActivationBlock(nn.Module):
    """`x + conv2(a2(conv1(a1(x))))`, where `a` is batch norm and ReLU.

    A bottleneck has a third convolution, as in `ResidualBlock`. Where shapes change,
    `x` is replaced by a 1x1 convolution without batch norm: of `a1(x)`, or of `x`
    itself if `projects_input`.

    Attributes:
        width, stride, block, dtype, axis_name, momentum, epsilon, layers: as in
            `ResidualBlock`.
        projects_input: as above.
    """

    width: int
    stride: int = 1
    block: str = "basic"
    projects_input: bool = False
    dtype: Any = jnp.float32
    axis_name: str | None = None
    momentum: float = 0.9
    epsilon: float = 1e-5
    layers: Layers = PLAIN

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, C]` to `[B, H / stride, W / stride, width or 4 width]`."""
        conv = partial(convolution, dtype=self.dtype, layers=self.layers)
        norm = partial(batch_norm, train, **norm_settings(self))
        form = _form(self.width, self.stride, self.block)
        activated = nn.relu(norm(name="norm1")(x))
        shortcut, out = x, form[-1][0]
        if self.stride != 1 or x.shape[-1] != out:
            entered = x if self.projects_input else activated
            project = conv(out, 1, stride=self.stride, name="shortcut")
            shortcut = project(entered)
        y = activated
        for number, (width, size, stride) in enumerate(form, start=1):
            if number > 1:
                y = nn.relu(norm(name=f"norm{number}")(y))
            y = conv(width, size, stride=stride, name=f"conv{number}")(y)
        return shortcut + y


def _form(
    width: int, stride: int, block: str, stride_at: str = "3x3"
) -> list[tuple[int, int, int]]:
    """Channels, size and stride of the convolutions of a block."""
    if block == "basic":
        return [(width, 3, stride), (width, 3, 1)]
    first, second = (stride, 1) if stride_at == "1x1" else (1, stride)
    return [(width, 1, first), (width, 3, second), (4 * width, 1, 1)]


def _residual_network(
    module: Any,
    x: Array,
    train: bool,
    stages: Sequence[int],
    widths: Sequence[int],
    *,
    stem: int,
    large: bool,
    block_class: type[nn.Module] = ResidualBlock,
    layers: Layers = PLAIN,
    **form: Any,
) -> ModelOutput:
    """The stem, stages of blocks that halve the resolution, and the last layer."""
    check_images(x, min_rank=4, max_rank=4)
    x, entered = layers.enter(module, x, train)
    options = norm_settings(module)
    norm = partial(batch_norm, train, **options)
    size, stride = (7, 2) if large else (3, 1)
    shared = {"dtype": module.dtype, "layers": layers, "name": "stem"}
    x = convolution(stem, size, stride=stride, **shared)(x)
    if block_class is ResidualBlock:
        x = nn.relu(norm(name="stem_norm")(x))
    if large:
        x = max_pool(x)
    made = nn.remat(block_class, static_argnums=(2,)) if module.remat else block_class
    for stage, (blocks, width) in enumerate(zip(stages, widths, strict=True), start=1):
        for number in range(1, blocks + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            name = f"stage{stage}_block{number}"
            x = made(width, stride=stride, name=name, **form, **options)(x, train)
    if block_class is PreActivationBlock:
        x = nn.relu(norm(name="norm")(x))
    return classify(
        x,
        module.num_classes,
        module.dtype,
        layers,
        entered,
        dropout=module.dropout,
        train=train,
    )


class ResNet(Layered, nn.Module):
    """The residual network for 32 x 32 images: `depth = 6 n + 2` layers.

    A 3x3 convolution, three stages of n blocks at full, half and quarter resolution,
    the mean over pixels, a dense layer. Kernels of convolutions are He-normal by fan
    out, that of the dense layer LeCun-normal. Batch norm has momentum 0.9 (the share
    of the old running value that stays) and epsilon 1e-5. With ten classes and three
    input channels depth 20 has 269,722 parameters, 32 has 464,154 and 56 has 853,018.

    Attributes:
        depth: number of layers: 20, 32, 44, 56, 110, ...; 8 is the smallest.
        num_classes: C.
        widths: channels of the three stages, not decreasing.
        dtype: what the network computes in; parameters, batch-norm statistics and
            logits are float32.
        axis_name: mesh axis over which batch norm averages in training, or None.
            With an axis name the statistics are those of the whole batch; such a
            network trains inside `shard_map`, `pmap` or `vmap` over that axis only.
        remat: recompute each block in the backward pass: less memory, more time,
            the same values and the same parameter tree.
        layers: plain ones; a `BatchEnsemble` or a `MIMO` yields K members, logits
            `[K, B, C]` and features `[K, B, D]`.
        dropout: share of the last dense layer's inputs that are zero in training.

    Notes:
        The paper leaves open where the zero channels go; here they follow the others.
        The running variance is that of the batch (divided by n, not n - 1), as in
        every Flax network.

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
    dtype: Any = jnp.float32
    axis_name: str | None = None
    remat: bool = False
    layers: Layers = PLAIN
    dropout: float = 0.0

    input_params = ("stem",)  # top-level, of the layer that sees the input

    def __post_init__(self):
        if self.depth < 8 or (self.depth - 2) % 6:
            raise ValueError(
                f"depth must be 6 n + 2 (8, 14, 20, 32, 56, ...); got {self.depth}"
            )
        if len(self.widths) != 3 or list(self.widths) != sorted(self.widths):
            raise ValueError(
                f"widths must be three numbers that do not decrease; got {self.widths}"
            )
        check_dropout(self.dropout)
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
        form = {"stem": self.widths[0], "large": False, "layers": self.layers}
        return _residual_network(self, x, train, stages, self.widths, **form)


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
        stages = [(self.depth - 4) // 6] * 3
        return _residual_network(
            self,
            x,
            train,
            stages,
            doubled(16 * self.widen, stages),
            stem=16,
            large=False,
            block_class=PreActivationBlock,
            layers=self.layers,
            projects_input=True,
        )


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
        check_choice("block", self.block, _BLOCKS)
        check_choice("stride_at", self.stride_at, _STRIDES)
        check_stages(self.stages, self.width)
        check_dropout(self.dropout)
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
        return _residual_network(
            self,
            x,
            train,
            self.stages,
            doubled(self.width, self.stages),
            stem=self.width,
            large=True,
            block_class=PreActivationBlock,
            block="bottleneck",
        )
