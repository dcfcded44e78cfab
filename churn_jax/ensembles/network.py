"""One calling convention for networks of any kind; functions as networks.

The engine sees a `Network`: `init(key, x) -> variables` and
`apply(variables, x, train=..., key=..., axis_name=...) -> (Outputs, model_state)`,
where `variables = {"params": ..., **model_state}` and only `params` is trained.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import PyTree

from churn_jax.typing import PRNGKey

# Names by which networks take the mode, and their value in training.
_SWITCHES = {
    "train": True,
    "training": True,
    "is_training": True,
    "deterministic": False,
    "use_running_average": False,
}


class NetworkError(ValueError):
    """A network that would be trained wrongly; the message says what to change."""


@struct.dataclass
class Outputs:
    """The outputs of a network; everything but `logits` is optional.

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
        note: a sentence for the user, such as where its weights come from.
        places_draws: `key` is the same on all devices that share a batch, and dropout
            depends on an example's place in the global batch; else every device has
            its own key.
        settings: what a module is made with, in words; a folder that was trained with
            others is refused. Of plain functions it is empty, and the name counts.
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
    places_draws: bool = False
    settings: tuple[str, ...] = ()

    def convolves(self, params: PyTree) -> bool:
        """True if this network convolves, from the field or the kernels' rank."""
        if self.has_convolutions is not None:
            return self.has_convolutions
        return any(len(p.shape) > 2 for p in jax.tree.leaves(params))


def as_outputs(raw: Any, name: str) -> Outputs:
    """The logits, or object with `.logits`, that a network returned, as `Outputs`."""
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


def described(value: Any) -> str:
    """A value as messages name it: `the class Net`, or `a Net`."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


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
        name: shown in messages; a checkpoint knows the functions by it alone.

    Returns:
        A `Network`.
    """

    def wrapped_init(key, x):
        return {"params": init(key, x)}

    parameters = parameter_names(apply)
    called_with = switches(parameters)

    def wrapped_apply(variables, x, *, train=False, key=None, axis_name=None):
        del axis_name
        options: dict[str, Any] = dict(mode(called_with, train))
        if "key" in parameters:
            options["key"] = key if train else None
        return as_outputs(apply(variables["params"], x, **options), name), {}

    return Network(wrapped_init, wrapped_apply, heads, name)


def device_key(key: PRNGKey, axis_name: str | None) -> PRNGKey:
    """A key of each device's own where several share the batch."""
    if axis_name is None or jax.lax.psum(1, axis_name) == 1:
        return key
    return jax.random.fold_in(key, jax.lax.axis_index(axis_name))


def placed(
    drop: Callable[[jax.Array], jax.Array],
    inputs: jax.Array,
    rate: float,
    axis_name: str,
    parts: int = 1,
) -> jax.Array:
    """Dropout of a device's rows, with the mask of the global batch.

    `drop` draws the same on all devices. With `parts` the rows are those of as many
    members, member by member.
    """
    shards, rows = jax.lax.psum(1, axis_name), inputs.shape[0] // parts
    kept = drop(jnp.ones((parts * shards * rows, *inputs.shape[1:]))) > 0
    kept = kept.reshape(parts, shards, rows, *inputs.shape[1:])
    shard = jax.lax.axis_index(axis_name)
    own = jax.lax.dynamic_index_in_dim(kept, shard, axis=1, keepdims=False)
    scaled = inputs / (1.0 - rate)
    return jnp.where(own.reshape(inputs.shape), scaled, jnp.zeros_like(inputs))


def linear_head(variables: PyTree, features: jax.Array) -> jax.Array:
    """The dense layer `head` of a network of the zoo, on features `[B, D]`."""
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


def switches(names: Iterable[str]) -> tuple[str, ...]:
    """The names that switch between training and evaluation."""
    known = set(names)
    return tuple(name for name in _SWITCHES if name in known)


def parameter_names(function: Callable) -> tuple[str, ...]:
    """Names of a function's parameters."""
    return tuple(inspect.signature(function).parameters)


def needed_names(function: Callable) -> tuple[str, ...]:
    """Names of a function's parameters that have no default."""
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    needed = (p for p in parameters if p.default is p.empty and p.kind not in many)
    return tuple(p.name for p in needed)


def mode(names: Iterable[str], train: bool) -> dict[str, bool]:
    """Values of switches in training or in evaluation."""
    return {name: _SWITCHES[name] == train for name in names}


def stuck(train: bool, names: Iterable[str]) -> str:
    """The end of a message about a layer that does not follow the switches `names`."""
    found, wanted = ("evaluated", "trained") if train else ("trained", "evaluated")
    what = (
        f"the network's __call__ takes none of {', '.join(_SWITCHES)}: give it one and "
        "pass it on to the layer"
    )
    if name := next(iter(names), ""):
        what = f"let the network's {name} switch it"
    return f"behaves as if {found} while the network is {wanted}; {what}"
