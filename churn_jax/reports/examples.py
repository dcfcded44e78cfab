"""The test inputs that a report shows as images: `examples.npz` next to `study.json`.

Reports see nothing but artefacts, so a study leaves the images that they may want: all
of a small test split, else those on which the baseline's runs disagree most. They are
for looking at: uint8, and shrunk to at most 64 pixels a side.
"""

import dataclasses
import io
from pathlib import Path

import numpy as np

from churn_compare.array_files import NpzArrays, replace_file

MOST = 200  # examples kept of a large split
SMALL = 2**20  # bytes; a split up to here is kept whole
LARGEST_SIDE = 64  # pixels
FILE = "examples.npz"


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Inputs to show."""

    ids: np.ndarray  # `[K]`, as in the predictions
    images: np.ndarray  # `[K, H, W, C]` uint8, with one channel or three

    def find(self, identity) -> np.ndarray | None:
        """The image `[H, W, C]` of an example, or None if it was not kept."""
        at = np.flatnonzero(self.ids == identity)
        return self.images[at[0]] if at.size else None


def save_examples(out, ids, images, ambiguity=lambda: None) -> Path | None:
    """Keeps images for the report, of a large split those with most `ambiguity()`."""
    ids, streamed = np.asarray(ids), not hasattr(images, "shape")
    shape = (len(images), *images.image_shape) if streamed else images.shape
    if shape[:1] != ids.shape:
        raise ValueError(f"ids {ids.shape} and images {shape} must be of one length")
    if len(shape) not in (3, 4) or not all(shape):
        return None
    index = np.arange(len(ids))
    if np.prod(shape) > SMALL:
        if (found := ambiguity()) is None:
            return None
        order = np.argsort(-np.asarray(found), kind="stable")
        index = np.sort(order[:MOST])
    path = Path(out) / FILE
    if streamed:
        chosen = np.stack([images.image(int(i)) for i in index])
    else:
        chosen = images[index]
    with replace_file(path) as file:
        np.savez_compressed(file, ids=ids[index], images=_thumbnails(chosen))
    return path


def _thumbnails(images) -> np.ndarray:
    """`[K, H, W, C]` uint8 with one channel or three, no side over `LARGEST_SIDE`."""
    images = np.asarray(images)
    images = images[..., None] if images.ndim == 3 else images
    images = images[..., : 3 if images.shape[-1] >= 3 else 1]
    factor = -(-max(images.shape[1:3]) // LARGEST_SIDE)
    whole = images.dtype == np.uint8
    if factor > 1:  # the mean of factor x factor pixels; an uneven border is cut
        K, H, W, C = images.shape
        h, w = max(1, H // factor), max(1, W // factor)
        blocks = images[:, : h * factor, : w * factor]
        high, wide = min(H, factor), min(W, factor)
        images = blocks.reshape(K, h, high, w, wide, C).mean((2, 4))
    if whole:
        return np.round(images).astype(np.uint8)
    images = images.astype(np.float64)
    low, high = np.nanmin(images), np.nanmax(images)
    scaled = (images - low) / (high - low) if high > low else np.zeros_like(images)
    return np.round(255 * np.nan_to_num(scaled)).astype(np.uint8)


def load_examples(run_dir) -> Examples | None:
    """The inputs a study kept."""
    path = Path(run_dir) / FILE
    try:
        archive = NpzArrays(path)
        ids, images = archive["ids"], archive["images"]
    except (OSError, KeyError, ValueError):
        return None
    if images.ndim != 4 or images.dtype != np.uint8 or ids.shape != images.shape[:1]:
        return None
    return Examples(ids, images) if images.shape[3] in (1, 3) else None


def png_bytes(image: np.ndarray) -> bytes:
    """A PNG of `[H, W, 1]` or `[H, W, 3]` uint8, the same for the same pixels."""
    if image.ndim != 3 or image.dtype != np.uint8 or image.shape[2] not in (1, 3):
        raise ValueError(
            "image must be [H, W, 1] or [H, W, 3] uint8; got "
            f"{image.shape} {image.dtype}"
        )
    from PIL import Image

    out = io.BytesIO()
    grey = image.shape[2] == 1
    Image.fromarray(image[..., 0] if grey else image).save(out, "PNG")
    return out.getvalue()
