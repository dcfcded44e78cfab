"""Linen modules as networks."""

import contextlib
import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Mapping
from typing import Any

import jax
from flax import errors
from flax import linen as nn

from churn_jax.ensembles.network import (
    Network,
    NetworkError,
    as_outputs,
    described,
    device_key,
    linear_head,
    mode,
    parameter_names,
    placed,
    stuck,
    switches,
)


def from_linen(
    module: Any, *, heads: int | None = None, name: str | None = None
) -> Network:
    """Wraps a `flax.linen.Module`.

    The module is called as `module(x)` and returns logits or an object with `.logits`.
    An argument or a field `train`, `training`, `is_training`, `deterministic` or
    `use_running_average` switches between training and evaluation. In training, batch
    norm averages over the global batch, whatever its `axis_name`, and every random
    stream is drawn from the step's key. A field `axis_name` is set to the mesh axis
    whose devices share one batch. Fields or properties `input_params`, `heads` and
    `splits_batch` set the fields of `Network` with these names, and a method
    `check_params(params)` refuses parameters that cannot be the network's.

    Args:
        module: an unbound Linen module.
        heads: members per set of weights (BatchEnsemble, MIMO); None is the module's
            own `heads`, or 1.
        name: default is the class name.

    Returns:
        A `Network`. Its `apply` raises `NetworkError` where dropout or batch norm does
        not follow the switch; a module that means it (with frozen batch norm, say) can
        be a `Network` of its own `init` and `apply`.
    """
    if not isinstance(module, nn.Module):
        raise NetworkError(
            "from_linen takes a Linen module, such as Net(num_classes=10); got "
            f"{described(module)} (from_nnx takes the class of an NNX module)"
        )
    label = name or type(module).__name__
    check = getattr(module, "check_params", None)
    parameters = parameter_names(type(module).__call__)
    fields = {f.name for f in dataclasses.fields(module)}
    called_with = switches(parameters)
    cloned_with = switches(fields - set(called_with))
    if not called_with and not cloned_with and _forwards(module):
        called_with = ("train",)
    names = (*called_with, *cloned_with)
    members = getattr(module, "heads", 1) if heads is None else heads

    def bound(train, axis_name=None) -> Any:
        changes: dict[str, Any] = dict(mode(cloned_with, train))
        if train and "axis_name" in fields:
            changes["axis_name"] = axis_name
        return module.clone(**changes) if changes else module

    def init(key, x):
        evaluated = mode(called_with, train=False)
        variables = dict(bound(False).init({"params": key}, x, **evaluated))
        if check is not None:
            check(variables.get("params", {}))
        return variables

    def apply(variables, x, *, train=False, key=None, axis_name=None):
        state = {k: v for k, v in variables.items() if k != "params"}
        own, sizes = mode(called_with, train), (len(x), members)
        call = functools.partial(bound(train, axis_name).apply, variables, x, **own)
        layers = functools.partial(_call_layer, label, names, train, axis_name, sizes)
        with nn.intercept_methods(layers):
            if not train:
                try:
                    return as_outputs(call(), label), state
                except errors.InvalidRngError as error:
                    raise NetworkError(
                        f"{label} draws random numbers when it is evaluated ({error}); "
                        "draw them in training only"
                    ) from error
            # Streams other than dropout are drawn from the one called params.
            rngs = None
            if key is not None:
                own = device_key(key, axis_name)
                rngs = {"dropout": own, "params": jax.random.fold_in(own, 1)}
                if own is not key:
                    rngs[_PLACED] = key
            raw, new = call(rngs=rngs, mutable=list(state))
        new = {**state, **new}
        _check_state(label, names, state, new)
        return as_outputs(raw, label), new

    return Network(
        init,
        apply,
        members,
        label,
        input_params=tuple(getattr(module, "input_params", ())),
        splits_batch=bool(getattr(module, "splits_batch", False)),
        head=linear_head if getattr(module, "heads", 1) == 1 else None,
        places_draws=True,
        settings=tuple(re.sub(r" at 0x\w+", "", repr(module)).splitlines()),
    )


def _forwards(module: nn.Module) -> bool:
    """True if `__call__` takes any keyword; a Sequential gives them to one layer."""
    parameters = inspect.signature(type(module).__call__).parameters.values()
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return anything and not isinstance(module, nn.Sequential)


# The random stream of dropout that is drawn alike on all devices; where a lifted
# transformation does not pass it on, each device draws its own masks.
_PLACED = "dropout of the global batch"


def _call_layer(label, names, train, axis_name, rows, call, args, kwargs, context):
    """Calls a layer in the mode that it must be in, over the global batch."""
    layer = context.module
    if context.method_name != "__call__":
        return call(*args, **kwargs)
    where = f"{label}: the layer {'/'.join(layer.path)} ({type(layer).__name__})"
    given = inspect.signature(context.orig_method).bind(*args, **kwargs).arguments
    evaluated = _evaluated(layer, given)
    if evaluated is not None and evaluated == train:
        raise NetworkError(f"{where} {stuck(train, names)}")
    if evaluated is False and layer.has_rng(_PLACED):
        if isinstance(layer, nn.Dropout):
            own = layer.rng_collection == "dropout" and given.get("rng") is None
            if own and layer.rate < 1:
                inputs = given.pop("inputs")
                parts = rows[1] if len(inputs) == math.prod(rows) else 1
                drop = functools.partial(call, **given)
                with _set(layer, "rng_collection", _PLACED):
                    return placed(drop, inputs, layer.rate, axis_name, parts)
        elif isinstance(layer, nn.MultiHeadDotProductAttention):
            # Its one mask is of all rows; else each device draws its own.
            if layer.broadcast_dropout and given.get("dropout_rng") is None:
                kwargs = {**kwargs, "dropout_rng": layer.make_rng(_PLACED)}
    if not train or axis_name is None or not _has_statistics(layer):
        return call(*args, **kwargs)
    if getattr(layer, "axis_index_groups", None) is not None:
        raise NetworkError(
            f"{where} has axis_index_groups, but its statistics are of the global "
            "batch: leave them out"
        )
    if given.get("mask") is not None and jax.lax.psum(1, axis_name) > 1:
        raise NetworkError(
            f"{where} is given a mask; the masked statistics of several devices cannot "
            "be averaged: train with data=1 in the mesh"
        )
    with _set(layer, "axis_name", axis_name):
        return call(*args, **kwargs)


def _evaluated(layer: nn.Module, given: Mapping[str, Any]) -> bool | None:
    """True if dropout or batch norm is in evaluation mode; None of other layers."""
    if isinstance(layer, nn.BatchNorm):
        name = "use_running_average"
    elif isinstance(layer, nn.Dropout) and layer.rate:
        name = "deterministic"
    elif isinstance(layer, nn.MultiHeadDotProductAttention) and layer.dropout_rate:
        name = "deterministic"
    else:
        return None
    value = given.get(name)
    value = getattr(layer, name) if value is None else value
    return value if isinstance(value, bool) else None


def _has_statistics(layer: nn.Module) -> bool:
    """True if a layer can average over a mesh axis, and keeps what it averages."""
    own = layer.variables.get("batch_stats", {})
    kept = any(not isinstance(value, Mapping) for value in own.values())
    return kept and hasattr(layer, "axis_name")


@contextlib.contextmanager
def _set(layer: nn.Module, field: str, value: str):
    before = getattr(layer, field)
    # A bound module is frozen, and a clone of it would be another layer.
    object.__setattr__(layer, field, value)
    try:
        yield
    finally:
        object.__setattr__(layer, field, before)


def _check_state(label: str, names, before: Mapping, after: Mapping) -> None:
    """Refuses state of another form, and batch statistics that have not moved."""
    for name in after:
        if jax.tree.structure(before.get(name)) != jax.tree.structure(after[name]):
            raise NetworkError(
                f"{label}: its collection {name} has another form after an update "
                "(self.sow adds to it); state must keep its form, and what is sown is "
                "no part of the loss"
            )
    old = jax.tree_util.tree_leaves_with_path(before.get("batch_stats", {}))
    new = jax.tree.leaves(after.get("batch_stats", {}))
    for (path, was), now in zip(old, new, strict=True):
        if was is now:
            layer = jax.tree_util.keystr(path[:-1], simple=True, separator="/")
            raise NetworkError(f"{label}: the layer {layer} {stuck(True, names)}")
