"""Words to rows of embedding tables, and rows held out, the same on every machine.

Python's own `hash` of text differs from process to process; these do not.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from churn_jax.data.tables.schema import Categorical

__all__ = ["WordRows", "mix", "share_of", "stable_hash"]

_CACHED = 2**15  # words per field: some 4 MB


def stable_hash(field: str, word: str) -> int:
    """64 bits of BLAKE2b of a field's name and a word."""
    # With the field's name, so that two fields do not collide alike.
    text = f"{field}\0{word}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def mix(numbers: np.ndarray) -> np.ndarray:
    """`[N]` integers to random-looking uint64, one to one (SplitMix64's finalizer)."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def share_of(hashes: np.ndarray, share: float) -> np.ndarray:
    """Which of uniform 64-bit hashes `[N]` fall into the lowest `share`: bool `[N]`."""
    return hashes < np.uint64(min(int(share * 2.0**64), 2**64 - 1))


class WordRows:
    """Rows of one categorical field's table, of words as they come."""

    # Only the hashes of the words seen last are kept, so memory does not grow with the
    # stream.

    def __init__(self, field: Categorical, missing: Sequence[str]):
        self._field, self._missing = field, frozenset(missing)
        self._known: dict[str | None, int] = {}
        self._vocabulary = {w: i + 1 for i, w in enumerate(field.vocabulary)}

    def rows(self, words: Sequence[str | None]) -> np.ndarray:
        """`[N]` int32, the row of every word; a missing word has its own, or row 0."""
        known = self._known
        found = [known.get(word, -1) for word in words]
        for i, row in enumerate(found):
            if row < 0:
                if len(known) >= _CACHED:
                    known.clear()
                found[i] = known[words[i]] = self._row(words[i])
        return np.array(found, np.int32)

    def _row(self, word: str | None) -> int:
        if word is None or (bare := word.strip()) in self._missing:
            return 0 if self._vocabulary else self._hashed("")
        if self._vocabulary:
            return self._vocabulary.get(bare, 0)
        return self._hashed(bare)

    def _hashed(self, word: str) -> int:
        return stable_hash(self._field.name, word) % self._field.buckets
