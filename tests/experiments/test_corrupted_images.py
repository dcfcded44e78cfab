"""Corrupted images: a published folder, and five kinds that grow with severity."""

import hashlib

import numpy as np
import pytest

from churn_jax.data import DataError, Split, load
from experiments.diversity.corrupted_images import (
    CONTRAST_KEPT,
    CORRUPTIONS,
    DISK_RADIUS,
    PUBLISHED,
    STANDARD_DEVIATION,
    corrupt_images,
    corrupted_sets,
)
from tests.data.jpegs import picture

COUNT = 7
DIGITS = load("digits").test
COLOUR = np.stack([np.asarray(picture(32, 32, seed=i)) for i in range(6)])
COLOUR = (48 + 0.6 * COLOUR).astype(np.uint8)  # so that noise is hardly clipped
IDS = [f"test/{i}" for i in range(6)]


@pytest.fixture
def folder(tmp_path, rng):
    """`CIFAR-100-C` with all fifteen kinds; a pixel tells kind and severity."""
    made = tmp_path / "CIFAR-100-C"
    made.mkdir()
    labels = np.tile(rng.integers(0, 100, COUNT), 5)
    np.save(made / "labels.npy", labels.astype(np.uint8))
    for k, kind in enumerate(PUBLISHED):
        pixels = np.repeat(10 * k + np.arange(5), COUNT).astype(np.uint8)
        np.save(made / f"{kind}.npy", np.tile(pixels[:, None, None, None], (4, 4, 3)))
    return made


def test_a_folder_gives_every_kind_and_severity(folder):
    for name, given in (("cifar100", folder), ("tfds:cifar100:3.0.2", folder.parent)):
        sets = corrupted_sets(name, DIGITS, manual_dir=given)
        assert sets.source == str(folder) and sets.corruptions == PUBLISHED
        for k, kind in enumerate(PUBLISHED):
            for severity in sets.severities:
                images, labels = sets.read(kind, severity)
                assert isinstance(images, np.memmap)
                assert images.shape == (COUNT, 4, 4, 3)
                assert (images == 10 * k + severity - 1).all()
                stored = np.load(folder / "labels.npy")[:COUNT]
                np.testing.assert_array_equal(labels, stored)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("fog", None, r"fog\.npy is not a whole"),
        ("snow", -50, r"snow\.npy is not a whole \.npy file"),
        ("frost", np.zeros((35, 4, 4, 3)), r"must be uint8 \[35, H, W, C\].*float64"),
        ("contrast", np.zeros((30, 4, 4, 3), np.uint8), r"got uint8 \(30, 4, 4, 3\)"),
        ("labels", np.arange(35), "repeat the same labels for each of the five"),
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
    with pytest.raises(DataError, match=message):
        corrupted_sets("cifar100", DIGITS, manual_dir=folder)


def test_what_cannot_be_corrupted_is_refused(folder):
    floats = Split(COLOUR / np.float32(255), np.zeros(6, np.int32), np.arange(6))
    cases = [
        (("cifar10", DIGITS, folder), {}, "does not hold corrupted images of cifar10"),
        (("digits", DIGITS, "nowhere"), {}, "the manual_dir nowhere is not a folder"),
        (("digits", DIGITS), {"kinds": ["fog"]}, "no corruption 'fog'; there are gau"),
        (("digits", DIGITS), {"severities": [0, 1]}, "severities must be 1 to 5"),
        (("digits", floats), {}, "only uint8 images .* got float32"),
    ]
    for (name, test, *manual), more, message in cases:
        with pytest.raises(DataError, match=message):
            corrupted_sets(name, test, manual_dir=next(iter(manual), None), **more)


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_every_kind_changes_images_more_and_more_by_their_ids(kind):
    for images in (COLOUR, COLOUR[:4, :20, :13], DIGITS.images[:6]):
        sets = [corrupt_images(images, IDS, kind, severity) for severity in (1, 3, 5)]
        far = [np.abs(found.astype(float) - images).mean() for found in sets]
        assert 0 < far[0] < far[1] < far[2] < 128
    order = [4, 0]
    together = corrupt_images(COLOUR, IDS, kind, 3)
    again = corrupt_images(COLOUR[order], [IDS[i] for i in order], kind, 3)
    np.testing.assert_array_equal(again, together[order])
    other = corrupt_images(COLOUR, [f"x{i}" for i in IDS], kind, 3)
    assert np.array_equal(other, together) == (kind != "gaussian_noise")


def test_pixels_stay_what_they_were():
    # Golden: the results in the README refer to these pixels.
    digest = hashlib.sha256()
    for kind in ("gaussian_noise", "defocus_blur", "brightness", "contrast"):
        digest.update(corrupt_images(DIGITS.images, DIGITS.ids, kind, 3).tobytes())
    assert digest.hexdigest()[:16] == "3af48523e75c0c94"


def test_kinds_by_hand():
    image = np.array([0, 40, 200, 240], np.uint8).reshape(1, 2, 2, 1)
    expected = np.rint(120 + CONTRAST_KEPT[0] * (image.astype(float) - 120))
    np.testing.assert_array_equal(corrupt_images(image, "a", "contrast", 1), expected)
    lighter = corrupt_images(image, "a", "brightness", 1).ravel().tolist()
    assert lighter == [26, 66, 226, 255]  # a tenth of 255 more, at most 255
    grey = np.full((8, 32, 32, 3), 120, np.uint8)
    noisy = corrupt_images(grey, range(8), "gaussian_noise", 5) / 255
    moments, wanted = [noisy.mean(), noisy.std()], [120 / 255, STANDARD_DEVIATION[4]]
    np.testing.assert_allclose(moments, wanted, rtol=0.03)
    flat = np.full((1, 16, 16, 3), 77, np.uint8)
    np.testing.assert_array_equal(corrupt_images(flat, "a", "defocus_blur", 5), flat)
    # A point becomes a disk of the radius, whose pixels count by what it covers.
    point = np.zeros((1, 33, 33, 1), np.uint8)
    point[0, 16, 16] = 255
    found = corrupt_images(point, "a", "defocus_blur", 5)[0, ..., 0] / 255
    rows, columns = np.indices((33, 33)) - 16
    radius = DISK_RADIUS[4] * 33 / 32 + 0.5
    assert (found[np.hypot(rows, columns) > radius + 0.71] == 0).all()
    inside = found[np.hypot(rows, columns) < radius - 0.71]
    # Pixels are integers.
    expected = 1 / (np.pi * radius**2)
    np.testing.assert_allclose(inside, expected, atol=0.6 / 255)
