"""One calling convention for networks of any kind; functions as networks.

The engine sees a `Network`: `init(key, x) -> variables` and
`apply(variables, x, train=..., key=..., axis_name=...) -> (Outputs, model_state)`,
where `variables = {"params": ..., **model_state}` and only `params` is trained.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from churn_jax.class_sets import UNKNOWN_LOGIT, known_classes
from churn_jax.ensembles import modes
from churn_jax.typing import PRNGKey, PyTree

__all__ = [
    "Network",
    "NetworkError",
    "Outputs",
    "as_outputs",
    "from_function",
    "linear_head",
    "with_classes",
    "with_inputs",
    "with_temperature",
]


class NetworkError(ValueError):
    """A network that would be trained wrongly; the message says what to change."""


@struct.dataclass
class Outputs:
    """What a network returns; everything but `logits` is optional.

    Attributes:
        logits: `[..., C]`.
        features: input of the last layer, `[..., D]`.
        part: output of one part of the network, such as the deep one of a wide and
            deep network, `[B, ...]` per network (`[K, B, ...]` with K heads).
        gate: log-weights with which members are mixed, not normalised, `[B]` per
            network (`[K, B]` with K heads).
    """

    logits: jax.Array
    features: jax.Array | None = None
    part: jax.Array | None = None
    gate: jax.Array | None = None


@dataclasses.dataclass(frozen=True)
class Network:
    """A network as two pure functions.

    Attributes:
        init: `(key, x) -> variables`.
        apply: `(variables, x, *, train, key, axis_name) -> (Outputs, model_state)`;
            logits are `[B, C]`, or `[K, B, C]` with `heads` = K > 1.
        heads: K, the number of members that one set of weights yields.
        name: shown in messages and reports.
        has_convolutions: the mapping on CPU depends on it; None looks at the
            kernels (rank above 2).
        input_params: top-level names of the parameters that the input meets first;
            empty where the network does not say.
        splits_batch: in training member m sees the m-th of K parts of the batch only
            and its other rows of logits are zeros; `member_sample="split"` of a method
            counts them so.
        head: the last layer alone, `(variables, features [B, D]) -> logits [B, C]`; it
            takes the first columns of wider features. None where it is not known.
        note: a sentence for whoever trains it, such as where its weights are from.
    """

    init: Callable[[PRNGKey, jax.Array], PyTree]
    apply: Callable[..., tuple[Outputs, PyTree]]
    heads: int = 1
    name: str = "network"
    has_convolutions: bool | None = None
    input_params: tuple[str, ...] = ()
    splits_batch: bool = False
    head: Callable[[PyTree, jax.Array], jax.Array] | None = None
    note: str = ""

    def with_convolutions_from(self, params: PyTree) -> bool:
        """Whether this network convolves, from the field or the kernels' rank."""
        if self.has_convolutions is not None:
            return self.has_convolutions
        return any(len(p.shape) > 2 for p in jax.tree.leaves(params))


def as_outputs(raw: Any, name: str) -> Outputs:
    """What a network has returned, as `Outputs`.

    Args:
        raw: logits, or an object with `.logits`.
        name: of the network, for the message.

    Raises:
        NetworkError: it is something else.
    """
    if isinstance(raw, Outputs):
        return raw
    if hasattr(raw, "logits"):
        names = ("features", "part", "gate")
        return Outputs(raw.logits, *(getattr(raw, name, None) for name in names))
    if not hasattr(raw, "ndim"):
        raise NetworkError(
            f"{name} returns a {type(raw).__name__}; it must return logits, or an "
            "object with .logits such as churn_jax.ensembles.Outputs(logits, features)"
        )
    return Outputs(raw)


def from_function(
    init: Callable[[PRNGKey, jax.Array], PyTree],
    apply: Callable[..., Any],
    *,
    heads: int = 1,
    name: str = "function",
) -> Network:
    """Wraps two plain functions without mutable state.

    Args:
        init: `(key, x) -> params`.
        apply: `(params, x) -> logits` or an object with `.logits`. It may take `train`,
            `training`, `is_training` or `deterministic`, and `key`, which is the step's
            key in training and None in evaluation.
        heads: members per set of weights.
        name: shown in messages.

    Returns:
        A `Network`.
    """

    def wrapped_init(key, x):
        return {"params": init(key, x)}

    parameters = modes.arguments(apply)
    called_with = modes.switches(parameters)

    def wrapped_apply(variables, x, *, train=False, key=None, axis_name=None):
        del axis_name
        options: dict[str, Any] = dict(modes.mode(called_with, train))
        if "key" in parameters:
            options["key"] = key if train else None
        return as_outputs(apply(variables["params"], x, **options), name), {}

    return Network(wrapped_init, wrapped_apply, heads, name)


def with_inputs(
    network: Network,
    inputs: Sequence[int] | Callable[[jax.Array], jax.Array],
    *,
    name: str | None = None,
) -> Network:
    """A network that sees a part or a view of the input: components may differ in it.

    Args:
        network: what is wrapped.
        inputs: columns of the flattened example (of an image in row, column, channel
            order), so that the network is given `[B, len(inputs)]`; or a function of
            the whole batch `[B, ...]`.
        name: default is the network's, with how many columns and a short hash of them,
            or with the function's name. A checkpoint knows the network by it.

    Returns:
        A `Network` of the batch that all components are given.

    Raises:
        ValueError: no column, a negative one, or one twice; when the network meets an
            example, one that the example does not have.

    Example:
        >>> import jax.numpy as jnp
        >>> whole = from_function(lambda key, x: {}, lambda params, x: x)
        >>> half = with_inputs(whole, range(2), name="left half")
        >>> half.apply({"params": {}}, jnp.arange(8.0).reshape(2, 4))[0].logits
        Array([[0., 1.],
               [4., 5.]], dtype=float32)

    References:
        [anti-distillation] Section 2 -- Shamir and Coviello, Anti-Distillation:
        Improving Reproducibility of Deep Networks, 2020.
        https://arxiv.org/abs/2010.09923
    """
    if callable(inputs):
        view: Callable[[jax.Array], jax.Array] = inputs
        label = getattr(inputs, "__name__", "view")
    else:
        columns = np.asarray(list(inputs), np.int64)
        if not columns.size or columns.min() < 0:
            raise ValueError(
                f"inputs must be columns, counted from 0; got {columns.tolist()[:8]}"
            )
        if len(np.unique(columns)) < columns.size:
            raise ValueError("inputs must name every column once")
        view = functools.partial(_columns, columns, network.name)
        label = f"{columns.size} inputs {zlib.crc32(columns.tobytes()):08x}"

    def init(key, x):
        return network.init(key, view(x))

    def apply(variables, x, **kwargs):
        return network.apply(variables, view(x), **kwargs)

    return dataclasses.replace(
        network, init=init, apply=apply, name=name or f"{network.name} on {label}"
    )


def with_classes(network: Network, classes: Sequence[int], num_classes: int) -> Network:
    """A network of some classes that answers with logits over all of them.

    Args:
        network: with `len(classes)` outputs.
        classes: ids of its outputs, increasing.
        num_classes: C, of all.

    Returns:
        A `Network` whose logits `[..., C]` hold `UNKNOWN_LOGIT` for other classes.

    Raises:
        ValueError: ids are not increasing, or not below C.

    Example:
        >>> import jax.numpy as jnp
        >>> half = from_function(lambda key, x: {}, lambda params, x: x)
        >>> wide = with_classes(half, (0, 2), 3)
        >>> wide.apply({"params": {}}, jnp.ones((1, 2)))[0].logits.tolist()
        [[1.0, -10000.0, 1.0]]
    """
    ids = np.asarray(list(classes), np.int64)
    if (
        len(ids) < 2
        or np.any(np.diff(ids) <= 0)
        or ids[0] < 0
        or ids[-1] >= num_classes
    ):
        raise ValueError(
            f"classes must be at least two increasing ids below {num_classes}; got "
            f"{ids.tolist()[:8]}"
        )

    def spread(logits):
        if logits.shape[-1] != len(ids):
            raise ValueError(
                f"{network.name} has {logits.shape[-1]} outputs for {len(ids)} classes"
            )
        full = jnp.full((*logits.shape[:-1], num_classes), UNKNOWN_LOGIT, logits.dtype)
        return full.at[..., ids].set(logits)

    def apply(variables, x, **kwargs):
        outputs, state = network.apply(variables, x, **kwargs)
        return dataclasses.replace(outputs, logits=spread(outputs.logits)), state

    inner = network.head
    label = f"{len(ids)} of {num_classes} classes {zlib.crc32(ids.tobytes()):08x}"
    return dataclasses.replace(
        network,
        apply=apply,
        head=None if inner is None else lambda v, f: spread(inner(v, f)),
        name=f"{network.name} of {label}",
    )


def with_temperature(network: Network) -> Network:
    """A network whose logits are divided by `variables["temperature"]`.

    One number, or `[K]` where the network yields K members. Classes that it does not
    know stay unknown.

    Example:
        >>> import jax.numpy as jnp
        >>> cooled = with_temperature(from_function(lambda k, x: {}, lambda p, x: x))
        >>> variables = {"params": {}, "temperature": jnp.float32(2.0)}
        >>> cooled.apply(variables, jnp.ones((1, 2)))[0].logits.tolist()
        [[0.5, 0.5]]
    """

    def cooled(variables, logits):
        temperature = jnp.asarray(variables["temperature"])
        rest = (1,) * (logits.ndim - temperature.ndim)
        temperature = jnp.reshape(temperature, temperature.shape + rest)
        return jnp.where(known_classes(logits), logits / temperature, logits)

    def without(variables):
        return {k: v for k, v in variables.items() if k != "temperature"}

    def apply(variables, x, **kwargs):
        outputs, state = network.apply(without(variables), x, **kwargs)
        logits = cooled(variables, outputs.logits)
        return dataclasses.replace(outputs, logits=logits), state

    inner = network.head
    return dataclasses.replace(
        network,
        apply=apply,
        head=None if inner is None else lambda v, f: cooled(v, inner(without(v), f)),
        name=f"{network.name} calibrated",
    )


def linear_head(variables: PyTree, features: jax.Array) -> jax.Array:
    """The dense layer `head` of a network of the zoo, on features `[B, D]`.

    Raises:
        ValueError: the network has no such layer, or expects more features.
    """
    layer = variables["params"].get("head", {})
    if "kernel" not in layer:
        raise ValueError("the network has no dense layer called head")
    kernel = layer["kernel"].astype(jnp.float32)
    if features.shape[-1] < kernel.shape[0]:
        raise ValueError(
            f"the last layer expects {kernel.shape[0]} features; got "
            f"{features.shape[-1]}"
        )
    used = features[..., : kernel.shape[0]].astype(jnp.float32)
    bias = jnp.asarray(layer.get("bias", jnp.zeros(kernel.shape[1])), jnp.float32)
    scores = jnp.matmul(used, kernel, precision=jax.lax.Precision.HIGHEST)
    return scores + bias.reshape((1,) * (scores.ndim - 1) + (-1,))


def _columns(columns: np.ndarray, name: str, x: jax.Array) -> jax.Array:
    """Some columns of flattened examples, `[B, ...]` to `[B, D]`."""
    flat = x.reshape(x.shape[0], -1)
    if columns.max() >= flat.shape[1]:
        raise ValueError(
            f"{name} is to see column {columns.max()}, but an example has "
            f"{flat.shape[1]}, counted from 0"
        )
    return flat[:, columns]
