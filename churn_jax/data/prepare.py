"""Preparing a set once, as array_record or as one file, behind `churn-jax data`."""

import importlib.util
import pathlib
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from churn_compare.array_files import replace_file
from churn_jax.data.sources import is_tfds, read_uncut
from churn_jax.data.splits import DataError, Split, first_line


@dataclass(frozen=True)
class Prepared:
    """A prepared set, as `prepare` reports it."""

    name: str  # what to pass to `load`, with the same `data_dir`
    directory: pathlib.Path  # folder of the set or of the file
    splits: dict[str, int]  # number of examples per split
    size_bytes: int  # size on disk
    seconds: float  # time taken; near zero if the set was there already

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {count:,}" for name, count in self.splits.items())
        return (
            f"{self.name}: {sizes} examples, {self.size_bytes / 1e6:.1f} MB in "
            f"{self.directory} ({self.seconds:.1f} s)"
        )


def prepare(
    name: str,
    *,
    data_dir: str | pathlib.Path | None = None,
    manual_dir: str | pathlib.Path | None = None,
) -> Prepared:
    """Downloads and converts a set, so that `load` reads it without TensorFlow.

    A set that is prepared already is left as it is. Official image sets need TensorFlow
    for this step alone (the `tfds` extra). `tiny_imagenet`, whose unpacked archive must
    be in `manual_dir`, does not.

    Args:
        name: a TFDS name, plain or with the prefix `tfds:`.
        data_dir: folder of prepared sets; None for the TFDS default.
        manual_dir: folder with the original files, found by name and checked against
            the set's checksums; files found there are not downloaded.

    Returns:
        A summary whose `str` is one line.

    Raises:
        DataError: the name is unknown, something is not installed, a file is missing or
            damaged, or the set is prepared in another format.
    """
    # Importing tensorflow-datasets takes time that `import churn_jax` need not pay.
    from churn_jax.data.tfds_source import make_builder, tfds

    start = time.monotonic()
    name = name.removeprefix("tfds:")
    if name == "digits":
        raise DataError("digits are in the package and need no preparation")
    if not is_tfds(name):
        raise DataError(
            f"{name} is not a TFDS set and needs no preparation: give it to a study as "
            "--data, or write its images to one file with --out FILE.npz"
        )
    if manual_dir is not None and not pathlib.Path(manual_dir).is_dir():
        raise DataError(f"the manual_dir {manual_dir} is not a folder")
    builder = make_builder(name, data_dir)
    if not builder.is_prepared():
        needs_tensorflow = any(
            isinstance(feature, tfds.features.Image)
            for feature in dict(builder.info.features).values()
        )
        if needs_tensorflow and importlib.util.find_spec("tensorflow") is None:
            raise DataError(
                f"preparing {name} needs TensorFlow, which reading it does not: "
                "pip install 'churn-jax[tfds]'"
            )
        manual = None if manual_dir is None else str(manual_dir)
        try:
            builder.download_and_prepare(
                file_format="array_record",
                download_config=tfds.download.DownloadConfig(manual_dir=manual),
            )
        except DataError:  # of a builder of ours: one sentence already
            raise
        except Exception as error:  # TFDS raises a type of its own for every cause
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise DataError(
                f"{name} could not be prepared ({reason}); "
                "original files already on disk can be given with manual_dir "
                "(--manual-dir)"
            ) from error
    found = builder.info.file_format.value
    if found != "array_record":
        raise DataError(
            f"{name} lies in {builder.data_dir} as {found}, not array_record: "
            "delete it or pass another data_dir"
        )
    directory = pathlib.Path(builder.data_dir)
    return Prepared(
        name=name,
        directory=directory,
        splits={key: info.num_examples for key, info in builder.info.splits.items()},
        size_bytes=sum(f.stat().st_size for f in directory.iterdir() if f.is_file()),
        seconds=time.monotonic() - start,
    )


def write_npz(
    name_or_path: str | pathlib.Path,
    out: str | pathlib.Path,
    *,
    shrink: int = 1,
    data_dir: str | pathlib.Path | None = None,
    manual_dir: str | pathlib.Path | None = None,
) -> Prepared:
    """Writes images of one size to one `.npz` file, perhaps smaller ones.

    The source's own splits, labels and ids stay as they are.

    Args:
        name_or_path: any source of images that `load` takes.
        out: the file, which `load` reads; its name ends in `.npz`.
        shrink: side in pixels of the squares that are averaged to one pixel; it divides
            both sides of the images. Averages of uint8 are rounded to uint8.
        data_dir: as for `load`.
        manual_dir: as for `load`.

    Returns:
        A summary whose `str` is one line.

    Raises:
        DataError: the source cannot be read, holds no images of one size, or has sides
            that `shrink` does not divide.
        OSError: the file could not be written.
    """
    start = time.monotonic()
    out = pathlib.Path(out)
    if out.suffix != ".npz":
        raise DataError(f"the file must be called something.npz; got {out}")
    uncut = read_uncut(name_or_path, data_dir, manual_dir)
    arrays: dict[str, Any] = {}
    names, train = np.asarray(uncut.class_names, str), uncut.splits["train"].labels
    # `load` numbers the sorted names of the training labels.
    named = names.size and np.array_equal(np.unique(names[train]), names)
    for name, split in uncut.splits.items():
        arrays[f"{name}_image"] = _shrunk(str(name_or_path), split, shrink)
        arrays[f"{name}_label"] = names[split.labels] if named else split.labels
        arrays[f"{name}_id"] = split.ids
    if uncut.num_classes is not None:
        arrays["num_classes"] = np.int64(uncut.num_classes)
    with replace_file(out) as file:
        np.savez_compressed(file, **arrays)
    return Prepared(
        name=str(out),
        directory=out.parent,
        splits={name: len(split) for name, split in uncut.splits.items()},
        size_bytes=out.stat().st_size,
        seconds=time.monotonic() - start,
    )


def _shrunk(name: str, split: Split, side: int) -> np.ndarray:
    """Images `[N, H, W, C]` as `[N, H / side, W / side, C]` averages."""
    images = split.images
    if images.ndim != 4:
        raise DataError(f"{name} holds no images, but arrays {images.shape}")
    count, height, width, channels = images.shape
    if side < 1 or height % side or width % side:
        raise DataError(
            f"shrink must divide the sides of the images, {height} x {width}; got "
            f"{side}"
        )
    squares = images.reshape(count, height // side, side, width // side, side, channels)
    means = squares.mean((2, 4), dtype=np.float32)
    return (np.rint(means) if images.dtype == np.uint8 else means).astype(images.dtype)
