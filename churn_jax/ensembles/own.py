"""Networks of one's own, in whatever form they are given."""

import functools
from typing import Any, cast

from flax import linen as nn
from flax import nnx

from churn_jax.ensembles.linen import from_linen
from churn_jax.ensembles.network import (
    Network,
    NetworkError,
    needed_names,
    parameter_names,
)
from churn_jax.ensembles.nnx import from_nnx


class _Same:
    """An object that equals itself alone, whatever its class says of equality."""

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
        A `Network`; equal arguments give the same one, so that what is compiled of it
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
