"""The CIFAR ResNets: 20, 32, 56 layers, post-activation, parameter-free shortcuts."""

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
    residual_stages,
)
from churn_jax.typing import Array


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm and a parameter-free shortcut (option A).

    Where the block changes resolution, the shortcut takes every second pixel and
    appends channels of zeros.

    Attributes:
        width: channels out.
        stride: 1, or 2 to halve the resolution.
        dtype, axis_name, layers: as in `ResNet`.
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
        y = conv(stride=self.stride, name="conv1")(x)
        y = nn.relu(norm("norm1")(y))
        y = norm("norm2")(conv(stride=1, name="conv2")(y))
        shortcut = x[:, :: self.stride, :: self.stride]
        missing = self.width - x.shape[-1]
        shortcut = jnp.pad(shortcut, ((0, 0), (0, 0), (0, 0), (0, missing)))
        return nn.relu(y + shortcut)


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
        check_images(x, min_rank=4, max_rank=4)
        layers = self.layers
        x, entered = layers.enter(self, x, train)
        shared = {"dtype": self.dtype, "layers": layers}
        x = convolution(self.widths[0], stride=1, name="stem", **shared)(x)
        x = nn.relu(batch_norm(train, self.axis_name, name="stem_norm", **shared)(x))
        x = residual_stages(
            x,
            train,
            BasicBlock,
            [(self.depth - 2) // 6] * 3,
            self.widths,
            remat=self.remat,
            axis_name=self.axis_name,
            **shared,
        )
        return classify(
            x,
            self.num_classes,
            self.dtype,
            layers,
            entered,
            dropout=self.dropout,
            train=train,
        )
