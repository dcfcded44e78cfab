"""Batches of data too large for device memory, read by Grain, sharded by process.

Which example is where in an epoch is a pure function of (seed, epoch), as for data that
lies on the device: `epoch_positions` makes the one permutation all processes share, and
a process reads its own slice of every global batch. The global batches are therefore
the same for any number of processes, and reading can start at any step.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np


class RecordSource(Protocol):
    """Random access to records `{"image", "label", "id"}`, such as a `Split`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> dict: ...


def epoch_positions(
    count: int, *, batch_size: int, seed: int | None, epoch: int = 0
) -> np.ndarray:
    """Which example fills each place of each global batch of an epoch.

    Raw PCG64 words seeded by (seed, epoch) are sorted; NumPy keeps those the same
    between versions.

    Args:
        count: number of examples N.
        batch_size: global batch size B.
        seed: order seed, at least 0; None keeps the order of the source (evaluation).
        epoch: number of the epoch, at least 0.

    Returns:
        `[ceil(N / B), B]` int64, every example once; places left over hold -1.

    Example:
        >>> epoch_positions(5, batch_size=2, seed=None).tolist()
        [[0, 1], [2, 3], [4, -1]]
    """
    if seed is None:
        order = np.arange(count)
    else:
        words = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
        order = np.argsort(words.random_raw(count), kind="stable")
    positions = np.full((-(-count // batch_size), batch_size), -1, np.int64)
    positions.reshape(-1)[:count] = order
    return positions


def grain_batches(
    source: RecordSource,
    *,
    batch_size: int,
    seed: int | None,
    epoch: int = 0,
    process_index: int = 0,
    process_count: int = 1,
    start_step: int = 0,
    transform: Callable[[dict], dict] | None = None,
    num_threads: int = 16,
    prefetch: int = 64,
) -> Iterator[dict[str, np.ndarray]]:
    """This process's part of an epoch's batches, in order, read ahead by threads.

    Nothing is dropped: the last batch is filled up with copies of example 0 that `mask`
    marks as padding, so every process takes the same number of steps.

    Args:
        source: a `Split`, `open_records(...)`, or anything else with random access.
        batch_size: global batch size B, a multiple of `process_count` P.
        seed: order seed; None keeps the order of the source (evaluation).
        epoch: number of the epoch; every epoch has its own order.
        process_index: this process, from 0 to P - 1.
        process_count: number of processes P.
        start_step: first step to yield; a resumed run continues as if not interrupted.
        transform: decodes or resizes one record; must return images of one shape.
        num_threads: threads that read records.
        prefetch: records read ahead.

    Yields:
        Per step `image [B/P, ...]`, `label [B/P]` int32, `id [B/P]` and `mask [B/P]`
        bool; process p holds places `p B/P .. (p+1) B/P - 1` of the global batch.

    Raises:
        ValueError: sizes, seeds or steps that do not fit; raised at the call.
    """
    count = len(source)
    if count == 0:
        raise ValueError("source must not be empty")
    if batch_size < 1 or process_count < 1 or batch_size % process_count:
        raise ValueError(
            "batch_size must be a positive multiple of process_count; got batch_size="
            f"{batch_size} and process_count={process_count}"
        )
    if not 0 <= process_index < process_count:
        raise ValueError(
            f"process_index must lie in 0..{process_count - 1}; got {process_index}"
        )
    if (seed is not None and seed < 0) or epoch < 0:
        raise ValueError(
            f"seed and epoch must be at least 0; got seed={seed} and epoch={epoch}"
        )
    positions = epoch_positions(count, batch_size=batch_size, seed=seed, epoch=epoch)
    if not 0 <= start_step <= len(positions):
        raise ValueError(
            f"start_step must lie in 0..{len(positions)}; got {start_step}"
        )
    local = batch_size // process_count
    mine = positions[start_step:, process_index * local : (process_index + 1) * local]
    if not len(mine):
        return iter(())

    places = mine.reshape(-1)

    def read(place):
        position = places[place]
        record = source[max(int(position), 0)]
        if transform is not None:
            record = transform(record)
        return {
            "image": np.asarray(record["image"]),
            "label": np.int32(record["label"]),
            "id": np.asarray(record["id"]),
            "mask": np.bool_(position >= 0),
        }

    return read_ahead(
        read, len(places), batch_size=local, threads=num_threads, prefetch=prefetch
    )


def read_ahead(
    read: Callable[[int], Any],
    count: int,
    *,
    batch_size: int,
    threads: int = 16,
    prefetch: int = 64,
    workers: int = 0,
) -> Iterator[Any]:
    """`read(0), read(1), ...` in order, batched, read ahead by Grain.

    Args:
        read: a place to an array, or a dict of them; picklable if there are workers.
        count: number of places, a multiple of `batch_size`.
        batch_size: places per batch.
        threads: threads that read, per worker.
        prefetch: places read ahead without workers; each worker is at most `threads`
            and three batches ahead.
        workers: processes that read, batch by batch in turn; 0 reads in this one.
            They import the main script again, which must guard what it runs.

    Yields:
        `count / batch_size` batches, leaves `[batch_size, ...]`. What `read` raises is
        raised where its batch would come.

    Example:
        >>> [batch.tolist() for batch in read_ahead(lambda i: i, 4, batch_size=2)]
        [[0, 1], [2, 3]]
    """
    # Grain takes about a second to import, which data in memory need not pay.
    import grain

    places = grain.MapDataset.range(count).map(read)
    if workers:
        from absl import flags

        if not flags.FLAGS.is_parsed():  # Grain's processes read them
            flags.FLAGS.mark_as_parsed()
        batches = places.batch(batch_size).to_iter_dataset(
            grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)
        )
        options = grain.MultiprocessingOptions(
            num_workers=workers, per_worker_buffer_size=2
        )
        return _from_processes(batches.mp_prefetch(options))
    reading = grain.ReadOptions(
        num_threads=threads, prefetch_buffer_size=max(prefetch, threads)
    )
    return iter(places.to_iter_dataset(reading).batch(batch_size))


def _from_processes(batches) -> Iterator[Any]:
    """Copies batches out of the memory that is shared with the reading processes."""
    iterator = iter(batches)
    try:
        for batch in iterator:
            if isinstance(batch, dict):
                yield {name: np.array(leaf) for name, leaf in batch.items()}
            else:
                yield np.array(batch)
    finally:
        iterator.close()  # ends the processes, also where nobody reads on
