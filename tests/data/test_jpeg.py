"""Decoding: every kind of file becomes RGB, and a coarse decode is a good one."""

import numpy as np
import pytest
from PIL import Image

from churn_jax.data.crop import Crop, decode_crop, resize_crop
from tests.data.jpegs import encode, picture


def whole(width, height):
    return Crop(0, 0, width, height)


def reference(image, box, size):
    """Cut out and resized at full resolution."""
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("RGB", "JPEG"),
        ("L", "JPEG"),
        ("CMYK", "JPEG"),
        ("RGB", "PNG"),
        ("RGBA", "PNG"),
        ("L", "PNG"),
        ("P", "PNG"),
        ("LA", "PNG"),
        ("1", "PNG"),
    ],
)
def test_every_kind_of_file_becomes_rgb(mode, kind):
    image = picture(50, 40).convert(mode)
    pixels = decode_crop(encode(image, kind), whole, 16)
    assert (pixels.shape, pixels.dtype) == ((16, 16, 3), np.uint8)
    expected = reference(image.convert("RGB"), (0, 0, 50, 40), 16)
    gap = np.abs(pixels.astype(int) - expected).mean()
    assert gap < (4 if kind == "JPEG" else 1), gap


def test_a_transparent_palette_becomes_rgb():
    image = picture(20, 20).quantize(8)
    pixels = decode_crop(encode(image, "PNG", transparency=0), whole, 20)
    assert pixels.shape == (20, 20, 3)


@pytest.mark.parametrize("size", [32, 60, 100, 250])
@pytest.mark.parametrize("grey", [False, True])
def test_a_coarse_decode_is_close_to_a_full_one(size, grey):
    image = picture(640, 480)
    image = image.convert("L") if grey else image
    encoded = encode(image, quality=95)
    box = (101, 33, 581, 401)
    pixels = decode_crop(encoded, lambda w, h: Crop(*box), size)
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


def test_a_crop_is_mirrored_after_it_is_cut():
    encoded = encode(picture(40, 30), "PNG")
    box = Crop(5, 3, 25, 23)
    plain = decode_crop(encoded, lambda w, h: box, 10)
    flipped = decode_crop(encoded, lambda w, h: box._replace(flip=True), 10)
    np.testing.assert_array_equal(flipped, plain[:, ::-1])


def test_boxes_at_the_edge_of_coarse_images_are_inside():
    for width in range(61, 77):
        encoded = encode(picture(width, width + 1))
        assert decode_crop(encoded, whole, 7).shape == (7, 7, 3)


def test_pixels_are_cut_as_files_are():
    image = picture(40, 30)
    box = Crop(5.5, 3.25, 25.5, 23.25, True)
    expected = decode_crop(encode(image, "PNG"), lambda w, h: box, 10)
    np.testing.assert_array_equal(resize_crop(np.asarray(image), box, 10), expected)
    grey = np.asarray(image.convert("L"))
    assert resize_crop(grey[..., None], box, 10).shape == (10, 10, 3)


@pytest.mark.parametrize(
    "encoded", [b"", b"not an image", encode(picture(64, 64))[:400]]
)
def test_what_is_not_an_image_is_an_oserror(encoded):
    with pytest.raises(OSError):
        decode_crop(encoded, whole, 8)
