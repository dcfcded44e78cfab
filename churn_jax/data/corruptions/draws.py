"""Random numbers per image, the same whatever other images are drawn beside it."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

__all__ = ["Draws", "seed_of"]


def seed_of(key: str) -> int:
    """A seed of 128 bits that a text decides, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest())


class Draws:
    """One stream of random numbers per image, by its key."""

    # Raw PCG64 words, which NumPy keeps the same between versions.

    def __init__(self, keys: Sequence[str]):
        self._streams = [np.random.PCG64(seed_of(key)) for key in keys]

    def uniform(self, *shape: int) -> np.ndarray:
        """`[n, *shape]` float64 in the open interval (0, 1)."""
        count = math.prod(shape)
        words = np.stack([stream.random_raw(count) for stream in self._streams])
        numbers = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
        return numbers.reshape(-1, *shape)

    def normal(self, *shape: int) -> np.ndarray:
        """`[n, *shape]` float64, standard normal."""
        return special.ndtri(self.uniform(*shape))
