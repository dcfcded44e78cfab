"""A folder of shards: its files, the index that closes it, and reading it."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.array_files import ArrayFileError, read_npy, replace_file, write_file
from churn_compare.checksums import file_crc32
from churn_compare.example_ids import (
    as_ids,
    as_labels,
    errors_of,
    repeated,
    rows_of,
    some,
)
from churn_compare.prediction_shards.rows import ShardedRows
from churn_compare.predictions import PredictionsError

__all__ = [
    "INDEX",
    "ORDER",
    "ShardedPredictions",
    "joined_ids",
    "read_array",
    "read_order",
    "read_shards",
    "shard_path",
    "stored_dtype",
    "write_index",
    "write_order",
]

INDEX = "index.json"
"""Name of the file that describes the shards of a folder."""
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


_FORMAT = "churn_jax prediction shards"
_VERSION = 1


@dataclasses.dataclass(frozen=True, eq=False)
class ShardedPredictions:
    """Logits of `R` runs on `N` examples, in files that are read when they are used.

    Attributes:
        ids: `[N]` unique integers or strings, shard after shard.
        labels: `[N]` int64 class ids.
        values: `[R, N, C]` logits over memory-mapped files; not checked.
        meta: facts about where they come from, as in `Predictions`.
    """

    ids: np.ndarray
    labels: np.ndarray
    values: ShardedRows
    meta: dict[str, Any]


def write_index(
    folder: str | os.PathLike, shards: int, meta: Mapping[str, Any] | None = None
) -> Path:
    """Marks the shards as complete; one process does it after all closed theirs.

    Args:
        folder: of the shards.
        shards: how many there are.
        meta: JSON-ready facts, as in `Predictions`.

    Returns:
        The path of the index.

    Raises:
        PredictionsError: a shard is missing, damaged or does not fit the others, an id
            is there twice, or `meta` is not JSON-ready.
    """
    folder = Path(folder)
    try:
        _, _, values = _read_all(folder, shards)
        index = {
            "format": _FORMAT,
            "version": _VERSION,
            "shards": shards,
            "runs": values.shape[0],
            "examples": values.shape[1],
            "classes": values.shape[2],
            "dtype": values.dtype.name,
            "checksums": _checksums(folder, shards),
            "meta": dict(meta or {}),
        }
        text = json.dumps(index, indent=1)
    except PredictionsError as error:
        raise PredictionsError(f"{folder}: {error}") from error
    except (TypeError, ValueError) as error:
        raise PredictionsError(f"{folder}: meta must be JSON-ready; {error}") from error
    return write_file(folder / INDEX, text)


def write_order(folder: str | os.PathLike, shards: int, ids: Any) -> Path:
    """Keeps the order that examples had before processes shared them.

    Called before `write_index`. Several folders of one split are compared row by row
    with it; predictions that are joined by id do not need it.

    Args:
        folder: of the shards, all closed.
        shards: how many there are.
        ids: `[N]` of all examples in that order.

    Returns:
        The path of `order.npy`, `[N]`: where each of `ids` is, shard after shard.

    Raises:
        PredictionsError: the shards are of other examples.
    """
    folder, ids = Path(folder), as_ids(ids)
    paths = [shard_path(folder, "ids", shard, shards) for shard in range(shards)]
    there = joined_ids([as_ids(read_array(path)) for path in paths])
    order = rows_of(ids, there)
    if len(there) == len(ids) and not np.any(order < 0):
        with replace_file(folder / ORDER) as file:
            np.save(file, order, allow_pickle=False)
        return folder / ORDER
    raise PredictionsError(
        f"{folder}: the shards have {len(there)} examples, which are not the "
        f"{len(ids)} that were shared"
    )


def read_order(folder: str | os.PathLike, examples: int) -> np.ndarray | None:
    """`[N]` integers that `write_order` has kept; None where order was kept."""
    path = Path(folder) / ORDER
    if not path.is_file():
        return None
    with errors_of(folder):
        order = read_array(path)
    if order.dtype.kind in "iu" and np.array_equal(np.sort(order), np.arange(examples)):
        return order
    raise PredictionsError(f"{folder}: {ORDER} is no order of {examples} examples")


def read_shards(folder: str | os.PathLike) -> ShardedPredictions:
    """Opens a folder of shards; logits are read when they are used.

    Args:
        folder: that `write_index` has finished.

    Returns:
        `ShardedPredictions`.

    Raises:
        PredictionsError: the index is missing or of something else, or a shard is
            missing, truncated, of another shape, has ids of another or a CRC-32 that
            is not the one in the index; begins with the folder.
    """
    folder = Path(folder)
    with errors_of(folder):
        index = _read_index(folder / INDEX)
        ids, labels, values = _read_all(folder, index["shards"])
        _check_agrees(index, values)
        found = _checksums(folder, index["shards"])
        for name in sorted({*found, *index["checksums"]}):
            if found.get(name) != index["checksums"].get(name):
                raise PredictionsError(
                    f"{name} is damaged or of another writing: its CRC-32 is not the "
                    f"one in {INDEX}"
                )
    return ShardedPredictions(ids, labels, values, index["meta"])


def _read_index(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise PredictionsError(
            f"there is no {INDEX}, so these predictions are not there or not finished"
        )
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PredictionsError(f"{INDEX} is damaged ({error})") from error
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise PredictionsError(f"{INDEX} is not one of prediction shards")
    if index.get("version") != _VERSION:
        raise PredictionsError(
            f"{INDEX} has version {index.get('version')!r}; this release reads version "
            f"{_VERSION}"
        )
    wanted = {"shards": int, "runs": int, "examples": int, "classes": int}
    wanted |= {"dtype": str, "checksums": dict, "meta": dict}
    for name, kind in wanted.items():
        if not isinstance(index.get(name), kind):
            raise PredictionsError(
                f"{name} in {INDEX} must be {kind.__name__}; got {index.get(name)!r}"
            )
    return index


def _checksums(folder: Path, shards: int) -> dict[str, int]:
    """CRC-32 of each file by its name."""
    parts = ("ids", "labels", "logits")
    paths = [shard_path(folder, p, i, shards) for i in range(shards) for p in parts]
    paths += [folder / ORDER] if (folder / ORDER).is_file() else []
    return {path.name: file_crc32(path) for path in paths}


def _read_all(folder: Path, shards: int) -> tuple[np.ndarray, np.ndarray, ShardedRows]:
    """Ids, labels and logits of all shards, checked against each other."""
    if shards < 1:
        raise PredictionsError(f"there must be one shard at least; got {shards}")
    ids, labels, logits = [], [], []
    for shard in range(shards):
        with errors_of(f"shard {shard} of {shards}"):
            paths = {
                part: shard_path(folder, part, shard, shards)
                for part in ("ids", "labels", "logits")
            }
            if missing := [p.name for p in paths.values() if not p.is_file()]:
                raise PredictionsError(f"is missing ({', '.join(missing)})")
            ids.append(as_ids(read_array(paths["ids"])))
            labels.append(as_labels(read_array(paths["labels"])))
            logits.append(read_array(paths["logits"], mapped=True))
            _check_shard(ids, labels, logits)
    return _unique_ids(ids), np.concatenate(labels), ShardedRows(logits)


def _check_shard(ids: list, labels: list, logits: list) -> None:
    """Refuses a last shard that is inconsistent or does not fit the first."""
    last, first = logits[-1], logits[0]
    if last.ndim != 3 or last.dtype.name not in ("float32", "float16", "bfloat16"):
        raise PredictionsError(
            "logits must be [R, n, C] float32, float16 or bfloat16; got "
            f"{last.dtype} of shape {last.shape}"
        )
    if not len(ids[-1]) == len(labels[-1]) == last.shape[1]:
        raise PredictionsError(
            f"it has {len(ids[-1])} ids, {len(labels[-1])} labels and logits of "
            f"{last.shape[1]} examples"
        )
    for what, here, there in (
        ("runs", last.shape[0], first.shape[0]),
        ("classes", last.shape[2], first.shape[2]),
        ("logits in", last.dtype.name, first.dtype.name),
    ):
        if here != there:
            raise PredictionsError(f"{what} {here}, but {what} {there} in shard 0")
    number = next((i for i, part in enumerate(ids) if part.size), len(ids) - 1)
    kind, other = ids[-1].dtype, ids[number].dtype
    if ids[-1].size and (kind.kind == "U") != (other.kind == "U"):
        raise PredictionsError(f"ids are {kind}, but {other} in shard {number}")


def _unique_ids(parts: list[np.ndarray]) -> np.ndarray:
    ids = joined_ids(parts)
    if (twice := repeated(ids)).size:
        shards = [i for i, part in enumerate(parts) if twice[0] in part]
        where = " and ".join(map(str, shards))
        raise PredictionsError(
            f"{twice.size} ids occur more than once, for example {some(twice)}; the "
            f"first of them in shard {where}"
        )
    return ids


def _check_agrees(index: dict[str, Any], values: ShardedRows) -> None:
    runs, examples, classes = values.shape
    found = {"runs": runs, "examples": examples, "classes": classes}
    for name, value in {**found, "dtype": values.dtype.name}.items():
        if index[name] != value:
            raise PredictionsError(
                f"{INDEX} says {name} {index[name]}, the shards have {value}; they are "
                "of two writings"
            )
