"""Corrupted copies of our own test images, made when asked for and kept on request."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from churn_jax.data.corruptions import VERSION, corrupt_images
from churn_jax.data.corruptions.library import library_corrupt, library_version
from churn_jax.data.splits import DataError, Split, fingerprint

__all__ = ["Generated"]


@dataclass(frozen=True, eq=False)
class Generated:
    """Test images with a function that corrupts them."""

    test: Split  # the clean images
    name: str  # of the function and its version, part of the files' names
    corrupt: Callable[..., np.ndarray]  # (images, ids, corruption, severity) -> images
    folder: pathlib.Path | None  # keeps what was made; None makes it anew each time

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
        """The file, or None where it is missing, cut off or of other images."""
        try:
            images = np.load(path, mmap_mode="r")
        except (OSError, ValueError, EOFError):
            return None
        clean = self.test.images
        same = images.shape == clean.shape and images.dtype == clean.dtype
        return images if same else None


def _keep(path: pathlib.Path, images: np.ndarray) -> None:
    """Writes the file whole or not at all."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, suffix=".tmp", delete=False
        ) as file:
            temporary = pathlib.Path(file.name)
            np.save(file, images)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise DataError(f"{path} cannot be written ({error.strerror})") from error
        raise
