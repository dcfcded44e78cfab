"""A network of token ids that compiles at once."""

import flax.linen as nn
import jax.numpy as jnp


class Bag(nn.Module):
    """The mean of a text's embeddings, and a dense layer."""

    num_classes: int = 3
    vocabulary: int = 20
    dtype: type = jnp.float32
    input_params = ("embed",)

    @nn.compact
    def __call__(self, x):
        seen = (x != 0)[..., None]
        each = nn.Embed(self.vocabulary, 8, name="embed")(x)
        total = jnp.sum(jnp.where(seen, each, 0.0), axis=1)
        return nn.Dense(self.num_classes, name="head")(total / jnp.sum(seen, axis=1))
