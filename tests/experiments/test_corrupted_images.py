"""Five kinds of corrupted images, which grow with severity."""

import hashlib

import numpy as np
import pytest

from churn_jax.data import DataError, load
from experiments.diversity.corrupted_images import (
    CONTRAST_KEPT,
    CORRUPTIONS,
    DISK_RADIUS,
    STANDARD_DEVIATION,
    corrupt_images,
)
from tests.data.jpegs import picture

DIGITS = load("digits").test
COLOUR = np.stack([np.asarray(picture(32, 32, seed=i)) for i in range(6)])
COLOUR = (48 + 0.6 * COLOUR).astype(np.uint8)  # so that noise is hardly clipped
IDS = [f"test/{i}" for i in range(6)]


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


@pytest.mark.parametrize("images", [COLOUR / 255, COLOUR[..., :2], COLOUR[0]])
def test_what_cannot_be_corrupted_is_refused(images):
    with pytest.raises(DataError, match=r"only uint8 images .* got "):
        corrupt_images(images, IDS, "contrast", 1)


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
