"""LeNet5, the small convolutional network of the SVHN and MNIST experiments."""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from churn_jax.models.banded import banded_convolution
from churn_jax.models.base import ModelOutput, check_images
from churn_jax.typing import Array

__all__ = ["LeNet5"]

Layout = Literal["auto", "nhwc", "banded"]
_LAYOUTS = ("auto", "nhwc", "banded")
_MIN_SIZE = 12  # 12 -> pool 6 -> 5x5 kernel 2 -> pool 1


class _Conv(nn.Module):
    """Stride-1 convolution with bias; the layouts share one parameter tree."""

    features: int
    kernel_size: int
    padding: int
    layout: str
    dtype: Any

    @nn.compact
    def __call__(self, x: Array) -> Array:
        shape = (self.kernel_size, self.kernel_size, x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.he_normal(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        x, kernel, bias = (a.astype(self.dtype) for a in (x, kernel, bias))
        if self.layout == "banded":
            x = banded_convolution(x, kernel, padding=self.padding)
        else:
            x = jax.lax.conv_general_dilated(
                x,
                kernel,
                window_strides=(1, 1),
                padding=((self.padding, self.padding),) * 2,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
        return x + bias.reshape(1, 1, 1, -1)


def _average_pool(x: Array) -> Array:
    """2 x 2 means; a last odd row or column is dropped."""
    batch, height, width, channels = x.shape
    rows, columns = height // 2, width // 2
    x = x[:, : 2 * rows, : 2 * columns]
    return x.reshape(batch, rows, 2, columns, 2, channels).mean(axis=(2, 4))


class LeNet5(nn.Module):
    """LeNet5: two 5x5 convolutions (6 and 16), then dense 120, 84 and C.

    ReLU after every hidden layer and average pooling, the subsampling of the original,
    after both convolutions. The first convolution pads by two pixels, so that 28 x 28
    images give the classic 400 inputs of the first dense layer; the second does not
    pad. Images must be at least 12 x 12 (a smaller digit data set takes an `MLP` or a
    `ResNet`); 32 x 32 gives 576 inputs. 28 x 28 x 1 and ten classes have 61,706
    parameters.

    Attributes:
        num_classes: C.
        dtype: what the network computes in; parameters and logits are float32.
        axis_name: accepted so that every network of the zoo can be given one; there
            is no batch norm, so it changes nothing.
        layout: `"nhwc"` uses XLA's convolution, `"banded"` one dense product per
            convolution (`banded_convolution`), which trains about twice as fast on
            CPU. Both compute the same function of the same parameter tree.
            `"auto"` is `"banded"` where JAX's default backend is the CPU and `"nhwc"`
            elsewhere; name one when compiling for a device that is not the default.

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
    dtype: Any = jnp.float32
    axis_name: str | None = None
    layout: Layout = "auto"

    def __post_init__(self):
        if self.layout not in _LAYOUTS:
            raise ValueError(f"layout must be one of {_LAYOUTS}; got {self.layout!r}")
        super().__post_init__()

    @property
    def input_params(self) -> tuple[str, ...]:
        """Top-level parameters of the layer that sees the input."""
        return ("conv1",)

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and features `[B, 84]` of normalised images `[B, H, W, C]`.

        Raises:
            ValueError: `x` is not `[B, H, W, C]` or smaller than 12 x 12.
            TypeError: `x` is not floating point.
        """
        del train  # nothing here behaves differently
        check_images(x, min_rank=4, max_rank=4, min_size=_MIN_SIZE)
        layout = self.layout
        if layout == "auto":
            layout = "banded" if jax.default_backend() == "cpu" else "nhwc"
        x = _Conv(6, 5, 2, layout, self.dtype, name="conv1")(x)
        x = _average_pool(nn.relu(x))
        x = _Conv(16, 5, 0, layout, self.dtype, name="conv2")(x)
        x = _average_pool(nn.relu(x))
        x = x.reshape(x.shape[0], -1)
        he = nn.initializers.he_normal()
        x = nn.relu(nn.Dense(120, dtype=self.dtype, kernel_init=he, name="dense1")(x))
        x = nn.relu(nn.Dense(84, dtype=self.dtype, kernel_init=he, name="dense2")(x))
        logits = nn.Dense(self.num_classes, dtype=self.dtype, name="head")(x)
        return ModelOutput(logits.astype(jnp.float32), x.astype(jnp.float32))
