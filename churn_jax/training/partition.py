"""The mesh `("replica", "member", "data")`, and how the state lies on it.

The step runs inside one `jax.shard_map` over all three axes with `check_vma=True`.
Automatic partitioning is not used there: with three mesh axes it returns wrong
gradients of vmapped convolutions, silently (`tests/training/test_sharding.py`).
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from churn_jax.configuration.training import MeshShape

REPLICA, MEMBER, DATA = "replica", "member", "data"
_HARDLY = "jax_disable_most_optimizations"


def make_mesh(
    shape: MeshShape, devices: Sequence[Any] | None = None
) -> jax.sharding.Mesh:
    """A mesh over the first `shape.size` devices."""
    devices = list(jax.devices() if devices is None else devices)
    if len(devices) < shape.size:
        raise ValueError(
            f"mesh {dataclasses.astuple(shape)} needs {shape.size} devices; "
            f"{len(devices)} are present"
        )
    grid = np.array(devices[: shape.size]).reshape(dataclasses.astuple(shape))
    return jax.sharding.Mesh(grid, (REPLICA, MEMBER, DATA))


def compilation(
    mesh: jax.sharding.Mesh | None = None,
    *,
    convolutional: bool = False,
    short: bool = True,
) -> dict[str, Any] | None:
    """The `compiler_options` of `jax.jit` if it compiles for a CPU.

    LLVM's first level compiled ResNet-20's initial weights in 3.5 seconds instead of
    30, and the steps of dense networks in 0.6 of the time, which were as fast then:
    their products are a library's. Bits are equal; of a small transformer the last
    ones differ. XLA's older emitters take another third off the steps of vmapped
    networks, whose last bits differ, and slow down unrolled ones, which long runs have:
    so `short` runs use them, however they are mapped.

    Steps of convolutional networks keep barriers: else XLA would compute a block's
    residual sum again for each of the eight parts of a weight gradient. Of the YNN
    library they take reductions only: its convolutions use one core.
    """
    # A mesh may be planned for devices that this machine does not have.
    of_mesh = None if mesh is None else mesh.devices.flat[0].platform
    if (of_mesh or jax.default_backend()) != "cpu":
        return None
    if convolutional:
        own = _known(xla_cpu_experimental_ynn_fusion_type="LIBRARY_FUSION_TYPE_REDUCE")
        return {"xla_disable_hlo_passes": "cse_barrier_expander"} | own
    if jax.config.read(_HARDLY):
        return None
    older = _known(xla_cpu_use_fusion_emitters=False) if short else {}
    return {"xla_backend_optimization_level": 1} | older


@functools.cache
def _known(**option: Any) -> dict[str, Any]:
    """The option of a CPU's compiler; nothing where this version has none."""
    try:
        jax.jit(lambda: 0, compiler_options=option).lower().compile()
    except (jax.errors.JaxRuntimeError, ValueError):
        return {}
    return option


def any_process(flag: bool) -> bool:
    """True if any process says so; none returns before all have come here."""
    return bool(greatest([flag])[0])


def greatest(values: Sequence[float]) -> list[float]:
    """The element-wise maximum of every process's values."""
    # Clocks differ and signals reach one process first, but saving takes all of them:
    # one that went its own way would wait for the others for ever.
    if jax.process_count() == 1:
        return list(values)
    from jax.experimental import multihost_utils

    gathered = multihost_utils.process_allgather(np.asarray(values, np.float32))
    return np.max(gathered, axis=0).tolist()


def place(
    tree: PyTree, mesh: jax.sharding.Mesh, spec: jax.sharding.PartitionSpec
) -> PyTree:
    """Puts host arrays on the mesh; every process passes the same values."""
    return jax.device_put(tree, jax.sharding.NamedSharding(mesh, spec))


def replicate(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """One copy per device."""
    return place(tree, mesh, jax.sharding.PartitionSpec())


@functools.lru_cache(maxsize=64)
def spreader(sharding: jax.sharding.NamedSharding):
    """A compiled copy of a tree of arrays to that sharding; every process calls it."""
    return jax.jit(lambda tree: tree, out_shardings=sharding)


def flat_examples(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Examples `[N, ...]` of the given shape as rows `[N, D]`; others stay as they are.

    XLA for TPUs takes a batch out of rows where they lie. Out of `[N, H, W, C]` it
    first brings all of them into another layout, in every call: 7.5 million cycles and
    600 MB for CIFAR-10.
    """
    if images.shape[1:] != tuple(shape):
        return images
    return images.reshape(len(images), -1)


def shaped_examples(rows: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The inverse of `flat_examples`, for a batch; `()` is an unknown shape."""
    if rows.ndim != 2 or not shape:
        return rows
    return rows.reshape(rows.shape[0], *shape)


def fetch(tree: PyTree) -> PyTree:
    """Global arrays as NumPy on every process; a host transfer."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    from jax.experimental import multihost_utils

    def gather(x):
        if not isinstance(x, jax.Array) or x.is_fully_addressable:
            return np.asarray(x)
        if x.is_fully_replicated:
            return np.asarray(x.addressable_data(0))
        return np.asarray(multihost_utils.process_allgather(x, tiled=True))

    return jax.tree.map(gather, tree)


@functools.lru_cache(maxsize=256)
def _chunk_taker(shardings: tuple[jax.sharding.NamedSharding, ...], chunks: int):
    def take(leaves, index):
        return tuple(x.reshape(-1, chunks, *x.shape[1:])[:, index] for x in leaves)

    return jax.jit(take, out_shardings=shardings)  # one program for every chunk


@functools.lru_cache(maxsize=256)
def _chunk_joiner(shardings: tuple[jax.sharding.NamedSharding, ...]):
    def interleave(chunks):
        stacked = [jnp.stack(leaves, axis=1) for leaves in zip(*chunks)]
        return tuple(x.reshape(-1, *x.shape[2:]) for x in stacked)

    return jax.jit(interleave, out_shardings=shardings)


def split(tree: PyTree, chunks: int) -> list[PyTree]:
    """Splits leaves `[R, ...]` into `chunks` trees for the mapping `loop`.

    Chunk `i` holds of every device's replicas the i-th and every `chunks`-th after it,
    so nothing moves between devices.
    """
    if chunks == 1:
        return [tree]
    leaves, treedef = jax.tree.flatten(tree)
    take = _chunk_taker(tuple(x.sharding for x in leaves), chunks)
    leaves, indices = tuple(leaves), np.arange(chunks, dtype=np.int32)
    return [treedef.unflatten(take(leaves, i)) for i in indices]


def join(chunks: list[PyTree]) -> PyTree:
    """The inverse of `split`: leaves `[R, ...]` in replica order."""
    if len(chunks) == 1:
        return chunks[0]
    treedef = jax.tree.structure(chunks[0])
    lists = [tuple(jax.tree.leaves(chunk)) for chunk in chunks]
    joiner = _chunk_joiner(tuple(x.sharding for x in lists[0]))
    return treedef.unflatten(joiner(lists))
