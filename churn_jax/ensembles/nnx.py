"""NNX modules as networks, and networks in whatever form they are given."""

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx
from jaxtyping import PyTree

from churn_jax.ensembles.linen import from_linen
from churn_jax.ensembles.network import (
    Network,
    NetworkError,
    as_outputs,
    described,
    device_key,
    mode,
    needed_names,
    parameter_names,
    placed,
    stuck,
    switches,
)
from churn_jax.typing import PRNGKey


def from_nnx(
    construct: Callable[[nnx.Rngs], nnx.Module],
    *,
    heads: int = 1,
    name: str | None = None,
) -> Network:
    """Wraps an NNX module through `nnx.split` and `nnx.merge`.

    `.train()` and `.eval()` switch between training and evaluation, and so do arguments
    `train`, `training`, `is_training`, `deterministic` and `use_running_average` of
    `__call__` and attributes `training` and `is_training`. In training, batch norm
    averages over the global batch, whatever its `axis_name`, and an argument `rngs` is
    given streams of the step's key.

    Args:
        construct: `nnx.Rngs -> module`, for example `lambda rngs: Net(64, rngs=rngs)`,
            or the class of a module whose one needed argument is `rngs`.
        heads: members per set of weights.
        name: default is the class name.

    Returns:
        A `Network`. Its variables are pure dicts: `{"params": ..., "state": ...}`,
        where `state` holds everything that is neither a parameter nor an RNG
        (batch statistics). Dropout is reseeded from the step's key. Its `apply` raises
        `NetworkError` where dropout or batch norm does not follow the switch.
    """
    if isinstance(construct, nnx.Module):
        raise NetworkError(
            f"{name or 'the network'} is an NNX module that has its weights already, "
            "and every network draws its own: give its class or a function, such as "
            f"lambda rngs: {type(construct).__name__}(..., rngs=rngs)"
        )
    if isinstance(construct, nn.Module) or not callable(construct):
        raise NetworkError(
            "from_nnx takes the class of an NNX module, or a function of rngs that "
            f"makes one; got {described(construct)} (from_linen takes a Linen module)"
        )
    if isinstance(construct, type):
        construct = functools.partial(lambda kind, rngs: kind(rngs=rngs), construct)
    template = construct(nnx.Rngs(0))
    if not isinstance(template, nnx.Module):
        raise NetworkError(
            "from_nnx takes a function that makes an NNX module; it returns "
            f"{described(template)}"
        )
    graph = nnx.graphdef(template)
    label = name or type(template).__name__
    parameters = parameter_names(type(template).__call__)
    called_with = switches(parameters)
    dropout_alone = "rngs" not in parameters and _only_dropout_draws(template)

    def init(key, x):
        del x
        params, state, _ = _parts(construct(nnx.Rngs(key)))
        return {"params": nnx.to_pure_dict(params), "state": nnx.to_pure_dict(state)}

    def apply(variables, x, *, train=False, key=None, axis_name=None):
        params, state, rngs = _parts(template)
        several = False
        if key is not None:
            own = device_key(key, axis_name)
            several, key = own is not key, key if dropout_alone else own
        nnx.replace_by_pure_dict(params, variables["params"])
        nnx.replace_by_pure_dict(state, variables["state"])
        nnx.replace_by_pure_dict(rngs, _reseeded(nnx.to_pure_dict(rngs), key))
        module = nnx.merge(graph, params, state, rngs)
        (module.train if train else module.eval)()
        own = mode(("training", "is_training"), train)
        module.set_attributes(**own, raise_if_not_found=False)
        options: dict[str, Any] = dict(mode(called_with, train))
        if train and several and dropout_alone:
            for _, layer in _modules(module):
                if isinstance(layer, nnx.Dropout):
                    object.__setattr__(layer, "__class__", _placed_in(axis_name))
        if train:
            for _, layer in _with_statistics(module):
                if hasattr(layer, "axis_name"):
                    setattr(layer, "axis_name", axis_name)  # noqa: B010
            if "rngs" in parameters and key is not None:
                # Apart from the keys of the streams that the module holds.
                options["rngs"] = nnx.Rngs(jax.random.fold_in(key, 2**32 - 1))
        watched = _watched(module, train, given="rngs" in options)
        outputs = as_outputs(module(x, **options), label)
        _check_modes(label, called_with, watched, train)
        return outputs, {"state": nnx.to_pure_dict(_parts(module)[1])}

    named = tuple(getattr(template, "input_params", ()))
    held = (v for _, layer in _modules(template) for v in vars(layer).values())
    own = [getattr(v, "__name__", v) for v in held]  # functions by their names
    own = tuple(str(v) for v in own if isinstance(v, (int, float, str)))
    return Network(
        init, apply, heads, label, input_params=named, places_draws=True, settings=own
    )


def _only_dropout_draws(module: nnx.Module) -> bool:
    """True if no layer draws but dropout, and attention with one mask for all rows."""
    for _, layer in _modules(module):
        known = isinstance(layer, nnx.Dropout) or (
            isinstance(layer, nnx.MultiHeadAttention) and layer.broadcast_dropout
        )
        held = vars(layer).values()
        if not known and any(isinstance(v, (nnx.Rngs, nnx.RngStream)) for v in held):
            return False
    return True


@functools.cache
def _placed_in(axis_name: str) -> type:
    """Dropout whose mask is that of the global batch."""

    class Placed(nnx.Dropout):
        def __call__(self, inputs, *, deterministic=None, rngs=None):
            off = self.deterministic if deterministic is None else deterministic
            drop = functools.partial(super().__call__, deterministic=off, rngs=rngs)
            if off or not 0 < self.rate < 1 or rngs is not None:
                return drop(inputs)
            return placed(drop, inputs, self.rate, axis_name)

    return Placed


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


def _modules(module: nnx.Module):
    """`(path, module)` of all modules; flax 0.10 has no `nnx.iter_modules`."""
    for path, part in nnx.iter_graph(module):
        if isinstance(part, nnx.Module):
            yield path, part


def _with_statistics(module: nnx.Module):
    """`(path, layer)` of the layers that keep batch statistics."""
    for path, layer in _modules(module):
        if any(isinstance(value, nnx.BatchStat) for value in vars(layer).values()):
            yield path, layer


def _values(module: nnx.Module, kind: type) -> list[Any]:
    return jax.tree.leaves(nnx.to_pure_dict(nnx.state(module, kind)))


def _watched(module: nnx.Module, train: bool, *, given: bool) -> list[tuple]:
    """Layers, with the values that only training changes and those it keeps."""
    found: list[tuple] = [
        (path, layer, nnx.BatchStat, nnx.Param)
        for path, layer in _with_statistics(module)
    ]
    if not train:  # whatever draws
        found.append(((), module, nnx.RngCount, nnx.RngKey))
    # Layers that draw from streams given in the call leave their own alone.
    for path, layer in () if given else _modules(module):
        field = "dropout_rate" if isinstance(layer, nnx.MultiHeadAttention) else "rate"
        drops = isinstance(layer, (nnx.Dropout, nnx.MultiHeadAttention))
        if drops and getattr(layer, field) and _values(layer, nnx.RngCount):
            found.append((path, layer, nnx.RngCount, nnx.RngKey))
    return [
        (path, layer, changed, _values(layer, changed), kept, _values(layer, kept))
        for path, layer, changed, kept in found
    ]


def _check_modes(label: str, names, watched: list[tuple], train: bool) -> None:
    """Refuses layers that have changed nothing in training, or something outside it."""
    for path, layer, changed, before, kept, reference in watched:

        def moved(kind: type, values: list[Any], layer=layer) -> bool:
            pairs = zip(values, _values(layer, kind), strict=True)
            return any(was is not now for was, now in pairs)

        # Transformations such as `nnx.scan` renew every value, also those that are only
        # read; then there is no telling.
        renewed = not reference or moved(kept, reference)
        if moved(changed, before) != train and (train or not renewed):
            layer_name = "/".join(map(str, path)) or "itself"
            raise NetworkError(
                f"{label}: the layer {layer_name} ({type(layer).__name__}) "
                f"{stuck(train, (*names, 'train() and eval()'))}"
            )


class _Same:
    """A value that is compared by identity, whatever its class says of equality."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def as_network(value: Any, num_classes: int, *, name: str) -> Network:
    """A network from a module, a class or a function that makes one.

    Args:
        value: a `Network`; a Linen module or its class; the class of an NNX module; or
            a function that returns one of these. Classes and functions are given those
            of `num_classes` and `rngs` that they name; one with `rngs` makes an NNX
            module, with new weights for every network.
        num_classes: C.
        name: shown in messages and reports.

    Returns:
        A `Network`; the same objects give the same one, so that what is compiled of it
        is compiled once.

    Raises:
        NetworkError: the value is something else, or needs other arguments.

    Example:
        >>> as_network(nn.Dense(3), 3, name="linear").name
        'linear'
    """
    return _as_network(_Same(value), num_classes, name)


@functools.lru_cache(maxsize=32)
def _as_network(given: _Same, num_classes: int, name: str) -> Network:
    value = given.value
    if isinstance(value, Network):
        return value
    if isinstance(value, nn.Module):
        return from_linen(value, name=name)
    if isinstance(value, nnx.Module):
        return from_nnx(cast(Any, value), name=name)  # which says what to give
    if not callable(value):
        raise NetworkError(
            f"{name} is a {type(value).__name__}; a network is a Linen module, the "
            "class of a Linen or an NNX module, or a function that makes one"
        )
    known = ("num_classes", "rngs")
    function, instance = value, cast(Any, None)
    if isinstance(value, type) and issubclass(value, nnx.Module):
        # The metaclass of NNX hides what a class takes.
        function = functools.partial(value.__init__, instance)
    for missing in needed_names(function):
        if missing not in known:
            raise NetworkError(
                f"{name} needs {missing!r}; a class or a function of networks is given "
                f"{' and '.join(known)}, everything else needs a default: give a "
                "module, or a function that fills it in"
            )
    names = parameter_names(function)
    classes = {"num_classes": num_classes} if "num_classes" in names else {}
    if "rngs" in names:
        return from_nnx(lambda rngs: value(**classes, rngs=rngs), name=name)
    made = value(**classes)
    if callable(made) and not isinstance(made, (Network, nn.Module, nnx.Module)):
        raise NetworkError(f"{name} returns a {type(made).__name__}, not a network")
    return _as_network(_Same(made), num_classes, name)
