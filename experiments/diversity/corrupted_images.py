"""Test images under five kinds of corruption, each at five severities.

The kinds are among those of Hendrycks and Dietterich, 2019, the severities our own:
theirs are for photographs of 224 pixels and would leave nothing of a digit of 8 or 28.
Figures on these images do not compare with published ones.
"""

import hashlib
import io
from collections.abc import Callable, Sequence

import numpy as np
from scipy import ndimage, special

from churn_jax.data import DataError

SEVERITIES = (1, 2, 3, 4, 5)  # from the weakest

STANDARD_DEVIATION = (0.04, 0.08, 0.12, 0.16, 0.20)
DISK_RADIUS = (0.8, 1.2, 1.6, 2.1, 2.7)  # in pixels of an image whose side is 32
ADDED = (0.10, 0.19, 0.28, 0.37, 0.45)
CONTRAST_KEPT = (0.70, 0.52, 0.38, 0.26, 0.16)
QUALITY = (70, 50, 35, 22, 13)
_FINE = 9  # points per pixel and axis that the edge of the disk is smoothed by


def corrupt_images(
    images: np.ndarray, ids: Sequence, kind: str, severity: int
) -> np.ndarray:
    """Corrupted images `[N, H, W, C]` uint8; what is drawn depends on the id alone."""
    shape = images.shape
    if len(shape) != 4 or shape[-1] not in (1, 3) or images.dtype != np.uint8:
        raise DataError(
            "only uint8 images [N, H, W, 1] or [N, H, W, 3] can be corrupted; got "
            f"{images.dtype} {shape}"
        )
    out = np.empty_like(images)
    for i, image in enumerate(images):
        key = f"{kind}/{severity}/{ids[i]}"
        corrupted = CORRUPTIONS[kind](image / 255.0, key, severity - 1)
        out[i] = np.rint(255.0 * np.clip(corrupted, 0.0, 1.0))
    return out


def _gaussian_noise(x: np.ndarray, key: str, level: int) -> np.ndarray:
    # Raw PCG64 words, which NumPy keeps the same between versions.
    seed = hashlib.blake2b(key.encode(), digest_size=16).digest()
    words = np.random.PCG64(int.from_bytes(seed)).random_raw(x.size)
    uniform = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    return x + STANDARD_DEVIATION[level] * special.ndtri(uniform).reshape(x.shape)


def _defocus_blur(x: np.ndarray, key: str, level: int) -> np.ndarray:
    """Every point becomes a disk; half a pixel more, so that it exceeds a pixel."""
    del key
    radius = DISK_RADIUS[level] * min(x.shape[:2]) / 32.0 + 0.5
    side = 2 * int(np.ceil(radius + 0.5)) + 1
    fine = (np.arange(side * _FINE) + 0.5) / _FINE - side / 2
    inside = fine[:, None] ** 2 + fine[None, :] ** 2 <= radius**2
    disk = inside.reshape(side, _FINE, side, _FINE).mean(axis=(1, 3))
    return ndimage.convolve(x, (disk / disk.sum())[:, :, None], mode="nearest")


def _contrast(x: np.ndarray, key: str, level: int) -> np.ndarray:
    del key
    mean = x.mean(axis=(0, 1))
    return mean + CONTRAST_KEPT[level] * (x - mean)


def _jpeg_compression(x: np.ndarray, key: str, level: int) -> np.ndarray:
    del key
    from PIL import Image

    file, pixels = io.BytesIO(), np.rint(255.0 * x).astype(np.uint8)
    flat = pixels[..., 0] if x.shape[-1] == 1 else pixels
    Image.fromarray(flat).save(file, "JPEG", quality=QUALITY[level])
    return np.asarray(Image.open(file)).reshape(x.shape) / 255.0


CORRUPTIONS: dict[str, Callable[[np.ndarray, str, int], np.ndarray]] = {
    "gaussian_noise": _gaussian_noise,
    "defocus_blur": _defocus_blur,
    "brightness": lambda x, key, level: x + ADDED[level],
    "contrast": _contrast,
    "jpeg_compression": _jpeg_compression,
}
"""Our kinds, from an image `[H, W, C]` in 0 .. 1, a key and a level from 0 to 4."""
