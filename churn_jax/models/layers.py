"""Inputs and outputs of networks, and their layers: plain, or shared by members.

A zoo network makes every dense layer, convolution and batch norm through its `layers`,
so the same code is a single network, a BatchEnsemble or a MIMO network.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from churn_jax.models.convolution import cpu_convolution
from churn_jax.setting_checks import check_share
from churn_jax.typing import Array


class ModelOutput(NamedTuple):
    """The output of a network for a batch.

    Attributes:
        logits: `[B, C]`, float32 whatever the network computes in.
        features: `[B, D]`, float32: the input of the last dense layer.
    """

    logits: Array
    features: Array


def check_images(images, *, min_rank: int, max_rank: int, min_size: int = 1) -> None:
    """Refuses images of another rank or dtype, or smaller than the network can take."""
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


_TARGET: contextvars.ContextVar[str] = contextvars.ContextVar("_TARGET", default="")


def backend() -> str:
    """The platform for which layers choose their forms: `cpu`, `gpu` or `tpu`."""
    return _TARGET.get() or jax.default_backend()


@contextlib.contextmanager
def compiling_for(platform: str) -> Iterator[None]:
    """Networks traced inside are compiled for `cpu`, `gpu` or `tpu`."""
    before = _TARGET.set(platform)
    try:
        yield
    finally:
        _TARGET.reset(before)


def _convolve(images: Array, kernel: Array, *window, **options) -> Array:
    """`jax.lax.conv_general_dilated`, on a CPU in the forms that are fast there."""
    on_cpu = backend() == "cpu"
    convolve = cpu_convolution if on_cpu else jax.lax.conv_general_dilated
    return convolve(images, kernel, *window, **options)


class Conv(nn.Conv):
    """`flax.linen.Conv`, faster on CPU.

    Parameters, their initial values and all options are those of Flax. On a CPU it is
    computed as `churn_jax.models.convolution.cpu_convolution` says.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> layer = Conv(features=4, kernel_size=(3, 3))
        >>> variables = layer.init(jax.random.key(0), jnp.ones((2, 8, 8, 3)))
        >>> jax.tree.map(jnp.shape, variables["params"])
        {'bias': (4,), 'kernel': (3, 3, 3, 4)}
    """

    conv_general_dilated: Any = _convolve


def xla_convolution(
    images: Array, kernel: Array, *, padding: int, stride: int = 1
) -> Array:
    """`[B, H, W, C]` and `[KH, KW, C, O]` to `[B, H', W', O]`; zeros on each side."""
    return _convolve(
        images,
        kernel,
        (stride, stride),
        ((padding, padding),) * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


class ConvolutionBy(nn.Module):
    """A convolution with bias that `convolve(images, kernel) -> images` computes."""

    features: int
    size: int
    convolve: Callable[[Array, Array], Array]
    kernel_init: Callable
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """`[B, H, W, C]` to `[B, H', W', features]`."""
        shape = (self.size, self.size, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        x, kernel, bias = (a.astype(self.dtype) for a in (x, kernel, bias))
        return self.convolve(x, kernel) + bias.reshape(1, 1, 1, -1)


@dataclasses.dataclass(frozen=True)
class Layers:
    """Plain layers: one network, one member.

    Its methods are called inside a module's compact method, which owns the layers.
    Subclasses yield K members from one set of weights.
    """

    @property
    def members(self) -> int:
        """K, how many members one set of weights yields."""
        return 1

    @property
    def splits_batch(self) -> bool:
        """True if a member trains on its own part of every batch only."""
        return False

    def enter(self, module: nn.Module, x: Array, train: bool) -> tuple[Array, Any]:
        """The batch as the first layer sees it, and an argument for `leave`.

        Args:
            module: the network, from which random numbers may be drawn.
            x: `[B, ...]`.
            train: whether the network trains.
        """
        del module, train
        return x, None

    def leave(self, outputs: Array, entered: Any) -> Array:
        """Rows of the last layer, or of its input, as `[B, D]` or `[K, B, D]`."""
        del entered
        return outputs

    def output(self, logits: Array, features: Array, entered: Any) -> ModelOutput:
        """Every member's logits and features, float32."""
        return ModelOutput(
            self.leave(logits.astype(jnp.float32), entered),
            self.leave(features.astype(jnp.float32), entered),
        )

    def dense(
        self, features: int, *, dtype: Any, name: str, kernel_init: Any = None
    ) -> nn.Module:
        """A dense layer with bias; LeCun-normal unless `kernel_init` is given."""
        return nn.Dense(
            features,
            dtype=dtype,
            name=name,
            kernel_init=kernel_init or nn.initializers.lecun_normal(),
        )

    def head(
        self, num_classes: int, *, dtype: Any, kernel_init: Any = None
    ) -> nn.Module:
        """The dense layer `head` of C logits."""
        return self.dense(
            num_classes, dtype=dtype, name="head", kernel_init=kernel_init
        )

    def conv(
        self,
        features: int,
        size: int,
        *,
        stride: int,
        padding: int,
        dtype: Any,
        name: str,
        kernel_init: Any,
        convolve: Callable[[Array, Array], Array] | None = None,
    ) -> nn.Module:
        """A convolution without bias; with one where `convolve` computes it.

        Args:
            features: channels out.
            size: height and width of the kernel in pixels.
            stride: in pixels, along height and width.
            padding: zeros on each side, in pixels.
            dtype: what it computes in.
            name: name of its parameters.
            kernel_init: initialiser of the kernel.
            convolve: `(images, kernel) -> images`, instead of XLA's convolution.
        """
        if convolve is not None:
            return ConvolutionBy(
                features, size, convolve, kernel_init, dtype, name=name
            )
        return Conv(
            features,
            (size, size),
            strides=(stride, stride),
            padding=((padding, padding),) * 2,
            use_bias=False,
            kernel_init=kernel_init,
            dtype=dtype,
            name=name,
        )

    def norm(self, *, train: bool, name: str, **options) -> nn.Module:
        """Batch norm; `options` are those of `flax.linen.BatchNorm`."""
        return nn.BatchNorm(use_running_average=not train, name=name, **options)

    def check(self, params: PyTree) -> None:
        """Refuses parameters in which a layer lacks the members' own weights."""
        del params


PLAIN = Layers()
"""Ordinary layers, with one set of weights for all members."""


class Layered:
    """Base of networks with a field `layers`."""

    layers: Layers

    @property
    def heads(self) -> int:
        """K, members that one set of weights yields."""
        return self.layers.members

    @property
    def splits_batch(self) -> bool:
        """True if a member trains on its own part of every batch only."""
        return self.layers.splits_batch

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Refuses parameters in which a layer lacks the members' own weights."""
        self.layers.check(params)


def check_dropout(dropout: float) -> None:
    """Refuses a share of dropped values outside of [0, 1)."""
    check_share("dropout", dropout)


def drop(x: Array, dropout: float, train: bool) -> Array:
    """In training a share of `x` becomes zero and the rest grows by 1 / (1 - share).

    References:
        [srivastava2014] Sec. 4 -- Srivastava et al., Dropout: A Simple Way to Prevent
            Neural Networks from Overfitting, JMLR 2014.
            https://jmlr.org/papers/v15/srivastava14a.html
    """
    # Drawn from the module's `dropout` stream, for every entry of `x` alone: call it in
    # a compact method. Nothing is drawn for a share of 0.
    if not dropout:
        return x
    return nn.Dropout(dropout, deterministic=not train)(x)


def split_members(x: Array, members: int) -> Array:
    """Rows by member, `[K * B, ...]` to `[K, B, ...]`."""
    return x.reshape(members, -1, *x.shape[1:])


def tile(x: Array, members: int) -> Array:
    """All rows once per member, member by member, `[B, ...]` to `[K * B, ...]`."""
    tiled = jnp.broadcast_to(x, (members, *x.shape))
    return tiled.reshape(-1, *x.shape[1:])
