"""A plain multi-layer perceptron."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.base import ModelOutput, check_images
from churn_jax.typing import Array

__all__ = ["MLP"]


class MLP(nn.Module):
    """Dense layers with ReLU between them, then a dense layer of C logits.

    Images are flattened in row, column, channel order. Hidden kernels are He-normal
    (fan-in), the last one LeCun-normal, biases zero.

    Attributes:
        features: widths of the hidden layers; empty for a linear model.
        num_classes: C.
        dtype: what the network computes in; parameters and logits are float32.
        axis_name: accepted so that every network of the zoo can be given one; there
            is no batch norm, so it changes nothing.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = MLP(features=(32,), num_classes=10)
        >>> images = jnp.zeros((2, 8, 8, 1))
        >>> variables = model.init(jax.random.key(0), images)
        >>> logits, features = model.apply(variables, images)
        >>> logits.shape, features.shape
        ((2, 10), (2, 32))
    """

    features: tuple[int, ...]
    num_classes: int
    dtype: Any = jnp.float32
    axis_name: str | None = None

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and last hidden layer `[B, D]` of `[B, D]` or images.

        Raises:
            ValueError: `x` has fewer than two or more than four axes.
            TypeError: `x` is not floating point.
        """
        del train  # nothing here behaves differently
        check_images(x, min_rank=2, max_rank=4)
        x = x.reshape(x.shape[0], -1).astype(self.dtype)
        for layer, width in enumerate(self.features, start=1):
            x = nn.Dense(
                width,
                dtype=self.dtype,
                kernel_init=nn.initializers.he_normal(),
                name=f"dense{layer}",
            )(x)
            x = nn.relu(x)
        logits = nn.Dense(self.num_classes, dtype=self.dtype, name="head")(x)
        return ModelOutput(logits.astype(jnp.float32), x.astype(jnp.float32))
