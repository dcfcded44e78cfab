"""TinyImageNet from its unpacked archive: 200 classes of 64x64 colour images.

The archive has labels for its training and its validation images only. As in the paper,
the validation images are the test split here, and of each class the last 50 of the 500
training images are validated on.
"""

import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow_datasets as tfds

from churn_jax.data.splits import DataError

NUM_CLASSES = 200
SIDE = 64
HELD_PER_CLASS = 50
FOLDER = "tiny-imagenet-200"


class ImageFile(NamedTuple):
    """The file of an image and its label."""

    path: pathlib.Path
    label: int  # place of its class in wnids.txt


class TinyImagenet(tfds.core.GeneratorBasedBuilder):
    """TinyImageNet as a TFDS builder, `tiny_imagenet`, over a folder of the user's."""

    # Pixels are stored as a tensor, so it is prepared and read without TensorFlow.

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "Train 450 and validation 50 a class; test = val."}  # noqa: RUF012
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        f"the manual_dir must hold the folder {FOLDER} of the unpacked archive"
    )

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="200 classes of ImageNet at 64x64 pixels.",
            features=tfds.features.FeaturesDict(
                {
                    # As numbers, not bytes, preparing takes five times as long.
                    "image": tfds.features.Tensor(
                        shape=(SIDE, SIDE, 3), dtype=np.uint8, encoding="bytes"
                    ),
                    "label": tfds.features.ClassLabel(num_classes=NUM_CLASSES),
                    "id": tfds.features.Text(),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="http://cs231n.stanford.edu/",
            citation="Y. Le and X. Yang. Tiny ImageNet Visual Recognition Challenge. "
            "Stanford CS 231N, 2015.",
            disable_shuffling=True,  # by class, then by number
        )

    def _split_generators(self, dl_manager):
        files = tiny_imagenet_files(pathlib.Path(dl_manager.manual_dir))
        return {name: self._generate_examples(part) for name, part in files.items()}

    def _generate_examples(self, files: list[ImageFile]) -> Iterator[tuple[int, dict]]:
        for i, file in enumerate(files):
            record = {"image": read_image(file.path), "label": file.label}
            yield i, record | {"id": file.path.stem}


def tiny_imagenet_files(folder: pathlib.Path) -> dict[str, list[ImageFile]]:
    """The files of every split in a fixed order, labels as in `wnids.txt`."""
    # A class's training images follow the numbers in their names.
    if not (folder / "wnids.txt").is_file():
        folder = folder / FOLDER
    wnids = _lines(folder / "wnids.txt")
    places = {wnid: i for i, wnid in enumerate(wnids)}
    if len(places) < len(wnids) or not 0 < len(wnids) <= NUM_CLASSES:
        raise DataError(
            f"{folder / 'wnids.txt'} must name at most {NUM_CLASSES} classes, each "
            f"once; it has {len(wnids)} lines"
        )
    train, validation, counts = [], [], {}
    for wnid, label in places.items():
        files = _numbered(folder / "train" / wnid / "images")
        counts[wnid] = len(files)
        train += [ImageFile(path, label) for path in files[:-HELD_PER_CLASS]]
        validation += [ImageFile(path, label) for path in files[-HELD_PER_CLASS:]]
    fewest, most = min(counts, key=counts.__getitem__), max(counts.values())
    if counts[fewest] < most:
        raise DataError(
            f"{folder / 'train' / fewest} has {counts[fewest]} images, other classes "
            f"have {most}: unpack the archive again"
        )
    if most <= HELD_PER_CLASS:
        raise DataError(
            f"{folder / 'train'} has {most} images a class, of which "
            f"{HELD_PER_CLASS} are for validation: none is left to train on"
        )
    return {"train": train, "validation": validation, "test": _test(folder, places)}


def _test(folder: pathlib.Path, places: dict[str, int]) -> list[ImageFile]:
    labels = {}
    for line in _lines(folder / "val" / "val_annotations.txt"):
        name, wnid, *_ = [*line.split("\t"), ""]
        if wnid not in places:
            raise DataError(
                f"{folder / 'val' / 'val_annotations.txt'}: {wnid!r} is not among the "
                f"classes of {folder / 'wnids.txt'}"
            )
        labels[name] = places[wnid]
    paths = _numbered(folder / "val" / "images")
    found = {path.name for path in paths}
    if found != labels.keys():
        example = min(found ^ labels.keys())
        raise DataError(
            f"{folder / 'val'}: val_annotations.txt must have one line for every "
            f"image; {example} is only one of the two"
        )
    return [ImageFile(path, labels[path.name]) for path in paths]


def _lines(path: pathlib.Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}): the folder of the "
            f"unpacked TinyImageNet archive, {FOLDER}, must be there"
        ) from error
    return [line for line in text.splitlines() if line.strip()]


def _numbered(folder: pathlib.Path) -> list[pathlib.Path]:
    """The JPEG files of a folder, by the number at the end of their names."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}: unpack the archive again")
    numbers = {}
    for path in folder.iterdir():
        if path.suffix.lower() not in (".jpeg", ".jpg"):
            continue
        match = re.search(r"_(\d+)$", path.stem)
        if match is None:
            raise DataError(f"{path} has no number at the end of its name")
        numbers[path] = int(match[1])
    return sorted(numbers, key=numbers.__getitem__)


def read_image(path: pathlib.Path) -> np.ndarray:
    """`[64, 64, 3]` uint8; the few grey images become RGB."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path} is not a whole image ({type(error).__name__}): unpack the archive "
            "again"
        ) from error
    if pixels.shape != (SIDE, SIDE, 3):
        height, width = pixels.shape[:2]
        raise DataError(
            f"{path} must have {SIDE} x {SIDE} pixels; got {width} x {height}"
        )
    return pixels
