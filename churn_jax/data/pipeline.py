"""Reading ahead by Grain, for data too large for device memory."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from churn_jax.data.splits import DataError, first_line


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
        read: function of a place that returns an array; picklable if there are
            workers.
        count: number of places, a multiple of `batch_size`.
        batch_size: places per batch.
        threads: threads that read, per worker.
        prefetch: places read ahead without workers; each worker is at most `threads`
            and three batches ahead.
        workers: processes that read, batch by batch in turn; 0 reads in this one.
            They import the main script again, which must guard what it runs.

    Yields:
        `count / batch_size` batches `[batch_size, ...]`. What `read` raises is
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
        yield from map(np.array, iterator)
    except RuntimeError as error:  # of a process that was killed
        raise DataError(
            f"a process that reads ended ({first_line(error)}); run again, or "
            "with workers=0"
        ) from error
    finally:
        iterator.close()  # ends the processes, also where nobody reads on
