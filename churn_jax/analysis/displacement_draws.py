"""Ensembles drawn from networks of one kind: which members, and what they average to.

An ensemble of `m` members is a row of weights, `1 / m` for its members and 0 for the
other networks, so all ensembles of all images are one product of matrices. NumPy,
float64.
"""

from collections.abc import Iterator

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["blocks_of", "drawn_weights", "generator", "networks_of", "two_sides"]

_BLOCK = 2**23  # numbers that are averaged at a time


def generator(key: jax.Array) -> np.random.Generator:
    """NumPy's generator of a typed JAX key."""
    typed = hasattr(key, "dtype") and jax.dtypes.issubdtype(
        key.dtype, jax.dtypes.prng_key
    )
    if not typed or key.shape:
        raise TypeError(f"key must be one key of jax.random.key; got {key!r}")
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def networks_of(outputs: ArrayLike, name: str) -> NDArray[np.float64]:
    """`[R, ..., C]` as float64, refused if there is no network or class."""
    outputs = np.asarray(outputs)
    if outputs.dtype.kind not in "fiu" and outputs.dtype.name != "bfloat16":
        raise TypeError(f"{name} must be real numbers; got {outputs.dtype}")
    if outputs.ndim < 2 or 0 in outputs.shape:
        raise ValueError(f"{name} must be [R, ..., C]; got shape {outputs.shape}")
    return outputs.astype(np.float64)


def two_sides(
    a: ArrayLike, b: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The networks of old and of new ensembles; halves of `a` if `b` is None."""
    first = networks_of(a, "a")
    if b is None:
        if len(first) < 2:
            raise ValueError("a must hold at least 2 networks to be split; got 1")
        half = len(first) // 2
        return first[:half], first[half:]
    second = networks_of(b, "b")
    if first.shape[1:] != second.shape[1:]:
        raise ValueError(
            "a [R1, ..., C] and b [R2, ..., C] may differ in the number of networks "
            f"only; got {first.shape} and {second.shape}"
        )
    return first, second


def drawn_weights(
    networks: int, size: int, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """`[draws, networks]`: each row `1 / size` at members drawn without replacement."""
    if draws < 1:
        raise ValueError(f"draws must be at least 1; got {draws}")
    if not 1 <= size <= networks:
        raise ValueError(
            f"size must be at least 1 and at most the {networks} networks that "
            f"members are drawn from; got {size}"
        )
    order = np.argsort(rng.random((draws, networks)), axis=1)
    weights = np.zeros((draws, networks))
    np.put_along_axis(weights, order[:, :size], 1.0 / size, axis=1)
    return weights


def blocks_of(count: int, numbers_each: int) -> Iterator[slice]:
    """Slices of `count` things, each slice small enough to be averaged at a time."""
    step = max(1, _BLOCK // max(1, numbers_each))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
