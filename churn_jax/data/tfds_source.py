"""TensorFlow Datasets, read by random access and without TensorFlow.

Sets prepared as array_record are read through `as_data_source`, which needs no
TensorFlow. *Preparing* an official image set does: that is the `tfds` extra, and
`churn-jax data` (`prepare.py`). Importing this module imports tensorflow-datasets, so
`load` imports it only when a name asks for it.
"""

import importlib.util
import pathlib

import numpy as np

from churn_compare.suggestions import did_you_mean
from churn_jax.data.sources import DATASETS
from churn_jax.data.splits import DataError, Split, check_split, first_line
from churn_jax.data.text import TextOptions, encode_texts, text_split

# TFDS only logs what it could not import, and fails later with an AttributeError.
_NEEDED = ("tensorflow_datasets", "promise", "importlib_resources", "array_record")
_missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
if _missing:
    raise DataError(
        f"data sets of TensorFlow Datasets need {' and '.join(_missing)}: pip install "
        f"{' '.join(_missing)} (.npz files, tables and the embedded digits do not)"
    )

import tensorflow_datasets as tfds  # noqa: E402

from churn_jax.data.tiny_imagenet import TinyImagenet  # noqa: E402

_CHUNK = 1024


def make_builder(name: str, data_dir: str | pathlib.Path | None = None):
    """The TFDS builder of `name[/config][:version]`, without using the network."""
    try:
        return tfds.builder(
            name, data_dir=None if data_dir is None else str(data_dir), try_gcs=False
        )
    except tfds.core.DatasetNotFoundError as error:
        base = name.split("/")[0].split(":")[0]
        official = tfds.list_builders(with_community_datasets=False)
        known = ["digits", *DATASETS, *official]
        hint = did_you_mean(base, known, count=3, cutoff=0.6)
        raise DataError(
            f"{name!r} is neither 'digits', a .npz file nor a name that TensorFlow "
            f"Datasets knows{hint}"
        ) from error
    except ImportError as error:
        raise DataError(
            f"{name}: its TFDS builder needs {error.name or error}, which is not "
            "installed (TensorFlow comes with pip install 'churn-jax[tfds]')"
        ) from error
    except (ValueError, AssertionError) as error:  # unknown configuration or version
        raise DataError(f"{name}: TFDS refuses it: {first_line(error)}") from error


def prepared_builder(name: str, data_dir: str | pathlib.Path | None):
    """The builder of a set, refused unless it is prepared."""
    builder = make_builder(name, data_dir)
    if not builder.is_prepared():
        where = "" if data_dir is None else f" --data-dir {data_dir}"
        if builder.MANUAL_DOWNLOAD_INSTRUCTIONS is not None:
            where += " --manual-dir FOLDER"
        needs = (
            ""
            if isinstance(builder, TinyImagenet)
            else " (official sets need the extra: pip install 'churn-jax[tfds]')"
        )
        raise DataError(
            f"{name} is not prepared in {builder.data_dir}: run `churn-jax data {name}"
            f"{where}`{needs}, or pass the data_dir that holds it"
        )
    return builder


class TfdsRecords:
    """Random access to one prepared split: `{"image", "label", "id"}` per index."""

    # Without an id of the set's own it is `<split>/<index>` in the prepared files,
    # whose order TFDS fixes per version of the set.

    def __init__(self, builder, name: str, split: str, *, encoded: bool):
        features, (image, label) = builder.info.features, _keys(builder)
        if not hasattr(features, "keys") or not {image, label} <= set(features.keys()):
            raise DataError(
                f"{name} has no image and label; its features are {features}"
            )
        an_image = len(features[image].shape or ()) == 3 or (
            encoded and image_size(builder) is not None
        )
        if not an_image or not hasattr(features[label], "num_classes"):
            raise DataError(
                f"{name} is not a set of images with class labels: {image} is "
                f"{features[image]} and {label} is {features[label]}"
            )
        skip = encoded and isinstance(features[image], tfds.features.Image)
        decoders = {image: tfds.decode.SkipDecoding()} if skip else None
        self._source, self._split = _source(builder, name, split, decoders), split
        self._image, self._label = image, label
        self._id = next((key for key in ("id", "file_name") if key in features), None)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> dict:
        return self.chunk(index, index + 1)[0]

    def chunk(self, start: int, stop: int) -> list[dict]:
        """The records `start..stop-1`, read together."""
        records = self._source.__getitems__(list(range(start, stop)))
        return [self._record(start + i, record) for i, record in enumerate(records)]

    def _record(self, index: int, record: dict) -> dict:
        name = f"{self._split}/{index}" if self._id is None else record[self._id]
        image = record[self._image]
        return {
            "image": image if isinstance(image, bytes) else np.asarray(image),
            "label": record[self._label],
            "id": name.decode() if isinstance(name, bytes) else name,
        }


def _source(builder, name: str, split: str, decoders=None):
    if split not in builder.info.splits:
        raise DataError(
            f"{name} has no {split!r} split; it has {', '.join(builder.info.splits)}"
        )
    try:
        return builder.as_data_source(split, decoders=decoders)
    except NotImplementedError as error:
        raise DataError(
            f"{name} in {builder.data_dir} was not prepared as array_record: delete it "
            f"and run `churn-jax data {name}`, or pass another data_dir"
        ) from error


def _keys(builder) -> tuple[str, str]:
    """Names of the image and of the label among the features."""
    keys = builder.info.supervised_keys or ("image", "label")
    return keys if len(keys) == 2 else ("image", "label")


def image_size(builder) -> tuple[int | None, ...] | None:
    """The shape of a set's images, `None` where it varies, or None without images."""
    features, key = builder.info.features, _keys(builder)[0]
    if not hasattr(features, "keys") or key not in features:
        return None
    feature = features[key]
    text = isinstance(feature, tfds.features.Text)
    if not text and feature.shape == () and feature.np_dtype == np.object_:
        return (None, None, 3)  # files in a plain scalar
    return tuple(feature.shape) if len(feature.shape or ()) == 3 else None


def split_names(builder, name: str) -> dict[str, str]:
    """The set's own names of `train`, `test` and, if it has one, `validation`."""
    # Without a test split, or with an unlabelled one, the validation split is the test.
    available = set(builder.info.splits)
    unlabelled = name.split("/")[0].startswith(("imagenet2012", "i_naturalist"))
    if "test" not in available or unlabelled:
        return {"train": "train", "test": "validation"}
    names = {"train": "train", "test": "test"}
    return names | ({"validation": "validation"} if "validation" in available else {})


def class_count(builder) -> int:
    """The number of classes of the labels."""
    return builder.info.features[_keys(builder)[1]].num_classes


def read_tfds(
    name: str, *, data_dir: str | pathlib.Path | None, text: TextOptions
) -> tuple[dict[str, Split], int]:
    """The splits of a prepared set in memory, and its number of classes."""
    builder, splits = prepared_builder(name, data_dir), {}
    features, (key, label) = builder.info.features, _keys(builder)
    texts = (
        hasattr(features, "keys")
        and {key, label} <= set(features.keys())
        and hasattr(features[label], "num_classes")
        and isinstance(features[key], tfds.features.Text)
    )
    for ours, theirs in split_names(builder, name).items():
        if texts:
            fields = dict.fromkeys(k for k in ("title", key) if k in features)
            source = _source(builder, name, theirs)
            splits[ours] = _read_texts(ours, theirs, source, [*fields], label, text)
        else:
            records = TfdsRecords(builder, name, theirs, encoded=False)
            splits[ours] = _read_images(f"{name} {theirs}", records)
    return splits, class_count(builder)


def _read_texts(
    where: str, split: str, source, fields: list[str], label: str, text: TextOptions
) -> Split:
    """Texts, which are the `fields` joined by a space; the title comes first."""
    texts, labels = [], []
    for start in range(0, len(source), _CHUNK):
        rows = range(start, min(start + _CHUNK, len(source)))
        for record in source.__getitems__(list(rows)):
            joined = b" ".join(record[field] for field in fields)
            texts.append(joined.decode().replace("\\", " "))
            labels.append(int(record[label]))
    ids = [f"{split}/{i}" for i in range(len(labels))]
    return text_split(where, encode_texts(texts, text), labels, ids)


def _read_images(where: str, records: TfdsRecords) -> Split:
    count, images = len(records), np.empty((0, 1))
    labels, ids = np.empty(count, np.int64), []
    for start in range(0, count, _CHUNK):
        chunk = records.chunk(start, min(start + _CHUNK, count))
        for i, record in enumerate(chunk, start):
            image = record["image"]
            if i == 0:
                images = np.empty((count, *image.shape), image.dtype)
            if image.shape != images.shape[1:]:
                raise DataError(
                    f"{where}: images differ in size ({images.shape[1:]} and "
                    f"{image.shape}); use load_streaming, which crops them to one"
                )
            images[i], labels[i] = image, record["label"]
            ids.append(record["id"])
    return check_split(where, images, labels, np.asarray(ids) if ids else None)
