"""One split's examples from sources of records, read into arrays.

A record is a dict with the columns of the image and the label, or a pair of both. No
library is known here: data sets of Hugging Face, Grain and PyTorch are sequences or
iterables of records.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from churn_jax.data.arrays import Part, as_array
from churn_jax.data.splits import DataError, first_line
from churn_jax.data.text import pad_tokens, token_rows

COLUMNS = ("image", "label")
# Columns of integers that are token ids; those of other names are tables.
_TOKENS = ("input_ids", "token_ids", "tokens")
_TOKENIZE = (
    "tokenize texts and name the column of the token ids, for example "
    "columns=('input_ids', 'label')"
)


def read_examples(where: str, source: Any, columns: tuple[str, str]) -> Part:
    """All examples of a source of records; `where` is for messages."""
    if isinstance(source, (str, bytes)):
        raise DataError(f"{where}: expected a source of examples; got {source!r}")
    if hasattr(source, "dtypes") and hasattr(source, "columns"):
        raise DataError(
            f"{where}: a table needs its labels: give the pair (table without the "
            "column of labels, that column)"
        )
    if isinstance(source, (np.ndarray, Mapping)):
        raise DataError(f"{where}: give images and labels as a pair of arrays (x, y)")
    rows = _Rows(where, columns)
    for record in _records(where, source):
        rows.add(record, _length(source))
    return rows.part()


def _length(source: Any) -> int | None:
    try:
        return len(source)
    except TypeError:  # of a source that is only iterated
        return None


def _records(where: str, source: Any) -> Iterator[Any]:
    """The records in order; filtered ones are None in Grain, and left out."""
    if (count := _length(source)) is not None and hasattr(source, "__getitem__"):
        # Not iterated: a Grain data set starts again after its last record.
        found = _by_number(source, count)
    elif isinstance(source, Iterable):
        found = iter(source)
    else:
        raise DataError(
            f"{where}: expected arrays (x, y), a dict of arrays, or a data set of "
            f"records; got {type(source).__name__}"
        )
    i = 0
    while True:
        try:
            record = next(found)
        except StopIteration:
            return
        except DataError:
            raise
        # Whatever the source raises: of a missing file, of a broken image.
        except Exception as error:
            raise DataError(
                f"{where}: example {i} cannot be read ({first_line(error)})"
            ) from error
        if record is not None:
            yield record
        i += 1


def _by_number(source: Any, count: int) -> Iterator[Any]:
    for i in range(count):
        try:
            record = source[i]
        except NotImplementedError:  # of PyTorch's IterableDataset, with a length
            if i:
                raise
            yield from source
            return
        yield record


class _Rows:
    """The images, labels and ids of the records that were added."""

    def __init__(self, where: str, columns: tuple[str, str]):
        self.where, self.columns = where, columns
        self.labels: list[Any] = []
        self.ids: list[Any] = []
        self.texts: list[np.ndarray] = []
        self.images = np.empty(0)
        self.tokens = False

    def add(self, record: Any, count: int | None) -> None:
        """One more of `count` records, None if their number is not known."""
        image, label = self._pair(record)
        image, label = self._image(image), self._label(label)
        if not self.labels:
            self._check_single(image, label)
        if self.tokens:
            self.texts.append(image if image.size else image.astype(int))
        else:
            self._place(image, count)
        self.labels.append(label)

    def part(self) -> Part:
        """The examples added so far."""
        if not self.labels:
            raise DataError(f"{self.where}: the split is empty")
        ids = self.ids or None
        if not self.tokens:
            return Part(self.images[: len(self.labels)], self.labels, ids)
        lengths = [len(text) for text in self.texts]
        tokens = token_rows(self.where, np.concatenate(self.texts)[None], None, None)
        padded = pad_tokens(tokens[0], np.cumsum([0, *lengths]), max(lengths))
        return Part(padded, self.labels, ids, tokens=True)

    def _pair(self, record: Any) -> tuple[Any, Any]:
        at = len(self.labels)
        if isinstance(record, Mapping):
            missing = [name for name in self.columns if name not in record]
            if missing:
                raise DataError(
                    f"{self.where}: record {at} has no {missing[0]!r}, but "
                    f"{', '.join(map(str, record))}; name the image and the label with "
                    "churn_jax.data.from_source(..., columns=(..., ...))"
                )
            if "id" in record and "id" not in self.columns:
                self.ids.append(_plain(record["id"]))
            self.tokens = self.columns[0] in _TOKENS
            return record[self.columns[0]], record[self.columns[1]]
        if isinstance(record, (tuple, list)) and len(record) == 2:
            return record[0], record[1]
        raise DataError(
            f"{self.where}: a record must be a pair (image, label), or a dict with "
            f"{' and '.join(self.columns)}; record {at} is {_described(record)}. "
            "Several splits are given as {'train': ..., 'test': ...}"
        )

    def _image(self, image: Any) -> np.ndarray:
        name = self.columns[0]
        if isinstance(image, str):
            raise DataError(f"{self.where}: {name} holds texts: {_TOKENIZE}")
        if isinstance(image, (bytes, Mapping)):
            raise DataError(
                f"{self.where}: {name} holds {_described(image)}: decode images to "
                f"arrays, or {_TOKENIZE}"
            )
        if hasattr(image, "mode") and hasattr(image, "convert"):
            image = self._decoded(image)
        array = as_array(self.where, name, image)
        if array.dtype.kind in "OUS":
            raise DataError(
                f"{self.where}: {name} holds {_described(image)}: {_TOKENIZE}"
            )
        return array

    def _decoded(self, image: Any) -> Any:
        """A Pillow image of one, three or four channels."""
        if image.mode in ("L", "RGB", "RGBA"):
            return image
        if image.mode in ("I", "F") or image.mode.startswith("I;"):
            raise DataError(
                f"{self.where}: image {len(self.labels)} has more than 8 bits a pixel "
                f"(mode {image.mode}); give arrays of floats"
            )
        return image.convert("L" if image.mode == "1" else "RGB")

    def _label(self, label: Any) -> Any:
        if isinstance(label, (str, bytes)) or label is None:
            return label
        return _plain(as_array(self.where, self.columns[1], label))

    def _check_single(self, image: np.ndarray, label: Any) -> None:
        """Refuses batches, from which examples could not be told for certain."""
        many = np.ndim(label) > 0 and image.ndim > 1 and len(label) == len(image)
        if image.ndim > (1 if self.tokens else 3) or many:
            raise DataError(
                f"{self.where}: records must be single examples; got images of shape "
                f"{image.shape} and labels of shape {np.shape(label)}: leave out the "
                "batching (in tf.data dataset.unbatch(), in PyTorch the data set "
                "instead of its DataLoader), and give one-hot labels as class numbers"
            )

    def _place(self, image: np.ndarray, count: int | None) -> None:
        at = len(self.labels)
        if at == 0:
            capacity = 1024 if count is None else count
            self._check_memory(capacity * image.nbytes)
            self.images = np.empty((capacity, *image.shape), image.dtype)
        image = self._alike(image)
        if at == len(self.images):
            self._check_memory(3 * self.images.nbytes)  # the old and the new ones
            self.images = np.concatenate([self.images, np.empty_like(self.images)])
        self.images[at] = image

    def _alike(self, image: np.ndarray) -> np.ndarray:
        """An image of the others' shape and dtype, or an error."""
        at, others = len(self.labels), self.images
        if others.dtype == image.dtype == np.uint8:
            if image.ndim == 2 and others.ndim == 4:
                image = _coloured(image, others.shape[-1])
            elif image.ndim == 3 and others.ndim == 3:
                self.images = others = _coloured(others, image.shape[-1])
        if image.shape != others.shape[1:]:
            raise DataError(
                f"{self.where}: images must be of one size; image 0 has shape "
                f"{others.shape[1:]}, image {at} {image.shape}: resize them first"
                + ("" if image.ndim > 1 else f", or {_TOKENIZE}")
            )
        if image.dtype != others.dtype:
            if image.ndim > 1:
                raise DataError(
                    f"{self.where}: images must be of one dtype; image 0 has "
                    f"{others.dtype}, image {at} {image.dtype}"
                )
            self.images = others.astype(np.result_type(others, image))
        return image

    def _check_memory(self, size: int) -> None:
        if size > _memory():
            raise DataError(
                f"{self.where}: the examples take {size / 2**30:,.0f} GiB, more than "
                "this machine's memory; cut a data set that repeats without end"
            )


def _coloured(grey: np.ndarray, channels: int) -> np.ndarray:
    """Grey images with so many equal channels; a fourth is opaque."""
    return np.where(np.arange(channels) == 3, np.uint8(255), grey[..., None])


def _memory() -> float:
    """Bytes of this machine's memory; infinite where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return np.inf


def _plain(value: Any) -> Any:
    """A scalar of any library as Python's, anything else as it is."""
    return value.item() if np.ndim(value) == 0 and hasattr(value, "item") else value


def _described(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, (tuple, list)) else ""
    return f"{type(value).__name__}{size}"
