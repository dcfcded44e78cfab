"""Networks that start from given weights, all or some of them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax

from churn_jax.ensembles.adapters import Network
from churn_jax.typing import PRNGKey, PyTree

__all__ = ["StartingFrom", "starting_from"]


@dataclasses.dataclass(frozen=True, eq=False)
class StartingFrom:
    """An `init` that draws only the layers which have no weights yet.

    Attributes:
        draw: `(key, x) -> variables`, of all layers.
        weights: part of such variables, without the layers that are drawn.
    """

    draw: Callable[[PRNGKey, jax.Array], PyTree]
    weights: Mapping[str, Any]

    def __call__(
        self, key: PRNGKey, x: jax.Array, weights: Mapping[str, Any] | None = None
    ) -> PyTree:
        """Variables.

        Args:
            key: of what is drawn.
            x: an example.
            weights: the same, as arguments of a compiled program: hundreds of
                megabytes as constants inside it would take long to compile.
        """
        given = self.weights if weights is None else weights
        return {
            name: {**below, **given.get(name, {})}
            for name, below in self.draw(key, x).items()
        }


def starting_from(
    network: Network, weights: Mapping[str, Any], *, name: str, note: str = ""
) -> Network:
    """A network whose initial weights are given; layers without weights are drawn.

    Args:
        network: what is wrapped.
        weights: `{"params": {layer: ...}, ...}`; a layer is given as a whole.
        name: by which a checkpoint knows the network.
        note: see `Network`.

    Returns:
        A `Network`; its replicas differ in the drawn layers only.

    Example:
        >>> import jax, jax.numpy as jnp
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
