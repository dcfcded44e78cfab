"""Deployed predictions of trained replicas over a whole split; nothing is dropped."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from churn_jax.data.augment import normalize
from churn_jax.data.records import Reading, StreamedSplit
from churn_jax.ensembles import apply_committee
from churn_jax.ensembles import mapping as slots
from churn_jax.methods import Method, deploy
from churn_jax.training.feed import Stream
from churn_jax.training.partition import DATA, REPLICA, join, place, replicate
from churn_jax.training.program import Program
from churn_jax.training.resident import flat_examples, shaped_examples

__all__ = ["make_predict", "placed", "predict_batches", "predict_split"]


def make_predict(
    program: Program,
    method: Method,
    *,
    every_member: bool = False,
    streamed: bool = False,
):
    """Compiles the prediction of one batch.

    Args:
        program: networks, mesh and mapping.
        method: how members are deployed.
        every_member: return `[R, M, B, C]` instead of the deployed prediction.
        streamed: images are a batch, sharded like the indices, instead of a whole
            split, replicated; indices are rows of the shard.

    Returns:
        `predict(params, model_state, images, indices) -> logits [R, B, C]`, float32;
        `indices [B]` are rows of `images`.
    """

    def local(params, model_state, images, indices):
        x = jnp.take(images, indices, axis=0, mode="clip")
        x = shaped_examples(x, program.example_shape)
        x = normalize(x, program.mean, program.std)
        count = jax.tree.leaves(params)[0].shape[0]

        def one(params, model_state):
            variables = [{**s, "params": p} for p, s in zip(params, model_state)]
            outputs, _ = apply_committee(
                program.groups,
                variables,
                x,
                member_axis=program.member_axis,
                mapping=program.member_mapping,
                train=False,
            )
            if every_member:
                return outputs.logits.astype(jnp.float32)
            return deploy(method, outputs.logits, outputs.gate)

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
        )
    )


def placed(
    examples: np.ndarray | StreamedSplit,
    program: Program,
    reading: Reading = Reading(),
) -> jax.Array | Stream:
    """What the two functions below take examples from.

    Args:
        examples: `[N, ...]`, or a split of a stream.
        program: on whose mesh they are placed.
        reading: threads and processes that read a stream.

    Returns:
        Rows on every device, or a stream.
    """
    if isinstance(examples, StreamedSplit):
        return Stream(examples, reading)
    rows = flat_examples(examples, program.example_shape)
    return replicate(rows, program.mesh)


def predict_split(
    predict,
    chunks: Sequence[tuple],
    images: jax.Array | Stream,
    mesh,
    *,
    batch_size: int,
) -> jax.Array:
    """Predictions for every row of `images`, in order.

    The last batch is padded with row 0 and the padding is cut off again, so one
    program serves all batches and no example is dropped.

    Args:
        predict: from `make_predict`.
        chunks: `(params, model_state)` per chunk of replicas.
        images: `[N, ...]`, replicated; or a stream, of which every batch is read
            once for all chunks, if `predict` is for streams.
        mesh: of the program.
        batch_size: rows per call, over all data shards.

    Returns:
        `[R, N, C]` (or `[R, M, N, C]`) float32 on the devices.
    """
    total = len(images.split) if isinstance(images, Stream) else images.shape[0]
    size = _call_size(total, batch_size, mesh.shape[DATA])
    pieces = [[] for _ in chunks]
    for batch, rows in _batches(images, total, size, mesh):
        for piece, (params, model_state) in zip(pieces, chunks, strict=True):
            piece.append(predict(params, model_state, batch, rows))
        if isinstance(images, Stream) and len(pieces[-1]) > 1:
            jax.block_until_ready(pieces[-1][-2])  # each waiting call holds a batch
    parts = []
    for piece in pieces:
        axis = piece[0].ndim - 2
        whole = piece[0] if len(piece) == 1 else jnp.concatenate(piece, axis=axis)
        parts.append(jax.lax.slice_in_dim(whole, 0, total, axis=axis))
    return join(parts)


def predict_batches(
    predict,
    chunks: Sequence[tuple],
    images: jax.Array | Stream,
    mesh,
    *,
    batch_size: int,
) -> Iterator[jax.Array]:
    """The same batch by batch, of which the devices hold two at most.

    Every batch has the same number of rows, a multiple of the number of devices, so
    that they can be spread over all of them; the last is padded with row 0.

    Args:
        predict: from `make_predict`.
        chunks: `(params, model_state)` per chunk of replicas.
        images: as in `predict_split`.
        mesh: of the program.
        batch_size: rows per call, over all devices.

    Yields:
        `[R, B, C]` float32 on the devices.
    """
    total = len(images.split) if isinstance(images, Stream) else images.shape[0]
    size = _call_size(total, batch_size, mesh.size)
    before = None
    for batch, rows in _batches(images, total, size, mesh):
        logits = join([predict(*chunk, batch, rows) for chunk in chunks])
        if before is not None:
            yield before
        before = logits
    if before is not None:
        yield before


def _call_size(total: int, batch_size: int, shards: int) -> int:
    """Rows per call: as asked, not more than there are, a multiple of the shards."""
    size = min(batch_size, -(-total // shards) * shards)
    return max(size // shards, 1) * shards


def _batches(images: jax.Array | Stream, total: int, size: int, mesh):
    """`(images, rows)` per call: all images with some rows, or some images whole."""
    if isinstance(images, Stream):
        share = np.arange(size, dtype=np.int32) % (size // mesh.shape[DATA])
        rows = place(share, mesh, P(DATA))
        for batch in images.in_order(size, mesh):
            yield batch, rows
        return
    numbers = np.arange(-(-total // size) * size, dtype=np.int32)
    numbers[total:] = 0
    for part in numbers.reshape(-1, size):
        yield images, place(part, mesh, P(DATA))
