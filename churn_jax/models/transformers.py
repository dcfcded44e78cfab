"""Transformers: BERT for texts and Swin for images, also in small forms."""

import dataclasses
from functools import partial
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from churn_jax.models.layers import (
    Conv,
    ModelOutput,
    ZooNetwork,
    activation,
    check_images,
    check_stages,
    drop,
    pixel_means,
)
from churn_jax.setting_checks import check_choice, check_share
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
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array, bias: Array, train: bool) -> Array:
        """`[..., L, D]` to `[..., L, D]`; `bias` is added to `[..., heads, L, L]`."""
        width = x.shape[-1]
        dense = partial(nn.Dense, width, kernel_init=small_normal, dtype=self.dtype)

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
    """Two dense layers with an activation between them."""

    hidden: int
    activation: str = "gelu"
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """`[..., D]` to `[..., D]`."""
        dense = partial(nn.Dense, kernel_init=small_normal, dtype=self.dtype)
        y = activation(self.activation)(dense(self.hidden, name="dense1")(x))
        return dense(x.shape[-1], name="dense2")(y)


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
    """Attention and two dense layers; layer norm after each sum."""

    heads: int
    hidden: int
    dropout: float = 0.1
    epsilon: float = 1e-12
    activation: str = "gelu"
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
        forward = FeedForward(
            self.hidden, self.activation, dtype=self.dtype, name="feed_forward"
        )
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
    activation: str = dataclasses.field(default="gelu", kw_only=True)
    remat: bool = False
    epsilon: float = 1e-12

    input_params: ClassVar[tuple[str, ...]] = ("tokens",)

    def __post_init__(self):
        check_choice("pooling", self.pooling, ("first", "mean"))
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
                activation=self.activation,
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


_EPSILON = 1e-5  # of every layer norm of Swin


def _norm(dtype: Any, name: str) -> nn.Module:
    return nn.LayerNorm(_EPSILON, dtype=dtype, name=name)


def _windows(x: Any, window: int) -> Any:
    """`[B, H, W, ...]` to `[B, number of windows, window * window, ...]`."""
    batch, height, width, *rest = x.shape
    down, across = height // window, width // window
    x = x.reshape(batch, down, window, across, window, *rest).swapaxes(2, 3)
    return x.reshape(batch, down * across, window * window, *rest)


def _image(x: Array, window: int, height: int, width: int) -> Array:
    """The inverse of `_windows`."""
    down, across = height // window, width // window
    x = x.reshape(x.shape[0], down, across, window, window, x.shape[-1])
    return x.swapaxes(2, 3).reshape(x.shape[0], height, width, x.shape[-1])


def _shift_mask(
    size: tuple[int, ...], window: int, shift: tuple[int, ...]
) -> np.ndarray:
    """Added to scores, hides neighbours that only the shift made."""
    # Rows (columns) that came from the other side are a region of their own.
    rows, columns = (
        np.arange(n) >= n - s if s else np.zeros(n, bool) for n, s in zip(size, shift)
    )
    region = 2 * rows[:, None].astype(int) + columns[None]
    region = _windows(region[None], window)[0]
    differ = region[:, :, None] != region[:, None]
    return np.where(differ, np.float32(MASKED), np.float32(0.0))[None, :, None]


def _relative(window: int) -> np.ndarray:
    """Row of the table of position biases for every pair of pixels of a window."""
    at = np.stack(np.divmod(np.arange(window * window), window), axis=-1)
    down, across = np.moveaxis(at[:, None] - at[None] + window - 1, -1, 0)
    return down * (2 * window - 1) + across


class SwinBlock(nn.Module):
    """Attention within windows and two dense layers; layer norm before each."""

    heads: int
    window: int
    shifted: bool
    hidden: int
    drop_path: float = 0.0
    activation: str = "gelu"
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, D]` to `[B, H, W, D]`."""
        skip = partial(nn.Dropout, broadcast_dims=(1, 2, 3), deterministic=not train)
        y = self._attend(_norm(self.dtype, "norm1")(x), train)
        x = x + skip(self.drop_path)(y)
        forward = FeedForward(
            self.hidden, self.activation, dtype=self.dtype, name="feed_forward"
        )
        return x + skip(self.drop_path)(forward(_norm(self.dtype, "norm2")(x)))

    def _attend(self, x: Array, train: bool) -> Array:
        _, height, width, _ = x.shape
        window = self.window
        size = tuple(-(-n // window) * window for n in (height, width))
        # One window has no neighbour with which it could share pixels.
        shift = tuple(window // 2 if self.shifted and n > window else 0 for n in size)
        # The padding is seen, as in the public PyTorch models: zeros after the norm.
        x = jnp.pad(x, ((0, 0), (0, size[0] - height), (0, size[1] - width), (0, 0)))
        x = jnp.roll(x, (-shift[0], -shift[1]), (1, 2))
        table = self.param(
            "position_bias", small_normal, ((2 * window - 1) ** 2, self.heads)
        )
        bias = jnp.moveaxis(table[_relative(window)], -1, 0)[None, None]
        if any(shift):
            bias = bias + _shift_mask(size, window, shift)
        attention = Attention(self.heads, dtype=self.dtype, name="attention")
        x = _image(attention(_windows(x, window), bias, train), window, *size)
        return jnp.roll(x, shift, (1, 2))[:, :height, :width]


class PatchMerging(nn.Module):
    """Half the resolution, twice the channels: four neighbours make one pixel."""

    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """`[B, H, W, D]` to `[B, H / 2, W / 2, 2 D]`; odd sizes are padded."""
        _, height, width, channels = x.shape
        x = jnp.pad(x, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
        corners = [x[:, i::2, j::2] for j in range(2) for i in range(2)]
        x = _norm(self.dtype, "norm")(jnp.concatenate(corners, axis=-1))
        return nn.Dense(
            2 * channels,
            use_bias=False,
            kernel_init=small_normal,
            dtype=self.dtype,
            name="reduction",
        )(x)


class Swin(ZooNetwork, nn.Module):
    """A transformer over patches of an image, in four stages of halved resolution.

    Each patch becomes a pixel of `width` channels. The blocks of a stage see windows
    of `window` x `window` pixels; those of every second block are shifted by half
    their size, cyclically, and pixels from opposite sides do not see each other. The
    last pixels are normalised and averaged, a dense layer follows. Kernels start from
    a normal of standard deviation 0.02 cut at two, biases at zero. With the defaults
    (Swin-Tiny), 1,000 classes and three channels there are 28,288,354 parameters.

    Attributes:
        num_classes: C.
        stages: number of blocks of every stage.
        attention_heads: attention heads of every stage.
        width: channels of the first stage; each later one has twice as many.
        patch: height and width of a patch in pixels.
        window: height and width of a window in pixels of its stage.
        expand: how many times wider than a block the layer between its two dense
            layers is.
        drop_path: probability that training skips a branch of the last block, per
            example; it grows from 0 in the first one, linearly.
        remat: as in `ResNet`.

    Notes:
        Images of any size are taken. Where `window` does not divide a stage's size,
        zeros are appended and seen by the attention, as in the public PyTorch models;
        for small images a smaller `window` and `patch` waste less.

    Example:
        >>> model = Swin(num_classes=10, stages=(2, 2), attention_heads=(2, 4),
        ...              width=8, window=4)
        >>> images = jnp.zeros((2, 32, 32, 3))
        >>> shapes = jax.eval_shape(model.init, jax.random.key(0), images)
        >>> shapes["params"]["stage1_block2"]["position_bias"].shape
        (49, 2)

    References:
        [liu2021] Sec. 3 -- Liu et al., Swin Transformer: Hierarchical Vision
            Transformer using Shifted Windows, ICCV 2021.
            https://arxiv.org/abs/2103.14030
    """

    num_classes: int  # pyrefly: ignore[bad-class-definition]
    stages: tuple[int, ...] = (2, 2, 6, 2)
    attention_heads: tuple[int, ...] = (3, 6, 12, 24)
    width: int = 96
    patch: int = 4
    window: int = 7
    expand: int = 4
    drop_path: float = 0.0
    remat: bool = False
    activation: str = dataclasses.field(default="gelu", kw_only=True)

    input_params: ClassVar[tuple[str, ...]] = ("patches",)

    def __post_init__(self):
        check_stages(self.stages, self.width)
        if len(self.attention_heads) != len(self.stages) or any(
            heads < 1 or self.width * 2**stage % heads
            for stage, heads in enumerate(self.attention_heads)
        ):
            raise ValueError(
                f"attention_heads must be {len(self.stages)} divisors of the stages' "
                f"widths ({self.width}, doubled every stage); got "
                f"{self.attention_heads}"
            )
        check_share("drop_path", self.drop_path)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and pixel means `[B, D]` of images `[B, H, W, 3]`.

        Args:
            x: normalised images, floating point.
            train: whether branches are skipped and features dropped; with a rate
                above zero that needs the random stream `dropout`.

        Raises:
            ValueError: `x` is not `[B, H, W, C]`.
            TypeError: `x` is not floating point.
        """
        check_images(x)
        over = ((0, 0), *((0, -n % self.patch) for n in x.shape[1:3]), (0, 0))
        x = Conv(
            self.width,
            (self.patch, self.patch),
            strides=(self.patch, self.patch),
            padding="VALID",
            kernel_init=small_normal,
            dtype=self.dtype,
            name="patches",
        )(jnp.pad(x, over))
        x = _norm(self.dtype, "patches_norm")(x)
        block_class = SwinBlock
        if self.remat:
            block_class = nn.remat(SwinBlock, static_argnums=(2,))
        done, last = 0, max(sum(self.stages) - 1, 1)
        for stage, (blocks, heads) in enumerate(
            zip(self.stages, self.attention_heads), start=1
        ):
            if stage > 1:
                x = PatchMerging(self.dtype, name=f"stage{stage}_merge")(x)
            for block in range(1, blocks + 1):
                x = block_class(
                    heads,
                    self.window,
                    shifted=block % 2 == 0,
                    hidden=self.expand * x.shape[-1],
                    drop_path=self.drop_path * done / last,
                    activation=self.activation,
                    dtype=self.dtype,
                    name=f"stage{stage}_block{block}",
                )(x, train)
                done += 1
        x = _norm(self.dtype, "norm")(x)
        return self.classify(pixel_means(x), train, kernel_init=small_normal)
