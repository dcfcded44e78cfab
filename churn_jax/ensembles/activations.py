"""What a network convolves, read from its program: nothing is compiled."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax

__all__ = ["convolved_bytes", "convolved_rows"]


def convolved_bytes(
    function: Callable[..., Any], *arguments: Any, lanes: int = 1
) -> int:
    """Bytes of what all convolutions in a call of a function yield.

    A backward pass needs them; the body of a loop counts once.

    Args:
        function: what JAX can trace.
        *arguments: arrays, or their shapes.
        lanes: every batch is padded to a multiple of so many examples.

    Returns:
        0 where nothing convolves.

    Example:
        >>> import jax.numpy as jnp
        >>> images, kernel = jnp.zeros((1, 3, 5, 5)), jnp.zeros((8, 3, 3, 3))
        >>> convolved_bytes(
        ...     lambda x, k: jax.lax.conv(x, k, (1, 1), "SAME"), images, kernel
        ... )
        800
    """
    program = jax.make_jaxpr(function)(*arguments)
    found = _convolutions(program.jaxpr)
    return sum(_result_bytes(equation, lanes) for equation in found)


def convolved_rows(program: Any) -> list[int]:
    """Length of the batch axis in every convolution, from a `jax.core.Jaxpr`."""
    return [
        equation.invars[0].aval.shape[equation.params["dimension_numbers"].lhs_spec[0]]
        for equation in _convolutions(program)
    ]


def _convolutions(program: Any) -> Iterator[Any]:
    """Equations that convolve, also those of programs inside."""
    for equation in program.eqns:
        if equation.primitive.name == "conv_general_dilated":
            yield equation
        for given in equation.params.values():
            for part in given if isinstance(given, tuple | list) else (given,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _convolutions(inner)


def _result_bytes(equation: Any, lanes: int) -> int:
    result = equation.outvars[0].aval
    rows = result.shape[equation.params["dimension_numbers"].out_spec[0]]
    padded = math.prod(result.shape) // rows * -(-rows // lanes) * lanes
    return padded * result.dtype.itemsize
