"""Networks made of other networks: other inputs, classes, logits or initial weights."""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from churn_compare.class_sets import UNKNOWN_LOGIT, known_classes
from churn_jax.ensembles.network import Network, NetworkError
from churn_jax.typing import PRNGKey


def with_inputs(
    network: Network,
    inputs: Sequence[int] | Callable[[jax.Array], jax.Array],
    *,
    name: str | None = None,
) -> Network:
    """A network that sees a part or a view of the input: components may differ in it.

    Args:
        network: network to wrap.
        inputs: columns of the flattened example (of an image in row, column, channel
            order), so that the network is given `[B, len(inputs)]`; or a function of
            the whole batch `[B, ...]`.
        name: default is the network's, with how many columns and a short hash of them,
            or with the function's name, which a lambda does not have. A checkpoint
            knows the network by it.

    Returns:
        A `Network` of the batch that all components are given.

    Raises:
        ValueError: no column, a negative one, or one twice; a function without a name;
            when the network meets an example, a column that it does not have.

    Example:
        >>> from churn_jax.ensembles import from_function
        >>> whole = from_function(lambda key, x: {}, lambda params, x: x)
        >>> half = with_inputs(whole, range(2), name="left half")
        >>> half.apply({"params": {}}, jnp.arange(8.0).reshape(2, 4))[0].logits
        Array([[0., 1.],
               [4., 5.]], dtype=float32)

    References:
        [anti-distillation] Sec. 2
    """
    if callable(inputs):
        view: Callable[[jax.Array], jax.Array] = inputs
        label = getattr(inputs, "__name__", "")
        if name is None and not label.isidentifier():
            raise ValueError("inputs is a function without a name; give name=")
    else:
        columns = np.asarray(list(inputs), np.int64)
        if not columns.size or columns.min() < 0:
            some = columns.tolist()[:8]
            raise ValueError(f"inputs must be columns, counted from 0; got {some}")
        if len(np.unique(columns)) < columns.size:
            raise ValueError("inputs must name every column once")
        view = functools.partial(_columns, columns, network.name)
        label = f"{columns.size} inputs {zlib.crc32(columns.tobytes()):08x}"

    def init(key, x):
        return network.init(key, view(x))

    def apply(variables, x, **kwargs):
        return network.apply(variables, view(x), **kwargs)

    name = name or f"{network.name} on {label}"
    return dataclasses.replace(network, init=init, apply=apply, name=name)


def _columns(columns: np.ndarray, name: str, x: jax.Array) -> jax.Array:
    """Some columns of flattened examples, `[B, ...]` to `[B, D]`."""
    flat = x.reshape(x.shape[0], -1)
    if columns.max() >= flat.shape[1]:
        has = f"but an example has {flat.shape[1]}, counted from 0"
        raise ValueError(f"{name} is given column {columns.max()}, {has}")
    return flat[:, columns]


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
        >>> from churn_jax.ensembles import from_function
        >>> half = from_function(lambda key, x: {}, lambda params, x: x)
        >>> wide = with_classes(half, (0, 2), 3)
        >>> wide.apply({"params": {}}, jnp.ones((1, 2)))[0].logits.tolist()
        [[1.0, -10000.0, 1.0]]
    """
    ids = np.asarray(list(classes), np.int64)
    inside = len(ids) > 1 and ids[0] >= 0 and ids[-1] < num_classes
    if not inside or np.any(np.diff(ids) <= 0):
        raise ValueError(
            f"classes must be at least two increasing ids below {num_classes}; got "
            f"{ids.tolist()[:8]}"
        )

    def spread(logits):
        if (count := logits.shape[-1]) != len(ids):
            outputs = f"{count} outputs for {len(ids)} classes"
            raise ValueError(f"{network.name} has {outputs}")
        full = jnp.full((*logits.shape[:-1], num_classes), UNKNOWN_LOGIT, logits.dtype)
        return full.at[..., ids].set(logits)

    label = f"{len(ids)} of {num_classes} classes {zlib.crc32(ids.tobytes()):08x}"
    name = f"{network.name} of {label}"
    return _answering(network, lambda _, logits: spread(logits), name)


def with_temperature(network: Network) -> Network:
    """A network whose logits are divided by `variables["temperature"]`.

    One number, or `[K]` where the network yields K members; 1 at first. Classes that it
    does not know stay unknown.
    """

    def cooled(variables, logits):
        temperature = jnp.asarray(variables["temperature"])
        rest = (1,) * (logits.ndim - temperature.ndim)
        temperature = jnp.reshape(temperature, temperature.shape + rest)
        return jnp.where(known_classes(logits), logits / temperature, logits)

    def init(key, x):
        return {**network.init(key, x), "temperature": jnp.ones(network.heads)}

    answering = _answering(network, cooled, f"{network.name} calibrated", "temperature")
    return dataclasses.replace(answering, init=init)


def _answering(
    network: Network,
    change: Callable[[PyTree, jax.Array], jax.Array],
    name: str,
    own: str = "",
) -> Network:
    """A network with `change(variables, logits)`; `own` is a variable of its own."""
    inner = network.head

    def without(variables):
        return {k: v for k, v in variables.items() if k != own}

    def apply(variables, x, **kwargs):
        outputs, state = network.apply(without(variables), x, **kwargs)
        logits = change(variables, outputs.logits)
        return dataclasses.replace(outputs, logits=logits), state

    def head(variables, features):
        assert inner is not None
        return change(variables, inner(without(variables), features))

    return dataclasses.replace(network, apply=apply, head=inner and head, name=name)


@dataclasses.dataclass(frozen=True, eq=False)
class StartingFrom:
    """An `init` that draws only the layers which have no weights yet."""

    # `(key, x) -> variables`, of all layers
    draw: Callable[[PRNGKey, jax.Array], PyTree]
    # part of such variables, without the layers that are drawn
    weights: Mapping[str, Any]

    def __call__(
        self, key: PRNGKey, x: jax.Array, weights: Mapping[str, Any] | None = None
    ) -> PyTree:
        """Variables; `weights` are the given ones as arguments of a compiled program.

        Hundreds of megabytes as constants inside it would take long to compile.
        """
        given, drawn = self.weights if weights is None else weights, self.draw(key, x)
        form = functools.partial(jax.tree.map, jnp.shape)
        for name, layers in given.items():
            for layer, tree in layers.items():
                if form(tree) != form(drawn.get(name, {}).get(layer)):
                    raise NetworkError(
                        f"the network has no {name}/{layer} of the shapes that are "
                        f"given; it has {', '.join(drawn.get(name, drawn))}"
                    )
        return {name: {**drawn[name], **given.get(name, {})} for name in drawn}


def starting_from(
    network: Network, weights: Mapping[str, Any], *, name: str, note: str = ""
) -> Network:
    """A network whose initial weights are given; layers without weights are drawn.

    Args:
        network: network to wrap.
        weights: `{"params": {layer: ...}, ...}`; a layer is given as a whole.
        name: by which a checkpoint knows the network.
        note: see `Network`.

    Returns:
        A `Network`; its replicas differ in the drawn layers only. Its `init` raises
        `NetworkError` where a given layer is not one of the network's, in its shapes.

    Example:
        >>> from churn_jax.ensembles import from_function
        >>> drawn = from_function(
        ...     lambda key, x: {"body": jnp.ones(2), "head": jax.random.normal(key)},
        ...     lambda params, x: x)
        >>> given = {"params": {"body": jnp.zeros(2)}}
        >>> network = starting_from(drawn, given, name="given")
        >>> network.init(jax.random.key(0), None)["params"]["body"]
        Array([0., 0.], dtype=float32)
    """
    init = StartingFrom(network.init, weights)
    return dataclasses.replace(network, init=init, name=name, note=note)
