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
    max_pool,
)
from churn_jax.typing import Array

__all__ = ["PreActivationBottleneck", "ResNetV2"]


class PreActivationBottleneck(nn.Module):
    """`x + conv3(a3(conv2(a2(conv1(a1(x))))))`, where `a` is batch norm and ReLU.

    The convolutions are 1x1, 3x3 (which has the stride) and 1x1. Where shapes change,
    `x` is replaced by a 1x1 convolution of `a1(x)`, without batch norm.

    Attributes:
        width: channels of the 3x3 convolution; the block puts out four times as many.
        stride: 1, or 2 to halve the resolution.
        dtype: what the block computes in.
        axis_name: mesh axis over which batch norm averages, or None.
        momentum: share of batch norm's old running value that stays.
        epsilon: added to batch norm's variance.
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
        norm = partial(
            batch_norm,
            train,
            self.axis_name,
            self.dtype,
            momentum=self.momentum,
            epsilon=self.epsilon,
        )
        activated = nn.relu(norm("norm1")(x))
        shortcut = x
        if self.stride != 1 or x.shape[-1] != 4 * self.width:
            shortcut = conv(4 * self.width, 1, stride=self.stride, name="shortcut")(
                activated
            )
        y = conv(self.width, 1, stride=1, name="conv1")(activated)
        y = nn.relu(norm("norm2")(y))
        y = conv(self.width, 3, stride=self.stride, name="conv2")(y)
        y = nn.relu(norm("norm3")(y))
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
        dtype: what the network computes in; parameters, batch-norm statistics and
            logits are float32.
        axis_name: mesh axis over which batch norm averages in training, or None.
            With an axis name the statistics are those of the whole batch; such a
            network trains inside `shard_map`, `pmap` or `vmap` over that axis only.
        remat: recompute each block in the backward pass: less memory, more time,
            the same values and the same parameter tree.
        momentum: share of batch norm's old running value that stays.
        epsilon: added to batch norm's variance.
        dropout: share of the last dense layer's inputs that are zero in training.

    Notes:
        As in the public PyTorch model the stride is in the first block of a stage and
        in its 3x3 convolution. The `reproducibility` paper (Appendix A) speaks of "the
        stride of the first convolution filter within each block", which may mean the
        1x1 convolution before it: parameters and shapes are the same, the function is
        not. It does not say how batch norm is set. The running
        variance is that of the batch (divided by n, not n - 1), as in every Flax
        network.

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

    def __post_init__(self):
        check_stages(self.stages, self.width)
        check_dropout(self.dropout)
        super().__post_init__()

    @property
    def input_params(self) -> tuple[str, ...]:
        """Top-level parameters of the layer that sees the input."""
        return ("stem",)

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, D]` of images `[B, H, W, 3]`.

        Args:
            x: normalised images, floating point.
            train: use the batch's statistics and update the running ones, which needs
                `mutable=["batch_stats"]`.

        Raises:
            ValueError: `x` is not `[B, H, W, C]`.
            TypeError: `x` is not floating point.
        """
        check_images(x, min_rank=4, max_rank=4)
        options = {
            "dtype": self.dtype,
            "axis_name": self.axis_name,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
        }
        block_class = PreActivationBottleneck
        if self.remat:
            block_class = nn.remat(PreActivationBottleneck, static_argnums=(2,))
        x = convolution(self.width, 7, stride=2, dtype=self.dtype, name="stem")(x)
        x = max_pool(x)
        for stage, blocks in enumerate(self.stages, start=1):
            for block in range(1, blocks + 1):
                x = block_class(
                    self.width * 2 ** (stage - 1),
                    stride=2 if stage > 1 and block == 1 else 1,
                    name=f"stage{stage}_block{block}",
                    **options,
                )(x, train)
        x = nn.relu(batch_norm(train, name="norm", **options)(x))
        return classify(
            x, self.num_classes, self.dtype, dropout=self.dropout, train=train
        )
