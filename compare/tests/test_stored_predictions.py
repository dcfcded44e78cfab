"""A path stands for a file or for shards: the same predictions, or one sentence."""

import numpy as np
import pytest

from churn_compare import store
from churn_compare.store import (
    Predictions,
    PredictionsError,
    ShardWriter,
    StoredLogits,
    TooLargeError,
    fits_whole,
    is_stored,
    load_predictions,
    save_predictions,
    shard_folder,
    write_index,
    write_order,
)

R, N, C = 2, 11, 3


def drawn(rng):
    logits = rng.normal(size=(R, N, C)).astype(np.float32)
    return Predictions(rng.permutation(N) * 2, rng.integers(0, C, N), logits, {"a": 1})


def write_shared(folder, predictions, shards=2):
    """As processes do that take turns with the examples."""
    for shard in range(shards):
        rows = slice(shard, None, shards)
        ids, labels = predictions.ids[rows], predictions.labels[rows]
        with ShardWriter(folder, shard, shards, ids, labels, R, C) as writer:
            writer.write(predictions.logits[:, rows])
    if shards > 1:
        write_order(folder, shards, predictions.ids)
    write_index(folder, shards, predictions.meta)


def assert_same(found, predictions):
    np.testing.assert_array_equal(found.ids, predictions.ids)
    np.testing.assert_array_equal(found.labels, predictions.labels)
    np.testing.assert_array_equal(found.logits, predictions.logits)
    assert found.meta == predictions.meta and found.shape == (R, N, C)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_shards_in_place_of_a_file_are_what_the_file_would_be(rng, tmp_path, shards):
    path, expected = tmp_path / "predictions.npz", drawn(rng)
    assert not is_stored(path)
    write_shared(tmp_path / "predictions", expected, shards)
    assert is_stored(path) and is_stored(tmp_path / "predictions")
    assert_same(load_predictions(path), expected)
    assert_same(load_predictions(tmp_path / "predictions", whole=True), expected)
    other = Predictions(expected.ids, expected.labels, 2 * expected.logits, {"a": 1})
    save_predictions(path, other)  # a file comes first
    assert_same(load_predictions(path), other)


def test_many_logits_stay_on_the_disk_and_are_read_in_the_splits_order(
    rng, tmp_path, monkeypatch
):
    expected = drawn(rng)
    write_shared(tmp_path / "p", expected)
    monkeypatch.setattr(store, "WHOLE_BYTES", 4 * R * N * C)
    assert fits_whole(R * N * C) and not fits_whole(R * N * C + 1)
    assert load_predictions(tmp_path / "p").in_memory
    monkeypatch.setattr(store, "WHOLE_BYTES", 4 * R * N * C - 1)
    found = load_predictions(tmp_path / "p")
    assert not found.in_memory and found.shape == (R, N, C)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.labels, expected.labels)
    picked = np.array([7, 0, 10])
    np.testing.assert_array_equal(found.logits[1, picked], expected.logits[1, picked])
    parts = list(found.blocks([1, 0], numbers=2 * C * 4))
    assert [start for start, _ in parts] == [0, 4, 8]
    together = np.concatenate([logits for _, logits in parts], axis=1)
    np.testing.assert_array_equal(together, expected.logits[[1, 0]])
    found.logits.give_back()  # what was read is read again
    np.testing.assert_array_equal(found.logits[0, picked], expected.logits[0, picked])
    (one, *_) = found.blocks([0], numbers=1)
    assert one[1].shape == (1, 1, C)  # never less than one example
    assert_same(found, expected)
    with pytest.raises(TooLargeError, match=r"p: this needs all logits .* 2 runs, 11"):
        load_predictions(tmp_path / "p", whole=True)


def test_stopped_runs_are_read_from_the_facts():
    logits = StoredLogits([np.zeros((3, 2, 2), np.float16)])
    stopped = {"stopped": [{"replica": 2}]}
    found = Predictions(np.arange(2), np.zeros(2, int), logits, stopped)
    assert found.stopped == (2,) and found.logits[0].dtype == np.float32


def test_what_cannot_be_read_is_said_in_a_sentence(rng, tmp_path):
    expected, path = drawn(rng), tmp_path / "predictions.npz"
    folder = shard_folder(path)
    with pytest.raises(PredictionsError, match=r"predictions.npz: .* does not exist"):
        load_predictions(path)
    write_shared(folder, expected)
    np.save(folder / "order.npy", np.zeros(N, int))
    with pytest.raises(PredictionsError, match=r"order.npy is damaged or of another"):
        load_predictions(path)
    write_index(folder, 2)
    with pytest.raises(PredictionsError, match=r"order.npy is no order of 11 examples"):
        load_predictions(path)
    (folder / "order.npy").write_bytes(b"no array")
    write_index(folder, 2)
    with pytest.raises(PredictionsError, match=r"order.npy is damaged \("):
        load_predictions(path)
    (folder / "order.npy").unlink()
    with pytest.raises(PredictionsError, match=r"order.npy is damaged or of another"):
        load_predictions(path)
    with pytest.raises(PredictionsError, match="11 examples, which are not the 11"):
        write_order(folder, 2, expected.ids + 1)
    with pytest.raises(PredictionsError, match="11 examples, which are not the 10"):
        write_order(folder, 2, expected.ids[1:])
    write_shared(folder, expected)
    # Another writing begins: the order and the index spoke of the last one.
    ShardWriter(folder, 0, 1, expected.ids, expected.labels, R, C).discard()
    assert not (folder / "order.npy").exists() and not is_stored(path)
    nothing = np.full((R, N, C), np.nan, np.float32)
    with ShardWriter(folder, 0, 1, expected.ids, expected.labels, R, C) as writer:
        writer.write(nothing)
    write_index(folder, 1)
    with pytest.raises(PredictionsError, match=r"predictions: logits of run 0 are NaN"):
        load_predictions(path)
