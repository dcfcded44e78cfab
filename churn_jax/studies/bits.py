"""Weights bit by bit: fingerprints of all, and a change of the least one."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from churn_jax.typing import PyTree

__all__ = ["checksum", "digest", "flip_last_bit"]


def digest(tree: PyTree) -> str:
    """sha256 over the bytes of every leaf, as 64 hexadecimal digits."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(tree)):
        total.update(np.ascontiguousarray(leaf).tobytes())
    return total.hexdigest()


@jax.jit
def checksum(tree: PyTree) -> jax.Array:
    """A uint32 over the bits of all float32 leaves, computed where they lie.

    `sum_i (2i + 1) bits_i mod 2^32`: an integer sum, so its order cannot matter, and
    with odd factors, so a change of one weight always changes it. Changes of several
    weights go unseen once in four thousand million times.
    """
    total, start = jnp.uint32(0), 0
    for leaf in jax.tree.leaves(tree):
        bits = jax.lax.bitcast_convert_type(leaf.astype(jnp.float32), jnp.uint32)
        place_of = start + jax.lax.iota(jnp.uint32, leaf.size)
        total += jnp.sum((2 * place_of + 1) * bits.reshape(-1), dtype=jnp.uint32)
        start += leaf.size
    return total


def flip_last_bit(tree: PyTree, seed: int) -> PyTree:
    """Host arrays like `tree` with the last bit of one non-zero weight flipped.

    A change of one unit in the last place, about 1e-7 of that weight: what another
    order of summation does to a number on its way. Zeros (biases before training) are
    left out, since their neighbours are denormal and rounded away.

    Args:
        tree: float32 leaves.
        seed: draws the weight, each non-zero one equally likely.

    Raises:
        ValueError: all weights are zero.
    """
    leaves, treedef = jax.tree.flatten(jax.device_get(tree))
    candidates = [np.flatnonzero(leaf) for leaf in leaves]
    total = sum(map(len, candidates))
    if total == 0:
        raise ValueError("no weight differs from zero, so none can be perturbed")
    chosen = int(np.random.default_rng(seed).integers(total))
    for i, places in enumerate(candidates):
        if chosen < len(places):
            bits = np.array(leaves[i], np.float32)  # a copy
            bits.reshape(-1).view(np.uint32)[places[chosen]] ^= 1
            leaves[i] = bits
            break
        chosen -= len(places)
    return treedef.unflatten(leaves)
