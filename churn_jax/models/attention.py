"""Self-attention and the two dense layers of a transformer block."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from churn_jax.models.layers import drop
from churn_jax.typing import Array

# Added to the scores of hidden positions. Finite, so that a row of hidden positions
# alone has equal weights and not NaN.
MASKED = -1e9

small_normal = nn.initializers.truncated_normal(0.02)


class Attention(nn.Module):
    """`softmax(Q K^T / sqrt(D / h) + b) V` for each of h heads, then a dense layer.

    Scores and their softmax are float32 whatever the layer computes in.

    References:
        [vaswani2017] Sec. 3.2 -- Vaswani et al., Attention Is All You Need,
            NeurIPS 2017. https://arxiv.org/abs/1706.03762
    """

    heads: int
    dropout: float = 0.0
    kernel_init: Callable = small_normal
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array, bias: Array, train: bool) -> Array:
        """`[..., L, D]` to `[..., L, D]`; `bias` is added to `[..., heads, L, L]`."""
        width = x.shape[-1]
        dense = partial(nn.Dense, width, kernel_init=self.kernel_init, dtype=self.dtype)

        def project(name):
            y = dense(name=name)(x)
            return y.reshape(*y.shape[:-1], self.heads, width // self.heads)

        query, key, value = (project(name) for name in ("query", "key", "value"))
        query = query * (width // self.heads) ** -0.5
        scores = jnp.einsum(
            "...qhd,...khd->...hqk", query, key, preferred_element_type=jnp.float32
        )
        weights = jax.nn.softmax(scores + bias).astype(self.dtype)
        weights = drop(weights, self.dropout, train)
        y = jnp.einsum("...hqk,...khd->...qhd", weights, value)
        return dense(name="out")(y.reshape(*x.shape[:-1], width))


class FeedForward(nn.Module):
    """Two dense layers with the exact GELU between them."""

    hidden: int
    kernel_init: Callable = small_normal
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """`[..., D]` to `[..., D]`."""
        dense = partial(nn.Dense, kernel_init=self.kernel_init, dtype=self.dtype)
        y = nn.gelu(dense(self.hidden, name="dense1")(x), approximate=False)
        return dense(x.shape[-1], name="dense2")(y)
