"""Sets read image by image: cuts, crops, ids, fingerprints, errors, processes."""

import functools

import numpy as np
import pytest

from churn_jax import data
from churn_jax.data import DataError, Reading, is_streaming, load_streaming, stream
from churn_jax.data.crop import centre_crop, decode_crop, random_crop
from churn_jax.data.pipeline import _from_processes, read_ahead
from tests.data.jpegs import CLASSES, example, prepare_jpegs
from tests.refusals import refusals

SIZE = 16


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    kinds = ("imagenet", "naturalist", "bytes", "corrupt")
    folder = prepare_jpegs(tmp_path_factory.mktemp("tfds"), *kinds)
    data.prepare("churn_probe/ragged", data_dir=folder)
    return folder


def load(data_dir, kind="imagenet", **options):
    name = f"churn_jpegs/{kind}"
    return load_streaming(name, data_dir=data_dir, image_size=SIZE, **options)


def number(name):
    """Which example an id stands for."""
    return int("".join(c for c in name if c.isdigit()))


@pytest.mark.parametrize("kind", ["imagenet", "naturalist", "bytes"])
def test_images_are_the_crops_of_the_files_that_ids_name(data_dir, kind):
    loaded = load(data_dir, kind)
    assert (len(loaded.train), len(loaded.validation), len(loaded.test)) == (36, 4, 11)
    assert loaded.num_classes == CLASSES
    train_ids = [*loaded.train.ids, *loaded.validation.ids]
    assert sorted(number(i) for i in train_ids) == list(range(40))
    for split in (loaded.train, loaded.validation, loaded.test):
        assert split.image_shape == (SIZE, SIZE, 3)
        for i, (name, label) in enumerate(zip(split.ids, split.labels, strict=True)):
            encoded = example(number(name))
            assert label == number(name) % CLASSES
            np.testing.assert_array_equal(
                split.image(i), decode_crop(encoded, centre_crop, SIZE)
            )
            np.testing.assert_array_equal(
                split.image(i, (3, i)),
                decode_crop(encoded, lambda w, h, i=i: random_crop(w, h, (3, i)), SIZE),
            )


def test_a_stream_is_cut_as_a_loaded_set_is(data_dir):
    whole = load(data_dir, validation=0)
    small = load(data_dir, validation=10, train_size=5)
    smaller = load(data_dir, validation=10, train_size=3)
    assert len(whole.train) == 40 and len(whole.validation) == 0
    assert set(smaller.train.ids) < set(small.train.ids)
    assert not set(small.validation.ids) & set(small.train.ids)
    assert len({x.fingerprint for x in (whole, small, smaller)}) == 3
    again = load(data_dir, validation=10, train_size=5)
    assert again.fingerprint == small.fingerprint
    other = load_streaming(
        "churn_jpegs/imagenet", data_dir=data_dir, image_size=8, validation=0
    )
    assert other.fingerprint != whole.fingerprint


def test_labels_and_ids_are_read_once(data_dir, monkeypatch):
    first = load(data_dir)
    calls = []
    again = load(data_dir, on_progress=lambda *args: calls.append(args))
    assert calls == [] and again.fingerprint == first.fingerprint
    kept = next(data_dir.rglob("imagenet/*/churn_jax_train.npz"))
    kept.write_bytes(kept.read_bytes()[:50])  # as a full disk leaves it
    monkeypatch.setattr("churn_jax.data.streaming._CHUNK", 16)
    again = load(data_dir, on_progress=lambda *args: calls.append(args))
    assert calls == [("train", done, 40) for done in (16, 32, 40)]
    assert again.fingerprint == first.fingerprint


def test_decoded_pixels_of_any_size_are_streamed_too(data_dir):
    loaded = load_streaming("churn_probe/ragged", data_dir=data_dir, image_size=4)
    assert (len(loaded.train), len(loaded.validation), len(loaded.test)) == (30, 9, 12)
    for i in range(len(loaded.train)):
        row = int(loaded.train.ids[i].split("/")[1])
        image = loaded.train.image(i, (i,))
        assert image.shape == (4, 4, 3) and np.ptp(image) == 0
        assert loaded.train.labels[i] == image[0, 0, 0] % 3
        assert loaded.train.rows[i] == row


def test_a_corrupt_record_is_one_sentence_with_its_id(data_dir):
    loaded = load(data_dir, "corrupt", validation=0)
    bad = loaded.train.ids.tolist().index("n0007.JPEG")
    with pytest.raises(
        DataError, match=r"corrupt train: the image of record n0007.JPEG cannot be read"
    ) as caught:
        loaded.train.image(bad)
    assert "\n" not in str(caught.value)
    assert loaded.train.image(bad - 1).shape == (SIZE, SIZE, 3)


def load_bad(data_dir, options):
    load_streaming(**{"name": "churn_jpegs/imagenet"} | options, data_dir=data_dir)


test_bad_arguments_give_one_sentence = refusals(
    ({"image_size": 0}, "image_size must be at least 1"),
    ({"validation": 40}, "validation=40 leaves no training examples"),
    ({"train_size": 41}, "train_size=41 is more than the 36"),
    ({"name": "churn_jpgs"}, "neither 'digits'"),
    ({"name": "imagenet2012"}, "imagenet2012 is not prepared in"),
    call=load_bad,
    error=DataError,
    fixtures=["data_dir"],
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("imagenet2012", True),
        ("tfds:i_naturalist2018", True),
        ("i_naturalist2017:0.1.0", True),
        ("oxford_flowers102", True),
        ("churn_jpegs/bytes", True),
        ("churn_probe/ragged", True),
        ("churn_probe/three", False),
        ("cifar10", False),
        ("digits", False),
        ("folder/mine.npz", False),
        ("ag_news_subset", False),
        ("no_such_set", False),
    ],
)
def test_sets_of_images_of_any_size_are_streamed(name, expected):
    assert is_streaming(name) is expected


def test_imagenet_is_tested_on_its_validation_split():
    from churn_jax.data.tfds_source import image_size, make_builder, split_names

    class Builder:
        class Info:
            splits = ("train", "validation", "test")

        info = Info()

    expected = {"train": "train", "test": "validation"}
    for name in ("imagenet2012", "i_naturalist2018", "imagenet2012_subset/1pct"):
        assert split_names(Builder, name) == expected
    assert set(split_names(Builder, "cifar10")) == {"train", "validation", "test"}
    features = make_builder("imagenet2012").info.features
    assert {"image", "label", "file_name"} == set(features)
    assert image_size(make_builder("imagenet2012")) == (None, None, 3)


def test_data_in_memory_stream_as_they_are():
    digits = data.load("digits", train_size=30)
    streamed = stream(digits)
    for name in ("train", "validation", "test"):
        ours, theirs = getattr(streamed, name), getattr(digits, name)
        assert ours.image_shape == theirs.images.shape[1:]
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        np.testing.assert_array_equal(ours.image(5, (1,)), theirs.images[5])
    assert streamed.fingerprint != digits.fingerprint
    rows = [{"tokens": [1, 2], "label": i % 2} for i in range(9)]
    texts = data.from_source(rows, columns=("tokens", "label"))
    with pytest.raises(DataError, match="texts are not streamed; train on it as"):
        stream(texts)


@pytest.mark.parametrize("bad", [{"threads": 0}, {"workers": -1}, {"ahead": 0}])
def test_reading_is_checked(bad):
    with pytest.raises(ValueError, match="threads and ahead of at least 1"):
        Reading(**bad)


@pytest.mark.slow
def test_processes_read_what_threads_read(data_dir):
    split = load(data_dir).train
    read = functools.partial(_draw, split)
    here = list(read_ahead(read, 24, batch_size=4, threads=2))
    there = list(read_ahead(read, 24, batch_size=4, threads=2, workers=2))
    assert len(here) == len(there) == 6
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_reading_process_that_is_killed_is_one_sentence():
    def batches():
        yield np.zeros(1)
        raise RuntimeError("Grain worker process was terminated with exit code -9.")

    with pytest.raises(DataError, match="a process that reads ended"):
        list(_from_processes(batches()))


def _draw(split, i):
    return split.image(i, (9, i))
