"""Test images under corruptions: a published folder, or five kinds of our own.

A published folder, such as CIFAR-10-C, holds `<kind>.npy`, uint8 `[5 n, H, W, C]` with
the n test images at severity 1, then at severity 2 and so on, and `labels.npy`. Other
sets are corrupted by kinds of Hendrycks and Dietterich, 2019, at severities of our own:
theirs are for photographs of 224 pixels and would leave nothing of a digit of 8 or 28.
Figures on these images do not compare with published ones.
"""

import hashlib
import io
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage, special

from churn_jax.data import DataError, Split

FOLDERS = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}
PUBLISHED = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
SEVERITIES = (1, 2, 3, 4, 5)

STANDARD_DEVIATION = (0.04, 0.08, 0.12, 0.16, 0.20)
DISK_RADIUS = (0.8, 1.2, 1.6, 2.1, 2.7)  # in pixels of an image whose side is 32
ADDED = (0.10, 0.19, 0.28, 0.37, 0.45)
CONTRAST_KEPT = (0.70, 0.52, 0.38, 0.26, 0.16)
QUALITY = (70, 50, 35, 22, 13)
_FINE = 9  # points per pixel and axis that the edge of the disk is smoothed by


@dataclass(frozen=True, eq=False)
class CorruptedSets:
    """The corrupted copies of one test set, read or made one at a time."""

    source: str  # for messages
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]  # of each kind, 1 (weakest) to 5
    # `(kind, severity)` to images `[N, H, W, C]` uint8 and labels `[N]`
    read: Callable[[str, int], tuple[np.ndarray, np.ndarray]]


def corrupted_sets(
    name: str,
    test: Split,
    *,
    manual_dir: str | pathlib.Path | None = None,
    kinds: Sequence[str] = (),
    severities: Sequence[int] = (),
) -> CorruptedSets:
    """Corrupted test images of a data set.

    Args:
        name: name of the data set, as for `load`.
        test: its clean test images, corrupted if there is no published folder.
        manual_dir: that folder, or the one that holds it (`CIFAR-10-C`, `CIFAR-100-C`,
            or else `<name>-C`).
        kinds: empty for the fifteen published ones, or for our five.
        severities: empty for all five.
    """
    base = name.removeprefix("tfds:").partition(":")[0]
    folder = _find_folder(base, manual_dir)
    known = PUBLISHED if folder else tuple(CORRUPTIONS)
    wanted, levels = tuple(kinds) or known, tuple(severities) or SEVERITIES
    for kind in wanted:
        if kind not in known:
            others = f"there are {', '.join(known)}"
            raise DataError(f"there is no corruption {kind!r}; {others}")
    if not set(levels) <= set(SEVERITIES):
        raise DataError(f"severities must be 1 to 5; got {levels}")
    if folder:
        read = _folder_reader(folder, wanted)
        return CorruptedSets(str(folder), wanted, levels, read)
    shape = test.images.shape
    if len(shape) != 4 or shape[-1] not in (1, 3) or test.images.dtype != np.uint8:
        raise DataError(
            "only uint8 images [N, H, W, 1] or [N, H, W, 3] can be corrupted; got "
            f"{test.images.dtype} {shape}"
        )

    def make(kind, severity):
        return corrupt_images(test.images, test.ids, kind, severity), test.labels

    return CorruptedSets(f"corrupted {name}", wanted, levels, make)


def _find_folder(name: str, manual_dir) -> pathlib.Path | None:
    if manual_dir is None:
        return None
    given, called = pathlib.Path(manual_dir), FOLDERS.get(name, f"{name}-C")
    if not given.is_dir():
        raise DataError(f"the manual_dir {given} is not a folder")
    if (given / "labels.npy").is_file():
        if given.name in FOLDERS.values() and given.name != called:
            raise DataError(f"{given} does not hold corrupted images of {name}")
        return given
    return given / called if (given / called).is_dir() else None


def _folder_reader(folder: pathlib.Path, kinds: Sequence[str]) -> Callable:
    """Reads one severity of a kind, once every file has been checked."""
    labels = _mapped(folder / "labels.npy")
    count = len(labels) // 5
    if not count or not np.array_equal(labels, np.tile(labels[:count], 5)):
        raise DataError(
            f"{folder / 'labels.npy'} must repeat the same labels for each of the five "
            f"severities; got shape {labels.shape}"
        )
    images = {kind: _mapped(folder / f"{kind}.npy") for kind in kinds}
    for kind, found in images.items():
        if found.ndim != 4 or len(found) != len(labels) or found.dtype != np.uint8:
            raise DataError(
                f"{folder / kind}.npy must be uint8 [{len(labels)}, H, W, C] like "
                f"labels.npy; got {found.dtype} {found.shape}"
            )
    first = np.array(labels[:count], np.int32)

    def read(kind: str, severity: int) -> tuple[np.ndarray, np.ndarray]:
        return images[kind][(severity - 1) * count : severity * count], first

    return read


def _mapped(path: pathlib.Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} is not a whole .npy file ({error}); unpack the archive again"
        ) from error


def corrupt_images(
    images: np.ndarray, ids: Sequence, kind: str, severity: int
) -> np.ndarray:
    """Corrupted images `[N, H, W, C]` uint8; what is drawn depends on the id alone."""
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
