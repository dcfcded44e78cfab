"""The fast CIFAR-10 network of airbench: eight layers, the first one fixed."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from churn_jax.models.layers import (
    ConvolutionalNetwork,
    ModelOutput,
    check_images,
    drop,
    halved,
)
from churn_jax.setting_checks import check_least
from churn_jax.typing import Array

# Mean products of the channels (RR, RG, RB, GG, GB, BB) of a pixel with itself and with
# its neighbours in the row, in the column and on the two diagonals: the 50,000 training
# images of CIFAR-10, standardised by their channels' means and deviations.
_PRODUCTS = (
    (0.99204, 0.90255, 0.77497, 0.99135, 0.89838, 0.98937),
    (0.92052, 0.83501, 0.71694, 0.91961, 0.83601, 0.92895),
    (0.9086, 0.82415, 0.7072, 0.90853, 0.82578, 0.91882),
    (0.85677, 0.77556, 0.66583, 0.8568, 0.78102, 0.87528),
    (0.85753, 0.77623, 0.66643, 0.85741, 0.78156, 0.87582),
)
_WHITENING_EPSILON = 5e-4  # of the published recipe; added to the eigenvalues

# Uniform within 1 / sqrt(fan in), as in PyTorch.
_uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


@functools.cache
def whitening() -> np.ndarray:
    """Kernels `[2, 2, 3, 24]`: the whitened directions of 2 x 2 pixels, both signs."""
    row, column = np.triu_indices(3)
    blocks = np.zeros((5, 3, 3))
    for block, products in zip(blocks, _PRODUCTS, strict=True):
        block[row, column] = block[column, row] = products
    # Pixels in the order (0, 0), (0, 1), (1, 0), (1, 1).
    kinds = np.array([[0, 1, 2, 3], [1, 0, 4, 2], [2, 4, 0, 1], [3, 2, 1, 0]])
    covariance = blocks[kinds].transpose(0, 2, 1, 3).reshape(12, 12)
    values, vectors = np.linalg.eigh(covariance)
    kernels = vectors[:, ::-1] / np.sqrt(values[::-1] + _WHITENING_EPSILON)
    kernels = np.concatenate([kernels, -kernels], axis=1)
    return kernels.reshape(2, 2, 3, 24).astype(np.float32)


def _identity(key, shape, dtype=jnp.float32) -> Array:
    """The first outputs of a 3x3 convolution copy its inputs; the others are drawn."""
    kernel = _uniform(key, shape, dtype)
    inputs = shape[2]
    copied = jnp.zeros((*shape[:3], inputs), dtype).at[1, 1].set(jnp.eye(inputs))
    return kernel.at[..., :inputs].set(copied[..., : shape[3]])


def _squares(x: Array) -> Array:
    """Every pixel with its right, lower, lower right one: `[B, H - 1, W - 1, 4 C]`."""
    # XLA's convolution of three channels takes three times as long on a CPU.
    rows = x[:, :-1], x[:, 1:]
    return jnp.concatenate(
        [part for row in rows for part in (row[:, :, :-1], row[:, :, 1:])], axis=-1
    )


def _views(x: Array, views: int) -> list[tuple[float, Array]]:
    """Images that stand for `x [B, H, W, C]` in evaluation, and their weights."""
    if views == 1:
        return [(1.0, x)]
    sources = [(0.5, x)] if views == 2 else [(0.25, x)]
    if views == 6:
        height, width = x.shape[1:3]
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
        sources += [
            (0.125, padded[:, start : start + height, start : start + width])
            for start in (0, 2)
        ]
    mirrored = [(weight, source[:, :, ::-1]) for weight, source in sources]
    return [*sources, *mirrored]


def _stage(net: Any, x: Array, train: bool, *, width: int) -> Array:
    """Two 3x3 convolutions, the first followed by maxima, each by batch norm, GELU."""
    for number in (1, 2):
        x = net.conv(x, width, kernel_init=_identity, name=f"conv{number}")
        if number == 1:
            x = halved(x)
        x = net.norm(x, train, use_scale=False, name=f"norm{number}")
        x = net.activate(x)
    return x


class Airbench(ConvolutionalNetwork, nn.Module):
    """The network of airbench94, which learns CIFAR-10 in ten epochs: eight layers.

    A fixed 2x2 convolution whitens the pixels (24 channels, with a bias that is
    trained). Three stages of two 3x3 convolutions follow (64, 256 and 256 channels),
    then the maxima over all pixels, divided by nine, and a dense layer without bias.
    Convolutions begin as the identity where they can. In evaluation the features are
    means over several views of the image. With 32 x 32 pixels and ten classes it has
    1,971,352 parameters.

    Attributes:
        num_classes: C.
        width: channels of the first stage; the others have four times as many.
        views: images for which one is evaluated: 1; 2, with its mirror image; 6, with
            both moved by a pixel up and left, and down and right, at half the weight.
        momentum, epsilon: those of batch norm, which has a bias and no scale.

    Notes:
        The published script whitens with the eigenvectors of its first 5,000 training
        images. Here the covariance of 2 x 2 pixels is built in, from all of CIFAR-10
        under the assumption that neighbours are alike everywhere; on CIFAR-10 both
        leave the same variances, up to 2 %. Images of another kind are not whitened by
        it.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = Airbench(num_classes=10, width=4)
        >>> images = jnp.zeros((2, 32, 32, 3))
        >>> variables = model.init(jax.random.key(0), images)
        >>> model.apply(variables, images).logits.shape
        (2, 10)

    References:
        [jordan2024] Sec. 3 -- Jordan, 94% on CIFAR-10 in 3.29 Seconds on a Single GPU,
            2024. https://arxiv.org/abs/2404.00498
    """

    num_classes: int  # pyrefly: ignore[bad-class-definition]
    width: int = 64
    views: int = 6
    momentum: float = dataclasses.field(default=0.6, kw_only=True)
    epsilon: float = dataclasses.field(default=1e-12, kw_only=True)
    activation: str = dataclasses.field(default="gelu", kw_only=True)

    input_params = ()  # the first layer is fixed

    def __post_init__(self):
        check_least("width", self.width, 1)
        if self.views not in (1, 2, 6):
            raise ValueError(f"views must be one of (1, 2, 6); got {self.views}")
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and features `[B, 4 * width]` of images `[B, H, W, 3]`.

        Raises:
            ValueError: the images are smaller than 9 x 9 or not of three channels;
                others as in `ResNet`.
        """
        check_images(x, min_size=9)
        if x.shape[-1] != 3:
            raise ValueError(f"images must have 3 channels; got shape {x.shape}")
        kernel = jnp.asarray(whitening().reshape(12, 24), self.dtype)
        bias = self.param("whitening_bias", nn.initializers.zeros, (24,), jnp.float32)
        stages = [
            self.part(f"stage{number}", _stage, width=self.width * wide)
            for number, wide in ((1, 1), (2, 4), (3, 4))
        ]
        features: Any = 0.0
        views = 1 if train or self.is_initializing() else self.views
        for weight, view in _views(x, views):
            y = _squares(view.astype(self.dtype)) @ kernel
            y = self.activate(y + bias.astype(self.dtype).reshape(1, 1, 1, -1))
            for stage in stages:
                y = stage(y, train)
            features += weight / 9 * jnp.max(y, axis=(1, 2)).astype(jnp.float32)
        features = drop(features, self.dropout, train)
        logits = nn.Dense(
            self.num_classes,
            use_bias=False,
            kernel_init=_uniform,
            dtype=self.dtype,
            name="head",
        )(features)
        return ModelOutput(logits.astype(jnp.float32), features)
