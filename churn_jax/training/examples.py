"""What networks are given of a data set: normalised pixels, or bare token ids."""

import jax
import jax.numpy as jnp
import numpy as np

from churn_jax.data.splits import is_tokens
from churn_jax.methods.perturbing import check_pixels
from churn_jax.training.run import Run

__all__ = ["check_examples", "example_of"]


def example_of(image_shape: tuple[int, ...], *, tokens: bool) -> jax.ShapeDtypeStruct:
    """One example as networks meet it, `[1, ...]`: int32 ids, else float32.

    Example:
        >>> example_of((64,), tokens=True)
        ShapeDtypeStruct(shape=(1, 64), dtype=int32)
    """
    dtype = jnp.int32 if tokens else jnp.float32
    return jax.ShapeDtypeStruct((1, *image_shape), dtype)


def check_examples(run: Run, images: np.ndarray) -> None:
    """Refuses a run whose augmentation, method or networks do not fit its examples.

    Args:
        run: what is to be trained.
        images: of a split in memory.

    Raises:
        ValueError: token ids would be augmented or perturbed, or a network has fewer
            embeddings than there are ids or takes none; pixels leave the range to which
            perturbed ones are clipped.
    """
    check_pixels(run.method, images)
    if not is_tokens(images):
        return
    config = run.config
    if not config.augmentation.is_off and config.seeds.augment != "off":
        raise ValueError(
            f"{run.name}: token ids are not cropped, shifted or flipped; got "
            f"{config.augmentation}"
        )
    example = example_of(images.shape[1:], tokens=True)
    largest = int(images.max())
    for group in run.groups:
        network = group.network
        try:
            variables = jax.eval_shape(network.init, jax.random.key(0), example)
        except TypeError as error:
            raise ValueError(
                f"{run.name}: {network.name} does not take token ids ({error})"
            ) from error
        for name in network.input_params:
            table = variables["params"].get(name, {})
            known = table.get("embedding") if isinstance(table, dict) else None
            if known is not None and known.shape[0] <= largest:
                raise ValueError(
                    f"{run.name}: token ids go up to {largest}, but {network.name} has "
                    f"{known.shape[0]} embeddings; set --data.vocabulary-size "
                    f"{known.shape[0]} or widen the network"
                )
