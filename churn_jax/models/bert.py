"""Text classifiers over token ids: BERT, also in small forms."""

import dataclasses
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.attention import MASKED, Attention, FeedForward, small_normal
from churn_jax.models.layers import ModelOutput, ZooNetwork, drop
from churn_jax.setting_checks import check_choice
from churn_jax.typing import Array

_POOLINGS = ("first", "mean")


def check_tokens(tokens, positions: int) -> None:
    """Refuses tokens that are not integers `[B, L]` with L up to `positions`."""
    shape, dtype = jnp.shape(tokens), jnp.result_type(tokens)
    if len(shape) != 2:
        raise ValueError(f"tokens must be [B, L]; got shape {shape}")
    if not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(f"tokens must be integer ids; got {dtype}")
    if not 1 <= shape[1] <= positions:
        raise ValueError(
            f"tokens must have 1 to {positions} columns for this network; got shape "
            f"{shape}"
        )


class BertLayer(nn.Module):
    """Attention and two dense layers; layer norm after each sum.

    Attributes:
        heads: heads of the attention.
        hidden: width between the two dense layers.
        dropout: in training, of attention weights and of both branches.
        epsilon: added to layer norm's variance.
        dtype: what it computes in.
    """

    heads: int
    hidden: int
    dropout: float = 0.1
    epsilon: float = 1e-12
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array, bias: Array, train: bool) -> Array:
        """`[B, L, D]` to `[B, L, D]`; `bias` is `[B, 1, 1, L]`."""

        def add(x, y, name):
            y = drop(y, self.dropout, train)
            return nn.LayerNorm(self.epsilon, dtype=self.dtype, name=name)(x + y)

        attention = Attention(
            self.heads, self.dropout, dtype=self.dtype, name="attention"
        )
        x = add(x, attention(x, bias, train), "norm1")
        forward = FeedForward(self.hidden, dtype=self.dtype, name="feed_forward")
        return add(x, forward(x), "norm2")


class Bert(ZooNetwork, nn.Module):
    """A bidirectional transformer encoder and a dense layer of C logits.

    Embeddings of tokens, positions and one segment are summed, normalised and passed
    through the layers. Id 0 is padding: no position sees it. Kernels and embeddings
    start from a normal of standard deviation 0.02 cut at two, biases at zero. With the
    defaults (BERT-base) there are 109,482,240 parameters before the last layer.

    Attributes:
        num_classes: C.
        vocabulary_size: number of token ids.
        positions: the longest text in tokens.
        types: number of segment embeddings; the first is used, 0 has none.
        depth: number of layers.
        width: D, of every layer.
        attention_heads: attention heads of every layer; divides `width`.
        hidden: width between the two dense layers of every layer.
        pooling: what the last layer sees: `first`, BERT's dense layer with tanh of the
            first token, or `mean`, the mean over all tokens that are not padding.
        dropout: in training, of embeddings, attention weights, both branches of every
            layer and the input of the last dense layer.
        remat: as in `ResNet`, by layer.
        epsilon: added to layer norm's variance.

    Notes:
        Ids at or above `vocabulary_size` count as the last one, which stands for all
        unknown tokens where the data set's size is the network's. In a text of padding
        alone every position sees every other, equally.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = Bert(num_classes=4, vocabulary_size=50, depth=1, width=8,
        ...              attention_heads=2, hidden=16, positions=6)
        >>> tokens = jnp.array([[3, 9, 4, 0], [7, 7, 0, 0]])
        >>> variables = model.init(jax.random.key(0), tokens)
        >>> output = model.apply(variables, tokens)
        >>> output.logits.shape, output.features.shape
        ((2, 4), (2, 8))

    References:
        [devlin2018] Sec. 3 -- Devlin et al., BERT: Pre-training of Deep Bidirectional
            Transformers for Language Understanding, NAACL 2019.
            https://arxiv.org/abs/1810.04805
    """

    num_classes: int  # pyrefly: ignore[bad-class-definition]
    vocabulary_size: int = 30522
    positions: int = 512
    types: int = 2
    depth: int = 12
    width: int = 768
    attention_heads: int = 12
    hidden: int = 3072
    pooling: Literal["first", "mean"] = "first"
    dropout: float = dataclasses.field(default=0.1, kw_only=True)
    remat: bool = False
    epsilon: float = 1e-12

    input_params = ("tokens",)

    def __post_init__(self):
        check_choice("pooling", self.pooling, _POOLINGS)
        if self.attention_heads < 1 or self.width % self.attention_heads:
            raise ValueError(
                f"width {self.width} cannot be divided among {self.attention_heads} "
                "heads"
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pooled texts `[B, D]` of token ids `[B, L]`.

        Args:
            x: integers; 0 is padding.
            train: whether there is dropout, which needs the random stream `dropout`.

        Raises:
            ValueError: `x` is not `[B, L]`, or texts are longer than `positions`.
            TypeError: `x` is not integers.
        """
        check_tokens(x, self.positions)
        seen = x != 0
        bias = jnp.where(seen, 0.0, MASKED)[:, None, None, :]
        x = self._embed(jnp.minimum(x, self.vocabulary_size - 1), train)
        layer_class = BertLayer
        if self.remat:
            layer_class = nn.remat(BertLayer, static_argnums=(3,))
        for layer in range(1, self.depth + 1):
            x = layer_class(
                self.attention_heads,
                self.hidden,
                dropout=self.dropout,
                epsilon=self.epsilon,
                dtype=self.dtype,
                name=f"layer{layer}",
            )(x, bias, train)
        if self.pooling == "first":
            pooler = nn.Dense(
                self.width, kernel_init=small_normal, dtype=self.dtype, name="pooler"
            )
            features = jnp.tanh(pooler(x[:, 0]))
        else:
            weight = seen.astype(jnp.float32)[:, :, None]
            total = jnp.sum(x.astype(jnp.float32) * weight, axis=1)
            features = total / jnp.maximum(jnp.sum(weight, axis=1), 1.0)
        return self.classify(features, train, kernel_init=small_normal)

    def _embed(self, tokens: Array, train: bool) -> Array:
        """The sum of the embeddings, normalised, `[B, L, D]`."""

        def table(size, name):
            return nn.Embed(
                size,
                self.width,
                embedding_init=small_normal,
                dtype=self.dtype,
                name=name,
            )

        x = table(self.vocabulary_size, "tokens")(tokens)
        places = jnp.arange(tokens.shape[1])[None]
        x = x + table(self.positions, "positions")(places)
        if self.types:
            x = x + table(self.types, "types")(jnp.zeros((1, 1), jnp.int32))
        x = nn.LayerNorm(self.epsilon, dtype=self.dtype, name="norm")(x)
        return drop(x, self.dropout, train)
