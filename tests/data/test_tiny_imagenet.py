"""TinyImageNet in miniature: its splits through `load`, and what a broken folder says.

The layout is that of the archive, with few classes of few images.
"""

import numpy as np
import pytest
from PIL import Image

from churn_jax.data import DataError, load
from churn_jax.data.tiny_imagenet import read_image, tiny_imagenet_files
from tests.data.jpegs import encode, picture
from tests.refusals import refusals

WNIDS = ("n02124075", "n01443537", "n04067472")  # not in alphabetical order
PER_CLASS = 53  # three to train on, fifty to validate on
TESTS = 11


@pytest.fixture(scope="module")
def encoded():
    """Five small JPEGs, the last one grey: the archive has some of those."""
    images = [picture(64, 64, seed=i) for i in range(5)]
    return [encode(x, quality=90) for x in (*images[:4], images[4].convert("L"))]


@pytest.fixture
def archive(tmp_path, encoded):
    root = tmp_path / "tiny-imagenet-200"
    for c, wnid in enumerate(WNIDS):
        folder = root / "train" / wnid / "images"
        folder.mkdir(parents=True)
        (folder.parent / f"{wnid}_boxes.txt").write_text("")
        for i in range(PER_CLASS):
            (folder / f"{wnid}_{i}.JPEG").write_bytes(encoded[(c + i) % 5])
    (root / "val" / "images").mkdir(parents=True)
    lines = []
    for i in range(TESTS):
        (root / "val" / "images" / f"val_{i}.JPEG").write_bytes(encoded[i % 5])
        lines.append(f"val_{i}.JPEG\t{WNIDS[i % 3]}\t0\t32\t44\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(reversed(lines)))
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    return root


def test_it_is_loaded_by_name_from_the_unpacked_archive(archive, encoded, tmp_path):
    data = load("tiny_imagenet", data_dir=tmp_path / "d", manual_dir=tmp_path)
    sizes = [len(s) for s in (data.train, data.validation, data.test)]
    assert sizes == [9, 150, TESTS]
    assert data.num_classes == 200
    for split in (data.train, data.validation, data.test):
        assert split.images.shape[1:] == (64, 64, 3)
        assert split.images.dtype == np.uint8
    # By number, not by name: 10 comes after 9.
    expected = [f"{wnid}_{i}" for wnid in WNIDS for i in range(PER_CLASS)]
    ids = data.train.ids.tolist(), data.validation.ids.tolist()
    assert ids[0] == [x for x in expected if int(x.split("_")[1]) < 3]
    assert ids[1] == [x for x in expected if int(x.split("_")[1]) >= 3]
    assert data.test.ids.tolist() == [f"val_{i}" for i in range(TESTS)]
    assert data.train.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert data.test.labels.tolist() == [i % 3 for i in range(TESTS)]
    for i, image in enumerate(data.test.images):
        (tmp_path / "x.jpg").write_bytes(encoded[i % 5])
        expected = Image.open(tmp_path / "x.jpg").convert("RGB")
        np.testing.assert_array_equal(image, expected)
    assert tiny_imagenet_files(archive) == tiny_imagenet_files(tmp_path)
    again = load("tiny_imagenet", data_dir=tmp_path / "d", validation=5, train_size=4)
    assert [len(again.train), len(again.validation)] == [4, 5]


IMAGES = f"train/{WNIDS[0]}/images"


def damaged(archive, moved, text):
    path = archive / moved
    if text is None:
        path.rename(archive / "elsewhere")
    elif text.startswith("train/"):
        path.rename(archive / text)
    else:
        path.write_text(text)
    tiny_imagenet_files(archive)


test_a_damaged_archive_is_refused_in_one_sentence = refusals(
    (f"train/{WNIDS[1]}/images/{WNIDS[1]}_52.JPEG", None, "443537 has 52 images, o"),
    (f"train/{WNIDS[2]}/images", None, r"there is no folder .*n04067472/images"),
    ("val/images/val_4.JPEG", None, "for every image; val_4.JPEG is only one"),
    ("wnids.txt", None, r"wnids.txt cannot be read \(File"),
    (f"{IMAGES}/{WNIDS[0]}_0.JPEG", f"{IMAGES}/cat.JPEG", "cat.JPEG has no number"),
    (
        "val/val_annotations.txt",
        "val_0.JPEG\tn99\t0\t0\t1\t1\n",
        "'n99' is not among the classes of .*wnids.txt",
    ),
    ("wnids.txt", "\n".join([WNIDS[0]] * 2), "at most 200 classes, each once; it"),
    call=damaged,
    error=DataError,
    fixtures=["archive"],
)


def test_a_broken_image_is_named_while_the_set_is_prepared(archive, encoded, tmp_path):
    path = archive / "train" / WNIDS[0] / "images" / f"{WNIDS[0]}_2.JPEG"
    path.write_bytes(encoded[0][: len(encoded[0]) // 2])
    with pytest.raises(DataError, match=r"2.JPEG is not a whole image") as caught:
        load("tiny_imagenet", data_dir=tmp_path / "d", manual_dir=tmp_path)
    assert "\n" not in str(caught.value)
    path.write_bytes(encode(picture(64, 32)))
    with pytest.raises(DataError, match="must have 64 x 64 pixels; got 64 x 32"):
        read_image(path)


def test_without_the_archive_the_message_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"data tiny_imagenet .*--manual-dir FOLDER`"):
        load("tiny_imagenet", data_dir=tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"Manual directory .* is empty"):
        load("tiny_imagenet", data_dir=tmp_path, manual_dir=empty)
    (empty / "readme").write_text("")
    with pytest.raises(DataError, match=r"tiny-imagenet-200/wnids.txt cannot be read"):
        load("tiny_imagenet", data_dir=tmp_path, manual_dir=empty)


def test_too_few_images_leave_nothing_to_train_on(archive):
    for wnid in WNIDS:
        for i in range(50, PER_CLASS):
            (archive / "train" / wnid / "images" / f"{wnid}_{i}.JPEG").unlink()
    with pytest.raises(DataError, match=r"50 images a class, .* none is left to train"):
        tiny_imagenet_files(archive)
