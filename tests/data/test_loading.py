"""`load` on the embedded digits and on files: splits, sizes, ids and errors."""

import pathlib
import sys

import numpy as np
import pytest

from churn_jax.cli import main
from churn_jax.data import DataError, load, prepare
from tests.refusals import refusals


def _arrays(rng, count, shape=(4, 4, 1)):
    return rng.integers(0, 256, (count, *shape)).astype(np.uint8), np.arange(count) % 3


def _save(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.fixture
def two_splits(rng, tmp_path):
    (x, y), (u, v) = _arrays(rng, 50), _arrays(rng, 20)
    return _save(
        tmp_path / "two.npz", train_image=x, train_label=y, test_image=u, test_label=v
    )


@pytest.mark.parametrize("named", [False, True])
def test_a_smaller_form_averages_squares_and_keeps_splits_labels_and_ids(
    named, rng, tmp_path, capsys
):
    x, y = _arrays(rng, 30, (6, 4, 3))
    if named:
        y = np.array(["zebra", "apple", "moth"])[y % 3]
    train = {"train_image": x, "train_label": y, "train_id": np.arange(30) + 100}
    out = tmp_path / "a.npz"
    source = _save(tmp_path / "whole.npz", **train, test_image=x, test_label=y)
    assert main(["data", str(source), "--shrink", "2", "--out", str(out)]) == 0
    assert f"{out}: train 30, test 30 examples" in capsys.readouterr().out
    means = sum(x[:, i::2, j::2].astype(float) for i in (0, 1) for j in (0, 1)) / 4
    whole, small = load(source, validation=10), load(out, validation=10)
    assert small.class_names == (("apple", "moth", "zebra") if named else ())
    for name in ("train", "validation"):
        split, same = getattr(small, name), getattr(whole, name)
        np.testing.assert_array_equal(split.ids, same.ids)
        np.testing.assert_array_equal(split.labels, same.labels)
        expected = means[split.ids - 100]
        assert split.images.dtype == np.uint8 and split.images.shape[1:] == (3, 2, 3)
        assert np.abs(split.images - expected).max() <= 0.5
    assert small.test.ids.tolist() == [f"test/{i}" for i in range(30)]
    main(["data", str(source), "--out", str(out)])  # the same images: the same data set
    assert load(out, validation=10).fingerprint == whole.fingerprint
    for options, said in (
        (["--shrink", "4", "--out", str(out)], "divide the sides of the images, 6 x 4"),
        (["--shrink", "2"], "--shrink needs --out"),
        (["--out", str(tmp_path / "a.npy")], "must be called something.npz"),
    ):
        assert main(["data", str(source), *options]) == 2
        assert said in capsys.readouterr().err


def test_digits_are_cut_by_default():
    digits = load("digits")
    parts = (digits.train, digits.validation, digits.test)
    assert [len(part) for part in parts] == [700, 200, 897]
    assert len(set(np.concatenate([part.ids for part in parts]))) == 1797
    assert digits.num_classes == 10
    for part in parts:  # every class is in every split, none rare
        assert np.bincount(part.labels, minlength=10).min() >= 0.06 * len(part)
    # Golden: predictions files of all studies on digits refer to this data.
    golden = "2f601c44339e569cb607ae0b5f58ff8383b805f137c1c7086b97f08142228bdd"
    assert digits.fingerprint == golden


def test_sizes_take_nested_parts_of_the_training_set():
    small, large = load("digits", train_size=100), load("digits", train_size=400)
    assert (len(small.train), len(large.train)) == (100, 400)
    assert set(small.train.ids) < set(large.train.ids)
    np.testing.assert_array_equal(small.validation.ids, large.validation.ids)
    assert small.fingerprint != large.fingerprint
    assert small.fingerprint == load("digits", train_size=100).fingerprint

    few = load("digits", train_size=300, validation=50)
    many = load("digits", train_size=300, validation=0.5)
    assert (len(few.validation), len(many.validation)) == (50, 450)
    np.testing.assert_array_equal(few.train.ids, many.train.ids)
    np.testing.assert_array_equal(few.train.images, many.train.images)
    assert set(few.validation.ids) < set(many.validation.ids)

    everything = load("digits", validation=0)
    assert (len(everything.train), len(everything.validation)) == (900, 0)
    assert everything.validation.images.shape == (0, 8, 8, 1)


@pytest.mark.parametrize(
    "key", ["{}_image {}_label {}_id", "{}_images {}_labels {}_ids"]
)
def test_file_with_two_splits(rng, tmp_path, key):
    arrays = {}
    for split, count in (("train", 50), ("test", 20)):
        names = key.format(split, split, split).split()
        values = *_arrays(rng, count), np.array([f"{split}-{i}" for i in range(count)])
        arrays |= dict(zip(names, values, strict=True))
    data = load(_save(tmp_path / "a.npz", **arrays), validation=10)
    assert [len(s) for s in (data.train, data.validation, data.test)] == [40, 10, 20]
    first = key.split()[0].format("train")
    for split in (data.train, data.validation):
        rows = [int(name.removeprefix("train-")) for name in split.ids]
        np.testing.assert_array_equal(split.images, arrays[first][rows])
        np.testing.assert_array_equal(split.labels, np.array(rows) % 3)
    assert data.test.ids[-1] == "test-19"
    assert data.num_classes == 3


def test_a_validation_split_of_the_source_is_used_unless_another_is_asked_for(
    rng, tmp_path
):
    arrays = {}
    for split, count in (("train", 50), ("validation", 15), ("test", 20)):
        arrays[f"{split}_image"], arrays[f"{split}_label"] = _arrays(rng, count)
    path = _save(tmp_path / "three.npz", **arrays)
    own = load(path)
    assert (len(own.train), len(own.validation)) == (50, 15)
    assert own.validation.ids[0] == "validation/0"
    cut = load(path, validation=5)
    assert (len(cut.train), len(cut.validation)) == (45, 5)
    assert cut.validation.ids[0].startswith("train/")
    assert own.notes == () and "own 15 validation examples are not" in cut.notes[0]
    assert len(load(path, validation=0).validation) == 0


def test_a_pool_is_cut_the_same_way_every_time(rng, tmp_path):
    images, labels = _arrays(rng, 60)
    ids = np.arange(60) + 100
    path = _save(tmp_path / "pool.npz", images=images, labels=labels, ids=ids)
    data = load(path, validation=8)
    parts = (data.train, data.validation, data.test)
    assert [len(part) for part in parts] == [40, 8, 12]
    assert sorted(np.concatenate([p.ids for p in parts])) == list(range(100, 160))
    for part in parts:
        np.testing.assert_array_equal(part.images, images[part.ids - 100])
    assert load(path, validation=8).fingerprint == data.fingerprint


@pytest.mark.parametrize("dtype", ["U", "S"])
def test_a_pool_with_split_names_follows_them(rng, tmp_path, dtype):
    images, labels = _arrays(rng, 60)
    test = rng.permutation(60) < 20
    names = np.where(test, "test", "train").astype(dtype)
    path = _save(tmp_path / "p.npz", images=images, labels=labels, split=names)
    data = load(path, validation=0)
    np.testing.assert_array_equal(data.test.images, images[test])
    assert len(data.train) == 40


def test_tables_of_floats_and_signals_of_one_row_are_data_too(rng, tmp_path):
    for shape in ((5,), (1, 128, 16)):
        values = rng.normal(size=(60, *shape))
        path = _save(tmp_path / "t.npz", images=values, labels=np.arange(60) % 2)
        images = load(path).train.images
        assert images.shape == (43, *shape) and images.dtype == np.float32


def test_num_classes_is_checked(rng, tmp_path, two_splits):
    assert load(two_splits, num_classes=7).num_classes == 7
    with pytest.raises(DataError, match=r"0\.\.1 for num_classes=2; got 2"):
        load(two_splits, num_classes=2)
    with pytest.raises(DataError, match="digits has 10 classes; got num_classes=11"):
        load("digits", num_classes=11)
    stored = dict(np.load(two_splits))
    path = _save(tmp_path / "n.npz", **stored, num_classes=4)
    assert load(path).num_classes == 4
    for labels in (np.eye(3, dtype=int), np.array(["a", "b", "c"])):
        named = {n: labels[v] if "label" in n else v for n, v in stored.items()}
        path = _save(tmp_path / "n.npz", **named, num_classes=2)
        with pytest.raises(DataError, match="there are 3 classes; got num_classes=2"):
            load(path)
    path = _save(tmp_path / "n.npz", **stored, num_classes=[4, 5])
    with pytest.raises(DataError, match=r"must be one integer; got \[4, 5\]"):
        load(path)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (np.arange(50) % 10 + 1, np.arange(20) % 10 + 1, "no example has label 0"),
        (np.arange(50), np.arange(20) + 40, r"test: labels must lie in 0\.\.49, .* 59"),
        (np.append(np.arange(49), 10**9), np.arange(20), "1,000,000,001 classes of 50"),
        (np.append(np.arange(49), 2**32 + 1), np.arange(20), "2.31; got 4294967297 at"),
        (np.zeros(50, int), np.zeros(20, int), "needs at least two classes; got one"),
    ],
    ids=["from 1", "outside", "huge", "beyond int32", "one class"],
)
def test_labels_that_number_no_classes_are_refused(tmp_path, train, test, message):
    images = np.zeros((50, 4, 4, 1), np.uint8)
    arrays = {"train_image": images, "test_image": images[:20]}
    arrays |= {"train_label": train, "test_label": test}
    with pytest.raises(DataError, match=message):
        load(_save(tmp_path / "labels.npz", **arrays))
    if train.max() < 100:  # what is declared is meant
        declared = load(_save(tmp_path / "labels.npz", **arrays, num_classes=100))
        assert declared.num_classes == 100
    with pytest.raises(DataError, match=r"at most 1,048,576|2\^31"):
        load(_save(tmp_path / "labels.npz", **arrays, num_classes=10**9))


test_bad_sizes_are_named = refusals(
    ({"validation": 50}, "validation=50 leaves no training examples.* has 50"),
    ({"validation": -1}, "count of at least 0, or a fraction below 1; got -1"),
    ({"validation": 1.0}, "fraction below 1; got 1.0"),
    ({"validation": float("nan")}, "fraction below 1; got nan"),
    ({"validation": "10%"}, "fraction below 1; got '10%'"),
    ({"validation": True}, "fraction below 1; got True"),
    ({"train_size": 0}, "train_size must be a positive count; got 0"),
    ({"train_size": 0.5}, "train_size must be a positive count; got 0.5"),
    ({"train_size": 46}, "train_size=46 is more than the 45 .* validation=5 leave"),
    call=lambda path, arguments: load(path, **arguments),
    error=DataError,
    fixtures=["two_splits"],
)


X = np.zeros((3, 4, 4, 1), np.uint8)
BAD = {
    "other keys": {"x_train": np.zeros(3), "y_train": np.zeros(3)},
    "no arrays": {},
    "pickled": {"images": X, "labels": np.array([0, 1, None], object)},
    **{
        f"split {names}": {"images": X, "labels": range(3), "split": names.split()}
        for names in ("train test dev", "train test", "train train train")
    },
}


def load_bad(rng, tmp_path, kind):
    path = tmp_path / "bad.npz"
    if kind in BAD:
        np.savez(path, **BAD[kind])
    elif kind == "text":
        path.write_text("hello")
    elif kind == "damaged":
        x, y = _arrays(rng, 50)
        np.savez_compressed(path, images=x, labels=y)
        raw = bytearray(path.read_bytes())
        raw[120:160] = bytes(40)
        path.write_bytes(raw)
    load(path)


test_bad_files_give_one_sentence = refusals(
    ("missing", "there is no file .*bad.npz"),
    ("text", "cannot be read as an .npz file: it is not a NumPy .npz archive"),
    ("damaged", "cannot be read as an .npz file"),
    ("other keys", "must hold train_image.*; found x_train, y_train"),
    ("no arrays", "found none"),
    ("pickled", "cannot be read as an .npz file: labels: it holds pickled"),
    ("split train test dev", "one of train, validation, test; got 'dev'"),
    ("split train test", r"one string per example, \(3,\); got shape \(2,\)"),
    ("split train train train", "test: the split is empty .3 examples in all."),
    call=load_bad,
    error=DataError,
    fixtures=["rng", "tmp_path"],
)


def test_a_file_of_another_kind_is_not_taken_for_a_tfds_name(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("1,2")
    with pytest.raises(DataError, match=r"does not end in \.npz"):
        load(str(path))
    with pytest.raises(DataError, match=r"it is not a NumPy \.npz archive"):
        load(pathlib.Path(path))


@pytest.mark.parametrize("name", ["tensorflow_datasets", "promise"])
def test_only_tfds_names_need_tensorflow_datasets(name, monkeypatch, tmp_path):
    """TFDS logged a traceback without promise, and had "no attribute 'core'"."""
    monkeypatch.delitem(sys.modules, "churn_jax.data.tfds_source", raising=False)
    monkeypatch.setitem(sys.modules, name, None)  # as if it could not be installed
    assert load("digits").num_classes == 10
    for read in (load, prepare):
        with pytest.raises(DataError, match=f"need {name}: pip install {name} "):
            read("mnist", data_dir=tmp_path)
