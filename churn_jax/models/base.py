"""What every network of the zoo returns, and what it accepts."""

from typing import NamedTuple

import jax.numpy as jnp

from churn_jax.typing import Array

__all__ = ["ModelOutput", "check_images"]


class ModelOutput(NamedTuple):
    """What a network says about a batch.

    Attributes:
        logits: `[B, C]`, float32 whatever the network computes in.
        features: `[B, D]`, float32: the input of the last dense layer.
    """

    logits: Array
    features: Array


def check_images(images, *, min_rank: int, max_rank: int, min_size: int = 1) -> None:
    """`images` are floating point, of a rank and a size that the network can take.

    Args:
        images: `[B, H, W, C]`, or `[B, D]` where `min_rank` is 2.
        min_rank: smallest number of axes, the batch axis included.
        max_rank: largest number of axes.
        min_size: smallest height and width in pixels.

    Raises:
        ValueError: rank or size does not fit.
        TypeError: the dtype is not floating point.
    """
    shape = jnp.shape(images)
    if not min_rank <= len(shape) <= max_rank:
        expected = "[B, H, W, C]" if min_rank == 4 else "[B, D] or [B, H, W, C]"
        raise ValueError(f"images must be {expected}; got shape {shape}")
    if not jnp.issubdtype(jnp.result_type(images), jnp.floating):
        raise TypeError(
            "images must be floating point, already normalised; got "
            f"{jnp.result_type(images)}"
        )
    if len(shape) == 4 and min(shape[1:3]) < min_size:
        raise ValueError(
            f"images must be at least {min_size} x {min_size} pixels for this network; "
            f"got shape {shape}"
        )
