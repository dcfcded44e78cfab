"""Predictions in a file or in shards: the same numbers, or one clear sentence."""

import json
import subprocess
import sys
import textwrap
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from churn_compare import store, stored_logits
from churn_compare.reading.sides import read_side
from churn_compare.store import (
    Predictions,
    PredictionsError,
    ShardWriter,
    load_predictions,
    read_shards,
    save_predictions,
    write_index,
)
from churn_compare.stored_logits import StoredLogits
from tests.cases import fails

R, N, C = 2, 23, 4


def _predictions(rng, R=3, N=7, C=4, ids=None, labels=None, meta=None):
    return Predictions(
        ids=np.arange(N) if ids is None else ids,
        labels=rng.integers(0, C, N) if labels is None else labels,
        logits=rng.normal(size=(R, N, C)).astype(np.float32),
        meta=meta or {},
    )


def assert_same(found, predictions):
    np.testing.assert_array_equal(found.ids, predictions.ids)
    np.testing.assert_array_equal(found.labels, predictions.labels)
    np.testing.assert_array_equal(found.logits, predictions.logits)
    assert found.meta == predictions.meta and found.shape == predictions.shape


@pytest.mark.parametrize("ids", [np.arange(7) * 3, [f"test/{i}é" for i in range(7)]])
def test_a_saved_file_loads_as_it_was(rng, tmp_path, ids):
    saved = _predictions(rng, ids=np.asarray(ids), meta={"method": "erm", "n": [1, 2]})
    loaded = load_predictions(save_predictions(tmp_path / "a" / "p.npz", saved))
    assert_same(loaded, saved)
    assert loaded.logits.dtype == np.float32
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["p.npz"]


def test_log_of_zero_probability_is_allowed():
    logits = np.log(np.eye(3, dtype=np.float32)[None] + 1e-30)
    logits[0, 0, 1] = -np.inf
    assert Predictions(np.arange(3), np.arange(3), logits).logits[0, 0, 1] == -np.inf
    logits[0, 2] = -np.inf  # but not for every class
    fails("run 0", Predictions, np.arange(3), np.arange(3), logits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": np.zeros((7, 4))}, r"logits must have shape \[R, N, C\].*\(7, 4\)"),
        ({"logits": np.zeros((2, 7, 1))}, r"two classes; got \(2, 7, 1\)"),
        ({"logits": np.zeros((2, 6, 4))}, r"ids \(7,\), .*logits \(2, 6, 4\)"),
        ({"logits": np.full((1, 7, 4), "x")}, "real numbers"),
        ({"labels": np.zeros(7)}, "labels must be integers; got float64"),
        ({"labels": np.zeros((7, 1), int)}, r"labels must have shape \[N\]"),
        ({"labels": np.array([0, -1, 0, -1, 0, 0, 0])}, "2 are negative"),
        ({"ids": np.array([0, 1, 1, 2, 2, 3, 4])}, "2 of 7 occur more than once.*1, 2"),
        ({"ids": np.zeros((7, 1), int)}, r"ids must have shape \[N\]"),
        ({"ids": np.linspace(0, 1, 7)}, "ids must be integers or strings"),
        ({"meta": 3}, "meta must be a dict; got int"),
        ({"meta": {"stopped": [5]}}, r"names runs \[5\].*only 3 runs"),
        ({"meta": {"stopped": [{"step": 1}]}}, "must list run numbers"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_shapes(rng, change, message):
    good = _predictions(rng)
    values = {n: getattr(good, n) for n in ("ids", "labels", "logits", "meta")}
    fails(message, Predictions, **values | change)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_logits_are_refused_unless_their_run_was_stopped(rng, value):
    good = _predictions(rng)
    logits = good.logits.copy()
    logits[1, [2, 4], 0] = value
    fails(r"run 1 .* 2 of 7 .* ids 2, 4", Predictions, good.ids, good.labels, logits)
    meta = {"stopped": [{"replica": 1, "term": "cross_entropy", "step": 3}]}
    assert Predictions(good.ids, good.labels, logits, meta).stopped == (1,)


def test_missing_and_foreign_files_are_named(tmp_path):
    path, three = tmp_path / "p.npz", np.arange(3)
    fails(r"p\.npz: .* does not exist", load_predictions, path)
    fails("is a folder", load_predictions, tmp_path)
    others = {"labels": np.zeros(2, int), "logits": np.eye(3)}
    for message, arrays in (
        (r"labels, logits missing.*ids, weights", {"ids": three, "weights": three}),
        ("not a predictions file", {}),
        ("ids: it holds pickled", others | {"ids": np.array([{}], object)}),
        (r"p\.npz: ids, labels and logits must have", others | {"ids": three}),
    ):
        np.savez(path, **arrays)
        fails(message, load_predictions, path)
    path.write_text("id,label\n")
    fails(r"not a NumPy \.npz archive", load_predictions, path)


def test_meta_that_json_cannot_hold_is_refused_before_writing(rng, tmp_path):
    bad = _predictions(rng, meta={"f": object()})
    fails("JSON-ready", save_predictions, tmp_path / "p.npz", bad)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file_and_no_half_file(rng, tmp_path):
    old = _predictions(rng)
    path = save_predictions(tmp_path / "p.npz", old)
    script = f"""
        import resource, numpy as np
        from churn_compare.store import Predictions, save_predictions
        new = Predictions(np.arange(5000), np.zeros(5000, int), np.ones((4, 5000, 10)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            save_predictions({str(path)!r}, new)
        except OSError as error:
            print("refused:", error)
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    assert "left as it was" in subprocess.check_output(words, text=True)
    assert [p.name for p in tmp_path.iterdir()] == ["p.npz"]
    np.testing.assert_array_equal(load_predictions(path).logits, old.logits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": np.arange(2, 9)}, r"2 of 7 ids .* first .*0, 1.*2 of 7.*7, 8"),
        ({"ids": np.array([1, 0, 2, 3, 4, 5, 6])}, "same ids are in another order"),
        ({"labels": np.array([0, 0, 0, 1, 0, 1, 0])}, "2 of 7 examples, .* ids 3, 5"),
    ],
)
def test_comparison_counts_what_differs(rng, change, message):
    labels = np.zeros(7, int)
    a = _predictions(rng, labels=labels)
    store.check_comparable(a, _predictions(rng, R=1, C=9, labels=labels))
    other = _predictions(rng, **{"labels": labels, **change})
    fails(message, store.check_comparable, a, other)
    large = np.arange(2**60, 2**60 + 7)  # as texts they stay texts
    ids = large, large.astype(str)
    store.check_comparable(*(_predictions(rng, labels=labels, ids=of) for of in ids))


def _drawn(rng, runs=R):
    ids = rng.permutation(N) * 3 + 1
    logits = rng.normal(size=(runs, N, C)).astype(np.float32)
    return ids, rng.integers(0, C, N), logits


def _write(folder, ids, labels, logits, parts, dtype="float32", meta=None, order=False):
    """A shard per array of rows in `parts`, as many processes would write them."""
    for shard, rows in enumerate(parts):
        facts = ids[rows], labels[rows], len(logits), logits.shape[-1], dtype
        with ShardWriter(folder, shard, len(parts), *facts) as writer:
            for start in range(0, len(rows), 4):
                writer.write(logits[:, rows[start : start + 4]])
    if order:
        store.write_order(folder, len(parts), ids)
    return write_index(folder, len(parts), meta).parent


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_written_batch_by_batch_is_read(
    rng, tmp_path, monkeypatch, shards, dtype
):
    ids, labels, logits = _drawn(rng)
    parts = np.array_split(rng.permutation(N), shards)
    meta = {"method": "erm"}
    found = read_shards(_write(tmp_path, ids, labels, logits, parts, dtype, meta=meta))
    order, side = np.concatenate(parts), read_side(tmp_path)
    stored = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    expected = logits[:, order].astype(stored).astype(np.float32)
    for of, values in ((found, found.logits), (side, side.values)):
        np.testing.assert_array_equal(of.ids, ids[order])
        np.testing.assert_array_equal(of.labels, labels[order])
        np.testing.assert_array_equal(values, expected)
    assert found.logits.dtype == stored
    assert found.meta == meta
    assert all(isinstance(part, np.memmap) for part in found.logits.parts)
    assert len(list(tmp_path.iterdir())) == 3 * shards + 1
    monkeypatch.setattr(stored_logits, "_MAPPED_BYTES", 1)
    for rows in (None, np.array([20, 3, 4, 19, 0])):
        reader = StoredLogits.of(found.logits, rows)
        wanted = expected[1] if rows is None else expected[1, rows]
        for _ in range(2):  # pages that were given back are read again
            out = np.empty(wanted.shape, reader.wide)
            np.testing.assert_array_equal(reader.read(1, 0, len(wanted), out), wanted)


def test_rows_are_picked_as_from_one_array(rng):
    whole = rng.normal(size=(3, 17, 2))
    cuts = [whole[:, a:b] for a, b in ((0, 5), (5, 5), (5, 6), (6, 17), (17, 17))]
    rows = StoredLogits(cuts)
    assert (rows.shape, rows.ndim, len(rows)) == (whole.shape, 3, 3)
    assert (rows.size, rows.nbytes) == (whole.size, whole.nbytes)
    together = slice(7, 12), np.arange(8, 12)
    picks = [np.array(rows, int) for rows in ([3], [16, 0, 5, 5], [], [-1, -17])]
    picks += [slice(a, b) for a in range(18) for b in range(a, 18)]
    for picked in (*picks, *together, np.arange(17) > 9, slice(1, 16, 4), 5):
        np.testing.assert_array_equal(rows[2, picked], whole[2, picked])
    assert all(np.shares_memory(rows[1, picked], whole) for picked in together)
    np.testing.assert_array_equal(rows[1], whole[1])
    chosen = rows[[2, 0]]
    assert isinstance(chosen, StoredLogits)
    np.testing.assert_array_equal(chosen, whole[[2, 0]])
    np.testing.assert_array_equal(chosen[0, 4:8], whole[2, 4:8])
    for wrong in ((3, 0), (0, 17), (0, [-18]), (0, 1.5), ([0, 1], 2)):
        with pytest.raises(IndexError):
            rows[wrong]


def _name(part, shard):
    return f"{part}-{shard:05d}-of-00002.npy"


@pytest.fixture
def written(rng, tmp_path):
    folder = tmp_path / "p"
    return _write(folder, *_drawn(rng), np.array_split(np.arange(N), 2))


def _index(**fields):
    return _bytes(store.INDEX, lambda c: json.dumps(json.loads(c) | fields).encode())


def _shard(part, array):
    return lambda folder: np.save(folder / _name(part, 1), array)


def _bytes(name, change):
    def write(folder):
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return write


def _twice(folder):
    np.save(folder / _name("ids", 1), np.load(folder / _name("ids", 0))[:11])


def _flip(part):
    """Flips the sign of the last number's upper byte."""
    return _bytes(_name(part, 1), lambda c: c[:-1] + bytes([c[-1] ^ 0x80]))


def _logits(shape, dtype=np.float32):
    return _shard("logits", np.zeros(shape, dtype))


LOGITS = _name("logits", 1)
DAMAGED = [
    (lambda d: (d / store.INDEX).unlink(), "no index.json, so these predictions are"),
    (lambda d: (d / LOGITS).unlink(), r"shard 1 of 2: is missing \(logits-00001-of-"),
    (_bytes(LOGITS, lambda c: c[:-5]), "needs 352 bytes and 347 are there; the fil"),
    (_bytes(LOGITS, lambda c: c[:8]), "shard 1 of 2: logits-00001-of-00002.npy is dam"),
    (_logits((R, 11, C + 1)), r"shard 1 of 2: .* logits \(2, 11, 5\) .*\(2, 12, 4\)"),
    (_logits((1, 11, C)), r"shard 1 of 2: .* logits \(1, 11, 4\) .*\(2, 12, 4\)"),
    (_logits((R, 11, C), np.float16), r"in float16; .* shard 0 are .* in float32"),
    (_logits((R, 11, C), float), r"logits \(2, 11, 4\) in float64; logits must be"),
    (_shard("ids", np.arange(3)), "it has 3 ids, 11 labels and logits"),
    (_twice, "11 ids occur more than once, for example .*in shard 0 and 1"),
    (_shard("labels", np.full(11, -1)), "labels must be at least 0; 11 are negative"),
    (_bytes(store.INDEX, lambda c: b"{"), "index.json is damaged"),
    (_index(format="x"), "index.json is not one of prediction shards"),
    (_index(version=2), "must have version 1 .* its version is 2"),
    (_flip("logits"), "logits-00001-of-00002.npy is damaged or of another writing"),
    (_flip("ids"), "ids-00001-of-00002.npy is damaged or of another writing"),
    (_index(checksums={}), "ids-00000-of-00002.npy .* its CRC-32 is not the one in i"),
    (_index(checksums=0), "index.json must have .*shards, checksums, meta"),
    (_index(shards=3), "shard 0 of 3: is missing"),
    (_index(shards=0), "one shard at least; got 0"),
    (_index(meta=[]), "index.json must have .*shards, checksums, meta"),
    (_index(examples=22), "says examples 22, the shards have 23; they were not"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGED)
def test_what_cannot_be_read_is_said_in_one_sentence(written, damage, message):
    damage(written)
    for read in (read_shards, read_side):
        if not (written / store.INDEX).exists() and read is read_side:
            continue  # then the folder is none of shards
        with pytest.raises(PredictionsError, match=message) as error:
            read(written)
        assert str(error.value).startswith(f"{written}: ")
        assert str(error.value).count(str(written)) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shard": 2}, "got shard 2 of 2"),
        ({"labels": [0]}, "as many ids as labels, .* 3 ids, 1 labels"),
        ({"labels": [0.0, 1.0, 2.0]}, "labels must be integers; got float64"),
        ({"ids": [[1, 2, 3]]}, r"ids must have shape .*\(1, 3\)"),
        ({"runs": 0}, "0 runs and 4 classes"),
        ({"classes": 1}, "2 runs and 1 classes"),
        ({"dtype": "float64"}, "float32, float16, bfloat16; got .* in float64"),
    ],
)
def test_a_writer_refuses_what_does_not_fit(tmp_path, change, message):
    given: dict[str, Any] = {"shard": 0, "shards": 2, "ids": [3, 1, 2]}
    given |= {"labels": [0, 1, 0], "runs": R, "classes": C, **change}
    fails(message, ShardWriter, tmp_path / "p", **given)
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("shape", "value", "message"),
    [
        ((R, 4, C), 0, "4 rows were written of 3 examples"),
        ((R, 3), 0, r"shape \[2, b, 4\]; got \(2, 3\)"),
        ((1, 3, C), 0, r"shape \[2, b, 4\]; got \(1, 3, 4\)"),
        ((R, 2, C), 0, "shard 0 of 1 has 3 examples, but only 2 rows were written"),
        ((R, 3, C), 7e4, "a logit of 70000 does not fit into float16"),
        ((R, 3, C), -3.4e38, r"a logit of 3\.4e\+38 does not fit into bfloat16"),
        ((R, 3, C), "a", "logits must be real numbers; got"),
        ((R, 3, C), 1j, "logits must be real numbers; got"),
    ],
)
def test_a_shard_that_fails_leaves_nothing(tmp_path, shape, value, message):
    with pytest.raises(PredictionsError, match=message):
        dtype = "bfloat16" if "bfloat16" in message else "float16"
        with ShardWriter(tmp_path, 0, 1, [3, 1, 2], [0, 1, 0], R, C, dtype) as w:
            logits = np.full(shape, value)
            w.write(logits.astype(np.float32) if logits.dtype.kind in "if" else logits)
    assert list(tmp_path.iterdir()) == []


def _of_ids(folder, *parts):
    for shard, ids in enumerate(parts):
        one = ids, np.zeros(len(ids), int), 1, 2
        with ShardWriter(folder, shard, len(parts), *one) as writer:
            writer.write(np.zeros((1, len(ids), 2)))
    return read_shards(write_index(folder, len(parts)).parent).ids


def test_ids_of_shards_are_joined_without_rounding_whatever_their_types(tmp_path):
    near = np.array([2**53 + 1], np.uint64)  # as floating point 2^53, another example
    assert _of_ids(tmp_path, near, np.array([2**53])).tolist() == [2**53 + 1, 2**53]
    large = np.array([2**63 + 1, 2**63 + 3], np.uint64)
    texts = [*map(str, large), "-5"]  # no integer of 64 bits holds them
    assert _of_ids(tmp_path, large, np.array([-5])).tolist() == texts
    names = np.array(["a", "bb"])
    for empty in (np.empty(0, int), np.empty(0, "U1")):
        assert _of_ids(tmp_path, names, empty).tolist() == ["a", "bb"]
        assert _of_ids(tmp_path, empty, names).tolist() == ["a", "bb"]
    found = _of_ids(tmp_path, np.empty(0, int), names, np.array([1]))
    assert found.tolist() == ["a", "bb", "1"]


def test_an_index_needs_facts_of_json_and_every_shard(rng, written):
    fails("meta must be JSON-ready", write_index, written, 2, {"a": object()})
    ids, labels, logits = _drawn(rng)
    with ShardWriter(written, 0, 2, ids[:12], labels[:12], R, C) as writer:
        writer.write(logits[:, :12])
    fails("not finished", read_shards, written)
    (written / _name("labels", 1)).unlink()
    fails("shard 1 of 2: is missing", write_index, written, 2)


def write_shared(folder, of, shards=2):
    """As processes do that take turns with the examples."""
    parts = [np.arange(shard, N, shards) for shard in range(shards)]
    order = shards > 1
    _write(folder, of.ids, of.labels, of.logits, parts, meta=of.meta, order=order)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_shards_in_place_of_a_file_are_what_the_file_would_be(rng, tmp_path, shards):
    path, expected = tmp_path / "predictions.npz", Predictions(*_drawn(rng), {"a": 1})
    assert not store.is_stored(path)
    write_shared(tmp_path / "predictions", expected, shards)
    assert store.is_stored(path) and store.is_stored(tmp_path / "predictions")
    assert_same(load_predictions(path), expected)
    assert_same(load_predictions(tmp_path / "predictions", whole=True), expected)
    other = Predictions(expected.ids, expected.labels, 2 * expected.logits, {"a": 1})
    save_predictions(path, other)  # a file comes first
    assert_same(load_predictions(path), other)


def test_many_logits_on_disk_are_in_the_splits_order(rng, tmp_path, monkeypatch):
    expected = Predictions(*_drawn(rng), {"a": 1})
    write_shared(tmp_path / "p", expected)
    monkeypatch.setattr(store, "WHOLE_BYTES", 4 * R * N * C)
    assert store.fits_whole(R * N * C) and not store.fits_whole(R * N * C + 1)
    assert load_predictions(tmp_path / "p").in_memory
    monkeypatch.setattr(store, "WHOLE_BYTES", 4 * R * N * C - 1)
    found = load_predictions(tmp_path / "p")
    assert not found.in_memory and found.shape == (R, N, C)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.labels, expected.labels)
    picked = np.array([7, 0, 10])
    np.testing.assert_array_equal(found.logits[1, picked], expected.logits[1, picked])
    parts = list(found.blocks([1, 0], numbers=2 * C * 4))
    assert [start for start, _ in parts] == [0, 4, 8, 12, 16, 20]
    together = np.concatenate([logits for _, logits in parts], axis=1)
    np.testing.assert_array_equal(together, expected.logits[[1, 0]])
    found.logits.give_back()  # what was read is read again
    np.testing.assert_array_equal(found.logits[0, picked], expected.logits[0, picked])
    (one, *_) = found.blocks([0], numbers=1)
    assert one[1].shape == (1, 1, C)  # never less than one example
    assert_same(found, expected)
    said, large = "p: this needs all logits .* 2 runs, 23", store.TooLargeError
    fails(said, load_predictions, tmp_path / "p", whole=True, of=large)


def test_what_stands_for_a_file_is_damaged_in_one_sentence(rng, tmp_path):
    expected, path = Predictions(*_drawn(rng), {"a": 1}), tmp_path / "predictions.npz"
    folder = store.shard_folder(path)
    fails(r"predictions.npz: .* does not exist", load_predictions, path)
    write_shared(folder, expected)
    np.save(folder / "order.npy", np.zeros(N, int))
    fails(r"order.npy is damaged or of another", load_predictions, path)
    write_index(folder, 2)
    fails(r"is not an order of 23 examples", load_predictions, path)
    (folder / "order.npy").write_bytes(b"no array")
    write_index(folder, 2)
    fails(r"order.npy is damaged \(", load_predictions, path)
    (folder / "order.npy").unlink()
    fails(r"order.npy is damaged or of another", load_predictions, path)
    for ids in (expected.ids + 1, expected.ids[1:]):
        said = f"23 examples, which are not the {len(ids)}"
        fails(said, store.write_order, folder, 2, ids)
    write_shared(folder, expected)
    # Another writing begins: the order and the index spoke of the last one.
    ShardWriter(folder, 0, 1, expected.ids, expected.labels, R, C).discard()
    assert not (folder / "order.npy").exists() and not store.is_stored(path)
    nothing = np.full((R, N, C), np.nan, np.float32)
    _write(folder, expected.ids, expected.labels, nothing, [np.arange(N)])
    fails(r"predictions: logits of run 0 are NaN", load_predictions, path)
