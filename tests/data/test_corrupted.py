"""Corrupted test sets from folders and TFDS, in miniature, and our own."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from churn_jax.data import DataError, Split, corrupted_sets, load, prepare
from churn_jax.data.corrupted import TFDS, CorruptedTfds
from churn_jax.data.corruptions import CORRUPTIONS, corrupt_images
from tests.data.small_sets import IMAGE, SmallSet, class_label, configs

COUNT = 7  # of the ten thousand test images


class ChurnCorrupted(SmallSet):
    """In the layout of `cifar10_corrupted`, but two kinds; pixels tell the severity."""

    BUILDER_CONFIGS = configs(
        *(f"{kind}_{s}" for kind in ("fog", "elastic") for s in range(1, 6))
    )

    def contents(self):
        severity = int(self.builder_config.name[-1])
        image = np.full((4, 4, 3), severity, np.uint8)
        records = [{"image": image, "label": i} for i in range(COUNT)]
        return {"image": IMAGE, "label": class_label(10)}, {"test": records}


class ChurnCorruptedDigits(SmallSet):
    """In the layout of `mnist_corrupted`: other kinds, no severities."""

    BUILDER_CONFIGS = configs("zigzag", "fog")

    def contents(self):
        image = np.full((4, 4, 3), 9, np.uint8)
        records = [{"image": image, "label": i} for i in range(COUNT)]
        return {"image": IMAGE, "label": class_label(10)}, {"test": records}


@pytest.fixture
def folder(tmp_path, rng):
    """`CIFAR-100-C` with all fifteen kinds; a pixel tells kind and severity."""
    made = tmp_path / "CIFAR-100-C"
    made.mkdir()
    labels = np.tile(rng.integers(0, 100, COUNT), 5)
    np.save(made / "labels.npy", labels.astype(np.uint8))
    for k, kind in enumerate(CORRUPTIONS):
        images = np.repeat(10 * k + np.arange(5), COUNT).astype(np.uint8)
        np.save(
            made / f"{kind}.npy", np.tile(images[:, None, None, None], (1, 4, 4, 3))
        )
    return made


def test_a_folder_gives_every_kind_and_severity(folder):
    labels = np.load(folder / "labels.npy")[:COUNT]
    for name, given in (
        ("cifar100", folder),
        ("tfds:cifar100:3.0.2", folder.parent),
    ):
        sets = corrupted_sets(name, manual_dir=given)
        assert (len(sets), sets.source) == (75, str(folder))
        found = list(sets)
        kinds = [(s.corruption, s.severity) for s in found]
        assert kinds == [(kind, s) for kind in CORRUPTIONS for s in range(1, 6)]
        for i, one in enumerate(found):
            assert one.images.shape == (COUNT, 4, 4, 3)
            assert (one.images == 10 * (i // 5) + i % 5).all()
            np.testing.assert_array_equal(one.labels, labels)
            assert one.labels.dtype == np.int32
        assert isinstance(found[0].images, np.memmap)
    few = corrupted_sets(
        "cifar100", manual_dir=folder, corruptions=["fog"], severities=[5], limit=2
    )
    ((corruption, severity, images, labels),) = few
    assert (corruption, severity, len(images), len(labels)) == ("fog", 5, 2, 2)


ROWS = 5 * COUNT


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("fog", None, r"there is no file .*fog\.npy"),
        ("snow", -50, r"snow\.npy is no whole \.npy file"),
        ("labels", 0, r"labels\.npy is no whole \.npy file \(0 bytes\)"),
        (
            "frost",
            np.zeros((ROWS, 4, 4, 3)),
            r"frost\.npy must be uint8 \[35, H, W, C\].*float64 \(35, 4, 4, 3\)",
        ),
        (
            "contrast",
            np.zeros((ROWS - 5, 4, 4, 3), np.uint8),
            r"contrast\.npy must be uint8 \[35, .*got uint8 \(30, 4, 4, 3\)",
        ),
        ("labels", np.zeros(4 * COUNT, int), r"must be \[5 n\].*got shape \(28,\)"),
        ("labels", np.arange(ROWS), "repeat the same labels for each of the five"),
        ("labels", np.full(ROWS, 100), "has label 100, but cifar100 has 100 classes"),
    ],
)
def test_a_damaged_folder_is_named_before_anything_is_read(
    folder, name, content, message
):
    path = folder / f"{name}.npy"
    if content is None:
        path.unlink()
    elif isinstance(content, int):
        path.write_bytes(path.read_bytes()[:content])
    else:
        np.save(path, content)
    with pytest.raises(DataError, match=message) as caught:
        corrupted_sets("cifar100", manual_dir=folder)
    assert "\n" not in str(caught.value)


def test_the_folder_of_another_set_is_refused(folder):
    with pytest.raises(DataError, match="does not hold corrupted images of cifar10"):
        corrupted_sets("cifar10", manual_dir=folder)
    with pytest.raises(DataError, match="there is no folder CIFAR-10-C in the manual"):
        corrupted_sets("cifar10", manual_dir=folder.parent, source="folder")
    with pytest.raises(DataError, match="is not a folder"):
        corrupted_sets("cifar10", manual_dir=folder / "labels.npy")


def test_prepared_tfds_sets_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "churn_jax.data.corrupted.TFDS",
        {"cifar10": "churn_corrupted", "mnist": "churn_corrupted_digits"},
    )
    for severity in (1, 3):
        for kind in ("fog", "elastic"):
            prepare(f"churn_corrupted/{kind}_{severity}", data_dir=tmp_path)
    kinds = ["fog", "elastic_transform"]
    sets = corrupted_sets(
        "cifar10", data_dir=tmp_path, corruptions=kinds, severities=(1, 3)
    )
    assert sets.source == "TFDS churn_corrupted"
    found = [(s.corruption, s.severity, s.images.max().item()) for s in sets]
    assert found == [
        (kind, severity, severity) for kind in kinds for severity in (1, 3)
    ]
    assert all(sorted(s.labels.tolist()) == list(range(COUNT)) for s in sets)
    with pytest.raises(DataError, match=r"churn_corrupted/fog_2 is not prepared"):
        corrupted_sets("cifar10", data_dir=tmp_path, corruptions=["fog"])

    prepare("churn_corrupted_digits/zigzag", data_dir=tmp_path)
    sets = corrupted_sets("mnist", data_dir=tmp_path, corruptions=["zigzag"])
    assert [(s.corruption, s.severity) for s in sets] == [("zigzag", 1)]
    with pytest.raises(DataError, match="severities must be among 1; got 2"):
        corrupted_sets("mnist", data_dir=tmp_path, severities=[2])
    with pytest.raises(DataError, match="no corruption 'snow'; there are shot_noise"):
        corrupted_sets("mnist", data_dir=tmp_path, corruptions=["snow"])


def test_names_of_tfds_are_those_it_has():
    for name in TFDS.values():
        source = CorruptedTfds(name, None)
        configs = tfds.builder_cls(name).builder_configs
        kinds, severities = source.corruptions, source.severities
        assert len(kinds) == 15
        assert {
            source.config(k, s).split("/")[1] for k in kinds for s in severities
        } <= {*configs}


def test_the_same_images_whether_kept_or_not(tmp_path, monkeypatch):
    test = load("digits").test.take(np.arange(30))
    options = {"corruptions": ["fog", "pixelate"], "severities": [2], "test": test}
    made = corrupted_sets("digits", **options)
    assert made.source == "churn_jax corruptions 1 on the test images of digits"
    fresh = list(made)
    expected = corrupt_images(test.images, test.ids, "fog", 2)
    np.testing.assert_array_equal(fresh[0].images, expected)
    np.testing.assert_array_equal(fresh[0].labels, test.labels)

    kept = corrupted_sets("digits", cache_dir=tmp_path, **options)
    next(iter(kept))
    assert [f.name for f in tmp_path.rglob("*.npy")] == ["fog_2.npy"]  # one at a time
    for a, b in zip(fresh, kept, strict=True):
        np.testing.assert_array_equal(a.images, b.images)
    files = sorted(tmp_path.rglob("*.npy"))
    assert [f.name for f in files] == ["fog_2.npy", "pixelate_2.npy"]
    damaged = next(f for f in files if f.name == "fog_2.npy")
    damaged.write_bytes(damaged.read_bytes()[:-9])  # is made again
    np.testing.assert_array_equal(next(iter(kept)).images, expected)
    # Now they are read, not made; other test images have a folder of their own.
    monkeypatch.setattr(
        "churn_jax.data.corruptions.generated.Generated._made",
        lambda self, *which: pytest.fail("made again"),
    )
    assert isinstance(next(iter(kept)).images, np.memmap)
    with pytest.raises(pytest.fail.Exception, match="made again"):
        list(corrupted_sets("digits", cache_dir=tmp_path, limit=29, **options))


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    sets = corrupted_sets("digits", cache_dir=tmp_path / "file" / "x", limit=2)
    with pytest.raises(DataError, match=r"gaussian_noise_1.npy cannot be written"):
        next(iter(sets))


def test_large_images_are_for_the_library():
    images = np.zeros((3, 32, 32, 3), np.uint8)
    test = Split(images, np.zeros(3, np.int32), np.arange(3))
    try:
        source = corrupted_sets("x.npz", test=test).source
    except DataError as error:  # where the extra is not installed
        assert "pip install 'churn-jax[corruptions]'" in str(error)
    else:
        assert source.startswith("imagecorruptions ")
    assert "churn_jax" in corrupted_sets("x.npz", test=test, source="own").source


def test_what_cannot_be_asked_for():
    table = Split(np.zeros((3, 4), np.float32), np.zeros(3, np.int32), np.arange(3))
    floats = Split(np.zeros((3, 8, 8, 1), np.float32), table.labels, table.ids)
    cases = [
        ({"source": "web"}, "source must be one of folder, tfds, library, own"),
        ({"limit": 0}, "limit must be a positive count; got 0"),
        ({"corruptions": ["rain"]}, "there is no corruption 'rain'; there are gauss"),
        ({"severities": [0]}, "severities must be among 1, 2, 3, 4, 5; got 0"),
        ({"corruptions": []}, "must not be empty"),
        ({"source": "tfds"}, "there is none for digits"),
        ({"source": "folder"}, "there is no folder digits-C in the manual_dir None"),
        ({"test": table, "source": "own"}, r"got shape \(3, 4\)"),
        ({"test": table}, r"got shape \(3, 4\)"),
        ({"test": floats}, "only uint8 images can be corrupted; got float32"),
    ]
    for options, message in cases:
        with pytest.raises(DataError, match=message):
            corrupted_sets("digits", **options)
