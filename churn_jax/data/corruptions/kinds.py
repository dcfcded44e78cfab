"""The fifteen kinds of corruption: noise, blur, weather and digital.

Each takes images `[n, H, W, C]` in 0 .. 1, random draws and a level from 0 to 4. Beyond
its border an image repeats its last pixel. Snow, frost and fog are drawn, so that no
photographs are needed.
"""

import hashlib
import io
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import ndimage, special


def seed_of(key: str) -> int:
    """A seed of 128 bits from a text, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest())


class Draws:
    """One stream of random numbers per image, by its key."""

    # Raw PCG64 words, which NumPy keeps the same between versions.

    def __init__(self, keys: Sequence[str]):
        self._streams = [np.random.PCG64(seed_of(key)) for key in keys]

    def uniform(self, *shape: int) -> np.ndarray:
        """`[n, *shape]` float64 in the open interval (0, 1)."""
        count = math.prod(shape)
        words = np.stack([stream.random_raw(count) for stream in self._streams])
        numbers = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
        return numbers.reshape(-1, *shape)

    def normal(self, *shape: int) -> np.ndarray:
        """`[n, *shape]` float64, standard normal."""
        return special.ndtri(self.uniform(*shape))


# --- Blur and the elastic transform: pixels are read from near where they belong.

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
    """Pixels of this image per pixel of an image of side 32."""
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
    row_step, column_step = min(1, height - 1), min(1, width - 1)
    image = np.arange(len(x))[:, None, None]
    upper = (1 - right) * x[image, top, left] + right * x[
        image, top, left + column_step
    ]
    lower = (1 - right) * x[image, top + row_step, left]
    lower += right * x[image, top + row_step, left + column_step]
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


# --- Noise.

STANDARD_DEVIATION = (0.04, 0.08, 0.12, 0.16, 0.20)
PHOTONS = (150, 75, 40, 20, 10)  # that a white pixel counts on average
CHANGED_SHARE = (0.02, 0.05, 0.09, 0.14, 0.20)


def gaussian_noise(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """`x + s n` with n standard normal in every pixel and channel."""
    return x + STANDARD_DEVIATION[level] * draws.normal(*x.shape[1:])


def shot_noise(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """`Poisson(c x) / c`: few photons are counted, c for a white pixel on average."""
    photons = PHOTONS[level]
    grey = np.rint(255.0 * x).astype(np.int64)  # x comes from bytes: 256 values
    most = photons + int(12 * np.sqrt(photons)) + 12
    through = special.pdtr(
        np.arange(most + 1), photons * np.arange(256)[:, None] / 255.0
    )
    through[:, -1] = 1.0
    # Inverting 256 distribution functions by one search: the one of grey value g is
    # raised by g, so that they follow each other in one rising table.
    table = (np.arange(256)[:, None] + through).reshape(-1)
    place = np.searchsorted(table, grey + draws.uniform(*x.shape[1:]))
    count = np.clip(place - grey * (most + 1), 0, most)
    return count / photons


def impulse_noise(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """A share of the pixels, channel by channel, becomes black or white."""
    share, drawn = CHANGED_SHARE[level], draws.uniform(*x.shape[1:])
    return np.where(drawn < share / 2, 0.0, np.where(drawn < share, 1.0, x))


# --- Weather.

FLAKES = (0.02, 0.035, 0.05, 0.07, 0.09)  # share of the pixels in which one starts
SNOW_LIGHT = (0.10, 0.16, 0.22, 0.28, 0.34)
FLAKE_LENGTH = 3.0  # in pixels of an image of side 32
FROST = (0.30, 0.42, 0.54, 0.66, 0.78)  # share of the image at the thickest ice
FOG = (0.20, 0.32, 0.44, 0.56, 0.68)

_COPIES = 7
_FLAKE_LIGHT = 0.9


def _clouds(draws: Draws, height: int, width: int) -> np.ndarray:
    """`[n, H, W]`, 0 to 1 in each image: random fields added up, finer ones weaker."""
    rows = np.linspace(0, 1, height)[None, :, None]
    columns = np.linspace(0, 1, width)[None, None, :]
    total, cells = 0.0, 1
    while cells < max(height, width):
        corners = draws.uniform(cells + 1, cells + 1)[..., None]
        total = total + read_at(corners, rows * cells, columns * cells)[..., 0] / cells
        cells *= 2
    low = np.min(total, axis=(1, 2), keepdims=True)
    high = np.max(total, axis=(1, 2), keepdims=True)
    return (total - low) / np.maximum(high - low, 1e-12)


def fog(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """Light grey clouds, thicker in some places, over the image."""
    clouds = _clouds(draws, *x.shape[1:3])[..., None]
    thickness = FOG[level] * (0.6 + 0.4 * clouds)
    return (1 - thickness) * x + thickness * (0.7 + 0.3 * clouds)


def frost(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """White veins, where clouds cross their middle, over a thin veil of ice."""
    ridges = 1 - np.abs(2 * _clouds(draws, *x.shape[1:3]) - 1)
    ice = (0.25 + 0.75 * ridges**2)[..., None] * FROST[level]
    return (1 - ice) * x + 0.95 * ice


def snow(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """Falling flakes, each a bright slanted streak, in an image that turns lighter."""
    count, height, width = x.shape[:3]
    unit = min(height, width) / 32.0
    flakes = (draws.uniform(height, width) < FLAKES[level]).astype(np.float64)
    angle = np.pi / 2 + np.pi / 6 * (2 * draws.uniform(1, 1) - 1)  # nearly downwards
    rows, columns = np.indices((height, width), np.float64)
    streaks = np.zeros((count, height, width))
    for place in FLAKE_LENGTH * unit * np.linspace(-0.5, 0.5, _COPIES):
        moved = read_at(
            flakes[..., None],
            rows + place * np.sin(angle),
            columns + place * np.cos(angle),
        )
        streaks = np.maximum(streaks, moved[..., 0])
    lighter = x + SNOW_LIGHT[level] * (1 - x)
    return np.maximum(lighter, _FLAKE_LIGHT * streaks[..., None])


# --- Digital.

ADDED = (0.10, 0.19, 0.28, 0.37, 0.45)
CONTRAST_KEPT = (0.70, 0.52, 0.38, 0.26, 0.16)
SIDE_KEPT = (0.80, 0.65, 0.52, 0.42, 0.34)
QUALITY = (70, 50, 35, 22, 13)


def brightness(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """A constant is added to every pixel."""
    del draws
    return x + ADDED[level]


def contrast(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """Values move towards the mean of their image and channel."""
    del draws
    mean = x.mean(axis=(1, 2), keepdims=True)
    return mean + CONTRAST_KEPT[level] * (x - mean)


def _coarsened(side: int, kept: int) -> np.ndarray:
    """`[side, side]`: means over `kept` equal stretches, spread over them again."""
    # A pixel on the border of two stretches takes its share of both: to take one alone
    # would move small images by most of a pixel.
    edges = np.arange(kept + 1) * side / kept
    pixels = np.arange(side)
    start, end = edges[:-1, None], edges[1:, None]
    covered = np.minimum(pixels + 1, end) - np.maximum(pixels, start)
    covered = np.clip(covered, 0, None)
    return covered.T @ covered * kept / side


def pixelate(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """Fewer, larger pixels, each the mean of what it covers."""
    del draws
    rows, columns = (
        _coarsened(side, max(1, round(SIDE_KEPT[level] * side)))
        for side in x.shape[1:3]
    )
    return np.einsum("hi,niwc,vw->nhvc", rows, x, columns, optimize=True)


def jpeg_compression(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """The image written as a JPEG file of low quality and read back."""
    del draws
    from PIL import Image

    pixels = np.rint(255.0 * x).astype(np.uint8)
    out = np.empty_like(x)
    for i, image in enumerate(pixels):
        file = io.BytesIO()
        flat = image[..., 0] if image.shape[-1] == 1 else image
        Image.fromarray(flat).save(file, "JPEG", quality=QUALITY[level])
        out[i] = np.asarray(Image.open(file)).reshape(image.shape) / 255.0
    return out


# By name, in the order of the paper: noise, blur, weather, digital.
FUNCTIONS: dict[str, Callable[[np.ndarray, Draws, int], np.ndarray]] = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        glass_blur,
        motion_blur,
        zoom_blur,
        snow,
        frost,
        fog,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
    )
}
