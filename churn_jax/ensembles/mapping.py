"""How the slots (replicas, members) that live on one device are computed.

The only file that loops over slots. `vmap` batches them; `unroll` writes them one
after another into one program; `scan` (replicas only) writes one and repeats it there;
`loop` (replicas only) compiles one replica and dispatches it once per replica. Which is
fastest was measured: `benchmarks/replicas.py`; on TPUs compiled, `plan_cycles.py`.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from churn_jax.typing import PyTree

__all__ = [
    "MAPPINGS",
    "choose",
    "fills_chip",
    "map_each",
    "map_slots",
    "stack",
    "unstack",
]

MAPPINGS = ("auto", "vmap", "unroll", "scan", "loop")


# On CPU, dense networks: above this many numbers the weights of all slots leave the
# caches, and one replica after another is fastest.
_LARGE_NETWORK = 200_000
# Unrolling compiles every slot; it pays back in long runs of few slots only.
_FEW_SLOTS = 16
_LONG_RUN = 5_000
# On TPU: operations of a forward pass's convolutions from which on vmapped networks
# take more cycles than one after another. Four of LeNet5, batch 128 (0.09e9), take 0.69
# of it, four of ResNet-8, batch 32 (0.8e9), 1.12.
_FILLING_WORK = 300_000_000


def fills_chip(work: int, backend: str) -> bool:
    """Whether one network's convolutions fill a TPU, so that vmapped ones cost more.

    By the TPU compiler's estimates, `benchmarks/plan_cycles.py`; other backends: False.

    Args:
        work: operations of the convolutions, of one network's forward pass for a
            device's share of a batch; see `convolution_flops`.
        backend: `cpu`, `gpu` or `tpu`.
    """
    return backend == "tpu" and work > _FILLING_WORK


def choose(
    mapping: str,
    *,
    convolutional: bool,
    backend: str | None = None,
    slots: int = 1,
    parameters: int = 0,
    updates: int = 0,
    work: int = 0,
) -> str:
    """Resolves `auto` for the replica axis; measured in `benchmarks/replicas.py`.

    On CPU: `loop` for convolutions and for large dense networks, `unroll` for long
    runs of a few small dense ones, else `vmap`. On TPU `scan` for networks whose
    convolutions fill the chip, else `vmap`; on other backends `vmap`.

    Args:
        mapping: one of `auto`, `vmap`, `unroll`, `scan`, `loop`.
        convolutional: whether any network convolves.
        backend: default is the running one.
        slots: networks per device, replicas times members.
        parameters: of one network.
        updates: of the whole run.
        work: see `fills_chip`.

    Returns:
        `vmap`, `unroll`, `scan` or `loop`.

    Raises:
        ValueError: unknown name.
    """
    if mapping not in MAPPINGS:
        raise ValueError(
            f"mapping must be one of {', '.join(MAPPINGS)}; got {mapping!r}"
        )
    if mapping != "auto":
        return mapping
    backend = backend or jax.default_backend()
    if backend != "cpu":
        return "scan" if fills_chip(work, backend) else "vmap"
    if convolutional or parameters > _LARGE_NETWORK:
        return "loop"
    return "unroll" if slots <= _FEW_SLOTS and updates >= _LONG_RUN else "vmap"


def unstack(tree: PyTree, count: int) -> list[PyTree]:
    """Splits the leading axis into `count` trees.

    `jnp.split` rather than indexing: its transpose is one concatenate, where indexing
    transposes to a pad and an add per slot. Typed keys cannot be split; index them.
    """

    def parts(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return [leaf[i] for i in range(count)]
        return [jnp.squeeze(p, 0) for p in jnp.split(leaf, count)]

    leaves, treedef = jax.tree.flatten(tree)
    columns = [parts(leaf) for leaf in leaves]
    return [treedef.unflatten([c[i] for c in columns]) for i in range(count)]


def stack(trees: Sequence[PyTree]) -> PyTree:
    """Stacks equal trees along a new leading axis; the inverse of `unstack`."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def map_slots(
    function: Callable[..., PyTree],
    arguments: tuple[PyTree, ...],
    *,
    count: int,
    mapping: str,
) -> PyTree:
    """Maps `function` over the leading axis (`count`) of every leaf of `arguments`.

    A single slot is squeezed rather than batched: a batched convolution of one slot
    is slower than a plain one.
    """
    if mapping == "vmap" and count > 1:
        return jax.vmap(function)(*arguments)
    if mapping == "scan" and count > 1:
        return jax.lax.map(lambda slot: function(*slot), arguments)
    return stack(map_each(function, *(unstack(a, count) for a in arguments)))


def map_each(function: Callable[..., PyTree], *columns: list[PyTree]) -> list[PyTree]:
    """Calls `function` once per slot; `columns` are lists of unstacked trees."""
    return [function(*row) for row in zip(*columns, strict=True)]
