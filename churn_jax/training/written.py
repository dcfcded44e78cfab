"""Predictions written by every process as they come, never whole on any of them."""

import functools
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.data.records import Reading, StreamedSplit
from churn_jax.data.splits import Split
from churn_jax.prediction_shards import ShardWriter, write_index, write_order
from churn_jax.predictions import PredictionsError
from churn_jax.training.partition import (
    DATA,
    MEMBER,
    REPLICA,
    any_process,
)
from churn_jax.training.predictions import make_predict, placed, predict_batches
from churn_jax.training.run import Trained

__all__ = ["Share", "write_predictions", "write_share"]


class Share:
    """Which examples a process writes: those whose rows lie on its devices.

    Rows of a batch are spread over all devices of the mesh, every one with all runs of
    its rows. Between data shards nothing moves.

    Args:
        mesh: of the program.
        devices: of the process.
        size: rows of a batch, a multiple of the number of devices.
        total: N, of all batches without the padding.

    Attributes:
        rows: `[n]` examples, in the order in which they come.
    """

    def __init__(self, mesh: Mesh, devices: Collection, size: int, total: int):
        self._sharding = NamedSharding(mesh, P(None, (DATA, REPLICA, MEMBER)))
        self._devices, self._total = set(devices), total
        parts = self._sharding.devices_indices_map((1, size)).items()
        held = [np.arange(size)[part[1]] for d, part in parts if d in self._devices]
        held = np.sort(np.concatenate([np.arange(0), *held]))
        rows = (np.arange(0, total, size)[:, None] + held).reshape(-1)
        self.rows = rows[rows < total]

    def take(self, logits: jax.Array, batch: int) -> np.ndarray:
        """The rows of a batch that the process writes.

        Args:
            logits: `[R, B, C]`, however they lie on the mesh.
            batch: its number.

        Returns:
            `[R, b, C]`.
        """
        spread = _spreading(self._sharding)(logits)
        size = logits.shape[1]
        left = self._total - batch * size
        parts = []
        for shard in spread.addressable_shards:
            if shard.device in self._devices:
                start = shard.index[1].indices(size)[0]
                if start < left:
                    parts.append((start, np.asarray(shard.data)[:, : left - start]))
        if not parts:
            return np.empty((logits.shape[0], 0, logits.shape[2]), np.float32)
        parts.sort(key=lambda part: part[0])
        return np.concatenate([rows for _, rows in parts], axis=1)


@functools.lru_cache(maxsize=16)
def _spreading(sharding: NamedSharding):
    return jax.jit(lambda logits: logits, out_shardings=sharding)


def write_predictions(
    trained: Trained,
    part: Split | StreamedSplit,
    folder: str | os.PathLike,
    *,
    weights: str = "config",
    dtype: str = "float32",
    meta: Mapping[str, Any] | None = None,
    reading: Reading = Reading(),
) -> Path:
    """Writes deployed logits of a split as `churn_jax.prediction_shards`.

    For predictions too large for `Trained.predict`, which returns `[R, N, C]` whole on
    every process. Here a process holds two batches of its own devices' rows and writes
    them into its shard of `folder`, which all processes must see. `churn_jax.compare`
    and `read_shards` read the folder, memory-mapped; `load_stored` gives it the order
    of the split again, which several processes keep in `order.npy`.

    Args:
        trained: the row.
        part: the examples.
        folder: where the shards go.
        weights: of `Trained.predict`.
        dtype: how logits are stored: float32, float16 or bfloat16.
        meta: JSON-ready facts; of the stopped runs they need the entry `"stopped"`.
        reading: threads and processes that read a stream.

    Returns:
        `folder`, finished on all processes.

    Raises:
        ValueError: there is no such set of weights.
        PredictionsError: numbers do not fit into `dtype`, or another process could not
            write its shard.
        OSError: the shard could not be written.
    """
    program, folder = trained.program, Path(folder)
    streamed = isinstance(part, StreamedSplit)
    batches = predict_batches(
        make_predict(program, trained.run.method, streamed=streamed),
        trained.chunks(weights),
        placed(part if streamed else part.images, program, reading),
        program.mesh,
        batch_size=trained.run.config.eval_batch_size,
    )
    failed = write_share(
        batches,
        program.mesh,
        (part.ids, part.labels),
        folder,
        shard=jax.process_index(),
        shards=jax.process_count(),
        devices=jax.local_devices(),
        dtype=dtype,
    )
    anywhere = any_process(failed is not None)
    if failed is None and not anywhere and jax.process_index() == 0:
        try:
            if jax.process_count() > 1:
                write_order(folder, jax.process_count(), part.ids)
            write_index(folder, jax.process_count(), meta)
        except (PredictionsError, OSError) as error:
            failed = error
    anywhere = any_process(failed is not None) or anywhere
    if failed is not None:
        raise failed
    if anywhere:
        raise PredictionsError(
            f"{folder}: another process could not write its shard; it says why"
        )
    return folder


def write_share(
    batches: Iterable[jax.Array],
    mesh: Mesh,
    examples: tuple[np.ndarray, np.ndarray],
    folder: Path,
    *,
    shard: int,
    shards: int,
    devices: Collection,
    dtype: str = "float32",
) -> PredictionsError | OSError | None:
    """Writes one process's shard.

    All batches are computed even if one cannot be written: the other processes take
    part in every one and would wait for ever.

    Args:
        batches: `[R, B, C]`, the last one padded.
        mesh: on which they lie.
        examples: ids and labels `[N]`.
        folder: of the shards.
        shard: number of the process.
        shards: how many processes there are.
        devices: of the process.
        dtype: how logits are stored.

    Returns:
        What went wrong; None if nothing did.
    """
    ids, labels = examples
    share: Share | None = None
    writer: ShardWriter | None = None
    failed: PredictionsError | OSError | None = None
    for number, logits in enumerate(batches):
        runs, size, classes = logits.shape
        share = share or Share(mesh, devices, size, len(ids))
        rows = share.take(logits, number)
        if failed is not None:
            continue
        try:
            if writer is None:
                held = share.rows
                of = ids[held], labels[held]
                writer = ShardWriter(folder, shard, shards, *of, runs, classes, dtype)
            writer.write(rows)
        except (PredictionsError, OSError) as error:
            failed = error
    if writer is not None:
        try:
            writer.close() if failed is None else writer.discard()
        except (PredictionsError, OSError) as error:
            failed = failed or error
    return failed
