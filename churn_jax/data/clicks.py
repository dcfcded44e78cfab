"""Clicks: examples in time order with a label of two classes, for one pass.

They are arrays, `ids [N, F]` (rows of each categorical field's embedding table) and
`labels [N]` (0 or 1), and if they are there `numeric [N, D]`, `sizes [F]` (rows of each
field's table; else its largest id plus one) and `draw [N]` (numbers in [0, 1), equal
for examples that are to be held out together, such as those of one user).
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from churn_jax.data.arrays import open_npz
from churn_jax.data.sources import DATASETS, returned
from churn_jax.data.splits import DataError, check_train_size

SYNTHETIC = {"clicks": (131_072, 6, 1000), "clicks-tiny": (256, 2, 16)}
"""Examples, fields and rows per field of the synthetic sets, by name."""

_SEEN = 2**14  # examples on which the bias is fitted that gives the rate
_KINDS = {"word": 1, "number": 2, "label": 3, "weight": 4, "held out": 5}


class Window(NamedTuple):
    """Consecutive examples; the last window is padded with zeros."""

    ids: np.ndarray  # [W, F] int32, rows within each field's own table
    numeric: np.ndarray  # [W, D] float32
    labels: np.ndarray  # [W] int32, 0 or 1
    mask: np.ndarray  # [W] float32, 0 for padding
    first: np.ndarray  # uint32, place of the first example in the stream


@dataclasses.dataclass(frozen=True, eq=False)
class ClickSplit:
    """Examples in time order; `keys` are their places in the source."""

    ids: np.ndarray
    numeric: np.ndarray
    labels: np.ndarray
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Any) -> "ClickSplit":
        """Some of the examples: a mask `[N]`, or a slice."""
        fields = dataclasses.fields(self)
        return ClickSplit(*(getattr(self, field.name)[rows] for field in fields))

    def windows(self, size: int, start: int = 0) -> Iterator[Window]:
        """The examples from `start` on in windows of constant shape."""
        for low in range(start, len(self), size):
            part = self.take(slice(low, low + size))
            count = len(part)

            def padded(array: np.ndarray, missing: int = size - count) -> np.ndarray:
                return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))

            yield Window(
                padded(part.ids),
                padded(part.numeric),
                padded(part.labels),
                (np.arange(size) < count).astype(np.float32),
                # Beyond 2^32 the number that draws members' samples starts again.
                np.asarray(low % 2**32, np.uint32),
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Clicks:
    """Examples to learn in one pass, and those that are held out of it.

    Attributes:
        name: name of the source.
        train: scored and learned, one after the other.
        validation: never learned; scored at the end.
        sizes: rows of every field's table.
        fingerprint: differs where the contents do.
    """

    name: str
    train: ClickSplit
    validation: ClickSplit
    sizes: tuple[int, ...]
    fingerprint: str

    num_classes = 2

    @property
    def test(self) -> ClickSplit:
        """The stream itself: every example is scored before it is learned."""
        return self.train


def load_clicks(
    name: str, *, train_size: int | None = None, validation: float | None = None
) -> Clicks:
    """Clicks by name.

    Args:
        name: `clicks` or `clicks-tiny`, which are synthetic; a path that ends in
            `.npz`; or `package.module:function` of a function without arguments that
            returns the arrays.
        train_size: learn the first examples only; None for all.
        validation: share of the examples that is held out; None for a tenth.

    Returns:
        The examples; which ones are held out is the same every time.

    Raises:
        DataError: the source cannot be read or used; one sentence says why.

    Example:
        >>> found = load_clicks("clicks-tiny", validation=0.25)
        >>> len(found.train), len(found.validation), found.sizes
        (184, 72, (16, 16))
    """
    arrays: Any
    if name in SYNTHETIC:
        arrays = synthetic_clicks(*SYNTHETIC[name])
    elif name.endswith(".npz"):
        with open_npz(name) as found:
            arrays = dict(found)
    else:
        try:
            function = DATASETS.find(name)
        except ValueError as error:
            raise DataError(
                f"clicks are {' or '.join(SYNTHETIC)}, an .npz file or a function that "
                f"returns arrays; got {name!r} ({error})"
            ) from error
        arrays = returned(function)
    share = 0.1 if validation is None else validation
    return as_clicks(name, arrays, train_size=train_size, validation=share)


def as_clicks(
    name: str,
    arrays: Mapping[str, Any],
    *,
    train_size: int | None = None,
    validation: float = 0.0,
) -> Clicks:
    """Checked clicks from arrays; arguments as for `load_clicks`.

    Raises:
        DataError: an array is missing or cannot be used.

    Example:
        >>> ids, labels = [[0, 3], [1, 0], [1, 2]], [0, 1, 0]
        >>> as_clicks("mine", {"ids": ids, "labels": labels}).sizes
        (2, 4)
    """
    known = ("ids", "labels", "numeric", "sizes", "draw")
    if not isinstance(arrays, Mapping):
        raise DataError(
            f"{name} must be a dict of arrays, ids and labels among them; got a "
            f"{type(arrays).__name__}"
        )
    missing = [key for key in known[:2] if key not in arrays]
    if missing or set(arrays) - set(known):
        raise DataError(
            f"{name} must have the arrays ids and labels, and may have "
            f"{', '.join(known[2:])}; it has {', '.join(arrays)}"
        )
    ids, labels = np.asarray(arrays["ids"]), np.asarray(arrays["labels"])
    count = len(labels)
    if ids.ndim != 2 or not ids.size or ids.dtype.kind not in "iu":
        raise DataError(
            f"{name}: ids must be whole numbers [N, F] of one example or more; got "
            f"{ids.dtype} {list(ids.shape)}"
        )
    numeric = np.asarray(arrays.get("numeric", np.zeros((count, 0))))
    sizes = np.asarray(arrays.get("sizes", ids.max(axis=0).astype(np.int64) + 1))
    draw = np.asarray(arrays.get("draw", uniform(mix(np.arange(count)))))
    for key, array, shape, kinds in (
        ("labels", labels, (len(ids),), "biuf"),
        ("numeric", numeric, (count, *(numeric.shape[1:2] or (1,))), "biuf"),
        ("sizes", sizes, ids.shape[1:], "iu"),
        ("draw", draw, (count,), "iuf"),
    ):
        if array.shape != shape or array.dtype.kind not in kinds:
            raise DataError(
                f"{name}: {key} must be {'whole ' * (kinds == 'iu')}numbers of shape "
                f"{list(shape)}; got {array.dtype} {list(array.shape)}"
            )
    # Below 0 is always held out, 1 and above never.
    if not np.all((draw >= 0) & (draw < 1)):
        raise DataError(f"{name}: draw must be at least 0 and below 1")
    if (beyond := ((ids < 0) | (ids >= sizes)).any(axis=0)).any():
        # It would be learned as another field's.
        field = int(np.flatnonzero(beyond)[0])
        raise DataError(
            f"{name}: an id of field {field} is outside of its table of "
            f"{sizes[field]} rows"
        )
    if not np.isin(labels, (0, 1)).all():
        raise DataError(f"{name}: labels must be 0 or 1")
    if not labels.any():
        raise DataError(f"{name}: no example has the label 1")
    numeric = numeric.astype(np.float32)
    if not np.isfinite(numeric).all():
        row = int(np.flatnonzero(~np.isfinite(numeric).all(axis=1))[0])
        raise DataError(f"{name}: the numbers of example {row} are not finite")
    if not 0 <= validation < 1:
        raise DataError(f"{name}: validation is a share below 1; got {validation}")
    ids, labels = ids.astype(np.int32), labels.astype(np.int32)
    whole = ClickSplit(ids, numeric, labels, np.arange(count))
    held_out = draw < validation
    train = whole.take(~held_out)
    if not len(train):
        raise DataError(f"{name}: every example is held out")
    check_train_size(name, train_size, len(train), validation)
    train = train.take(slice(train_size))
    digest = hashlib.sha256(f"{sizes.tolist()} {numeric.shape}".encode())
    validated = whole.take(held_out)
    for part in (train, validated):
        for array in (part.ids, part.numeric, part.labels, part.keys):
            digest.update(np.ascontiguousarray(array).data)
    return Clicks(name, train, validated, tuple(map(int, sizes)), digest.hexdigest())


def mix(numbers: np.ndarray) -> np.ndarray:
    """`[N]` integers to random-looking uint64, one to one (SplitMix64's finalizer)."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(bits: np.ndarray) -> np.ndarray:
    """Uniform uint64 as float64 in `[0, 1)`."""
    return (bits >> np.uint64(11)) * 2.0**-53


def synthetic_clicks(
    num_examples: int,
    fields: int = 6,
    buckets: int | tuple[int, ...] = 1000,
    *,
    numeric: int = 2,
    rate: float = 0.1,
    signal: float = 1.5,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Made-up clicks, as the arrays of `as_clicks`.

    Words follow Zipf's law. With `w` standard uniform weights of the words of the F
    fields and `x` the D numbers, the chance of a click is

        sigmoid(bias + signal * s),
        s = (sum_f w_f + sum_f w_f w_{f+1} + sum_d x_d) / sqrt(2 F + D)

    where all terms have variance one and the last field's neighbour is the first, so
    that there is something for embeddings and for towers to learn. Every example is a
    function of the seed and its place.

    Args:
        num_examples: N.
        fields: F, categorical fields.
        buckets: rows of every field's table, or of each.
        numeric: D.
        rate: share of clicks.
        signal: standard deviation of the log-odds; 0 leaves nothing to learn.
        seed: seed of everything.

    Returns:
        `ids`, `numeric`, `labels`, `sizes` and `draw`.

    Raises:
        DataError: a number is out of range.

    Example:
        >>> {k: v.shape for k, v in synthetic_clicks(9, 3, 50).items() if k != "draw"}
        {'ids': (9, 3), 'numeric': (9, 2), 'labels': (9,), 'sizes': (3,)}
    """
    sizes = (buckets,) * fields if isinstance(buckets, int) else tuple(buckets)
    if num_examples < 1 or len(sizes) != fields or min(sizes, default=0) < 1:
        raise DataError(
            "synthetic clicks need an example, a field and a bucket for each of "
            f"{fields} fields; got {num_examples} examples and buckets {buckets}"
        )
    if not (0 < rate < 1 and numeric >= 0):
        raise DataError(
            "rate lies between 0 and 1 and numeric is at least 0; got "
            f"{rate} and {numeric}"
        )

    def draw(kind: str, index: int, numbers: np.ndarray) -> np.ndarray:
        stream = mix(mix(np.array([seed * 8 + _KINDS[kind]])) + np.uint64(index))
        return uniform(mix(numbers.astype(np.uint64) ^ stream))

    def inputs(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids = np.empty((len(keys), fields), np.int32)
        for f, size in enumerate(sizes):
            # Zipf: P(id = k) = log((k + 2) / (k + 1)) / log(size + 1).
            place = np.exp(np.log(size + 1.0) * draw("word", f, keys))
            ids[:, f] = np.minimum(place.astype(np.int64), size) - 1
        numbers = np.empty((len(keys), numeric), np.float32)
        for d in range(numeric):
            numbers[:, d] = np.sqrt(12.0) * (draw("number", d, keys) - 0.5)
        return ids, numbers

    def log_odds(ids: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Without the bias."""
        weights = [
            np.sqrt(12.0) * (draw("weight", f, ids[:, f]) - 0.5) for f in range(fields)
        ]
        total = numbers.sum(axis=1, dtype=np.float64)
        for f, weight in enumerate(weights):
            total += weight + weight * weights[(f + 1) % fields]
        return signal * total / np.sqrt(2 * fields + numeric)

    keys = np.arange(num_examples)
    ids, numbers = inputs(keys)
    first = log_odds(*inputs(np.arange(_SEEN)))
    chance = _sigmoid(_bias(first, rate) + log_odds(ids, numbers))
    stream = mix(np.array([seed * 8 + _KINDS["held out"]]))
    return {
        "ids": ids,
        "numeric": numbers,
        "labels": (draw("label", 0, keys) < chance).astype(np.int32),
        "sizes": np.array(sizes),
        "draw": uniform(mix(keys.astype(np.uint64) ^ stream)),
    }


def _bias(log_odds: np.ndarray, rate: float) -> float:
    """The bias that gives the first examples the wanted rate, by bisection."""
    low, high = -100.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        above = _sigmoid(middle + log_odds).mean() > rate
        low, high = (low, middle) if above else (middle, high)
    return (low + high) / 2


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))
