"""The Swin transformer: attention within windows that shift from block to block."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from churn_jax.models.attention import MASKED, Attention, FeedForward, small_normal
from churn_jax.models.layers import (
    Conv,
    ModelOutput,
    ZooNetwork,
    check_images,
    check_stages,
    pixel_means,
)
from churn_jax.setting_checks import check_share
from churn_jax.typing import Array

_EPSILON = 1e-5  # of every layer norm


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
    """Attention within windows and two dense layers; layer norm before each.

    Attributes:
        heads: heads of the attention.
        window: height and width of a window in pixels.
        shifted: whether windows are shifted by half their size.
        hidden: width between the two dense layers.
        drop_path: probability that training skips a branch, per example.
        dtype: what it computes in.
    """

    heads: int
    window: int
    shifted: bool
    hidden: int
    drop_path: float = 0.0
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """`[B, H, W, D]` to `[B, H, W, D]`."""
        skip = partial(nn.Dropout, broadcast_dims=(1, 2, 3), deterministic=not train)
        y = self._attend(_norm(self.dtype, "norm1")(x), train)
        x = x + skip(self.drop_path)(y)
        forward = FeedForward(self.hidden, dtype=self.dtype, name="feed_forward")
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
    """Half the resolution, twice the channels: four neighbours make one pixel.

    Attributes:
        dtype: what it computes in.
    """

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
        >>> import jax, jax.numpy as jnp
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

    num_classes: int
    stages: tuple[int, ...] = (2, 2, 6, 2)
    attention_heads: tuple[int, ...] = (3, 6, 12, 24)
    width: int = 96
    patch: int = 4
    window: int = 7
    expand: int = 4
    drop_path: float = 0.0
    remat: bool = False

    input_params = ("patches",)

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
        check_images(x, min_rank=4, max_rank=4)
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
                    dtype=self.dtype,
                    name=f"stage{stage}_block{block}",
                )(x, train)
                done += 1
        x = _norm(self.dtype, "norm")(x)
        return self.classify(pixel_means(x), train, kernel_init=small_normal)
