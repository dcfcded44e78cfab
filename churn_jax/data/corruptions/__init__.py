"""Corruptions of images of any size, fifteen kinds at five severities.

Kinds and their names are those of Hendrycks and Dietterich, 2019. What a severity means
is ours: theirs are set for photographs of 224 pixels, and would leave nothing of a
digit of 8 or 28. Lengths are given for an image of 32 pixels and scale with its shorter
side. Frost and snow are drawn, not taken from photographs. So figures on these images
do not compare with published ones; `generated.py` also applies a library's corruptions.
"""

from collections.abc import Sequence

import numpy as np

from churn_jax.data.corruptions.kinds import FUNCTIONS, Draws
from churn_jax.setting_checks import check_choice

__all__ = ["CORRUPTIONS", "FUNCTIONS", "VERSION", "corrupt_images"]

VERSION = 1  # of the pixels: raise it when they change

_CHUNK = 256  # images at once, so that memory stays bounded

CORRUPTIONS = tuple(FUNCTIONS)
"""Names of the fifteen corruptions."""


def corrupt_images(
    images: np.ndarray, ids: Sequence, corruption: str, severity: int
) -> np.ndarray:
    """Corrupts each image; the draws depend on its id, not on the other images.

    Args:
        images: `[N, H, W, C]` uint8 with one or three channels.
        ids: `[N]`, one per image; the draws are a function of corruption, severity and
            id alone.
        corruption: one of `CORRUPTIONS`.
        severity: 1 (weakest) to 5.

    Returns:
        `[N, H, W, C]` uint8.

    Raises:
        ValueError: another shape, kind, severity or number of ids.
        TypeError: the images are not uint8.

    Example:
        >>> grey = np.full((1, 8, 8, 1), 100, np.uint8)
        >>> corrupt_images(grey, ["a"], "brightness", 5).max().item()
        215
        >>> noisy = corrupt_images(grey, ["a"], "gaussian_noise", 3)
        >>> (noisy == corrupt_images(grey, ["a"], "gaussian_noise", 3)).all().item()
        True

    References:
        [corruptions] Sec. 3 -- Hendrycks and Dietterich, Benchmarking Neural Network
        Robustness to Common Corruptions and Perturbations, ICLR 2019.
        https://arxiv.org/abs/1903.12261
    """
    if images.dtype != np.uint8:
        raise TypeError(f"images must be uint8; got {images.dtype}")
    if images.ndim != 4 or images.shape[-1] not in (1, 3) or len(ids) != len(images):
        raise ValueError(
            "images must be [N, H, W, 1] or [N, H, W, 3] with one id each; got shape "
            f"{images.shape} and {len(ids)} ids"
        )
    check_choice("corruption", corruption, CORRUPTIONS)
    if severity not in range(1, 6):
        raise ValueError(f"severity must be 1 to 5; got {severity!r}")
    out = np.empty_like(images)
    for start in range(0, len(images), _CHUNK):
        part = slice(start, start + _CHUNK)
        draws = Draws([f"{corruption}/{severity}/{name}" for name in ids[part]])
        x = images[part].astype(np.float64) / 255.0
        corrupted = FUNCTIONS[corruption](x, draws, severity - 1)
        out[part] = np.rint(255.0 * np.clip(corrupted, 0.0, 1.0))
    return out
