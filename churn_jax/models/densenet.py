"""The densely connected networks for ImageNet: DenseNet-121 and -161."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.layers import (
    ConvolutionalNetwork,
    ModelOutput,
    check_images,
    check_stages,
    max_pool,
    pixel_means,
)
from churn_jax.setting_checks import check_least
from churn_jax.typing import Array

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
