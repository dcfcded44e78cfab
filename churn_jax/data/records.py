"""Splits whose images are read on demand: only labels and ids are in memory.

A `StreamedSplit` stands where a `Split` stands, for sets that fit neither into device
memory nor into the host's. What an image looks like is a pure function of its row and
the key of its draw, so that any number of processes and threads can read a stream, and
continue it anywhere.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from churn_jax.data.crop import Crop, centre_crop, decode_crop, random_crop, resize_crop
from churn_jax.data.splits import DataError, Dataset, first_line, id_bytes, is_tokens


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Images `[N, H, W, C]` in an array, such as a memory map: nothing is drawn."""

    images: np.ndarray

    draws = False

    @property
    def shape(self) -> tuple[int, ...]:
        """`(H, W, C)`."""
        return tuple(self.images.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        """The array's dtype."""
        return self.images.dtype

    def image(self, row: int, key: tuple[int, ...] | None) -> np.ndarray:
        """The image; the key is not used."""
        del key
        return self.images[row]


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Files of any size, decoded, cropped and resized to RGB."""

    # `random_crop` with a key, `centre_crop` without one.

    records: Any  # records[row]["image"] is the bytes of a file, or uint8 pixels
    size: int  # side of the images in pixels

    dtype = np.dtype(np.uint8)
    draws = True

    @property
    def shape(self) -> tuple[int, ...]:
        """`(size, size, 3)`."""
        return (self.size, self.size, 3)

    def image(self, row: int, key: tuple[int, ...] | None) -> np.ndarray:
        """`[size, size, 3]` uint8."""
        stored = self.records[row]["image"]

        def choose(width: int, height: int) -> Crop:
            if key is None:
                return centre_crop(width, height)
            return random_crop(width, height, key)

        if isinstance(stored, bytes):
            return decode_crop(stored, choose, self.size)
        return resize_crop(stored, choose(stored.shape[1], stored.shape[0]), self.size)


# `image(row, key)` is as in evaluation if the key is None, and drawn by it otherwise;
# `draws` says whether it depends on the key.
ImageSource = StoredImages | EncodedImages


@dataclass(frozen=True)
class Reading:
    """How a stream is read ahead; results do not depend on it."""

    threads: int = 16  # number of threads that read and decode, per process
    # further processes that read, with `threads` each; 0 reads in this process, which
    # suffices as long as decoding, not Python, takes the time
    workers: int = 0
    # batches that threads of this process read ahead; bounds the memory. A worker is at
    # most `threads` and three batches ahead.
    ahead: int = 2

    def __post_init__(self):
        if self.threads < 1 or self.workers < 0 or self.ahead < 1:
            raise ValueError(
                "reading needs threads and ahead of at least 1 and workers of at "
                f"least 0; got {self}"
            )


@dataclass(frozen=True, eq=False)
class StreamedSplit:
    """Examples of one split, whose images are read on demand."""

    name: str  # for messages
    labels: np.ndarray  # `[N]` int32
    ids: np.ndarray  # `[N]` str or int64, unique
    rows: np.ndarray  # `[N]` int64, the row of each example in `source`
    source: ImageSource  # reads the images
    reading: Reading = Reading()  # threads and processes that read

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """`(H, W, C)` of every image."""
        return self.source.shape

    def image(self, index: int, key: tuple[int, ...] | None = None) -> np.ndarray:
        """The image of one example.

        Args:
            index: which example.
            key: key of the draw in training; None as in evaluation.

        Returns:
            `[H, W, C]`.

        Raises:
            DataError: the record cannot be read or decoded.
        """
        try:
            return self.source.image(int(self.rows[index]), key)
        except Exception as error:  # storage and decoders raise many kinds
            raise DataError(
                f"{self.name}: the image of record {self.ids[index]} cannot be read "
                f"({first_line(error)[:200]})"
            ) from error

    def take(self, indices: np.ndarray) -> "StreamedSplit":
        """The examples at `indices`, in that order."""
        own = self.labels[indices], self.ids[indices], self.rows[indices]
        return StreamedSplit(self.name, *own, self.source, self.reading)


@dataclass(frozen=True, eq=False)
class StreamingDataset:
    """Like `Dataset`, with images that are streamed."""

    name: str
    train: StreamedSplit
    validation: StreamedSplit
    test: StreamedSplit
    num_classes: int
    fingerprint: str  # sha256 over the shape of images, labels and ids; not over pixels


def stream_fingerprint(*splits: StreamedSplit) -> str:
    """sha256 over image shapes, labels and ids of the splits, in order."""
    digest = hashlib.sha256()
    for split in splits:
        digest.update(f"{split.source.dtype.str}{split.image_shape}".encode())
        digest.update(np.ascontiguousarray(split.labels, "<i4").tobytes())
        digest.update(id_bytes(split.ids))
    return digest.hexdigest()


def stream(dataset: Dataset, reading: Reading = Reading()) -> StreamingDataset:
    """A data set in host memory as a stream, for what device memory does not hold.

    Trained weights are the same as without: order and augmentation are shared.

    Args:
        dataset: its images may be a memory map.
        reading: threads and processes that read.

    Returns:
        The same examples; the fingerprint is another one, without pixels.

    Raises:
        DataError: the examples are token ids.

    Example:
        >>> from churn_jax.data import load
        >>> digits = stream(load("digits"))
        >>> digits.train.image_shape, len(digits.test)
        ((8, 8, 1), 897)
    """
    if is_tokens(dataset.train.images):
        raise DataError(f"{dataset.name}: texts are not streamed; train on it as it is")
    parts = {}
    for what in ("train", "validation", "test"):
        own = getattr(dataset, what)
        rows, images = np.arange(len(own)), StoredImages(own.images)
        name = f"{dataset.name} {what}"
        parts[what] = StreamedSplit(name, own.labels, own.ids, rows, images, reading)
    return StreamingDataset(
        name=dataset.name,
        **parts,
        num_classes=dataset.num_classes,
        fingerprint=stream_fingerprint(*parts.values()),
    )
