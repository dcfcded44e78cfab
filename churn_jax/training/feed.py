"""Streamed batches on the mesh: read ahead, placed ahead, the same on every mesh.

The order is `epoch_order`, as for data on the devices, and the way in which an image is
drawn depends only on (augmentation key, update, position in the global batch). So a
stream is a pure function of (seeds, epoch, update), whatever the mesh, the number of
processes and reading threads, and interruptions.
"""

import collections
import dataclasses
from collections.abc import Iterator

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.configuration.training import TrainConfig
from churn_jax.data.pipeline import read_ahead
from churn_jax.data.records import StreamedSplit
from churn_jax.training.partition import DATA, REPLICA, fetch, place

# Batches that are on the devices, or on their way there, before their step is called.
_PLACED = 2


class Layout:
    """The places of a global batch that this process reads, and how it joins them.

    A global batch is a table of places, S streams by B positions. `sharding` says which
    of them this process's devices need; every other place is left to other processes.
    `streams [R]` says which stream replica r takes; None is one for all.
    """

    def __init__(self, sharding: NamedSharding, streams: np.ndarray | None, batch: int):
        self.sharding, self.streams, self.batch = sharding, streams, batch
        count = 1 if streams is None else int(streams.max()) + 1
        needed = np.zeros((count, batch), bool)
        self.lead = (batch,) if streams is None else (len(streams), batch)
        indices = sharding.addressable_devices_indices_map(self.lead)
        for index in indices.values():
            needed[self._table(index)] = True
        self.places = np.argwhere(needed)  # in the order in which they are read
        self._slot = np.full(needed.shape, -1, np.int64)
        self._slot[needed] = np.arange(len(self.places))

    def _table(self, index):
        if self.streams is None:
            return (0, index[0])
        return self.streams[index[0]][:, None], np.arange(self.batch)[index[1]]

    def place(self, block: np.ndarray) -> jax.Array:
        """The block read at `places` as a global array `[(R,) B, ...]`."""

        def part(index):
            slots = self._slot[self._table(index)]
            first = int(slots.flat[0])
            if np.array_equal(slots.ravel(), np.arange(first, first + slots.size)):
                whole = block[first : first + slots.size]  # no copy
                return whole.reshape(*slots.shape, *block.shape[1:])
            return block[slots]

        shape = (*self.lead, *block.shape[1:])
        return jax.make_array_from_callback(shape, self.sharding, part)


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads the k-th place of a stream; picklable, for processes that read."""

    split: StreamedSplit
    rows: np.ndarray  # [S, steps * B], the example of every place
    places: np.ndarray  # [P, 2], the places of a batch that are read
    batch: int
    keys: np.ndarray | None  # [S, n], of the draws; None reads as in evaluation
    first: int  # number of the first batch's update

    def __call__(self, place: int) -> np.ndarray:
        step, number = divmod(int(place), len(self.places))
        stream, position = (int(x) for x in self.places[number])
        key = None
        if self.keys is not None:
            key = (*self.keys[stream].tolist(), self.first + step, position)
        row = self.rows[stream, step * self.batch + position]
        return self.split.image(int(row), key)


def _blocks(reader: _Reader) -> Iterator[np.ndarray]:
    size, reading = len(reader.places), reader.split.reading
    return read_ahead(
        reader,
        reader.rows.shape[1] // reader.batch * size,
        batch_size=size,
        threads=reading.threads,
        prefetch=reading.ahead * size,
        workers=reading.workers,
    )


def ahead(arrays: Iterator, count: int) -> Iterator:
    """The arrays, taken `count` earlier: transfers run while steps do."""
    waiting = collections.deque()
    for array in arrays:
        waiting.append(array)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


class Streams:
    """Which replicas share what is read of a stream: those with equal keys.

    `drawn` says whether images are drawn at random. If all replicas share, a batch has
    no replica axis (`kind` is `shared`); otherwise every replica has its own (`own`).
    """

    def __init__(self, config: TrainConfig, *, drawn: bool):
        factors = {"order": True, "sample": config.sample != "all", "augment": drawn}
        seeds, numbers = config.seeds, np.asarray(config.numbers)
        words = [
            np.asarray(jax.random.key_data(seeds.keys(factor, numbers)))
            for factor, counts in factors.items()
            if counts
        ]
        _, self.first, of_replica = np.unique(
            np.hstack(words), axis=0, return_index=True, return_inverse=True
        )
        self.kind = "own" if len(self.first) > 1 else "shared"
        self.of_replica = of_replica.reshape(-1) if self.kind == "own" else None
        self.keys = words[-1][self.first] if drawn else None  # of the draws


class Feed:
    """The batches of a streamed training set; see `Streams`."""

    def __init__(self, split: StreamedSplit, config: TrainConfig, mesh: Mesh):
        self.split, self.mesh, self.batch = split, mesh, config.batch_size
        drawn = split.source.draws and config.seeds.augment != "off"
        self._streams = Streams(config, drawn=drawn)
        self.kind, of = self._streams.kind, self._streams.of_replica
        self._spec = P(DATA) if of is None else P(REPLICA, DATA)
        self._layout = Layout(NamedSharding(mesh, self._spec), of, self.batch)

    def shapes(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        """Shapes of a batch's images and labels."""
        lead = self._layout.lead
        images = (*lead, *self.split.image_shape)
        return (
            jax.ShapeDtypeStruct(images, self.split.source.dtype),
            jax.ShapeDtypeStruct(lead, np.int32),
        )

    def batches(self, order: jax.Array, update: int) -> Iterator:
        """Images and labels of every update of an epoch, from `update` on.

        They are `[B, ...]`, or `[R, B, ...]`; the epoch has the `order [R, N]`.
        """
        whole = np.asarray(fetch(order))[self._streams.first]
        steps = whole.shape[1] // self.batch
        done = update % steps
        rows = whole[:, done * self.batch : steps * self.batch]
        streams, places = self._streams, self._layout.places
        reader = _Reader(self.split, rows, places, self.batch, streams.keys, update)
        each = 0 if streams.of_replica is None else streams.of_replica

        def read():
            for step, block in enumerate(_blocks(reader)):
                here = rows[:, step * self.batch : (step + 1) * self.batch]
                labels = self.split.labels[here][each]
                yield self._layout.place(block), place(labels, self.mesh, self._spec)

        return ahead(read(), _PLACED - 1)


def in_order(split: StreamedSplit, size: int, mesh: Mesh) -> Iterator[jax.Array]:
    """All images as in evaluation, `[size, ...]` at a time; the last are padded."""
    layout = Layout(NamedSharding(mesh, P(DATA)), None, size)
    rows = np.pad(np.arange(len(split)), (0, -len(split) % size))[None]
    reader = _Reader(split, rows, layout.places, size, None, 0)
    return ahead(map(layout.place, _blocks(reader)), _PLACED - 1)
