"""Blurs and the elastic transform: pixels are read from beside where they belong.

Beyond the border the image repeats its last pixel.
"""

import numpy as np
from scipy import ndimage

from churn_jax.data.corruptions.draws import Draws

__all__ = [
    "defocus_blur",
    "elastic_transform",
    "glass_blur",
    "motion_blur",
    "read_at",
    "zoom_blur",
]

# Lengths in pixels of an image whose shorter side has 32.
DISK_RADIUS = (0.8, 1.2, 1.6, 2.1, 2.7)
GLASS_REACH = (0.6, 0.9, 1.2, 1.6, 2.1)
MOTION_LENGTH = (3.0, 4.5, 6.0, 8.0, 10.0)
LARGEST_ZOOM = (1.10, 1.16, 1.23, 1.31, 1.40)
ELASTIC_REACH = (0.8, 1.2, 1.6, 2.1, 2.7)
ELASTIC_SMOOTHNESS = 4.0

_STEPS = 9  # copies that a motion or a zoom is averaged over
_FINE = 9  # points per pixel and axis that the edge of the disk is smoothed by


def _unit(x: np.ndarray) -> float:
    """Pixels of this image per pixel of one of side 32."""
    return min(x.shape[1:3]) / 32.0


def read_at(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """`x [n, H, W, C]` at rows and columns `[n, h, w]`; 0 is the first one's middle."""
    height, width = x.shape[1:3]
    rows, columns = np.broadcast_arrays(
        np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)
    )
    top = np.minimum(rows.astype(np.int64), height - 2 if height > 1 else 0)
    left = np.minimum(columns.astype(np.int64), width - 2 if width > 1 else 0)
    down, right = (rows - top)[..., None], (columns - left)[..., None]
    below, beside = min(1, height - 1), min(1, width - 1)
    image = np.arange(len(x))[:, None, None]
    upper = (1 - right) * x[image, top, left] + right * x[image, top, left + beside]
    lower = (1 - right) * x[image, top + below, left]
    lower += right * x[image, top + below, left + beside]
    return (1 - down) * upper + down * lower


def _grid(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every pixel, `[1, H, W]` each."""
    rows, columns = np.indices(x.shape[1:3], np.float64)
    return rows[None], columns[None]


def _disk(radius: float) -> np.ndarray:
    """How much of each pixel a disk covers, `[k, k]`, summing to 1."""
    half = int(np.ceil(radius + 0.5))
    side = 2 * half + 1
    fine = (np.arange(side * _FINE) + 0.5) / _FINE - side / 2
    inside = fine[:, None] ** 2 + fine[None, :] ** 2 <= radius**2
    covered = inside.reshape(side, _FINE, side, _FINE).mean(axis=(1, 3))
    return covered / covered.sum()


def defocus_blur(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """Every point becomes a disk, as through a lens out of focus."""
    del draws
    # Half a pixel more: a disk inside a pixel would leave the image as it is.
    disk = _disk(DISK_RADIUS[level] * _unit(x) + 0.5)
    return ndimage.convolve(x, disk[None, :, :, None], mode="nearest")


def glass_blur(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """Every pixel is read from a random place near it."""
    reach = GLASS_REACH[level] * _unit(x)
    moved = reach * (2 * draws.uniform(2, *x.shape[1:3]) - 1)
    rows, columns = _grid(x)
    return read_at(x, rows + moved[:, 0], columns + moved[:, 1])


def motion_blur(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """The mean along a line; each image has a direction within 45 degrees of level."""
    angle = np.pi / 4 * (2 * draws.uniform(1, 1) - 1)
    rows, columns = _grid(x)
    blurred = np.zeros_like(x)
    for place in MOTION_LENGTH[level] * _unit(x) * np.linspace(-0.5, 0.5, _STEPS):
        blurred += read_at(
            x, rows + place * np.sin(angle), columns + place * np.cos(angle)
        )
    return blurred / _STEPS


def zoom_blur(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """The mean of the image and enlargements of its middle."""
    del draws
    rows, columns = _grid(x)
    middle_row, middle_column = (x.shape[1] - 1) / 2, (x.shape[2] - 1) / 2
    blurred = np.zeros_like(x)
    for zoom in np.linspace(1.0, LARGEST_ZOOM[level], _STEPS):
        blurred += read_at(
            x,
            middle_row + (rows - middle_row) / zoom,
            middle_column + (columns - middle_column) / zoom,
        )
    return blurred / _STEPS


def elastic_transform(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """The image is stretched and squeezed by a smooth random field."""
    # In each image and along each axis the field's root mean square is the reach.
    field = draws.normal(2, *x.shape[1:3])
    smoothness = ELASTIC_SMOOTHNESS * _unit(x)
    field = ndimage.gaussian_filter(field, (0, 0, smoothness, smoothness))
    size = np.sqrt(np.mean(field**2, axis=(2, 3), keepdims=True))
    moved = ELASTIC_REACH[level] * _unit(x) * field / size
    rows, columns = _grid(x)
    return read_at(x, rows + moved[:, 0], columns + moved[:, 1])
