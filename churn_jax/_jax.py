"""Names that the supported versions of JAX spell differently."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.interpreters import ad, batching


def to_varying(x: Array, axes: str | tuple[str, ...]) -> Array:
    """`x`, replicated along mesh `axes`, marked as varying along them."""
    if hasattr(jax.lax, "pcast"):  # JAX 0.8.2 and newer
        return jax.lax.pcast(x, axes, to="varying")
    return jax.lax.pvary(x, axes)  # pyrefly: ignore


def all_gather_replicated(x: Array, axis_name: str, axis: int = 0) -> Array:
    """All devices' `x`, concatenated, and known to be equal on all of them."""
    if hasattr(jax.lax, "pcast"):
        return jax.lax.all_gather(x, axis_name, axis=axis, tiled=True, to="invarying")
    gather = jax.lax.all_gather_invariant  # pyrefly: ignore
    return gather(x, axis_name, axis=axis, tiled=True)


def varying_axes(x: Array) -> frozenset[str]:
    """The axes of the mesh along which `x` differs, inside `shard_map`."""
    kind = jax.typeof(x)
    if hasattr(kind, "vma"):  # before JAX 0.10
        return kind.vma
    return kind.manual_axis_type.varying


if jax.__version_info__ < (0, 8):
    # JAX 0.7.2 cannot vmap the gradient of a convolution inside shard_map: it passes a
    # sharding that its own rule refuses, even one that shards nothing
    # (https://github.com/jax-ml/jax/issues/32157, repaired in 0.8.0).
    _rules: Any = batching.primitive_batchers
    _batch_convolution = _rules[jax.lax.conv_general_dilated_p]

    def _batch_unsharded(args, dims, *, out_sharding, **params):
        if out_sharding is not None and not any(out_sharding.spec):
            out_sharding = None
        return _batch_convolution(args, dims, out_sharding=out_sharding, **params)

    _rules[jax.lax.conv_general_dilated_p] = _batch_unsharded


if hasattr(jax.lax, "polynomial") and jax.__version_info__ < (0, 13):
    # JAX 0.12.0's derivatives of erf and erfc, so of the exact GELU, evaluate a
    # polynomial whose coefficients shard_map takes for replicated, and refuse that.

    def _erf_jvp(tangent, x):
        return 2 / math.sqrt(math.pi) * tangent * jnp.exp(-jnp.square(x))

    ad.defjvp(jax.lax.erf_p, _erf_jvp)
    ad.defjvp(jax.lax.erfc_p, lambda tangent, x, **_: -_erf_jvp(tangent, x))
