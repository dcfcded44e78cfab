"""LeNet5, the small convolutional network of the SVHN and MNIST experiments."""

from functools import partial
from typing import Literal

import flax.linen as nn

from churn_jax.models.convolution import banded_convolution
from churn_jax.models.layers import (
    PLAIN,
    Layers,
    ModelOutput,
    ZooNetwork,
    backend,
    check_images,
)
from churn_jax.setting_checks import check_choice
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
        >>> import jax, jax.numpy as jnp
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
