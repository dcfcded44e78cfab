"""Randomness as an experimental factor: what differs between replicas, and what not."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from churn_jax.configuration.training import NETWORK, SAMPLES, Seeds
from churn_jax.setting_checks import check_choice

# P[k <= 0], P[k <= 1], ... of a Poisson count of mean 1. A float32 uniform is a
# multiple of 2^-23, about as much as P[k > 9] = 1.1e-7: there is no longer a table.
_POISSON = np.cumsum([math.exp(-1.0) / math.factorial(k) for k in range(10)])


def draw_sample(keys: jax.Array, num_examples: int, kind: str) -> jax.Array:
    """Each replica's training set as indices `[R, N]`; `kind` is one of `SAMPLES`."""
    check_choice("sample", kind, SAMPLES)
    if kind == "all":
        everything = jnp.arange(num_examples, dtype=jnp.int32)
        return jnp.broadcast_to(everything, (keys.shape[0], num_examples))
    return jax.vmap(
        lambda key: jax.random.randint(key, (num_examples,), 0, num_examples, jnp.int32)
    )(keys)


def member_keys(seeds: Seeds, numbers: ArrayLike, members: int) -> jax.Array:
    """Keys `[R, M]` of the samples that the members of each seed number have."""
    slots = np.asarray(numbers)[:, None] // NETWORK * members + np.arange(members)
    fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)))
    return fold(seeds.keys("sample", numbers), slots)


def member_weights(
    kind: str, keys: jax.Array, examples: jax.Array, share: float = 1.0
) -> jax.Array | None:
    """`Batch.member_weights [M, B]` for a method's `member_sample`; None is all equal.

    `keys [M]` are those of one replica (`member_keys`), `examples [B]` are positions
    in the training set. A pure function of a member's key and an example: the same in
    every epoch, on every mesh and whatever else is in the batch.

    Of a `bootstrap` it is how often each member's own holds the examples, 0 to 10:
    independent Poisson(1) counts, by inverting the distribution function at one uniform
    number. An example is in a member's `subset` with probability `share`, in (0, 1],
    independently of other examples and members, and then weighs `1 / share`: 1 on
    average (Section 2 of the anti-distillation paper).
    """
    if kind == "split":
        # Of the rows of one device, as the network splits them.
        members = keys.shape[0]
        part = jnp.arange(examples.shape[0]) * members // examples.shape[0]
        own = part[None] == jnp.arange(members)[:, None]
        return jnp.where(own, jnp.float32(members), jnp.float32(0.0))
    if kind not in ("bootstrap", "subset"):
        return None
    fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
    uniform = jax.vmap(jax.vmap(jax.random.uniform))(fold(keys, examples))
    if kind == "subset":
        return jnp.where(uniform < share, jnp.float32(1.0 / share), jnp.float32(0.0))
    held = uniform[..., None] >= jnp.asarray(_POISSON, jnp.float32).reshape(1, 1, -1)
    return jnp.sum(held, axis=-1).astype(jnp.float32)


def epoch_order(keys: jax.Array, sample: jax.Array, epoch: jax.Array) -> jax.Array:
    """Data order of one epoch, `[R, N]` indices; a pure function of (seed, epoch)."""

    def one(key, indices):
        key = jax.random.fold_in(key, epoch)
        return indices[jax.random.permutation(key, indices.shape[0])]

    return jax.vmap(one)(keys, sample)
