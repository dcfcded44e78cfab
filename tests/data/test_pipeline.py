"""Grain batches: order, sharding by process, padding and resumption."""

import numpy as np
import pytest

from churn_jax.data import epoch_positions, grain_batches, load


@pytest.fixture(scope="module")
def source():
    return load("digits", train_size=53).train


def _batches(source, **changes):
    arguments = {"batch_size": 12, "seed": 3, "epoch": 1, "num_threads": 4}
    return list(grain_batches(source, **(arguments | changes)))


def _valid_ids(batches):
    return np.concatenate([batch["id"][batch["mask"]] for batch in batches])


def _assert_same(batches, others):
    assert len(batches) == len(others)
    for a, b in zip(batches, others, strict=True):
        assert a.keys() == b.keys() == {"image", "label", "id", "mask"}
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])


@pytest.mark.parametrize("seed", [3, None])
def test_every_example_comes_once_with_its_own_label_and_id(source, seed):
    batches = _batches(source, seed=seed)
    assert len(batches) == 5
    assert sum(batch["mask"].sum() for batch in batches) == 53
    assert sorted(_valid_ids(batches)) == sorted(source.ids)
    row = {name: i for i, name in enumerate(source.ids)}
    for batch in batches:
        assert batch["image"].shape == (12, 8, 8, 1)
        assert batch["image"].dtype == np.uint8
        assert (batch["label"].dtype, batch["mask"].dtype) == (np.int32, np.bool_)
        rows = [row[name] for name in batch["id"]]
        np.testing.assert_array_equal(batch["image"], source.images[rows])
        np.testing.assert_array_equal(batch["label"], source.labels[rows])


def test_order_is_a_function_of_seed_and_epoch(source):
    order = _valid_ids(_batches(source)).tolist()
    assert _valid_ids(_batches(source, num_threads=1, prefetch=1)).tolist() == order
    assert _valid_ids(_batches(source, batch_size=53)).tolist() == order
    assert _valid_ids(_batches(source, epoch=2)).tolist() != order
    assert _valid_ids(_batches(source, seed=4)).tolist() != order
    in_order = _valid_ids(_batches(source, seed=None)).tolist()
    assert in_order == source.ids.tolist()


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_each_global_batch_without_loss_or_overlap(source, processes):
    whole = _batches(source)
    parts = [
        _batches(source, process_index=i, process_count=processes)
        for i in range(processes)
    ]
    joined = [
        {key: np.concatenate([part[step][key] for part in parts]) for key in whole[0]}
        for step in range(len(whole))
    ]
    _assert_same(joined, whole)


def test_a_resumed_epoch_continues_where_it_stopped(source):
    whole = _batches(source)
    for start in (1, 5):
        _assert_same(_batches(source, start_step=start), whole[start:])


def test_transform_sees_one_record_and_its_result_is_batched(source):
    def halve(record):
        return {**record, "image": record["image"][::2, ::2].astype(np.float32)}

    batch = _batches(source, transform=halve)[0]
    assert batch["image"].shape == (12, 4, 4, 1)
    assert batch["image"].dtype == np.float32


def test_positions_hold_every_example_once_and_pad_the_end():
    positions = epoch_positions(1000, batch_size=64, seed=1, epoch=2)
    assert positions.shape == (16, 64)
    assert sorted(positions.reshape(-1)[:1000]) == list(range(1000))
    assert (positions.reshape(-1)[1000:] == -1).all()
    # Golden: a change would silently reorder the data of resumed runs.
    assert epoch_positions(6, batch_size=6, seed=1, epoch=2).tolist() == [
        [5, 3, 2, 1, 0, 4]
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": ()}, "must not be empty"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"process_count": 5}, "batch_size=12 and process_count=5"),
        ({"process_count": 2, "process_index": 2}, r"0\.\.1; got 2"),
        ({"seed": -1}, "seed=-1"),
        ({"epoch": -1}, "epoch=-1"),
        ({"start_step": 6}, r"start_step must lie in 0\.\.5; got 6"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(source, changes, message):
    arguments = {"source": source, "batch_size": 12, "seed": 3, "epoch": 1}
    with pytest.raises(ValueError, match=message):
        grain_batches(**(arguments | changes))
