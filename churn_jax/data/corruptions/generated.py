"""Corrupted copies of our own test images, made on demand and kept on request.

By our own corruptions, or at ImageNet-C's own severities by `imagecorruptions-imaug`, a
kept-up copy of the code behind the published ones (Apache 2.0; `pip install
'churn-jax[corruptions]'`). Those severities are for 224 pixels: at 32 pixels they are
harder than CIFAR-10-C's.
"""

import importlib.metadata
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from churn_compare.array_files import replace_file
from churn_jax.data.corruptions import VERSION, corrupt_images
from churn_jax.data.corruptions.kinds import seed_of
from churn_jax.data.splits import DataError, Split, fingerprint


@dataclass(frozen=True, eq=False)
class Generated:
    """Test images with a function that corrupts them."""

    test: Split  # the clean images
    name: str  # of the function and its version, part of the files' names
    corrupt: Callable[..., np.ndarray]  # (images, ids, corruption, severity) -> images
    folder: pathlib.Path | None  # keeps what was made; None makes it each time

    @classmethod
    def by(
        cls, source: str, test: Split, cache_dir: str | pathlib.Path | None
    ) -> "Generated":
        """Corrupts `test` with the `library`, or with our `own` corruptions."""
        images = test.images
        if images.ndim != 4 or images.shape[-1] not in (1, 3):
            raise DataError(
                "only images [N, H, W, 1] or [N, H, W, 3] can be corrupted; got shape "
                f"{images.shape}"
            )
        if images.dtype != np.uint8:
            raise DataError(f"only uint8 images can be corrupted; got {images.dtype}")
        if source == "library":
            name, corrupt = f"imagecorruptions {library_version()}", library_corrupt
        else:
            name, corrupt = f"churn_jax corruptions {VERSION}", corrupt_images
        folder = None
        if cache_dir is not None:
            images_name = fingerprint(test)[:16]
            folder = pathlib.Path(cache_dir) / f"{name.replace(' ', '-')}-{images_name}"
        return cls(test, name, corrupt, folder)

    def read(self, corruption: str, severity: int) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels of one set, memory-mapped where it is kept."""
        if self.folder is None:
            return self._made(corruption, severity), self.test.labels
        path = self.folder / f"{corruption}_{severity}.npy"
        images = self._kept(path)
        if images is None:
            _keep(path, self._made(corruption, severity))
            images = self._kept(path)
        if images is None:
            raise DataError(f"{path} was written, but it cannot be read back")
        return images, self.test.labels

    def _made(self, corruption: str, severity: int) -> np.ndarray:
        return self.corrupt(self.test.images, self.test.ids, corruption, severity)

    def _kept(self, path: pathlib.Path) -> np.ndarray | None:
        """The images in a file; None if it is missing, truncated or of other images."""
        try:
            images = np.load(path, mmap_mode="r")
        except (OSError, ValueError, EOFError):
            return None
        clean = self.test.images
        same = images.shape == clean.shape and images.dtype == clean.dtype
        return images if same else None


def _keep(path: pathlib.Path, images: np.ndarray) -> None:
    """Writes the file whole or not at all."""
    try:
        with replace_file(path) as file:
            np.save(file, images)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror})") from error


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
