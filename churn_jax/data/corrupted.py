"""`corrupted_sets`: the test images of a set under every corruption and severity.

A published set is used if it is found; otherwise our own test images are corrupted.
`CorruptedSets.source` says which, since figures of the two cannot be compared.

A published folder, such as CIFAR-10-C, holds `<corruption>.npy`, uint8 `[5 n, H, W, C]`
with the n test images at severity 1, then at severity 2 and so on, and `labels.npy`.
"""

import pathlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from churn_jax.data.loading import load
from churn_jax.data.splits import DataError, Split, check_labels

FOLDERS = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}
CLASSES = {"cifar10": 10, "cifar100": 100}
TFDS = {"cifar10": "cifar10_corrupted", "mnist": "mnist_corrupted"}

SOURCES = ("folder", "tfds", "library", "own")
SEVERITIES = (1, 2, 3, 4, 5)
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
        return (1,) if self.has_own_kinds else SEVERITIES

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


class CorruptedSet(NamedTuple):
    """Test images under one corruption.

    Attributes:
        corruption: its kind, such as `fog`.
        severity: 1 (weakest) to 5.
        images: `[N, H, W, C]` uint8, perhaps memory-mapped.
        labels: `[N]` int32.
    """

    corruption: str
    severity: int
    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class CorruptedSets:
    """All corrupted sets of one data set; iterating reads or makes one at a time.

    Attributes:
        source: where the images come from, in words for a report.
        corruptions: the kinds, in the order they come.
        severities: of each kind.
        read: `(corruption, severity)` to images and labels.
        limit: how many examples of each set to give; None for all.
    """

    source: str
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    read: Callable[[str, int], tuple[np.ndarray, np.ndarray]]
    limit: int | None = None

    def __len__(self) -> int:
        return len(self.corruptions) * len(self.severities)

    def __iter__(self) -> Iterator[CorruptedSet]:
        for corruption in self.corruptions:
            for severity in self.severities:
                images, labels = self.read(corruption, severity)
                yield CorruptedSet(
                    corruption, severity, images[: self.limit], labels[: self.limit]
                )


def corrupted_sets(
    name: str,
    *,
    data_dir: str | pathlib.Path | None = None,
    manual_dir: str | pathlib.Path | None = None,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] | None = None,
    source: str | None = None,
    test: Split | None = None,
    limit: int | None = None,
    cache_dir: str | pathlib.Path | None = None,
) -> CorruptedSets:
    """The test images of a set under fifteen corruptions at five severities.

    The first of these sources that is found is used:

    * `folder`: `manual_dir` holds `CIFAR-10-C` or `CIFAR-100-C` (for another set,
      `<name>-C`), unpacked, or is that folder;
    * `tfds`: `cifar10_corrupted` or `mnist_corrupted` is prepared in `data_dir`. The
      latter has fifteen kinds of its own, at one severity, which is called 1;
    * `library`: images of at least 32 pixels a side are corrupted by
      `imagecorruptions-imaug`, which comes with the extra `corruptions`;
    * `own`: smaller images are corrupted by `churn_jax.data.corruptions`.

    Args:
        name: as for `load`.
        data_dir: where TFDS sets are prepared; None for the TFDS default.
        manual_dir: folder with original files.
        corruptions: which kinds; None for all fifteen of the source.
        severities: which of 1 to 5; None for all of the source.
        source: `folder`, `tfds`, `library` or `own` to take that one and no other.
        test: the clean test images, if they are loaded already; None loads them.
        limit: number of examples of every set, the first ones; None for all.
        cache_dir: where images that were made are kept, to be read next time. A full
            test set of 32-pixel colour images takes 2.3 GB.

    Returns:
        The sets. Nothing is read or made before they are iterated over, but that every
        file is there is checked.

    Raises:
        DataError: the requested source is missing, incomplete or damaged, or there is
            no such corruption or severity.

    Example:
        >>> sets = corrupted_sets("digits", corruptions=["fog"], severities=[1, 5])
        >>> sets.source
        'churn_jax corruptions 1 on the test images of digits'
        >>> [(s.corruption, s.severity, s.images.shape) for s in sets]
        [('fog', 1, (897, 8, 8, 1)), ('fog', 5, (897, 8, 8, 1))]

    References:
        [diversity] Table 3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
        [corruptions] Sec. 3 -- Hendrycks and Dietterich, Benchmarking Neural Network
        Robustness to Common Corruptions and Perturbations, ICLR 2019.
        https://arxiv.org/abs/1903.12261
    """
    # SciPy, which the corruptions need, takes a moment to import.
    from churn_jax.data.corruptions import CORRUPTIONS
    from churn_jax.data.corruptions.generated import SMALLEST_SIDE, Generated

    if source is not None and source not in SOURCES:
        raise DataError(f"source must be one of {', '.join(SOURCES)}; got {source!r}")
    if limit is not None and limit < 1:
        raise DataError(f"limit must be a positive count; got {limit}")
    name = str(name).removeprefix("tfds:")
    base = name.partition(":")[0]  # without the version of a TFDS set
    wanted = CORRUPTIONS if corruptions is None else tuple(corruptions)
    levels = SEVERITIES if severities is None else tuple(severities)

    if source in (None, "folder"):
        folder = find_folder(base, manual_dir)
        if folder is not None:
            _check_known(wanted, None, levels, SEVERITIES)
            files = CorruptedFolder.open(base, folder, wanted)
            return CorruptedSets(str(folder), wanted, levels, files.read, limit)
        if source is not None:
            raise DataError(
                f"there is no folder {FOLDERS.get(base, f'{base}-C')} in the "
                f"manual_dir {manual_dir}"
            )
    if source in (None, "tfds"):
        found = find_tfds(base, data_dir)
        if found is None and source is not None:
            known = TFDS.get(base)
            what = f"{known} is not prepared" if known else f"there is none for {base}"
            raise DataError(f"TFDS has no corrupted test images to read: {what}")
        if found is not None:
            wanted = found.corruptions if corruptions is None else wanted
            levels = found.severities if severities is None else levels
            _check_known(wanted, found.corruptions, levels, found.severities)
            found.check(wanted, levels)
            return CorruptedSets(
                f"TFDS {found.name}", wanted, levels, found.read, limit
            )
    _check_known(wanted, CORRUPTIONS, levels, SEVERITIES)
    if test is None:
        test = load(name, data_dir=data_dir, manual_dir=manual_dir).test
    if limit is not None:
        test = test.take(np.arange(min(limit, len(test))))
    if source is None:
        small = min(test.images.shape[1:3]) < SMALLEST_SIDE
        source = "own" if small else "library"
    made = Generated.by(source, test, cache_dir)
    words = f"{made.name} on the test images of {name}"
    return CorruptedSets(words, wanted, levels, made.read)


def _check_known(
    wanted: Sequence[str],
    known: Sequence[str] | None,
    levels: Sequence[int],
    severities: Sequence[int],
) -> None:
    """Refuses unknown severities, and unknown corruptions unless `known` is None."""
    if not wanted or not levels:
        raise DataError("corruptions and severities must not be empty")
    for kind in wanted:
        if known is not None and kind not in known:
            raise DataError(
                f"there is no corruption {kind!r}; there are {', '.join(known)}"
            )
    for level in levels:
        if level not in severities:
            raise DataError(
                f"severities must be among {', '.join(map(str, severities))}; got "
                f"{level!r}"
            )
