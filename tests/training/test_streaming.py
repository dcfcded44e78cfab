"""Training on a stream: the same as on resident data, and the same on every mesh."""

import dataclasses
import functools
import itertools
import threading
import time

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_compare.store import PredictionsError, read_shards
from churn_jax import data
from churn_jax.configuration.training import Seeds
from churn_jax.data.records import EncodedImages, Reading, StreamedSplit
from churn_jax.methods import ERM
from churn_jax.training import (
    Interrupted,
    MeshShape,
    partition,
    train,
    write_predictions,
)
from churn_jax.training.feed import Feed, Layout
from churn_jax.training.partition import make_mesh
from churn_jax.training.state import draw_sample, epoch_order
from tests.data.jpegs import CLASSES, example
from tests.training.digits import digits as all_digits
from tests.training.digits import digits_run
from tests.training.tiny import compilations

READING = Reading(threads=2)
EXAMPLES = 96
FIXED = Seeds(order="fixed", augment="off")
digits = functools.partial(all_digits, EXAMPLES)


def run_of(networks=1, **options):
    settings = {"epochs": 2, "batch_size": 16, "eval_batch_size": 64, "mapping": "vmap"}
    settings["augmentation"] = data.Augmentation(shift=1)
    method = ERM(members=networks)
    return digits_run(method, features=(8,), **settings | options)


def photos(count=EXAMPLES, size=8):
    """A split of crops of JPEGs in memory."""
    records = [{"image": example(i)} for i in range(count)]
    numbers = np.arange(count)
    labels = (numbers % CLASSES).astype(np.int32)
    source = EncodedImages(records, size)
    return StreamedSplit("photos", labels, numbers, numbers, source, READING)


def streamed(source=None, reading=READING):
    """The digits as a stream; `source` takes the place of the training images."""
    whole = data.stream(digits(), reading)
    if source is None:
        return whole
    train_split = dataclasses.replace(whole.train, source=source)
    return dataclasses.replace(whole, train=train_split)


@dataclasses.dataclass
class Counted:
    """Images in memory that count how often they are read, and may break."""

    images: np.ndarray
    breaks_at: int | None = None
    reads: int = 0
    at: dict = dataclasses.field(default_factory=dict)
    draws = False
    dtype = np.dtype(np.uint8)
    shape = (8, 8, 1)

    def image(self, row, key):
        self.reads += 1
        for count in [c for c in self.at if self.reads >= c]:
            self.at.pop(count)()
        if self.breaks_at is not None and self.reads >= self.breaks_at:
            raise ConnectionError("the storage is gone\nsecond line")
        return self.images[row]


def weights_of(trained):
    return jax.device_get((trained.last.params, trained.last.opt_state))


def assert_same(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **({"rtol": 0, "atol": 0} | tolerance))


def batches(split, epoch=0, update=None, steps=None, mesh=None, **options):
    """What the feed yields in an epoch, on the host."""
    config = run_of(**options).config
    mesh = mesh or make_mesh(config.mesh)
    feed = Feed(split, config, mesh)
    sample = draw_sample(
        config.seeds.keys("sample", config.numbers), len(split), config.sample
    )
    order = epoch_order(config.seeds.keys("order", config.numbers), sample, epoch)
    per_epoch = len(split) // config.batch_size
    first = epoch * per_epoch if update is None else update
    read = feed.batches(order, first)
    found = jax.device_get(list(itertools.islice(read, steps)))
    return found, feed, np.asarray(order), read


@pytest.fixture(scope="module")
def resident():
    return train(run_of(), digits())


@pytest.fixture(scope="module")
def fed(resident):
    with compilations() as names:
        trained = train(run_of(), streamed())
    assert sum("steps" in name for name in names) == 1
    return trained


def test_a_stream_trains_the_weights_that_resident_data_train(resident, fed):
    assert_same(weights_of(fed), weights_of(resident))


def test_no_example_is_dropped_in_evaluation(resident, fed):
    test = digits().test  # 897, not a multiple of 64
    expected = resident.predict(test.images)
    assert expected.shape == (2, 897, 10)
    np.testing.assert_array_equal(fed.predict(streamed().test), expected)
    # The same weights take arrays as well.
    np.testing.assert_array_equal(fed.predict(test.images), expected)


def test_a_trained_run_writes_what_it_predicts(resident, tmp_path):
    part = digits().test
    folder = write_predictions(resident, part, tmp_path / "p", meta={"stopped": []})
    found = read_shards(folder)
    np.testing.assert_array_equal(found.ids, part.ids)
    np.testing.assert_array_equal(found.labels, part.labels)
    assert found.meta == {"stopped": []}
    expected = resident.predict(part.images)
    np.testing.assert_allclose(found.logits, expected, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_written_is_an_error(resident, tmp_path):
    few = digits().test.take(slice(8))
    with pytest.raises(PredictionsError, match=r"bfloat16; got .* in float64"):
        write_predictions(resident, few, tmp_path / "p", dtype="float64")
    with pytest.raises(PredictionsError, match="JSON-ready"):
        write_predictions(resident, few, tmp_path / "p", meta={"a": object()})
    with pytest.raises(ValueError, match="weights must be config or ema"):
        write_predictions(resident, few, tmp_path / "p", weights="swa")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_predictions(resident, few, tmp_path / "file")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {
            "mapping": "loop",
            "mesh": MeshShape(1, 2, 2),
            "networks": 2,
            "seeds": Seeds(sample="varied"),
            "sample": "bootstrap",
        },
        {"mapping": "unroll", "mesh": MeshShape(1, 1, 4), "seeds": FIXED},
    ],
    ids=str,
)
def test_a_stream_equals_resident_data(options):
    whole = train(run_of(**options), digits())
    parts = train(run_of(**options), streamed())
    # A batch that replicas share is fused otherwise: the last bit may differ.
    assert_same(weights_of(parts), weights_of(whole), rtol=1e-5, atol=1e-6)
    assert parts.program.feed == ("shared" if FIXED in options.values() else "own")


@pytest.mark.parametrize(
    ("seeds", "kind"),
    [
        (Seeds(), "own"),
        (Seeds(order="fixed"), "own"),
        (Seeds(augment="off"), "own"),
        (Seeds(order="fixed", augment="fixed"), "shared"),
        (FIXED, "shared"),
    ],
)
def test_seeds_decide_what_is_drawn_and_what_replicas_share(seeds, kind):
    split = photos()
    found, feed, order, _ = batches(split, seeds=seeds, steps=2)
    assert feed.kind == kind
    keys = np.asarray(jax.random.key_data(seeds.keys("augment", (0, 1))))
    for step, (images, labels) in enumerate(found):
        for r in range(2):
            rows = order[r, step * 16 : (step + 1) * 16]
            mine = images[r] if kind == "own" else images
            np.testing.assert_array_equal(
                labels[r] if kind == "own" else labels, split.labels[rows]
            )
            for position in (0, 7, 15):
                key = (*keys[r].tolist(), step, position)
                if seeds.augment == "off":
                    key = None
                expected = split.image(int(rows[position]), key)
                np.testing.assert_array_equal(mine[position], expected)


def test_replicas_with_one_number_are_read_once():
    source = Counted(digits().train.images)
    split = dataclasses.replace(streamed().train, source=source)
    found, feed, *_ = batches(
        split, replicas=3, seed_numbers=(0, 5, 0), seeds=Seeds(init="fixed"), steps=6
    )
    assert feed.kind == "own" and source.reads == 2 * EXAMPLES
    for images, _ in found:
        np.testing.assert_array_equal(images[0], images[2])


def test_an_epoch_continues_anywhere():
    whole, *_ = batches(photos(), epoch=1)
    assert len(whole) == 6
    rest, *_ = batches(photos(), epoch=1, update=6 + 4)
    for a, b in zip(whole[4:], rest, strict=True):
        assert_same(a, b)
    other, *_ = batches(photos(), epoch=0)
    assert not np.array_equal(other[0][0], whole[0][0])


@pytest.mark.parametrize(
    ("shape", "seeds"), [(MeshShape(2, 1, 2), Seeds()), (MeshShape(1, 2, 4), FIXED)]
)
def test_batches_do_not_depend_on_the_mesh(shape, seeds):
    one, *_ = batches(photos(), seeds=seeds, steps=2)
    many, feed, _, read = batches(photos(), seeds=seeds, steps=2, mesh=make_mesh(shape))
    for a, b in zip(one, many, strict=True):
        assert_same(a, b)
    spec = P("replica", "data") if feed.kind == "own" else P("data")
    assert next(read)[0].sharding.spec == spec


class Part:
    """A sharding as one of several processes sees it."""

    def __init__(self, sharding, devices):
        self.sharding, self.devices = sharding, devices

    def addressable_devices_indices_map(self, shape):
        everything = self.sharding.addressable_devices_indices_map(shape)
        return {d: i for d, i in everything.items() if d in self.devices}


@pytest.mark.parametrize(
    ("shape", "streams"),
    [
        ((2, 2, 2), np.arange(4)),  # a process has copies for the members
        ((1, 1, 8), np.arange(4)),  # every replica, half of the batch
        ((1, 2, 4), None),
    ],
)
def test_two_processes_read_everything_and_nothing_twice(shape, streams):
    mesh = make_mesh(MeshShape(*shape))
    spec = P("data") if streams is None else P("replica", "data")
    sharding = jax.NamedSharding(mesh, spec)
    if shape == (1, 2, 4):  # processes side by side along the data axis
        parts = np.split(mesh.devices[0], 2, axis=1)
    else:
        parts = np.split(mesh.devices.ravel(), 2)
    layouts = [Layout(Part(sharding, p.ravel().tolist()), streams, 16) for p in parts]
    one, two = ({*map(tuple, layout.places.tolist())} for layout in layouts)
    assert not one & two
    count = 1 if streams is None else 4
    assert one | two == {(s, p) for s in range(count) for p in range(16)}
    assert len(one) == len(two)


def test_a_process_puts_together_what_its_devices_need():
    """Replica 2 shares stream 0, and its devices see the rows of that stream."""
    mesh = make_mesh(MeshShape(4, 1, 2))
    sharding = jax.NamedSharding(mesh, P("replica", "data"))
    layout = Layout(sharding, np.array([0, 1, 0, 2]), 16)
    block = 100 * layout.places[:, :1] + layout.places[:, 1:]  # which place it is
    placed = np.asarray(layout.place(block))
    expected = 100 * np.array([0, 1, 0, 2])[:, None] + np.arange(16)[None]
    np.testing.assert_array_equal(placed[..., 0], expected)


def test_reading_does_not_run_ahead_of_the_step_without_bound():
    source = Counted(digits().train.images)
    split = dataclasses.replace(streamed().train, source=source)
    _, _, _, read = batches(split, steps=1)
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        time.sleep(0.05)
    per_batch = 2 * 16
    # One batch was taken and one more is placed; READING.ahead are read ahead, and one
    # more is being put together.
    assert source.reads <= (2 + READING.ahead + 1) * per_batch
    assert source.reads < EXAMPLES * 2
    next(read)


def test_a_killed_stream_continues_in_the_middle_of_an_epoch(tmp_path, blocks_of, fed):
    blocks_of(1)
    stop = threading.Event()
    # In the middle of the second epoch of 6 updates of 2 x 16 images.
    source = Counted(digits().train.images, at={6 * 32 + 5: stop.set})
    with pytest.raises(Interrupted, match=r"after ([6-9]|1[01]) of 12 updates"):
        train(run_of(), streamed(source), directory=tmp_path, stop=stop)
    assert not source.at
    trained = train(run_of(), streamed(), directory=tmp_path)
    assert_same(weights_of(trained), weights_of(fed))


def test_long_epochs_are_saved_in_the_middle(tmp_path, blocks_of):
    blocks_of(2)
    source = Counted(digits().train.images, breaks_at=5 * 32)
    run = run_of(checkpoint_every_seconds=0.0)
    with pytest.raises(data.DataError) as caught:
        train(run, streamed(source), directory=tmp_path)
    text = str(caught.value)
    assert text.startswith("digits train: the image of record digits/")
    assert text.endswith("cannot be read (the storage is gone)")
    saved = [int(p.name) for p in (tmp_path / "checkpoints").iterdir()]
    assert saved and 0 < max(saved) < 6


def test_a_stream_takes_one_update_per_call():
    with pytest.raises(ValueError, match="one update per call; got steps_per_call 2"):
        train(run_of(steps_per_call=2), streamed())


def test_devices_hold_batches_not_the_set(fed):
    """What the session keeps of a stream is shapes."""
    from churn_jax.training.session import open_session

    session = open_session(run_of(), streamed())
    assert session.data[0] == jax.ShapeDtypeStruct((2, 16, 8, 8, 1), np.uint8)
    assert session.data[1] == jax.ShapeDtypeStruct((2, 16), np.int32)
    assert isinstance(session.held_out[0], StreamedSplit)
    assert partition.fetch(session.held_out[1]).shape == (50,)
