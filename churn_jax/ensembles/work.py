"""How much a network convolves, read from its program; nothing is compiled."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax

__all__ = ["convolution_flops"]


def convolution_flops(function: Callable[..., Any], *arguments: Any) -> int:
    """Floating-point operations of all convolutions in a call of a function.

    `2 |output| |kernel| / channels out` of each, zeros of the padding included. The
    body of a loop counts once.

    Args:
        function: what JAX can trace.
        *arguments: arrays, or their shapes.

    Example:
        >>> import jax.numpy as jnp
        >>> images, kernel = jnp.zeros((1, 3, 5, 5)), jnp.zeros((8, 3, 3, 3))
        >>> convolution_flops(
        ...     lambda x, k: jax.lax.conv(x, k, (1, 1), "SAME"), images, kernel
        ... )
        10800
    """
    program = jax.make_jaxpr(function)(*arguments)
    return sum(map(_flops, _convolutions(program.jaxpr)))


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


def _flops(convolution: Any) -> int:
    kernel = convolution.invars[1].aval.shape
    features = kernel[convolution.params["dimension_numbers"].rhs_spec[0]]
    outputs = math.prod(convolution.outvars[0].aval.shape)
    return 2 * outputs * math.prod(kernel) // features
