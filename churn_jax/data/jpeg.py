"""Encoded images to pixels: only what a crop needs is decoded, on the host.

A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where the crop still has at least the
pixels of the result: the decoder then skips most of the inverse DCT. The work is done
by Pillow's C code, which lets other threads run meanwhile.
"""

import io
from collections.abc import Callable

import numpy as np

from churn_jax.data.crop import Crop

__all__ = ["decode_crop", "resize_crop"]


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
    """`crop`, given in pixels of `width` x `height`, of an image perhaps smaller."""
    from PIL import Image

    x, y = image.size[0] / width, image.size[1] / height
    left, upper, right, lower, flip = crop
    # Not beyond the last pixel by a rounding error.
    box = (
        left * x,
        upper * y,
        min(right * x, image.size[0]),
        min(lower * y, image.size[1]),
    )
    if image.mode not in ("RGB", "L"):
        # Resampling a palette would mix numbers of colours, not colours. A palette may
        # have a transparent colour, which Pillow keeps only by way of RGBA.
        transparent = "transparency" in image.info and image.mode == "P"
        image = (image.convert("RGBA") if transparent else image).convert("RGB")
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image.convert("RGB"))
