"""Activations by name: ReLU and the smooth ones that are compared with it."""

import math
from collections.abc import Callable
from functools import cache, partial

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.setting_checks import check_choice
from churn_jax.typing import Array


def smelu(x: Array, beta: float = 1.0) -> Array:
    r"""SmeLU: a ReLU whose corner is a parabola of width `2 beta`.

    `0` for `x <= -beta`, `(x + beta)^2 / (4 beta)` for `|x| <= beta`, `x` above.

    Args:
        x: any shape, floating point.
        beta: half the width of the parabola, above 0. Small values are nearly a ReLU,
            large ones nearly linear around 0.

    Returns:
        The shape and dtype of `x`. The derivative is continuous.

    Notes:
        The formula was read in descriptions of the papers and in public code, not in
        the papers. At `beta = 1` it is `jax.nn.sparse_plus`; `beta` times that of
        `x / beta` rounds where this one returns `x` itself.

    Example:
        >>> import jax.numpy as jnp
        >>> smelu(jnp.array([-1.0, 0.0, 0.5, 2.0]), beta=0.5).tolist()
        [0.0, 0.125, 0.5, 2.0]

    References:
        [smelu] SmeLU -- Shamir, Lin and Coviello, Smooth Activations and
        Reproducibility in Deep Networks, 2020. https://arxiv.org/abs/2010.09931
        [smelu2022] SmeLU -- Shamir and Lin, Real World Large Scale Recommendation
        Systems Reproducibility and Smooth Activations, 2022.
        https://arxiv.org/abs/2202.06499
    """
    parabola = jnp.square(x + beta) / (4.0 * beta)
    return jnp.where(jnp.abs(x) < beta, parabola, nn.relu(x))


_SMOOTH = {
    "softplus": nn.softplus,
    "silu": nn.silu,
    "gelu": partial(nn.gelu, approximate=False),
}
ACTIVATIONS = ("relu", "smelu", *_SMOOTH)


@cache
def activation(name: str) -> Callable[[Array], Array]:
    """The function called `name`, one of `relu`, `smelu`, `softplus`, `silu`, `gelu`.

    All but `relu` take a number after a colon, 1 unless given: `smelu:0.5` is SmeLU of
    beta 0.5. `softplus:4` is `f(4 x) / 4`, the same for `silu` and `gelu` (exact, by
    the error function): the larger, the nearer to ReLU.

    Raises:
        ValueError: the name is unknown, or the number is not above 0.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(activation("smelu:0.5")(jnp.array(0.0))), 3)
        0.125
    """
    kind, given, number = name.partition(":")
    check_choice("activation", kind, ACTIVATIONS)
    if kind == "relu" and not given:
        return nn.relu
    try:
        beta = float(number) if given else 1.0
    except ValueError:
        beta = 0.0
    if kind == "relu" or not 0.0 < beta < math.inf:
        raise ValueError(
            f"activation {name!r} must be relu, or another name with a number above 0 "
            "after a colon, such as smelu:0.5"
        )
    if kind == "smelu":
        return partial(smelu, beta=beta)
    smooth = _SMOOTH[kind]
    return smooth if beta == 1.0 else lambda x: smooth(beta * x) / beta
