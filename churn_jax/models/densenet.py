"""The densely connected networks for ImageNet: DenseNet-121 and -161."""

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
    norm_settings,
)
from churn_jax.typing import Array

_BOTTLENECK = 4  # channels of the 1x1 convolution, by those that a layer adds


class DenseLayer(nn.Module):
    """The channels that a layer adds: `conv2(a2(conv1(a1(x))))`.

    `a` is batch norm and ReLU, the convolutions are 1x1 to four times the new channels
    and 3x3.

    Attributes:
        growth: new channels.
        dtype, axis_name, momentum, epsilon: as in `DenseNet`.
    """

    growth: int
    dtype: Any = jnp.float32
    axis_name: str | None = None
    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, C]` to `[B, H, W, growth]`."""
        norm = partial(batch_norm, train, **norm_settings(self))
        y = nn.relu(norm(name="norm1")(x))
        width = _BOTTLENECK * self.growth
        y = convolution(width, 1, stride=1, dtype=self.dtype, name="conv1")(y)
        y = nn.relu(norm(name="norm2")(y))
        return convolution(self.growth, stride=1, dtype=self.dtype, name="conv2")(y)


class Transition(nn.Module):
    """Between two blocks: batch norm, ReLU, 1x1 convolution, means of 2 x 2 pixels.

    Half of the channels stay, and a quarter of the pixels.

    Attributes:
        dtype, axis_name, momentum, epsilon: as in `DenseNet`.
    """

    dtype: Any = jnp.float32
    axis_name: str | None = None
    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, C]` to `[B, H / 2, W / 2, C / 2]`; an odd last row is dropped."""
        norm = batch_norm(train, name="norm", **norm_settings(self))
        half = x.shape[-1] // 2
        x = convolution(half, 1, stride=1, dtype=self.dtype, name="conv")(
            nn.relu(norm(x))
        )
        return nn.avg_pool(x, (2, 2), (2, 2))


class DenseNet(nn.Module):
    """The densely connected network for 224 x 224 images.

    A 7x7 convolution and a 3x3 maximum, each at every second pixel, then blocks of
    layers. Each layer sees the block's input and what all layers before it have added,
    and adds `growth` channels of its own. A transition between two blocks halves
    channels and resolution. At the end batch norm and ReLU, the mean over pixels, a
    dense layer. Kernels of convolutions are He-normal by fan out, that of the dense
    layer LeCun-normal. With 1,000 classes and three input channels `(6, 12, 24, 16)`
    layers of 32 channels (DenseNet-121) have 7,978,856 parameters, and
    `(6, 12, 36, 24)` of 48 with a stem of 96 (DenseNet-161) 28,681,000.

    Attributes:
        num_classes: C.
        blocks: number of layers of every block.
        growth: channels that a layer adds.
        width: channels of the stem.
        dtype, axis_name, remat: as in `ResNet`; `remat` is by layer.
        momentum, epsilon: as in `ImageNetResNet`.
        dropout: share of the last dense layer's inputs that are zero in training. The
            paper's own dropout, after every convolution, is another one.

    Notes:
        The last transition must have two pixels to take the mean of, so four blocks
        need images of at least 29 x 29 and two (`densenet_tiny`) of 5 x 5.

    Example:
        >>> import jax, jax.numpy as jnp
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
    dtype: Any = jnp.float32
    axis_name: str | None = None
    remat: bool = False
    momentum: float = 0.9
    epsilon: float = 1e-5
    dropout: float = 0.0

    input_params = ("stem",)  # top-level, of the layer that sees the input

    def __post_init__(self):
        check_stages(self.blocks, self.width, "blocks", "layers")
        if self.growth < 1:
            raise ValueError(f"growth must be at least 1; got {self.growth}")
        check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, D]`; arguments as in `ResNet`.

        Raises:
            ValueError: the images are too small.
        """
        # A quarter of the pixels, rounded up, can be halved after each block but one.
        smallest = 4 * (2 ** (len(self.blocks) - 1) - 1) + 1
        check_images(x, min_rank=4, max_rank=4, min_size=smallest)
        options = norm_settings(self)
        layer_class = DenseLayer
        if self.remat:
            layer_class = nn.remat(DenseLayer, static_argnums=(2,))
        x = convolution(self.width, 7, stride=2, dtype=self.dtype, name="stem")(x)
        x = max_pool(nn.relu(batch_norm(train, name="stem_norm", **options)(x)))
        for block, layers in enumerate(self.blocks, start=1):
            if block > 1:
                x = Transition(name=f"transition{block - 1}", **options)(x, train)
            for layer in range(1, layers + 1):
                name = f"block{block}_layer{layer}"
                new = layer_class(self.growth, name=name, **options)(x, train)
                x = jnp.concatenate([x, new], axis=-1)
        x = nn.relu(batch_norm(train, name="norm", **options)(x))
        return classify(
            x, self.num_classes, self.dtype, dropout=self.dropout, train=train
        )
