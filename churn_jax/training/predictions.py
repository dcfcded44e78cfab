"""Deployed predictions of trained replicas over a whole split; nothing is dropped."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from churn_compare.store import PredictionsError, ShardWriter, write_index, write_order
from churn_jax.data.augment import normalize
from churn_jax.data.records import StreamedSplit
from churn_jax.data.splits import Split, check_layout
from churn_jax.ensembles import mapping as slots
from churn_jax.methods import deploy
from churn_jax.methods.base import Deployment
from churn_jax.training.feed import ahead, in_order
from churn_jax.training.partition import (
    DATA,
    MEMBER,
    REPLICA,
    any_process,
    flat_examples,
    join,
    place,
    replicate,
    shaped_examples,
    spreader,
)
from churn_jax.training.program import Program
from churn_jax.training.state import joined

if TYPE_CHECKING:
    from churn_jax.training.run import Run, Trained


@functools.lru_cache(maxsize=16)
def _make_predict(program: Program, how: Deployment, every_member, streamed):
    """Compiles `predict(params, model_state, images, indices) -> logits [R, B, C]`.

    `indices [B]` are rows of `images`, a split on every device, or a batch sharded like
    the indices if `streamed`. With `every_member` it returns `[R, M, B, C]` instead of
    the deployed prediction.
    """

    def local(params, model_state, images, indices):
        x = jnp.take(images, indices, axis=0, mode="clip")
        x = shaped_examples(x, program.example_shape)
        x = normalize(x, program.mean, program.std)
        count = jax.tree.leaves(params)[0].shape[0]

        def one(params, model_state):
            outputs, _ = program.apply(joined(params, model_state), x, train=False)
            if every_member:
                return outputs.logits.astype(jnp.float32)
            return deploy(how, outputs.logits, outputs.gate)

        together = program.mapping == "vmap" or program.at_once > 1
        mapping = "vmap" if together else "unroll"
        return slots.map_slots(one, (params, model_state), count=count, mapping=mapping)

    member = (None,) if every_member else ()
    where = P(DATA) if streamed else P()
    return jax.jit(
        jax.shard_map(
            local,
            mesh=program.mesh,
            in_specs=(program.slots, program.slots, where, P(DATA)),
            out_specs=P(REPLICA, *member, DATA),
            check_vma=True,
        ),
        compiler_options=program.compilation,
    )


def placed(
    examples: np.ndarray | Split | StreamedSplit, program: Program
) -> jax.Array | StreamedSplit:
    """Examples as the functions below take them: rows on every device, or a stream."""
    if not len(examples):
        raise ValueError("there are no examples to predict; give at least one")
    if isinstance(examples, StreamedSplit):
        return examples
    images = examples.images if isinstance(examples, Split) else examples
    check_layout("images", images)
    return replicate(flat_examples(images, program.example_shape), program.mesh)


def predict_split(
    run: Run, program: Program, chunks, images, every_member=False, of=lambda z: z
) -> jax.Array:
    """Predictions for every row of `images`, in order: `[R, N, C]` on the devices.

    `chunks` are `(params, model_state)` per chunk of replicas; `images` come from
    `placed`, and every batch of a stream is read once for all chunks. The last batch is
    padded with row 0 and cut afterwards, so all calls have one shape and no example is
    dropped. With `every_member` `[R, M, N, C]` instead of the deployed prediction; `of`
    is applied to each batch.
    """
    shards = program.mesh.shape[DATA]
    batches = predict_batches(run, program, chunks, images, every_member, shards=shards)
    pieces = list(map(of, batches))
    axis = pieces[0].ndim - 2
    whole = pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces, axis=axis)
    return jax.lax.slice_in_dim(whole, 0, len(images), axis=axis)


def predict_batches(
    run: Run, program: Program, chunks, images, every_member=False, *, shards: int
) -> Iterator[jax.Array]:
    """Predictions in batches `[R, B, C]`, the last one padded; B divides by `shards`.

    The next batch is computed while one is used, so the devices hold two at most.
    """
    # As many rows as are to be taken at once, at most all of them.
    size = min(run.config.eval_batch_size, -(-len(images) // shards) * shards)
    size = max(size // shards, 1) * shards
    how = Deployment(run.method.deploy, run.method.deployed_member)
    streamed = isinstance(images, StreamedSplit)
    predict = _make_predict(program, how, every_member, streamed)

    def computed() -> Iterator[jax.Array]:
        for batch, rows in _batches(images, size, program.mesh):
            yield join([predict(*chunk, batch, rows) for chunk in chunks])

    for logits in ahead(computed(), 1):
        # Each call on a stream that waits holds a batch.
        yield jax.block_until_ready(logits) if streamed else logits


def _batches(images: jax.Array | StreamedSplit, size: int, mesh: Mesh):
    """`(images, rows)` per call: all images with some rows, or some images whole."""
    if isinstance(images, StreamedSplit):
        share = np.arange(size, dtype=np.int32) % (size // mesh.shape[DATA])
        rows = place(share, mesh, P(DATA))
        for batch in in_order(images, size, mesh):
            yield batch, rows
        return
    numbers = np.arange(-(-len(images) // size) * size, dtype=np.int32)
    numbers[len(images) :] = 0
    for part in numbers.reshape(-1, size):
        yield images, place(part, mesh, P(DATA))


class Share:
    """The examples that a process writes: those whose rows lie on its devices.

    Rows of a batch are spread over all devices, each of which holds all replicas of its
    rows. `rows [n]` are the process's, in their order, of `total` in batches of `size`.
    """

    def __init__(self, mesh: Mesh, devices: Collection, size: int, total: int):
        self._sharding = NamedSharding(mesh, P(None, (DATA, REPLICA, MEMBER)))
        parts = self._sharding.devices_indices_map((1, size)).items()
        held = [(np.arange(size)[part[1]], d) for d, part in parts if d in devices]
        held.sort(key=lambda own: own[0][0])
        self._devices = [device for _, device in held]  # in the order of their rows
        own = np.concatenate([np.arange(0), *(rows for rows, _ in held)])
        rows = np.arange(0, total, size)[:, None] + own
        self._counts = np.sum(rows < total, axis=1)  # of each batch
        self.rows = rows[rows < total]

    def take(self, logits: jax.Array, batch: int) -> np.ndarray:
        """The process's rows `[R, b, C]` of batch number `batch`, `[R, B, C]`."""
        shards = spreader(self._sharding)(logits).addressable_shards
        held = {shard.device: shard.data for shard in shards}
        none = np.empty((logits.shape[0], 0, logits.shape[2]), np.float32)
        rows = [np.asarray(held[device]) for device in self._devices]
        return np.concatenate([none, *rows], axis=1)[:, : self._counts[batch]]


def write_predictions(
    trained: Trained,
    part: Split | StreamedSplit,
    folder: str | os.PathLike,
    *,
    weights: str = "config",
    dtype: str = "float32",
    meta: Mapping[str, Any] | None = None,
) -> Path:
    """Writes deployed logits of a split as shards of `churn_compare.store`.

    For predictions too large for `Trained.predict`, which returns `[R, N, C]` whole on
    every process. Here a process holds two batches of its own devices' rows and writes
    them into its shard of `folder`, which all processes must see. `churn_jax.compare`
    and `read_shards` read the folder, memory-mapped; `load_predictions` restores the
    order of the split, which several processes keep in `order.npy`.

    Args:
        trained: result of `train`.
        part: split whose examples are predicted.
        folder: folder of the shards.
        weights: as in `Trained.predict`.
        dtype: how logits are stored: float32, float16 or bfloat16.
        meta: JSON-ready facts; stopped runs are recorded in its entry `"stopped"`.

    Returns:
        `folder`, finished on all processes.

    Raises:
        ValueError: there is no such set of weights.
        PredictionsError: numbers do not fit into `dtype`, or another process could not
            write its shard.
        OSError: the shard could not be written.
    """
    program, folder = trained.program, Path(folder)
    held, images = trained.chunks(weights), placed(part, program)
    shards = program.mesh.size  # batches are spread over all devices
    batches = predict_batches(trained.run, program, held, images, shards=shards)
    processes = jax.process_count()
    failed: PredictionsError | OSError | None = None
    share = functools.partial(
        write_share,
        batches,
        program.mesh,
        (part.ids, part.labels),
        folder,
        shard=jax.process_index(),
        shards=processes,
        devices=jax.local_devices(),
        dtype=dtype,
    )

    def index() -> None:
        if jax.process_index() == 0:
            if processes > 1:
                write_order(folder, processes, part.ids)
            write_index(folder, processes, meta)

    for write in (share, index):
        try:
            write()
        except (PredictionsError, OSError) as error:
            failed = error
        if any_process(failed is not None):
            raise failed or PredictionsError(
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
) -> None:
    """Writes the shard of process `shard`.

    `examples` are ids and labels `[N]`; the last of the batches `[R, B, C]` is padded.
    """
    ids, labels = examples
    batches = iter(batches)
    if (first := next(batches, None)) is None:
        return
    share = Share(mesh, devices, first.shape[1], len(ids))
    begun = share.take(first, 0)
    del first  # so that the devices hold two batches at most
    parts = itertools.chain([begun], map(share.take, batches, itertools.count(1)))
    runs, _, classes = begun.shape
    try:
        of = ids[share.rows], labels[share.rows]
        with ShardWriter(folder, shard, shards, *of, runs, classes, dtype) as writer:
            for rows in parts:
                writer.write(rows)
    except (PredictionsError, OSError):
        # All batches are computed even if one cannot be written: the other processes
        # take part in every one and would wait for ever.
        for _ in parts:
            pass
        raise
