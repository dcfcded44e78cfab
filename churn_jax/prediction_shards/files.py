"""The files of a shard: their names, their types, and how they are read."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from churn_jax.array_files import ArrayFileError, read_npy
from churn_jax.predictions import PredictionsError

__all__ = [
    "INDEX",
    "ORDER",
    "joined_ids",
    "read_array",
    "shard_path",
    "stored_dtype",
]

INDEX = "index.json"
ORDER = "order.npy"


def shard_path(folder: Path, part: str, shard: int, shards: int) -> Path:
    """Where a part of a shard is."""
    return folder / f"{part}-{shard:05d}-of-{shards:05d}.npy"


def stored_dtype(name: str) -> np.dtype:
    """The type of stored logits."""
    if name in ("float32", "float16"):
        return np.dtype(name)
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    raise PredictionsError(
        f"logits are stored as float32, float16 or bfloat16; got {name}"
    )


def joined_ids(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Ids of all shards, one after another; those of empty ones have no type."""
    parts = [part for part in parts if part.size] or list(parts[:1])
    ids = np.concatenate(parts)
    if ids.dtype.kind != "f":
        return ids
    # NumPy joins signed and unsigned integers as floating point, which rounds.
    least = min(int(part.min()) for part in parts)
    most = max(int(part.max()) for part in parts)
    for kind in (np.int64, np.uint64):
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return np.concatenate([part.astype(kind) for part in parts])
    raise PredictionsError(
        f"ids from {least} to {most} are there, which no integer of 64 bits holds"
    )


def read_array(path: Path, mapped: bool = False) -> np.ndarray:
    """The array of a `.npy` file, which must be whole; `mapped` reads it lazily."""
    try:
        array = read_npy(path)
    except ArrayFileError as error:
        raise PredictionsError(f"{path.name} is damaged ({error})") from error
    return array if mapped else np.array(array)
