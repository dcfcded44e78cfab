"""Modules that are imported when they are first used.

Configurations, methods and presets are read by every command, for its help too, so
their files must not load JAX: they take it from here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp


class Lazy:
    """A stand-in for the module `name`, which is imported when an attribute is read."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


if not TYPE_CHECKING:
    jax, jnp = Lazy("jax"), Lazy("jax.numpy")
