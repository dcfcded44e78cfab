"""Boxes: their distribution, their bounds and what they depend on."""

import math

import numpy as np
import pytest

from churn_jax.data.crop import Crop, centre_crop, random_crop


def crops(width, height, count=4000):
    return [random_crop(width, height, (5, i)) for i in range(count)]


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (1, 1), (3, 1000), (900, 7)])
def test_every_box_lies_on_whole_pixels_inside_the_image(size):
    for box in crops(*size, count=300):
        assert all(isinstance(x, int) for x in box[:4])
        assert 0 <= box.left < box.right <= size[0]
        assert 0 <= box.upper < box.lower <= size[1]


def test_area_aspect_place_and_mirror_are_distributed_as_published():
    boxes = crops(1000, 1000)
    width = np.array([b.right - b.left for b in boxes])
    height = np.array([b.lower - b.upper for b in boxes])
    area, ratio = width * height / 1e6, np.log(width / height)
    assert area.min() > 0.079 and area.max() <= 1.0
    assert np.abs(ratio).max() < math.log(4 / 3) + 0.01
    # Large boxes of extreme aspect do not fit and are drawn again, so the mean area is
    # a little below that of the uniform distribution, 0.54.
    assert 0.47 < area.mean() < 0.54
    # Log-uniform: as often wide as tall, and standard deviation of a uniform.
    assert abs(np.mean(ratio > 0) - 0.5) < 0.03
    assert abs(ratio[area < 0.5].std() - 2 * math.log(4 / 3) / 12**0.5) < 0.01
    free = 1000 - width
    place = np.array([b.left for b in boxes])[free > 50] / free[free > 50]
    assert abs(place.mean() - 0.5) < 0.02 and place.min() < 0.02 < 0.98 < place.max()
    assert abs(np.mean([b.flip for b in boxes]) - 0.5) < 0.03


def test_a_box_that_never_fits_becomes_the_largest_centred_one():
    # 8 % of 3000 x 10 pixels in an aspect of up to 4/3 is at least 42 pixels high.
    for box in crops(3000, 10, count=20):
        assert box[:4] == (1493, 0, 1506, 10)
    for box in crops(10, 3000, count=20):
        assert box[:4] == (0, 1493, 10, 1506)


def test_a_crop_is_a_pure_function_of_its_key():
    assert random_crop(500, 375, (1, 2, 3, 4)) == random_crop(500, 375, (1, 2, 3, 4))
    others = {random_crop(500, 375, (1, 2, 3, i)) for i in range(50)}
    assert len(others) == 50
    # Golden: a change would silently change the images of resumed runs.
    assert random_crop(500, 375, (0, 1, 2, 3)) == Crop(126, 15, 475, 355)


@pytest.mark.parametrize("size", [(256, 512), (512, 256), (301, 300), (5, 9)])
def test_the_evaluation_box_is_224_of_256_of_the_short_side(size):
    box = centre_crop(*size)
    side = min(size) * 224 / 256
    assert box.right - box.left == box.lower - box.upper == pytest.approx(side)
    assert (box.left + box.right, box.upper + box.lower) == pytest.approx(size)
    assert not box.flip


@pytest.mark.parametrize("crop", [centre_crop, lambda w, h: random_crop(w, h, (0,))])
def test_an_image_without_pixels_is_refused(crop):
    with pytest.raises(ValueError, match="needs pixels; got 0 x 5"):
        crop(0, 5)
