"""The corruptions of ImageNet-C at their own severities, by a library.

The library is `imagecorruptions-imaug`, a kept-up copy of the code behind the published
corruptions (Apache 2.0), and comes with `pip install 'churn-jax[corruptions]'`. Its
severities are those for 224 pixels: at 32 pixels they are harder than CIFAR-10-C's.
"""

import importlib.metadata
from collections.abc import Sequence

import numpy as np

from churn_jax.data.corruptions.draws import seed_of
from churn_jax.data.splits import DataError

__all__ = ["SMALLEST_SIDE", "library_corrupt", "library_version"]

SMALLEST_SIDE = 32  # the library refuses smaller images

_PACKAGE = "imagecorruptions-imaug"
# These two take a seed; NumPy's global generator does not decide them.
_SEEDED = ("glass_blur", "impulse_noise")


def library_version() -> str:
    """Which version of the library is installed."""
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise DataError(
            f"corrupting images needs {_PACKAGE}: pip install "
            "'churn-jax[corruptions]', or pass source='own' for corruptions of our own"
        ) from error


def library_corrupt(
    images: np.ndarray, ids: Sequence, corruption: str, severity: int
) -> np.ndarray:
    """Like `corrupt_images`, by the library; one image after the other."""
    # A grey image is corrupted as colour and averaged over channels.
    library_version()
    if min(images.shape[1:3]) < SMALLEST_SIDE:
        raise DataError(
            f"{_PACKAGE} needs images of at least {SMALLEST_SIDE} pixels a side; got "
            f"{images.shape[1:3]}: pass source='own'"
        )
    import imagecorruptions  # pyrefly: ignore[missing-import]

    out = np.empty_like(images)
    before = np.random.get_state()  # the library draws from NumPy's global generator
    try:
        for i, (image, name) in enumerate(zip(images, ids, strict=True)):
            seed = seed_of(f"{corruption}/{severity}/{name}") % 2**32
            np.random.seed(seed)
            options = {"seed": seed} if corruption in _SEEDED else {}
            corrupted = imagecorruptions.corrupt(
                np.ascontiguousarray(image),
                severity=severity,
                corruption_name=corruption,
                **options,
            )
            if image.shape[-1] == 1:
                corrupted = np.rint(corrupted.mean(axis=-1, keepdims=True))
            out[i] = corrupted
    finally:
        np.random.set_state(before)
    return out
