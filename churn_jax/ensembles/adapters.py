"""One calling convention for Linen modules, NNX modules and plain functions.

The engine sees a `Network`: `init(key, x) -> variables` and
`apply(variables, x, train=..., key=..., axis_name=...) -> (Outputs, model_state)`,
where `variables = {"params": ..., **model_state}` and only `params` is trained.
"""

import dataclasses
import functools
import inspect
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx, struct

from churn_jax.class_sets import UNKNOWN_LOGIT, known_classes
from churn_jax.typing import PRNGKey, PyTree

__all__ = [
    "Network",
    "Outputs",
    "from_function",
    "from_linen",
    "from_nnx",
    "linear_head",
    "with_classes",
    "with_inputs",
    "with_temperature",
]


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


def _as_outputs(raw: Any) -> Outputs:
    if isinstance(raw, Outputs):
        return raw
    if hasattr(raw, "logits"):
        names = ("features", "part", "gate")
        return Outputs(raw.logits, *(getattr(raw, name, None) for name in names))
    return Outputs(raw)


def _accepts(function: Callable, name: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def from_linen(
    module: Any, *, heads: int | None = None, name: str | None = None
) -> Network:
    """Wraps a `flax.linen.Module`.

    The module is called as `module(x, train=train)` if its `__call__` takes `train`,
    else as `module(x)`; it returns logits or an object with `.logits`. A field
    `axis_name` is set to the mesh axis whose devices share one batch, so that batch
    norm sees the global batch. Fields or properties `input_params`, `heads` and
    `splits_batch` say of the network what `Network` has under these names, and a method
    `check_params(params)` refuses parameters that cannot be the network's.

    Args:
        module: an unbound Linen module.
        heads: members per set of weights (BatchEnsemble, MIMO); None is the module's
            own `heads`, or 1.
        name: default is the class name.

    Returns:
        A `Network`.
    """
    check = getattr(module, "check_params", None)
    takes_train = _accepts(type(module).__call__, "train")
    takes_axis = any(f.name == "axis_name" for f in dataclasses.fields(module))

    def call(bound, variables, x, train, **kwargs):
        extra = {"train": train} if takes_train else {}
        return bound.apply(variables, x, **extra, **kwargs)

    def init(key, x):
        extra = {"train": False} if takes_train else {}
        variables = dict(module.init({"params": key}, x, **extra))
        if check is not None:
            check(variables.get("params", {}))
        return variables

    def apply(variables, x, *, train=False, key=None, axis_name=None):
        state = {k: v for k, v in variables.items() if k != "params"}
        bound = module.clone(axis_name=axis_name) if takes_axis and train else module
        if not train:
            return _as_outputs(call(bound, variables, x, False)), state
        rngs = None if key is None else {"dropout": key}
        raw, new = call(bound, variables, x, True, rngs=rngs, mutable=list(state))
        return _as_outputs(raw), {**state, **new}

    return Network(
        init,
        apply,
        getattr(module, "heads", 1) if heads is None else heads,
        name or type(module).__name__,
        input_params=tuple(getattr(module, "input_params", ())),
        splits_batch=bool(getattr(module, "splits_batch", False)),
        head=linear_head if getattr(module, "heads", 1) == 1 else None,
    )


def from_nnx(
    construct: Callable[[nnx.Rngs], nnx.Module],
    *,
    heads: int = 1,
    name: str | None = None,
) -> Network:
    """Wraps an NNX module through `nnx.split` and `nnx.merge`.

    Args:
        construct: `nnx.Rngs -> module`, for example `lambda rngs: Net(64, rngs=rngs)`.
        heads: members per set of weights.
        name: default is the class name.

    Returns:
        A `Network`. Its variables are pure dicts: `{"params": ..., "state": ...}`,
        where `state` holds everything that is neither a parameter nor an RNG
        (batch statistics). Dropout is reseeded from the step's key.
    """
    template = construct(nnx.Rngs(0))
    graph = nnx.graphdef(template)
    label = name or type(template).__name__

    def init(key, x):
        del x
        params, state, _ = _parts(construct(nnx.Rngs(key)))
        return {
            "params": nnx.to_pure_dict(params),
            "state": nnx.to_pure_dict(state),
        }

    def apply(variables, x, *, train=False, key=None, axis_name=None):
        params, state, rngs = _parts(template)
        nnx.replace_by_pure_dict(params, variables["params"])
        nnx.replace_by_pure_dict(state, variables["state"])
        nnx.replace_by_pure_dict(rngs, _reseeded(nnx.to_pure_dict(rngs), key))
        module = nnx.merge(graph, params, state, rngs)
        (module.train if train else module.eval)()
        if train:
            for _, part in nnx.iter_graph(module):  # flax 0.10 has no iter_modules
                if isinstance(part, nnx.Module) and hasattr(part, "axis_name"):
                    setattr(part, "axis_name", axis_name)  # noqa: B010
        outputs = _as_outputs(module(x))
        return outputs, {"state": nnx.to_pure_dict(_parts(module)[1])}

    named = tuple(getattr(template, "input_params", ()))
    return Network(init, apply, heads, label, input_params=named)


def _parts(module: nnx.Module):
    """`(parameters, other state, random streams)` of a module."""
    _, params, rngs, state = nnx.split(module, nnx.Param, nnx.RngState, ...)
    return params, state, rngs


def _reseeded(rngs: PyTree, key: PRNGKey | None) -> PyTree:
    """The random streams with every key derived from this step's key."""
    if key is None:
        return rngs
    leaves, treedef = jax.tree.flatten(rngs)
    fresh = [
        jax.random.fold_in(key, i)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else leaf
        for i, leaf in enumerate(leaves)
    ]
    return treedef.unflatten(fresh)


def from_function(
    init: Callable[[PRNGKey, jax.Array], PyTree],
    apply: Callable[[PyTree, jax.Array], Any],
    *,
    heads: int = 1,
    name: str = "function",
) -> Network:
    """Wraps two plain functions without mutable state.

    Args:
        init: `(key, x) -> params`.
        apply: `(params, x) -> logits` or an object with `.logits`.
        heads: members per set of weights.
        name: shown in messages.

    Returns:
        A `Network`.
    """

    def wrapped_init(key, x):
        return {"params": init(key, x)}

    def wrapped_apply(variables, x, *, train=False, key=None, axis_name=None):
        del train, key, axis_name
        return _as_outputs(apply(variables["params"], x)), {}

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
