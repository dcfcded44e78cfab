"""BatchEnsemble: K members that share their kernels and differ in rank-one factors."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from churn_jax.models.layers import (
    Layers,
    Part,
    backend,
    split_members,
    tile,
    xla_convolution,
)
from churn_jax.setting_checks import check_settings
from churn_jax.typing import Array

FAST_INITS = ("normal", "signs")
BIASES = ("member", "shared", "none")


def _fast_init(kind: str) -> Callable:
    """Initial fast weights: `Normal(1, 0.5)`, or 1 and -1 with equal probability."""

    def normal(key, shape, dtype=jnp.float32):
        return 1.0 + 0.5 * jax.random.normal(key, shape, dtype)

    def signs(key, shape, dtype=jnp.float32):
        return jax.random.rademacher(key, shape).astype(dtype)

    return normal if kind == "normal" else signs


def _by_member(operation: Callable, x: Array, weights: Array) -> Array:
    """`operation` of the rows `[K * B, ..., D]`, member by member, and `[K, D]`."""
    members, width = weights.shape
    ones = (1,) * (x.ndim - 2)
    if backend() == "cpu":  # in a third of the time; a TPU takes twice the time
        rows = jnp.repeat(weights, x.shape[0] // members, axis=0)
        return operation(x, rows.reshape(x.shape[0], *ones, width))
    weights = weights.reshape(members, 1, *ones, width)
    return operation(split_members(x, members), weights).reshape(x.shape)


_scaled = partial(_by_member, jnp.multiply)


def _between(
    linear: Callable[[Array, Array], Array],
    x: Array,
    kernel: Array,
    fast_in: Array,
    fast_out: Array,
) -> Array:
    """`linear(x_m * r_m, W) * s_m`: one linear map for all members' rows."""
    return _scaled(linear(_scaled(x, fast_in), kernel), fast_out)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _saving(
    linear: Callable[[Array, Array], Array],
    x: Array,
    kernel: Array,
    fast_in: Array,
    fast_out: Array,
) -> Array:
    """`_between`, whose gradient in r takes none in inputs that are data."""
    # That gradient is a quarter of all arithmetic in a small dense network. There r is
    # moved to the kernel, whose gradient for every member gives that in r, too: more,
    # smaller products, which pay on CPUs; on a TPU `_between` is faster.
    return _between(linear, x, kernel, fast_in, fast_out)


@partial(_saving.defjvp, symbolic_zeros=True)
def _saving_jvp(linear, primals, tangents):
    """Only along differentiated arguments; a kernel per member for fixed inputs."""
    moved = [
        i
        for i, tangent in enumerate(tangents)
        if not isinstance(tangent, jax.custom_derivatives.SymbolicZero)
    ]
    if 0 in moved:

        def along(*values):
            arguments = dict(enumerate(primals)) | dict(zip(moved, values, strict=True))
            return _between(linear, *(arguments[i] for i in range(4)))

        starts = tuple(primals[i] for i in moved)
        return jax.jvp(along, starts, tuple(tangents[i] for i in moved))
    x, kernel, fast_in, fast_out = primals
    product = linear(_scaled(x, fast_in), kernel)
    tangent = jnp.zeros_like(product)
    if 3 in moved:
        tangent += _scaled(product, tangents[3])
    if 1 in moved or 2 in moved:
        along = _along_kernels(linear, primals, tangents, moved)
        tangent += _scaled(along, fast_out)
    return _scaled(product, fast_out), tangent


def _along_kernels(linear, primals, tangents, moved) -> Array:
    """`linear(x_m, diag(dr_m) W + diag(r_m) dW)` of every member."""
    x, kernel, fast_in, _ = primals
    members = fast_in.shape[0]
    rows = [jnp.squeeze(r, 0) for r in jnp.split(split_members(x, members), members)]
    lead, along = (1,) * (kernel.ndim - 2), []
    for m in range(members):
        parts = []
        if 1 in moved:
            parts.append(fast_in[m].reshape(*lead, -1, 1) * tangents[1])
        if 2 in moved:
            parts.append(tangents[2][m].reshape(*lead, -1, 1) * kernel)
        # As a derivative, not as a product: a convolution's has a form of its own.
        tangent = sum(parts[1:], parts[0])
        of_kernel = partial(linear, rows[m])
        along.append(jax.jvp(of_kernel, (kernel,), (tangent,))[1])
    return jnp.concatenate(along)


class _FastLayer(nn.Module):
    """A shared linear map between two scalings, and a bias."""

    features: int
    members: int
    bias: str = "member"
    fast_weights: str = "normal"
    kernel_init: Callable = nn.initializers.lecun_normal()
    dtype: Any = jnp.float32

    def __post_init__(self):
        check_settings(self, bias=BIASES, fast_weights=FAST_INITS)
        super().__post_init__()

    def _apply(self, x: Array, shape: tuple[int, ...], linear: Callable) -> Array:
        """`linear(x_m * r_m, W) * s_m + b_m` of a kernel of this shape."""
        if x.shape[0] % self.members:
            raise ValueError(
                f"{x.shape[0]} rows cannot be shared out among {self.members} members"
            )
        draw = _fast_init(self.fast_weights)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32)
        into = (self.members, x.shape[-1])
        fast_in = self.param("fast_in", draw, into, jnp.float32)
        out = (self.members, self.features)
        fast_out = self.param("fast_out", draw, out, jnp.float32)
        x, kernel, fast_in, fast_out = (
            a.astype(self.dtype) for a in (x, kernel, fast_in, fast_out)
        )
        # A processor is slowed by arithmetic, an accelerator by the number of kernels.
        product = _saving if backend() == "cpu" else _between
        y = product(linear, x, kernel, fast_in, fast_out)
        if self.bias == "none":
            return y
        zeros = nn.initializers.zeros
        if self.bias == "shared":
            bias = self.param("bias", zeros, (self.features,), jnp.float32)
            return y + bias.astype(self.dtype).reshape((1,) * (y.ndim - 1) + (-1,))
        bias = self.param("bias", zeros, out, jnp.float32)
        return _by_member(jnp.add, y, bias.astype(self.dtype))


class BatchEnsembleDense(_FastLayer):
    r"""A dense layer whose weights are shared up to rank-one factors.

    `y_m = ((x_m * r_m) W) * s_m + b_m`: member m has the weights `W_m = W * (r_m
    s_m^T)`, which are never formed. `r_m` is `fast_in[m]`, `s_m` is `fast_out[m]`.

    Attributes:
        features: D_out.
        members: K.
        bias: `member` (one per member), `shared` or `none`.
        fast_weights: how r and s start, `normal` (mean 1, deviation 0.5) or `signs`.
        kernel_init: initialiser of W.
        dtype: what it computes in; parameters are float32.

    Example:
        >>> layer = BatchEnsembleDense(3, members=2)
        >>> x = jnp.ones((8, 5))  # four rows of each member
        >>> variables = layer.init(jax.random.key(0), x)
        >>> [(k, v.shape) for k, v in variables["params"].items() if "fast" in k]
        [('fast_in', (2, 5)), ('fast_out', (2, 3))]
        >>> layer.apply(variables, x).shape
        (8, 3)
    """

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """`[K * B, D]`, member by member, to `[K * B, features]`.

        Raises:
            ValueError: the rows are not a multiple of K.
        """
        return self._apply(x, (x.shape[-1], self.features), jnp.matmul)


class BatchEnsembleConv(_FastLayer):
    """A convolution whose weights are shared up to rank-one factors.

    Channels are scaled before and after *one* convolution with the shared kernel, for
    all members' rows at once; member m's kernel is `W[h, w, i, o] r_m[i] s_m[o]`.

    Attributes:
        size: height and width of the kernel in pixels.
        stride: in pixels, along height and width.
        padding: zeros on each side, in pixels.
        convolve: `(images, kernel) -> images` that takes the place of XLA's
            convolution; None is XLA's.
    """

    size: int = 3
    stride: int = 1
    padding: int = 1
    convolve: Callable | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """`[K * B, H, W, C]`, member by member, to `[K * B, H', W', features]`.

        Raises:
            ValueError: the rows are not a multiple of K.
        """
        by_xla = partial(xla_convolution, stride=self.stride, padding=self.padding)
        shape = (self.size, self.size, x.shape[-1], self.features)
        return self._apply(x, shape, self.convolve or by_xla)


@dataclasses.dataclass(frozen=True)
class BatchEnsemble(Layers):
    """Layers of a BatchEnsemble of `size` members, the first and the last included.

    Attributes:
        size: K.
        fast_weights: how the rank-one factors start, `normal` or `signs`.
        bias: bias of layers that have one: one per `member`, `shared`, or `none`.
        norm_of: batch norm over all members' rows (`shared`), or each `member` its own.
        batches: in training every member sees the whole batch (`tiled`), or its own
            K-th part of it (`split`), which costs what one network costs. In
            evaluation every member sees everything.

    Raises:
        ValueError: a setting is unknown or `size` is below 1.

    Notes:
        The paper's and the public code's: Normal(1, 0.5), biases of the members' own
        on dense layers, one batch norm over the tiled rows. Kernels start as those of
        the plain network do.

    Example:
        >>> from churn_jax.models import MLP
        >>> model = MLP((32,), num_classes=10, layers=BatchEnsemble(4))
        >>> images = jnp.zeros((2, 8, 8, 1))
        >>> variables = model.init(jax.random.key(0), images)
        >>> model.apply(variables, images).logits.shape
        (4, 2, 10)

    References:
        [batch-ensemble] Sec. 3 -- Wen et al., BatchEnsemble: an Alternative Approach to
        Efficient Ensemble and Lifelong Learning, ICLR 2020.
        https://arxiv.org/abs/2002.06715
        [diversity] Sec. 2.3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    size: int
    fast_weights: str = "normal"
    bias: str = "member"
    norm_of: str = "shared"
    batches: str = "tiled"

    def __post_init__(self):
        """Checks the settings."""
        check_settings(
            self,
            size=1,
            fast_weights=FAST_INITS,
            bias=BIASES,
            norm_of=("shared", "member"),
            batches=("tiled", "split"),
        )

    @property
    def members(self) -> int:
        """K."""
        return self.size

    @property
    def splits_batch(self) -> bool:
        """True if a member trains on its own part of every batch only."""
        return self.batches == "split"

    def enter(self, module: nn.Module, x: Array, train: bool) -> tuple[Array, Any]:
        """The batch once per member, or as it is where members split it."""
        del module
        if not (train and self.splits_batch):
            return tile(x, self.size), False
        if x.shape[0] % self.size:
            raise ValueError(
                f"a batch of {x.shape[0]} cannot be split over {self.size} members"
            )
        return x, True

    def leave(self, outputs: Array, entered: Any) -> Array:
        """`[K, B, D]`; zeros in rows that a member has not seen."""
        if not entered:
            return split_members(outputs, self.size)
        own = split_members(outputs, self.size)
        seen = jnp.eye(self.size, dtype=own.dtype)[..., None, None]
        return (seen * own[None]).reshape(self.size, *outputs.shape)

    def dense(
        self, features: int, *, dtype: Any, name: str, kernel_init: Any = None
    ) -> nn.Module:
        """A `BatchEnsembleDense`."""
        return BatchEnsembleDense(
            features,
            self.size,
            bias=self.bias,
            fast_weights=self.fast_weights,
            kernel_init=kernel_init or nn.initializers.lecun_normal(),
            dtype=dtype,
            name=name,
        )

    def conv(
        self, features: int, size: int, *, use_bias: bool = False, **options
    ) -> nn.Module:
        """A `BatchEnsembleConv`."""
        return BatchEnsembleConv(
            features,
            self.size,
            bias=self.bias if use_bias else "none",
            fast_weights=self.fast_weights,
            size=size,
            **options,
        )

    def norm(self, *, train: bool, name: str, **options) -> nn.Module:
        """Batch norm over all rows, or over every member's rows, with its own scale."""
        if self.norm_of == "shared":
            return super().norm(train=train, name=name, **options)

        def by_member(x: Array) -> Array:
            axes: Any = (0, -1)  # Flax takes several, and its annotation says one.
            norm = nn.BatchNorm(not train, axis=axes, name="norm", **options)
            return norm(split_members(x, self.size)).reshape(x.shape)

        return Part(by_member, name=name)

    def check(self, params: PyTree) -> None:
        """Refuses a kernel without fast weights; see `check_fast_weights`."""
        check_fast_weights(params, self.size)


def check_fast_weights(params: PyTree, members: int) -> None:
    """Refuses parameters in which a kernel lacks the fast weights of the members.

    A network that was meant to be a BatchEnsemble and is made of ordinary layers
    trains without an error and yields K equal members; public code has had that
    defect. Only shapes are checked.

    Args:
        params: parameters of one network.
        members: K.

    Raises:
        ValueError: a kernel has none; the message names the layers.

    Example:
        >>> import numpy as np
        >>> check_fast_weights({"dense": {"kernel": np.zeros((3, 2))}}, 4)
        Traceback (most recent call last):
            ...
        ValueError: no fast weights of 4 members in dense: these layers are shared ...
    """
    without: list[str] = []

    def look(node: Any, path: str) -> None:
        if not hasattr(node, "items"):
            return
        if "kernel" in node:
            wanted = zip(("fast_in", "fast_out"), node["kernel"].shape[-2:])
            shapes = [(name in node and node[name].shape[-2:], n) for name, n in wanted]
            if any(shape != (members, width) for shape, width in shapes):
                without.append(path or "the network")
        for name, child in node.items():
            look(child, f"{path}/{name}".strip("/"))

    look(params, "")
    if without:
        shown = ", ".join(without[:4]) + (", ..." if len(without) > 4 else "")
        raise ValueError(
            f"no fast weights of {members} members in {shown}: these layers are shared "
            "whole, so the members would be equal"
        )
