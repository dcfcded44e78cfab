"""Boxes: their distribution and bounds. Decoding: every kind of file becomes RGB."""

import math

import numpy as np
import pytest
from PIL import Image

from churn_jax.data.crop import Crop, centre_crop, decode_crop, random_crop, resize_crop
from tests.data.jpegs import encode, picture


def crops(width, height, count=4000):
    return [random_crop(width, height, (5, i)) for i in range(count)]


@pytest.mark.parametrize("size", [(500, 375), (1, 1), (3, 1000), (900, 7)])
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
    assert {box[:4] for box in crops(3000, 10, count=20)} == {(1493, 0, 1506, 10)}
    assert {box[:4] for box in crops(10, 3000, count=20)} == {(0, 1493, 10, 1506)}


def test_a_crop_is_a_pure_function_of_its_key():
    others = {random_crop(500, 375, (1, 2, 3, i)) for i in range(50)}
    assert len(others) == 50
    # Golden: a change would silently change the images of resumed runs.
    assert random_crop(500, 375, (0, 1, 2, 3)) == Crop(126, 15, 475, 355)


@pytest.mark.parametrize("size", [(256, 512), (512, 256), (5, 9)])
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


def whole(width, height):
    return Crop(0, 0, width, height)


def reference(image, box, size):
    """Cut out and resized at full resolution."""
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        *((mode, "JPEG") for mode in ("RGB", "L", "CMYK")),
        *((mode, "PNG") for mode in ("RGB", "RGBA", "L", "P", "LA", "1")),
    ],
)
def test_every_kind_of_file_becomes_rgb(mode, kind):
    image = picture(50, 40).convert(mode)
    pixels = decode_crop(encode(image, kind), whole, 16)
    assert (pixels.shape, pixels.dtype) == ((16, 16, 3), np.uint8)
    expected = reference(image.convert("RGB"), (0, 0, 50, 40), 16)
    gap = np.abs(pixels.astype(int) - expected).mean()
    assert gap < (4 if kind == "JPEG" else 1), gap
    if mode == "P":
        transparent = encode(image, kind, transparency=0)
        assert decode_crop(transparent, whole, 20).shape == (20, 20, 3)


@pytest.mark.parametrize(("size", "mode"), [(32, "RGB"), (60, "L"), (250, "RGB")])
def test_a_coarse_decode_is_close_to_a_full_one(size, mode):
    image = picture(640, 480).convert(mode)
    box = (101, 33, 581, 401)
    pixels = decode_crop(encode(image, quality=95), lambda w, h: Crop(*box), size)
    expected = reference(image.convert("RGB"), box, size)
    assert np.abs(pixels.astype(int) - expected).mean() < 2


def test_a_large_image_is_decoded_coarsely(monkeypatch):
    seen = []
    resize = Image.Image.resize

    def spy(image, *args, **kwargs):
        seen.append(image.size)
        return resize(image, *args, **kwargs)

    encoded = encode(picture(640, 480))
    monkeypatch.setattr(Image.Image, "resize", spy)
    for side, expected in ((400, 640), (240, 320), (239, 320), (100, 160), (9, 80)):
        decode_crop(encoded, whole, side)
        assert seen[-1][0] == expected, side
    # A small crop keeps its pixels.
    decode_crop(encoded, lambda w, h: Crop(0, 0, 120, 120), 100)
    assert seen[-1] == (640, 480)


def test_boxes_at_the_edge_of_coarse_images_are_inside():
    for width in range(61, 77):
        encoded = encode(picture(width, width + 1))
        assert decode_crop(encoded, whole, 7).shape == (7, 7, 3)


def test_a_crop_is_mirrored_after_it_is_cut_and_pixels_are_cut_as_files_are():
    image = picture(40, 30)
    box = Crop(5.5, 3.25, 25.5, 23.25)
    encoded = encode(image, "PNG")
    plain = decode_crop(encoded, lambda w, h: box, 10)
    mirrored = decode_crop(encoded, lambda w, h: box._replace(flip=True), 10)
    np.testing.assert_array_equal(mirrored, plain[:, ::-1])
    np.testing.assert_array_equal(resize_crop(np.asarray(image), box, 10), plain)
    grey = np.asarray(image.convert("L"))
    assert resize_crop(grey[..., None], box, 10).shape == (10, 10, 3)


DEEP = encode(Image.fromarray(np.full((9, 9), 700, np.uint16)), "PNG")


@pytest.mark.parametrize(
    "encoded", [b"", b"not an image", encode(picture(64, 64))[:400], DEEP]
)
def test_what_is_not_an_image_of_8_bits_is_an_oserror(encoded):
    with pytest.raises(OSError):
        decode_crop(encoded, whole, 8)
