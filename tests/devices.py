"""Functions and arrays over the eight CPU devices of the tests."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def mesh(devices=8, axis="data", kind="Auto"):
    """One axis; `Explicit` puts it into the types of arrays."""
    kinds = (getattr(jax.sharding.AxisType, kind),)
    return Mesh(np.array(jax.devices()[:devices]), (axis,), kinds)


def over_devices(function, *in_specs, out=P(), devices=8, axis="data"):
    """The function compiled under `shard_map`; specs of its arguments and result."""
    shards = {"in_specs": in_specs, "out_specs": out, "check_vma": True}
    return jax.jit(jax.shard_map(function, mesh=mesh(devices, axis), **shards))


def spread(arrays, spec=P("data"), kind="Auto"):
    """Arrays that are sharded over all devices."""
    return jax.device_put(arrays, NamedSharding(mesh(kind=kind), spec))
