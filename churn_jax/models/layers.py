"""Activations, inputs and outputs of networks, and their layers: plain, or shared.

A zoo network makes every dense layer, convolution and batch norm through its `layers`,
so the same code is a single network, a BatchEnsemble or a MIMO network.
"""

import contextlib
import contextvars
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from churn_jax.models.convolution import cpu_convolution
from churn_jax.setting_checks import check_choice, check_least, check_share
from churn_jax.typing import Array


def smelu(x: Array, beta: float = 1.0) -> Array:
    r"""SmeLU: a ReLU whose corner is a parabola of width `2 beta`.

    `0` for `x <= -beta`, `(x + beta)^2 / (4 beta)` for `|x| <= beta`, `x` above.

    Args:
        x: any shape, floating point.
        beta: half the width of the parabola, above 0. Small values are nearly a ReLU,
            large ones nearly linear around 0.

    Returns:
        The shape and dtype of `x`. The derivative is continuous.

    Notes:
        The formula was read in descriptions of the papers and in public code, not in
        the papers. At `beta = 1` it is `jax.nn.sparse_plus`; `beta` times that of
        `x / beta` rounds where this one returns `x` itself.

    Example:
        >>> smelu(jnp.array([-1.0, 0.0, 0.5, 2.0]), beta=0.5).tolist()
        [0.0, 0.125, 0.5, 2.0]

    References:
        [smelu] SmeLU -- Shamir, Lin and Coviello, Smooth Activations and
        Reproducibility in Deep Networks, 2020. https://arxiv.org/abs/2010.09931
        [smelu2022] SmeLU -- Shamir and Lin, Real World Large Scale Recommendation
        Systems Reproducibility and Smooth Activations, 2022.
        https://arxiv.org/abs/2202.06499
    """
    if isinstance(beta, (int, float)) and not beta > 0:
        raise ValueError(f"beta must be above 0; got {beta}")
    parabola = jnp.square(x + beta) / (4.0 * beta)
    return jnp.where(jnp.abs(x) < beta, parabola, nn.relu(x))


_SMOOTH = {
    "softplus": nn.softplus,
    "silu": nn.silu,
    "gelu": partial(nn.gelu, approximate=False),
}
ACTIVATIONS = ("relu", "smelu", *_SMOOTH)


@cache
def activation(name: str) -> Callable[[Array], Array]:
    """The function called `name`, one of `relu`, `smelu`, `softplus`, `silu`, `gelu`.

    All but `relu` take a number after a colon, 1 unless given: `smelu:0.5` is SmeLU of
    beta 0.5. `softplus:4` is `f(4 x) / 4`, the same for `silu` and `gelu` (exact, by
    the error function): the larger, the nearer to ReLU.

    Raises:
        ValueError: the name is unknown, or the number is not above 0.

    Example:
        >>> round(float(activation("smelu:0.5")(jnp.array(0.0))), 3)
        0.125
    """
    kind, given, number = name.partition(":")
    check_choice("activation", kind, ACTIVATIONS)
    if kind == "relu" and not given:
        return nn.relu
    try:
        beta = float(number) if given else 1.0
    except ValueError:
        beta = 0.0
    if kind == "relu" or not 0.0 < beta < math.inf:
        raise ValueError(
            f"activation {name!r} must be relu, or another name with a number above 0 "
            "after a colon, such as smelu:0.5"
        )
    if kind == "smelu":
        return partial(smelu, beta=beta)
    smooth = _SMOOTH[kind]
    return smooth if beta == 1.0 else lambda x: smooth(beta * x) / beta


class ModelOutput(NamedTuple):
    """The output of a network for a batch.

    Attributes:
        logits: `[B, C]`, float32 whatever the network computes in.
        features: `[B, D]`, float32: the input of the last dense layer.
    """

    logits: Array
    features: Array


def check_images(images, *, min_rank: int = 4, min_size: int = 1) -> None:
    """Refuses images of another rank or dtype, or smaller than the network can take."""
    shape = jnp.shape(images)
    if not min_rank <= len(shape) <= 4:
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
        stride: int = 1,
        padding: int,
        use_bias: bool = False,
        dtype: Any,
        name: str,
        kernel_init: Any,
        convolve: Callable[[Array, Array], Array] | None = None,
    ) -> nn.Module:
        """A convolution.

        Args:
            features: channels out.
            size: height and width of the kernel in pixels.
            stride: in pixels, along height and width.
            padding: zeros on each side, in pixels.
            use_bias: True adds a bias.
            dtype: what it computes in.
            name: name of its parameters.
            kernel_init: initialiser of the kernel.
            convolve: `(images, kernel) -> images`, instead of XLA's convolution.
        """
        by = (
            (lambda x, kernel, *_, **__: convolve(x, kernel)) if convolve else _convolve
        )
        return Conv(
            features,
            (size, size),
            strides=(stride, stride),
            padding=((padding, padding),) * 2,
            use_bias=use_bias,
            kernel_init=kernel_init,
            dtype=dtype,
            name=name,
            conv_general_dilated=by,
        )

    def norm(self, *, train: bool, name: str, **options) -> nn.Module:
        """Batch norm; `options` are those of `flax.linen.BatchNorm`."""
        return nn.BatchNorm(use_running_average=not train, name=name, **options)

    def check(self, params: PyTree) -> None:
        """Refuses parameters in which a layer lacks the members' own weights."""
        del params


PLAIN = Layers()
"""Ordinary layers, with one set of weights for all members."""


he_fan_out = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


@dataclasses.dataclass(kw_only=True, repr=False, eq=False)
class ZooNetwork:
    """Base of the zoo's networks, with the fields that all have.

    Attributes:
        dtype: what the network computes in; parameters, batch-norm statistics and
            logits are float32.
        axis_name: mesh axis over which batch norm averages in training, or None.
            With an axis name the statistics are those of the whole batch; such a
            network trains inside `shard_map`, `pmap` or `vmap` over that axis only.
            It changes nothing in networks without batch norm.
        dropout: share of the last dense layer's inputs that are zero in training.
        activation: see `churn_jax.models.activation`.
    """

    dtype: Any = jnp.float32
    axis_name: str | None = None
    dropout: float = 0.0
    activation: str = "relu"

    layers = PLAIN  # a field of networks whose members may share weights
    # Top-level parameters of the layer that sees the input.
    input_params: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        """Checks the share and the activation."""
        check_share("dropout", self.dropout)
        activation(self.activation)
        super().__post_init__()  # pyrefly: ignore[missing-attribute]

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

    def activate(self, x: Array) -> Array:
        """The activation."""
        return activation(self.activation)(x)

    def classify(
        self, features: Array, train: bool, entered: Any = None, kernel_init: Any = None
    ) -> ModelOutput:
        """Dropout of the features and the dense layer `head`, in a compact method."""
        features = drop(features, self.dropout, train)
        classes = self.num_classes  # pyrefly: ignore[missing-attribute]
        head = self.layers.head(classes, dtype=self.dtype, kernel_init=kernel_init)
        return self.layers.output(head(features), features, entered)


class Part(nn.Module):
    """Layers under a name of their own, which `build` makes and applies."""

    build: Callable[..., Array]

    @nn.compact
    def __call__(self, *arguments: Any) -> Array:
        """`build` of the same arguments."""
        return self.build(*arguments)


@dataclasses.dataclass(kw_only=True, repr=False, eq=False)
class ConvolutionalNetwork(ZooNetwork):
    """Base of the convolutional networks with batch norm.

    Kernels of convolutions start He-normal by fan out, those of the last layer
    LeCun-normal. The running variance is that of the batch (divided by n, not n - 1),
    as in every Flax network.

    Attributes:
        remat: recompute each block in the backward pass: less memory, more time,
            the same values and the same parameter tree.
        momentum: share of batch norm's old running value that stays.
        epsilon: added to batch norm's variance.
    """

    remat: bool = False
    momentum: float = 0.9
    epsilon: float = 1e-5

    input_params: ClassVar[tuple[str, ...]] = ("stem",)

    def conv(self, x: Array, width: int, size: int = 3, *, name: str, **options):
        """A convolution, He-normal by fan out, padded by half its odd size."""
        # Half of the kernel on each side: "SAME" would shift a strided kernel.
        settings: dict[str, Any] = {"kernel_init": he_fan_out, "dtype": self.dtype}
        settings |= {"padding": size // 2, "name": name, **options}
        return self.layers.conv(width, size, **settings)(x)

    def norm(self, x: Array, train: bool, *, name: str, **options) -> Array:
        """Batch norm over batch and pixels, and over a mesh axis where one is named."""
        return self.layers.norm(
            train=train,
            momentum=self.momentum,
            epsilon=self.epsilon,
            axis_name=self.axis_name,
            dtype=self.dtype,
            name=name,
            **options,
        )(x)

    def activated(self, x: Array, train: bool, name: str) -> Array:
        """Batch norm and the activation."""
        return self.activate(self.norm(x, train, name=name))

    def part(self, name: str, function: Callable, *, remat: bool = True, **form: Any):
        """`function(network, x, train, **form)`, recomputed if `remat`."""
        part = Part
        if self.remat and remat:
            part = nn.remat(Part, static_argnums=(2,))
        return part(partial(function, self, **form), name=name)


def pixel_means(x: Array) -> Array:
    """Means over pixels, `[B, H, W, D]` to `[B, D]` float32."""
    return jnp.mean(x, axis=(1, 2), dtype=jnp.float32)


def max_pool(x: Array) -> Array:
    """Maxima of 3x3 pixels at every second pixel; padding never wins."""
    return nn.max_pool(x, (3, 3), (2, 2), padding=((1, 1),) * 2)


def halved(x: Array) -> Array:
    """2 x 2 maxima; a last odd row or column is dropped."""
    # On a CPU `nn.max_pool` makes a training step of `vgg_tiny` take twice as long: its
    # gradient searches every window again.
    batch, height, width, channels = x.shape
    rows, columns = height // 2, width // 2
    x = x[:, : 2 * rows, : 2 * columns]
    return x.reshape(batch, rows, 2, columns, 2, channels).max(axis=(2, 4))


def check_stages(
    stages: tuple[int, ...], width: int, name: str = "stages", of: str = "blocks"
) -> None:
    """Refuses a network without stages, a stage without blocks, and no channels."""
    if not stages or min(stages) < 1:
        raise ValueError(
            f"{name} must be numbers of {of}, each at least 1; got {stages}"
        )
    check_least("width", width, 1)


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
