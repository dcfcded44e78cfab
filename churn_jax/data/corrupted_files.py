"""Corrupted test sets that others made: folders like CIFAR-10-C, and TFDS sets.

A folder holds `<corruption>.npy`, uint8 `[5 n, H, W, C]` with the n test images at
severity 1, then at severity 2 and so on, and `labels.npy [5 n]`.
"""

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from churn_jax.data.splits import DataError, check_labels

__all__ = ["CorruptedFolder", "CorruptedTfds", "find_folder", "find_tfds"]

FOLDERS = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}
CLASSES = {"cifar10": 10, "cifar100": 100}
TFDS = {"cifar10": "cifar10_corrupted", "mnist": "mnist_corrupted"}

_SEVERITIES = (1, 2, 3, 4, 5)
# What TFDS calls two of the corruptions of CIFAR-10-C.
_TFDS_NAMES = {"glass_blur": "frosted_glass_blur", "elastic_transform": "elastic"}
# MNIST-C has kinds of its own, at one severity.
MNIST_CORRUPTIONS = (
    "shot_noise",
    "impulse_noise",
    "glass_blur",
    "motion_blur",
    "shear",
    "scale",
    "rotate",
    "brightness",
    "translate",
    "stripe",
    "fog",
    "spatter",
    "dotted_line",
    "zigzag",
    "canny_edges",
)


def find_folder(
    name: str, manual_dir: str | pathlib.Path | None
) -> pathlib.Path | None:
    """The folder of a set's corrupted images: `manual_dir`, one in it, or None."""
    if manual_dir is None:
        return None
    manual_dir = pathlib.Path(manual_dir)
    if not manual_dir.is_dir():
        raise DataError(f"the manual_dir {manual_dir} is not a folder")
    if (manual_dir / "labels.npy").is_file():
        if manual_dir.name in FOLDERS.values() and manual_dir.name != FOLDERS.get(name):
            raise DataError(f"{manual_dir} does not hold corrupted images of {name}")
        return manual_dir
    inside = manual_dir / FOLDERS.get(name, f"{name}-C")
    return inside if inside.is_dir() else None


@dataclass(frozen=True, eq=False)
class CorruptedFolder:
    """A folder of `.npy` files, memory-mapped."""

    folder: pathlib.Path
    labels: np.ndarray

    @classmethod
    def open(
        cls, name: str, folder: pathlib.Path, corruptions: Sequence[str]
    ) -> "CorruptedFolder":
        """Opens a folder once every file that will be read has been checked."""
        labels = _mapped(folder / "labels.npy")
        count, rest = divmod(len(labels) if labels.ndim == 1 else 1, 5)
        if rest or not count:
            raise DataError(
                f"{folder / 'labels.npy'} must be [5 n], the labels of five "
                f"severities; got shape {labels.shape}"
            )
        if not (labels.reshape(5, count) == labels[:count]).all():
            raise DataError(
                f"{folder / 'labels.npy'} must repeat the same labels for each of the "
                "five severities"
            )
        ours = check_labels(str(folder / "labels.npy"), np.array(labels[:count]))
        if ours.max() >= CLASSES.get(name, np.inf):
            raise DataError(
                f"{folder / 'labels.npy'} has label {ours.max()}, but {name} has "
                f"{CLASSES[name]} classes"
            )
        for corruption in corruptions:
            images = _mapped(folder / f"{corruption}.npy")
            good = images.ndim == 4 and len(images) == len(labels)
            if not good or images.dtype != np.uint8:
                raise DataError(
                    f"{folder / corruption}.npy must be uint8 [{len(labels)}, H, W, C] "
                    f"like labels.npy; got {images.dtype} {images.shape}"
                )
        return cls(folder, ours)

    def read(self, corruption: str, severity: int) -> tuple[np.ndarray, np.ndarray]:
        """Images, memory-mapped, and labels of one severity."""
        count = len(self.labels)
        images = _mapped(self.folder / f"{corruption}.npy")
        return images[(severity - 1) * count : severity * count], self.labels


def _mapped(path: pathlib.Path) -> np.ndarray:
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} is no whole .npy file ({path.stat().st_size} bytes): unpack the "
            "archive again"
        ) from error


@dataclass(frozen=True, eq=False)
class CorruptedTfds:
    """A prepared TFDS set with one configuration per corruption and severity."""

    name: str
    data_dir: str | pathlib.Path | None

    @property
    def has_own_kinds(self) -> bool:
        """Whether it is MNIST-C: fifteen kinds of its own, at one severity."""
        return self.name == TFDS["mnist"]

    @property
    def corruptions(self) -> tuple[str, ...]:
        """The kinds it has."""
        from churn_jax.data.corruptions import CORRUPTIONS

        return MNIST_CORRUPTIONS if self.has_own_kinds else CORRUPTIONS

    @property
    def severities(self) -> tuple[int, ...]:
        """The severities it has; a single one is called 1."""
        return (1,) if self.has_own_kinds else _SEVERITIES

    def config(self, corruption: str, severity: int) -> str:
        """The TFDS name of one corrupted set."""
        if self.has_own_kinds:
            return f"{self.name}/{corruption}"
        return f"{self.name}/{_TFDS_NAMES.get(corruption, corruption)}_{severity}"

    def check(self, corruptions: Sequence[str], severities: Sequence[int]) -> None:
        """Raises a `DataError` unless every set that will be read is prepared."""
        from churn_jax.data.tfds_source import prepared_builder

        for corruption in corruptions:
            for severity in severities:
                prepared_builder(self.config(corruption, severity), self.data_dir)

    def read(self, corruption: str, severity: int) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels of one set, read into memory."""
        from churn_jax.data.tfds_source import read_split

        found = read_split(
            self.config(corruption, severity), "test", data_dir=self.data_dir
        )
        return found.images, found.labels


def find_tfds(name: str, data_dir: str | pathlib.Path | None) -> CorruptedTfds | None:
    """The TFDS set of a set's corrupted images if some of it is prepared, or None."""
    if name not in TFDS:
        return None
    if data_dir is None:
        from churn_jax.data.tfds_source import tfds

        data_dir = tfds.core.constants.DATA_DIR
    # Only looked for: a builder of each of 75 sets would log that it is not there.
    folder = pathlib.Path(data_dir).expanduser() / TFDS[name]
    found = next(folder.glob("*/*/dataset_info.json"), None)
    return None if found is None else CorruptedTfds(TFDS[name], data_dir)
