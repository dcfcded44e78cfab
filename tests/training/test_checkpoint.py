"""Checkpoints: what is damaged is named and stepped over, what is foreign refused."""

import errno
import functools
import json
import os
import shutil
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.training import checkpoint
from churn_jax.training.checkpoint import (
    CheckpointClock,
    CheckpointError,
    Checkpoints,
    OtherConfiguration,
    checksum,
)

# A restore that Orbax gives up leaves coroutines that nobody awaited.
pytestmark = [
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
]


IDENTITY = json.dumps({"epochs": 2, "method": {"class": "ERM"}})


def tree(value):
    return {
        "w": jnp.asarray(np.random.default_rng(value).random((30, 7), np.float32)),
        "n": jnp.int32(value),
        "key": jax.random.split(jax.random.key(value), 2),
    }


def like():
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree(0)
    )


def save(folder, *steps):
    with closing(Checkpoints(folder, identity=IDENTITY)) as checkpoints:
        for step in steps:
            checkpoints.save(step, tree(step), {"updates_done": step})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with checkpoints of updates 8 and 16."""
    folder = tmp_path_factory.mktemp("saved")
    save(folder, 8, 16)
    return folder


@pytest.fixture
def two(saved, tmp_path):
    """A copy of it."""
    return shutil.copytree(saved, tmp_path / "two")


def restore(folder, identity=IDENTITY, **changes):
    with closing(Checkpoints(folder, identity=identity)) as checkpoints:
        return checkpoints.restore(like() | changes)


def assert_is(restored, step):
    assert restored.meta["updates_done"] == step
    assert jax.tree.structure(restored.tree) == jax.tree.structure(tree(step))
    np.testing.assert_array_equal(restored.tree["w"], tree(step)["w"])
    keys = (jax.random.key_data(of["key"]) for of in (restored.tree, tree(step)))
    np.testing.assert_array_equal(*keys)


def test_the_newest_comes_back_whole_and_nothing_of_an_empty_folder(two, tmp_path):
    assert_is(restore(two), 16)
    assert restore(two).skipped == ()
    assert restore(tmp_path / "new") is None


def test_only_the_newest_are_kept(two):
    save(two, 24)
    assert sorted(p.name for p in two.iterdir()) == ["16", "24"]


def _arrays(step):
    """Every file that may hold array data; Orbax keeps some twice."""
    files = [p for p in (step / "state").rglob("*") if p.parent.name == "d"]
    assert files
    return files


def truncate(paths, share=0.0):
    for path in paths:
        if path.is_file():
            os.truncate(path, int(share * path.stat().st_size))


def foreign_folder(step):
    shutil.rmtree(step)
    step.mkdir()
    (step / "model.pt").write_bytes(b"weights of another program")


DAMAGES = {
    "half of the arrays": lambda step: truncate(_arrays(step), 0.5),
    "empty files": lambda step: truncate(step.rglob("*")),
    "cut metadata": lambda step: truncate([step / "meta" / "metadata"], 0.1),
    "no state": lambda step: shutil.rmtree(step / "state"),
    "foreign folder": foreign_folder,
    "foreign metadata": lambda step: (step / "meta" / "metadata").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(two, damage):
    DAMAGES[damage](two / "16")
    before = sorted(p.name for p in (two / "16").rglob("*"))
    restored = restore(two)
    assert_is(restored, 8)
    (sentence,) = restored.skipped
    assert str(two / "16") in sentence and "cannot be read" in sentence
    assert "\n" not in sentence
    # Nothing is deleted, and the step can be saved again.
    aside = two / "16.unreadable"
    assert sorted(p.name for p in aside.rglob("*")) == before
    save(two, 16)
    assert_is(restore(two), 16)


def test_a_flipped_bit_is_found_wherever_it_matters(saved, tmp_path):
    """One bit of array data or metadata; harmless flips leave equal arrays."""
    rng, found = np.random.default_rng(0), 0
    for flip in range(10):
        folder = shutil.copytree(saved, tmp_path / str(flip))
        files = [folder / "16" / "meta" / "metadata", *_arrays(folder / "16")]
        path = files[flip % len(files)]
        content = bytearray(path.read_bytes())
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        restored = restore(folder)
        assert_is(restored, 8 if restored.skipped else 16)
        found += bool(restored.skipped)
    assert found >= 3


def test_arrays_other_than_those_written_are_found(two, monkeypatch):
    """Where the files can be read: storage that returned other bytes."""
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_compiled", lambda: lambda leaf: jnp.uint32(1))
        save(two, 24)
    restored = restore(two)
    assert_is(restored, 16)
    assert "24 cannot be read (the checksum of ['key'] differs" in restored.skipped[0]


def test_one_that_another_process_cannot_read_is_read_by_none(two, monkeypatch):
    answers = iter((True, False, False))  # of 16, of 8, of the barrier
    monkeypatch.setattr(checkpoint, "any_process", lambda own: next(answers))
    restored = restore(two)
    assert_is(restored, 8)
    assert "16 cannot be read (another process could" in restored.skipped[0]


def test_checksums_are_of_content_and_position_not_of_sharding():
    mesh = jax.make_mesh((2, 4), ("a", "b"))
    rng = np.random.default_rng(0)
    for dtype in (np.float32, jnp.bfloat16, np.int8, np.bool_):
        value = rng.integers(0, 2, (4, 8)).astype(dtype)
        expected = int(checksum(jnp.asarray(value)))
        specs = (("a", "b"), (None, "b"), ("b",), ())
        for spec in specs if dtype == np.float32 else specs[:1]:
            placed = jax.device_put(value, NamedSharding(mesh, P(*spec)))
            assert int(checksum(placed)) == expected
        assert int(checksum(jnp.asarray(value[::-1]))) != expected


def test_all_damaged_is_one_sentence_that_names_each(two):
    for step in ("8", "16"):
        truncate(_arrays(two / step), 0.5)
    with pytest.raises(CheckpointError, match="no checkpoint can be read") as error:
        restore(two)
    text = str(error.value)
    assert str(two / "8") in text and str(two / "16") in text and "--fresh" in text
    assert (two / "8").is_dir() and (two / "16").is_dir()


def test_other_shapes_are_not_restored(two):
    with pytest.raises(CheckpointError, match="no checkpoint can be read"):
        restore(two, w=jax.ShapeDtypeStruct((4, 7), jnp.float32))


def test_another_configuration_is_refused_naming_the_difference(two):
    other = json.dumps({"epochs": 3, "method": {"class": "ERM"}})
    with pytest.raises(OtherConfiguration) as error:
        restore(two, identity=other)
    text = str(error.value)
    assert str(two / "16") in text and "epochs: 2 there, 3 here" in text
    assert_is(restore(two), 16)


def test_another_module_is_refused_where_the_checkpoint_says_its_own(two, tmp_path):
    of = [{"modules": [("Net(", f"rate = {rate}", ")")]} for rate in (0.1, 0.9)]
    opened = functools.partial(Checkpoints, identity=IDENTITY)
    with closing(opened(two, also=of[0])) as older:  # whose checkpoints do not say it
        assert older.restore(like()).meta["updates_done"] == 16
    with closing(opened(tmp_path / "new", also=of[0])) as first:
        first.save(8, tree(8), {"updates_done": 8})
        assert first.restore(like()).meta["updates_done"] == 8
    with closing(opened(tmp_path / "new", also=of[1])) as other:
        said = r"\(modules\[0\]\[1\]: rate = 0.1 there, rate = 0.9 here\)"
        with pytest.raises(OtherConfiguration, match=said):
            other.restore(like())


def test_a_leftover_of_a_killed_write_is_no_checkpoint(two):
    left = two / "24.orbax-checkpoint-tmp-0"
    shutil.copytree(two / "16", left)
    assert_is(restore(two), 16)
    assert not left.exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None])
def test_a_full_disk_is_an_oserror_and_older_ones_stay(two, monkeypatch, number):
    said = os.strerror(number) if number else "something else"

    def full(*args, **kwargs):
        raise ValueError(f"INTERNAL: write failed: {said} [OS error]")

    with monkeypatch.context() as patch:
        patch.setattr(ocp.CheckpointManager, "save", full)
        with pytest.raises(OSError if number else ValueError, match=said) as error:
            save(two, 24)
    if number:
        assert error.value.errno == number
        assert error.value.filename == str(two)
    assert_is(restore(two), 16)


def test_the_first_checkpoint_comes_early(monkeypatch):
    now, saved = [0.0], []
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    clock = CheckpointClock(60.0)
    for second in range(140):
        now[0] = second
        if clock.due():
            saved.append(second)
            with clock.saving():
                pass
    assert saved == [16, 77, 138]
