"""Snow, frost and fog, drawn: no photographs are needed."""

import numpy as np

from churn_jax.data.corruptions.blur import read_at
from churn_jax.data.corruptions.draws import Draws

__all__ = ["fog", "frost", "snow"]

FLAKES = (0.02, 0.035, 0.05, 0.07, 0.09)  # share of the pixels in which one starts
SNOW_LIGHT = (0.10, 0.16, 0.22, 0.28, 0.34)
FLAKE_LENGTH = 3.0  # in pixels of an image of side 32
FROST = (0.30, 0.42, 0.54, 0.66, 0.78)  # share of the image at the thickest ice
FOG = (0.20, 0.32, 0.44, 0.56, 0.68)

_STEPS = 7
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
    for place in FLAKE_LENGTH * unit * np.linspace(-0.5, 0.5, _STEPS):
        moved = read_at(
            flakes[..., None],
            rows + place * np.sin(angle),
            columns + place * np.cos(angle),
        )
        streaks = np.maximum(streaks, moved[..., 0])
    lighter = x + SNOW_LIGHT[level] * (1 - x)
    return np.maximum(lighter, _FLAKE_LIGHT * streaks[..., None])
