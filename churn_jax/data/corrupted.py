"""`corrupted_sets`: the test images of a set under every corruption and severity.

What others have published is taken where it is there; else our own test images are
corrupted. `CorruptedSets.source` says which it was: their figures do not compare.
"""

import pathlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from churn_jax.data.corrupted_files import (
    FOLDERS,
    TFDS,
    CorruptedFolder,
    CorruptedTfds,
    find_folder,
    find_tfds,
)
from churn_jax.data.loading import load
from churn_jax.data.splits import DataError, Split

__all__ = ["CorruptedSet", "CorruptedSets", "corrupted_sets"]

SOURCES = ("folder", "tfds", "library", "own")
SEVERITIES = (1, 2, 3, 4, 5)


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

    The first source that is there is taken:

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
        test: the clean test images, if they are loaded already; else `load` is asked.
        limit: the first so many examples of every set; None for all.
        cache_dir: where images that were made are kept, to be read next time. A full
            test set of 32-pixel colour images takes 2.3 GB.

    Returns:
        The sets. Nothing is read or made before they are iterated over, but that every
        file is there is checked.

    Raises:
        DataError: a source is asked for and is not there, is incomplete or damaged, or
            there is no such corruption or severity.

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
    from churn_jax.data.corruptions.generated import Generated
    from churn_jax.data.corruptions.library import SMALLEST_SIDE

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
        found = _prepared(base, data_dir, source)
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


def _prepared(name: str, data_dir, source: str | None) -> CorruptedTfds | None:
    found = find_tfds(name, data_dir)
    if found is None and source is not None:
        known = TFDS.get(name)
        what = f"{known} is not prepared" if known else f"there is none for {name}"
        raise DataError(f"TFDS has no corrupted test images to read: {what}")
    return found


def _check_known(
    wanted: Sequence[str],
    known: Sequence[str] | None,
    levels: Sequence[int],
    severities: Sequence[int],
) -> None:
    """Kinds are among `known`, unless that is None, and severities among theirs."""
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
