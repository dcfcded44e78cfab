"""How the slots (replicas, members) that live on one device are computed.

The only file that loops over slots. `vmap` batches them; `unroll` writes them one
after another into one program; `scan` (forward passes only) writes one and repeats it;
`loop` (replicas only) compiles one replica and dispatches it once per replica. Which is
fastest was measured: `benchmarks/replicas.py`; on TPUs compiled, `churn-jax plan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from churn_jax.lazy import jax, jnp
from churn_jax.setting_checks import check_choice

if TYPE_CHECKING:
    from jaxtyping import PyTree


MAPPINGS = ("auto", "vmap", "unroll", "loop")


# On CPU, dense networks: above this many numbers the weights of all slots leave the
# caches, and one replica after another is fastest.
_LARGE_NETWORK = 200_000
# Unrolling compiles every slot; it pays back in long runs of few slots only.
FEW_SLOTS = 16
LONG_RUN = 5_000
# More, up to so many, are fastest one after another: of the digits' MLP 1.2 times as
# fast as by vmap with 32 and 1.4 times with 64 replicas; more were not measured.
_MANY_SLOTS = 64
# On TPU: what the convolutions of all vmapped networks yield, kept for the backward
# pass, should stay in the chip's fast memory, 128 MiB of a v5e. Two of ResNet-8, batch
# 128 (72 MiB), take 0.86 of two alone, four 1.34; two of ResNet-32 (148 MiB each) 1.06,
# four 1.34.
_FAST_BYTES = 128 * 2**20
_CONVOLUTION = "conv_general_dilated"
LANES = 128  # a TPU pads a batch to so many examples


def vmapped_at_once(count: int, activations: int, backend: str | None = None) -> int:
    """How many networks are best vmapped at a time: a divisor of their number.

    By the TPU compiler's estimates (`churn-jax plan`) from `activations`,
    one network's `convolved_bytes`; all on other backends and without convolutions.
    """
    if (backend or jax.default_backend()) != "tpu" or not activations:
        return count
    fit = max(1, _FAST_BYTES // activations)
    return max(n for n in range(1, count + 1) if count % n == 0 and n <= fit)


def choose(
    mapping: str,
    *,
    convolutional: bool,
    backend: str | None = None,
    slots: int = 1,
    parameters: int = 0,
    updates: int = 0,
    split: bool = False,
) -> str:
    """Resolves `auto` for the replica axis.

    Measured by `benchmarks/replicas.py`. On CPU: `loop` for convolutions, for large
    dense networks and for 17 to 64 small ones, `unroll` for long runs of fewer, else
    `vmap`. On GPU `loop` for convolutions, which is not measured yet: `vmap` makes them
    grouped ones, and ten CNNs took 4.92 ms so and 1.71 ms one after another (jax issue
    26568). Elsewhere `vmap`, or `loop` over some vmapped replicas at a time (`split`,
    see `vmapped_at_once`).
    """
    check_choice("mapping", mapping, MAPPINGS)
    if mapping != "auto":
        return mapping
    backend = backend or jax.default_backend()
    if backend != "cpu":
        return "loop" if split or (convolutional and backend == "gpu") else "vmap"
    many = FEW_SLOTS < slots <= _MANY_SLOTS
    if convolutional or parameters > _LARGE_NETWORK or many:
        return "loop"
    return "unroll" if slots <= FEW_SLOTS and updates >= LONG_RUN else "vmap"


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


def convolved_bytes(
    function: Callable[..., Any], *arguments: Any, lanes: int = 1
) -> int:
    """Bytes of the results of all convolutions in a call, which a backward pass needs.

    Nothing is compiled. The body of a loop counts once, and every batch as padded to a
    multiple of `lanes` examples.
    """
    program = jax.make_jaxpr(function)(*arguments)
    found = equations(program.jaxpr, _CONVOLUTION)
    return sum(_result_bytes(equation, lanes) for equation in found)


def convolved_rows(program: Any) -> list[int]:
    """Length of the batch axis in every convolution, from a `jax.core.Jaxpr`."""
    return [
        equation.invars[0].aval.shape[equation.params["dimension_numbers"].lhs_spec[0]]
        for equation in equations(program, _CONVOLUTION)
    ]


def convolved_otherwise(program: Any) -> bool:
    """True if a `jax.core.Jaxpr` convolves without derivatives of its own."""
    return any(equations(program, _CONVOLUTION, outside="custom_jvp_call"))


def equations(program: Any, *primitives: str, outside: str = "") -> Iterator[Any]:
    """Equations of a `jax.core.Jaxpr` by primitive, nested programs included.

    Those nested in equations of the primitive `outside` are left out.
    """
    for equation in program.eqns:
        if equation.primitive.name in primitives:
            yield equation
        if equation.primitive.name == outside:
            continue
        for given in equation.params.values():
            for part in given if isinstance(given, tuple | list) else (given,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from equations(inner, *primitives, outside=outside)


def _result_bytes(equation: Any, lanes: int) -> int:
    result = equation.outvars[0].aval
    rows = result.shape[equation.params["dimension_numbers"].out_spec[0]]
    padded = math.prod(result.shape) // rows * -(-rows // lanes) * lanes
    return padded * result.dtype.itemsize
