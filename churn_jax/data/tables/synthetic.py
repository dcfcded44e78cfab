"""A stream of made-up clicks, drawn on the fly: any length, no storage.

Every example is a pure function of the seed and its index, so a stream can be entered
anywhere at no cost. Words follow Zipf's law, and the chance of a click is a planted
logistic model with an interaction of neighbouring fields, so that there is something
for embeddings and for towers to learn.
"""

import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from churn_jax.data.splits import DataError
from churn_jax.data.tables.encoding import Chunk, mix, share_of
from churn_jax.data.tables.schema import Categorical, Numeric, TableSchema
from churn_jax.data.tables.stream import Part, TableStream

_CHUNK = 2**14
_SEEN = 2**14  # examples from which the bias follows that gives the rate
_KINDS = {"word": 1, "number": 2, "label": 3, "weight": 4, "held out": 5}


@dataclass(frozen=True)
class SyntheticClicks:
    """The examples of `synthetic_clicks`, by index.

    With `w` standard uniform weights of the words of the F fields and `x` the D
    numbers, the chance of a click is

        sigmoid(bias + signal * s),
        s = (sum_f w_f + sum_f w_f w_{f+1} + sum_d x_d) / sqrt(2 F + D)

    where all terms have variance one and the last field's neighbour is the first.

    Attributes:
        num_examples: of both parts.
        sizes: rows of every field's table.
        numeric: D, how many numbers.
        rate: share of clicks.
        signal: standard deviation of the log-odds.
        seed: of everything.
        holdout: share of the examples that are held out.

    Raises:
        DataError: a number is out of range.
    """

    num_examples: int
    sizes: tuple[int, ...]
    numeric: int = 2
    rate: float = 0.1
    signal: float = 1.5
    seed: int = 0
    holdout: float = 0.0

    def __post_init__(self):
        if self.num_examples < 1 or not self.sizes or min(self.sizes) < 1:
            raise DataError(
                "a synthetic stream needs an example, a field and a bucket; got "
                f"{self.num_examples} examples and fields of sizes {self.sizes}"
            )
        if not (0 < self.rate < 1 and 0 <= self.holdout < 1 and self.numeric >= 0):
            raise DataError(
                "rate lies between 0 and 1, holdout from 0 to below 1, and numeric is "
                f"at least 0; got {self.rate}, {self.holdout} and {self.numeric}"
            )

    def chunks(self, part: Part, start: int) -> Iterator[Chunk]:
        """Examples of a part in order, without its first `start`."""
        low = 0 if self.holdout else (start if part == "train" else self.num_examples)
        start = start if self.holdout else 0
        while low < self.num_examples:
            keys = np.arange(low, min(low + _CHUNK, self.num_examples), dtype=np.int64)
            low += _CHUNK
            chosen = keys[self._held_out(keys) == (part == "holdout")]
            if len(chosen) <= start:
                start -= len(chosen)
                continue
            yield self.examples(chosen[start:])
            start = 0

    def count(self, part: Part) -> int:
        """How many examples a part has."""
        held = 0
        if self.holdout:
            for low in range(0, self.num_examples, _CHUNK):
                high = min(low + _CHUNK, self.num_examples)
                held += int(self._held_out(np.arange(low, high)).sum())
        return held if part == "holdout" else self.num_examples - held

    def examples(self, keys: np.ndarray) -> Chunk:
        """The examples of indices `[N]`."""
        ids, numeric = self._ids(keys), self._numeric(keys)
        chance = _sigmoid(_bias(self) + self.signal_of(ids, numeric))
        labels = (self._uniform("label", 0, keys) < chance).astype(np.int32)
        return Chunk(ids, numeric, labels, keys)

    def probability(self, keys: np.ndarray) -> np.ndarray:
        """The chance of a click, float64 `[N]`, of the examples of indices `[N]`."""
        signal = self.signal_of(self._ids(keys), self._numeric(keys))
        return _sigmoid(_bias(self) + signal)

    def signal_of(self, ids: np.ndarray, numeric: np.ndarray) -> np.ndarray:
        """The true log-odds less the bias, float64 `[N]`.

        Args:
            ids: `[N, F]` words.
            numeric: `[N, D]` numbers.
        """
        weights = [
            np.sqrt(12.0) * (self._uniform("weight", f, ids[:, f]) - 0.5)
            for f in range(ids.shape[1])
        ]
        total = numeric.sum(axis=1, dtype=np.float64)
        for f, weight in enumerate(weights):
            total += weight + weight * weights[(f + 1) % len(weights)]
        return self.signal * total / np.sqrt(2 * ids.shape[1] + numeric.shape[1])

    def _uniform(self, kind: str, index: int, numbers: np.ndarray) -> np.ndarray:
        """Float64 in `[0, 1)`, a pure function of the seed and the arguments."""
        stream = mix(mix(np.array([self.seed * 8 + _KINDS[kind]])) + np.uint64(index))
        bits = mix(numbers.astype(np.uint64) ^ stream)
        return (bits >> np.uint64(11)) * 2.0**-53

    def _ids(self, keys: np.ndarray) -> np.ndarray:
        """Zipf: P(id = k) = log((k + 2) / (k + 1)) / log(size + 1)."""
        ids = np.empty((len(keys), len(self.sizes)), np.int32)
        for f, size in enumerate(self.sizes):
            place = np.exp(np.log(size + 1.0) * self._uniform("word", f, keys))
            ids[:, f] = np.minimum(place.astype(np.int64), size) - 1
        return ids

    def _numeric(self, keys: np.ndarray) -> np.ndarray:
        """Uniform, mean 0, variance 1."""
        numbers = np.empty((len(keys), self.numeric), np.float32)
        for d in range(self.numeric):
            numbers[:, d] = np.sqrt(12.0) * (self._uniform("number", d, keys) - 0.5)
        return numbers

    def _held_out(self, keys: np.ndarray) -> np.ndarray:
        if not self.holdout:
            return np.zeros(len(keys), bool)
        stream = mix(np.array([self.seed * 8 + _KINDS["held out"]]))
        return share_of(mix(keys.astype(np.uint64) ^ stream), self.holdout)


@functools.lru_cache(maxsize=16)
def _bias(clicks: SyntheticClicks) -> float:
    """The bias that gives the first examples the wanted rate, by bisection."""
    first = clicks._ids(keys := np.arange(_SEEN)), clicks._numeric(keys)
    signal = clicks.signal_of(*first)
    low, high = -100.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        above = _sigmoid(middle + signal).mean() > clicks.rate
        low, high = (low, middle) if above else (middle, high)
    return (low + high) / 2


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def synthetic_clicks(
    num_examples: int,
    fields: int = 8,
    buckets: int | tuple[int, ...] = 1000,
    *,
    numeric: int = 2,
    rate: float = 0.1,
    signal: float = 1.5,
    seed: int = 0,
    holdout: float = 0.0,
) -> TableStream:
    """A stream of clicks drawn on the fly; see `SyntheticClicks` for the planted truth.

    Args:
        num_examples: as in `SyntheticClicks`, and so are all that are not listed here.
        fields: categorical fields.
        buckets: rows of every field's table, or of each.
        signal: standard deviation of the true log-odds; 0 leaves nothing to learn.

    Returns:
        The stream; entering it at any `start` costs nothing unless there is a holdout.

    Raises:
        DataError: a number is out of range.

    Example:
        >>> stream = synthetic_clicks(10**12, fields=3, buckets=50)
        >>> window = next(stream.windows(4, start=10**11))
        >>> window.ids.shape, window.first, stream.schema.sizes
        ((4, 3), 100000000000, (50, 50, 50))
    """
    sizes = (buckets,) * fields if isinstance(buckets, int) else tuple(buckets)
    if len(sizes) != fields:
        raise DataError(
            f"buckets must be one number or one per field; got {len(sizes)} for "
            f"{fields} fields"
        )
    clicks = SyntheticClicks(num_examples, sizes, numeric, rate, signal, seed, holdout)
    schema = TableSchema(
        label="click",
        positive=("1",),
        categorical=tuple(Categorical(f"field{f}", n) for f, n in enumerate(sizes)),
        numeric=tuple(Numeric(f"number{d}") for d in range(numeric)),
    )
    text = json.dumps(["synthetic clicks", asdict(clicks)])
    return TableStream(schema, clicks, hashlib.sha256(text.encode()).hexdigest())
