"""Which part of an image a network sees, and its pixels, decoded on the host.

Every draw is a pure function of the key that is passed in, so a crop does not depend on
which process, thread or batch reads the image. A JPEG is decoded at 1/2, 1/4 or 1/8 of
its size where the crop still has at least the pixels of the result: the decoder then
skips most of the inverse DCT. Pillow's C code lets other threads run meanwhile.
"""

import io
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_TRIES = 10
_AREA = (0.08, 1.0)
_ASPECT = (3 / 4, 4 / 3)


class Crop(NamedTuple):
    """A box in pixels of the whole image, ends excluded, and whether it is mirrored."""

    left: float
    upper: float
    right: float
    lower: float
    flip: bool = False


def _uniforms(key: tuple[int, ...], count: int) -> list[float]:
    """Numbers in [0, 1); raw PCG64 words, which NumPy keeps the same over versions."""
    words = np.random.PCG64(np.random.SeedSequence(key)).random_raw(count)
    return ((words >> np.uint64(11)) * 2.0**-53).tolist()


def random_crop(width: int, height: int, key: tuple[int, ...]) -> Crop:
    """The Inception-style crop: a box of random area and aspect, mirrored or not."""
    # Area and logarithm of the aspect are uniform; a box that does not fit is drawn
    # again, and after ten the largest centred box of such an aspect is taken.
    if width < 1 or height < 1:
        raise ValueError(f"an image needs pixels; got {width} x {height}")
    draws = _uniforms(key, 4 * _TRIES + 1)
    flip = draws[-1] >= 0.5
    low, high = math.log(_ASPECT[0]), math.log(_ASPECT[1])
    for attempt in range(_TRIES):
        area, aspect, x, y = draws[4 * attempt : 4 * attempt + 4]
        pixels = width * height * (_AREA[0] + (_AREA[1] - _AREA[0]) * area)
        ratio = math.exp(low + (high - low) * aspect)
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, upper = int(x * (width - w + 1)), int(y * (height - h + 1))
            return Crop(left, upper, left + w, upper + h, flip)
    w = min(width, max(1, round(height * _ASPECT[1])))
    h = min(height, max(1, round(width / _ASPECT[0])))
    left, upper = (width - w) // 2, (height - h) // 2
    return Crop(left, upper, left + w, upper + h, flip)


def centre_crop(width: int, height: int, share: float = 224 / 256) -> Crop:
    """The centred square whose side is `share` of the short side."""
    # Resized to 224 pixels this is the usual evaluation of 224-pixel networks (short
    # side to 256, then the middle 224 x 224) in one resampling.
    if width < 1 or height < 1:
        raise ValueError(f"an image needs pixels; got {width} x {height}")
    side = share * min(width, height)
    left, upper = (width - side) / 2, (height - side) / 2
    return Crop(left, upper, left + side, upper + side)


def decode_crop(
    encoded: bytes, choose: Callable[[int, int], Crop], size: int
) -> np.ndarray:
    """The part of an encoded image that `choose` names, `[size, size, 3]` uint8."""
    # Whatever Pillow reads; grey, palette, CMYK and transparent images become RGB. EXIF
    # orientation is ignored, as the usual ImageNet pipelines do.
    # Pillow takes a moment to import, which data in memory need not pay.
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded)) as image:
            width, height = image.size
            crop = choose(width, height)
            # Decode coarser while the crop keeps `size` pixels on both sides.
            spare = min(crop.right - crop.left, crop.lower - crop.upper) / size
            if spare >= 2:
                image.draft(None, (int(width / spare), int(height / spare)))
            return _resized(image, crop, width, height, size)
    except (SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise OSError(str(error)) from error


def resize_crop(pixels: np.ndarray, crop: Crop, size: int) -> np.ndarray:
    """Like `decode_crop`, of pixels `[H, W]`, `[H, W, 1]` or `[H, W, 3]` uint8."""
    from PIL import Image

    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return _resized(image, crop, *image.size, size)


def _resized(image, crop: Crop, width: int, height: int, size: int) -> np.ndarray:
    """Cuts `crop`, in pixels of `width` x `height`, out of a perhaps coarser image."""
    from PIL import Image

    x, y = image.size[0] / width, image.size[1] / height
    left, upper, right, lower, flip = crop
    # Not beyond the last pixel by a rounding error.
    ends = min(right * x, image.size[0]), min(lower * y, image.size[1])
    box = (left * x, upper * y, *ends)
    if image.mode in ("I", "F") or image.mode.startswith("I;"):  # 256 would be white
        raise ValueError(f"it has more than 8 bits a pixel, mode {image.mode}")
    if image.mode not in ("RGB", "L"):
        # Resampling a palette would mix numbers of colours, not colours. A palette may
        # have a transparent colour, which Pillow keeps only by way of RGBA.
        transparent = "transparency" in image.info and image.mode == "P"
        image = (image.convert("RGBA") if transparent else image).convert("RGB")
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image.convert("RGB"))
