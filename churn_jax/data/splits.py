"""A data set in memory: examples with labels and ids, checked and cut the same way.

The splits never depend on a study's seeds: seeds are a cause of churn under study, so
the data must stay the same.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from churn_compare.example_ids import PredictionsError, as_ids

# Logits of more classes than that do not fit the memory of an accelerator.
_MOST_CLASSES = 2**20
_DECLARE = "give num_classes (in an .npz, an array of that name)"


class DataError(ValueError):
    """Data that cannot be used; the message is one sentence for the user."""


def first_line(error: BaseException) -> str:
    """The message of another library's error, in one line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


class Examples(Protocol):
    """The base of all splits, in memory or streamed."""

    @property
    def labels(self) -> np.ndarray:
        """`[N]` integers."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: np.ndarray, /) -> Self:
        """The examples at `indices`, in that order."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Examples of one split.

    Attributes:
        images: `[N, H, W, C]` uint8 or float32, a table `[N, D]` float32, or token ids
            `[N, L]` int32, where 0 is padding.
        labels: `[N]` int32.
        ids: `[N]` str or int64, unique; they do not depend on how the source is cut.
    """

    images: np.ndarray
    labels: np.ndarray
    ids: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.images.shape[1:]))
        return f"Split({len(self):,} examples of {shape} {self.images.dtype})"

    def take(self, indices: np.ndarray) -> "Split":
        """The examples at `indices`, in that order."""
        return Split(self.images[indices], self.labels[indices], self.ids[indices])


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training, validation and test examples of one classification problem.

    Attributes:
        name: as given to `load`.
        train: training examples.
        validation: examples held out of training; may be empty if asked for.
        test: evaluation examples.
        num_classes: labels lie in `[0, num_classes)`.
        fingerprint: sha256 over images, labels and ids of the three splits.
        class_names: names of the classes, in the order of their numbers; empty where
            the source does not say.
        notes: sentences on what was decided about the source, for the user.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    num_classes: int
    fingerprint: str
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        *,
        validation: Any = None,
        test: Any = None,
        ids: Any = None,
        num_classes: int | None = None,
        name: str | None = None,
    ) -> "Dataset":
        """A data set of arrays in memory, checked and cut as `load` does with files.

        Arrays may be of NumPy, JAX, PyTorch or pandas. What is unambiguous is
        converted: grey images uint8 `[N, H, W]` get a channel axis, floats become
        float32, labels `[N, 1]`, one-hot labels and booleans become class numbers, and
        strings are numbered in sorted order. The arrays are not copied: leave them as
        they are while the data set is in use.

        Args:
            x: training images `[N, H, W, C]` uint8 or floats, or a table `[N, D]` of
                numbers.
            y: labels `[N]`: integers from 0, or strings.
            validation: a pair `(x, y)`; or how many of the training examples to hold
                out, as for `load`. None is a tenth.
            test: a pair `(x, y)`; None holds out a fifth of the examples, the same
                ones for the same number of examples, which `notes` says.
            ids: ids of the training examples, `[N]` strings or integers; None for
                `train/0`, `train/1`, ... (`pool/0`, ... without `test`).
            num_classes: None for those of one-hot labels and strings, or else the
                largest training label plus one.
            name: what titles call it; None for `arrays@` and a hash of the contents.

        Raises:
            DataError: the arrays cannot be used; one sentence says why.

        Example:
            >>> x, y = np.zeros((50, 8, 8), np.uint8), np.arange(50) % 2
            >>> mine = Dataset.from_arrays(x, y, validation=5)
            >>> len(mine.train), len(mine.validation), len(mine.test)
            (35, 5, 10)
            >>> mine.train.images.shape, mine.notes[0][:30]
            ((35, 8, 8, 1), 'No test examples were given: 1')
        """
        from churn_jax.data.arrays import Part
        from churn_jax.data.sources import from_source

        return from_source(
            Part(x, y, ids),
            validation=validation,
            test=test,
            num_classes=num_classes,
            name=name,
        )


class ChannelStatistics(NamedTuple):
    """Mean and standard deviation `[C]` on the scale that `normalize` uses."""

    mean: np.ndarray
    std: np.ndarray


def is_tokens(images) -> bool:
    """True if a batch, or a split's images, are token ids `[N, L]` int32.

    Nothing else has that dtype and rank: pixels are uint8 or floats, tables floats.

    Args:
        images: anything with a shape and a dtype, of NumPy or of JAX.

    Example:
        >>> is_tokens(np.zeros((2, 8), np.int32)), is_tokens(np.zeros((2, 8)))
        (True, False)
    """
    return len(images.shape) == 2 and images.dtype == np.int32


def channel_statistics(images: np.ndarray) -> ChannelStatistics:
    """Moments over all examples and pixels, for `normalize(images, mean, std)`.

    Args:
        images: `[N, ..., C]`; uint8 is put on the 0..1 scale, float is taken as it is.
            Token ids have no moments: 0 and 1, which `normalize` leaves unused.

    Returns:
        float32 `mean [C]` and `std [C]`; a constant channel has `std` 1.

    Example:
        >>> channel_statistics(np.array([[0], [255]], np.uint8)).std
        array([0.5], dtype=float32)
    """
    if is_tokens(images):
        return ChannelStatistics(np.zeros(1, np.float32), np.ones(1, np.float32))
    if images.dtype == np.uint8:
        mean, variance = (moment / 255**n for n, moment in _byte_moments(images))
    else:
        axes = tuple(range(images.ndim - 1))
        mean = images.mean(axes, dtype=np.float64)
        variance = images.var(axes, dtype=np.float64)
    std = np.sqrt(variance)
    std = np.where(std <= 1e-9 * np.abs(mean), 1.0, std)  # zero, up to rounding
    return ChannelStatistics(mean.astype(np.float32), std.astype(np.float32))


def _byte_moments(images: np.ndarray):
    """`(1, mean)` and `(2, variance)` of uint8 channels, by histogram."""
    # Ten times faster than float arithmetic, and without a float copy of the images.
    pixels = images.reshape(-1, images.shape[-1])
    counts = np.zeros((pixels.shape[-1], 256), np.int64)
    for start in range(0, len(pixels), 2**20):
        for channel, values in enumerate(pixels[start : start + 2**20].T):
            counts[channel] += np.bincount(values, minlength=256)
    value, share = np.arange(256), counts / len(pixels)
    mean = share @ value
    centred = value - mean[:, None]
    return (1, mean), (2, (share * centred**2).sum(1))


def fixed_order(count: int) -> np.ndarray:
    """The one permutation of `range(count)` that decides every split."""
    # Sorted raw PCG64 words: NumPy keeps those the same between versions, which it does
    # not promise for `Generator.permutation`.
    return np.argsort(np.random.PCG64(0).random_raw(count), kind="stable")


def hold_out(count: int, held: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions to keep, in `fixed_order`, and the positions of its last `held`."""
    # The first n kept ones are the training set of size n, inside every larger one.
    order = fixed_order(count)
    return order[: count - held], np.sort(order[count - held :])


def check_split(where: str, images, labels, ids) -> Split:
    """A `Split` of the documented dtypes from raw arrays; `where` is for messages."""
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim not in (2, 4):
        hint = "; add a channel axis with images[..., None]" if images.ndim == 3 else ""
        raise DataError(
            f"{where}: images must be [N, H, W, C], or [N, D] for tables; got shape "
            f"{images.shape}{hint}"
        )
    check_layout(where, images)
    if labels.ndim != 1:
        raise DataError(f"{where}: labels must be [N]; got shape {labels.shape}")
    if len(images) != len(labels):
        raise DataError(
            f"{where}: images and labels must be of equal number; got {len(images)} "
            f"images and {len(labels)} labels"
        )
    labels, images = check_labels(where, labels), _check_images(where, images)
    return Split(images, labels, check_ids(where, ids, len(labels)))


def check_layout(where: str, images: np.ndarray) -> None:
    """Refuses images that have their channels before the rows."""
    if images.ndim != 4:
        return
    _, first, rows, last = images.shape
    # One row of many channels, [N, 1, L, C], is a signal; pixels have few channels.
    square = rows == last
    pixels = first > 1 and images.dtype == np.uint8
    if first in (1, 3, 4) and last > 4 and (square or pixels):
        raise DataError(
            f"{where}: images must be [N, H, W, C], channels last; got shape "
            f"{images.shape}: transpose them with images.transpose(0, 2, 3, 1)"
        )


def check_labels(where: str, labels: np.ndarray) -> np.ndarray:
    """`labels [N]` as int32, refused unless they are integers from 0 on."""
    if not len(labels):
        raise DataError(f"{where}: the split is empty")
    if not np.issubdtype(labels.dtype, np.integer):
        hint = ""
        if np.issubdtype(labels.dtype, np.floating):
            hint = "; class numbers become so with labels.astype(int)"
        raise DataError(f"{where}: labels must be integers; got {labels.dtype}{hint}")
    if labels.min() < 0:
        at = int(np.argmax(labels < 0))
        raise DataError(
            f"{where}: labels must not be negative; got {labels[at]} at position {at}: "
            "remove such examples, or number the classes from 0"
        )
    if labels.max() > np.iinfo(np.int32).max:  # a cast would make it another class
        at = int(np.argmax(labels))
        raise DataError(
            f"{where}: labels must be below 2^31; got {labels[at]} at position {at}"
        )
    return labels.astype(np.int32)


def _check_images(where: str, images: np.ndarray) -> np.ndarray:
    if 0 in images.shape:
        raise DataError(f"{where}: images are empty; got shape {images.shape}")
    if images.ndim == 2 and images.dtype != np.float32:
        _check_columns(where, images)
    if np.issubdtype(images.dtype, np.floating):
        with np.errstate(over="ignore"):  # what overflows float32 is reported below
            images = np.ascontiguousarray(images, np.float32)
        # A float64 sum of float32 is finite only if every entry is, and costs no copy.
        if not np.isfinite(images.sum(dtype=np.float64)):
            bad = ~np.isfinite(images).reshape(len(images), -1).all(1)
            raise DataError(
                f"{where}: {int(bad.sum())} of {len(images)} images hold NaN or values "
                f"infinite in float32, the first at position {int(np.argmax(bad))}"
            )
        return images
    if images.ndim == 2 and np.issubdtype(images.dtype, np.integer):
        return images.astype(np.float32)  # a table of counts
    if images.dtype != np.uint8:
        hint = ""
        if np.issubdtype(images.dtype, np.integer):
            hint = "; pixels from 0 to 255 become so with images.astype(numpy.uint8)"
        raise DataError(
            f"{where}: images must be uint8 or floats; got {images.dtype}{hint}"
        )
    return np.ascontiguousarray(images)


def _check_columns(where: str, table: np.ndarray) -> None:
    """Refuses a column of whose values float32 makes many equal, such as of times."""
    low, high = (end(table, axis=0).astype(np.float64) for end in (np.min, np.max))
    with np.errstate(all="ignore"):
        steps = np.spacing(np.maximum(-low, high).astype(np.float32))
        coarse = steps > 1e-5 * (high - low)
    for column in np.flatnonzero(coarse):
        values = np.unique(table[:, column])
        left = len(np.unique(values.astype(np.float32)))
        if left < 0.75 * len(values):
            raise DataError(
                f"{where}: float32 makes {left} values of the {len(values)} in column "
                f"{column}; subtract an offset from it first"
            )


def check_ids(where: str, ids, count: int) -> np.ndarray:
    """Unique ids `[count]`, str or int64; `<where>/<index>` if they are None."""
    if ids is None:
        return np.array([f"{where}/{i}" for i in range(count)])
    ids = np.asarray(ids)
    if ids.shape != (count,):
        raise DataError(
            f"{where}: there must be one id per label, ({count},); got {ids.shape}"
        )
    if ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    elif ids.dtype.kind in "iu" and not np.any(ids > np.iinfo(np.int64).max):
        ids = ids.astype(np.int64)
    elif ids.dtype.kind != "U":
        raise DataError(
            f"{where}: ids must be strings, or integers below 2^63; got {ids.dtype}"
        )
    try:
        unique, counts = np.unique(as_ids(ids), return_counts=True)
    except PredictionsError as error:  # they could not be stored with predictions
        raise DataError(f"{where}: {error}") from error
    if len(unique) < count:
        raise DataError(
            f"{where}: ids must be unique; {count - len(unique)} of {count} repeat "
            f"another, for example {unique[np.argmax(counts > 1)].item()!r}"
        )
    return ids


def check_classes(splits: Mapping[str, Examples], num_classes: int | None) -> int:
    """`num_classes`, or the largest training label plus one if it is None."""
    declared = num_classes is not None
    if declared and not isinstance(num_classes, (int, np.integer)):
        raise DataError(f"num_classes must be an integer; got {num_classes!r}")
    labels = {name: split.labels for name, split in splits.items() if len(split)}
    largest = {name: int(values.max()) for name, values in labels.items()}
    classes = num_classes if declared else largest["train"] + 1
    if not declared and min(values.min() for values in labels.values()) > 0:
        raise DataError(
            f"labels count from 0, but no example has label 0 and the largest label is "
            f"{max(largest.values())}; subtract the smallest label, or {_DECLARE}"
        )
    if not declared and classes > max(len(labels["train"]), 2):
        raise DataError(
            f"train: label {classes - 1} would make {classes:,} classes of "
            f"{len(labels['train']):,} examples; number the classes from 0, or "
            f"{_DECLARE}"
        )
    if classes > _MOST_CLASSES:
        raise DataError(
            f"there can be at most {_MOST_CLASSES:,} classes; got {classes:,}"
        )
    for name, label in largest.items():
        if label >= classes:
            known, way = f" for num_classes={classes}", ""
            if not declared:
                known = ", as in the training split"
                way = f": remove such examples, or {_DECLARE}"
            raise DataError(
                f"{name}: labels must lie in 0..{classes - 1}{known}; got {label}{way}"
            )
    if classes < 2:
        raise DataError("a classification problem needs at least two classes; got one")
    return int(classes)


def check_train_size(name: str, size: Any, count: int, held: float) -> None:
    """Refuses all but None and a positive number of the `count` examples left."""
    if size is None:
        return
    if np.asarray(size).dtype.kind not in "iu" or size < 1:
        raise DataError(f"train_size must be a positive count; got {size!r}")
    if size > count:
        raise DataError(
            f"train_size={size} is more than the {count} training examples of {name} "
            f"that validation={held} leaves"
        )


def check_same_kind(splits: dict[str, Split]) -> None:
    """Refuses splits whose examples differ in shape or dtype."""
    (first, x), *rest = splits.items()
    for name, y in rest:
        for what, a, b in (
            ("shape", x.images.shape[1:], y.images.shape[1:]),
            ("dtype", x.images.dtype, y.images.dtype),
        ):
            if a != b:
                raise DataError(
                    f"{first} and {name} must hold images of one {what}; got {a} and "
                    f"{b}"
                )


def fingerprint(*splits: Split) -> str:
    """sha256 over shapes, dtypes and contents of images, labels and ids, in order."""
    digest = hashlib.sha256()
    for split in splits:
        for array in (split.images, split.labels):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            digest.update(raw.data)
        digest.update(id_bytes(split.ids))
    return digest.hexdigest()


def id_bytes(ids: np.ndarray) -> bytes:
    """The bytes of ids `[N]` that a fingerprint covers."""
    kind = "int" if ids.dtype.kind == "i" else "str"
    # Not the array's bytes: the width of a string dtype is an accident.
    return f"{kind}{ids.shape}".encode() + "\n".join(map(str, ids.tolist())).encode()
