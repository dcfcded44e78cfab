"""Encoded images of various sizes and kinds, made without TensorFlow."""

import io

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from tests.data.small_sets import SmallSet, class_label, configs

CLASSES = 3


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """A smooth random colour image, as photographs are."""
    rng = np.random.default_rng(seed)
    few = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(few).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, kind: str = "JPEG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def example(i: int) -> bytes:
    """Record i: JPEGs of various sizes; some are grey, CMYK, or PNGs by that name."""
    image = picture(24 + 7 * (i % 5), 20 + 9 * (i % 4), seed=i)
    if i % 7 == 3:
        return encode(image.convert("L"))
    if i % 7 == 4:
        return encode(image.convert("CMYK"))
    if i % 7 == 5:
        return encode(image, "PNG")
    return encode(image, quality=90)


class ChurnJpegs(SmallSet):
    """Encoded images in the layouts of sets that are too large for memory.

    `imagenet` has the features of `imagenet2012`, `naturalist` those of
    `i_naturalist2018`, `bytes` files in a plain scalar, `corrupt` a broken file.
    """

    BUILDER_CONFIGS = configs("imagenet", "naturalist", "bytes", "corrupt")
    keys = ("image", "label")

    def contents(self):
        kind = self.builder_config.name
        image = tfds.features.Image(encoding_format="jpeg")
        if kind == "bytes":
            image = tfds.features.Scalar(np.object_)
        features = {"image": image, "label": class_label(CLASSES)}
        if kind == "naturalist":
            features |= {"id": tfds.features.Text(), "supercategory": class_label(2)}
        else:
            features["file_name"] = tfds.features.Text()
        counts = {"train": 40, "validation": 11}
        return features, {s: self.records(kind, n) for s, n in counts.items()}

    def records(self, kind, count):
        for i in range(count):
            encoded = example(i)
            if kind == "corrupt" and i == 7:
                encoded = encoded[: len(encoded) // 2]
            record = {"image": encoded, "label": i % CLASSES}
            if kind == "naturalist":
                yield record | {"id": f"photo{i}", "supercategory": i % 2}
            else:
                yield record | {"file_name": f"n{i:04d}.JPEG"}


def prepare_jpegs(folder, *kinds):
    """The sets of these kinds, in a folder."""
    for kind in kinds:
        builder = ChurnJpegs(data_dir=folder, config=kind)
        builder.download_and_prepare(file_format="array_record")
    return folder
