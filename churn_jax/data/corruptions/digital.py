"""Brightness, contrast, coarse pixels and lossy compression."""

import io

import numpy as np

from churn_jax.data.corruptions.draws import Draws

__all__ = ["brightness", "contrast", "jpeg_compression", "pixelate"]

ADDED = (0.10, 0.19, 0.28, 0.37, 0.45)
CONTRAST_KEPT = (0.70, 0.52, 0.38, 0.26, 0.16)
SIDE_KEPT = (0.80, 0.65, 0.52, 0.42, 0.34)
QUALITY = (70, 50, 35, 22, 13)


def brightness(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """Something is added everywhere."""
    del draws
    return x + ADDED[level]


def contrast(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """Values move towards the mean of their image and channel."""
    del draws
    mean = x.mean(axis=(1, 2), keepdims=True)
    return mean + CONTRAST_KEPT[level] * (x - mean)


def _coarsened(side: int, kept: int) -> np.ndarray:
    """`[side, side]`: means over `kept` equal stretches, spread over them again."""
    # A pixel on the border of two stretches takes of both what lies in it: to take one
    # alone would move small images by most of a pixel.
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
    """Written as a JPEG file of low quality and read back."""
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
