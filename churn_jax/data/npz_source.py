"""Data sets from one `.npz` file: images, tables or token ids."""

import pathlib
import zipfile
from collections.abc import Mapping

import numpy as np

from churn_compare.array_files import ArrayFileError, NpzArrays
from churn_jax.data.splits import DataError, Split, check_split, hold_out
from churn_jax.data.text import TextOptions, token_splits

_SPLITS = ("train", "validation", "test")
_TEST_FRACTION = 0.2
_LAYOUTS = (
    "train_image, train_label, test_image, test_label (optionally train_id, test_id "
    "and validation_*; plurals are fine), images, labels (optionally ids, split), or "
    "train_tokens, train_offsets, train_label, test_*"
)


def read_npz(
    path: str | pathlib.Path, text: TextOptions = TextOptions()
) -> tuple[dict[str, Split], int | None]:
    """The splits of a file and its `num_classes`, if it has one."""
    # Layouts: {train,test}_{image,label} with optional ids and validation; one pool
    # (without `split` the last fifth of the fixed order is the test); or token ids.
    path = pathlib.Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    if not zipfile.is_zipfile(path):
        raise DataError(
            f"{path} is not an .npz file, or it is truncated ({path.stat().st_size} "
            "bytes): write it anew with numpy.savez"
        )
    try:
        return read_arrays(str(path), NpzArrays(path), text)
    except (ArrayFileError, OSError) as error:
        raise DataError(f"{path} cannot be read as an .npz file: {error}") from error


def read_arrays(
    path: str, arrays: Mapping[str, np.ndarray], text: TextOptions
) -> tuple[dict[str, Split], int | None]:
    """`read_npz` of arrays by name; `path` is for messages."""
    # `train_images` and `train_image` are one key; so are `labels` and `label`.
    keys = {key.removesuffix("s"): key for key in arrays}

    def found(key: str) -> np.ndarray | None:
        return arrays[keys[key]] if key in keys else None

    num_classes = arrays.get("num_classes")
    if num_classes is not None:
        if num_classes.size != 1 or not np.issubdtype(num_classes.dtype, np.integer):
            raise DataError(
                f"{path}: num_classes must be one integer; got {num_classes.tolist()!r}"
            )
        num_classes = int(num_classes.item())
    if "train_token" in keys:
        try:
            return token_splits(arrays, text), num_classes
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
    if {"train_image", "train_label", "test_image", "test_label"} <= keys.keys():
        splits = {
            split: check_split(
                split,
                found(f"{split}_image"),
                found(f"{split}_label"),
                found(f"{split}_id"),
            )
            for split in _SPLITS
            if {f"{split}_image", f"{split}_label"} <= keys.keys()
        }
        return splits, num_classes
    if {"image", "label"} <= keys.keys():
        # Ids are given before the pool is cut, so they tell the row in the file.
        pool = check_split("pool", found("image"), found("label"), found("id"))
        return cut_pool(pool, found("split")), num_classes
    raise DataError(f"{path} must hold {_LAYOUTS}; found {', '.join(arrays) or 'none'}")


def cut_pool(pool: Split, names=None) -> dict[str, Split]:
    """A pool's splits: the `names [N]` of its examples, or a fifth is the test."""
    count = len(pool)
    if names is None:
        kept, held = hold_out(count, round(count * _TEST_FRACTION))
        parts = {"train": np.sort(kept), "test": held}
    else:
        names = np.asarray(names)
        if names.dtype.kind == "S":
            names = np.char.decode(names, "utf-8")
        if names.shape != (count,) or names.dtype.kind != "U":
            raise DataError(
                f"split must hold one string per example, ({count},); got shape "
                f"{names.shape} of {names.dtype}"
            )
        unknown = sorted(set(np.unique(names).tolist()) - set(_SPLITS))
        if unknown:
            raise DataError(
                f"split must be one of {', '.join(_SPLITS)}; got {unknown[0]!r}"
            )
        parts = {name: np.flatnonzero(names == name) for name in _SPLITS}
    for name in ("train", "test"):
        if not len(parts[name]):
            raise DataError(f"{name}: the split is empty ({count} examples in all)")
    return {name: pool.take(rows) for name, rows in parts.items() if len(rows)}
