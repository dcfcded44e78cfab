"""Every example is predicted, and written, once and in order on every mesh."""

import errno
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.store import ShardWriter, read_shards, write_index
from churn_jax.data import normalize
from churn_jax.ensembles import Group, from_function
from churn_jax.methods import ERM, Codistillation
from churn_jax.training import MeshShape, OptimizerConfig, TrainConfig
from churn_jax.training.optim import Optimizer
from churn_jax.training.partition import DATA, REPLICA, make_mesh, place, replicate
from churn_jax.training.predictions import Share, placed, predict_batches, write_share
from churn_jax.training.program import Program

P = jax.sharding.PartitionSpec
EXAMPLES = 13
IMAGES = np.arange(EXAMPLES * 2, dtype=np.float32).reshape(EXAMPLES, 2)
ONE, SHARED = MeshShape(), MeshShape(2, 1, 4)


def batches(
    batch_size,
    shape=ONE,
    *,
    replicas=2,
    members=1,
    mapping="vmap",
    every_member=False,
    method=None,
    chunks=1,
    **normalised,
):
    """Batches of `scale * image`, the mesh, and the scale of each network `[R, M]`."""
    mesh = make_mesh(shape)
    network = from_function(lambda key, x: {}, lambda p, x: p["scale"] * x)
    program = Program(
        groups=(Group(network, members),),
        optimizer=Optimizer(OptimizerConfig(), 1, 1),
        batch_size=8,
        mesh=mesh,
        mapping=mapping,
        **{"mean": 0.0, "std": 1.0} | normalised,
    )
    scale = 1.0 + np.arange(replicas * members, dtype=np.float32)
    scale = scale.reshape(replicas, members)
    parts = scale.reshape(-1, chunks, members).transpose(1, 0, 2)
    held = [(({"scale": place(part, mesh, P(REPLICA))},), ({},)) for part in parts]
    method = method or ERM(members=members, deploy="member")
    config = TrainConfig(eval_batch_size=batch_size)
    run, images = SimpleNamespace(method=method, config=config), replicate(IMAGES, mesh)
    found = predict_batches(run, program, held, images, every_member, shards=mesh.size)
    return found, mesh, scale


def predictions(*args, **options):
    """All batches as one array `[R, ..., N, C]`, and the scales."""
    found, _, scale = batches(*args, **options)
    whole = np.concatenate([np.asarray(batch) for batch in found], axis=-2)
    return whole[..., :EXAMPLES, :], scale


EACH, CHUNKS = {"every_member": True}, {"mapping": "loop", "chunks": 2}


@pytest.mark.parametrize(
    ("batch_size", "options", "deployed"),
    [
        # Sizes are rounded to a multiple of the data shards, and nothing is lost.
        *((size, {}, 0) for size in (1, 5, 1000)),
        *((size, {"shape": SHARED}, 0) for size in (3, 11)),
        (6, {"members": 3, "method": Codistillation(members=3, deployed_member=1)}, 1),
        (5, {"members": 3, **EACH}, slice(None)),
        (5, {"members": 3, "mapping": "loop", **EACH}, slice(None)),
        (5, {"members": 2, "shape": MeshShape(2, 2, 2), **EACH}, slice(None)),
        # Replicas in chunks come in their order.
        (8, {"shape": MeshShape(2, 1, 2), "replicas": 4, **CHUNKS}, 0),
    ],
    ids=str,
)
def test_every_example_is_predicted_once_and_in_order(batch_size, options, deployed):
    logits, scale = predictions(batch_size, **options)
    np.testing.assert_array_equal(logits, scale[:, deployed, None, None] * IMAGES)


def test_images_are_normalised_as_in_training():
    logits, scale = predictions(4, mean=0.5, std=0.25)
    expected = np.asarray(normalize(jnp.asarray(IMAGES), 0.5, 0.25))
    np.testing.assert_allclose(logits, scale[:, :, None] * expected[None], rtol=1e-6)


IDS, LABELS = np.arange(EXAMPLES) * 5 + 2, np.arange(EXAMPLES) % 2


@pytest.mark.parametrize(
    ("shape", "batch_size", "processes"),
    [
        (MeshShape(data=8), 8, 2),
        (MeshShape(replica=2, member=2, data=2), 1, 4),
        (MeshShape(replica=4, data=2), 1000, 2),
    ],
    ids=str,
)
def test_every_example_is_written_once_with_all_its_runs(
    tmp_path, shape, batch_size, processes
):
    """Processes are groups of devices here, each of which writes its own rows."""
    devices = np.array_split(jax.devices()[: shape.size], processes)
    for number, own in enumerate(devices):
        found, mesh, scale = batches(
            batch_size, shape, replicas=4, members=shape.member
        )
        write_share(
            found,
            mesh,
            (IDS, LABELS),
            tmp_path,
            shard=number,
            shards=processes,
            devices=list(own),
        )
    write_index(tmp_path, processes)
    written = read_shards(tmp_path)
    held = [part.shape[1] for part in written.logits.parts]
    assert len(held) == processes
    if batch_size != 1000:
        assert min(held) > 0
    rows = np.argsort(written.ids)
    np.testing.assert_array_equal(written.ids[rows], IDS)
    np.testing.assert_array_equal(written.labels[rows], LABELS)
    expected = scale[:, :1, None] * IMAGES[None]
    for run in range(4):
        np.testing.assert_array_equal(written.logits[run, rows], expected[run])


def test_a_device_holds_all_runs_of_few_rows_and_no_more():
    """Of a batch that lies as replicas and data do, the rows move and nothing else."""
    mesh = make_mesh(MeshShape(replica=2, member=2, data=2))
    logits = np.arange(4 * 16 * 3, dtype=np.float32).reshape(4, 16, 3)
    placed = place(logits, mesh, P(REPLICA, DATA))
    shares = [Share(mesh, [device], 16, 29) for device in jax.devices()]
    assert sorted(len(share.rows) for share in shares) == [2, 3, 4, 4, 4, 4, 4, 4]
    np.testing.assert_array_equal(
        np.sort(np.concatenate([share.rows for share in shares])), np.arange(29)
    )
    for share in shares:
        first = share.rows[share.rows < 16]
        np.testing.assert_array_equal(share.take(placed, 0), logits[:, first])
        second = share.rows[share.rows >= 16] - 16
        np.testing.assert_array_equal(share.take(placed, 1), logits[:, second])


def test_a_full_disk_stops_the_writing_and_not_the_batches(tmp_path, monkeypatch):
    """Other processes take part in every batch; one that left would hang them."""
    found, mesh, _ = batches(4, MeshShape(data=2), replicas=4)
    asked, full = [], OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(ShardWriter, "write", mock.Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left") as failed:
        write_share(
            (asked.append(1) or batch for batch in found),
            mesh,
            (IDS, LABELS),
            tmp_path,
            shard=0,
            shards=1,
            devices=jax.devices(),
        )
    assert failed.value.errno == errno.ENOSPC
    assert len(asked) == -(-EXAMPLES // 4)
    assert list(tmp_path.iterdir()) == []


def test_a_prediction_needs_an_example():
    with pytest.raises(ValueError, match="no examples to predict; give at least one"):
        placed(IMAGES[:0], batches(4)[1])
