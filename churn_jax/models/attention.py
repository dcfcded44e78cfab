"""Self-attention and the two dense layers of a transformer block."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from churn_jax.models.layers import drop
from churn_jax.typing import Array

__all__ = ["MASKED", "Attention", "FeedForward", "small_normal"]

# Added to scores of positions that must not be seen. Finite, so that a row that sees
# nothing has equal weights and not NaN.
MASKED = -1e9

small_normal = nn.initializers.truncated_normal(0.02)


class Attention(nn.Module):
    r"""Scaled dot-product self-attention with several heads.

    $$ \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{D / h}} + b\right) V $$

    for each of h heads, then a dense layer over all of them. Scores and their softmax
    are float32 whatever the layer computes in.

    Attributes:
        heads: h, which divides the number of features.
        dropout: share of the attention weights that are dropped in training.
        kernel_init: of the four kernels.
        dtype: what it computes in.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> layer = Attention(heads=2)
        >>> x, bias = jnp.ones((3, 5, 8)), jnp.zeros((1, 1, 1, 5))
        >>> variables = layer.init(jax.random.key(0), x, bias, False)
        >>> layer.apply(variables, x, bias, False).shape
        (3, 5, 8)

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
        """`[..., L, D]` to `[..., L, D]`.

        Args:
            x: L positions.
            bias: added to the scores `[..., heads, L, L]`, of the same rank.
            train: whether attention weights are dropped.
        """
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
    """Two dense layers with the exact GELU between them.

    Attributes:
        hidden: width between the two.
        kernel_init: of both kernels.
        dtype: what it computes in.
    """

    hidden: int
    kernel_init: Callable = small_normal
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """`[..., D]` to `[..., D]`."""
        dense = partial(nn.Dense, kernel_init=self.kernel_init, dtype=self.dtype)
        y = nn.gelu(dense(self.hidden, name="dense1")(x), approximate=False)
        return dense(x.shape[-1], name="dense2")(y)
