"""Corruptions of any image: each does what it says, grows, and is drawn by the id."""

import itertools
import sys
import types

import numpy as np
import pytest
from scipy import ndimage, stats

from churn_jax.data import DataError, load_digits
from churn_jax.data.corruptions import CORRUPTIONS, corrupt_images
from churn_jax.data.corruptions.generated import library_corrupt
from churn_jax.data.corruptions.kinds import (
    CHANGED_SHARE,
    CONTRAST_KEPT,
    DISK_RADIUS,
    PHOTONS,
    STANDARD_DEVIATION,
    Draws,
    _disk,
    read_at,
)
from tests.data.jpegs import picture

COLOUR = np.stack([np.asarray(picture(32, 32, seed=i)) for i in range(6)])
# Inside the range, so that noise is hardly clipped.
COLOUR = (48 + 0.6 * COLOUR).astype(np.uint8)
IDS = [f"test/{i}" for i in range(6)]
DIGITS = load_digits()["test"].images[:6]


def _distance(a, b):
    return np.abs(a.astype(float) - b.astype(float)).mean()


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_every_corruption_changes_images_of_every_size_more_and_more(corruption):
    tall = np.concatenate([COLOUR[:4, :20, :13], COLOUR[:4, 5:25, 7:20]])
    for images in (COLOUR, COLOUR[..., :1], tall, DIGITS):
        ids = [f"a/{i}" for i in range(len(images))]
        sets = [corrupt_images(images, ids, corruption, s) for s in range(1, 6)]
        for found in sets:
            assert found.shape == images.shape and found.dtype == np.uint8
            assert not np.array_equal(found, images)
        # Draws of two severities differ, so a step up need not show on few images.
        far = [_distance(found, images) for found in sets]
        assert far[0] < far[2] < far[4]
        assert far[4] < 128


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_the_corruption_of_an_image_depends_on_its_id_alone(corruption):
    together = corrupt_images(COLOUR, IDS, corruption, 3)
    order = [4, 0]
    again = corrupt_images(COLOUR[order], [IDS[i] for i in order], corruption, 3)
    np.testing.assert_array_equal(again, together[order])
    other = corrupt_images(COLOUR, [f"x{i}" for i in IDS], corruption, 3)
    drawn = corruption not in (
        "defocus_blur",
        "zoom_blur",
        "brightness",
        "contrast",
        "pixelate",
        "jpeg_compression",
    )
    assert np.array_equal(other, together) != drawn


def test_what_is_drawn_stays_what_it_was():
    # Golden: cached sets and published figures refer to these pixels.
    draws = Draws(["fog/1/a", "fog/1/b"])
    expected = [[0.31668, 0.52109], [0.78750, 0.17325]]
    np.testing.assert_allclose(draws.uniform(2), expected, atol=1e-5)


def test_noise_has_the_moments_it_should_have():
    grey = np.full((8, 32, 32, 3), 120, np.uint8)
    ids = range(8)
    mean = 120 / 255
    for level in (0, 4):
        x = corrupt_images(grey, ids, "gaussian_noise", level + 1) / 255
        s = STANDARD_DEVIATION[level]
        np.testing.assert_allclose([x.mean(), x.std()], [mean, s], rtol=0.03)
        x = corrupt_images(grey, ids, "shot_noise", level + 1) / 255
        s = np.sqrt(mean / PHOTONS[level])
        np.testing.assert_allclose([x.mean(), x.std()], [mean, s], rtol=0.03)
        x = corrupt_images(grey, ids, "impulse_noise", level + 1)
        share = [np.mean(x == value) for value in (0, 255)]
        np.testing.assert_allclose(share, CHANGED_SHARE[level] / 2, rtol=0.15)
        assert np.isin(x, (0, 120, 255)).all()


def test_shot_noise_counts_photons_as_scipy_does():
    # 100 of 255 grey: every count is as often as the Poisson distribution says.
    grey = np.full((40, 32, 32, 1), 100, np.uint8)
    x = corrupt_images(grey, range(40), "shot_noise", 5)
    counts = np.rint(x / 255 * PHOTONS[4]).astype(int).ravel()
    found = np.bincount(counts, minlength=9)[:9] / counts.size
    expected = stats.poisson.pmf(np.arange(9), PHOTONS[4] * 100 / 255)
    np.testing.assert_allclose(found, expected, atol=0.006)


def test_contrast_and_brightness_by_hand():
    image = np.array([0, 40, 200, 240], np.uint8).reshape(1, 2, 2, 1)
    kept = CONTRAST_KEPT[0]
    expected = np.rint(120 + kept * (image.astype(float) - 120))
    np.testing.assert_array_equal(corrupt_images(image, "a", "contrast", 1), expected)
    lighter = corrupt_images(image, "a", "brightness", 1).ravel().tolist()
    assert lighter == [26, 66, 226, 255]  # a tenth of 255 more, at most 255


def test_pixelate_keeps_the_mean_and_makes_blocks():
    # Severity 5 keeps 34 % of the side: of 6 pixels 2, blocks of 3 x 3.
    image = COLOUR[:1, :6, :6]
    found = corrupt_images(image, "a", "pixelate", 5)[0]
    for rows in (slice(0, 3), slice(3, 6)):
        block, inside = found[rows, :3], image[0, rows, :3]
        assert (block == block[0, 0]).all()
        np.testing.assert_allclose(block[0, 0], inside.mean((0, 1)), atol=0.51)


def test_blurs_keep_a_flat_image_and_defocus_equals_scipy():
    flat = np.full((1, 16, 16, 3), 77, np.uint8)
    for kind in (*CORRUPTIONS[3:7], "elastic_transform"):
        np.testing.assert_array_equal(corrupt_images(flat, "a", kind, 5), flat)
    disk = _disk(DISK_RADIUS[2] + 0.5)
    blurred = ndimage.convolve(COLOUR[1, :, :, 2] / 255, disk, mode="nearest")
    found = corrupt_images(COLOUR, IDS, "defocus_blur", 3)[1, :, :, 2]
    np.testing.assert_allclose(found / 255, blurred, atol=0.51 / 255)


def test_reading_between_pixels_equals_scipy(rng):
    x = rng.random((2, 7, 5, 3))
    rows, columns = rng.uniform(-1, 8, (2, 4, 6)), rng.uniform(-1, 6, (2, 4, 6))
    for images in (x, x[:, :1], x[:, :, :1]):
        found = read_at(images, rows, columns)
        for i, c in itertools.product(range(2), range(3)):
            expected = ndimage.map_coordinates(
                images[i, :, :, c], [rows[i], columns[i]], order=1, mode="nearest"
            )
            np.testing.assert_allclose(found[i, :, :, c], expected, atol=1e-12)


def test_what_cannot_be_corrupted_is_refused():
    cases = [
        (COLOUR[..., :2], IDS, "fog", 1, r"got shape \(6, 32, 32, 2\) and 6 ids"),
        (COLOUR, IDS[:2], "fog", 1, "and 2 ids"),
        (COLOUR, IDS, "rain", 1, "one of gaussian_noise, .*; got 'rain'"),
        (COLOUR, IDS, "fog", 6, "severity must be 1 to 5; got 6"),
    ]
    for images, ids, kind, severity, message in cases:
        with pytest.raises(ValueError, match=message):
            corrupt_images(images, ids, kind, severity)
    with pytest.raises(TypeError, match="must be uint8; got float64"):
        corrupt_images(COLOUR / 255, IDS, "fog", 1)


@pytest.fixture
def stand_in(monkeypatch):
    """A library that draws as the real one does; returns what it was called with."""
    calls = []

    def corrupt(image, severity, corruption_name, seed=None):
        calls.append((corruption_name, severity, seed))
        drawn = np.random.default_rng(seed) if seed is not None else np.random
        wide = np.repeat(image, 3 // image.shape[-1], axis=-1)
        return (wide + drawn.normal(0, 9, wide.shape)).clip(0, 255).astype(np.uint8)

    module = types.ModuleType("imagecorruptions")
    module.corrupt = corrupt
    monkeypatch.setitem(sys.modules, "imagecorruptions", module)
    monkeypatch.setattr(
        "churn_jax.data.corruptions.generated.library_version", lambda: "0"
    )
    return calls


def test_the_library_is_seeded_by_id_and_leaves_the_global_generator(stand_in):
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    for kind in ("fog", "glass_blur"):
        all_ = library_corrupt(COLOUR, IDS, kind, 2)
        one = library_corrupt(COLOUR[4:5], IDS[4:5], kind, 2)
        np.testing.assert_array_equal(one[0], all_[4])
        assert not np.array_equal(all_, library_corrupt(COLOUR, IDS, kind, 3))
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    assert {seed is None for kind, _, seed in stand_in if kind == "fog"} == {True}
    assert None not in {seed for kind, _, seed in stand_in if kind == "glass_blur"}
    grey = library_corrupt(COLOUR[..., :1], IDS, "fog", 2)
    assert grey.shape == (6, 32, 32, 1) and _distance(grey, COLOUR[..., :1]) < 6


def test_small_images_and_a_missing_library_are_refused(stand_in, monkeypatch):
    with pytest.raises(DataError, match=r"at least 32 pixels a side; got \(8, 8\)"):
        library_corrupt(DIGITS, IDS, "fog", 1)
    monkeypatch.undo()
    monkeypatch.setattr(
        "churn_jax.data.corruptions.generated._PACKAGE", "no-such-thing"
    )
    with pytest.raises(DataError, match=r"churn-jax\[corruptions\].*source='own'"):
        library_corrupt(COLOUR, IDS, "fog", 1)


def test_the_real_library_repeats_itself():
    pytest.importorskip("imagecorruptions")
    for kind in CORRUPTIONS:
        sets = [library_corrupt(COLOUR[:2], IDS[:2], kind, 3) for _ in range(2)]
        np.testing.assert_array_equal(*sets)
        assert not np.array_equal(sets[0], COLOUR[:2])
